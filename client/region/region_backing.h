/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_REGION_BACKING_H
#define GM_CLIENT_REGION_REGION_BACKING_H

#include <stddef.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"
#include "client/grant/session_lease.h"

/* A lease of a ground. */
struct gm_region_backing_lease {
	struct gm_session_lease *lease;
	uint64_t bytes; /* that its chunks have */
	size_t chunks;
};

/*
 * A range of addresses that has memory from its start up to some point, without a hole. The memory comes
 * and goes in whole leases; the addresses stay. Nothing here takes a lock: the owner lets one thread at a
 * time call these functions.
 */
struct gm_region_backing {
	struct gpumem_session *session;
	uint32_t device; /* by its index */
	uint8_t *base;
	uint64_t room;                          /* bytes of the range */
	uint64_t mapped;                        /* bytes that have memory */
	uint64_t chunks;                        /* under them */
	struct gm_region_backing_lease *leases; /* in the order of their addresses */
	size_t n, space;
};

/* Reserves addresses for reach bytes, a multiple of GM_CHUNK_MIN, and for what the daemon may give beyond
 * that. The device must be prepared for mapping. On error, nothing is held. */
gpumem_status gm_region_backing_init(struct gm_region_backing *ground,
	struct gpumem_session *session, uint32_t device, uint64_t reach);
/* Unmaps everything and frees the range. give: gives the leases back; otherwise the end of the session does.
 * Memory that the driver does not unmap stays leased, and the session's kept is set. ground may be all zeros. */
void gm_region_backing_deinit(struct gm_region_backing *ground, bool give);

/* The properties of a lease that the ground can use; the caller sets bytes. */
struct gm_lease_what gm_region_backing_what(
	const struct gm_region_backing *ground, const char *tag);
/* Maps the chunks of a lease behind what is there. Takes ownership of the chunks. On error the ground is as
 * before, and the caller must give the lease to gm_region_backing_refuse(). If *lease is NULL then, the driver does not unmap
 * it, and it stays leased. */
gpumem_status gm_region_backing_add(struct gm_region_backing *ground,
	struct gm_session_lease **lease, struct gm_session_chunk *chunks);
/* Gives back a lease that is not wanted after all. Takes ownership of both, which may be NULL, and keeps the
 * sentence about an error. Waits for the daemon, so the caller should hold no lock. */
void gm_region_backing_refuse(const struct gm_region_backing *ground,
	struct gm_session_lease *lease, struct gm_session_chunk *chunks);
/* The bytes of all leases that lie wholly behind the first `keep` bytes. */
uint64_t gm_region_backing_spare(const struct gm_region_backing *ground, uint64_t keep);
/* Unmaps such leases, the last ones first, until at least `bytes` are unmapped. Returns how many bytes that were, and
 * the leases, for gm_region_backing_give(). If they cannot be unmapped, nothing has changed. */
uint64_t gm_region_backing_shrink(struct gm_region_backing *ground, uint64_t keep, uint64_t bytes,
	struct gm_region_backing_lease **ret_gone, size_t *ret_n);
/* Gives such leases back and frees their list, which may be NULL. Waits for the daemon. */
void gm_region_backing_give(
	struct gpumem_session *session, struct gm_region_backing_lease *gone, size_t n);
/* Unmaps everything and gives it back. On error nothing has gone back, and all of it may be used as
 * before. */
gpumem_status gm_region_backing_clear(struct gm_region_backing *ground);

#endif
