/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_BROKER_H
#define GM_PRELOAD_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "gpumem/gpumem_chunk.h"
#include "gpumem/gpumem_piece.h"
#include "preload/driver/preload_driver.h"

/*
 * The session with the daemon: begun by the first call that needs it, and never ended, because the
 * program's last destructors may still free memory. The daemon takes everything back when the process
 * ends. The client library is loaded with it.
 *
 * After fork(), the child has no session. Its calls go to the driver, which refuses them, because the
 * parent had used CUDA.
 */

enum gm_preload_answer {
	GM_BROKER_READY,   /* there is a session */
	GM_BROKER_ABSENT,  /* there is none and need not be: the driver serves the call */
	GM_BROKER_REFUSED, /* there is none, and there must be: the call fails */
};

/* Begins the session if there is none. Thread-safe, as all calls here. */
enum gm_preload_answer gm_preload_begin(void);
/* After GM_BROKER_REFUSED: counts the allocation for the report. Returns the error that the program gets. */
gm_cu_result gm_preload_refuse(void);
/* Whether there is a session. Begins none. */
bool gm_preload_there(void);

/* The daemon's number of a device of the driver's. false: the daemon does not serve it. */
bool gm_preload_device(const struct gm_driver *driver, gm_cu_device device, uint32_t *ret_number);
/* The same by its UUID. */
bool gm_preload_uuid(const gm_cu_uuid *uuid, uint32_t *ret_number);
/* Whether the daemon serves a device, as far as it is known without a session: then gpumem-run says it. Begins none, because
 * programs ask for the sizes of devices that they will never use. */
bool gm_preload_serves(const gm_cu_uuid *uuid);
/* The same for the device of the current context. *ret_ctx is the context that memory belongs to which is allocated
 * now: preload_contexts.h. Each thread remembers the last one. */
bool gm_preload_current(const struct gm_driver *driver, gm_cu_ctx *ret_ctx, uint32_t *ret_number);
/* How often a context or a stream has ended. The driver may then use its handle for another one, so what was
 * remembered about handles holds only while this is the same. */
uint64_t gm_preload_age(void);
/* Before a context or a stream ends. */
void gm_preload_grow_old(void);

/* Allocates, after the daemon's own reclaim and wait. A result of the driver: CUDA_ERROR_OUT_OF_MEMORY if
 * there is no memory. *ret_ptr is unwritten on failure. The caller may try something else then; if it has nothing to give
 * to the program, it calls gm_preload_report_refused(). */
gm_cu_result gm_preload_alloc(
	uint32_t number, size_t bytes, gpumem_stream stream, gm_cu_ptr *ret_ptr);
/* Takes pinned host memory for what the device has no room for, if the user wants that. The device uses it at the same
 * address, more slowly, and it stays where it is. Waits for a moment only, however the daemon is configured. false: there is
 * none, or it is not wanted. */
bool gm_preload_spill(size_t bytes, gm_cu_ptr *ret_ptr);
void gm_preload_free(gm_cu_ptr ptr, gpumem_stream stream);
/* Pinned host memory, which gm_preload_free() frees. Does not wait. false: the daemon has none. */
bool gm_preload_host_alloc(size_t bytes, void **ret_ptr);
/* Has the daemon charge for memory that the driver is about to make, after the same reclaim and wait. false
 * in *ret_charged: the daemon does not know how to. */
gm_cu_result gm_preload_declare(uint32_t number, uint64_t bytes, bool *ret_charged);
void gm_preload_undeclare(uint32_t number, uint64_t bytes);
/* How much memory the library holds on a device that the program does not use. */
uint64_t gm_preload_cached(uint32_t number);
/* Gives back to the daemon what the library only caches. */
void gm_preload_trim(void);
/* Tells the client library that a capture is about to begin, and that it has ended or did not begin. In between, the
 * library asks nothing of the driver that would break the capture. If there is no session yet, the library is told when the
 * session begins, before it has any memory. gm_preload_capture_end() returns whether no other capture goes on. */
void gm_preload_capture_begin(void);
bool gm_preload_capture_end(void);
/* Whether a capture has begun, or is about to begin, and has not ended. */
bool gm_preload_capturing(void);
/* Keeps captures out, so that the calling thread can wait for a context: gpumem_capture_keep_out(). There must be a session.
 * false: the program is capturing, and the thread must not wait. */
bool gm_preload_capture_keep_out(void);
void gm_preload_capture_let_in(void);
/* Asks for a chunk: physical memory that the program maps itself. Waits as gm_preload_alloc() does. *ret_fd is the caller's. A
 * result of the driver; CUDA_ERROR_NOT_SUPPORTED: the daemon cannot make it. */
gm_cu_result gm_preload_chunk(uint32_t number, size_t bytes, gpumem_chunk **ret_chunk, int *ret_fd);
/* Another descriptor of it. */
gm_cu_result gm_preload_chunk_fd(gpumem_chunk *chunk, int *ret_fd);
/* Gives it back. chunk may be NULL. */
void gm_preload_chunk_end(gpumem_chunk *chunk);
/* Shares an allocation with processes of the same trust domain. */
gm_cu_result gm_preload_share(gm_cu_ptr ptr, gpumem_piece *ret_piece);
/* Maps memory in which another process shares an allocation. CUDA_ERROR_INVALID_HANDLE: there is no such
 * memory for this process. */
gm_cu_result gm_preload_open(const gpumem_piece *piece, gpumem_buffer **ret_buffer,
	gm_cu_ptr *ret_start, uint64_t *ret_bytes);
/* Ends that. Nothing may use it any more. buffer may be NULL. */
void gm_preload_buffer_end(gpumem_buffer *buffer);
/* How many bytes the program could have on a device now. false: nobody knows. */
bool gm_preload_room(uint32_t number, uint64_t *ret_bytes);

/* Counts a call that the driver serves although it makes memory, for the report and, once there is a session, for
 * gpumemctl clients. */
void gm_preload_count_passed(enum gm_preload_call call);

#endif
