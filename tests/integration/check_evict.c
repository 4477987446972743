/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Many clients whose evictable buffers are three times what the device has. Each pins a few of them at a
 * time, at random, checks every byte, and writes new ones. Every client gets on, whatever happens to the
 * others: clients are killed, and so is the daemon. Afterwards the daemon's books are empty.
 *
 *   GPUMEM_TEST_SEED     which random steps
 *   GPUMEM_TEST_STEPS    how many each client does
 *   GPUMEM_TEST_BUFFERS  how many buffers each client has
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpumem/gpumem_evict.h"
#include "tests/integration/device.h"
#include "tests/integration/device_bytes.h"
#include "tests/integration/ok.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define GIB (UINT64_C(1) << 30)
#define KIB (UINT64_C(1) << 10)

enum {
	WORKERS = 10,
	BUFFERS_MOST = 100, /* of each worker */
	PINNED = 2,         /* by each worker at a time */
	STEPS = 300,
	WORDS = 128 * 1024 / 8, /* of the largest buffer */
	KILLS = 8,
};

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake unless
 * told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;

/* What all processes share. */
static struct board {
	_Atomic uint64_t steps[WORKERS];
	_Atomic uint64_t brought_back, in_host;
	_Atomic unsigned joined; /* workers that have a session, or had one */
} * board;

static unsigned from_environment(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* A fake GPU allocates memory when it is created, not when it is touched: 1,000 buffers need 3 GiB. */
static bool has_memory_for_most(void)
{
	return !gm_on_gpu() ||
	       (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >= 7 * GIB;
}

static unsigned n_buffers(void)
{
	unsigned usual = has_memory_for_most() && !gm_sanitized() ? BUFFERS_MOST : 20;
	unsigned n = from_environment("GPUMEM_TEST_BUFFERS", usual);
	return n && n < BUFFERS_MOST ? n : BUFFERS_MOST;
}

static unsigned n_steps(void)
{
	return from_environment("GPUMEM_TEST_STEPS", gm_sanitized() ? STEPS / 5 : STEPS);
}

/* Each buffer has a chunk of 2 MiB, and there is room for a third of them. */
static void start_daemon(void)
{
	static char config[512];
	unsigned all = WORKERS * n_buffers() * 2;
	snprintf(config, sizeof(config),
		"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%%\n"
		"host_limit = %uM\n[device 0]\nsize = %uM\n",
		all + 64, all / 3 / 2 * 2);
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
}

static uint64_t held_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.leased + f.quarantined + f.admitted;
}

static uint64_t pooled_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.pooled;
}

/* Nobody holds anything any more, on the device and in host memory; what is pooled is all there is. */
static void require_nothing_held(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	/* Memory of clients that ended is released in slices. */
	GM_UNTIL(held_on(0) + held_on(1) == 0);
	GM_UNTIL(gm_device_bytes(&daemon_) == pooled_on(0) + (gm_on_gpu() ? 0 : pooled_on(1)));
}

static void stop_daemon(void)
{
	require_nothing_held();
	gm_daemon_stop(&daemon_);
	munmap(board, sizeof(*board));
}

/* ---- a worker */

struct held {
	gpumem_buffer *buffer;
	uint64_t stamp;
};

struct worker {
	gpumem_session *session;
	unsigned number, seed;
	struct held held[BUFFERS_MOST];
	uint64_t stamps;
	uint64_t words[WORDS];
};

static unsigned pick(struct worker *w, unsigned n)
{
	return (unsigned)rand_r(&w->seed) % n;
}

static uint64_t word_at(const struct worker *w, uint64_t stamp, size_t i)
{
	return (uint64_t)w->number << 56 ^ stamp << 24 ^ i;
}

static void write_all(struct worker *w, struct held *held)
{
	size_t bytes = gpumem_buffer_size(held->buffer);
	held->stamp = ++w->stamps;
	for (size_t i = 0; i < bytes / 8; i++)
		w->words[i] = word_at(w, held->stamp, i);
	gm_device_write(gpumem_buffer_ptr(held->buffer), w->words, bytes);
}

static void check_all(struct worker *w, const struct held *held)
{
	size_t bytes = gpumem_buffer_size(held->buffer);
	memset(w->words, 0, bytes);
	gm_device_read(w->words, gpumem_buffer_ptr(held->buffer), bytes);
	for (size_t i = 0; i < bytes / 8; i++)
		if (w->words[i] != word_at(w, held->stamp, i))
			GM_FAIL("worker %u: word %zu of %zu is 0x%llx, not 0x%llx", w->number, i,
				bytes / 8, (unsigned long long)w->words[i],
				(unsigned long long)word_at(w, held->stamp, i));
}

static void pin(struct held *held, bool host_ok)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	bool away = gpumem_buffer_location(held->buffer) == GPUMEM_LOCATION_HOST;
	options.wait_ms = host_ok ? 0 : GM_PATIENCE_MS;
	options.flags = host_ok ? GPUMEM_PIN_HOST_OK : 0;
	OK(gpumem_buffer_pin(held->buffer, &options, &where));
	GM_REQUIRE(host_ok || where == GPUMEM_LOCATION_DEVICE);
	board->brought_back += away && where == GPUMEM_LOCATION_DEVICE;
	board->in_host += where == GPUMEM_LOCATION_HOST;
}

static void make(struct worker *w, struct held *held)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	options.wait_ms = GM_PATIENCE_MS;
	size_t bytes = (1 + pick(w, 16)) * 8 * KIB;
	OK(gpumem_buffer_create(w->session, 0, bytes, &options, &held->buffer));
	pin(held, false);
	write_all(w, held);
	OK(gpumem_buffer_unpin(held->buffer, NULL));
}

static void step(struct worker *w)
{
	struct held *held[PINNED];
	unsigned n = 1 + pick(w, PINNED), first = pick(w, n_buffers());
	for (unsigned i = 0; i < n; i++) {
		held[i] = &w->held[(first + i * 7) % n_buffers()];
		pin(held[i], pick(w, 8) == 0);
		check_all(w, held[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		if (pick(w, 2))
			write_all(w, held[i]);
		OK(gpumem_buffer_unpin(held[i]->buffer, pick(w, 2) ? NULL : GPUMEM_STREAM_ANY));
	}
	if (pick(w, 20) == 0) {
		gpumem_status status = gpumem_buffer_evict(held[0]->buffer);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY ||
			   status == GPUMEM_E_CANCELLED);
	}
	/* Also while the library's thread may be moving it. */
	if (pick(w, 20) == 0) {
		gpumem_buffer_destroy(held[0]->buffer);
		make(w, held[0]);
	}
	board->steps[w->number]++;
}

/* Works until it has done all steps; with endless, until it is killed. */
static void work(int channel, void *argument, bool endless)
{
	struct worker *w = calloc(1, sizeof(*w));
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	GM_REQUIRE(w);
	w->number = *(const unsigned *)argument;
	w->seed = from_environment("GPUMEM_TEST_SEED", 1) * 100 + w->number;
	options.socket = daemon_.socket;
	OK(gpumem_connect(&options, &w->session));
	board->joined++;
	for (unsigned i = 0; i < n_buffers(); i++)
		make(w, &w->held[i]);
	for (unsigned i = 0; i < n_steps() || endless; i++)
		step(w);
	for (unsigned i = 0; i < n_buffers(); i++) {
		pin(&w->held[i], false);
		check_all(w, &w->held[i]);
		if (i % 2)
			gpumem_buffer_destroy(w->held[i].buffer);
		else
			OK(gpumem_buffer_unpin(w->held[i].buffer, GPUMEM_STREAM_DONE));
	}
	gpumem_disconnect(w->session);
	free(w);
}

static void work_to_the_end(int channel, void *argument)
{
	work(channel, argument, false);
}

static void work_until_killed(int channel, void *argument)
{
	work(channel, argument, true);
}

static void start(struct gm_worker workers[WORKERS], unsigned numbers[WORKERS], unsigned first,
	unsigned end, gm_worker_fn fn)
{
	for (unsigned i = first; i < end; i++) {
		numbers[i] = i;
		gm_worker_start(&workers[i], fn, &numbers[i]);
	}
}

/* ---- the tests */

START_TEST(three_times_the_memory_that_there_is_works_for_all)
{
	struct gm_worker workers[WORKERS];
	unsigned numbers[WORKERS];
	start(workers, numbers, 0, WORKERS, work_to_the_end);
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_join(&workers[i]);
	printf("# %u buffers of %u clients: %llu times one was brought back, %llu times one was used in host memory\n",
		WORKERS * n_buffers(), WORKERS, (unsigned long long)board->brought_back,
		(unsigned long long)board->in_host);
	GM_REQUIRE(board->brought_back >= WORKERS * n_buffers());
}
END_TEST

/* Half of the clients are killed again and again, while the others work. */
START_TEST(clients_that_are_killed_leave_nothing_behind)
{
	struct gm_worker workers[WORKERS];
	unsigned numbers[WORKERS], half = WORKERS / 2;
	start(workers, numbers, 0, half, work_to_the_end);
	start(workers, numbers, half, WORKERS, work_until_killed);
	for (unsigned i = 0; i < KILLS; i++) {
		unsigned victim = half + i % half;
		uint64_t from = board->steps[victim];
		GM_UNTIL(board->steps[victim] > from + i);
		gm_worker_kill(&workers[victim]);
		start(workers, numbers, victim, victim + 1, work_until_killed);
	}
	for (unsigned i = 0; i < half; i++)
		gm_worker_join(&workers[i]);
	for (unsigned i = half; i < WORKERS; i++)
		gm_worker_kill(&workers[i]);
}
END_TEST

/* What is evicted stays so, and what moves while the daemon dies is not lost. */
START_TEST(a_daemon_that_is_killed_is_not_noticed)
{
	struct gm_worker workers[WORKERS];
	unsigned numbers[WORKERS];
	start(workers, numbers, 0, WORKERS, work_to_the_end);
	/* Sessions outlive the daemon; gpumem_connect() fails without one. */
	GM_UNTIL(board->joined == WORKERS);
	for (unsigned i = 0; i < KILLS; i++) {
		uint64_t from = board->brought_back;
		GM_UNTIL(board->brought_back > from + i * 7);
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_join(&workers[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("evict");
	TCase *tc = tcase_create("evict");
	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, start_daemon, stop_daemon);
	tcase_add_test(tc, three_times_the_memory_that_there_is_works_for_all);
	tcase_add_test(tc, clients_that_are_killed_leave_nothing_behind);
	tcase_add_test(tc, a_daemon_that_is_killed_is_not_noticed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
