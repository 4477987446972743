/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_TYPES_H
#define GM_COMMON_TYPES_H

#include <stdint.h>

#include "common/bounds.h"

/*
 * The folder common/ promises the daemon, the client library and gpumemctl one way to do what more
 * than one of them needs: types, limits, packets, shared pages, paths, units and the CUDA driver.
 * It must never know which of them it runs in, nor include anything from outside but the public
 * headers and the generated messages.
 *
 * This header has the enumerations that several layers share.
 */

/* How a chunk is handed over. The values are those of the wire. */
enum gm_transport {
	GM_TRANSPORT_AUTO = 0,
	GM_TRANSPORT_FD = 1,
	GM_TRANSPORT_IPC = 2,
};

/* How far programs on the CPU see what a GPU writes to managed memory. The values are those of the
 * wire. */
enum gm_backend_visibility {
	GM_BACKEND_VISIBILITY_UNKNOWN = 0,
	GM_BACKEND_VISIBILITY_SYSTEM = 1,   /* at any time */
	GM_BACKEND_VISIBILITY_DEVICE = 2,   /* while the GPU does nothing */
	GM_BACKEND_VISIBILITY_EXPLICIT = 3, /* never: it must be copied */
};

/* Pressure levels, in the order of the thresholds that separate them. */
enum gm_pressure_level {
	GM_PRESSURE_LEVEL_LOW,
	GM_PRESSURE_LEVEL_MEDIUM,
	GM_PRESSURE_LEVEL_HIGH,
	GM_PRESSURE_LEVEL_CRITICAL,
	GM_LEVELS,
};

/* What pinned host memory is made of, in the order of the words in the configuration. */
enum gm_backend_host_memory {
	GM_BACKEND_HOST_MEMORY_AUTO,  /* the driver's own memory if it can be shared, else memfds */
	GM_BACKEND_HOST_MEMORY_MEMFD, /* always memfds */
};

/* Which buffers a client lists in its page. */
enum gm_track {
	GM_TRACK_OFF = 0,
	GM_TRACK_LARGE = 1, /* of at least GM_TRACK_LARGE_BYTES */
	GM_TRACK_ALL = 2,
	GM_TRACK_STACKS = 3, /* all, with where they were allocated */
};
/* Smaller buffers are many, and seldom what a person looks for; a client has only 1,024 rows. */
#define GM_TRACK_LARGE_BYTES UINT64_C(0x100000)

#endif
