/* SPDX-License-Identifier: Apache-2.0 */
/* The items, by kind and id, and the queue of those about which something is to be sent. */
#include "daemon/keep/keep_private.h"

#include <stdlib.h>

#include <utlist.h>

#include "common/cleanup.h"

struct gm_keep_item *gm_keep_item_find(struct gm_keep *keep, enum gm_keep_kind kind, uint64_t id)
{
	struct gm_keep_key key = {.id = id, .kind = kind};
	struct gm_keep_item *item;

	HASH_FIND(hh, keep->items, &key, sizeof(key), item);
	return item;
}

struct gm_keep_item *gm_keep_item_add(
	struct gm_keep *keep, enum gm_keep_kind kind, uint64_t id, int fd)
{
	struct gm_keep_item *item = calloc(1, sizeof(*item));
	if (!item)
		return NULL;
	item->key = (struct gm_keep_key){.id = id, .kind = kind};
	item->fd = fd;
	HASH_ADD(hh, keep->items, key, sizeof(item->key), item);
	if (!item->hh.tbl) {
		free(item);
		return NULL;
	}
	return item;
}

void gm_keep_item_enqueue(struct gm_keep *keep, struct gm_keep_item *item)
{
	if (item->queued)
		return;
	item->queued = true;
	keep->waiting += !item->closing;
	DL_APPEND(keep->queue, item);
}

void gm_keep_item_dequeue(struct gm_keep *keep, struct gm_keep_item *item)
{
	if (!item->queued)
		return;
	item->queued = false;
	keep->waiting -= !item->closing;
	DL_DELETE(keep->queue, item);
}

void gm_keep_item_set_closing(struct gm_keep *keep, struct gm_keep_item *item, bool closing)
{
	keep->closing += (uint64_t)closing - item->closing;
	item->closing = closing;
}

void gm_keep_item_drop(struct gm_keep *keep, struct gm_keep_item *item)
{
	gm_keep_item_dequeue(keep, item);
	gm_keep_item_set_closing(keep, item, false);
	HASH_DEL(keep->items, item);
	if (item->owned)
		gm_close(item->fd);
	free(item);
}
