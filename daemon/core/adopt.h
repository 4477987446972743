/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_ADOPT_H
#define GM_CORE_ADOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/books/record.h"
#include "daemon/core/adopt_ops.h"

/*
 * Adoption: after a start, core takes back what the records of an earlier daemon tell. Only what is
 * sound is adopted, and a record whose uid does not agree with those it belongs to is not. Whatever is
 * not adopted is erased, and counted.
 *
 * Sessions begin as quarantined, so clients resume them with their tokens. Adopted chunks are never
 * pooled. Call this between gm_core_begin_adoption() and gm_core_end_adoption().
 */
struct gm_adopt;
struct gm_core;

int gm_adopt_new(struct gm_core *core, struct gm_adopt **ret_adopt);
void gm_adopt_free(struct gm_adopt *adopt);
/* Takes note of a record, and copies it. A record that cannot be read is counted as damaged.
 * -EPROTONOSUPPORT: a newer daemon wrote it. Then the daemon must end without another call into core.
 * -ENOMEM */
int gm_adopt_add(struct gm_adopt *adopt, uint32_t kind, uint64_t id, uint32_t place,
	const void *bytes, size_t size);

/*
 * Whether the earlier daemon had none of this daemon's devices, except for pinned host memory, and clients hold memory of
 * its own ones. Call this when all records were added.
 */
bool gm_adopt_is_elsewhere(const struct gm_adopt *adopt);

struct gm_adopt_result {
	uint64_t records;
	uint64_t adopted[GM_RECORD_KINDS];
	uint64_t damaged[GM_RECORD_KINDS]; /* and what cannot be kept without them */
	uint64_t lost;                     /* chunks whose memory is not there */
	uint64_t incomplete;   /* leases of living processes, and names, given up because of that */
	uint64_t unfinished;   /* records of what the daemon had begun when it ended */
	uint64_t contradicted; /* limits of which nothing goes together with the configuration */
	uint64_t ipc;          /* leases on the ipc transport: their memory ended with its daemon */
	uint64_t elsewhere
		[GM_RECORD_KINDS]; /* they are about devices that this daemon does not have */
};

/* Adopts the records; all must have been added. Frees adopt. Returns 0, a shortage (gm_adopt_is_shortage()), gm_adopt_is_unseen() or
 * gm_adopt_is_unusable(): then some records were adopted and none was erased, and the daemon must end without another call into core. */
int gm_core_adopt(struct gm_adopt *adopt, const struct gm_adopt_ops *ops, void *ctx,
	struct gm_adopt_result *ret_result);

#endif
