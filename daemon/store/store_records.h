/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_STORE_STORE_RECORDS_H
#define GM_DAEMON_STORE_STORE_RECORDS_H

#include <stddef.h>
#include <stdint.h>

/*
 * The store that outlives the daemon: records in a memfd, of which the keeper has a copy. Writing a record only
 * stores to memory. A process that dies at any instruction leaves each record as it was before
 * or after a call here, never half written. Nothing protects against the death of the machine: then the memory
 * that the records are about is gone as well.
 *
 * The file is a header and extents of 64 KiB. An extent has slots of one size, and a slot has room for
 * two copies of a record. A new version of the record goes into the copy that is not in force, with a
 * generation of one more and a checksum. The generation is written last, and puts it into force.
 */
struct gm_store_records;

#define GM_STORE_RECORDS_FORMAT 1
/* The longest record. */
#define GM_STORE_RECORDS_BYTES 2016

typedef void (*gm_store_records_visit)(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size);

#define GM_STORE_RECORDS_WHY 256
/* Makes an empty store. On error, why names the cause. most: bytes of the file; 0: as many as
 * it ever takes. */
int gm_store_records_new(
	uint64_t most, struct gm_store_records **ret_records, char why[GM_STORE_RECORDS_WHY]);
/*
 * Opens a store that another daemon wrote. Takes ownership of the fd, except on error. What is
 * damaged is counted and removed. -EPROTONOSUPPORT: a newer version wrote it. -EBADMSG: it is no
 * store, or its header is damaged.
 */
int gm_store_records_open(
	int fd, struct gm_store_records **ret_records, char why[GM_STORE_RECORDS_WHY]);
void gm_store_records_free(
	struct gm_store_records *records); /* may be NULL; the file lives on in the keeper */
int gm_store_records_fd(const struct gm_store_records *records);

/*
 * Writes a record. *place is the caller's note of where the record is. 0: nowhere yet, and this sets
 * it; otherwise the record there is replaced. When this returns 0, the record is in force.
 *   -ENOSPC, -ENOMEM   there is no room for one more; replacing never fails so
 *   -EMSGSIZE          it is longer than GM_STORE_RECORDS_BYTES, or than its slot: those have room for 96,
 *                      224, 480, 992 and 2,016 bytes
 */
int gm_store_records_write(struct gm_store_records *records, uint32_t kind, uint64_t id,
	uint32_t *place, const void *bytes, size_t size);
/* Forgets the record and sets *place to 0. Does nothing if it is 0. */
void gm_store_records_erase(struct gm_store_records *records, uint32_t *place);
/* Visits all records of a kind; 0: of all kinds. The bytes are aligned to 8 and valid during the
 * call. visit() may write or erase the record that it is shown, and no other. */
void gm_store_records_each(const struct gm_store_records *records, uint32_t kind,
	gm_store_records_visit visit, void *ctx);

struct gm_store_records_state {
	uint64_t records;
	uint64_t damaged; /* found by gm_store_records_open(), and gone */
	uint64_t bytes;   /* of the file */
};
void gm_store_records_get_state(
	const struct gm_store_records *records, struct gm_store_records_state *ret);

#endif
