/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_DECLARE_H
#define GM_LEASE_DECLARE_H

#include <stdint.h>

#include "gpumem/status.h"
#include "daemon/books/text_say.h"
#include "daemon/lease/session.h"

/*
 * Memory that a client makes itself and declares, such as managed memory. The daemon only charges the session for
 * it, as for a lease. It keeps one number of bytes for each session and device, so a client cannot make it keep more.
 *
 * Declaring more is a request (gm_core_request(), with declares set), which may be refused, or wait. It ends when
 * the device has destroyed what must go to make room, so that the client can make the memory at once. Declaring
 * less takes effect at once. The declarations end with the session.
 *
 * The daemon takes declared memory for foreign until the driver counts it for the process. What the driver counts
 * for a process, without what the process owes (orphan_map.c), is not foreign, up to what its sessions declared. If the driver
 * counts nothing, because it cannot or because the process is in a pid namespace that the daemon does not see, all of it
 * is foreign, too. The driver's figure includes the context of the process, which cannot be told apart:
 * doc/decisions.md has an example.
 */

/* What the session declared on a device. */
uint64_t gm_declare_sum(const struct gm_session *session, uint32_t device);
/* The part of it that the driver counts for the client's process. */
uint64_t gm_declare_seen(const struct gm_session *session, uint32_t device);
/* Lowers what the session has declared on a device to this many bytes, if it is more. Returns what it has declared
 * now. */
uint64_t gm_declare_less(struct gm_session *session, uint32_t device, uint64_t bytes);

#endif
