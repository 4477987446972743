/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References (struct gm_keeper_ref): who needs what while there is no daemon. The keeper knows which
 * processes live, by their pidfds, and follows the references from these. It never reads a record.
 */
#include "keeper/keeper_private.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/log.h"

struct keeper_node {
	uint64_t id;
	bool needed;
	UT_hash_handle hh;
};

/* The references, and all ids that occur in them. */
struct keeper_refs {
	const struct gm_keeper_ref *refs;
	size_t n, bytes;
	struct keeper_node *nodes;
	bool always; /* some are always needed */
};

static bool keeper_process_lives(const struct keeper_item *item)
{
	struct pollfd p = {.fd = item->fd, .events = POLLIN};
	return poll(&p, 1, 0) <= 0;
}

unsigned gm_keeper_count_ended(const struct gm_keeper *keeper)
{
	const struct keeper_item *item;
	unsigned n = 0;
	for (item = keeper->items; item; item = item->hh.next)
		n += item->key.kind == GM_STORE_PROCESS && !keeper_process_lives(item);
	return n;
}

/* ---- the references */

static struct keeper_node *keeper_refs_find(const struct keeper_refs *refs, uint64_t id)
{
	struct keeper_node *node;
	HASH_FIND(hh, refs->nodes, &id, sizeof(id), node);
	return node;
}

/* Returns false if there is no memory. */
static bool keeper_refs_add(struct keeper_refs *refs, uint64_t id, bool needed)
{
	struct keeper_node *node = keeper_refs_find(refs, id);
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (!node)
			return false;
		node->id = id;
		HASH_ADD(hh, refs->nodes, id, sizeof(node->id), node);
		if (!node->hh.tbl) {
			free(node);
			return false;
		}
	}
	node->needed |= needed;
	return true;
}

static void keeper_refs_deinit(struct keeper_refs *refs)
{
	struct keeper_node *node, *next;
	HASH_ITER (hh, refs->nodes, node, next) {
		HASH_DEL(refs->nodes, node);
		free(node);
	}
	if (refs->refs)
		munmap((void *)refs->refs, refs->bytes);
}

/* Maps the references. -ENODATA: there are none, or not all of them. */
static int keeper_refs_map(struct keeper_refs *refs, const struct gm_keeper *keeper)
{
	const struct keeper_item *item = keeper->items;
	struct stat st;
	while (item && item->key.kind != GM_STORE_REFS)
		item = item->hh.next;
	if (!item || fstat(item->fd, &st) < 0 || (size_t)st.st_size < sizeof(refs->refs[0]))
		return -ENODATA;
	refs->bytes = (size_t)st.st_size;
	void *map = mmap(NULL, refs->bytes, PROT_READ, MAP_SHARED, item->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	refs->refs = map;
	refs->n = refs->bytes / sizeof(refs->refs[0]);
	return refs->refs[0].child == GM_KEEPER_REFS_MAGIC && refs->refs[0].parent ? 0 : -ENODATA;
}

/* Adds all processes, and everything that needs something else. */
static bool keeper_refs_read(struct keeper_refs *refs, const struct gm_keeper *keeper)
{
	const struct keeper_item *item;
	for (item = keeper->items; item; item = item->hh.next)
		if (item->key.kind == GM_STORE_PROCESS &&
			!keeper_refs_add(refs, item->key.id, keeper_process_lives(item)))
			return false;
	for (size_t i = 1; i < refs->n; i++)
		if (refs->refs[i].child && !keeper_refs_add(refs, refs->refs[i].child, false))
			return false;
	return true;
}

/* Follows the references until nothing changes. They are three deep. */
static void keeper_refs_follow(struct keeper_refs *refs)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (size_t i = 1; i < refs->n; i++) {
			const struct gm_keeper_ref *ref = &refs->refs[i];
			if (!ref->child || !ref->parent)
				continue;
			bool always = ref->parent == GM_KEEPER_ALWAYS;
			const struct keeper_node *parent = keeper_refs_find(refs, ref->parent);
			struct keeper_node *child = keeper_refs_find(refs, ref->child);
			refs->always |= always;
			/* An unknown parent counts as needed. */
			if (!child->needed && (always || !parent || parent->needed))
				changed = child->needed = true;
		}
	}
}

/* Closes the chunks that nobody needs. Returns whether anything is left that somebody does. */
static bool keeper_refs_apply(const struct keeper_refs *refs, struct gm_keeper *keeper)
{
	struct keeper_item *item, *next;
	unsigned closed = 0;
	bool left = refs->always;

	HASH_ITER (hh, keeper->items, item, next) {
		const struct keeper_node *node = keeper_refs_find(refs, item->key.id);
		bool needed = node && node->needed;
		if (item->key.kind == GM_STORE_CHUNK && !needed) {
			gm_keeper_forget(keeper, item);
			closed++;
		} else if (item->key.kind == GM_STORE_CHUNK || item->key.kind == GM_STORE_PROCESS) {
			left |= needed;
		}
	}
	if (closed)
		gm_log(GM_LOG_NOTICE,
			"closed %u chunk%s that no process needs any more; there is no daemon",
			closed, closed == 1 ? "" : "s");
	return left;
}

int gm_keeper_release(struct gm_keeper *keeper)
{
	struct keeper_refs refs = {0};
	int r = keeper_refs_map(&refs, keeper);
	if (r == 0 && !keeper_refs_read(&refs, keeper))
		r = -ENOMEM;
	if (r == 0) {
		keeper_refs_follow(&refs);
		r = keeper_refs_apply(&refs, keeper);
	}
	keeper_refs_deinit(&refs);
	return r;
}
