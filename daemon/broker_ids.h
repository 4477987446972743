/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BROKER_IDS_H
#define GM_DAEMON_BROKER_IDS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Ids for sessions, leases and chunks, which are never given twice, not even by the next run of the
 * daemon. They come in blocks of 2^22. A small file names the next block. Each run takes that
 * block, and writes the one after it into the file before it uses any id. A block's number is at
 * least the seconds of Unix time since 1,700,000,000, so a missing file does no harm while the
 * clock is right and no run uses up a block a second.
 *
 * Ids stay below 2^53, so that a JSON reader which keeps numbers as doubles keeps them exact. Block
 * numbers get there in 2091.
 */
#define GM_BROKER_IDS_EPOCH      INT64_C(1700000000)
#define GM_BROKER_IDS_BLOCK_BITS 22
#define GM_BROKER_IDS_FILE_BYTES 4096

struct gm_broker_ids {
	char file[GM_BROKER_IDS_FILE_BYTES]; /* "": none */
	uint64_t block;
	uint64_t generation; /* the first block of this run: it grows with every start */
	uint32_t used;       /* of the block */
};

/* file may be NULL. unix_seconds is the time now. *ret_stored says whether the file could be
 * written; if not, only the clock keeps the ids of two runs apart. Returns 0 or -ENAMETOOLONG. */
int gm_broker_ids_init(
	struct gm_broker_ids *ids, const char *file, int64_t unix_seconds, bool *ret_stored);
/* Returns a new id, never 0. */
uint64_t gm_broker_ids_next(struct gm_broker_ids *ids);

#endif
