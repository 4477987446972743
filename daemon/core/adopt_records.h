/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_ADOPT_RECORDS_H
#define GM_CORE_ADOPT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/books/record.h"

/*
 * The records of an earlier daemon as they were read, by kind and id. It promises that a record is whole,
 * with zeros for what an older daemon did not write, and after gm_adopt_records_sort() that no two of a
 * kind have the same id. It must never know what a record means.
 */

struct gm_adopt_entry {
	uint64_t id;
	uint32_t place;
	bool taken;   /* the record belongs to something that was adopted */
	bool lost;    /* of a lease: some of its memory is not there */
	bool missed;  /* of such a lease: a process that lives had it */
	void *object; /* what was adopted: an orphaned account, a session or a lease */
	uint64_t record[];
};

struct gm_adopt_list {
	struct gm_adopt_entry **entries; /* in order of id, unless the owner sorts them otherwise */
	size_t n, room;
};

struct gm_adopt_records {
	struct gm_adopt_list lists[GM_RECORD_KINDS];
};

#define GM_ADOPT_RECORDS_E_DAMAGED 1

/* Zeros are an empty set. */
void gm_adopt_records_deinit(struct gm_adopt_records *records);
/* Whether there are records of this kind. */
bool gm_adopt_records_is_kind(uint32_t kind);
/* Copies a record. GM_ADOPT_RECORDS_E_DAMAGED: it cannot be read. -EPROTONOSUPPORT: a newer daemon wrote
 * it. -ENOMEM */
int gm_adopt_records_add(struct gm_adopt_records *records, uint32_t kind, uint64_t id,
	uint32_t place, const void *bytes, size_t size);
/* Sorts the records; all must have been added. If several of a kind have the same id, removes all of them: calls drop()
 * with each, which must not keep it. */
void gm_adopt_records_sort(struct gm_adopt_records *records,
	void (*drop)(void *ctx, uint32_t kind, struct gm_adopt_entry *entry), void *ctx);
/* Finds an entry by its id: the lists are sorted. Returns NULL if there is none. */
struct gm_adopt_entry *gm_adopt_records_find(
	const struct gm_adopt_records *records, uint32_t kind, uint64_t id);

#endif
