/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds descriptors. Everything that a daemon has put into its socket counts, even if the daemon has
 * died since. So packets are read to the end before a connection is given up, and before the next
 * daemon is answered.
 *
 * While there is something to send that does not fit into the socket, nothing is read: a daemon that
 * does not read cannot make the keeper queue anything.
 */
#include "keeper/keeper_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/wire/keeper_wire.h"
#include "common/bounds.h"
#include "common/system/pid_ns.h"
#include "common/wire/seqpacket.h"
#include "common/step.h"

#define KEEPER_BACKLOG 16
/* Descriptors for itself: standard files, sockets, the lock, a connection that is refused. */
#define KEEPER_OWN_FDS 16
/* How often a keeper without a daemon looks whether its socket is still there. */
#define KEEPER_LOOK_MS 1000
/* Time without a daemon before chunks are closed that nobody needs, in ns. A daemon that restarts finds
 * them, and decides by its store. */
#define KEEPER_RELEASE_NS (2 * GM_NS_PER_S)
/* Maximum time to take the items of another keeper. */
#define KEEPER_FETCH_MS 1500
/* Of keeper_fetch_one(): that was the last packet. */
#define KEEPER_FETCHED 2

/* ---- items */

void gm_keeper_forget(struct gm_keeper *keeper, struct keeper_item *item)
{
	HASH_DEL(keeper->items, item);
	gm_close(item->fd);
	free(item);
}

static struct keeper_item *keeper_find(struct gm_keeper *keeper, uint64_t kind, uint64_t id)
{
	struct keeper_key key = {.id = id, .kind = kind};
	struct keeper_item *item;

	HASH_FIND(hh, keeper->items, &key, sizeof(key), item);
	return item;
}

int gm_keeper_put(struct gm_keeper *keeper, uint64_t kind, uint64_t id, int fd)
{
	struct keeper_item *item = keeper_find(keeper, kind, id);

	if (item) {
		gm_close(item->fd);
		item->fd = fd;
		return 0;
	}

	item = calloc(1, sizeof(*item));
	if (!item) {
		gm_close(fd);
		return -ENOMEM;
	}
	item->key = (struct keeper_key){.id = id, .kind = kind};
	item->fd = fd;
	HASH_ADD(hh, keeper->items, key, sizeof(item->key), item);
	if (!item->hh.tbl) {
		gm_close(fd);
		free(item);
		return -ENOMEM;
	}
	return 0;
}

static void keeper_forget_all(struct gm_keeper *keeper)
{
	struct keeper_item *item, *next;

	HASH_ITER (hh, keeper->items, item, next)
		gm_keeper_forget(keeper, item);
}

/* ---- the daemon */

static void keeper_hang_up(struct gm_keeper *keeper)
{
	keeper->daemon = gm_close(keeper->daemon);
	keeper->away_ns = gm_clock_ns();
	keeper->released = false;
	keeper->greeted = keeper->listing = keeper->answering = keeper->deaf = false;
	keeper->next = NULL;
}

/* Sends what is to be sent, as far as the socket has room. */
static void keeper_flush(struct gm_keeper *keeper)
{
	int r = 0;

	if (keeper->answering) {
		r = gm_seqpacket_send(
			keeper->daemon, &keeper->answer, sizeof(keeper->answer), NULL, 0);
		keeper->answering = r < 0;
	}

	while (r == 0 && keeper->listing) {
		struct gm_keeper_message message = {.verb = GM_KEEPER_DONE};
		const struct keeper_item *item = keeper->next;
		if (item)
			message = (struct gm_keeper_message){.verb = GM_KEEPER_ITEM,
				.kind = (uint32_t)item->key.kind,
				.id = item->key.id};
		r = gm_seqpacket_send(keeper->daemon, &message, sizeof(message),
			item ? &item->fd : NULL, item ? 1 : 0);
		if (r == 0) {
			keeper->listing = item;
			keeper->next = item ? item->hh.next : NULL;
		}
	}

	if (r == -EPIPE) {
		keeper->deaf = true;
		keeper->answering = keeper->listing = false;
	}
}

static void keeper_answer(struct gm_keeper *keeper, enum gm_keeper_verb verb, uint32_t kind,
	uint64_t id, uint64_t value)
{
	keeper->answer =
		(struct gm_keeper_message){.verb = verb, .kind = kind, .id = id, .value = value};
	keeper->answering = !keeper->deaf;
	keeper_flush(keeper);
}

static void keeper_take_deposit(struct gm_keeper *keeper, const struct gm_keeper_message *message,
	struct gm_conn_packet *packet)
{
	int fd = gm_fdlist_steal(&packet->fds, 0);
	int r = fd < 0 ? -EMFILE : 0;

	GM_STEP("deposit: received");
	if (r == 0)
		r = gm_keeper_put(keeper, message->kind, message->id, fd);
	GM_STEP("deposit: held");
	if (r < 0)
		keeper_answer(keeper, GM_KEEPER_LOST, message->kind, message->id, (uint64_t)-r);
}

static void keeper_take_message(struct gm_keeper *keeper, const struct gm_keeper_message *message,
	struct gm_conn_packet *packet)
{
	if (!keeper->greeted && message->verb != GM_KEEPER_HELLO) {
		keeper_hang_up(keeper);
		return;
	}

	switch (message->verb) {
	case GM_KEEPER_HELLO:
		keeper->greeted = true;
		keeper->listing = !keeper->deaf;
		keeper->next = keeper->items;
		keeper_answer(keeper, GM_KEEPER_WELCOME, 0, keeper->capacity, GM_KEEPER_VERSION);
		GM_STEP("hello: welcomed");
		break;
	case GM_KEEPER_DEPOSIT:
		keeper_take_deposit(keeper, message, packet);
		break;
	case GM_KEEPER_CLOSE: {
		struct keeper_item *item = keeper_find(keeper, message->kind, message->id);
		if (item)
			gm_keeper_forget(keeper, item);
		GM_STEP("close: forgotten");
		keeper_answer(keeper, GM_KEEPER_CLOSED, message->kind, message->id, 0);
		GM_STEP("close: answered");
		break;
	}
	case GM_KEEPER_END:
		keeper_forget_all(keeper);
		keeper->ended = !keeper->stays;
		break;
	default: /* of a newer daemon, which knows our version and does not rely on it */
		break;
	}
}

/*
 * Sends and reads, until there is nothing to read now or something to send has no room. If the daemon
 * has died, that is the end of its connection: nothing that it sent is lost.
 */
static void keeper_serve_daemon(struct gm_keeper *keeper)
{
	if (keeper->answering || keeper->listing)
		keeper_flush(keeper);

	while (keeper->daemon >= 0 && !keeper->answering && !keeper->listing) {
		struct gm_keeper_message message = {0};
		struct gm_conn_packet packet;

		int r = gm_seqpacket_receive(keeper->daemon, &message, sizeof(message), &packet);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			keeper_hang_up(keeper);
			return;
		}

		if (packet.n < sizeof(message))
			keeper_hang_up(keeper);
		else
			keeper_take_message(keeper, &message, &packet);
		gm_fdlist_deinit(&packet.fds);
	}
}

void gm_keeper_drain(struct gm_keeper *keeper)
{
	if (keeper->daemon < 0)
		return;
	(void)shutdown(keeper->daemon, SHUT_RD);
	keeper->deaf = true;
	keeper->answering = keeper->listing = false;
	keeper_serve_daemon(keeper);
	keeper_hang_up(keeper);
}

/* Neither a process of another user nor one in a container, which may have any uid, is anybody to talk to. */
static bool keeper_trusts(int socket, pid_t *ret_pid)
{
	struct ucred who;
	socklen_t n = sizeof(who);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
		return false;
	*ret_pid = who.pid;
	return (who.uid == geteuid() || who.uid == 0) && gm_pid_ns_is_own(who.pid, 0) == 1;
}

static void keeper_accept(struct gm_keeper *keeper)
{
	GM_AUTO_FD int socket = accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	pid_t pid;

	if (socket < 0 || !keeper_trusts(socket, &pid))
		return;

	/* The daemon before may have died just now, with packets that were not read yet. */
	keeper_serve_daemon(keeper);
	if (keeper->daemon >= 0) {
		struct gm_keeper_message busy = {
			.verb = GM_KEEPER_BUSY, .id = (uint64_t)keeper->daemon_pid};
		(void)gm_seqpacket_send(socket, &busy, sizeof(busy), NULL, 0);
		return;
	}
	keeper->daemon = gm_steal_fd(&socket);
	keeper->daemon_pid = pid;
}

/* Whether a daemon could still find this keeper. */
static bool keeper_is_found(const struct gm_keeper *keeper)
{
	struct stat st;

	return fstatat(keeper->folder, keeper->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == keeper->device && st.st_ino == keeper->inode;
}

/* There is no daemon. Once it is away for a while, what no process needs is closed. */
static void keeper_look(struct gm_keeper *keeper)
{
	if (gm_clock_ns() - keeper->away_ns < KEEPER_RELEASE_NS)
		return;
	unsigned ended = gm_keeper_count_ended(keeper);
	if (keeper->released && ended == keeper->released_at)
		return;
	int r = gm_keeper_release(keeper);
	keeper->released = r >= 0;
	keeper->released_at = ended;
	if (r == 0)
		keeper->ended = !keeper->stays;
}

int gm_keeper_serve(struct gm_keeper *keeper, int stop, bool stays)
{
	keeper->stays = stays;
	keeper->away_ns = gm_clock_ns();
	while (!keeper->ended && (keeper->daemon >= 0 || keeper_is_found(keeper))) {
		bool sending = keeper->answering || keeper->listing;
		struct pollfd fds[] = {
			{.fd = stop, .events = POLLIN},
			{.fd = keeper->listener, .events = POLLIN},
			{.fd = keeper->daemon, .events = sending ? POLLOUT : POLLIN},
		};
		int n = poll(fds, 3, keeper->daemon >= 0 ? -1 : KEEPER_LOOK_MS);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			keeper_look(keeper);
		if (n <= 0)
			continue;

		if (fds[2].revents)
			keeper_serve_daemon(keeper);
		if (fds[0].revents)
			return 0;
		if (fds[1].revents && !keeper->ended)
			keeper_accept(keeper);
	}
	return 0;
}

unsigned gm_keeper_alone_with(const struct gm_keeper *keeper)
{
	const struct keeper_item *item;
	unsigned n = 0;

	if (keeper->daemon >= 0)
		return 0;
	for (item = keeper->items; item; item = item->hh.next)
		n += item->key.kind != GM_STORE_RECORDS_FILE && item->key.kind != GM_STORE_REFS;
	return n;
}

/* ---- the socket */

static int keeper_fail(const char *what, char why[GM_KEEPER_WHY])
{
	int error = errno;
	snprintf(why, GM_KEEPER_WHY, "cannot %s: %s", what, strerror(error));
	return -error;
}

static int keeper_open_folder(struct gm_keeper *keeper, const char *path, char why[GM_KEEPER_WHY])
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	if (!*name || strlen(name) >= sizeof(keeper->name)) {
		snprintf(why, GM_KEEPER_WHY, "this is not the path of a socket, or is too long");
		return -EINVAL;
	}
	strcpy(keeper->name, name);

	GM_AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!folder)
		return keeper_fail("name its folder", why);
	keeper->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (keeper->folder < 0)
		return keeper_fail("open its folder", why);
	return 0;
}

/* Keeps other keepers from this path until this one ends. */
static int keeper_take_lock(struct gm_keeper *keeper, char why[GM_KEEPER_WHY])
{
	char name[sizeof(keeper->name) + 8];
	snprintf(name, sizeof(name), "%s.lock", keeper->name);
	for (;;) {
		struct stat locked, named;
		GM_AUTO_FD int fd = openat(keeper->folder, name,
			O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0)
			return keeper_fail("make its lock file", why);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return keeper_fail("lock its lock file", why);
			snprintf(why, GM_KEEPER_WHY, "another gpumem-keeper has this socket");
			return -EADDRINUSE;
		}

		/* The keeper before may have removed the file between open() and flock(). */
		if (fstat(fd, &locked) == 0 &&
			fstatat(keeper->folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
			locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) {
			keeper->lock = gm_steal_fd(&fd);
			return 0;
		}
	}
}

/* The folder may be too deep for a socket's address, so the address goes through the open folder. */
static int keeper_make_address(
	const struct gm_keeper *keeper, struct sockaddr_un *ret, char why[GM_KEEPER_WHY])
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s",
		keeper->folder, keeper->name);
	if (n >= 0 && (size_t)n < sizeof(ret->sun_path))
		return 0;
	errno = ENAMETOOLONG;
	return keeper_fail("make its address", why);
}

static int keeper_listen(struct gm_keeper *keeper, char why[GM_KEEPER_WHY])
{
	struct sockaddr_un address;
	struct stat st;
	int r = keeper_make_address(keeper, &address, why);
	if (r < 0)
		return r;

	if (fstatat(keeper->folder, keeper->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid()) {
			snprintf(why, GM_KEEPER_WHY,
				"it exists and is not a socket of this user (it belongs to uid %u): remove it",
				(unsigned int)st.st_uid);
			return -EEXIST;
		}
		if (unlinkat(keeper->folder, keeper->name, 0) < 0 && errno != ENOENT)
			return keeper_fail("remove the socket of the keeper before", why);
	}

	keeper->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (keeper->listener < 0)
		return keeper_fail("make a socket", why);
	mode_t before = umask(0177);
	r = bind(keeper->listener, (struct sockaddr *)&address, sizeof(address));
	int error = errno;
	umask(before);
	errno = error;
	if (r < 0 || fstatat(keeper->folder, keeper->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return keeper_fail("bind", why);
	keeper->device = st.st_dev;
	keeper->inode = st.st_ino;
	if (listen(keeper->listener, KEEPER_BACKLOG) < 0)
		return keeper_fail("listen", why);
	return 0;
}

static struct gm_keeper *keeper_alloc(char why[GM_KEEPER_WHY])
{
	struct rlimit limit;
	struct gm_keeper *keeper = calloc(1, sizeof(*keeper));
	if (!keeper) {
		snprintf(why, GM_KEEPER_WHY, "out of memory");
		return NULL;
	}
	keeper->folder = keeper->lock = keeper->listener = keeper->daemon = -1;
	keeper->capacity = getrlimit(RLIMIT_NOFILE, &limit) == 0
				   ? gm_u64_minus(limit.rlim_cur, KEEPER_OWN_FDS)
				   : 1024 - KEEPER_OWN_FDS;
	return keeper;
}

int gm_keeper_new(const char *path, struct gm_keeper **ret_keeper, char why[GM_KEEPER_WHY])
{
	struct gm_keeper *keeper = keeper_alloc(why);
	if (!keeper)
		return -ENOMEM;
	int r = keeper_open_folder(keeper, path, why);
	if (r == 0)
		r = keeper_take_lock(keeper, why);
	if (r == 0)
		r = keeper_listen(keeper, why);
	if (r < 0) {
		gm_keeper_free(keeper);
		return r;
	}
	*ret_keeper = keeper;
	return 0;
}

/* ---- another keeper's items */

static int keeper_connect(const struct gm_keeper *keeper, int *ret_socket, char why[GM_KEEPER_WHY])
{
	struct sockaddr_un address;
	pid_t pid;
	int r = keeper_make_address(keeper, &address, why);
	if (r < 0)
		return r;
	GM_AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return keeper_fail("connect to it", why);
	if (!keeper_trusts(fd, &pid)) {
		snprintf(why, GM_KEEPER_WHY, "the process that listens belongs to another user");
		return -EPERM;
	}
	*ret_socket = gm_steal_fd(&fd);
	return 0;
}

/* Takes one packet of the other keeper. Returns 0 as long as more are to come. */
static int keeper_fetch_one(struct gm_keeper *keeper, int socket)
{
	struct gm_keeper_message message = {0};
	struct gm_conn_packet packet;
	int r = gm_seqpacket_receive(socket, &message, sizeof(message), &packet);
	if (r < 0)
		return r == -EAGAIN ? 0 : r;

	int fd = gm_fdlist_steal(&packet.fds, 0);
	r = packet.n < sizeof(message) ? -EBADMSG : 0;
	if (r == 0 && message.verb == GM_KEEPER_ITEM)
		r = fd < 0 ? -EMFILE : gm_keeper_put(keeper, message.kind, message.id, fd);
	else if (r == 0 && (message.verb == GM_KEEPER_BUSY ||
				   (message.verb == GM_KEEPER_WELCOME &&
					   message.value >= GM_KEEPER_VERSION_LEAVES)))
		r = GM_KEEPER_E_NOT_NEEDED;
	else if (r == 0 && message.verb == GM_KEEPER_DONE)
		r = KEEPER_FETCHED;
	gm_fdlist_deinit(&packet.fds);
	return r;
}

int gm_keeper_fetch(const char *path, struct gm_keeper **ret_keeper, char why[GM_KEEPER_WHY])
{
	struct gm_keeper_message hello = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	uint64_t until_ns = gm_clock_ns() + KEEPER_FETCH_MS * GM_NS_PER_MS;
	GM_AUTO_FD int socket = -1;
	struct gm_keeper *keeper = keeper_alloc(why);
	if (!keeper)
		return -ENOMEM;

	int r = keeper_open_folder(keeper, path, why);
	if (r == 0)
		r = keeper_connect(keeper, &socket, why);
	if (r == 0) {
		r = gm_seqpacket_send(socket, &hello, sizeof(hello), NULL, 0);
		r = r == -EPIPE ? 0 : r; /* a busy keeper has said so before it hung up */
	}
	while (r == 0) {
		struct pollfd p = {.fd = socket, .events = POLLIN};
		int n = poll(&p, 1, gm_clock_poll_ms(until_ns));
		r = n == 0 ? -ETIMEDOUT : n < 0 && errno != EINTR ? -errno : 0;
		if (n > 0)
			r = keeper_fetch_one(keeper, socket);
	}
	if (r == KEEPER_FETCHED) {
		*ret_keeper = keeper;
		return 0;
	}
	if (r < 0 && socket >= 0)
		snprintf(why, GM_KEEPER_WHY, "it does not give its items: %s", strerror(-r));
	gm_keeper_free(keeper);
	return r;
}

void gm_keeper_free(struct gm_keeper *keeper)
{
	char name[sizeof(keeper->name) + 8];

	if (!keeper)
		return;
	/* The daemon may wait for the end of its connection: then all is gone. */
	keeper_forget_all(keeper);
	if (keeper->listener >= 0 && keeper->inode && keeper_is_found(keeper))
		unlinkat(keeper->folder, keeper->name, 0);
	gm_close(keeper->listener);
	if (keeper->lock >= 0) {
		snprintf(name, sizeof(name), "%s.lock", keeper->name);
		unlinkat(keeper->folder, name, 0); /* while the lock is still held */
		gm_close(keeper->lock);
	}
	gm_close(keeper->folder);
	keeper_hang_up(keeper);
	free(keeper);
}
