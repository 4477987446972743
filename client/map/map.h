/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BACKEND_H
#define GM_CLIENT_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/types.h"
#include "gpumem/gpumem.h"

/*
 * How chunks get into this process, and how its streams are watched: the client's half of a
 * backend. All calls are thread-safe and return 0 or a negative errno: -ENOMEM means the host's own
 * memory, -ENOBUFS that the device or its driver has none. None of them waits for the GPU.
 *
 * A mapping needs no fd after map() has returned: the caller closes it. Ranges are whole chunks.
 */

/* A recorded point in all streams. Opaque: each backend casts it to a struct of its own. */
struct gm_map_event;

struct gm_map_ops {
	const char *name;
	/* What is used as one must have been given access as one: no heap can run over it, each
	 * block needs a range of its own. */
	bool whole;
	/* Frees the backend; backend may be NULL. Nothing may be mapped, and no event may be left. When
	 * the driver is gone already (the process is exiting), this only frees memory. */
	void (*close)(void *backend);
	/* In the driver's own words, why this thread's last call that failed did so, whatever
	 * succeeded since; "" if the driver had no part in it. May be NULL. */
	const char *(*error)(void);
	/* Address space and nothing more; aligned to GM_CHUNK_MIN at least. -ENOMEM: try less. */
	int (*reserve)(void *backend, uint64_t bytes, void **ret_addr);
	/* A whole reservation; what is still mapped in it is unmapped. */
	void (*unreserve)(void *backend, void *addr, uint64_t bytes);
	/* Maps a chunk at a place inside a reservation that holds nothing now; usable once access()
	 * covered it. */
	int (*map)(void *backend, void *addr, uint64_t bytes, int fd);
	/* Lets the device (host: the CPU) use the range: one call for many chunks side by side. */
	int (*access)(void *backend, void *addr, uint64_t bytes, bool read_only);
	/* Moves a mapped chunk that nobody uses to another place of a reservation; contents need
	 * not survive. Needs access() again. */
	int (*move)(void *backend, void *from, void *to, uint64_t bytes);
	/* The place is reserved and empty again. */
	int (*unmap)(void *backend, void *addr, uint64_t bytes);

	/*
	 * The ipc transport: opens a block where the driver wants it to be, usable at once. A block
	 * that is open already has the same address, and is counted. detach() ends one such opening
	 * and is the last use of the block: only then may it go back to the daemon. It may wait for
	 * the device. NULL: memory of this kind has no such handles.
	 */
	int (*attach)(void *backend, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr);
	int (*detach)(void *backend, void *addr);

	/*
	 * An event that passes when all that was launched so far, on any stream of a context that
	 * showed itself by here(), is done. A backend where nothing is ever under way once the
	 * program frees (memory that only the CPU uses) leaves record NULL: then this and the four
	 * below it are never called, and what is freed can be reused at once.
	 */
	int (*record)(void *backend, struct gm_map_event **ret_event);
	/* 1: passed, 0: not yet. */
	int (*passed)(void *backend, struct gm_map_event *event);
	/* Orders what is launched on the stream from now on behind the event. */
	int (*order)(void *backend, gpumem_stream stream, struct gm_map_event *event);
	void (*forget)(void *backend, struct gm_map_event *event);
	/* The calling thread is about to allocate, or has used what it frees: a number for its
	 * context, below 2^32, which tells default streams apart; any other: it cannot be told
	 * which one is meant. NULL: there are no contexts. */
	uint64_t (*here)(void *backend);
	/* The same stream has the same number, another stream (even at a reused handle) another
	 * one. */
	int (*stream_id)(void *backend, gpumem_stream stream, uint64_t *ret_id);
	/* The number of the graph that the stream, not a default one, is being captured into; 0:
	 * none. Numbers are not given twice. NULL: streams of this backend are not captured. */
	uint64_t (*captured_into)(void *backend, gpumem_stream stream);
};

#endif
