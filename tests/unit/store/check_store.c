/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives a daemon, with a real keeper: the daemon or the keeper dies at some step, and nothing is
 * lost; and what the daemon says if it cannot keep anything. */
#include "tests/unit/store/store_fixture.h"

#include <sys/socket.h>
#include <sys/un.h>

struct life {
	char path[256];
	unsigned int chunks; /* to deposit */
	unsigned int steps;  /* after which the daemon dies; 0: at the end */
	bool stop_keeper;    /* so that the daemon dies before the keeper has read anything */
};

static void live_step(struct life *life, unsigned int *done)
{
	if (++*done == life->steps)
		raise(SIGKILL);
}

/* Makes chunks, each with its record, and dies after some step. Every third chunk ends again. */
static void live(void *ctx)
{
	struct life *life = ctx;
	struct keep_world world;
	unsigned int done = 0;

	world_open(&world, life->path);
	if (life->stop_keeper)
		kill(world_state(&world).pid, SIGSTOP);
	for (uint64_t id = 1; id <= life->chunks; id++) {
		uint32_t place = 0;
		int fd = world_memory(id);
		if (gm_store_deposit(world.store, GM_STORE_CHUNK, id, fd, NULL) < 0)
			_exit(2);
		live_step(life, &done);
		if (gm_store_record(world.store, 1, id, &place, &id, sizeof(id)) < 0)
			_exit(3);
		live_step(life, &done);
		if (id % 3)
			continue;
		gm_store_erase(world.store, &place);
		live_step(life, &done);
		gm_store_withdraw(world.store, GM_STORE_CHUNK, id, NULL);
		live_step(life, &done);
		if (!life->stop_keeper)
			WORLD_WAIT(&world, world.withdrawn == id / 3);
	}
}

static void claim_record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct keep_world *world = ctx;
	uint64_t content;
	int fd = -1;
	ck_assert_uint_eq(kind, 1);
	ck_assert_uint_eq(size, sizeof(content));
	memcpy(&content, bytes, sizeof(content));
	ck_assert_uint_eq(content, id);
	ck_assert_msg(gm_store_claim(world->store, GM_STORE_CHUNK, id, &fd) == 0,
		"record %u has no memory", (unsigned int)id);
	ck_assert_uint_eq(world_content(fd), id);
	ck_assert_int_eq(gm_store_claim(world->store, GM_STORE_CHUNK, id, &fd), -ENOENT);
	close(fd);
}

START_TEST(a_daemon_that_dies_at_any_step_leaves_memory_for_every_record)
{
	struct life life = {.chunks = 7};
	const unsigned int all = 2 * 7 + 2 * 2;

	for (life.steps = 1; life.steps <= all; life.steps++) {
		struct keep_world world;
		struct gm_store_records_state ledger;
		life.stop_keeper = false;
		world_scratch(life.path);
		world_run_to_death(live, &life);
		world_open(&world, life.path);
		gm_store_each_record(world.store, 1, claim_record, &world);
		ledger = world_state(&world).ledger;
		uint64_t left = gm_store_settle(world.store);
		ck_assert_uint_eq(ledger.damaged, 0);
		/* Between two steps, a chunk has no record at most: the one that comes or goes. */
		ck_assert_uint_le(left, 1);
		WORLD_WAIT(&world, world_state(&world).items == ledger.records + 1);
		world_close(&world, true);
	}
}
END_TEST

START_TEST(what_a_dead_daemon_sent_counts_though_the_keeper_had_not_read_it)
{
	struct life life = {.chunks = 50, .stop_keeper = true};
	struct keep_world world;

	/* The keeper is there first, and its process is known. */
	world_scratch(life.path);
	world_open(&world, life.path);
	pid_t keeper = world_state(&world).pid;
	world_close(&world, false);
	world_run_to_death(live, &life);
	ck_assert_int_eq(kill(keeper, SIGCONT), 0);

	world_open(&world, life.path);
	ck_assert_int_eq(world_state(&world).pid, keeper);
	ck_assert_uint_eq(world_state(&world).ledger.records, 34);
	gm_store_each_record(world.store, 1, claim_record, &world);
	ck_assert_uint_eq(gm_store_settle(world.store), 0);
	world_close(&world, true);
}
END_TEST

START_TEST(unclaimed_memory_is_closed_for_good)
{
	struct keep_world world;
	char path[256];
	int pipes[2];
	char byte;

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 1, pipes[1], NULL), 0);
	world_close(&world, false);
	close(pipes[1]);

	world_open(&world, path);
	ck_assert_uint_eq(gm_store_settle(world.store), 1);
	ck_assert_uint_eq(gm_store_settle(world.store), 0);
	WORLD_WAIT(&world, world_state(&world).items == 1);
	/* Nobody has the other end any more, or this would wait. */
	ck_assert_int_eq(read(pipes[0], &byte, 1), 0);
	ck_assert_uint_eq(world.withdrawn, 0);
	world_close(&world, true);
	close(pipes[0]);
}
END_TEST

START_TEST(withdrawn_is_told_when_the_keepers_copy_is_closed)
{
	struct keep_world world;
	char path[256];
	int pipes[2];
	char byte;

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 9, pipes[1], NULL), 0);
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 8, NULL), 0);
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 9, NULL), GM_STORE_E_WAIT);
	ck_assert_uint_eq(world.withdrawn, 0);
	WORLD_WAIT(&world, world.withdrawn == 1);
	close(pipes[1]);
	ck_assert_int_eq(read(pipes[0], &byte, 1), 0);
	world_close(&world, true);
	close(pipes[0]);
}
END_TEST

START_TEST(a_deposit_of_the_same_name_replaces_the_one_before)
{
	struct keep_world world;
	char path[256];
	int old = world_memory(1), new = world_memory(2), fd = -1;

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_PAGE, 5, old, NULL), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_PAGE, 5, new, NULL), 0);
	/* Another kind is another name. */
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_PROCESS, 5, old, NULL), 0);
	world_close(&world, false);
	close(old);
	close(new);

	world_open(&world, path);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_PAGE, 5, &fd), 0);
	ck_assert_uint_eq(world_content(fd), 2);
	close(fd);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_PROCESS, 5, &fd), 0);
	ck_assert_uint_eq(world_content(fd), 1);
	close(fd);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_RECORDS_FILE, 1, &fd), -ENOENT);
	world_close(&world, true);
}
END_TEST

START_TEST(a_deposit_after_a_withdrawal_counts)
{
	struct keep_world world;
	char path[256];
	int old = world_memory(1), new = world_memory(2), fd = -1;

	world_scratch(path);
	world_open(&world, path);
	for (unsigned int i = 0; i < 20; i++) {
		ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_FORMER, 5, old, NULL), 0);
		ck_assert_int_eq(
			gm_store_withdraw(world.store, GM_STORE_FORMER, 5, NULL), GM_STORE_E_WAIT);
	}
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_FORMER, 5, new, NULL), 0);
	/* The answers to the withdrawals come before this one's. */
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 6, new, NULL), 0);
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 6, NULL), GM_STORE_E_WAIT);
	WORLD_WAIT(&world, world.withdrawn == 1);
	ck_assert_uint_eq(world_state(&world).items, 2);
	world_close(&world, false);
	close(old);
	close(new);

	world_open(&world, path);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_FORMER, 5, &fd), 0);
	ck_assert_uint_eq(world_content(fd), 2);
	close(fd);
	world_close(&world, true);
}
END_TEST

START_TEST(the_next_keeper_gets_everything_again)
{
	struct keep_world world;
	char path[256];
	int fds[301];
	uint32_t place = 0;

	world_scratch(path);
	world_open(&world, path);
	for (uint64_t id = 1; id <= 300; id++) {
		fds[id] = world_memory(id);
		ck_assert_int_ge(
			gm_store_deposit(world.store, GM_STORE_CHUNK, id, fds[id], NULL), 0);
	}
	WORLD_WAIT(&world, !world_state(&world).waiting);
	uint64_t content = 7;
	ck_assert_int_eq(gm_store_record(world.store, 1, 7, &place, &content, 8), 0);

	for (unsigned int round = 1; round <= 5; round++) {
		world_kill_keeper(&world);
		WORLD_WAIT(&world, world.lost == round);
		ck_assert(!gm_store_is_ready(world.store));
		WORLD_WAIT(&world, world.back == round);
		ck_assert(gm_store_is_ready(world.store));
		ck_assert_uint_eq(world_state(&world).restarts, round);
		ck_assert_uint_eq(world_state(&world).items, 301);
	}
	world_close(&world, false);
	for (uint64_t id = 1; id <= 300; id++)
		close(fds[id]);

	world_open(&world, path);
	ck_assert_uint_eq(world_state(&world).items, 301);
	gm_store_each_record(world.store, 1, claim_record, &world);
	ck_assert_uint_eq(world_state(&world).ledger.records, 1);
	ck_assert_uint_eq(gm_store_settle(world.store), 299);
	world_close(&world, true);
}
END_TEST

START_TEST(what_a_dead_keeper_was_to_close_is_closed)
{
	struct keep_world world;
	char path[256];
	int fd = world_memory(1), other = world_memory(2), late = world_memory(3);

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 1, fd, NULL), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 2, other, NULL), 0);
	ck_assert_int_eq(kill(world_state(&world).pid, SIGSTOP), 0);
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 1, NULL), GM_STORE_E_WAIT);
	world_kill_keeper(&world);
	/* The daemon does not know yet. */
	ck_assert_int_eq(
		gm_store_deposit(world.store, GM_STORE_CHUNK, 3, late, NULL), GM_STORE_E_WAIT);
	ck_assert_uint_eq(world.withdrawn, 0);
	WORLD_WAIT(&world, world.lost == 1);
	ck_assert_uint_eq(world.withdrawn, 1);
	/* While there is no keeper, there is nothing to wait for. */
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 2, NULL), 0);
	WORLD_WAIT(&world, world.back == 1);
	ck_assert_uint_eq(world.deposited, 1);
	ck_assert_uint_eq(world_state(&world).items, 2);
	world_close(&world, false);
	close(fd);
	close(other);
	close(late);

	world_open(&world, path);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 1, &fd), -ENOENT);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 2, &fd), -ENOENT);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 3, &fd), 0);
	ck_assert_uint_eq(world_content(fd), 3);
	close(fd);
	world_close(&world, true);
}
END_TEST

START_TEST(deposits_wait_while_the_keeper_does_not_read)
{
	struct keep_world world;
	char path[256];
	unsigned int waiting = 0;
	int fds[1200];

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(kill(world_state(&world).pid, SIGSTOP), 0);
	unsigned int n = 0;
	/* The kernel's own bound on a socket ends this. */
	while (n < 1200 && waiting < 40) {
		fds[n] = world_memory(n + 1);
		int r = gm_store_deposit(world.store, GM_STORE_CHUNK, n + 1, fds[n], NULL);
		ck_assert(r == 0 || r == GM_STORE_E_WAIT);
		ck_assert(r == GM_STORE_E_WAIT || !waiting);
		waiting += r == GM_STORE_E_WAIT;
		n++;
	}
	ck_assert_uint_eq(waiting, 40);
	ck_assert_uint_eq(world_state(&world).waiting, 40);
	/* Such an item is not in the keeper. */
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, n, NULL), 0);
	uv_run(&world.loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(world.deposited, 0);

	ck_assert_int_eq(kill(world_state(&world).pid, SIGCONT), 0);
	WORLD_WAIT(&world, world.deposited == 39);
	world_close(&world, false);
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
	world_open(&world, path);
	ck_assert_uint_eq(world_state(&world).items, n);
	world_close(&world, true);
}
END_TEST

/* Starts a keeper that may have so many descriptors. */
static void start_small_keeper(const char *path, rlim_t limit)
{
	int status;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct rlimit nofile = {limit, limit};
		setrlimit(RLIMIT_NOFILE, &nofile);
		execl(world_keeper(), "gpumem-keeper", "--background", "--socket", path,
			(char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(a_keeper_that_gives_no_sign_of_life_does_not_count)
{
	struct keep_world world;
	char path[256];
	world_scratch(path);
	world_open(&world, path);
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	pid_t keeper = world_state(&world).pid;
	ck_assert_int_eq(kill(keeper, SIGSTOP), 0);
	gm_store_ask(world.store);
	for (int i = 0; i < 3; i++)
		uv_run(&world.loop, UV_RUN_NOWAIT);
	ck_assert(!gm_store_is_ready(world.store));
	ck_assert_int_eq(kill(keeper, SIGCONT), 0);
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	ck_assert_uint_eq(world.lost, 0);
	ck_assert_uint_eq(world.back, 1);

	/* It was killed, and the loop has not noticed yet. */
	world_kill_keeper(&world);
	ck_assert(gm_store_is_ready(world.store));
	gm_store_ask(world.store);
	ck_assert(!gm_store_is_ready(world.store));
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	ck_assert_uint_eq(world.lost, 1);
	world_close(&world, true);
}
END_TEST

START_TEST(what_a_full_keeper_is_to_close_makes_room_at_once)
{
	struct keep_world world;
	char path[256];
	int fd = world_memory(1), again = -1;

	world_scratch(path);
	start_small_keeper(path, 64);
	world_open(&world, path);
	uint64_t capacity = world_state(&world).capacity;
	for (uint64_t id = 1; id < capacity; id++)
		ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, id, fd, NULL), 0);

	pid_t keeper = world_state(&world).pid;
	ck_assert_int_eq(kill(keeper, SIGSTOP), 0);
	for (uint64_t id = 1; id <= 3; id++) {
		ck_assert_int_eq(
			gm_store_withdraw(world.store, GM_STORE_CHUNK, id, NULL), GM_STORE_E_WAIT);
		ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CONTROL_BLOCK,
					 capacity + id, fd, NULL),
			0);
		ck_assert_int_eq(
			gm_store_deposit(world.store, GM_STORE_CONTROL_BLOCK, capacity, fd, NULL),
			-ENOSPC);
	}
	ck_assert_int_eq(kill(keeper, SIGCONT), 0);
	WORLD_WAIT(&world, world.withdrawn == 3);
	ck_assert_int_eq(
		gm_store_deposit(world.store, GM_STORE_CONTROL_BLOCK, capacity, fd, NULL), -ENOSPC);
	ck_assert_uint_eq(world_state(&world).lost, 0);
	world_close(&world, false);

	world_open(&world, path);
	ck_assert_uint_eq(world_state(&world).items, capacity);
	for (uint64_t id = 1; id <= 3; id++) {
		ck_assert_int_eq(
			gm_store_claim(world.store, GM_STORE_CONTROL_BLOCK, capacity + id, &again),
			0);
		close(again);
	}
	close(fd);
	world_close(&world, true);
}
END_TEST

START_TEST(a_full_keeper_refuses_and_loses_nothing)
{
	struct keep_world world;
	char path[256];
	int fd = world_memory(1), again = -1;

	world_scratch(path);
	start_small_keeper(path, 64);
	world_open(&world, path);
	uint64_t capacity = world_state(&world).capacity;
	ck_assert_uint_lt(capacity, 64);
	ck_assert_uint_gt(capacity, 16);
	for (uint64_t id = 1; id < capacity; id++) /* the ledger is one */
		ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, id, fd, NULL), 0);
	ck_assert_int_eq(
		gm_store_deposit(world.store, GM_STORE_CHUNK, capacity, fd, NULL), -ENOSPC);

	/* There is room again when one is closed. */
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 5, NULL), GM_STORE_E_WAIT);
	WORLD_WAIT(&world, world.withdrawn == 1);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, capacity, fd, NULL), 0);
	ck_assert_uint_eq(world_state(&world).lost, 0);
	world_close(&world, false);
	world_open(&world, path);
	ck_assert_uint_eq(world_state(&world).items, capacity);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, capacity, &again), 0);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 5, &again), -ENOENT);
	close(again);
	close(fd);
	world_close(&world, true);
}
END_TEST

/* ---- what cannot be kept */

START_TEST(a_second_daemon_is_refused_while_the_first_one_lives)
{
	struct keep_world first, second;
	char path[256];
	struct gm_store_options options = {.path = path, .wait_ms = 50};

	world_scratch(path);
	world_open(&first, path);
	ck_assert_int_eq(world_try(&second, &options), -EBUSY);
	ck_assert_msg(strstr(second.why, "still running"), "%s", second.why);
	uv_run(&second.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&second.loop), 0);
	world_close(&first, false);
	world_open(&second, path);
	world_close(&second, true);
}
END_TEST

static void expect_refusal(const struct gm_store_options *options, int error, const char *words)
{
	struct keep_world world;
	int r = world_try(&world, options);
	ck_assert_msg(r == error, "%d: %s", r, world.why);
	ck_assert_msg(strstr(world.why, words), "%s", world.why);
	uv_run(&world.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&world.loop), 0);
}

START_TEST(a_keeper_that_is_not_there_is_named)
{
	char path[256];
	world_scratch(path);
	expect_refusal(&(struct gm_store_options){.path = path, .wait_ms = 20}, -ENOENT,
		"gpumemd-keeper.service");
	expect_refusal(
		&(struct gm_store_options){
			.path = path, .program = "/nonexistent/keeper", .wait_ms = 20},
		-ENOENT, "cannot start /nonexistent/keeper");
	expect_refusal(
		&(struct gm_store_options){.path = path, .program = "/bin/false", .wait_ms = 20},
		-ECHILD, "/bin/false could not start");
}
END_TEST

START_TEST(without_memory_for_the_ledger_the_daemon_says_so)
{
	char path[256];
	struct gm_store_options options = {
		.path = path, .program = world_keeper(), .wait_ms = 10000, .ledger_most = 1000};
	struct keep_world world;

	world_scratch(path);
	expect_refusal(&options, -ENOSPC, "the store: there is no room");
	world_open(&world, path);
	world_close(&world, true);
}
END_TEST

/* Replaces the ledger in the keeper by one that a test has made. */
static void plant_ledger(const char *path, int fd)
{
	struct keep_world world;
	int memory = world_memory(1);
	world_open(&world, path);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 1, memory, NULL), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_RECORDS_FILE, 1, fd, NULL), 0);
	world_close(&world, false);
	close(memory);
	close(fd);
}

static int newer_ledger(uint32_t format)
{
	char why[GM_STORE_RECORDS_WHY];
	struct gm_store_records *records = NULL;
	uint32_t place = 0;
	uint64_t content = 1;
	ck_assert_int_eq(gm_store_records_new(0, &records, why), 0);
	ck_assert_int_eq(gm_store_records_write(records, 1, 1, &place, &content, 8), 0);
	ck_assert(pwrite(gm_store_records_fd(records), &format, 4, 8) == 4);
	int fd = dup(gm_store_records_fd(records));
	gm_store_records_free(records);
	return fd;
}

START_TEST(a_newer_ledger_is_refused_and_left_as_it_is)
{
	struct keep_world world;
	char path[256];
	struct gm_store_options options = {
		.path = path, .program = world_keeper(), .wait_ms = 10000};
	uint32_t format = GM_STORE_RECORDS_FORMAT;

	world_scratch(path);
	int fd = newer_ledger(GM_STORE_RECORDS_FORMAT + 1), same = dup(fd);
	plant_ledger(path, fd);
	expect_refusal(&options, -EPROTONOSUPPORT, "start the newer gpumemd again");
	expect_refusal(&options, -EPROTONOSUPPORT, "newer gpumemd");

	/* The newer daemon comes back and finds everything. */
	ck_assert(pwrite(same, &format, 4, 8) == 4);
	close(same);
	world_open(&world, path);
	gm_store_each_record(world.store, 1, claim_record, &world);
	ck_assert_uint_eq(world_state(&world).ledger.records, 1);
	ck_assert_uint_eq(gm_store_settle(world.store), 0);
	world_close(&world, true);
}
END_TEST

START_TEST(a_ledger_that_is_none_is_replaced_and_no_memory_changes_hands)
{
	struct keep_world world;
	char path[256];

	world_scratch(path);
	plant_ledger(path, world_memory(77));
	world_open(&world, path);
	ck_assert_uint_eq(world_state(&world).ledger.records, 0);
	ck_assert_uint_eq(gm_store_settle(world.store), 1);
	WORLD_WAIT(&world, world_state(&world).items == 1);
	world_close(&world, false);
	world_open(&world, path);
	ck_assert_uint_eq(gm_store_settle(world.store), 0);
	world_close(&world, true);
}
END_TEST

/* ---- the keeper's own end */

START_TEST(a_keeper_with_nothing_to_keep_ends_and_removes_its_socket)
{
	struct keep_world world;
	char path[256], lock[264];

	world_scratch(path);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	world_open(&world, path);
	int pidfd = world_pidfd(world_state(&world).pid);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(access(lock, F_OK), 0);
	world_close(&world, true);
	world_await_end(pidfd);
	ck_assert_int_lt(access(path, F_OK), 0);
	ck_assert_int_lt(access(lock, F_OK), 0);
}
END_TEST

START_TEST(a_keeper_that_nobody_can_find_ends)
{
	struct keep_world world;
	char path[256];

	world_scratch(path);
	world_open(&world, path);
	int fd = world_memory(1), pidfd = world_pidfd(world_state(&world).pid);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 1, fd, NULL), 0);
	world_close(&world, false);
	ck_assert_int_eq(unlink(path), 0);
	world_await_end(pidfd);
	close(fd);
}
END_TEST

START_TEST(a_keeper_is_in_a_session_of_its_own_and_has_none_of_our_files)
{
	struct keep_world world;
	char path[256], link[64], target[256] = "";
	int pipes[2];

	world_scratch(path);
	ck_assert_int_eq(pipe2(pipes, 0), 0);
	ck_assert_int_eq(dup2(pipes[1], STDERR_FILENO), STDERR_FILENO);
	fcntl(pipes[0], F_SETFD, FD_CLOEXEC);
	fcntl(pipes[1], F_SETFD, FD_CLOEXEC);
	world_open(&world, path);
	pid_t keeper = world_state(&world).pid;
	ck_assert_int_ne(getsid(keeper), getsid(0));
	ck_assert_int_ne(getpgid(keeper), getpgid(0));
	snprintf(link, sizeof(link), "/proc/%d/fd/2", (int)keeper);
	ck_assert_int_gt(readlink(link, target, sizeof(target) - 1), 0);
	ck_assert_str_eq(target, "/dev/null");
	snprintf(link, sizeof(link), "/proc/%d/cwd", (int)keeper);
	memset(target, 0, sizeof(target));
	ck_assert_int_gt(readlink(link, target, sizeof(target) - 1), 0);
	ck_assert_str_eq(target, "/");
	world_close(&world, true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keep");
	TCase *tc = tcase_create("keep");
	tcase_set_timeout(tc, 60); /* many processes start and end in some of them */
	tcase_add_test(tc, a_daemon_that_dies_at_any_step_leaves_memory_for_every_record);
	tcase_add_test(tc, what_a_dead_daemon_sent_counts_though_the_keeper_had_not_read_it);
	tcase_add_test(tc, unclaimed_memory_is_closed_for_good);
	tcase_add_test(tc, withdrawn_is_told_when_the_keepers_copy_is_closed);
	tcase_add_test(tc, a_deposit_of_the_same_name_replaces_the_one_before);
	tcase_add_test(tc, a_deposit_after_a_withdrawal_counts);
	tcase_add_test(tc, the_next_keeper_gets_everything_again);
	tcase_add_test(tc, what_a_dead_keeper_was_to_close_is_closed);
	tcase_add_test(tc, deposits_wait_while_the_keeper_does_not_read);
	tcase_add_test(tc, a_keeper_that_gives_no_sign_of_life_does_not_count);
	tcase_add_test(tc, what_a_full_keeper_is_to_close_makes_room_at_once);
	tcase_add_test(tc, a_full_keeper_refuses_and_loses_nothing);
	tcase_add_test(tc, a_second_daemon_is_refused_while_the_first_one_lives);
	tcase_add_test(tc, a_keeper_that_is_not_there_is_named);
	tcase_add_test(tc, without_memory_for_the_ledger_the_daemon_says_so);
	tcase_add_test(tc, a_newer_ledger_is_refused_and_left_as_it_is);
	tcase_add_test(tc, a_ledger_that_is_none_is_replaced_and_no_memory_changes_hands);
	tcase_add_test(tc, a_keeper_with_nothing_to_keep_ends_and_removes_its_socket);
	tcase_add_test(tc, a_keeper_that_nobody_can_find_ends);
	tcase_add_test(tc, a_keeper_is_in_a_session_of_its_own_and_has_none_of_our_files);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
