/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_H
#define GM_CLIENT_BUFFER_H

#include "client/session/session_lease.h"
#include "client/session/gpumem_session.h"

/* A lease with an address range of its own, made here or opened. */
struct gpumem_buffer {
	struct gpumem_session *session;
	struct gm_session_lease *lease;
	uint32_t device;
	bool opened;                      /* another process made it, and pays for it */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
	void *addr;
	uint64_t bytes;  /* of the range: whole chunks */
	uint64_t mapped; /* from its start on */
	size_t size;     /* as asked for */
	size_t chunks;
	uint32_t row; /* in the client's page; 0: not listed */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct gpumem_buffer *prev, *next; /* the session's list */
};

/* Maps what a lease brought and makes a buffer of it. Takes both, also on failure. */
gpumem_status gm_buffer_new(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, bool opened, gpumem_buffer **ret_buffer);
/*
 * Unmaps buffers that were destroyed and gives them back, and waits for whoever is at it: when it
 * returns, the daemon has what was destroyed before it was called. Unmapping takes the driver
 * hundreds of microseconds for large ones, so destroying only notes it; the library's thread does
 * it, or a caller that is about to ask for more. Costs a load when there is nothing to do.
 */
void gm_buffer_settle(struct gpumem_session *session);
/* Unmaps all buffers and lets them go, without a message: the session ends. What cannot be unmapped
 * is noted in the session (kept), here and above. */
void gm_buffer_drop_all(struct gpumem_session *session);

/* Names and tags from a program: NULL is fine. */
gpumem_status gm_buffer_tag_check(const char *tag);

#endif
