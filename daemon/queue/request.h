/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_REQUEST_H
#define GM_QUEUE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "gpumem/status.h"
#include "common/types.h"
#include "daemon/books/text_say.h"
#include "daemon/reclaim/reclaim_user.h"

/* Requests for memory. */

struct gm_chunk;
struct gm_device;
struct gm_lease;
struct gm_queue_user;
struct gm_account_payer;
struct gm_session;

/*
 * A request's place in the queue of its device; core's own. A request is in the queue from the
 * moment it did not fit until it is granted or refused. A request that may not wait
 * is there only while the device is probed and clients are asked for what it lacks.
 */
struct gm_queue_wait {
	bool queued;
	bool begun : 1; /* it was found not to fit: clients were asked, and its wait reported */
	bool told : 1;  /* GM_EVENT_QUEUED was reported, so its end will be, too */
	bool last_probe : 1; /* a request that may not wait: the last probe was asked for already */
	bool told_rest : 1;  /* GM_EVENT_RESTS was reported */
	bool told_limit : 1; /* GM_EVENT_LIMIT is reported, and not that it is refused */
	uint32_t overtaken;  /* by requests behind it, while it was the first of its line */
	int32_t priority;
	uint64_t order;      /* of arrival */
	uint64_t arrived_ns; /* when it came to this daemon, or an earlier one */
	struct gm_device *device;
	uint64_t probe; /* nothing is decided before this probe ended; 0: none */
	/* The backend had no memory for it (ask.denied). It is tried again when the device's count of freed bytes, or
	 * the pool's of returns, is past these. */
	uint64_t freed, returns;
	uint64_t look_ns; /* queue_head.c: whether it may hold others back is looked at then */
	struct gm_queue_user *user_queue;
	struct gm_request *prev, *next; /* of the line */
	struct gm_reclaim_ask ask;      /* what clients are asked for on its behalf */
};

/*
 * A request for memory, embedded in a struct of the caller. To this folder, leases and sessions are opaque. The caller fills the first part; core
 * uses the rest until it calls done(), which happens once. On success, status is GPUMEM_OK, detail
 * is NULL, and request->lease has the new chunks from first_index on. Otherwise detail says cause
 * and remedy, and nothing is held. done() may free the request and call anything but what ends its
 * session (gm_session_quarantine() is fine).
 */
struct gm_request {
	struct gm_session *session;
	struct gm_lease *lease; /* in: the lease to grow, or NULL for a new one; out: the lease */
	uint32_t device;        /* of a new lease */
	uint64_t bytes;
	uint64_t user_bytes; /* what the lease is said to have then; 0: as much more as bytes */
	enum gm_transport transport; /* of a new lease; core replaces AUTO */
	const char *tag;             /* of a new lease; may be NULL; copied */
	bool for_others;             /* of a new lease: it may be shared outside its trust domain */
	bool signals;                /* of a new lease: it has a control block */
	/* Of a new lease: it is one chunk of exactly so many bytes, which are whole 2 MiB. The chunk is made
	 * for this lease and never pooled. Only on the fd transport. */
	bool one_chunk;
	/* The client will make that memory itself. The session is charged for it, and there is no lease:
	 * see declare.h. */
	bool declares;
	bool at_once;      /* it is refused if it does not fit now: nobody is asked to make room */
	bool again;        /* it follows a request that was refused, and counts as one with it */
	bool host_will_do; /* gm_request_host_will_do() */
	uint64_t id;       /* of the client's packet; 0: it has none */
	/* How long it may wait for room, from its arrival, or GM_WAIT_FOREVER. 0: as the device's policy says (oom).
	 * GM_WAIT_NEVER: it is refused if it does not fit, after clients had their time to return
	 * what is missing. */
	uint64_t wait_ns;
	/* How long it waited for an earlier daemon, by its client's word. Only the order among requests of its own user
	 * depends on it. */
	uint64_t waited_ns;
	void (*done)(struct gm_request *request, gpumem_status status, const char *detail);

	/* The queue's own. What makes the request sets up the first four (gm_request_begin()). */
	const struct gm_request_calls *calls;
	struct gm_account_payer *payer;
	bool fresh;              /* its chunks must not have been used */
	struct gm_lease *target; /* the lease it will have; nobody can find it before done() */
	uint64_t first_index;    /* out */
	uint64_t charged;        /* bytes admitted for it */
	uint32_t missing;        /* creations under way, and the control block if that waits */
	struct gm_chunk *chunks; /* all of them, created or not, in the order of the lease */
	struct gm_request *prev, *next; /* of its payer's pending ones */
	/* Of those whose control blocks wait (control_block.c), or of those that wait for room (declare.c). */
	struct gm_request *side_prev, *side_next;
	/* A declaration waits for room until the device has destroyed so many bytes since the start. These include
	 * the chunks with ids below room_id. */
	uint64_t room_at, room_id;
	struct gm_queue_wait waiting; /* while it is in the queue */
};

/*
 * Whether the client of a request that ends like this asks for host memory instead. The request for host memory counts
 * then, and is reported if it is refused, too.
 */
static inline bool gm_request_host_will_do(const struct gm_request *request, gpumem_status status)
{
	return request->host_will_do &&
	       (status == GPUMEM_E_NO_MEMORY || status == GPUMEM_E_LIMIT ||
		       status == GPUMEM_E_TIMEOUT || status == GPUMEM_E_DEADLOCK ||
		       status == GPUMEM_E_HOST_MEMORY);
}

/* What a request is for. The queue gets the memory and hands it over by these functions. */
struct gm_request_calls {
	bool makes;     /* it makes an object: gm_account_payer.n_new counts it */
	bool no_chunks; /* its client makes the memory: the device needs room for it */
	/* Called for a request that fits, before anything is charged. NULL: nothing is to be prepared. Another status than
	 * GPUMEM_OK ends the request. Sets *ret_waits if gm_request_go_on() or gm_request_fail() will follow. */
	gpumem_status (*prepare)(struct gm_request *request, struct gm_device *device,
		bool *ret_waits, char detail[GM_DETAIL_BYTES]);
	/* Undoes prepare(). May be NULL. */
	void (*undo)(struct gm_request *request);
	/* All chunks are there, or the room. Takes them and calls done(), or calls gm_request_fail(). */
	void (*finish)(struct gm_request *request);
	/* The request ended without success, and nothing is held for it. Calls done(). */
	void (*refuse)(struct gm_request *request, gpumem_status status, const char *detail);
};

/* How many requests of a line are looked at each time the queue runs. */
#define GM_QUEUE_SLICE 64
/* A place in a device's queue, for a caller that goes through it in several calls. A place stays
 * valid whatever happens to the requests. A request whose priority changes between two calls may be
 * visited twice, or not at all. */
struct gm_queue_place {
	int32_t priority;
	uint64_t order;
};
#define GM_QUEUE_FIRST ((struct gm_queue_place){.priority = INT32_MAX})

#define GM_WAIT_NEVER   UINT64_MAX
#define GM_WAIT_FOREVER (UINT64_MAX - 1)

/* Counts since the start. */
struct gm_core_counters {
	uint64_t requests, refusals;
};

#endif
