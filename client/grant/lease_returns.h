/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_LEASE_RETURNS_H
#define GM_CLIENT_GRANT_LEASE_RETURNS_H

#include <stdint.h>

#include "client/session/gpumem_session.h"

/*
 * Something that the daemon granted: a chunk of a lease, or a whole lease (chunk is 0). It is the
 * first member of the struct that describes the chunk or lease, so that giving it back needs no
 * memory. Freeing the gm_lease_return_item frees that struct.
 */
struct gm_lease_return_item {
	struct gm_lease_return_item *next;
	uint64_t lease;
	uint64_t chunk;
	uint64_t index; /* of the chunk in its lease */
	uint64_t epoch;
	uint64_t view; /* a whole lease that was opened: the id of the Open; else 0 */
};

/*
 * Gives a list back. Nothing in it may be mapped in this process. Takes ownership of the list in
 * any case: what the daemon cannot take now is kept, the library's thread sends it later, and what the
 * daemon does not know is dropped. via is as in gm_session_call().
 */
void gm_lease_returns_send(
	struct gpumem_session *session, struct gm_conn *via, struct gm_lease_return_item *list);
/* Keeps a list for later and sends nothing. Takes ownership of the list. The caller must wake the library's
 * thread, or know that a flush follows. */
void gm_lease_returns_keep(struct gpumem_session *session, struct gm_lease_return_item *list);
/* Sends what was kept. Returns true if something is still kept. Does not wake the library's thread, which calls this
 * itself and must not try again at once. */
bool gm_lease_returns_flush(struct gpumem_session *session, struct gm_conn *via);
/* Sends what was kept, and waits if another thread is sending it. A request for memory calls this first, so
 * that it is not refused because of memory that this process gave back before. If the daemon is away, does
 * nothing: resuming the session sends it. */
void gm_lease_returns_first(struct gpumem_session *session);
/* Drops what was kept and sends nothing: the session ends. */
void gm_lease_returns_drop(struct gpumem_session *session);

/* Whether a Return that failed with this status may succeed another time. */
bool gm_lease_returns_later(gpumem_status status);

#endif
