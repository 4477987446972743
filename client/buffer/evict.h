/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_EVICT_H
#define GM_CLIENT_BUFFER_EVICT_H

#include "client/buffer/gpumem_buffer.h"

/*
 * Evictable buffers. While such a buffer is not pinned, the library may move its content to host memory
 * and return its chunks. It does so when the daemon asks, and begins with the buffer that was not used for
 * longest. A pinned, shared or published buffer never moves. The addresses stay the buffer's.
 *
 * The thread that moves a buffer holds no lock meanwhile; the buffer's state keeps others away
 * (gpumem_buffer.h). A pin calls an eviction off if it has not returned the device memory yet, and waits for
 * it otherwise.
 */

/* ---- for every file that uses buffers */

/* Keeps an evictable buffer where it is, so that its lease can be used. The program must have pinned it:
 * if not, GPUMEM_E_BUSY, with a sentence. Any other buffer is fine as it is. */
gpumem_status gm_evict_hold(struct gpumem_buffer *buffer);
/* The same for a caller that uses the memory and not the lease: the buffer may also lie in host memory, if it
 * is pinned there. */
gpumem_status gm_evict_use(struct gpumem_buffer *buffer);
/* Ends what gm_evict_hold() or gm_evict_use() began. */
void gm_evict_release(struct gpumem_buffer *buffer);
/* Notes whether others may have the held buffer. Returns what was noted before. */
bool gm_evict_note_shared(struct gpumem_buffer *buffer, bool shared);

/* Call when the buffer or its row is new, or the buffer has less memory: counts it again. The session is
 * locked. */
void gm_evict_relist(struct gpumem_buffer *buffer);
/* Call when the program destroys the buffer. The session is locked. */
void gm_evict_end(struct gpumem_buffer *buffer);
/* Whether a thread is moving the buffer. Then it must not be freed. The thread wakes the library's thread
 * when it is done. The session is locked. */
bool gm_evict_moves(const struct gpumem_buffer *buffer);
/* Where the buffer counts: the device, and the bytes it holds there. The session is locked. */
uint32_t gm_evict_place(const struct gpumem_buffer *buffer, uint64_t *ret_bytes);
/* Frees what a destroyed buffer has in host memory. told: gives it back to the daemon with a message. Otherwise
 * sends none: the session ends. */
void gm_evict_drop(struct gpumem_buffer *buffer, bool told);

/* ---- for the library's thread */

/* Notes that the daemon wants evictable buffers to give back so many bytes of the device. */
void gm_evict_want(struct gpumem_session *session, uint32_t device, uint64_t bytes);
/* Evicts what is wanted and can be evicted now. Returns when to call it again for buffers that the device
 * still uses, or UINT64_MAX. ret_bytes may be NULL: how much went back. */
uint64_t gm_evict_step(struct gpumem_session *session, uint64_t now_ns, uint64_t *ret_bytes);

/* Notes the pressure level of the device. */
void gm_evict_on_pressure(struct gpumem_session *session, uint32_t device, uint32_t level);
/* Moves buffers that were made with GPUMEM_BUFFER_CPU_OK to the device, if pressure there is not high,
 * and while it has room. Returns when to call it again for buffers that the device still uses, or
 * UINT64_MAX. */
uint64_t gm_evict_return_step(struct gpumem_session *session, uint64_t now_ns);

/* For gpumemctl evict: moves the buffer of this row, or (0) all buffers of the device that can move, to
 * host memory. A buffer that the device still uses goes later, whatever is asked meanwhile. Returns as
 * gm_evict_step(). */
uint64_t gm_evict_by_hand(struct gpumem_session *session, uint32_t device, uint32_t row);
/* For gpumemctl restore: the same, back to the device. Stops when the device is full. */
void gm_evict_restore(struct gpumem_session *session, uint32_t device, uint32_t row);

#endif
