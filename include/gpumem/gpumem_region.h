/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_REGION_H
#define GPUMEM_REGION_H

/*
 * Regions: memory that a program gives away for a while and gets back at the same addresses.
 *
 * A region is a range of addresses with large chunks of its own, from which allocations are carved. All of
 * them carry the region's tag. Programs that use one device by turns, for example to train and to
 * serve, pause their regions when it is the other's turn: the memory goes back to the broker, and the
 * addresses stay. When a region is resumed, everything is where it was.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpumem_region gpumem_region;

typedef struct gpumem_region_options {
	size_t size;
	size_t initial;   /* memory that the region gets at once and keeps; 0: none */
	uint32_t wait_ms; /* how long to wait for it if the device is full, see gpumem.h */
} gpumem_region_options;

#define GPUMEM_REGION_OPTIONS_INIT \
	{ \
		sizeof(gpumem_region_options), 0, 0 \
	}

/*
 * Makes a region on a device, and reserves addresses for max_size bytes. The region gets memory when
 * allocations need it, 256 MiB or more at a time where the device and max_size allow that. What lies above
 * the highest allocation can go back in the same pieces, except for options->initial: gpumem_trim()
 * returns it, and the library does so by itself if others need it.
 *
 * The tag has 1 to 63 bytes and must be unique in the session: GPUMEM_E_BUSY if another region has
 * it. GPUMEM_E_UNSUPPORTED: the device has no fd transport. device may not be
 * GPUMEM_DEVICE_HOST. options may be NULL.
 */
GPUMEM_API gpumem_status gpumem_region_create(gpumem_session *session, uint32_t device,
	const char *tag, size_t max_size, const gpumem_region_options *options,
	gpumem_region **ret_region);
/*
 * Ends a region, paused or not, with everything that was allocated from it. Like gpumem_region_pause(), the
 * call waits for work that was launched before, unless a stream is being captured. No other thread may
 * be using the region. region may be NULL.
 */
GPUMEM_API void gpumem_region_destroy(gpumem_region *region);

/*
 * Allocates from a region, ordered by streams as gpumem_alloc() is. An allocation takes at least 32 KiB. The
 * options' tag is not used. wait_ms says how long to wait if the region needs more memory and the device
 * is full. size must not be 0. options may be NULL. The memory cannot be shared or published.
 *
 *   GPUMEM_E_BUSY   The region is paused, or is being paused or resumed: resume it first. Or the stream is
 *                   being captured into a graph.
 *   GPUMEM_E_LIMIT  The region has no room left for it below its max_size, or as for gpumem_alloc(). Freed memory
 *                   is room even while work uses it, because the stream then waits for that work. This does not
 *                   help GPUMEM_STREAM_ANY, nor an allocation that needs memory which the region never used as well.
 */
GPUMEM_API gpumem_status gpumem_region_alloc(gpumem_region *region, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, void **ret_ptr);
/* Frees memory of the region, paused or not. Never waits for the device. ptr must come from
 * gpumem_region_alloc() on this region, or be NULL. GPUMEM_E_BUSY: the stream is being captured; then
 * nothing was freed. */
GPUMEM_API gpumem_status gpumem_region_free(gpumem_region *region, void *ptr, gpumem_stream stream);

/* What happens to the content of a region that is paused. */
typedef enum gpumem_region_content {
	GPUMEM_REGION_DROP = 0, /* it is lost: after the resume, the content is undefined */
	GPUMEM_REGION_KEEP = 1, /* it goes to pinned host memory, and comes back */
} gpumem_region_content;

/*
 * Pauses the session's region with this tag: its memory goes back to the broker, which may give it to
 * others at once. Addresses and allocations stay. Until the region is resumed, the memory must not be
 * used: a kernel that does fails, and so does its context; on the host backend the program gets a
 * SIGSEGV.
 *
 * The call first waits until all work is done that was launched before, on all streams that
 * GPUMEM_STREAM_ANY means in gpumem_free(). Work that is launched during the call must not use the
 * region.
 *
 * With GPUMEM_REGION_KEEP, what is allocated is copied to pinned host memory, which the broker charges to
 * this client and host_limit bounds. If the call fails, nothing has changed, and the region can be used:
 *
 *   GPUMEM_E_NOT_FOUND  There is no region with this tag in the session.
 *   GPUMEM_E_INVALID    It is paused already.
 *   GPUMEM_E_BUSY       Another thread is making, pausing or resuming it, or a stream is being captured into a
 *                       graph.
 *
 * or as gpumem_host_alloc(), if there is no host memory for the content.
 */
GPUMEM_API gpumem_status gpumem_region_pause(
	gpumem_session *session, const char *tag, gpumem_region_content content);
/*
 * Resumes a paused region. All its memory comes in one request, which waits for up to wait_ms if the
 * device is full (see waiting, in gpumem.h). When the call returns, the memory is at the same addresses
 * and can be used on any stream; if the content was kept, it is there.
 *
 * If the call fails, the region stays paused, content included: GPUMEM_E_NOT_FOUND and GPUMEM_E_BUSY as
 * above, GPUMEM_E_INVALID if it is not paused, or as a request for memory fails.
 */
GPUMEM_API gpumem_status gpumem_region_resume(
	gpumem_session *session, const char *tag, uint32_t wait_ms);

typedef enum gpumem_region_state {
	GPUMEM_REGION_ACTIVE = 0,
	GPUMEM_REGION_PAUSING = 1,
	GPUMEM_REGION_PAUSED = 2,
	GPUMEM_REGION_RESUMING = 3,
} gpumem_region_state;

typedef struct gpumem_region_stats_t {
	size_t size;
	gpumem_region_state state;
	uint32_t device;
	uint64_t max_size;
	uint64_t held;        /* device memory that the region has now; 0 while it is paused */
	uint64_t in_use;      /* allocated and not freed, paused or not */
	uint64_t peak;        /* the highest in_use so far */
	uint64_t needed;      /* device memory for the resume of a paused region, at most */
	uint64_t kept;        /* content in host memory, while it is paused */
	uint64_t allocations; /* not freed yet */
	uint64_t pauses;      /* that succeeded */
} gpumem_region_stats_t;

#define GPUMEM_REGION_STATS_INIT \
	{ \
		sizeof(gpumem_region_stats_t), GPUMEM_REGION_ACTIVE, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* Sends no message. */
GPUMEM_API gpumem_status gpumem_region_stats(
	gpumem_session *session, const char *tag, gpumem_region_stats_t *ret_stats);

static inline void gpumem_region_cleanup(gpumem_region **region)
{
	gpumem_region_destroy(*region);
	*region = NULL;
}
#if defined(__GNUC__)
#define GPUMEM_AUTO_REGION __attribute__((cleanup(gpumem_region_cleanup)))
#endif

#ifdef __cplusplus
}
#endif

#endif
