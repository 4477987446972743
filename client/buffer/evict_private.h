/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_EVICT_PRIVATE_H
#define GM_CLIENT_BUFFER_EVICT_PRIVATE_H

#include "client/buffer/evict.h"

/* evict.c, buffer_pin.c and buffer_fallback.c are one object; only they include this. */

/* Checks that the program may pin, unpin or evict this buffer. */
gpumem_status gm_evict_check(const struct gpumem_buffer *buffer);
/* 1: the last work on the buffer is done, as far as it was said when the buffer was unpinned. 0: not yet.
 * A negative errno code: the driver does not say, and may never. For the thread that moves the buffer. */
int gm_evict_idle(struct gpumem_buffer *buffer);

/* Says what the driver said when gm_evict_idle() failed with this code. */
gpumem_status gm_evict_idle_error(const struct gpumem_buffer *buffer, int r);

/* Brings a buffer to the device that was claimed for that, with GM_EVICT_COMING. Does not pin it, and does
 * not wait for memory. *ret_busy: it stays, because the device still uses it in host memory. The buffer may
 * be gone afterwards. */
gpumem_status gm_evict_bring(struct gpumem_buffer *buffer, bool *ret_busy);
/* Somebody asked by hand that these buffers come back, so they need not go any more: as in
 * gm_evict_restore(). */
void gm_evict_call_off(struct gpumem_session *session, uint32_t device, uint32_t row);
/* How much this client could get of the device right now, by the daemon's page; 0: that is not known. */
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
