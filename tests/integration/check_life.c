/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Life and death of clients: memory is charged until it is gone, and a chunk that a process may
 * still reach is never given to another.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/integration/life_fixture.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

/* A new client takes all the memory there is: none of it may be anybody's old chunk. */
static void require_all_memory_zero(void)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	uint64_t available = gm_figures_now(&daemon_).available;
	GM_REQUIRE(available >= GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, available, &lease), GPUMEM_OK);
	for (size_t i = 0; i < lease.n; i++) {
		uint8_t *at = gm_raw_map(&lease.chunks[i], false);
		GM_REQUIRE(at != MAP_FAILED);
		/* Holes are known to be zero without reading them. */
		off_t data = lseek(lease.chunks[i].fd, 0, SEEK_DATA);
		for (; data >= 0; data = lseek(lease.chunks[i].fd, data + 4096, SEEK_DATA)) {
			for (size_t k = 0; k < 4096; k++)
				GM_REQUIRE(at[(size_t)data + k] == 0);
		}
		munmap(at, lease.chunks[i].bytes);
	}
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(what_is_returned_is_pooled_and_given_out_again)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling - f.leased);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
	f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, 0);
	GM_REQUIRE_EQ(f.pooled, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	/* The pool trusts the domain: nobody cleared it. */
	GM_REQUIRE(gm_alloc_raw_chunk_is(&lease.chunks[0], PATTERN));
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(a_goodbye_gives_everything_back_to_the_pool)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined, 0);
	GM_REQUIRE_EQ(f.pooled, CHUNKS * GM_CHUNK_MIN);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(memory_of_a_client_off_the_socket_stays_charged_while_its_process_lives)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	uint64_t session = raw.session;
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, 0);
	GM_REQUIRE_EQ(f.quarantined, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling - f.quarantined);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, session, &row));
	GM_REQUIRE(row.quarantined);
	GM_REQUIRE_EQ(row.held, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(row.pid, getpid());
	GM_UNTIL(gm_daemon_said(&daemon_, "closed its connection but is still running"));
	require_all_memory_zero();
	/* Untouched by all that. */
	for (size_t i = 0; i < lease.n; i++)
		GM_REQUIRE(gm_alloc_raw_chunk_is(&lease.chunks[i], PATTERN));
	gm_raw_lease_clear(&lease);
}
END_TEST

START_TEST(a_client_may_not_have_what_is_quarantined)
{
	struct gm_raw raw, other;
	struct gm_raw_lease lease, more;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	gm_raw_join(&other, &daemon_);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&other, 0, f.available + 1, &more), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gm_raw_lease(&other, 0, f.available, &more), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).available, 0);
	gm_raw_lease_clear(&more);
	GM_REQUIRE_EQ(gm_raw_goodbye(&other), GPUMEM_OK);
	gm_raw_close(&other);
	gm_raw_lease_clear(&lease);
}
END_TEST

static void hold_memory(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	take(&raw, &lease);
	void *at = gm_raw_map(&lease.chunks[0], true);
	GM_REQUIRE(at != MAP_FAILED);
	gm_text_say(channel, &raw.session, sizeof(raw.session));
	gm_hear_word(channel, 'e');
}

START_TEST(memory_of_a_killed_client_comes_back_and_is_never_reused)
{
	struct gm_worker worker;
	uint64_t session;
	gm_worker_start(&worker, hold_memory, &daemon_);
	gm_hear(worker.channel, &session, sizeof(session));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, CHUNKS * GM_CHUNK_MIN);
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.pooled + f.admitted, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	require_all_memory_zero();
}
END_TEST

START_TEST(memory_of_a_client_that_just_exits_comes_back)
{
	struct gm_worker worker;
	uint64_t session;
	gm_worker_start(&worker, hold_memory, &daemon_);
	gm_hear(worker.channel, &session, sizeof(session));
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, 0);
	/* One line tells of it, although its connection ended before its process did. */
	GM_UNTIL(gm_daemon_said(&daemon_, "ended with its process") == 1);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "closed its connection"), 0);
	require_all_memory_zero();
}
END_TEST

/* The worker forks a child that keeps the socket and a mapping, and tells its pid. */
static void hold_memory_with_a_child(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	take(&raw, &lease);
	uint8_t *at = gm_raw_map(&lease.chunks[0], true);
	GM_REQUIRE(at != MAP_FAILED);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		/* Lives on when its parent is killed; goes when the test closes its end. */
		gm_text_say_word(channel, 'c');
		gm_hear_word(channel, 'w');
		/* The dead parent's memory is still here, and writable. */
		GM_REQUIRE(at[GM_CHUNK_MIN - 1] == PATTERN);
		memset(at, PATTERN + 1, GM_CHUNK_MIN);
		gm_text_say_word(channel, 'd');
		gm_hear_word(channel, 'e');
		_exit(0);
	}
	pause();
}

START_TEST(a_killed_client_is_gone_though_its_forked_child_keeps_the_socket_and_the_memory)
{
	struct gm_worker worker;
	gm_worker_start(&worker, hold_memory_with_a_child, &daemon_);
	gm_hear_word(worker.channel, 'c');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE(kill(worker.pid, SIGKILL) == 0);
	/* Gone by its pidfd: the child holds the connection open. */
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	/* On a GPU, what the child keeps is no longer the broker's, and still used. */
	if (gm_on_gpu())
		GM_UNTIL(gm_figures_now(&daemon_).foreign == CHUNKS * GM_CHUNK_MIN);
	/* The child writes into the old memory while a new client has all there is. */
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, gm_figures_now(&daemon_).available, &lease), GPUMEM_OK);
	gm_text_say_word(worker.channel, 'w');
	gm_hear_word(worker.channel, 'd');
	for (size_t i = 0; i < lease.n; i++)
		GM_REQUIRE_EQ(lseek(lease.chunks[i].fd, 0, SEEK_DATA), -1);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_text_say_word(worker.channel, 'e');
	int status;
	GM_REQUIRE(waitpid(worker.pid, &status, 0) == worker.pid);
	close(worker.channel);
}
END_TEST

/* The worker takes memory and becomes another program, which runs until the test lets it end. */
static void exec_with_memory(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	GM_REQUIRE(mmap(NULL, sizeof(struct gm_page_client), PROT_READ | PROT_WRITE, MAP_SHARED,
			   raw.client_page, 0) != MAP_FAILED);
	take(&raw, &lease);
	GM_REQUIRE(gm_raw_map(&lease.chunks[0], true) != MAP_FAILED);
	GM_REQUIRE(dup2(channel, STDIN_FILENO) == STDIN_FILENO);
	GM_REQUIRE(dup2(channel, STDOUT_FILENO) == STDOUT_FILENO);
	gm_text_say_word(channel, 'x');
	execl("/bin/sh", "sh", "-c", "printf r; read -r line", NULL);
	GM_FAIL("exec: %s", strerror(errno));
}

START_TEST(exec_returns_the_memory_though_the_process_lives_on)
{
	struct gm_worker worker;
	char running;
	int status;
	gm_worker_start(&worker, exec_with_memory, &daemon_);
	gm_hear_word(worker.channel, 'x');
	GM_REQUIRE_EQ(read(worker.channel, &running, 1), 1);
	GM_REQUIRE_EQ(running, 'r');

	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.pooled, 0);
	GM_REQUIRE_EQ(f.quarantined_clients, 0);
	require_all_memory_zero();
	GM_REQUIRE_EQ(waitpid(worker.pid, &status, WNOHANG), 0);

	GM_REQUIRE_EQ(write(worker.channel, "\n", 1), 1);
	GM_REQUIRE(waitpid(worker.pid, &status, 0) == worker.pid);
	close(worker.channel);
}
END_TEST

/* ---- at random */

static void live_dangerously(int channel, void *argument)
{
	unsigned seed;
	gm_hear(channel, &seed, sizeof(seed));
	struct gm_raw raw;
	gm_raw_join(&raw, argument);
	gm_text_say_word(channel, 'r');
	struct gm_raw_lease leases[8] = {0};
	uint8_t token[GM_TOKEN_BYTES] = {0};
	for (;;) {
		size_t i = (size_t)rand_r(&seed) % 8;
		struct gm_raw_lease view;
		switch (rand_r(&seed) % 6) {
		case 0:
		case 1:
			if (!leases[i].id)
				gm_raw_lease(&raw, 0, 1 + (uint64_t)rand_r(&seed) % (16 << 20),
					&leases[i]);
			break;
		case 2:
			if (leases[i].id)
				gm_raw_grow(
					&raw, &leases[i], 1 + (uint64_t)rand_r(&seed) % (8 << 20));
			break;
		case 3:
			if (leases[i].id) {
				/* To return is to say that nothing of it is held here any more: on
				 * a GPU what is would be foreign. */
				uint64_t id = leases[i].id;
				gm_raw_lease_clear(&leases[i]);
				gm_raw_return(&raw, id, NULL, 0);
			}
			break;
		case 4:
			if (leases[i].id)
				gm_raw_share(&raw, leases[i].id,
					GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, rand_r(&seed) & 1,
					token);
			break;
		case 5:
			if (gm_raw_open(&raw, token, &view) == GPUMEM_OK) {
				uint64_t id = view.id;
				gm_raw_lease_clear(&view);
				if (rand_r(&seed) & 1)
					gm_raw_return(&raw, id, NULL, 0);
			}
			break;
		}
	}
}

START_TEST(workers_killed_at_any_point_leave_nothing_behind)
{
	enum { WORKERS = 4, KILLS = 60 };
	struct gm_worker workers[WORKERS];
	unsigned seed = 99;
	for (int i = 0; i < WORKERS; i++) {
		unsigned s = (unsigned)rand_r(&seed);
		gm_worker_start(&workers[i], live_dangerously, &daemon_);
		gm_text_say(workers[i].channel, &s, sizeof(s));
		gm_hear_word(workers[i].channel, 'r');
	}
	for (int kills = 0; kills < KILLS; kills++) {
		/* A few questions asked meanwhile make for a random point to kill at. */
		for (int n = rand_r(&seed) % 12; n >= 0; n--) {
			struct gm_figures f = gm_figures_now(&daemon_);
			GM_REQUIRE(f.leased + f.quarantined + f.admitted <= f.ceiling);
			GM_REQUIRE(f.leased + f.quarantined + f.admitted + f.pooled <= f.ceiling);
		}
		struct gm_worker *w = &workers[rand_r(&seed) % WORKERS];
		gm_worker_kill(w);
		unsigned s = (unsigned)rand_r(&seed);
		gm_worker_start(w, live_dangerously, &daemon_);
		gm_text_say(w->channel, &s, sizeof(s));
		gm_hear_word(w->channel, 'r');
	}
	for (int i = 0; i < WORKERS; i++)
		gm_worker_kill(&workers[i]);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_UNTIL(gm_figures_now(&daemon_).admitted == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.quarantined, 0);
	GM_REQUIRE_EQ(f.leases, 0);
	GM_REQUIRE_EQ(f.quarantined_clients, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	GM_REQUIRE(f.pooled <= f.ceiling);
	/* All of it can be had. */
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, f.available, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.bytes, f.available);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("life");
	TCase *tc = tcase_create("life");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, what_is_returned_is_pooled_and_given_out_again);
	tcase_add_test(tc, a_goodbye_gives_everything_back_to_the_pool);
	tcase_add_test(tc, memory_of_a_client_off_the_socket_stays_charged_while_its_process_lives);
	tcase_add_test(tc, a_client_may_not_have_what_is_quarantined);
	tcase_add_test(tc, memory_of_a_killed_client_comes_back_and_is_never_reused);
	tcase_add_test(tc, memory_of_a_client_that_just_exits_comes_back);
	tcase_add_test(tc,
		a_killed_client_is_gone_though_its_forked_child_keeps_the_socket_and_the_memory);
	tcase_add_test(tc, exec_returns_the_memory_though_the_process_lives_on);
	tcase_add_test(tc, workers_killed_at_any_point_leave_nothing_behind);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
