/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_MANAGED_H
#define GPUMEM_MANAGED_H

/*
 * Managed memory (CUDA's unified memory): one pointer that the CPU and the device both use, while the
 * driver moves pages between them. This header also has declarations: with them, a program tells the
 * daemon about other memory that it gets from the driver itself.
 *
 * The daemon has no part in making such memory, but charges the session for it, as it does for
 * buffers: it counts against the limits of the user, the group, the unit, the container and the
 * session, and against the device's fraction.
 *
 * What a program may rely on:
 *
 *   - The library asks the daemon for the charge first. If the daemon refuses, no memory is made. If the
 *     driver then cannot make the memory, the library gives the charge back.
 *   - The charge of managed memory is its size, in whole 2 MiB, wherever its pages are at the moment.
 *   - The daemon does not count declared memory twice: what the driver counts for this process is not
 *     foreign, up to what the process declared. If the daemon cannot see what the driver counts (there
 *     is no NVML, or the process is in a pid namespace that the daemon does not see), declared memory
 *     does count twice. Others then find less room than there is, never more.
 *   - Charges survive a restart of the daemon, and end with the session: at gpumem_disconnect(), or
 *     when the process ends. gpumem_disconnect() frees managed memory that was not destroyed.
 *   - The daemon asks nobody to give declared memory back. It is not pooled, shared or published.
 *   - On the host backend, managed memory is plain memory, so that programs run without a GPU.
 *
 * gpumem_device_info() tells how far the CPU sees what the device writes (visibility): with
 * GPUMEM_VISIBILITY_DEVICE, the CPU may touch managed memory only while the device does nothing.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpumem_managed gpumem_managed;

typedef struct gpumem_managed_options {
	size_t size;
	uint32_t wait_ms; /* how long to wait if the device is full, as for buffers */
	/* Not 0: at first only the CPU and streams that the program attaches the memory to may use it
	 * (CU_MEM_ATTACH_HOST). */
	uint32_t attach_host;
} gpumem_managed_options;

#define GPUMEM_MANAGED_OPTIONS_INIT \
	{ \
		sizeof(gpumem_managed_options), 0, 0 \
	}

/*
 * Makes managed memory on a device. options may be NULL. The memory is zero where the driver makes it
 * so; a program must not rely on it.
 *
 *   GPUMEM_E_INVALID      bytes is 0 or too large, or the device is GPUMEM_DEVICE_HOST.
 *   GPUMEM_E_LIMIT        A limit of the user, group, unit, container or session does not allow it.
 *   GPUMEM_E_NO_MEMORY    The device does not have that much free memory, or the driver failed.
 *   GPUMEM_E_UNSUPPORTED  The device or its driver has no managed memory.
 */
GPUMEM_API gpumem_status gpumem_managed_create(gpumem_session *session, uint32_t device,
	size_t bytes, const gpumem_managed_options *options, gpumem_managed **ret_managed);

/* The address, for the CPU and the device; the size that was asked for; the device. NULL or 0 if
 * managed is NULL. */
GPUMEM_API void *gpumem_managed_ptr(const gpumem_managed *managed);
GPUMEM_API size_t gpumem_managed_size(const gpumem_managed *managed);
GPUMEM_API uint32_t gpumem_managed_device(const gpumem_managed *managed);

/* Where pages should be: on the device that the memory is charged to, or in host memory. */
typedef enum gpumem_managed_place {
	GPUMEM_MANAGED_ON_DEVICE = 0,
	GPUMEM_MANAGED_ON_HOST = 1,
} gpumem_managed_place;

/*
 * Moves pages after the work that was launched on the stream before. The call itself does not wait.
 * bytes may be 0. GPUMEM_STREAM_ANY and GPUMEM_STREAM_DONE are refused. On the host backend, nothing
 * moves.
 *
 *   GPUMEM_E_INVALID      The range is not inside the memory, or another argument is wrong.
 *   GPUMEM_E_UNSUPPORTED  The platform moves pages by itself only.
 *   GPUMEM_E_SYSTEM       The driver failed. The sentence has its words.
 */
GPUMEM_API gpumem_status gpumem_managed_prefetch(gpumem_managed *managed, size_t offset,
	size_t bytes, gpumem_managed_place place, gpumem_stream stream);

typedef enum gpumem_managed_advice {
	GPUMEM_MANAGED_READ_MOSTLY = 1,       /* copies for reading may be on both sides */
	GPUMEM_MANAGED_UNSET_READ_MOSTLY = 2, /* the default */
	GPUMEM_MANAGED_PREFER = 3,            /* pages should be at that place, and stay there */
	GPUMEM_MANAGED_UNSET_PREFER = 4,
	GPUMEM_MANAGED_ACCESSED_BY =
		5, /* that side uses the memory: the driver keeps it mapped there */
	GPUMEM_MANAGED_UNSET_ACCESSED_BY = 6,
} gpumem_managed_advice;

/* Tells the driver how a part of the memory is used. It changes no content, and may change nothing at
 * all. place is not used with READ_MOSTLY and with the first two UNSET_. Errors are as above. */
GPUMEM_API gpumem_status gpumem_managed_advise(gpumem_managed *managed, size_t offset, size_t bytes,
	gpumem_managed_advice advice, gpumem_managed_place place);

/*
 * Frees managed memory once all work is done that was launched before, on any stream, and then gives the
 * charge back, also while the daemon is away. The call does not wait. managed may be NULL.
 */
GPUMEM_API void gpumem_managed_destroy(gpumem_managed *managed);

/*
 * Declares memory that the program gets from the driver itself: arrays, mipmaps, pools. Call it before
 * the driver makes the memory. If the device is full, the call waits for up to wait_ms. The daemon charges
 * the sum of all declarations of a session, so the program may undeclare them in other pieces than it
 * declared them. device may be GPUMEM_DEVICE_HOST.
 *
 *   GPUMEM_E_INVALID, GPUMEM_E_LIMIT, GPUMEM_E_NO_MEMORY  As above. Nothing is charged.
 */
GPUMEM_API gpumem_status gpumem_declare(
	gpumem_session *session, uint32_t device, uint64_t bytes, uint32_t wait_ms);
/* Says that the program has freed this much declared memory. Never waits for an absent daemon: the library
 * tells the daemon when it is back. GPUMEM_E_INVALID: the session has not declared that much; nothing
 * changes. */
GPUMEM_API gpumem_status gpumem_undeclare(gpumem_session *session, uint32_t device, uint64_t bytes);
/* What the session has declared on a device, managed memory included. */
GPUMEM_API gpumem_status gpumem_declared(
	gpumem_session *session, uint32_t device, uint64_t *ret_bytes);

#ifdef __cplusplus
}
#endif

#endif
