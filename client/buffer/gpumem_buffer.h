/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_GPUMEM_BUFFER_H
#define GM_CLIENT_BUFFER_GPUMEM_BUFFER_H

#include "client/buffer/evict_state.h"
#include "client/buffer/signals.h"
#include "client/device/leaving.h"
#include "client/session/gpumem_session.h"
#include "client/grant/session_lease.h"

struct gm_buffer_tail;

/* What a buffer keeps of the options that it was made with, for when it grows. */
struct gm_buffer_wish {
	uint64_t max_size; /* 0: none */
	uint32_t wait_ms;
	bool for_others, signals, evictable;
	bool cpu_ok; /* it is evictable, and may be made in host memory */
};

/* A lease that is mapped into an address range of its own. */
struct gpumem_buffer {
	struct gm_leaver leaver; /* comes first */
	struct gpumem_session *session;
	/* Held while the buffer is resized, shared or published, across messages. */
	pthread_mutex_t lock;
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
	struct gm_buffer_tail *tail;    /* NULL: none; buffer_tail.h */
	_Atomic uint64_t version;       /* of its name; 0: none that this process knows */
	struct gm_signals signals;
	struct gm_evict evict;
	/* Of transfers that use its memory; the session's lock protects both. */
	uint32_t transfers;
	bool doomed;          /* the last of them destroys it */
	_Atomic uint32_t row; /* in the client's page; 0: not listed */
	struct gm_buffer_wish wish;
	struct gm_page_growth growth; /* of its row; the session's lock protects it */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	/* For a row that it may get later; the session's lock protects them. */
	char type[GM_LIMIT_KIND_BYTES + 1], precision[GM_LIMIT_KIND_BYTES + 1];
	struct gpumem_buffer *prev, *next; /* in the session's list */
};

#endif
