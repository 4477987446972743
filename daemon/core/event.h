/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_EVENT_H
#define GM_CORE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/types.h"

/*
 * What core has to tell or to ask when memory is short: the words of limits, ladder and queue,
 * shared by all of core's headers. No functions here.
 */

struct gm_session;
struct gm_request;
struct gm_owner;

/* Why memory is wanted back. Each has its own measure of success. */
enum gm_trigger {
	GM_TRIGGER_REQUEST,  /* a request does not fit: what it lacks becomes available to it */
	GM_TRIGGER_PRESSURE, /* a level is reached: what is charged goes below its threshold */
	GM_TRIGGER_MIN_FREE, /* the device has less than min_free: the pool gives it back */
	GM_TRIGGER_MANUAL,   /* gpumemctl cleanup: that much is free on the device */
	GM_TRIGGERS,
};

/* The ladder, in the order in which it is climbed. */
enum gm_rung {
	GM_RUNG_POOL,      /* pooled chunks are destroyed */
	GM_RUNG_CACHED,    /* clients are asked to return cached chunks */
	GM_RUNG_UNUSED,    /* clients are told to return everything unused, now */
	GM_RUNG_SPILL,     /* clients are told to move evictable buffers to host memory */
	GM_RUNG_HOLD,      /* new leases of lower priority are refused, or wait */
	GM_RUNG_TERMINATE, /* the lowest-priority, largest client over its guarantee is ended */
	GM_RUNGS,
};

/* What a client says it could give back on a device. */
struct gm_use {
	uint64_t cached;    /* leased and not in use: back within the deadline */
	uint64_t evictable; /* in use, and could be moved to host memory */
};

/* What a client is asked for. */
struct gm_reclaim {
	uint32_t device;
	enum gm_trigger trigger;
	enum gm_rung rung;    /* CACHED, UNUSED or SPILL */
	uint64_t bytes;       /* that many are wanted; more is welcome from UNUSED on */
	bool urgent;          /* rung >= UNUSED: all that is unused, now */
	uint64_t deadline_ns; /* on core's clock */
};

/* Why a request that is otherwise right does not get memory now. */
enum gm_block {
	GM_BLOCK_NONE,
	GM_BLOCK_QUOTA,     /* the max of one of its owners */
	GM_BLOCK_DEVICE,    /* the device has not enough available */
	GM_BLOCK_GUARANTEE, /* it has, but keeps it for other owners */
	GM_BLOCK_CRITICAL,  /* pressure is critical, and clients of a higher priority are there */
	GM_BLOCK_TURN,      /* a request before it was overtaken often enough */
};

enum gm_event_kind {
	GM_EVENT_LIMIT,           /* a request met a limit: owner, max, held, asked */
	GM_EVENT_RECLAIM_STARTED, /* trigger, need, rungs: what each could give */
	GM_EVENT_RECLAIM_ENDED,   /* trigger, need, rungs: what each gave; reached */
	GM_EVENT_IGNORED, /* a client did not return what it was asked for: held, asked, bytes (of
			     that, came) */
	GM_EVENT_QUEUED,  /* a request waits: asked, priority, block */
	GM_EVENT_GRANTED, /* one that waited is granted: asked, waited_ns */
	GM_EVENT_REFUSED, /* one that waited is not: asked, waited_ns, status, text */
	GM_EVENT_VICTIM,  /* a client is to be terminated: held, priority, error */
	GM_EVENTS,
};

/* One thing that happened. Every event has kind, device and text; the rest as its kind says. */
struct gm_event {
	enum gm_event_kind kind;
	uint32_t device;
	const char *text;           /* one line that a person understands */
	struct gm_session *session; /* whom it is about; NULL: the device */
	uint64_t asked, held, max, bytes, waited_ns;
	int32_t priority;
	enum gm_block block;
	const struct gm_owner *owner; /* of the limit; NULL: none */
	enum gm_trigger trigger;
	uint64_t need;
	uint64_t rungs[GM_RUNGS]; /* bytes */
	bool reached;             /* what the trigger wanted came true */
	int status;               /* gpumem_status */
	int error;                /* 0, or a negative errno */
};

#endif
