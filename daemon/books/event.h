/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_EVENT_H
#define GM_BOOKS_EVENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/types.h"

/*
 * What core tells the daemon, and asks of clients, when memory is short. Limits, reclaim and queue
 * share these types. There are no functions here.
 */

struct gm_session;
struct gm_request;
struct gm_owner;

/* Why core wants memory back. Each trigger has its own measure of success. */
enum gm_reclaim_trigger {
	GM_RECLAIM_TRIGGER_REQUEST, /* a request does not fit; until what it lacks is available to it */
	GM_RECLAIM_TRIGGER_PRESSURE, /* a level is reached; until the charges are below its threshold */
	GM_RECLAIM_TRIGGER_MIN_FREE, /* the device has less than min_free; until the pool gave that back */
	GM_RECLAIM_TRIGGER_MANUAL, /* gpumemctl cleanup; until so much is free on the device */
	GM_TRIGGERS,
};

/* The stages of reclaim, in the order in which core runs them. */
enum gm_stage {
	GM_STAGE_POOL,      /* pooled chunks are destroyed */
	GM_STAGE_CACHED,    /* clients are asked to return cached chunks */
	GM_STAGE_UNUSED,    /* clients are told to return everything unused, now */
	GM_STAGE_SPILL,     /* clients are told to move evictable buffers to host memory */
	GM_STAGE_HOLD,      /* new leases of lower priority are refused, or wait */
	GM_STAGE_TERMINATE, /* a client of the lowest priority is terminated */
	GM_STAGES,
};

/* What a client says it could give back on a device. */
struct gm_account_use {
	uint64_t cached;    /* leased and not in use: it can come back within the deadline */
	bool rough;         /* cached may include memory that cannot come back */
	uint64_t evictable; /* in use, but it could be moved to host memory */
};

/* A request to a client to give memory back. */
struct gm_reclaim_message {
	uint32_t device;
	enum gm_reclaim_trigger trigger;
	enum gm_stage stage;  /* CACHED, UNUSED or SPILL */
	uint64_t bytes;       /* so many are wanted; from UNUSED on, more is welcome */
	uint64_t spill;       /* SPILL: so many of them by moving evictable buffers, else 0 */
	bool urgent;          /* stage >= UNUSED: the client returns all it does not use, now */
	uint64_t deadline_ns; /* on core's clock */
};

/* Why a valid request does not get memory now. */
enum gm_block {
	GM_BLOCK_NONE,
	GM_BLOCK_LIMIT,     /* it would pass the max of one of its owners */
	GM_BLOCK_DEVICE,    /* the device does not have enough available */
	GM_BLOCK_GUARANTEE, /* the device has enough, but keeps it for other owners */
	GM_BLOCK_CRITICAL,  /* pressure is critical, and there are clients of a higher priority */
	GM_BLOCK_OVERTAKEN, /* a request before it holds it back */
	GM_BLOCK_DRAIN,     /* the device is being drained; such a request never waits */
};

enum gm_event_kind {
	GM_EVENT_LIMIT,           /* a request met a limit: owner, max, held, asked */
	GM_EVENT_RECLAIM_STARTED, /* trigger, payer_uid, need, stages (what each could give) */
	GM_EVENT_RECLAIM_ENDED,   /* trigger, payer_uid, need, stages (what each gave), reached */
	GM_EVENT_IGNORED,         /* a client did not return all it was asked for: held, asked,
				     bytes (what it returned) */
	GM_EVENT_QUEUED,          /* a request waits: asked, priority, block */
	GM_EVENT_RESTS,           /* a request waits until other users' clients may be asked for it:
				     asked, priority, block */
	GM_EVENT_GRANTED,         /* a request that waited is granted: asked, waited_ns */
	GM_EVENT_REFUSED,         /* a request is refused: asked, waited_ns, status */
	GM_EVENT_CANCELLED,       /* a request that waited is taken back, or its client is gone:
				     asked, waited_ns, status */
	GM_EVENT_VICTIM,          /* a client is terminated, or should be: held, priority, error */
	GM_EVENTS,
};

/* Stands for several users. No user has this uid. */
#define GM_EVENT_NOBODY ((uid_t)-1)

/* One thing that happened. Every event has kind, device and text. The comments of
 * enum gm_event_kind name the other fields of each kind. */
struct gm_event {
	enum gm_event_kind kind;
	uint32_t device;
	const char *text;           /* one line that a person understands */
	struct gm_session *session; /* the client it is about; NULL: the device */
	uint64_t asked, held, max, bytes, waited_ns;
	int32_t priority;
	enum gm_block block;
	const struct gm_owner *owner; /* of the limit; NULL: none */
	enum gm_reclaim_trigger trigger;
	uid_t payer_uid; /* a reclaim for requests: of the user that made them, or GM_EVENT_NOBODY */
	uint64_t need;
	uint64_t stages[GM_STAGES]; /* bytes */
	bool reached;               /* the trigger got what it wanted */
	int status;                 /* gpumem_status */
	int error;                  /* 0, or a negative errno */
};

#endif
