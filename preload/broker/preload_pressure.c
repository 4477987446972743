/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_pressure.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/preload.h"

#define PRESSURE_DEVICES 64

/* Which devices are under pressure. Only the thread that reports events uses it. */
static bool pressure_high[PRESSURE_DEVICES];
static bool pressure_told;

/* Where readers wait; -1: nobody has asked for it. */
static _Atomic int pressure_wanted = -1;
static _Atomic ino_t pressure_inode;

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

/* The descriptor, or -1. A program that closes all descriptors closes this one, too, and may have opened a file in its place. */
static int pressure_descriptor(void)
{
	int fd = atomic_load(&pressure_wanted);
	struct stat now;

	return fd >= 0 && fstat(fd, &now) == 0 && now.st_ino == atomic_load(&pressure_inode) ? fd
											     : -1;
}

void gm_pressure_event(void *user, const gpumem_event *event)
{
	bool high = event->kind == GPUMEM_EVENT_PRESSURE && event->level >= GPUMEM_LEVEL_HIGH;
	/* 0: the library has returned enough. */
	bool more = event->kind == GPUMEM_EVENT_RECLAIM && event->bytes > 0;
	int fd = pressure_descriptor();

	if (fd >= 0 && (high || more))
		(void)eventfd_write(fd, 1);
	if (event->kind == GPUMEM_EVENT_PRESSURE)
		pressure_signal(event);
}

void gm_pressure_after_fork(void)
{
	int fd = pressure_descriptor();

	atomic_store(&pressure_wanted, -1);
	if (fd >= 0)
		close(fd);
}

int gpumem_preload_wanted(void)
{
	int none = -1, fd = atomic_load(&pressure_wanted);
	struct stat made;
	if (fd >= 0)
		return fd;

	fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0 || fstat(fd, &made) < 0)
		return fd;
	atomic_store(&pressure_inode, made.st_ino); /* the same for each eventfd of the machine */
	if (atomic_compare_exchange_strong(&pressure_wanted, &none, fd))
		return fd;
	close(fd);
	return none;
}
