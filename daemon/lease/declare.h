/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_DECLARE_H
#define GM_LEASE_DECLARE_H

#include <stdint.h>

#include "gpumem/status.h"
#include "daemon/books/say.h"
#include "daemon/lease/session.h"

/*
 * Memory that a client makes itself and declares, such as managed memory: the daemon has no part in it
 * but that the session is charged for it, as for a lease. A session has declared one number of bytes
 * on each device, so nobody can make the daemon keep more than that.
 *
 * To declare more is a request (gm_core_request(), with declares set): it may be refused, or wait. To
 * declare less happens at once. The declarations end with the session.
 *
 * The request ends when the device has destroyed what must go to make room: then the client can make
 * the memory at once.
 *
 * Declared memory is foreign to the daemon until the driver's count of the process shows it: of what
 * the sessions of a process declared, as much is not foreign as the driver counts for the process,
 * without what it owes (debt.c). If the driver counts nothing, because it cannot or because the
 * process is in a pid namespace that the daemon does not see, all of it is foreign, too. The driver's
 * figure includes the context of the process, which is not told apart: doc/decisions.md has an example.
 */

/* What the session declared on a device. */
uint64_t gm_declare_sum(const struct gm_session *session, uint32_t device);
/* From now on it has declared no more than that on the device. Returns what it has. */
uint64_t gm_declare_less(struct gm_session *session, uint32_t device, uint64_t bytes);

#endif
