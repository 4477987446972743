/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what a keeper or a daemon leaves with the service manager, and of the next one, which takes it. The test is the
 * manager. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/wire/keeper_store.h"
#include "common/wire/keeper_wire.h"
#include "common/wire/seqpacket.h"
#include "tests/unit/store/store_fixture.h"

/* UNREAD of them fit into a socket. */
enum { STORED_MOST = 16, ITEMS = 300, UNREAD = 60 };

struct manager {
	char folder[200], path[256], notify[256];
	int socket;
	int stored[STORED_MOST];
	int n;
	bool ready, removed;
};

static void manager_init(struct manager *manager)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memset(manager, 0, sizeof(*manager));
	gm_scratch_folder(manager->folder, sizeof(manager->folder));
	snprintf(manager->path, sizeof(manager->path), "%s/keeper", manager->folder);
	snprintf(manager->notify, sizeof(manager->notify), "%s/notify", manager->folder);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", manager->notify);
	manager->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager->socket, (struct sockaddr *)&address, sizeof(address)), 0);
}

/* Reads one notification, and does what systemd does with it. */
static void manager_read(struct manager *manager)
{
	char text[512] = "";
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * STORED_MOST)];
	} control;
	struct iovec part = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ck_assert_int_gt((int)recvmsg(manager->socket, &message, MSG_CMSG_CLOEXEC), 0);
	bool stores = strstr(text, "FDSTORE=1") && strstr(text, "FDPOLL=0");
	manager->ready |= strstr(text, "READY=1") != NULL;
	manager->removed |= strstr(text, "FDSTOREREMOVE=1") != NULL;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		int fd;
		if (c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		if (stores) {
			ck_assert_int_lt(manager->n, STORED_MOST);
			manager->stored[manager->n++] = fd;
		} else {
			close(fd); /* a barrier */
		}
	}
}

/* Passes all that is stored to this process, and a socket if it is not -1. */
static void manager_pass(const struct manager *manager, int socket)
{
	char pid[32], n[32], names[STORED_MOST * 8 + 8] = "socket";
	int fds[STORED_MOST + 1], first = socket < 0, count = manager->n + 1;
	fds[0] = fcntl(socket, F_DUPFD, 100);
	for (int i = 0; i < manager->n; i++) {
		strcat(names, ":items");
		fds[i + 1] = fcntl(manager->stored[i], F_DUPFD, 100);
	}
	for (int i = first; i < count; i++)
		dup2(fds[i], 3 + i - first);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(n, sizeof(n), "%d", count - first);
	setenv("NOTIFY_SOCKET", manager->notify, 1);
	if (count > first) {
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", n, 1);
		setenv("LISTEN_FDNAMES", names + (first ? strlen("socket:") : 0), 1);
	}
}

/* Starts a keeper with all that is stored. option, if not NULL, is another argument. */
static pid_t manager_start(struct manager *manager, const char *option)
{
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child > 0)
		return child;
	manager_pass(manager, -1);
	execl(world_keeper(), "gpumem-keeper", "--socket", manager->path, option, NULL);
	_exit(99);
}

static pid_t manager_start_ready(struct manager *manager)
{
	pid_t keeper = manager_start(manager, NULL);
	manager->ready = manager->removed = false;
	while (!manager->ready)
		manager_read(manager);
	/* It has taken what was stored, so nothing is left in the sockets. */
	ck_assert(manager->removed == (manager->n > 0));
	for (; manager->n > 0; manager->n--)
		close(manager->stored[manager->n - 1]);
	return keeper;
}

/* Reads notifications until the process has ended. Returns its exit status. */
static int manager_await_status(struct manager *manager, pid_t process)
{
	int status;
	struct pollfd p[] = {{.fd = manager->socket, .events = POLLIN},
		{.fd = world_pidfd(process), .events = POLLIN}};
	while (poll(p, 2, -1) > 0 && !(p[1].revents && !p[0].revents))
		if (p[0].revents)
			manager_read(manager);
	close(p[1].fd);
	ck_assert_int_eq(waitpid(process, &status, 0), process);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void manager_await_end(struct manager *manager, pid_t process)
{
	ck_assert_int_eq(manager_await_status(manager, process), 0);
}

static void manager_deinit(struct manager *manager)
{
	close(manager->socket);
}

static void service_open(struct keep_world *world, const struct manager *manager)
{
	struct gm_store_options options = {.path = manager->path, .wait_ms = 10000};
	int r = world_try(world, &options);
	ck_assert_msg(r == 0, "%d: %s", r, world->why);
}

static void service_deposit(struct keep_world *world)
{
	for (uint64_t id = 1; id <= ITEMS; id++)
		ck_assert_int_ge(
			gm_store_deposit(world->store, GM_STORE_CHUNK, id, world_memory(id), NULL),
			0);
}

/* Opens the keeper as the next daemon, and finds so many items. */
static void service_expect(const struct manager *manager, uint64_t n)
{
	struct keep_world world;
	service_open(&world, manager);
	for (uint64_t id = 1; id <= n; id++) {
		int fd = -1;
		ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, id, &fd), 0);
		ck_assert_uint_eq(world_content(fd), id);
		close(fd);
	}
	world_close(&world, false);
}

START_TEST(the_next_keeper_has_what_the_one_before_left)
{
	struct manager manager;
	struct keep_world world;
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	service_open(&world, &manager);
	service_deposit(&world);
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	world_close(&world, false);

	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(kill(keeper, SIGTERM), 0);
		manager_await_end(&manager, keeper);
		ck_assert_int_gt(manager.n, 0);
		keeper = manager_start_ready(&manager);
		service_expect(&manager, ITEMS);
	}
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

static void service_deposit_and_die(void *ctx)
{
	struct keep_world world;
	service_open(&world, ctx);
	struct gm_store_state state = world_state(&world);
	kill(state.pid, SIGSTOP);
	for (uint64_t id = 1; id <= UNREAD; id++)
		if (gm_store_deposit(world.store, GM_STORE_CHUNK, id, world_memory(id), NULL) != 0)
			_exit(1);
}

START_TEST(what_the_keeper_had_not_read_is_left_as_well)
{
	struct manager manager;
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	world_run_to_death(service_deposit_and_die, &manager);
	ck_assert_int_eq(kill(keeper, SIGTERM), 0);
	ck_assert_int_eq(kill(keeper, SIGCONT), 0);
	manager_await_end(&manager, keeper);
	keeper = manager_start_ready(&manager);
	service_expect(&manager, UNREAD);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

START_TEST(what_is_closed_while_the_keeper_restarts_is_closed_in_the_next_one)
{
	struct manager manager;
	struct keep_world world;
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	service_open(&world, &manager);
	service_deposit(&world);
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	ck_assert_int_eq(kill(keeper, SIGTERM), 0);
	manager_await_end(&manager, keeper);
	WORLD_WAIT(&world, world.lost > 0);
	ck_assert_int_eq(gm_store_withdraw(world.store, GM_STORE_CHUNK, 7, NULL), GM_STORE_E_WAIT);
	/* Its memory is in the manager's store. */
	ck_assert_uint_eq(world.withdrawn, 0);

	keeper = manager_start_ready(&manager);
	WORLD_WAIT(&world, world.withdrawn == 1 && gm_store_is_ready(world.store));
	world_close(&world, false);
	service_open(&world, &manager);
	int fd = -1;
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 7, &fd), -ENOENT);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 8, &fd), 0);
	close(fd);
	world_close(&world, false);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

/* ---- a daemon that ends without a keeper */

/* Runs a daemon whose keeper is killed, and which leaves everything. */
static pid_t service_start_daemon(const struct manager *manager, pid_t keeper)
{
	struct keep_world world;
	fflush(NULL);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child > 0)
		return child;
	setenv("NOTIFY_SOCKET", manager->notify, 1);
	service_open(&world, manager);
	service_deposit(&world);
	WORLD_WAIT(&world, gm_store_is_ready(world.store));
	kill(keeper, SIGKILL);
	WORLD_WAIT(&world, world.lost > 0);
	if (gm_store_withdraw(world.store, GM_STORE_CHUNK, 7, NULL) != GM_STORE_E_WAIT)
		_exit(98);
	_exit(gm_store_leave(world.store) < 0);
}

/* Takes what is stored out of the manager, up to -1. */
static void service_take_stored(struct manager *manager, int left[STORED_MOST + 1])
{
	memcpy(left, manager->stored, sizeof(manager->stored));
	left[manager->n] = -1;
	manager->n = 0;
}

/* Opens the keeper as the next daemon, and finds what service_start_daemon() left. */
static void service_expect_left(const struct manager *manager)
{
	struct keep_world world;
	service_open(&world, manager);
	for (uint64_t id = 1; id <= ITEMS; id++) {
		int fd = -1, r = gm_store_claim(world.store, GM_STORE_CHUNK, id, &fd);
		ck_assert_int_eq(r, id == 7 ? -ENOENT : 0);
		if (r == 0)
			ck_assert_uint_eq(world_content(fd), id);
		if (r == 0)
			close(fd);
	}
	world_close(&world, false);
}

START_TEST(the_next_daemon_gives_the_keeper_what_the_one_before_left)
{
	struct manager manager;
	struct keep_world world;
	int left[STORED_MOST + 1];
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	manager_await_end(&manager, service_start_daemon(&manager, keeper));
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
	ck_assert_int_gt(manager.n, 0);
	service_take_stored(&manager, left);

	keeper = manager_start_ready(&manager);
	setenv("NOTIFY_SOCKET", manager.notify, 1);
	struct gm_store_options options = {.path = manager.path, .wait_ms = 10000, .left = left};
	int r = world_try(&world, &options);
	ck_assert_msg(r == 0, "%d: %s", r, world.why);
	unsetenv("NOTIFY_SOCKET");
	manager.removed = false;
	manager_read(&manager);
	ck_assert(manager.removed);
	/* It dies before its loop has turned once. The keeper has everything by then. */
	world_close(&world, false);

	service_expect_left(&manager);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

/* A keeper that takes one item and dies. Never returns. */
static void dying_keeper(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_keeper_message hello,
		welcome = {.verb = GM_KEEPER_WELCOME, .id = 1000000, .value = GM_KEEPER_VERSION},
		done = {.verb = GM_KEEPER_DONE};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, 1) < 0 || raise(SIGSTOP))
		_exit(1);
	int other = accept(listener, NULL, NULL);
	if (read(other, &hello, sizeof(hello)) != sizeof(hello))
		_exit(1);
	gm_seqpacket_send(other, &welcome, sizeof(welcome), NULL, 0);
	gm_seqpacket_send(other, &done, sizeof(done), NULL, 0);
	if (read(other, &hello, sizeof(hello)) != sizeof(hello))
		_exit(1);
	_exit(0);
}

static pid_t service_start_dying(const char *path)
{
	int status;
	unlink(path);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		dying_keeper(path);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	kill(child, SIGCONT);
	return child;
}

START_TEST(a_keeper_that_dies_while_it_is_given_what_was_left_loses_nothing)
{
	struct manager manager;
	struct keep_world world;
	int left[STORED_MOST + 1];
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	manager_await_end(&manager, service_start_daemon(&manager, keeper));
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
	service_take_stored(&manager, left);

	keeper = service_start_dying(manager.path);
	fflush(NULL);
	pid_t daemon = fork();
	ck_assert_int_ge(daemon, 0);
	if (daemon == 0) {
		struct gm_store_options options = {
			.path = manager.path, .wait_ms = 10000, .left = left};
		setenv("NOTIFY_SOCKET", manager.notify, 1);
		_exit(world_try(&world, &options) == -EPIPE ? 0 : 1);
	}
	for (int i = 0; left[i] >= 0; i++)
		close(left[i]);
	manager.removed = false;
	manager_await_end(&manager, daemon);
	ck_assert(manager.removed);
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
	ck_assert_int_gt(manager.n, 0);
	service_take_stored(&manager, left);

	keeper = manager_start_ready(&manager);
	struct gm_store_options options = {.path = manager.path, .wait_ms = 10000, .left = left};
	int r = world_try(&world, &options);
	ck_assert_msg(r == 0, "%d: %s", r, world.why);
	ck_assert_uint_eq(world_state(&world).items, ITEMS); /* less one, and the ledger */
	world_close(&world, false);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

/* ---- a daemon that does not start */

/* Runs gpumemd with this argument, with all that is stored, and with the socket if it is not -1. Returns its exit status. */
static int service_refuse(struct manager *manager, int socket, const char *argument)
{
	char path[4096];
	const char *build = getenv("top_builddir");
	snprintf(path, sizeof(path), "%s/daemon/gpumemd", build ? build : ".");
	fflush(NULL);
	pid_t daemon = fork();
	ck_assert_int_ge(daemon, 0);
	if (daemon == 0) {
		manager_pass(manager, socket);
		setenv("GPUMEM_KEEPER", "service", 1);
		execl(path, "gpumemd", argument, NULL);
		_exit(99);
	}
	manager->removed = false;
	return manager_await_status(manager, daemon);
}

/* Listens where clients look for the daemon of this keeper. */
static int service_listen(const struct manager *manager)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/socket", manager->folder);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

/* Neither does the service manager start a daemon again after these, and it empties its store then. */
static const struct {
	const char *argument;
	int status;
} refusals[] = {{"--config=/nowhere/gpumemd.conf", 78}, {"--nosuchoption", 2}};

START_TEST(a_daemon_that_is_not_started_again_gives_the_keeper_what_was_left)
{
	struct manager manager;
	int left[STORED_MOST + 1];
	manager_init(&manager);
	pid_t keeper = manager_start_ready(&manager);
	manager_await_end(&manager, service_start_daemon(&manager, keeper));
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
	ck_assert_int_gt(manager.n, 0);
	int socket = service_listen(&manager), n = manager.n;

	/* Nobody says where the keeper is. */
	ck_assert_int_eq(service_refuse(&manager, -1, refusals[_i].argument), 1);
	ck_assert(!manager.removed);

	/* A keeper dies in the middle. */
	keeper = service_start_dying(manager.path);
	ck_assert_int_eq(service_refuse(&manager, socket, refusals[_i].argument), 1);
	ck_assert(manager.removed);
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
	ck_assert_int_gt(manager.n, n);
	for (int i = 0; i < n; i++)
		close(manager.stored[i]);
	manager.n -= n;
	memmove(manager.stored, manager.stored + n, (size_t)manager.n * sizeof(int));

	service_take_stored(&manager, left);
	keeper = manager_start_ready(&manager);
	for (; left[manager.n] >= 0; manager.n++)
		manager.stored[manager.n] = left[manager.n];
	ck_assert_int_eq(
		service_refuse(&manager, socket, refusals[_i].argument), refusals[_i].status);
	ck_assert(manager.removed);
	service_expect_left(&manager);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	close(socket);
	manager_deinit(&manager);
}
END_TEST

static int service_put_none(void *ctx, uint64_t kind, uint64_t id, int fd)
{
	ck_abort_msg("an item");
	return 0;
}

START_TEST(only_what_this_user_made_is_taken)
{
	int ends[2];
	struct gm_keeper_message item = {.verb = GM_KEEPER_ITEM, .kind = GM_STORE_CHUNK, .id = 1};
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(gm_keeper_store_take(ends[0], service_put_none, NULL), -EPERM);
	close(ends[0]);
	close(ends[1]);
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(seteuid(64998), 0);
	int r = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(gm_seqpacket_send(ends[0], &item, sizeof(item), &ends[0], 1), 0);
	ck_assert_int_eq(gm_keeper_store_take(ends[1], service_put_none, NULL), -EPERM);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* ---- a keeper of an earlier version */

/* A keeper of version 1, as far as a process that takes its items sees it. Never returns. */
static void old_keeper(const char *path, uint64_t version)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_keeper_message hello, welcome = {.verb = GM_KEEPER_WELCOME, .value = version},
					done = {.verb = GM_KEEPER_DONE};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, 1) < 0 || raise(SIGSTOP))
		_exit(1);
	int other = accept(listener, NULL, NULL);
	if (read(other, &hello, sizeof(hello)) != sizeof(hello) || hello.verb != GM_KEEPER_HELLO)
		_exit(1);
	gm_seqpacket_send(other, &welcome, sizeof(welcome), NULL, 0);
	for (uint64_t id = 1; id <= ITEMS; id++) {
		struct gm_keeper_message item = {
			.verb = GM_KEEPER_ITEM, .kind = GM_STORE_CHUNK, .id = id};
		int fd = world_memory(id);
		struct pollfd p = {.fd = other, .events = POLLOUT};
		while (gm_seqpacket_send(other, &item, sizeof(item), &fd, 1) == -EAGAIN)
			poll(&p, 1, -1);
		close(fd);
	}
	gm_seqpacket_send(other, &done, sizeof(done), NULL, 0);
	for (;;)
		pause();
}

static pid_t start_old_keeper(const char *path, uint64_t version)
{
	int status;
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		old_keeper(path, version);
	/* It stops once it listens. */
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	kill(child, SIGCONT);
	return child;
}

START_TEST(what_a_keeper_of_version_1_holds_is_handed_over)
{
	struct manager manager;
	manager_init(&manager);
	pid_t old = start_old_keeper(manager.path, 1);
	manager_await_end(&manager, manager_start(&manager, "--hand-over"));
	ck_assert_int_gt(manager.n, 0);
	kill(old, SIGKILL);
	waitpid(old, NULL, 0);
	pid_t keeper = manager_start_ready(&manager);
	service_expect(&manager, ITEMS);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

START_TEST(a_keeper_that_leaves_its_items_itself_is_not_asked)
{
	struct manager manager;
	manager_init(&manager);
	pid_t old = start_old_keeper(manager.path, GM_KEEPER_VERSION);
	manager_await_end(&manager, manager_start(&manager, "--hand-over"));
	ck_assert_int_eq(manager.n, 0);
	kill(old, SIGKILL);
	waitpid(old, NULL, 0);
	manager_deinit(&manager);
}
END_TEST

START_TEST(without_a_keeper_there_is_nothing_to_hand_over)
{
	struct manager manager;
	manager_init(&manager);
	manager_await_end(&manager, manager_start(&manager, "--hand-over"));
	ck_assert_int_eq(manager.n, 0);
	manager_deinit(&manager);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keeper_service");
	TCase *tcase = tcase_create("keeper_service");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_next_keeper_has_what_the_one_before_left);
	tcase_add_test(tcase, what_the_keeper_had_not_read_is_left_as_well);
	tcase_add_test(tcase, what_is_closed_while_the_keeper_restarts_is_closed_in_the_next_one);
	tcase_add_test(tcase, the_next_daemon_gives_the_keeper_what_the_one_before_left);
	tcase_add_test(tcase, a_keeper_that_dies_while_it_is_given_what_was_left_loses_nothing);
	tcase_add_loop_test(tcase,
		a_daemon_that_is_not_started_again_gives_the_keeper_what_was_left, 0,
		sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tcase, only_what_this_user_made_is_taken);
	tcase_add_test(tcase, what_a_keeper_of_version_1_holds_is_handed_over);
	tcase_add_test(tcase, a_keeper_that_leaves_its_items_itself_is_not_asked);
	tcase_add_test(tcase, without_a_keeper_there_is_nothing_to_hand_over);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
