/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the records of an earlier daemon until they are adopted. They come in any order, from a file that
 * may be damaged, so each is checked against its head before it is copied.
 */
#include "daemon/core/adopt_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t records_size(uint32_t kind)
{
	switch (kind) {
#define RECORDS_SIZE(name, number, type, text) \
	case GM_RECORD_##name: \
		return sizeof(struct type);
		GM_RECORDS(RECORDS_SIZE)
#undef RECORDS_SIZE
	default:
		return 0;
	}
}

void gm_adopt_records_deinit(struct gm_adopt_records *records)
{
	for (uint32_t kind = 0; kind < GM_RECORD_KINDS; kind++) {
		for (size_t i = 0; i < records->lists[kind].n; i++)
			free(records->lists[kind].entries[i]);
		free(records->lists[kind].entries);
	}
}

bool gm_adopt_records_is_kind(uint32_t kind)
{
	return records_size(kind) != 0;
}

static int records_grow(struct gm_adopt_list *list)
{
	size_t room = list->room ? 2 * list->room : 64;
	struct gm_adopt_entry **entries = realloc(list->entries, room * sizeof(entries[0]));
	if (!entries)
		return -ENOMEM;
	list->entries = entries;
	list->room = room;
	return 0;
}

int gm_adopt_records_add(struct gm_adopt_records *records, uint32_t kind, uint64_t id,
	uint32_t place, const void *bytes, size_t size)
{
	size_t room = records_size(kind);
	struct gm_record head = {0};
	if (size >= sizeof(head))
		memcpy(&head, bytes, sizeof(head));
	bool whole = id != 0 && head.size == size && head.id == id && head.kind == kind &&
		     head.format != 0;
	/* Giving it up would give up what a newer daemon could still use. */
	if (whole && head.format > GM_RECORD_FORMAT)
		return -EPROTONOSUPPORT;
	if (!whole || room == 0 || size > room)
		return GM_ADOPT_RECORDS_E_DAMAGED;

	struct gm_adopt_list *list = &records->lists[kind];
	if (list->n == list->room && records_grow(list) < 0)
		return -ENOMEM;
	struct gm_adopt_entry *entry = calloc(1, sizeof(*entry) + room);
	if (!entry)
		return -ENOMEM;
	entry->id = id;
	entry->place = place;
	memcpy(entry->record, bytes, size);
	list->entries[list->n++] = entry;
	return 0;
}

static int records_by_id(const void *a, const void *b)
{
	const struct gm_adopt_entry *x = *(struct gm_adopt_entry *const *)a;
	const struct gm_adopt_entry *y = *(struct gm_adopt_entry *const *)b;
	return x->id < y->id ? -1 : x->id > y->id;
}

void gm_adopt_records_sort(struct gm_adopt_records *records,
	void (*drop)(void *ctx, uint32_t kind, struct gm_adopt_entry *entry), void *ctx)
{
	for (uint32_t kind = 0; kind < GM_RECORD_KINDS; kind++) {
		struct gm_adopt_list *list = &records->lists[kind];
		size_t kept = 0;
		if (list->n > 0)
			qsort(list->entries, list->n, sizeof(list->entries[0]), records_by_id);

		for (size_t i = 0, next; i < list->n; i = next) {
			for (next = i + 1; next < list->n; next++)
				if (list->entries[next]->id != list->entries[i]->id)
					break;
			if (next == i + 1) {
				list->entries[kept++] = list->entries[i];
				continue;
			}
			for (size_t j = i; j < next; j++) {
				drop(ctx, kind, list->entries[j]);
				free(list->entries[j]);
			}
		}
		list->n = kept;
	}
}

struct gm_adopt_entry *gm_adopt_records_find(
	const struct gm_adopt_records *records, uint32_t kind, uint64_t id)
{
	const struct gm_adopt_list *list = &records->lists[kind];
	size_t low = 0, high = list->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (list->entries[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < list->n && list->entries[low]->id == id ? list->entries[low] : NULL;
}
