/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_pressure.h"

#include <linux/sockios.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "preload/preload.h"

#define PRESSURE_DEVICES 64

/* Which devices are under pressure. Only the thread that reports events uses it. */
static bool pressure_high[PRESSURE_DEVICES];
static bool pressure_told;

/*
 * Where a reader waits, and where the library writes. A program that closes all descriptors closes these, too, and may have
 * opened files of its own in their place. So each is known by its inode: a pair of sockets has two of its own, while all
 * eventfds of the machine have one together.
 */
struct pressure_end {
	int fd; /* -1: nobody has asked for it */
	dev_t device;
	ino_t inode;
};

static struct gm_lock pressure_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct pressure_end pressure_reader = {.fd = -1}; /* with the lock held */
static struct pressure_end pressure_writer = {.fd = -1}; /* likewise */

static bool pressure_any(void)
{
	for (size_t i = 0; i < PRESSURE_DEVICES; i++)
		if (pressure_high[i])
			return true;
	return false;
}

static bool pressure_handled(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 &&
	       (action.sa_flags & SA_SIGINFO ||
		       (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN));
}

static void pressure_signal(const gpumem_event *event)
{
	int number = gm_preload_settings()->signal;

	if (number == 0 || event->device >= PRESSURE_DEVICES)
		return;
	pressure_high[event->device] = event->level >= GPUMEM_LEVEL_HIGH;
	if (!pressure_any())
		pressure_told = false;
	else if (!pressure_told && pressure_handled(number))
		pressure_told = kill(getpid(), number) == 0;
}

static bool pressure_is_ours(const struct pressure_end *end)
{
	struct stat now;

	return end->fd >= 0 && fstat(end->fd, &now) == 0 && now.st_dev == end->device &&
	       now.st_ino == end->inode;
}

static void pressure_close(struct pressure_end *end)
{
	if (pressure_is_ours(end))
		close(end->fd);
	end->fd = -1;
}

/* Takes ownership of fd. */
static bool pressure_know(struct pressure_end *end, int fd)
{
	struct stat now;

	if (fstat(fd, &now) < 0) {
		close(fd);
		return false;
	}
	*end = (struct pressure_end){.fd = fd, .device = now.st_dev, .inode = now.st_ino};
	return true;
}

/* Makes both ends, with the lock held. Fails with false and errno. */
static bool pressure_connect(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	bool writer = pressure_know(&pressure_writer, pair[1]);
	return pressure_know(&pressure_reader, pair[0]) && writer;
}

/* One packet at a time: a reader that was away hears once of all that was wanted meanwhile, as from an eventfd. */
static void pressure_tell(void)
{
	const uint64_t one = 1;
	int unread = 0;

	gm_lock(&pressure_lock);
	if (pressure_is_ours(&pressure_writer) &&
		(ioctl(pressure_writer.fd, SIOCOUTQ, &unread) < 0 || unread == 0))
		(void)send(pressure_writer.fd, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
	gm_lock_drop(&pressure_lock);
}

void gm_preload_pressure_event(void *user, const gpumem_event *event)
{
	bool high = event->kind == GPUMEM_EVENT_PRESSURE && event->level >= GPUMEM_LEVEL_HIGH;
	/* 0: the library has returned enough. */
	bool more = event->kind == GPUMEM_EVENT_RECLAIM && event->bytes > 0;

	if (high || more)
		pressure_tell();
	if (event->kind == GPUMEM_EVENT_PRESSURE)
		pressure_signal(event);
}

void gm_preload_pressure_after_fork(void)
{
	gm_lock_init(&pressure_lock, GM_LOCK_LEAF); /* another thread of the parent may have it */
	pressure_close(&pressure_reader);
	pressure_close(&pressure_writer);
}

int gpumem_preload_wanted(void)
{
	int fd = -1;
	GM_UNCANCELLED; /* close() is called while the lock is held */

	gm_lock(&pressure_lock);
	bool there = pressure_is_ours(&pressure_reader) && pressure_is_ours(&pressure_writer);
	if (!there) {
		/* If only the writer's end was closed, a thread of the program may still use the reader's. */
		pressure_close(&pressure_writer);
		there = pressure_connect();
	}
	if (there)
		fd = pressure_reader.fd;
	gm_lock_drop(&pressure_lock);
	return fd;
}
