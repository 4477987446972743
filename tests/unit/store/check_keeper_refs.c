/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what a keeper without a daemon closes. A chunk's stand-in is a pipe: its reader sees that nobody has it any more. */
#include <fcntl.h>
#include <sys/mman.h>

#include "keeper/keeper_private.h"
#include "tests/unit/store/store_fixture.h"

enum { SESSION_A = 101, SESSION_B = 102, LEASE = 200, CHUNK = 300 };

/* ---- the keeper as a library, and the references as a daemon writes them */

struct refs_world {
	char path[256];
	struct gm_keeper *keeper;
	struct gm_keeper_ref *refs;
	pid_t a, b;
	unsigned n;
};

static pid_t start_process(void)
{
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		for (;;)
			pause();
	return child;
}

/* The pidfd shows the end before the process is waited for. */
static void end_process(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	ck_assert_int_eq(waitpid(*pid, NULL, 0), *pid);
	*pid = 0;
}

static void refs_init(struct refs_world *world)
{
	char why[GM_KEEPER_WHY];
	int fd = -1;
	memset(world, 0, sizeof(*world));
	world_scratch(world->path);
	ck_assert_int_eq(gm_keeper_new(world->path, &world->keeper, why), 0);
	ck_assert_int_eq(gm_memfd_create("refs", 4096, &fd), 0);
	world->refs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(world->refs, MAP_FAILED);
	world->refs[0] = (struct gm_keeper_ref){GM_KEEPER_REFS_MAGIC, 1};
	ck_assert_int_eq(gm_keeper_put(world->keeper, GM_STORE_REFS, 1, fd), 0);
	world->a = start_process();
	world->b = start_process();
	ck_assert_int_eq(
		gm_keeper_put(world->keeper, GM_STORE_PROCESS, SESSION_A, world_pidfd(world->a)),
		0);
	ck_assert_int_eq(
		gm_keeper_put(world->keeper, GM_STORE_PROCESS, SESSION_B, world_pidfd(world->b)),
		0);
}

static void refs_deinit(struct refs_world *world)
{
	end_process(&world->a);
	end_process(&world->b);
	munmap(world->refs, 4096);
	gm_keeper_free(world->keeper);
}

static void refs_add(struct refs_world *world, uint64_t child, uint64_t parent)
{
	/* Some are unused. */
	world->n += 2;
	world->refs[world->n] = (struct gm_keeper_ref){child, parent};
}

/* Returns the reader of a new chunk. */
static int refs_chunk(struct refs_world *world, uint64_t id)
{
	int ends[2];
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(gm_keeper_put(world->keeper, GM_STORE_CHUNK, id, ends[1]), 0);
	return ends[0];
}

static bool is_closed(int reader)
{
	struct pollfd p = {.fd = reader, .events = POLLIN};
	return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

START_TEST(a_chunk_is_closed_when_its_last_process_has_ended)
{
	struct refs_world world;
	refs_init(&world);
	int own = refs_chunk(&world, CHUNK), shared = refs_chunk(&world, CHUNK + 1);
	refs_add(&world, CHUNK, LEASE);
	refs_add(&world, LEASE, SESSION_A);
	refs_add(&world, LEASE + 1, SESSION_A);
	refs_add(&world, CHUNK + 1, LEASE + 1);
	refs_add(&world, LEASE + 1, SESSION_B);

	ck_assert_int_eq(gm_keeper_release(world.keeper), 1);
	ck_assert(!is_closed(own) && !is_closed(shared));
	end_process(&world.a);
	ck_assert_uint_eq(gm_keeper_count_ended(world.keeper), 1);
	ck_assert_int_eq(gm_keeper_release(world.keeper), 1);
	ck_assert(is_closed(own) && !is_closed(shared));
	end_process(&world.b);
	ck_assert_int_eq(gm_keeper_release(world.keeper), 0);
	ck_assert(is_closed(shared));
	refs_deinit(&world);
	close(own);
	close(shared);
}
END_TEST

START_TEST(what_is_published_stays)
{
	struct refs_world world;
	refs_init(&world);
	int named = refs_chunk(&world, CHUNK);
	refs_add(&world, CHUNK, LEASE);
	refs_add(&world, LEASE, SESSION_A);
	refs_add(&world, LEASE, GM_KEEPER_ALWAYS);
	end_process(&world.a);
	end_process(&world.b);
	ck_assert_int_eq(gm_keeper_release(world.keeper), 1);
	ck_assert(!is_closed(named));
	refs_deinit(&world);
	close(named);
}
END_TEST

START_TEST(a_pooled_chunk_is_nobodys)
{
	struct refs_world world;
	refs_init(&world);
	int pooled = refs_chunk(&world, CHUNK);
	ck_assert_int_eq(gm_keeper_release(world.keeper), 1);
	ck_assert(is_closed(pooled));
	refs_deinit(&world);
	close(pooled);
}
END_TEST

static void incomplete(struct refs_world *world)
{
	world->refs[0].parent = 0;
}

static void other_file(struct refs_world *world)
{
	world->refs[0].child++;
}

/* An older daemon writes none. */
static void no_references(struct refs_world *world)
{
	struct keeper_item *item, *next;
	HASH_ITER (hh, world->keeper->items, item, next)
		if (item->key.kind == GM_STORE_REFS)
			gm_keeper_forget(world->keeper, item);
}

/* A client without a pidfd, or a lease whose record was not yet written. */
static void unknown_parent(struct refs_world *world)
{
	refs_add(world, CHUNK, LEASE + 7);
}

static void (*const doubts[])(struct refs_world *world) = {
	incomplete, other_file, no_references, unknown_parent};

START_TEST(in_doubt_everything_stays)
{
	struct refs_world world;
	refs_init(&world);
	int chunk = refs_chunk(&world, CHUNK);
	refs_add(&world, CHUNK, LEASE);
	refs_add(&world, LEASE, SESSION_A);
	end_process(&world.a);
	end_process(&world.b);
	doubts[_i](&world);
	int r = gm_keeper_release(world.keeper);
	ck_assert_int_eq(r, doubts[_i] == unknown_parent ? 1 : -ENODATA);
	ck_assert(!is_closed(chunk));
	refs_deinit(&world);
	close(chunk);
}
END_TEST

/* ---- a real keeper */

START_TEST(a_keeper_in_the_background_releases_and_ends)
{
	struct keep_world world;
	char path[256];
	int ends[2][2], named[2];
	uint32_t places[4] = {0};
	uint64_t content = 0;
	pid_t a = start_process(), b = start_process();
	int a_fd = world_pidfd(a), b_fd = world_pidfd(b);

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_PROCESS, SESSION_A, a_fd, NULL), 0);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_PROCESS, SESSION_B, b_fd, NULL), 0);
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pipe2(ends[i], O_CLOEXEC), 0);
		ck_assert_int_eq(
			gm_store_deposit(world.store, GM_STORE_CHUNK, CHUNK + i, ends[i][1], NULL),
			0);
		ck_assert_int_eq(
			gm_store_record(world.store, 1, CHUNK + i, &places[i], &content, 8), 0);
		gm_store_refer(world.store, places[i], CHUNK + i, i ? SESSION_B : SESSION_A);
	}
	/* A name that is removed again. */
	ck_assert_int_eq(pipe2(named, O_CLOEXEC), 0);
	ck_assert_int_eq(
		gm_store_deposit(world.store, GM_STORE_CHUNK, CHUNK + 2, named[1], NULL), 0);
	ck_assert_int_eq(gm_store_record(world.store, 1, 7, &places[2], &content, 8), 0);
	gm_store_refer(world.store, places[2], CHUNK + 2, GM_KEEPER_ALWAYS);
	int keeper = world_pidfd(world_state(&world).pid);
	world_close(&world, false);
	close(ends[0][1]);
	close(ends[1][1]);
	close(named[1]);

	end_process(&a);
	struct pollfd p = {.fd = ends[0][0], .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, -1), 1);
	ck_assert(!is_closed(ends[1][0]) && !is_closed(named[0]));

	/* The next daemon has the rest, and removes the name. */
	int fd;
	world_open(&world, path);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, CHUNK, &fd), -ENOENT);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, CHUNK + 1, &fd), 0);
	close(fd);
	gm_store_erase(world.store, &places[2]);
	world_close(&world, false);
	end_process(&b);
	world_await_end(keeper);
	ck_assert(is_closed(ends[1][0]) && is_closed(named[0]));
	ck_assert_int_eq(access(path, F_OK), -1);
	close(ends[0][0]);
	close(ends[1][0]);
	close(named[0]);
	close(a_fd);
	close(b_fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keeper_refs");
	TCase *tcase = tcase_create("keeper_refs");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_chunk_is_closed_when_its_last_process_has_ended);
	tcase_add_test(tcase, what_is_published_stays);
	tcase_add_test(tcase, a_pooled_chunk_is_nobodys);
	tcase_add_loop_test(
		tcase, in_doubt_everything_stays, 0, sizeof(doubts) / sizeof(doubts[0]));
	tcase_add_test(tcase, a_keeper_in_the_background_releases_and_ends);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
