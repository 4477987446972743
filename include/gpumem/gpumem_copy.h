/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_COPY_H
#define GPUMEM_COPY_H

/*
 * Transfers between host memory or files and buffers, for programs that load weights, save results
 * or feed data to a device and do not want to write staging code of their own.
 *
 * A driver copies pageable memory (malloc, mmap) with one thread, at a fraction of what the bus
 * can do. The library copies it with several threads through a ring of pinned slots: while some
 * slots are filled, the device reads others. A file is read straight into the slots.
 *
 * What a program may rely on:
 *
 *   - The copy begins after the work that was launched on the stream before the call.
 *     GPUMEM_STREAM_ANY: after all work of all streams. GPUMEM_STREAM_DONE: at once.
 *   - When a call returns, the transfer is over, and no thread, event or pinned slot of it is left.
 *     Only GPUMEM_COPY_ASYNC leaves work on the stream.
 *   - A transfer that fails or is cancelled says how many bytes arrived: that many from the first
 *     byte on are complete. The content of what follows them, in the buffer or in the program's
 *     memory, is undefined.
 *   - A transfer needs the daemon for its pinned slots only, and goes on without them if they
 *     cannot be had. So no transfer fails because the daemon is away.
 *   - Threads may copy at the same time, also to and from one buffer. While a transfer runs, its
 *     buffer cannot be resized (gpumem_buffer_resize() returns GPUMEM_E_BUSY), and a buffer that is
 *     destroyed goes when its transfers end. The program must not end the session meanwhile.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpumem_copy_strategy {
	/* The library chooses by size, by the kind of the host memory and by the device. It never
	 * chooses GPUMEM_COPY_ASYNC. */
	GPUMEM_COPY_AUTO = 0,
	/* One copy of the driver's, or of one thread on the host backend; the call waits for it. */
	GPUMEM_COPY_SYNC = 1,
	/*
	 * The call puts the copy on the stream and returns. The host memory must stay as it is until
	 * the stream's work is done. Pinned memory is needed for this; with pageable memory, the call
	 * may take as long as the copy. There is no progress, and nothing can be cancelled. On the
	 * host backend, the copy is done when the call returns. Files cannot be read in this way.
	 */
	GPUMEM_COPY_ASYNC = 2,
	/* Several threads copy pageable memory, on a GPU through a ring of pinned slots. Host memory
	 * that the driver knows (pinned, managed) needs no ring and is copied as with
	 * GPUMEM_COPY_SYNC. */
	GPUMEM_COPY_STAGED = 3,
	/*
	 * No copy: the host memory is the buffer's own memory at that offset, which the CPU and the
	 * device both see. So nothing moves; the call only waits for the work on the stream. That
	 * holds for buffers of the host backend and of GPUMEM_DEVICE_HOST. Elsewhere, and with
	 * any other host memory, managed memory included, it is refused.
	 */
	GPUMEM_COPY_MANAGED = 4,
} gpumem_copy_strategy;

/* Reports progress: done of total bytes have arrived. A result other than 0 cancels the transfer. */
typedef int (*gpumem_copy_fn)(void *user, uint64_t done, uint64_t total);

#define GPUMEM_COPY_THREADS_MOST 64
#define GPUMEM_COPY_SLOTS_MOST   64
#define GPUMEM_COPY_SLOT_LEAST   (64 * 1024)
#define GPUMEM_COPY_SLOT_MOST    (256 * 1024 * 1024)

typedef struct gpumem_copy_options {
	size_t size;
	gpumem_copy_strategy strategy;
	/* Called on the calling thread, with no lock held, each time more bytes have arrived. It may
	 * call everything in this library except gpumem_disconnect(). May be NULL. total is what was
	 * asked for; for a pipe that is read to its end, it is the room in the buffer. */
	gpumem_copy_fn progress;
	void *user;
	/* If not NULL: the transfer ends as soon as it sees a value other than 0 there. Another
	 * thread or a signal handler sets it with gpumem_copy_cancel(). */
	uint32_t *cancel;
	/* For GPUMEM_COPY_STAGED. 0: the library chooses. Larger values than the bounds above are
	 * refused. */
	uint32_t threads; /* that copy or read */
	uint32_t slots;   /* of the ring: 2 at least */
	size_t slot_bytes;
} gpumem_copy_options;

#define GPUMEM_COPY_OPTIONS_INIT \
	{ \
		sizeof(gpumem_copy_options), GPUMEM_COPY_AUTO, NULL, NULL, NULL, 0, 0, 0 \
	}

/* The result of a transfer. Unlike other results, it is written whether the call succeeds or not,
 * unless the arguments were wrong. */
typedef struct gpumem_copy_result {
	size_t size;
	uint64_t bytes; /* that arrived; of an asynchronous copy: that were launched */
	gpumem_copy_strategy strategy; /* that was used, never GPUMEM_COPY_AUTO */
	uint32_t threads;              /* that copied or read beside the calling one */
	uint32_t slots;                /* pinned slots that were used; 0: none */
	size_t slot_bytes;
	/* Why the ring has fewer or smaller slots than it should have, or none: because of the limit of
	 * gpumem_copy_set_limit(), or what the daemon answered. GPUMEM_OK: it has all, or needs none. */
	gpumem_status ring_status;
} gpumem_copy_result;

#define GPUMEM_COPY_RESULT_INIT \
	{ \
		sizeof(gpumem_copy_result), 0, GPUMEM_COPY_AUTO, 0, 0, 0, GPUMEM_OK \
	}

/*
 * Copies host memory to a buffer, and back. offset is a place in the buffer. bytes may be 0. from and
 * to must not be NULL unless bytes is 0, and must not overlap with the place in the buffer. options
 * and ret_result may be NULL.
 *
 *   GPUMEM_E_INVALID      The range is not inside the buffer, or another argument is wrong; or the
 *                         driver refused the stream: it is closed, or not one of the device's.
 *   GPUMEM_E_CANCELLED    The transfer was cancelled.
 *   GPUMEM_E_BUSY         The stream is being captured into a graph, or is a default stream and one
 *                         that waits for it is. If that begins while the transfer runs, the transfer
 *                         ends with what has arrived, and the capture goes on.
 *   GPUMEM_E_DENIED       gpumem_copy_in(): the buffer was opened for reading only.
 *   GPUMEM_E_UNSUPPORTED  GPUMEM_COPY_MANAGED: the CPU cannot see the buffer.
 *   GPUMEM_E_SYSTEM       The copy failed. The sentence says how many bytes arrived.
 */
GPUMEM_API gpumem_status gpumem_copy_in(gpumem_buffer *buffer, size_t offset, const void *from,
	size_t bytes, gpumem_stream stream, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result);
GPUMEM_API gpumem_status gpumem_copy_out(gpumem_buffer *buffer, size_t offset, void *to,
	size_t bytes, gpumem_stream stream, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result);

/* In gpumem_copy_file: to the end of the file. */
#define GPUMEM_COPY_REST UINT64_MAX

/*
 * A part of a file. Regular files and block devices are read by several threads at once. The library
 * does not move the descriptor's position.
 *
 * Pipes, sockets and character devices are read in their order by one thread, from where they are.
 * Their offset must be 0. The call waits for a writer of a named pipe, and can be cancelled meanwhile.
 * A regular file that has bytes although its length is 0, as in /proc, is also read by one thread.
 */
typedef struct gpumem_copy_file {
	size_t size;
	const char *path; /* if fd is given too, it is only the name in messages, and may be NULL */
	int fd;           /* open for reading; -1: the library opens path */
	uint64_t offset;
	uint64_t bytes; /* GPUMEM_COPY_REST: to the end; not for block devices */
} gpumem_copy_file;

#define GPUMEM_COPY_FILE_INIT \
	{ \
		sizeof(gpumem_copy_file), NULL, -1, 0, GPUMEM_COPY_REST \
	}

/*
 * Loads a file into a buffer. On a GPU the file is read into pinned slots, and from there the device
 * copies it; where the CPU sees the buffer, it is read into the buffer itself. Nothing is copied twice,
 * and the file is not mapped: one that shrinks meanwhile is an error, not a signal. The strategy may be
 * GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC (the calling thread reads) or GPUMEM_COPY_STAGED.
 *
 *   GPUMEM_E_INVALID    The part is not inside the file, or does not fit into the buffer; or as above.
 *   GPUMEM_E_NOT_FOUND  There is no such file.
 *   GPUMEM_E_DENIED     The file may not be read.
 *   GPUMEM_E_SYSTEM     Reading failed, or the file became shorter while it was read. The sentence names
 *                       the file and says how many bytes arrived.
 */
GPUMEM_API gpumem_status gpumem_copy_file_in(gpumem_buffer *buffer, size_t offset,
	const gpumem_copy_file *file, gpumem_stream stream, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result);

/*
 * Writes the bytes [at, at + bytes) of a transfer to memory. Returns 0, or an errno, which ends the
 * transfer. Several threads of the library call it at a time, each for another part and in no order. It may
 * not call this library, and must not wait for the thread that called gpumem_copy_read_in().
 */
typedef int (*gpumem_copy_read_fn)(void *user, uint64_t at, void *to, size_t bytes);

/*
 * Fills a part of a buffer with what a function writes: for sources that are neither memory nor one file,
 * such as the parts of several files, or compressed data. The function writes into pinned slots, or into the
 * buffer itself where the CPU sees it, so nothing is copied twice. The strategy may be GPUMEM_COPY_AUTO,
 * GPUMEM_COPY_SYNC (the calling thread calls read) or GPUMEM_COPY_STAGED. user is handed to read.
 *
 *   GPUMEM_E_SYSTEM  read returned an errno. The sentence has its text, and says how many bytes arrived.
 */
GPUMEM_API gpumem_status gpumem_copy_read_in(gpumem_buffer *buffer, size_t offset, size_t bytes,
	gpumem_copy_read_fn read, void *user, gpumem_stream stream,
	const gpumem_copy_options *options, gpumem_copy_result *ret_result);

/* Cancels the transfers that have this word in their options: sets it to 1, safely from any thread and
 * from a signal handler. The transfers end when the pieces that are under way have arrived. */
GPUMEM_API void gpumem_copy_cancel(uint32_t *cancel);

/*
 * How much pinned memory the rings of all transfers of a session may have together: 256 MiB unless this
 * call says otherwise. A transfer that finds less left has a smaller ring, or none. Slots come from the
 * memory that gpumem_host_alloc() gives out, and are freed when the transfer ends. What the library keeps
 * of them for the next transfer counts as cached: gpumem_trim() and the daemon's reclaim get it back.
 */
GPUMEM_API gpumem_status gpumem_copy_set_limit(gpumem_session *session, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
