/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon is killed again and again while two workers compute and allocate in its memory. No call
 * fails, what they hold keeps its contents, the books are as before, and in the end the device has
 * all its memory back. One source for the fake driver and a real GPU.
 */

#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/gpu/broker.h"

enum { WORKERS = 2, KILLS = 20 };
#define KEPT (64 * MIB)
#define WORK (8 * MIB)

/* How many rounds each worker has done; shared with them. */
static _Atomic unsigned *rounds;

/* Computes in memory that it asks the daemon for in each round, and looks after what it keeps. */
static void computer(int channel, void *argument)
{
	_Atomic unsigned *mine = argument;
	unsigned char value = (unsigned char)(1 + (mine - rounds));
	gpumem_buffer *kept;
	void *block;

	join("computer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(gpumem_buffer_create(session, 0, KEPT, NULL, &kept));
	fill(gpumem_buffer_ptr(kept), KEPT, value, stream);
	gm_text_say_word(channel, 'k');
	while (!gm_raw_readable(channel)) {
		OK(gpumem_alloc(session, 0, WORK, stream, NULL, &block));
		fill(block, WORK, (unsigned char)~value, stream);
		GM_REQUIRE(all(block, WORK, (unsigned char)~value, stream));
		OK(gpumem_free(session, block, stream));
		OK(gpumem_trim(session, NULL));
		(*mine)++;
	}
	gm_hear_word(channel, 'e');
	GM_REQUIRE(all(gpumem_buffer_ptr(kept), KEPT, value, stream));
	gpumem_buffer_destroy(kept);
	gpumem_disconnect(session);
}

static void await_rounds(unsigned n)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		unsigned from = rounds[i];
		GM_UNTIL(rounds[i] >= from + n);
	}
}

START_TEST(workers_compute_on_while_the_daemon_is_killed_again_and_again)
{
	struct gm_worker watch, workers[WORKERS];

	rounds = mmap(NULL, WORKERS * sizeof(*rounds), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(rounds != MAP_FAILED);
	start_with("[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 0\n");
	gm_worker_start(&watch, watcher, NULL);
	uint64_t before = ask_free(&watch);
	for (unsigned i = 0; i < WORKERS; i++) {
		gm_worker_start(&workers[i], computer, &rounds[i]);
		gm_hear_word(workers[i].channel, 'k');
	}

	for (unsigned i = 0; i < KILLS; i++) {
		await_rounds(2);
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		/* Whoever has come back or not: what they keep is charged. */
		struct gm_figures f = gm_figures_now(&daemon_);
		GM_REQUIRE(f.leased + f.quarantined >= WORKERS * KEPT);
		await_rounds(1);
	}

	GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		end_worker(&workers[i]);
	GM_UNTIL(ask_free(&watch) + 16 * MIB >= before);
	end_worker(&watch);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("comeback");
	TCase *tcase = tcase_create("cuda");

	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, workers_compute_on_while_the_daemon_is_killed_again_and_again);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
