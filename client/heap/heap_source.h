/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_HEAP_HEAP_SOURCE_H
#define GM_CLIENT_HEAP_HEAP_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "gpumem/status.h"

/*
 * Where an arena gets its chunks from and gives them back to: the session in a program, a table in
 * a test. The functions may take long (a message and its answer). They are called from any thread,
 * several at once, and never with the arena's lock held.
 */

struct gm_heap_source_chunk {
	uint64_t id;
	uint64_t bytes; /* a power of two; on the ipc transport a multiple of GM_CHUNK_MIN */
	int fd;         /* whoever receives the struct closes it; -1: none */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* on the ipc transport */
};

/* A call of the program for which the arena asks the source. The source may have more of its own behind
 * it. */
struct gm_heap_source_call {
	const char *tag; /* of the block; may be NULL */
};

struct gm_heap_source {
	void *ctx;
	/*
	 * Gets chunks that add up to at least that many bytes. *ret_chunks is malloc'ed; the caller
	 * frees it and closes the fds. On failure nothing was granted, and gpumem_error_detail()
	 * says why. After GPUMEM_E_DISCONNECTED, the same allocation does not ask again. call is the
	 * one that the arena was given, and may be NULL.
	 */
	gpumem_status (*get)(void *ctx, struct gm_heap_source_call *call, uint64_t bytes,
		struct gm_heap_source_chunk **ret_chunks, size_t *ret_n);
	/* How many bytes get() would probably give right now. Must not send a message. NULL: not
	 * known. */
	uint64_t (*room)(void *ctx);
	/* The most bytes that the arena could ever have, including those it has now. Must not send a
	 * message. NULL: not known. */
	uint64_t (*most)(void *ctx);
	/* Gives chunks back that are no longer mapped here. If the daemon is away, it gets them
	 * when it is back. */
	void (*put)(void *ctx, const uint64_t *ids, size_t n);
};

#endif
