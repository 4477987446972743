/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A treap: a search tree by address, and a heap by random weights, which keep it shallow.
 */
#include "preload/table/preload_blocks.h"
#include "common/lock.h"

#include <stdatomic.h>
#include <stdlib.h>

struct blocks_node {
	struct gm_preload_block block;
	uint32_t weight;
	struct blocks_node *left, *right;
};

static struct gm_lock blocks_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct blocks_node *blocks_root;
static struct blocks_node *blocks_spare; /* by left; as many as there ever were at once */
static uint64_t blocks_serial, blocks_bytes, blocks_spilled;
static uint32_t blocks_seed = 2463534242u;
static _Atomic gm_cu_ptr blocks_low = UINT64_MAX, blocks_high;

static uint32_t blocks_random(void)
{
	blocks_seed ^= blocks_seed << 13;
	blocks_seed ^= blocks_seed >> 17;
	blocks_seed ^= blocks_seed << 5;
	return blocks_seed;
}

/* Everything below the address goes to the left. */
static void blocks_split(struct blocks_node *node, gm_cu_ptr at, struct blocks_node **ret_left,
	struct blocks_node **ret_right)
{
	while (node) {
		if (node->block.base < at) {
			*ret_left = node;
			ret_left = &node->right;
			node = node->right;
		} else {
			*ret_right = node;
			ret_right = &node->left;
			node = node->left;
		}
	}
	*ret_left = *ret_right = NULL;
}

/* Everything in left lies below everything in right. */
static struct blocks_node *blocks_join(struct blocks_node *left, struct blocks_node *right)
{
	struct blocks_node *root = NULL, **place = &root;

	while (left && right) {
		if (left->weight > right->weight) {
			*place = left;
			place = &left->right;
			left = left->right;
		} else {
			*place = right;
			place = &right->left;
			right = right->left;
		}
	}
	*place = left ? left : right;
	return root;
}

static void blocks_insert(struct blocks_node *node)
{
	struct blocks_node **place = &blocks_root;

	while (*place && (*place)->weight >= node->weight)
		place = node->block.base < (*place)->block.base ? &(*place)->left
								: &(*place)->right;
	blocks_split(*place, node->block.base, &node->left, &node->right);
	*place = node;
}

bool gm_preload_blocks_add(const struct gm_preload_block *block)
{
	gm_lock(&blocks_lock);
	struct blocks_node *node = blocks_spare;
	if (node)
		blocks_spare = node->left;
	else
		node = malloc(sizeof *node);
	if (!node) {
		gm_lock_drop(&blocks_lock);
		return false;
	}

	node->block = *block;
	if (!block->serial) {
		node->block.serial = ++blocks_serial;
		blocks_bytes += block->bytes;
		blocks_spilled += block->spilled ? block->bytes : 0;
	}
	node->weight = blocks_random();
	if (block->base < atomic_load_explicit(&blocks_low, memory_order_relaxed))
		atomic_store_explicit(&blocks_low, block->base, memory_order_relaxed);
	if (block->base + block->bytes > atomic_load_explicit(&blocks_high, memory_order_relaxed))
		atomic_store_explicit(
			&blocks_high, block->base + block->bytes, memory_order_relaxed);
	blocks_insert(node);
	gm_lock_drop(&blocks_lock);
	return true;
}

bool gm_preload_blocks_near(gm_cu_ptr ptr)
{
	return ptr >= atomic_load_explicit(&blocks_low, memory_order_relaxed) &&
	       ptr < atomic_load_explicit(&blocks_high, memory_order_relaxed);
}

bool gm_preload_blocks_find(gm_cu_ptr ptr, struct gm_preload_block *ret_block)
{
	struct blocks_node *node, *below = NULL;

	gm_lock(&blocks_lock);
	node = blocks_root;
	while (node) {
		if (node->block.base <= ptr)
			below = node;
		node = node->block.base <= ptr ? node->right : node->left;
	}
	bool found = below && ptr - below->block.base < below->block.bytes;
	if (found)
		*ret_block = below->block;
	gm_lock_drop(&blocks_lock);
	return found;
}

void gm_preload_blocks_total(uint64_t *ret_n, uint64_t *ret_bytes, uint64_t *ret_spilled)
{
	gm_lock(&blocks_lock);
	*ret_n = blocks_serial;
	*ret_bytes = blocks_bytes;
	*ret_spilled = blocks_spilled;
	gm_lock_drop(&blocks_lock);
}

/* Takes out what a place of the tree has. */
static void blocks_remove(struct blocks_node **place, struct gm_preload_block *ret_block)
{
	struct blocks_node *node = *place;

	*ret_block = node->block;
	*place = blocks_join(node->left, node->right);
	node->left = blocks_spare;
	blocks_spare = node;
}

static bool blocks_take(gm_cu_ptr ptr, bool host, struct gm_preload_block *ret_block)
{
	struct blocks_node **place = &blocks_root;

	gm_lock(&blocks_lock);
	while (*place && (*place)->block.base != ptr)
		place = ptr < (*place)->block.base ? &(*place)->left : &(*place)->right;
	bool found = *place && ((*place)->block.host_flags != 0) == host;
	if (found)
		blocks_remove(place, ret_block);
	gm_lock_drop(&blocks_lock);
	return found;
}

bool gm_preload_blocks_take(gm_cu_ptr ptr, struct gm_preload_block *ret_block)
{
	return blocks_take(ptr, false, ret_block);
}

bool gm_preload_blocks_take_host(gm_cu_ptr ptr, struct gm_preload_block *ret_block)
{
	return blocks_take(ptr, true, ret_block);
}

static struct blocks_node **blocks_of(struct blocks_node **place, gm_cu_ctx ctx)
{
	if (!*place || (*place)->block.ctx == ctx)
		return *place ? place : NULL;
	struct blocks_node **found = blocks_of(&(*place)->left, ctx);
	return found ? found : blocks_of(&(*place)->right, ctx);
}

bool gm_preload_blocks_take_of(gm_cu_ctx ctx, struct gm_preload_block *ret_block)
{
	gm_lock(&blocks_lock);
	struct blocks_node **place = blocks_of(&blocks_root, ctx);
	if (place)
		blocks_remove(place, ret_block);
	gm_lock_drop(&blocks_lock);
	return place;
}
