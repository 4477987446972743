/* SPDX-License-Identifier: Apache-2.0 */
/* The items, by kind and id, and the queue of those about which something is to be sent. */
#include "daemon/store/store_private.h"

#include <stdlib.h>

#include <utlist.h>

#include "common/cleanup.h"

struct gm_store_item *gm_store_item_find(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id)
{
	struct gm_store_key key = {.id = id, .kind = kind};
	struct gm_store_item *item;

	HASH_FIND(hh, store->items, &key, sizeof(key), item);
	return item;
}

struct gm_store_item *gm_store_item_add(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id, int fd)
{
	struct gm_store_item *item = calloc(1, sizeof(*item));
	if (!item)
		return NULL;
	item->key = (struct gm_store_key){.id = id, .kind = kind};
	item->fd = fd;
	HASH_ADD(hh, store->items, key, sizeof(item->key), item);
	if (!item->hh.tbl) {
		free(item);
		return NULL;
	}
	return item;
}

void gm_store_item_enqueue(struct gm_store *store, struct gm_store_item *item)
{
	if (item->queued)
		return;
	item->queued = true;
	store->waiting += !item->closing;
	DL_APPEND(store->queue, item);
}

void gm_store_item_dequeue(struct gm_store *store, struct gm_store_item *item)
{
	if (!item->queued)
		return;
	item->queued = false;
	store->waiting -= !item->closing;
	DL_DELETE(store->queue, item);
}

void gm_store_item_set_closing(struct gm_store *store, struct gm_store_item *item, bool closing)
{
	store->closing += (uint64_t)closing - item->closing;
	item->closing = closing;
}

void gm_store_item_drop(struct gm_store *store, struct gm_store_item *item)
{
	gm_store_item_dequeue(store, item);
	gm_store_item_set_closing(store, item, false);
	HASH_DEL(store->items, item);
	if (item->owned)
		gm_close(item->fd);
	free(item);
}
