/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each end of a ring writes one word into its control block. The word says the state,
 * the process, and in which pid namespace that number means something. The word may be a lie; then this
 * process believes that an end is there, or is not, which the other end can make it believe anyway.
 */
#include "client/ring/ring_owner.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/session/error.h"

/* Bits 0 to 7: the state. 8 to 31: the process (Linux has at most 2^22). 32 to 63: its namespace. */
#define PID_SHIFT   8
#define SPACE_SHIFT 32

/* How often a word is tried that somebody else changes all the time. */
#define CLAIM_TRIES 100

/* The number of this process's pid namespace; 0: not known. */
static uint32_t owner_space(void)
{
	struct stat about;
	return stat("/proc/self/ns/pid", &about) == 0 ? (uint32_t)about.st_ino : 0;
}

static pid_t owner_pid(uint64_t owner)
{
	return (pid_t)((uint32_t)owner >> PID_SHIFT);
}

uint64_t gm_ring_owner(unsigned state)
{
	return (uint64_t)owner_space() << SPACE_SHIFT | (uint64_t)getpid() << PID_SHIFT | state;
}

bool gm_ring_owner_here(uint64_t owner)
{
	return owner_pid(owner) == getpid() && owner >> SPACE_SHIFT == owner_space();
}

bool gm_ring_owner_gone(uint64_t owner)
{
	uint32_t space = owner_space();

	if (!owner_pid(owner) || !space || owner >> SPACE_SHIFT != space)
		return false;
	if (owner_pid(owner) == getpid())
		return false;

	int fd = (int)syscall(SYS_pidfd_open, owner_pid(owner), 0);
	/* EINVAL, ENOENT: the number is a thread's by now. */
	if (fd < 0)
		return errno == ESRCH || errno == EINVAL || errno == ENOENT;

	/* A process that has ended is readable, also while its parent has not asked for its status. */
	struct pollfd ended = {.fd = fd, .events = POLLIN};
	bool gone = poll(&ended, 1, 0) == 1;
	close(fd);
	return gone;
}

gpumem_status gm_ring_owner_claim(uint64_t *word, unsigned state, bool kept)
{
	uint64_t mine = gm_ring_owner(state), owner = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	for (int i = 0; i < CLAIM_TRIES; i++) {
		bool had = gm_ring_owner_state(owner) != GPUMEM_RING_NOBODY &&
			   gm_ring_owner_state(owner) != GPUMEM_RING_CLOSED;
		if (had && !(kept && gm_ring_owner_here(owner)) && !gm_ring_owner_gone(owner))
			break;
		if (__atomic_compare_exchange_n(
			    word, &owner, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return GPUMEM_OK;
	}
	return gm_error(GPUMEM_E_BUSY,
		"process %d has the far end of this ring; a ring has two ends, so make another one, "
		"or close that end first",
		(int)owner_pid(owner));
}
