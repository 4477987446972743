/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_SHARE_H
#define GPUMEM_SHARE_H

/*
 * Buffers that several processes use: shared by a token, published under a name that keeps them, and
 * signals that order the work of the processes. gpumem.h includes this header.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sharing */

/* 128 random bits. A process that has them and belongs to the audience may open the buffer. */
typedef struct gpumem_token {
	uint8_t bytes[16];
} gpumem_token;

#define GPUMEM_TOKEN_TEXT_BYTES 33
/* As text, a token is 32 hexadecimal digits and a terminating 0. */
GPUMEM_API void gpumem_token_to_text(const gpumem_token *token, char text[GPUMEM_TOKEN_TEXT_BYTES]);
GPUMEM_API gpumem_status gpumem_token_from_text(const char *text, gpumem_token *ret_token);

typedef enum gpumem_audience {
	/* the creator's trust domain: processes of its uid, in its container */
	GPUMEM_AUDIENCE_DOMAIN = 0,
	GPUMEM_AUDIENCE_UID = 1, /* processes of one user */
	GPUMEM_AUDIENCE_GID = 2, /* processes in one group */
} gpumem_audience;

typedef enum gpumem_share_mode {
	GPUMEM_SHARE_READ_WRITE = 0,
	GPUMEM_SHARE_READ_ONLY = 1, /* enforced on host memory, advisory on a GPU */
} gpumem_share_mode;

/* Other users who open the buffer can write to it, whatever the mode: no GPU can prevent that. A
 * buffer on a GPU is shared with other users, or a group, only with this flag. */
#define GPUMEM_READERS_CAN_WRITE 1u

typedef struct gpumem_share_options {
	size_t size;
	gpumem_audience audience;
	uint32_t id; /* the audience's uid or gid */
	gpumem_share_mode mode;
	uint32_t flags; /* GPUMEM_READERS_CAN_WRITE, or 0 */
} gpumem_share_options;

#define GPUMEM_SHARE_OPTIONS_INIT \
	{ \
		sizeof(gpumem_share_options), GPUMEM_AUDIENCE_DOMAIN, 0, GPUMEM_SHARE_READ_WRITE, \
			0 \
	}

/* Makes a token for the buffer. If options is NULL, the creator's trust domain may read and write.
 * The memory is charged to the user who created the buffer until the last process that opened it has
 * closed it or ended. GPUMEM_E_BUSY: the device may still use what gpumem_buffer_resize() cut off. */
GPUMEM_API gpumem_status gpumem_share(
	gpumem_buffer *buffer, const gpumem_share_options *options, gpumem_token *ret_token);
/* Maps a buffer that another process shared. */
GPUMEM_API gpumem_status gpumem_open(
	gpumem_session *session, const gpumem_token *token, gpumem_buffer **ret_buffer);
/* Ends every token of the buffer. Processes that have opened the buffer keep it. */
GPUMEM_API gpumem_status gpumem_unshare(gpumem_buffer *buffer);

/* ---- names: buffers that outlive their maker */

/*
 * A published buffer stays on its device until its name is removed, whatever becomes of the process
 * that made it or of the daemon: for example a model's weights, while workers come and go. Nobody can
 * see the buffer before it is published. Its maker may write to it afterwards, but should not: readers
 * would see that.
 *
 * A name belongs to a user. "llama" is the caller's own name of that kind, and "uid:1000/llama" that of
 * the user with this uid. A name has 1 to 63 bytes of printable UTF-8 without "/".
 *
 * The memory is charged to the user who published it, until the name is gone and the last process that
 * attached has destroyed its buffer or ended.
 */

typedef struct gpumem_publish_options {
	size_t size;
	/* Who may attach, and how: as in gpumem_share_options. A buffer for another user or a group
	 * is made with GPUMEM_BUFFER_FOR_OTHERS. */
	gpumem_audience audience;
	uint32_t id;
	gpumem_share_mode mode;
	uint32_t flags; /* GPUMEM_READERS_CAN_WRITE, or 0 */
	/* If not 0, the name may exist. It then means this buffer, with the next version; processes
	 * that attached before keep what they have. */
	uint32_t replace;
	/* If not 0, the name ends when the last process that attached has left. */
	uint32_t until_unread;
	/* If not 0, the name ends by itself after this many seconds, as if it had been removed. */
	uint32_t expires_s;
	/* Anything that readers should know about the buffer: at most GPUMEM_METADATA_MOST bytes. The
	 * call copies them. Processes that may attach can read them: gpumem_metadata_read(). */
	const void *metadata;
	size_t metadata_size;
} gpumem_publish_options;

#define GPUMEM_PUBLISH_OPTIONS_INIT \
	{ \
		sizeof(gpumem_publish_options), GPUMEM_AUDIENCE_DOMAIN, 0, \
			GPUMEM_SHARE_READ_WRITE, 0, 0, 0, 0, NULL, 0 \
	}

#define GPUMEM_METADATA_MOST (16 * 1024 * 1024)

/*
 * Puts a buffer under a name of the caller's user. The call first waits until the work is done that was
 * launched on the stream before, so that a process that attaches finds the buffer complete. What runs on
 * other streams does not delay it. GPUMEM_STREAM_ANY: it waits for all streams. GPUMEM_STREAM_DONE:
 * nothing writes to the buffer any more, and the call does not wait. While the stream is being captured
 * into a graph (with GPUMEM_STREAM_ANY: any stream), nobody can know when its work is done, and the call
 * is refused.
 *
 * Afterwards the buffer may be destroyed; the memory stays. A buffer has at most one name. To publish
 * it again under that name changes nothing, and is refused with metadata. If options is NULL, the creator's trust domain may read
 * and write, and the name must be a new one. ret_version, which may be NULL, gets the version: 1, or
 * one more than that of the buffer that was replaced.
 *
 *   GPUMEM_E_BUSY         The name exists, the buffer has another name, or a stream is being captured;
 *                         or the buffer is published already, and metadata was given again.
 *   GPUMEM_E_LIMIT        The user has too many names, or too much metadata.
 *   GPUMEM_E_UNSUPPORTED  The buffer is on the ipc transport, or was not made for this audience.
 *   GPUMEM_E_DENIED       Another process made the buffer.
 */
GPUMEM_API gpumem_status gpumem_publish(gpumem_buffer *buffer, const char *name,
	const gpumem_publish_options *options, gpumem_stream stream, uint64_t *ret_version);
/* Maps the buffer that the name means now. A name that does not exist and one that is meant for
 * somebody else look the same: GPUMEM_E_NOT_FOUND. gpumem_buffer_destroy() ends the use of it. */
GPUMEM_API gpumem_status gpumem_attach(
	gpumem_session *session, const char *name, gpumem_buffer **ret_buffer);
/*
 * The same, but waits for up to wait_ms milliseconds until the name is published. 0: not at all, whatever the
 * daemon's configuration says. GPUMEM_WAIT_FOREVER: without an end. The library asks the daemon again, at first
 * after about 20 ms and later once a second, so the call may return a second after the name was published.
 *
 *   GPUMEM_E_TIMEOUT       The time is over, and there is no such name for this client.
 *   GPUMEM_E_LIMIT         32 calls of this session wait for names already.
 *   GPUMEM_E_DISCONNECTED  The daemon was away for away_ms (gpumem_connect_options), or until the time was
 *                          over. A restart of the daemon by itself does not end the wait.
 */
GPUMEM_API gpumem_status gpumem_attach_wait(
	gpumem_session *session, const char *name, uint32_t wait_ms, gpumem_buffer **ret_buffer);
/* Removes a name. Processes that attached keep the buffer. Only administrators may remove the name of
 * another user. */
GPUMEM_API gpumem_status gpumem_unpublish(gpumem_session *session, const char *name);
/*
 * Reads what a name was published with, without attaching to it. *ret_data gets a copy, to be freed with
 * gpumem_metadata_free(); a zero byte follows the last one, so text can be used as a string. NULL, with a
 * size of 0: there is none. ret_version, which may be NULL, gets the version that it belongs to. Only
 * those who may attach can read it; to others, the name does not exist (GPUMEM_E_NOT_FOUND).
 */
GPUMEM_API gpumem_status gpumem_metadata_read(gpumem_session *session, const char *name,
	void **ret_data, size_t *ret_size, uint64_t *ret_version);
/* The same for a buffer that was published or attached, in the version that it has, whatever its name
 * means by now. */
GPUMEM_API gpumem_status gpumem_buffer_metadata(
	gpumem_buffer *buffer, void **ret_data, size_t *ret_size);
/* data may be NULL. */
GPUMEM_API void gpumem_metadata_free(void *data);

/* A name that this process may see. */
typedef struct gpumem_name {
	size_t size;
	uint32_t owner;   /* the uid whose name it is */
	uint32_t device;  /* where the buffer is */
	const char *name; /* without its owner; valid only during the call, as tag */
	const char *tag;  /* of the buffer; "": it has none */
	uint64_t version;
	uint64_t bytes;          /* as requested */
	uint64_t metadata_bytes; /* 0: there is no metadata */
	uint32_t readers;        /* how often it is attached now */
	uint32_t own;            /* not 0: it is the caller's, whatever geteuid() says */
} gpumem_name;

#define GPUMEM_NAME_INIT \
	{ \
		sizeof(gpumem_name), 0, 0, NULL, NULL, 0, 0, 0, 0, 0 \
	}

/*
 * Calls fn for each name of the caller's user, and of others that this process may attach to; administrators
 * see all. fn runs on the calling thread, without any lock held, and may call everything in this library
 * except gpumem_disconnect().
 */
typedef void (*gpumem_name_fn)(void *user, const gpumem_name *name);
GPUMEM_API gpumem_status gpumem_names(gpumem_session *session, gpumem_name_fn fn, void *user);
/* The version that the buffer was published or attached as; 0: neither. */
GPUMEM_API uint64_t gpumem_buffer_version(const gpumem_buffer *buffer);

/* ---- signals: ordering between processes that share a buffer */

#define GPUMEM_SIGNAL_MAX (UINT64_C(1) << 62)
/*
 * The process that created a buffer with GPUMEM_BUFFER_SIGNALS signals a value: when all work that was
 * launched on the stream before is done, waits for that value and for smaller ones end. Values are 1 to
 * GPUMEM_SIGNAL_MAX, and each must be above the one before. The call waits for nothing. With
 * GPUMEM_STREAM_DONE the value is signalled at once, as on the host backend, which has no streams.
 *
 *   GPUMEM_E_DENIED       Another process created the buffer. To answer, create another buffer.
 *   GPUMEM_E_INVALID      The value is not above the last one, or GPUMEM_STREAM_ANY was given.
 *   GPUMEM_E_UNSUPPORTED  The buffer has no signals, or the GPU cannot do it.
 *   GPUMEM_E_BUSY         The stream is being captured into a graph.
 */
GPUMEM_API gpumem_status gpumem_buffer_signal(
	gpumem_buffer *buffer, gpumem_stream stream, uint64_t value);
/*
 * Makes everything that is launched from now on wait for a value.
 *
 * With GPUMEM_WAIT_FOREVER the stream waits, and the call does not, except on the host backend, which has no streams:
 * there it returns when the value is signalled. With any other timeout_ms the call itself waits, on every backend and for
 * that many milliseconds at most, and nothing is put on the stream, because a stream cannot give up. If the value was not
 * signalled by then, it returns GPUMEM_E_TIMEOUT. 0 and GPUMEM_NO_WAIT: it only looks.
 *
 * If the process that created the buffer destroys it or ends without signalling the value, the wait is
 * lost: the library lets the stream go on, and gpumem_buffer_lost() says so. Ask it after the stream was
 * synchronized, before what the buffer holds is used. If the process was gone before, or the call
 * itself waits, it returns GPUMEM_E_CANCELLED. While the daemon is away, nobody notices such an end; it
 * is noticed when the daemon is back.
 */
GPUMEM_API gpumem_status gpumem_buffer_wait(
	gpumem_buffer *buffer, gpumem_stream stream, uint64_t value, uint32_t timeout_ms);
/* GPUMEM_E_CANCELLED: the process that created the buffer is gone and did not signal the value, so a
 * wait for it was lost. GPUMEM_OK: the value was signalled, or may still come. */
GPUMEM_API gpumem_status gpumem_buffer_lost(gpumem_buffer *buffer, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
