/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_CONTROL_BLOCK_H
#define GM_LEASE_CONTROL_BLOCK_H

#include "daemon/lease/session_private.h"

/* Makes the control block of a new lease. If there is no descriptor for it yet, or the keeper cannot take it yet,
 * sets *ret_waits: gm_request_go_on() is called when the keeper has it, or gm_request_fail(). After
 * an error, gm_lease_free() undoes what was done. */
gpumem_status gm_control_block_make(struct gm_lease *lease, struct gm_request *request,
	bool *ret_waits, char detail[GM_DETAIL_BYTES]);
/* Call when a request no longer wants the control block for which it called gm_control_block_make(). */
void gm_control_block_stop_waiting(struct gm_env *env, struct gm_request *request);
/* Makes the control blocks that wait, as far as there are descriptors. */
void gm_control_block_make_waiting(struct gm_env *env);
/* Ends the control block of a lease, if there is one. */
void gm_control_block_drop(struct gm_lease *lease);
/* Takes the control block over from the daemon before. If it is not sound, the lease has no signals. Takes ownership
 * of fd. */
void gm_control_block_adopt(struct gm_lease *lease, int fd);

#endif
