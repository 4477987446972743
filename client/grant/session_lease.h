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

/* A chunk that the daemon granted to this process; held.chunk is its id. */
struct gm_session_chunk {
	struct gm_lease_return_item held;
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
	struct gm_lease_return_item
		held; /* held.lease is its id, 0 until it is known; held.chunk is 0 */
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
	const char *tag;   /* may be NULL */
	bool for_others;   /* it may be shared outside its trust domain */
	bool signals;      /* it is to have a control block */
	bool fallback;     /* it is host memory in place of a full device's */
	bool host_will_do; /* the program takes host memory if it is refused */
	bool one_chunk;    /* it is one chunk of exactly bytes, which are whole 2 MiB */
	/* May be NULL. In: the id of a request that was refused, which this one follows, so that the
	 * daemon counts them as one; 0: none. Out, if this request fails: its id. */
	uint64_t *refused;
};

/* Sets the size of a lease that needs no more chunks for that, and that may be given back while the answer is still
 * on its way. GPUMEM_E_BUSY: somebody else has the lease, or could get it. */
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
