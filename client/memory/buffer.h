/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_BUFFER_H
#define GM_CLIENT_MEMORY_BUFFER_H

#include "client/memory/leaving.h"
#include "client/session/gpumem_session.h"
#include "client/session/session_lease.h"

/* A lease that is mapped into an address range of its own. */
struct gpumem_buffer {
	struct gm_leaver leaver; /* comes first */
	struct gpumem_session *session;
	struct gm_session_lease *lease;
	uint32_t device;
	bool opened;                      /* another process made it and is charged for it */
	bool carved;                      /* its maker counts and lists pieces of it instead */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
	void *addr;
	uint64_t bytes;  /* of the range: whole chunks */
	uint64_t mapped; /* how much of the range is mapped, from its start */
	size_t size;     /* as requested */
	size_t chunks;
	_Atomic uint64_t version; /* of its name; 0: none that this process knows */
	uint32_t row;             /* in the client's page; 0: not listed */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct gpumem_buffer *prev, *next; /* in the session's list */
};

enum gm_buffer_kind {
	GM_BUFFER_MADE,   /* this process made it */
	GM_BUFFER_OPENED, /* another process made it */
	GM_BUFFER_CARVED, /* this process made it, and counts and lists pieces of it instead */
};

/* Maps the chunks of a lease and makes a buffer of them. Takes ownership of both, even on error. */
gpumem_status gm_buffer_new(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer);
/* gpumem_buffer_create() for a device by its index. The options have all fields. */
gpumem_status gm_buffer_make(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer);
/* Destroys the buffer as soon as the device has finished with it, and never waits. idle: nothing uses
 * it any more. */
void gm_buffer_leave(gpumem_buffer *buffer, bool idle);
/* Checks the arguments of gpumem_buffer_create(), and prepares the device for mapping. */
gpumem_status gm_buffer_check(struct gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer_options *ret_given,
	uint32_t *ret_device);
/* As gm_buffer_new(), for a buffer of that size and tag that this process asked for. */
gpumem_status gm_buffer_of_lease(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, size_t size, const char *tag, enum gm_buffer_kind kind,
	gpumem_buffer **ret_buffer);
/*
 * Unmaps destroyed buffers and gives them back. When it returns, the daemon has all buffers that
 * were destroyed before the call, also those that another thread was working on. It also
 * destroys the buffers of gm_buffer_leave() that the device has finished with.
 *
 * The driver needs hundreds of microseconds to unmap a large buffer. So gpumem_buffer_destroy()
 * only lists the buffer, and the library's thread or the next caller that needs memory calls this
 * function. If there is nothing to do, it costs one load.
 */
void gm_buffer_settle(struct gpumem_session *session);
/* Unmaps and frees all buffers without a message: the session ends. If something cannot be
 * unmapped, here or in gm_buffer_settle(), the session's kept is set. */
void gm_buffer_drop_all(struct gpumem_session *session);

/* Checks that the program may share or publish this buffer. */
gpumem_status gm_buffer_share_check(const gpumem_buffer *buffer);
/* Passes the status of such a request on, unless the daemon forgot the buffer while the request waited
 * for it. */
gpumem_status gm_buffer_share_status(const gpumem_buffer *buffer, gpumem_status status);
gpumem_status gm_buffer_share_options_check(const gpumem_share_options *options);

/* Checks a tag from a program, which may be NULL. */
gpumem_status gm_buffer_tag_check(const char *tag);

#endif
