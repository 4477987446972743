/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_LEASE_H
#define GM_CLIENT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/returns.h"
#include "client/session/gpumem_session.h"

/* A chunk this process was given; held.chunk is its id. */
struct gm_session_chunk {
	struct gm_held held;
	uint64_t index; /* in its lease */
	uint64_t bytes;
	int fd; /* fd transport; -1 once it was mapped (or lost on the way) */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
	struct gm_session_lease *whole; /* ipc transport, in a heap: the lease that it is all of */
	struct gm_session_chunk *next;  /* of whoever keeps it */
};

/*
 * A lease in the daemon's books. The session lists it from before it is asked for until it goes
 * back, so that at a resume none is taken for one that nobody here knows.
 */
struct gm_session_lease {
	struct gm_held held; /* held.lease is its id, 0 until known; held.chunk is 0 */
	uint32_t device;
	enum gm_transport transport;
	uint64_t bytes;      /* of its chunks */
	uint64_t user_bytes; /* what was asked for */
	uint64_t next_index; /* past the last chunk ever seen of it; written by who reads answers */
	bool read_only;
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct gm_session_lease *prev, *next; /* the session's list */
};

/* How long a request may wait for room, in milliseconds; 0: as the daemon is configured. */
#define GM_LEASE_NO_WAIT   UINT64_MAX
#define GM_LEASE_WAIT_MOST (UINT64_C(1000) * 3600 * 24 * 365)

/* All of these: the chunks' list is the caller's, each with its handle and none twice (ipc: it
 * is one chunk). On failure nothing is held, and the sentence is left. tag may be NULL. */
gpumem_status gm_session_lease_take(struct gpumem_session *session, uint32_t device, uint64_t bytes,
	enum gm_transport transport, const char *tag, uint64_t wait_ms,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks);
gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
gpumem_status gm_session_lease_grow(struct gpumem_session *session, struct gm_session_lease *lease,
	uint64_t bytes, uint64_t wait_ms, struct gm_session_chunk **ret_chunks);

/* The whole lease goes back, all of it unmapped; takes the struct. Chunks are the caller's to
 * free. */
void gm_session_lease_give(struct gpumem_session *session, struct gm_session_lease *lease);
/* Closes fds and frees. */
void gm_session_chunks_free(struct gm_session_chunk *chunks);
/* The same, but the chunks go back, as unmapped. */
void gm_session_chunks_give(struct gpumem_session *session, struct gm_session_chunk *chunks);

/*
 * After a resume, before anybody else may ask for anything: gives back what the daemon holds for
 * this session and nobody here knows of, because the answer that told of it was lost. leases: what
 * the daemon listed. A status ends the resume.
 */
gpumem_status gm_session_lease_reconcile(
	struct gpumem_session *session, struct gm_conn *via, const uint64_t *leases, size_t n);

#endif
