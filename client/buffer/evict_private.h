/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_EVICT_PRIVATE_H
#define GM_CLIENT_BUFFER_EVICT_PRIVATE_H

#include "client/buffer/evict.h"

/* evict.c, buffer_pin.c and buffer_fallback.c are one object; only they include this. */

/* Checks that the program may pin, unpin or evict this buffer. */
gpumem_status gm_evict_check(const struct gpumem_buffer *buffer);
/* Returns 1 if the work is done that the unpins of the buffer named, 0 if not yet, or a negative errno if the
 * driver does not say, and may never. For the thread that moves the buffer. */
int gm_evict_idle(struct gpumem_buffer *buffer);

/* Leaves the sentence for an error of gm_evict_idle(), with the driver's own words. */
gpumem_status gm_evict_idle_error(const struct gpumem_buffer *buffer, int r);

/* Moves a buffer to the device. The caller has claimed it with GM_EVICT_COMING. Does not pin it, and does
 * not wait for memory. *ret_busy: it stays, because the device still uses it in host memory. The buffer may
 * be gone afterwards. */
gpumem_status gm_evict_bring(struct gpumem_buffer *buffer, bool *ret_busy);
/* Forgets that gpumemctl evict asked for these buffers, because gpumemctl restore wants them back. The arguments
 * are those of gm_evict_restore(). */
void gm_evict_call_off(struct gpumem_session *session, uint32_t device, uint32_t row);
/* How much of the device this client could get right now, according to the daemon's page; 0: not known. */
uint64_t gm_evict_room(const struct gpumem_session *session, uint32_t device);

/* ---- the session is locked */

/* The buffer's state, pins or memory have changed: counts it among the evictable ones, or not, and says so
 * in its row. */
void gm_evict_changed(struct gpumem_buffer *buffer);
/* Adds the buffer to the figures of the device that has its memory, or takes it out of them. */
void gm_evict_count(struct gpumem_buffer *buffer, bool more);
/* A move has ended, and the buffer is in this state now. Unless it is locked for longer, the buffer may be
 * gone when the session is unlocked. */
void gm_evict_move_ended(struct gpumem_buffer *buffer, enum gm_evict_state state);

#endif
