/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights there are, and removing them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cancel.h"
#include "weights/weights.h"
#include "weights/weights_error.h"

/* A name with its owner: "uid:4294967294/" and at most 63 bytes. */
#define LIST_NAME_BYTES 96

struct list_row {
	gpumem_weights_entry entry;
	char name[LIST_NAME_BYTES];
};

struct weights_list {
	struct list_row *rows;
	size_t n, room;
	bool no_memory;
};

static void list_add(void *user, const gpumem_name *name)
{
	struct weights_list *list = user;
	uint64_t tensors, bytes;

	if (list->no_memory || !gm_weights_tag_read(name, &tensors, &bytes))
		return;
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 16;
		struct list_row *rows = realloc(list->rows, room * sizeof(*rows));

		list->no_memory = !rows;
		if (!rows)
			return;
		list->rows = rows;
		list->room = room;
	}

	struct list_row *row = &list->rows[list->n++];
	*row = (struct list_row){.entry = {.version = name->version,
					 .tensors = tensors,
					 .bytes = bytes,
					 .device = name->device,
					 .owner = name->owner,
					 .readers = name->readers}};
	if (name->own)
		snprintf(row->name, sizeof(row->name), "%s", name->name);
	else
		snprintf(row->name, sizeof(row->name), "uid:%u/%s", name->owner, name->name);
}

static int list_compare(const void *a, const void *b)
{
	const struct list_row *x = a, *y = b;

	if (x->entry.owner != y->entry.owner && strchr(x->name, '/') && strchr(y->name, '/'))
		return x->entry.owner < y->entry.owner ? -1 : 1;
	/* One's own come first. */
	if (!strchr(x->name, '/') != !strchr(y->name, '/'))
		return strchr(x->name, '/') ? 1 : -1;
	return strcmp(x->name, y->name);
}

/* The entries, and behind them their names, are one block. */
static gpumem_weights_entry *list_pack(const struct weights_list *list)
{
	gpumem_weights_entry *entries = malloc(list->n * (sizeof(*entries) + LIST_NAME_BYTES));
	char *names = (char *)(entries + list->n);

	for (size_t i = 0; entries && i < list->n; i++) {
		entries[i] = list->rows[i].entry;
		entries[i].name =
			memcpy(names + i * LIST_NAME_BYTES, list->rows[i].name, LIST_NAME_BYTES);
	}
	return entries;
}

gpumem_status gpumem_weights_list(
	gpumem_session *session, gpumem_weights_entry **ret_entries, size_t *ret_count)
{
	GM_UNCANCELLED;
	struct weights_list list = {0};
	gpumem_weights_entry *entries = NULL;

	if (!ret_entries || !ret_count)
		return gm_weights_error(GPUMEM_E_INVALID, "%s must not be NULL",
			ret_entries ? "ret_count" : "ret_entries");
	gpumem_status status = gpumem_names(session, list_add, &list);
	if (!status && !list.no_memory && list.n) {
		qsort(list.rows, list.n, sizeof(*list.rows), list_compare);
		entries = list_pack(&list);
		list.no_memory = !entries;
	}
	if (!status && list.no_memory)
		status =
			gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the list of weights");
	free(list.rows);
	if (status)
		return status;
	*ret_entries = entries;
	*ret_count = list.n;
	return GPUMEM_OK;
}

void gpumem_weights_list_free(gpumem_weights_entry *entries)
{
	free(entries);
}

gpumem_status gpumem_weights_remove(gpumem_session *session, const char *name)
{
	GM_UNCANCELLED;
	struct gm_weights_found found;

	gpumem_status status = gm_weights_look(session, name, &found);
	if (status)
		return status;
	if (!found.weights)
		return gm_weights_error(GPUMEM_E_NOT_FOUND,
			found.exists
				? "%.80s is the name of a buffer without weights; to remove it, "
				  "use 'gpumemctl shares remove %.80s'"
				: "there are no weights with the name %.80s; see 'gpumemctl "
				  "weights list'",
			name, name);
	return gpumem_unpublish(session, name);
}
