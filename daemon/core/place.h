/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_PLACE_H
#define GM_CORE_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "gpumem/status.h"
#include "common/types.h"
#include "daemon/books/text_say.h"

/* Advice for a client that has not asked yet: on which device would a request fit? */

struct gm_core;
struct gm_session;
struct gm_session_info;

/* How the daemon would answer a request. The better answers come first. */
enum gm_place_fit {
	GM_FIT_NOW,     /* it would be granted at once */
	GM_FIT_RECLAIM, /* clients say that they could return what it lacks */
	GM_FIT_WAIT,    /* it would wait until clients free memory that is in use */
	GM_FIT_NONE,    /* it would be refused, however long it may wait */
	GM_FITS
};

struct gm_place_row {
	/* set by the caller */
	uint32_t device; /* it must exist */

	enum gm_place_fit fit;
	uint64_t room; /* bytes that a request could be granted now */
	uint64_t most; /* bytes that a request could ever be granted */
	/* What the request would be refused with if it may not wait; GPUMEM_OK: it fits. */
	gpumem_status status;
	char detail[GM_DETAIL_BYTES]; /* cause and remedy; "": it fits */
};

/*
 * Says for each of n devices what would become of a request for a new lease of so many bytes, and puts
 * the best first: by fit, then those with most room, then by number. The request is the session's, or,
 * if session is NULL, that of a new client with this info. (With a session, info is not used.) Nothing is
 * reserved, nobody is asked for memory and no device is probed, so all of it may be wrong a moment later.
 *
 * GPUMEM_E_INVALID: no request is for so many bytes. GPUMEM_E_DISCONNECTED: core is about to end.
 * GPUMEM_E_HOST_MEMORY. Then detail says so.
 */
gpumem_status gm_place(struct gm_core *core, struct gm_session *session,
	const struct gm_session_info *info, uint64_t bytes, struct gm_place_row *placements,
	size_t n, char detail[GM_DETAIL_BYTES]);

#endif
