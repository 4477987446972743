/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REQUEST_REQUEST_LIST_H
#define GM_CLIENT_REQUEST_REQUEST_LIST_H

#include "client/buffer/buffer.h"
#include "client/device/wait_elsewhere.h"
#include "client/memory/alloc.h"
#include "client/grant/session_ask.h"

/*
 * The folder client/request/ promises that a program can ask for pointers and buffers, go on, and take them
 * later. It must never know how they are made: client/memory and client/buffer make them.
 *
 * request_calls.c has the calls of the program, and request_step.c makes the requests ready. The
 * session's lock protects everything here, except what a request was made with, and what belongs to the
 * thread that is in gm_requests_step(). The functions that say so are called with the lock held.
 */

enum gm_request_state {
	GM_REQUEST_QUEUED, /* to be sent */
	GM_REQUEST_ASKED,  /* the daemon has it */
	GM_REQUEST_READY,
	GM_REQUEST_FAILED,
};

struct gpumem_request {
	struct gpumem_session *session;
	uint64_t serial;
	bool for_buffer;
	uint32_t device;
	size_t size;
	gpumem_stream stream;
	enum gm_transport transport; /* of a buffer */
	struct gm_buffer_wish wish;
	struct gm_alloc_wanted
		wanted; /* of a pointer; on any stream, because it is made elsewhere */
	char tag[GM_BOUND_NAME_BYTES + 1];
	char type[GM_BOUND_KIND_BYTES + 1], precision[GM_BOUND_KIND_BYTES + 1]; /* of a buffer */
	struct gm_wait wait;
	uint64_t began_ns;

	/* Used only by the thread that runs gm_requests_step(). */
	struct gm_session_ask *ask; /* NULL until it can be sent */
	bool trimmed;               /* unused chunks went back after a refusal */
	uint64_t spare;             /* what the ask brings for others */

	enum gm_request_state state;
	bool working; /* gm_requests_step() is at it without the lock: it must not be freed */
	bool dropped; /* the program does not want it any more */
	void *ptr;
	gpumem_buffer *buffer;
	gpumem_status status;
	char *detail; /* NULL: there was no memory for it */
	gpumem_request_fn fn;
	void *user;
	bool announced;
	struct gpumem_request *prev, *next;           /* in the list of its state */
	struct gpumem_request *done_prev, *done_next; /* in the list of those announced */
};

/* Looking for memory in this process, on one device. */
struct gm_request_look {
	struct gpumem_session *session;
	uint32_t device;
	struct gm_wait_elsewhere elsewhere;
	uint64_t last_ns;
	bool granted; /* the daemon gave more than was needed */
};

struct gm_requests {
	uint64_t serials;
	struct gpumem_request *queued; /* by serial */
	struct gpumem_request *asked;
	struct gpumem_request *ended; /* ready or failed, and not taken */
	struct gpumem_request *done;  /* of those, the ones whose function is to be called */
	size_t n_done;
	int fd;           /* readable while there are such; -1: nobody asked for it */
	size_t n_pending; /* queued or asked */
	size_t pending[GM_BOUND_DEVICES]; /* of each device */
	bool stepping;                    /* a thread is in gm_requests_step() */
	bool driving;                     /* a thread that waits polls for the library's thread */
	int nudge;                        /* an eventfd that wakes that thread */
	uint64_t due_ns;                  /* when the first queued request has waited enough */

	/* Used only by the thread that runs gm_requests_step(). */
	uint64_t freed;   /* the session's, at the last look */
	uint64_t away_ns; /* since when the daemon is away; 0: it is not */
	struct gm_request_look look[GM_BOUND_DEVICES];
};

/* Makes the session's requests. On error, returns a negative errno. */
int gm_requests_init(struct gpumem_session *session);
/* Drops all requests, and frees those that the program still has. The library's thread has ended, and
 * no other thread uses the session. */
void gm_requests_deinit(struct gpumem_session *session);

/* Whether the request is neither ready nor failed. Locked. */
static inline bool gm_request_pending(const struct gpumem_request *request)
{
	return request->state <= GM_REQUEST_ASKED;
}

/* When the wait of a request ends; UINT64_MAX: the program named no time. */
static inline uint64_t gm_request_end_ns(const struct gpumem_request *request)
{
	return request->wait.mode == GM_WAIT_UNTIL ? request->wait.deadline_ns : UINT64_MAX;
}

/* Takes a request out of the list of its state, or puts it into the list of another state, at its place. Both
 * update the counts. Locked. */
void gm_request_unlist(struct gpumem_request *request);
void gm_request_enlist(struct gpumem_request *request, enum gm_request_state state);
/* Has gpumem_dispatch() call the request's function, or not any more. Locked. */
void gm_request_announce(struct gpumem_request *request);
void gm_request_unannounce(struct gpumem_request *request);
/* Frees a request that is in no list, and everything that it has or still gets. */
void gm_request_dispose(struct gpumem_request *request);
/* Wakes the thread that steps: the library's, or the one that drives. */
void gm_requests_nudge(void *session);

#endif
