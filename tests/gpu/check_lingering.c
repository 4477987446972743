/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Memory of a GPU that the daemon has destroyed and that a process still has: a forked child whose
 * parent died, and a client that returned it falsely. The limit of the user counts it until it is
 * gone, and it is not foreign. One source for the fake driver and a real GPU.
 */

#include <fcntl.h>

#include "common/cleanup.h"
#include "tests/gpu/broker.h"

#define BYTES (64 * MIB)

/* Room for one such buffer, and for half of another. */
static void start_limited(void)
{
	static char config[256];
	snprintf(config, sizeof(config), CONFIG("host_limit = 0\n") "[limit uid:%u]\nmax = 96M\n",
		(unsigned)getuid());
	start_with(config);
}

/* Ends with the test, or when it closes the other end. */
static _Noreturn void wait_for_end(int fd)
{
	char byte;
	(void)!read(fd, &byte, 1);
	_exit(0);
}

static int until[2]; /* a pipe: what reads from it goes on when the test closes the other end */

static void close_at_last(void)
{
	until[0] = gm_close(until[0]);
	until[1] = gm_close(until[1]);
}

/* Maps memory, forks a child that does nothing, and waits to be killed. */
static void forker(int channel, void *argument)
{
	gpumem_buffer *buffer;
	close(until[1]);
	join("forker");
	use_gpu();
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	fill(gpumem_buffer_ptr(buffer), BYTES, 1, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		close(channel);
		wait_for_end(until[0]);
	}
	gm_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

/* Tells whether it could have as much again. */
static void asker(int channel, void *argument)
{
	gpumem_buffer *buffer;
	close(until[1]);
	join("asker");
	use_gpu();
	gpumem_status status = gpumem_buffer_create(session, 0, BYTES, NULL, &buffer);
	gm_say(channel, &status, sizeof(status));
	gpumem_disconnect(session);
}

static gpumem_status asks(void)
{
	struct gm_worker worker;
	gpumem_status status;
	gm_worker_start(&worker, asker, NULL);
	gm_hear(worker.channel, &status, sizeof(status));
	gm_worker_join(&worker);
	return status;
}

/* It lingers, to the byte, and counts for the limit. Then whoever has it lets go. */
static void expect_lingering(uint64_t foreign)
{
	GM_UNTIL(gm_figures_now(&daemon_).lingering == BYTES);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.quarantined, BYTES);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, getuid()), BYTES);
	GM_REQUIRE(f.foreign < foreign + BYTES);
	GM_REQUIRE_EQ(asks(), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).lingering, BYTES);
}

static void expect_gone(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).lingering == 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, getuid()), 0);
	GM_REQUIRE_EQ(asks(), GPUMEM_OK);
}

START_TEST(what_a_forked_child_keeps_counts_for_its_user_until_the_child_ends)
{
	struct gm_worker worker;
	GM_REQUIRE(pipe2(until, O_CLOEXEC) == 0);
	start_limited();
	gm_worker_start(&worker, forker, NULL);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).foreign > 0);
	uint64_t foreign = gm_figures_now(&daemon_).foreign;
	gm_worker_kill(&worker);
	expect_lingering(foreign);

	close_at_last();
	expect_gone();
	tear_down();
}
END_TEST

/* Returns chunks that it still has by handles of the driver. */
static void liar(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_cu_mem handles[GM_LIMIT_PACKET_FDS];
	close(until[1]);
	use_gpu();
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, BYTES, &lease), GPUMEM_OK);
	GM_REQUIRE(lease.n > 0 && lease.n <= GM_LIMIT_PACKET_FDS);
	size_t n = lease.n;
	for (size_t i = 0; i < n; i++)
		CU(cuda->cuMemImportFromShareableHandle(&handles[i],
			(void *)(intptr_t)lease.chunks[i].fd,
			GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
	gm_say_word(channel, 'r');
	gm_hear_word(channel, 'l');
	for (size_t i = 0; i < n; i++)
		CU(cuda->cuMemRelease(handles[i]));
	gm_say_word(channel, 'r');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

static void trim(void)
{
	struct gm_raw raw;
	Gm__Wire__Trim all = GM__WIRE__TRIM__INIT;
	all.all_devices = true;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &all)), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(what_was_returned_falsely_counts_for_its_user_once_it_leaves_the_pool)
{
	struct gm_worker worker;
	GM_REQUIRE(pipe2(until, O_CLOEXEC) == 0);
	start_limited();
	gm_worker_start(&worker, liar, NULL);
	gm_hear_word(worker.channel, 'r');
	GM_REQUIRE(gm_figures_now(&daemon_).pooled >= BYTES);
	uint64_t foreign = gm_figures_now(&daemon_).foreign;
	trim();
	expect_lingering(foreign);

	gm_say_word(worker.channel, 'l');
	gm_hear_word(worker.channel, 'r');
	expect_gone();
	end_worker(&worker);
	close_at_last();
	tear_down();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lingering on GPUs");
	TCase *t = tcase_create("cuda");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, what_a_forked_child_keeps_counts_for_its_user_until_the_child_ends);
	tcase_add_test(t, what_was_returned_falsely_counts_for_its_user_once_it_leaves_the_pool);
	suite_add_tcase(s, t);
	return gm_tap_run(s);
}
