/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Two trust domains get memory of the same size in turns, fill it, and return it or die with it, while
 * the daemon is killed now and then. Neither ever finds a byte of the other's in its memory.
 * One source for the fake driver and a real GPU; with GPUMEM_TEST_BACKEND=host for host memory, too.
 *
 *   GPUMEM_TEST_CYCLES  how often each case goes round
 *   GPUMEM_TEST_SEED    which sizes, ends and deaths
 */

#include "tests/gpu/broker.h"

enum { CYCLES = 40, DEATHS = 10, KILLS = 25 };

static bool on_host(void)
{
	const char *backend = getenv("GPUMEM_TEST_BACKEND");
	return backend && strcmp(backend, "host") == 0;
}

static unsigned environment(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);
	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

/* ---- a worker */

struct side {
	unsigned number; /* 0 or 1 */
	uid_t uid;       /* 0: as the test */
};

struct wish {
	char word; /* l: lease, look and fill; r: return; e: end */
	uint8_t value;
	uint64_t bytes;
};

/* The sides fill their memory with bytes of different kinds, so that each knows the other's. */
static uint8_t value_of(unsigned number, unsigned random)
{
	return (uint8_t)(number * 128 + 1 + random % 127);
}

static void read_memory(void *ptr, unsigned char *copy, uint64_t bytes)
{
	if (on_host()) {
		memcpy(copy, ptr, bytes);
		return;
	}
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, (gm_cu_ptr)(uintptr_t)ptr, bytes, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
}

static void fill_memory(void *ptr, uint64_t bytes, uint8_t value)
{
	if (on_host()) {
		memset(ptr, value, bytes);
		return;
	}
	fill(ptr, bytes, value, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
}

static uint64_t count_others(void *ptr, uint64_t bytes, unsigned number)
{
	unsigned char *copy = malloc(bytes);
	uint64_t n = 0;
	GM_REQUIRE(copy);
	read_memory(ptr, copy, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		n += copy[i] && (copy[i] > 128) != number;
	free(copy);
	return n;
}

static void user(int channel, void *argument)
{
	const struct side *side = argument;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	struct wish wish;

	if (side->uid)
		become(side->uid);
	join("user");
	if (!on_host())
		use_gpu();
	gm_text_say_word(channel, 'j');
	options.wait_ms = GM_PATIENCE_MS;
	for (gm_hear(channel, &wish, sizeof(wish)); wish.word != 'e';
		gm_hear(channel, &wish, sizeof(wish))) {
		uint64_t others = 0;
		if (wish.word == 'r') {
			gpumem_buffer_destroy(buffer);
			buffer = NULL;
		} else {
			OK(gpumem_buffer_create(session, 0, wish.bytes, &options, &buffer));
			others = count_others(gpumem_buffer_ptr(buffer), wish.bytes, side->number);
			fill_memory(gpumem_buffer_ptr(buffer), wish.bytes, wish.value);
		}
		gm_text_say(channel, &others, sizeof(others));
	}
	gpumem_disconnect(session);
}

/* ---- the test's side */

static uint64_t ask(const struct gm_worker *worker, struct wish wish)
{
	uint64_t others;
	gm_text_say(worker->channel, &wish, sizeof(wish));
	gm_hear(worker->channel, &others, sizeof(others));
	return others;
}

/* Nobody waits for a daemon that dies during the hello, so none does. */
static void begin(struct gm_worker *worker, struct side *side)
{
	gm_worker_start(worker, user, side);
	gm_hear_word(worker->channel, 'j');
}

/* Now and then, the daemon dies. */
static unsigned kill_sometimes(unsigned *seed)
{
	if (rand_r(seed) % KILLS)
		return 0;
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	return 1;
}

static void start_daemon(const char *config)
{
	char text[512];
	if (!on_host()) {
		start_with(config);
		return;
	}
	snprintf(text, sizeof(text), "%s[device 0]\nsize = 512M\n", config);
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = text});
}

static void take_turns(bool users, const char *config)
{
	unsigned cycles = environment("GPUMEM_TEST_CYCLES", CYCLES);
	unsigned seed = environment("GPUMEM_TEST_SEED", (unsigned)getpid());
	unsigned kills = 0, ends = 0;
	uint64_t found = 0, looked = 0;
	struct side sides[2] = {{.number = 0}, {.number = 1, .uid = users ? UID_A : 0}};
	struct gm_worker workers[2];

	fprintf(stderr, "# seed %u (GPUMEM_TEST_SEED)\n", seed);
	start_daemon(config);
	for (unsigned i = 0; i < 2; i++)
		begin(&workers[i], &sides[i]);

	for (unsigned cycle = 0; cycle < cycles; cycle++) {
		uint64_t bytes = (1 + (unsigned)rand_r(&seed) % 3) * 2 * MIB;
		for (unsigned i = 0; i < 2; i++) {
			struct wish wish = {'l', value_of(i, (unsigned)rand_r(&seed)), bytes};
			found += ask(&workers[i], wish);
			looked += bytes;
			kills += kill_sometimes(&seed);
			if (rand_r(&seed) % DEATHS == 0) {
				gm_worker_kill(&workers[i]);
				begin(&workers[i], &sides[i]);
				ends++;
			} else {
				ask(&workers[i], (struct wish){.word = 'r'});
			}
			kills += kill_sometimes(&seed);
		}
	}

	for (unsigned i = 0; i < 2; i++) {
		gm_text_say(workers[i].channel, &(struct wish){.word = 'e'}, sizeof(struct wish));
		gm_worker_join(&workers[i]);
	}
	tear_down();
	fprintf(stderr,
		"# %u cycles, %u deaths of a worker, %u of the daemon: %llu of %llu bytes were "
		"the other's\n",
		cycles, ends, kills, (unsigned long long)found, (unsigned long long)looked);
	GM_REQUIRE_EQ(found, 0);
}

/*
 * With a pool, a small one: what one domain returned has to go when the other wants memory. Without,
 * what comes back is destroyed at once, and a driver likes to give the same memory again.
 */
#define POOL    "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 8M\n"
#define NO_POOL "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 0\n"

START_TEST(no_user_sees_what_another_wrote)
{
	take_turns(true, _i ? NO_POOL : POOL);
}
END_TEST

START_TEST(no_client_sees_what_another_wrote_if_each_is_a_domain)
{
	take_turns(false, _i ? NO_POOL "trust = client\n" : POOL "trust = client\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reuse");
	TCase *tcase = tcase_create("reuse");

	/* Only what hangs is to end: each wait is bounded by the harness. */
	tcase_set_timeout(tcase, 200 + 2 * environment("GPUMEM_TEST_CYCLES", CYCLES));
	if (GM_TAP_WITH_USERS(no_user_sees_what_another_wrote))
		tcase_add_loop_test(tcase, no_user_sees_what_another_wrote, 0, 2);
	tcase_add_loop_test(tcase, no_client_sees_what_another_wrote_if_each_is_a_domain, 0, 2);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
