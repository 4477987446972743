/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_STORE_STORE_FIXTURE_H
#define GM_TESTS_UNIT_STORE_STORE_FIXTURE_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "daemon/store/store.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* A daemon as far as its keeper sees it: a loop, a connection, and what it was told. */
struct keep_world {
	uv_loop_t loop;
	struct gm_store *store;
	unsigned int deposited, withdrawn, lost, back;
	char why[GM_STORE_WHY];
};

static void world_on_deposited(void *ctx, enum gm_store_kind kind, uint64_t id, void *user)
{
	((struct keep_world *)ctx)->deposited++;
}

static void world_on_withdrawn(void *ctx, enum gm_store_kind kind, uint64_t id, void *user)
{
	((struct keep_world *)ctx)->withdrawn++;
}

static void world_on_changed(void *ctx, bool ready)
{
	struct keep_world *world = ctx;
	world->lost += !ready;
	world->back += ready;
}

static const struct gm_store_events world_events = {
	.deposited = world_on_deposited,
	.withdrawn = world_on_withdrawn,
	.changed = world_on_changed,
};

static inline const char *world_keeper(void)
{
	static char path[4096];
	const char *build = getenv("top_builddir");
	snprintf(path, sizeof(path), "%s/keeper/gpumem-keeper", build ? build : ".");
	return path;
}

static inline int world_try(struct keep_world *world, const struct gm_store_options *options)
{
	memset(world, 0, sizeof(*world));
	ck_assert_int_eq(uv_loop_init(&world->loop), 0);
	return gm_store_open(
		&world->loop, options, &world_events, world, &world->store, world->why);
}

static inline void world_open(struct keep_world *world, const char *path)
{
	struct gm_store_options options = {
		.path = path, .program = world_keeper(), .wait_ms = 10000};
	int r = world_try(world, &options);
	ck_assert_msg(r == 0, "%d: %s", r, world->why);
}

/* Ends the daemon. empty: nothing is worth keeping. */
static inline void world_close(struct keep_world *world, bool empty)
{
	gm_store_close(world->store, empty);
	while (uv_run(&world->loop, UV_RUN_DEFAULT))
		;
	ck_assert_int_eq(uv_loop_close(&world->loop), 0);
}

static inline struct gm_store_state world_state(const struct keep_world *world)
{
	struct gm_store_state state;
	gm_store_get_state(world->store, &state);
	return state;
}

/* Runs the loop until the condition holds. */
#define WORLD_WAIT(world, condition) \
	do \
		if (!(condition)) \
			uv_run(&(world)->loop, UV_RUN_ONCE); \
	while (!(condition))

/* A chunk's stand-in, with its id as its content. */
static inline int world_memory(uint64_t id)
{
	int fd = -1;
	ck_assert_int_eq(gm_memfd_create("test", 4096, &fd), 0);
	ck_assert(pwrite(fd, &id, sizeof(id), 0) == sizeof(id));
	return fd;
}

static inline uint64_t world_content(int fd)
{
	uint64_t id = 0;
	ck_assert(pread(fd, &id, sizeof(id), 0) == sizeof(id));
	return id;
}

static inline int world_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Waits for the end of a process that is not a child. Closes the pidfd. */
static inline void world_await_end(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, -1), 1);
	close(pidfd);
}

/* Kills the keeper, and waits until it is gone. */
static inline void world_kill_keeper(const struct keep_world *world)
{
	pid_t pid = world_state(world).pid;
	int pidfd = world_pidfd(pid);
	ck_assert_int_gt(pid, 1);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	world_await_end(pidfd);
}

/* Runs a daemon in a process of its own, which must end by SIGKILL. */
static inline void world_run_to_death(void (*daemon)(void *ctx), void *ctx)
{
	int status;
	fflush(NULL);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		daemon(ctx);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
}

static inline void world_scratch(char path[256])
{
	gm_scratch_folder(path, 200);
	strcat(path, "/keeper");
}

#endif
