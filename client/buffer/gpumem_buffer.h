/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_GPUMEM_BUFFER_H
#define GM_CLIENT_BUFFER_GPUMEM_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/buffer/signals.h"
#include "client/device/retired.h"
#include "client/grant/session_lease.h"
#include "client/session/gpumem_session.h"
#include "common/lock.h"

struct gm_buffer_retired;
struct gm_map_event;
struct gm_spill;
struct gpumem_buffer;

/*
 *              evict                          pin
 *      HERE ----------> LEAVING ---> AWAY ----------> COMING ---> HERE
 *        ^                 |           ^                 |
 *        +-----------------+           +-----------------+--------> UNDER
 *          it failed, or the             it failed            (the program allows
 *          buffer was pinned                                   host memory)
 *
 * A buffer in UNDER is pinned or not. If it is pinned again, or goes to the device by itself, it goes
 * through COMING like one in AWAY. A buffer begins in HERE; or in UNDER, if it was made in host memory
 * because the device was full.
 */
enum gm_evict_state {
	GM_EVICT_HERE,    /* the buffer has device memory */
	GM_EVICT_LEAVING, /* a thread moves its content to host memory */
	GM_EVICT_AWAY,    /* its content is in host memory, and its addresses are empty */
	GM_EVICT_COMING,  /* a thread moves the content back */
	GM_EVICT_UNDER,   /* the host memory lies under the buffer's addresses */
};

/* The last work on an unpinned buffer: one event per unpin. From this many events on, an unpin first drops those
 * that have passed. If there are twice as many all the same, one event for all streams replaces them. */
#define GM_EVICT_EVENTS 4

/*
 * The part of a buffer that has to do with eviction. The session's lock protects it. The spill and the
 * events belong to the thread that has set LEAVING or COMING; otherwise events are also protected by the
 * lock.
 */
struct gm_evict {
	bool able; /* the buffer was made evictable; does not change */
	enum gm_evict_state state;
	bool recalled; /* a pin waits for a move that has not gone too far */
	bool waits;    /* the thread that brings it back waits: for memory, or for the device */
	bool ended;    /* the program has destroyed the buffer */
	bool shared;   /* others may have the buffer: the daemon must be asked */
	uint32_t pins,
		holds; /* by the program, and by the library while it uses the lease or the memory */
	uint64_t
		offered; /* bytes that it counts for among the evictable ones; 0: it is not listed */
	uint64_t in_host;        /* bytes that it counts for among those in host memory */
	uint64_t round;          /* in which it was tried last */
	uint64_t asked_until_ns; /* somebody asked by hand that it goes, until then; 0: nobody */
	uint64_t added;          /* how many events were added so far */
	size_t n_events;
	size_t taken; /* events that a thread has taken out, to look at them without the lock */
	struct gm_map_event *events[2 * GM_EVICT_EVENTS];
	struct gm_spill *spill;            /* AWAY, UNDER, COMING */
	struct gpumem_buffer *prev, *next; /* in the device's list of evictable buffers */
};

/* What a buffer keeps of the options that it was made with, for when it grows. */
struct gm_buffer_wish {
	uint64_t max_size; /* 0: none */
	uint32_t wait_ms;
	bool for_others, signals, evictable;
	bool cpu_ok; /* it is evictable, and may be made in host memory */
};

/* A lease that is mapped into an address range of its own. */
struct gpumem_buffer {
	struct gm_retired retired; /* comes first */
	struct gpumem_session *session;
	/* Held while the buffer is resized, shared or published, across messages. */
	struct gm_lock lock;
	/* A move replaces it, under the lock. NULL while an evictable buffer is in host memory. */
	struct gm_session_lease *lease;
	uint32_t device;
	enum gm_transport transport;
	bool opened;                      /* another process made it and is charged for it */
	bool carved;                      /* its maker counts and lists pieces of it instead */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
	_Atomic(void *) addr;
	uint64_t room;          /* of the range, fd transport; a move changes it, under the lock */
	_Atomic uint64_t reach; /* how far the buffer can grow there */
	/* Only a resize, or a tail that goes, changes these, with the session's settling held and,
	 * because they are counted, the session's lock; or an eviction, which has the buffer for
	 * itself, with the session's lock. */
	uint64_t bytes;      /* whole chunks, with the tail */
	uint64_t mapped;     /* how much of the range is mapped, from its start */
	_Atomic size_t size; /* as requested */
	size_t chunks;
	bool counted;                   /* in the figures of the device */
	struct gm_session_chunk *parts; /* the chunks, by address; NULL if they go back together */
	struct gm_buffer_retired *tail; /* NULL: none; buffer_retired.h */
	_Atomic uint64_t version;       /* of its name; 0: none that this process knows */
	struct gm_signals signals;
	struct gm_evict evict;
	/* Of transfers that use its memory; the session's lock protects both. */
	uint32_t transfers;
	bool doomed;          /* the last of them destroys it */
	_Atomic uint32_t row; /* in the client's page; 0: not listed */
	struct gm_buffer_wish wish;
	struct gm_page_growth growth; /* of its row; the session's lock protects it */
	char tag[GM_BOUND_NAME_BYTES + 1];
	/* For a row that it may get later; the session's lock protects them. */
	char type[GM_BOUND_KIND_BYTES + 1], precision[GM_BOUND_KIND_BYTES + 1];
	struct gpumem_buffer *prev, *next; /* in the session's list */
};

/* The buffers of a session. */
struct gm_buffer_list {
	struct gpumem_buffer *first; /* of the session's lock; buffers that are not destroyed */
	struct gm_lock ending;       /* held while a call of the program ends what was set aside */
	_Atomic uint64_t endings;    /* how often that was done, by any thread */
};

#endif
