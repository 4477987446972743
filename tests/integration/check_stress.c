/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Everything at once: worker processes that allocate, share, open, free and trim at random through
 * the library, one that is killed over and over, one that sends nonsense, and a daemon with less
 * memory than they want. Whoever has memory finds its own marks in it, the daemon's figures add up
 * at every look, and at the end nothing is left. The number of steps is fixed, the seed printed.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpumem/gpumem.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define WORKERS 4
#define STEPS   1500
#define KILLS   25
#define MIB     (UINT64_C(1) << 20)

static struct gm_daemon daemon_;

/* Tokens passed around without any care: one that is torn or old is simply not found. */
static gpumem_token *board;

struct role {
	unsigned seed;
	unsigned number;
};

static gpumem_session *join(void)
{
	gpumem_session *session = NULL;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.name = "stress";
	if (gpumem_connect(&options, &session) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
	return session;
}

/* Not enough memory is a fair answer here; nothing else is. */
static bool granted(gpumem_status status)
{
	if (status != GPUMEM_OK && status != GPUMEM_E_NO_MEMORY)
		GM_FAIL("status %d: %s", (int)status, gpumem_error_detail());
	return status == GPUMEM_OK;
}

#define HELD 24
struct held {
	uint8_t *p;
	size_t n;
	uint8_t mark;
};

static void step_pointer(gpumem_session *session, struct held *held, unsigned *seed)
{
	if (held->p) {
		if (!gm_device_is(held->p, 1, held->mark) ||
			!gm_device_is(held->p + held->n / 2, 1, held->mark) ||
			!gm_device_is(held->p + held->n - 1, 1, held->mark))
			GM_FAIL("somebody wrote into %zu bytes of mine", held->n);
		if (gpumem_free(session, held->p, GPUMEM_STREAM_DONE) != GPUMEM_OK)
			GM_FAIL("%s", gpumem_error_detail());
		held->p = NULL;
		return;
	}
	void *p;
	held->n = 1 + (size_t)rand_r(seed) % (rand_r(seed) % 4 ? 20000 : 6 * MIB);
	held->mark = (uint8_t)rand_r(seed);
	if (!granted(gpumem_alloc(session, 0, held->n, NULL, NULL, &p)))
		return;
	held->p = p;
	gm_device_set(held->p, 1, held->mark);
	gm_device_set(held->p + held->n / 2, 1, held->mark);
	gm_device_set(held->p + held->n - 1, 1, held->mark);
}

static void step_buffer(gpumem_session *session, gpumem_buffer **buffer, gpumem_buffer **view,
	const struct role *role, unsigned *seed)
{
	gpumem_token token;
	switch (rand_r(seed) % 5) {
	case 0:
		if (!*buffer)
			granted(gpumem_buffer_create(
				session, 0, 1 + (size_t)rand_r(seed) % (9 * MIB), NULL, buffer));
		break;
	case 1:
		if (*buffer) {
			gm_device_set(gpumem_buffer_ptr(*buffer), 1, (uint8_t)role->number);
			gpumem_status status = gpumem_share(*buffer, NULL, &token);
			if (status == GPUMEM_OK)
				board[role->number] = token;
			else if (status != GPUMEM_E_LIMIT)
				GM_FAIL("%s", gpumem_error_detail());
		}
		break;
	case 2:
		if (!*view) {
			token = board[(unsigned)rand_r(seed) % WORKERS];
			gpumem_status status = gpumem_open(session, &token, view);
			if (status != GPUMEM_OK && status != GPUMEM_E_NOT_FOUND)
				GM_FAIL("open: %d: %s", (int)status, gpumem_error_detail());
			if (status == GPUMEM_OK)
				gm_device_set((uint8_t *)gpumem_buffer_ptr(*view) +
						      gpumem_buffer_size(*view) - 1,
					1, 1);
		}
		break;
	case 3:
		gpumem_buffer_destroy(*buffer);
		*buffer = NULL;
		break;
	case 4:
		gpumem_buffer_destroy(*view);
		*view = NULL;
		break;
	}
}

static void work(const struct role *role, unsigned steps)
{
	unsigned seed = role->seed;
	gpumem_session *session = join();
	struct held held[HELD] = {0};
	gpumem_buffer *buffer = NULL, *view = NULL;
	for (unsigned i = 0; i < steps; i++) {
		int what = rand_r(&seed) % 20;
		if (what < 14)
			step_pointer(session, &held[(unsigned)rand_r(&seed) % HELD], &seed);
		else if (what < 19)
			step_buffer(session, &buffer, &view, role, &seed);
		else if (gpumem_trim(session, NULL) != GPUMEM_OK)
			GM_FAIL("%s", gpumem_error_detail());
	}
	for (size_t i = 0; i < HELD; i++) {
		if (held[i].p)
			step_pointer(session, &held[i], &seed);
	}
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

static void work_to_the_end(int channel, void *argument)
{
	work(argument, STEPS);
}

static void work_until_killed(int channel, void *argument)
{
	gm_text_say_word(channel, 'r');
	work(argument, UINT32_MAX);
}

static void talk_nonsense(int channel, void *argument)
{
	unsigned seed = ((struct role *)argument)->seed;
	for (int i = 0; i < 300; i++) {
		struct gm_raw raw;
		uint8_t bytes[200];
		if (rand_r(&seed) & 1)
			gm_raw_join(&raw, &daemon_);
		else
			GM_REQUIRE(gm_raw_connect(&raw, daemon_.socket) == 0);
		for (int k = rand_r(&seed) % 4; k >= 0; k--) {
			size_t n = 1 + (size_t)rand_r(&seed) % sizeof(bytes);
			for (size_t m = 0; m < n; m++)
				bytes[m] = (uint8_t)rand_r(&seed);
			gm_raw_send_bytes(&raw, bytes, n, NULL, 0);
		}
		gm_raw_close(&raw);
	}
}

static void check_figures(void)
{
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased + f.quarantined + f.admitted + f.pooled <= f.ceiling);
	GM_REQUIRE_EQ(f.available, f.ceiling - f.leased - f.quarantined - f.admitted);
}

START_TEST(everything_at_once_leaves_nothing_behind)
{
	struct role roles[WORKERS + 2];
	struct gm_worker workers[WORKERS], victim, fool;
	const char *given = getenv("GPUMEM_TEST_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 1;
	fprintf(stderr, "# seed %u (GPUMEM_TEST_SEED)\n", seed);
	board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "128M")});
	for (unsigned i = 0; i < WORKERS + 2; i++)
		roles[i] = (struct role){.seed = (unsigned)rand_r(&seed), .number = i};
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_start(&workers[i], work_to_the_end, &roles[i]);
	gm_worker_start(&fool, talk_nonsense, &roles[WORKERS]);
	for (int i = 0; i < KILLS; i++) {
		roles[WORKERS + 1].seed = (unsigned)rand_r(&seed);
		roles[WORKERS + 1].number = 0;
		gm_worker_start(&victim, work_until_killed, &roles[WORKERS + 1]);
		gm_hear_word(victim.channel, 'r');
		for (int n = rand_r(&seed) % 20; n >= 0; n--)
			check_figures();
		gm_worker_kill(&victim);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_join(&workers[i]);
	gm_worker_join(&fool);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	check_figures();
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.quarantined + f.admitted + f.leases + f.quarantined_clients, 0);
	/* All of it can be had at once. */
	gpumem_session *session = join();
	void *p;
	GM_REQUIRE(granted(gpumem_alloc(session, 0, f.capacity, NULL, NULL, &p)));
	gm_device_set(p, f.capacity, 1);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
	munmap(board, 4096);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stress");
	TCase *tc = tcase_create("stress");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, everything_at_once_leaves_nothing_behind);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
