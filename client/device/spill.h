/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_SPILL_H
#define GM_CLIENT_DEVICE_SPILL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/device/retired.h"
#include "client/session/gpumem_session.h"
#include "client/grant/session_lease.h"

/*
 * The content of a range of device memory, kept in pinned host memory that is leased for it. While it is
 * there, the range needs no device memory, and its addresses stay reserved.
 *
 * The owner of the range unmaps its device memory and gives that back after gm_spill_out(), and leases
 * and maps new device memory before gm_spill_in(). So each call fails without losing content: until the
 * owner has done its part, the content is still where it was.
 *
 *       gm_spill_out()              gm_spill_lay_under()
 *   device ----------> at its place <--------------------> under the range <--- gm_spill_make()
 *          <----------                 gm_spill_lift()
 *       gm_spill_in()
 *
 * For a buffer, those are the states HERE, AWAY and UNDER (gpumem_buffer.h), with LEAVING and COMING in
 * between. A region that is paused with its content has it at its place.
 *
 * Nothing may use the range while one of these functions runs. They wait for their own copy, and hold no
 * lock meanwhile. One spill is used by one thread at a time.
 */
struct gm_spill {
	struct gm_retired retired; /* first: the pointers are converted */
	struct gpumem_session *session;
	uint32_t device; /* of the range, by its index */
	uint64_t bytes;  /* of content */
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks; /* without handles: they are mapped */
	uint64_t mapped;                 /* bytes of the chunks */
	void *place;                     /* addresses of its own, for as many bytes */
	void *under; /* the range that the host memory lies under; NULL: it is at its place */
	bool direct; /* it can lie under a range of the device */
	bool cpu;    /* the CPU can use it while it lies there */
};

/* A part of the content. */
struct gm_spill_part {
	void *addr;
	uint64_t bytes;
};

/* Whether content of this device can be moved to host memory; if not, says why. Prepares the host memory
 * for mapping. */
gpumem_status gm_spill_check(struct gpumem_session *session, uint32_t device);

/* Leases host memory and copies the content there. All work that uses the range must be done. On error
 * nothing is held, and the range is as it was. */
gpumem_status gm_spill_out(struct gpumem_session *session, uint32_t device, const void *addr,
	uint64_t bytes, const char *tag, const struct gm_wait *wait, struct gm_spill **ret_spill);
/* The same for parts of a range, which lie one after the other in the host memory. */
gpumem_status gm_spill_out_parts(struct gpumem_session *session, uint32_t device,
	const struct gm_spill_part *parts, size_t n, const char *tag, const struct gm_wait *wait,
	struct gm_spill **ret_spill);
/* Leases host memory because the device is full, and maps it under an empty range that has this room, for the
 * device and the CPU. Its content is arbitrary. On error nothing is held. */
gpumem_status gm_spill_make(struct gpumem_session *session, uint32_t device, void *addr,
	uint64_t room, uint64_t bytes, const char *tag, struct gm_spill **ret_spill);
/* Copies the content to a range that has device memory. The host memory must be at its place. On error
 * the spill still has the content. */
gpumem_status gm_spill_in(const struct gm_spill *spill, void *addr);
/* Copies a part of the content, from this offset in the host memory on. Fails like gm_spill_in(). */
gpumem_status gm_spill_in_part(
	const struct gm_spill *spill, uint64_t offset, const struct gm_spill_part *part);

/*
 * Maps the host memory under an empty range, so that the device reaches the content there, more slowly;
 * and the CPU, if cpu is set. The range must have room for mapped bytes. On error, the host memory is at its place.
 * GPUMEM_E_UNSUPPORTED: it cannot lie there.
 */
gpumem_status gm_spill_lay_under(struct gm_spill *spill, void *addr, uint64_t room);
/* Moves the host memory from under the range to its own place. On error, it stays under the range. */
gpumem_status gm_spill_lift(struct gm_spill *spill);

/* Unmaps the host memory, gives it back and frees the spill, which may be NULL. The content is lost. If the
 * memory cannot be unmapped, it stays leased, and the session's kept is set. Never waits: memory that was
 * registered for the driver is retired until the work is done that was launched before (retired.h), because the
 * driver ends no registration earlier. */
void gm_spill_drop(struct gm_spill *spill);
/* The same at the end of the session, without a message. */
void gm_spill_forget(struct gm_spill *spill);

#endif
