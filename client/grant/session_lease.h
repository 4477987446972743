/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_LEASE_H
#define GM_CLIENT_GRANT_SESSION_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/grant/lease_returns.h"
#include "client/session/gpumem_session.h"

/*
 * The folder client/grant/ promises that this process and the daemon agree about what the daemon granted
 * to the session: it asks for leases, gives them back, declares memory that the driver makes, and
 * straightens all of that out when the session is resumed. It must never know what the leased memory is
 * used for: it maps none of it, and knows neither heap nor buffers.
 */

struct gm_token_name;

/* A chunk that the daemon granted to this process; held.chunk is its id. */
struct gm_session_chunk {
	struct gm_lease_held held;
	uint64_t index; /* in its lease */
	uint64_t bytes;
	int fd; /* fd transport; -1 after it was mapped, or if it was lost on the way */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
	struct gm_session_lease *whole;   /* in a heap: the chunk's own lease, if it has one */
	struct gm_session_chunk *next;    /* for the owner of the chunk */
};

/*
 * A lease. The session lists it from before the request is sent until it is given back, so that
 * resuming never takes it for a lease that nobody here knows about.
 */
struct gm_session_lease {
	struct gm_lease_held held; /* held.lease is its id, 0 until it is known; held.chunk is 0 */
	uint32_t device;
	enum gm_transport transport;
	uint64_t bytes;      /* of its chunks */
	uint64_t user_bytes; /* what was requested */
	uint64_t next_index; /* highest index seen + 1; set by the thread that reads answers */
	uint64_t version;    /* of the name that it was attached by; 0: none */
	bool read_only;
	bool signals;    /* it has a control block: common/control.h */
	int control;     /* fd of the control block, until the library maps that; then -1 */
	bool maker_gone; /* and its maker had left when it was opened */
	bool opened;     /* and not made here */
	struct gm_session_lease *also; /* was opened for the same buffer, and goes back with it */
	char tag[GM_BOUND_NAME_BYTES + 1];
	struct gm_session_lease *prev, *next; /* in the session's list */
};

/* The properties of a new lease. */
struct gm_lease_what {
	uint32_t device;
	uint64_t bytes;
	enum gm_transport transport;
	const char *tag; /* may be NULL */
	bool for_others; /* it may be shared outside its trust domain */
	bool signals;    /* it is to have a control block */
	bool fallback;   /* it is host memory in place of a full device's */
	bool one_chunk;  /* it is one chunk of exactly bytes, which are whole 2 MiB */
};

/* How a request waits if the device is full. */
struct gm_lease_wait {
	uint64_t ms; /* how long: 0 means as the daemon is configured, or one of these */
#define GM_LEASE_NO_WAIT   UINT64_MAX                         /* GPUMEM_NO_WAIT */
#define GM_LEASE_WAIT_MOST (UINT64_C(1000) * 3600 * 24 * 365) /* GPUMEM_WAIT_FOREVER */
	/* As in struct gm_conn_request; again may be NULL. If it returns 0, the request ends with
	 * GPUMEM_E_CANCELLED, or with memory that was granted at the same moment. It is called while
	 * the request waits for memory or for an absent daemon. */
	uint64_t (*again)(void *ctx);
	void *again_ctx;
	uint64_t again_ns;
	bool impatient;    /* the request fails at once if the daemon is away */
	bool at_once;      /* it fails at once if there is no room: nobody is asked to make some */
	bool host_will_do; /* the program takes host memory if it is refused */
	/* May be NULL. In: the id of a request that was refused, which this one follows, so that the
	 * daemon counts them as one; 0: none. Out, if this request fails: its id. */
	uint64_t *refused;
};

/* The time that a program gave, as struct gm_lease_wait has it. */
static inline uint64_t gm_lease_wait_ms(uint32_t given_ms)
{
	return given_ms == GPUMEM_WAIT_FOREVER ? GM_LEASE_WAIT_MOST
	       : given_ms == GPUMEM_NO_WAIT    ? GM_LEASE_NO_WAIT
					       : given_ms;
}

/* These functions ask for memory. The caller owns the list of chunks: each has its handle, none
 * appears twice, and on the ipc transport there is only one. On error nothing is held, and the
 * sentence is left for gpumem_error_detail(). */
gpumem_status gm_session_lease_take(struct gpumem_session *session,
	const struct gm_lease_what *what, const struct gm_lease_wait *wait,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks);
gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], uint32_t index, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
/* wait_ns: the longest wait for an absent daemon; 0: as long as the session waits. */
gpumem_status gm_session_lease_attach(struct gpumem_session *session,
	const struct gm_token_name *name, uint64_t wait_ns, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
gpumem_status gm_session_lease_grow(struct gpumem_session *session, struct gm_session_lease *lease,
	uint64_t bytes, const struct gm_lease_wait *wait, struct gm_session_chunk **ret_chunks);
/* The same for a lease that may be given back while the answer is still on its way, and that is resized:
 * it has user_bytes from then on. GPUMEM_E_BUSY: somebody else has the lease, or could get it. */
gpumem_status gm_session_lease_resize(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t bytes, uint64_t user_bytes,
	const struct gm_lease_wait *wait, struct gm_session_chunk **ret_chunks);
/* The same where the lease needs no more chunks. */
gpumem_status gm_session_lease_set_size(
	struct gpumem_session *session, const struct gm_session_lease *lease, uint64_t user_bytes);

/* Asks for the fd of a chunk of a lease again. The caller closes it. */
gpumem_status gm_session_lease_fd(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t chunk, int *ret_fd);

/* Lists a lease that this process is about to make of what it has. NULL: no memory. */
struct gm_session_lease *gm_session_lease_new(
	struct gpumem_session *session, uint32_t device, enum gm_transport transport);
/* Gives a whole lease back; nothing of it may be mapped. Takes ownership of the struct, but not of
 * the chunks. */
void gm_session_lease_give(struct gpumem_session *session, struct gm_session_lease *lease);
/* The same, but the library's thread sends the message. */
void gm_session_lease_give_later(struct gpumem_session *session, struct gm_session_lease *lease);
/* Closes the chunks' fds and frees the chunks. */
void gm_session_chunks_free(struct gm_session_chunk *chunks);
/* Gives the chunks back and frees them; none of them may be mapped. */
void gm_session_chunks_give(struct gpumem_session *session, struct gm_session_chunk *chunks);

#endif
