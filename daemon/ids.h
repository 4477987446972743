/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IDS_H
#define GM_DAEMON_IDS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Numbers for sessions, leases and chunks that are never given twice, not even by the next run of
 * the daemon. They come in blocks of 2^32; a run takes the block that a small file names and writes
 * the next one into it before it uses any. A block is never below the seconds since 1,700,000,000
 * of Unix time, so that a lost file (or none) is harmless as long as the clock is right.
 */
#define GM_IDS_EPOCH      INT64_C(1700000000)
#define GM_IDS_FILE_BYTES 4096

struct gm_ids {
	char file[GM_IDS_FILE_BYTES]; /* "": none */
	uint64_t block;
	uint64_t generation; /* the first block of this run: it grows with every start */
	uint32_t used;       /* of the block */
};

/*
 * file may be NULL. unix_seconds is the time now. *ret_stored: whether the file could be written;
 * if not, only the clock stands between two runs. 0; -ENAMETOOLONG.
 */
int gm_ids_init(struct gm_ids *ids, const char *file, int64_t unix_seconds, bool *ret_stored);
uint64_t gm_ids_next(struct gm_ids *ids); /* never 0 */

#endif
