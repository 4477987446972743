/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_EVICT_H
#define GPUMEM_EVICT_H

/*
 * Evictable buffers: while the program does not use them, the library may move them to host memory if the
 * device is full. A buffer that is created with GPUMEM_BUFFER_EVICTABLE may be used only between
 * gpumem_buffer_pin() and gpumem_buffer_unpin(). Its address does not change.
 *
 * A buffer with GPUMEM_BUFFER_CPU_OK is evictable, too. If the device is full, it is made in pinned host
 * memory: pin it with GPUMEM_PIN_HOST_OK to use it there. While it is pinned and its location is
 * GPUMEM_LOCATION_HOST, the CPU may touch it as well. It moves to the device only while it is not pinned:
 * by a pin, or by itself when pressure on the device falls.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpumem_location {
	GPUMEM_LOCATION_DEVICE = 0,
	GPUMEM_LOCATION_HOST = 1 /* pinned host memory */
} gpumem_location;

/* The buffer may stay in host memory, where the device reaches it at the same address, but more slowly. */
#define GPUMEM_PIN_HOST_OK 1u

typedef struct gpumem_pin_options {
	size_t size;
	uint32_t flags; /* GPUMEM_PIN_HOST_OK, or 0 */
	/* How long to wait for device memory, as in gpumem_buffer_options. With GPUMEM_PIN_HOST_OK, 0
	 * means not at all: the buffer moves only if the device has room. */
	uint32_t wait_ms;
} gpumem_pin_options;

#define GPUMEM_PIN_OPTIONS_INIT \
	{ \
		sizeof(gpumem_pin_options), 0, 0 \
	}

/*
 * Brings the buffer back to the device if it was evicted, and keeps it there until it is unpinned as often
 * as it was pinned. The content is complete when the call returns. options may be NULL; *ret_location,
 * which may be NULL, says where the buffer is. If the call fails, the buffer keeps its content and is
 * pinned as often as before.
 */
GPUMEM_API gpumem_status gpumem_buffer_pin(
	gpumem_buffer *buffer, const gpumem_pin_options *options, gpumem_location *ret_location);
/*
 * Says that the program no longer uses the buffer, except for work that it launched on the stream before
 * the call. GPUMEM_STREAM_ANY: except for work on any stream. GPUMEM_STREAM_DONE: no work uses it. The call
 * does not wait.
 * GPUMEM_E_INVALID: the buffer is not pinned. GPUMEM_E_BUSY: the stream is being captured into a graph.
 */
GPUMEM_API gpumem_status gpumem_buffer_unpin(gpumem_buffer *buffer, gpumem_stream stream);
/* Where the buffer is. Unless it is pinned, that may change at any time. */
GPUMEM_API gpumem_location gpumem_buffer_location(const gpumem_buffer *buffer);
/* Moves the buffer to host memory now. GPUMEM_E_BUSY: the buffer is pinned, shared or published, or the
 * device still uses it. */
GPUMEM_API gpumem_status gpumem_buffer_evict(gpumem_buffer *buffer);

#ifdef __cplusplus
}
#endif

#endif
