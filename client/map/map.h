/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_H
#define GM_CLIENT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/types.h"
#include "gpumem/gpumem.h"

/*
 * This folder maps chunks into the address space of this process and says when the program's
 * streams have finished with them, through one table of functions that the host, a GPU and pinned
 * host memory each implement. It must never know sessions, messages or heaps: it gets an address
 * and a chunk's fd or handle, and nothing else.
 *
 * All functions of the table may be called from any thread. They return 0 or a negative errno,
 * unless their comment says otherwise: -ENOMEM means that the host has no memory, -ENOBUFS that the
 * device or its driver has none. None of them waits for the GPU, except transfer(), detach(), managed_free(),
 * word_settle() and, for host memory that is registered with the driver, unreserve().
 *
 * An address range consists of whole chunks.
 */

/* A recorded point in all streams. Opaque: each backend casts it to a struct of its own. */
struct gm_map_event;
struct gm_map_control;

struct gm_map_ops {
	const char *name;
	/* One operation, such as a copy, may not cross the border of two access() calls. So no heap can
	 * run over this memory: each block needs a range of its own. */
	bool whole;
	/* Frees the backend, which may be NULL. Nothing may be mapped, and no event may be left.
	 * When the driver is already gone (the process is exiting), this only frees memory. */
	void (*close)(void *backend);
	/* Why this thread's last failed call failed, in the driver's own words, even if other calls
	 * have succeeded since; "" if the driver had no part in it. May be NULL. */
	const char *(*error)(void);

	/* Reserves address space and nothing more, aligned to GM_CHUNK_MIN at least. -ENOMEM: a
	 * smaller size may work. */
	int (*reserve)(void *backend, uint64_t bytes, void **ret_addr);
	/* Frees a whole reservation and unmaps everything still mapped in it. */
	void (*unreserve)(void *backend, void *addr, uint64_t bytes);
	/* Maps a chunk at an empty place inside a reservation. The memory is usable once access()
	 * has covered it. The mapping does not need the fd afterwards: the caller closes it. */
	int (*map)(void *backend, void *addr, uint64_t bytes, int fd);
	/* Lets the device (host: the CPU) use the range. One call may cover many adjacent
	 * chunks. */
	int (*access)(void *backend, void *addr, uint64_t bytes, bool read_only);
	/* Moves a mapped chunk that nobody uses to another place in a reservation, with its content.
	 * It needs access() again. */
	int (*move)(void *backend, void *from, void *to, uint64_t bytes);
	/* Unmaps a chunk. Its place stays reserved and is empty again. */
	int (*unmap)(void *backend, void *addr, uint64_t bytes);

	/*
	 * The ipc transport. attach() opens a block at an address that the driver chooses; the
	 * block is usable at once. Opening an open block returns the same address and counts one
	 * more use. detach() ends one use, and may wait for the device. A block may go back to the
	 * daemon only after its last detach(). Both are NULL if this kind of memory has no such
	 * handles.
	 */
	int (*attach)(void *backend, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr);
	int (*detach)(void *backend, void *addr);

	/* Copies memory of this device, after all that was launched on the stream. Host memory that
	 * no GPU uses is copied at once. -EAGAIN: the stream is being captured, or is the legacy default stream
	 * while a stream that waits for it is being captured. */
	int (*copy)(
		void *backend, void *to, const void *from, uint64_t bytes, gpumem_stream stream);

	/* Whether the driver knows the memory at an address, so that it copies it without staging:
	 * pinned, managed, or of a device. Never fails. NULL: there is no driver. */
	bool (*known)(void *backend, const void *ptr);
	/* A stream of the library's own, which waits for no other stream. Closing it does not end what
	 * was launched there. NULL: there are no streams. */
	int (*stream_open)(void *backend, gpumem_stream *ret_stream);
	void (*stream_close)(void *backend, gpumem_stream stream);

	/* Copies between memory of this device and pinned host memory, and returns when that is done.
	 * Nothing may use the memory meanwhile. It waits for no stream of the program's. NULL: this
	 * kind of memory is not copied that way. */
	int (*transfer)(void *backend, void *to, const void *from, uint64_t bytes);

	/*
	 * Records an event. It passes when all work is done that was launched before, on any stream
	 * of any context that here() has noted.
	 *
	 * record is NULL if no work can be under way once the program frees (memory that only the
	 * CPU uses). Then the functions below are never called, and freed memory can be reused at
	 * once.
	 */
	int (*record)(void *backend, struct gm_map_event **ret_event);
	/*
	 * The same for one stream: the event passes when the work is done that was launched on it
	 * before. If the stream is of a context that is not current, the event may cover more.
	 * -EAGAIN: as of copy().
	 */
	int (*record_on)(void *backend, gpumem_stream stream, struct gm_map_event **ret_event);
	/* 1: the event has passed. 0: not yet. See gm_map_take_passed(). */
	int (*passed)(void *backend, struct gm_map_event *event);
	/* Makes everything that is launched on the stream from now on wait for the event. */
	int (*order)(void *backend, gpumem_stream stream, struct gm_map_event *event);
	/* Frees an event, which may be NULL. */
	void (*forget)(void *backend, struct gm_map_event *event);
	/*
	 * Managed memory, which the driver moves between the device and the host. A range of it begins
	 * anywhere. advice is as in gpumem_managed.h. managed_free() may wait for the device. If the
	 * program has ended the context that the memory was made in, the memory is gone, and other memory
	 * may have its address: by *ret_id, managed_free() notices that. NULL: this kind of memory
	 * has none. -EOPNOTSUPP: the device or its driver has none.
	 */
	int (*managed_make)(
		void *backend, uint64_t bytes, bool attach_host, void **ret_addr, uint64_t *ret_id);
	int (*managed_free)(void *backend, void *addr, uint64_t bytes, uint64_t id);
	int (*managed_prefetch)(
		void *backend, void *addr, uint64_t bytes, bool to_host, gpumem_stream stream);
	int (*managed_advise)(void *backend, void *addr, uint64_t bytes, int advice, bool host);
	/*
	 * The control blocks of buffers with signals, by which processes order their work: map_control.h.
	 * word_open() maps the memfd of one, which stays the caller's. read_only: the CPU will not write
	 * it; a device may need to all the same. NULL: this kind of memory has no signals. word_close()
	 * never waits for the device; no stream may use the block any more. word_settle() ends the
	 * registrations that word_close() left behind, if they are many. It may wait for the device, but
	 * never for a signal. It is for the library's thread; NULL: there is nothing to end.
	 *
	 * post() writes the value to the block when the work is done that was launched on the stream
	 * before. await() makes everything that is launched on the stream from now on wait until the
	 * block's value is at least this one, by the signed difference. Both are NULL if there are no
	 * streams.
	 *
	 * -EAGAIN: the stream is being captured. -EOPNOTSUPP: the device cannot do it.
	 */
	int (*word_open)(void *backend, int fd, bool read_only, struct gm_map_control **ret_word);
	void (*word_close)(void *backend, struct gm_map_control *word);
	void (*word_settle)(void *backend);
	int (*post)(
		void *backend, gpumem_stream stream, struct gm_map_control *word, uint64_t value);
	int (*await)(
		void *backend, gpumem_stream stream, struct gm_map_control *word, uint64_t value);
	/* Notes the context of the calling thread, which is about to allocate, or frees memory that
	 * it has used. Returns a number below 2^32 for the context, which tells default streams
	 * apart. Any larger value: the backend cannot tell whose default stream is meant. NULL:
	 * there are no contexts. */
	uint64_t (*here)(void *backend);
	/* A number for a stream. A stream keeps its number, and a new stream gets a new one even if
	 * it has the handle of an old stream. */
	int (*stream_id)(void *backend, gpumem_stream stream, uint64_t *ret_id);
	/* The number of the graph that the stream is being captured into; 0: none. No number is
	 * used twice. The stream must not be a default stream. NULL: streams of this backend are
	 * never captured. */
	uint64_t (*captured_into)(void *backend, gpumem_stream stream);
};

/* Asks whether an event has passed, and frees the event then: 1, and *event is NULL. 0: not yet. A negative errno: the
 * driver does not say. */
int gm_map_take_passed(const struct gm_map_ops *map, void *backend, struct gm_map_event **event);
/* Waits until the event has passed, and returns 0. -ETIMEDOUT: not before end_ns. This function asks again and again: the
 * driver's own waiting would need a context of the caller's, and breaks captures. */
int gm_map_await(
	const struct gm_map_ops *map, void *backend, struct gm_map_event *event, uint64_t end_ns);

#endif
