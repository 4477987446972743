/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_BUFFER_H
#define GM_CLIENT_BUFFER_BUFFER_H

#include "client/buffer/gpumem_buffer.h"

/*
 * The folder client/buffer/ promises buffers: each has a lease and an address range of its own, and keeps
 * its content when it is resized, evicted or brought back, or when that fails. It must never know heaps,
 * nor how other processes find a buffer.
 */

enum gm_buffer_kind {
	GM_BUFFER_MADE,   /* this process made it */
	GM_BUFFER_OPENED, /* another process made it */
	GM_BUFFER_CARVED, /* this process made it, and counts and lists pieces of it instead */
};

/* Maps the chunks of a lease and makes a buffer of them. Takes ownership of both, even on error. wish
 * may be NULL. */
gpumem_status gm_buffer_new(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, enum gm_buffer_kind kind,
	const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer);
/* Makes a buffer of a device whose content lies in host memory, under its addresses. For an evictable
 * buffer. */
gpumem_status gm_buffer_new_in_host(struct gpumem_session *session, uint32_t device, size_t size,
	const char *tag, const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer);
/* Destroys the buffer as soon as the device has finished with it, and never waits. idle: nothing uses
 * it any more. */
void gm_buffer_leave(gpumem_buffer *buffer, bool idle);
/* Destroys a buffer of registered host memory that nothing uses any more, but only when no work at all is under
 * way: to end a registration, the driver waits for all launched work, and lets no thread launch more meanwhile. */
void gm_buffer_retire(gpumem_buffer *buffer);
/* Takes back a buffer that was set aside and has that tag. NULL: none fits. */
gpumem_buffer *gm_buffer_take_back(struct gpumem_session *session, size_t size, const char *tag);
/*
 * Call when a request of the program for memory of this device was refused. If buffers that were set aside may
 * be in its way, destroys them now, although the driver may wait for all launched work, and returns true: the
 * caller should try again. Returns true also if another thread, the library's included, has done so since the caller read
 * the session's endings. If the time of the request is over, *wait_ms becomes a short time. If another thread is doing so, a
 * request that may not wait stays refused: the driver may keep that thread for good.
 *
 * Only for calls of the program: the library's thread must not wait for the device. Does not hold settling meanwhile, so
 * that the library's thread can go on.
 */
bool gm_buffer_end_retired(struct gpumem_session *session, uint32_t device, gpumem_status refused,
	uint64_t endings, uint32_t *wait_ms);
/* Sets the buffer's size, and updates the figures and the row of the buffer. */
void gm_buffer_set_size(struct gpumem_buffer *buffer, size_t size);
/* Updates the row if only the growth has changed. The session is locked. */
void gm_buffer_relist(struct gpumem_buffer *buffer);
/* gpumem_buffer_resize() with another wait_ms. grow_only: a larger buffer stays as it is. */
gpumem_status gm_buffer_resize(struct gpumem_buffer *buffer, size_t size, bool grow_only,
	gpumem_stream stream, uint32_t wait_ms, int *ret_moved);
/* Whether the CPU sees the buffer's memory at its address. */
bool gm_buffer_visible(const struct gpumem_buffer *buffer);
/* Says in the buffer's row what it is for; either text may be NULL. */
void gm_buffer_note(gpumem_buffer *buffer, const char *type, const char *precision);
/* Says in its row that the calling thread made it here, if the session keeps stacks. */
void gm_buffer_made_here(gpumem_buffer *buffer);
/* Unmaps and frees all buffers that are not retired without a message, for the end of the session. If something cannot
 * be unmapped, the session's kept is set. */
void gm_buffer_drop_all(struct gpumem_session *session);

/* Makes the session's list of buffers. On error, returns -ENOMEM. */
int gm_buffer_list_init(struct gpumem_session *session);
/* Frees the list, which is empty or was not made. */
void gm_buffer_list_deinit(struct gpumem_session *session);

#endif
