/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of the C library, by address. Tokens are looked for in a list: few allocations have one. */
#include "preload/preload_shared.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct shared_node {
	struct gm_shared shared;
	struct shared_node *prev, *next; /* of those with a token */
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static void *shared_tree;
static struct shared_node *shared_named;

static int shared_compare(const void *a, const void *b)
{
	gm_cu_ptr left = ((const struct shared_node *)a)->shared.base;
	gm_cu_ptr right = ((const struct shared_node *)b)->shared.base;

	return left < right ? -1 : left > right;
}

/* ---- with the lock held */

static struct shared_node *shared_at(gm_cu_ptr base)
{
	const struct shared_node key = {.shared.base = base};
	struct shared_node *const *found = tfind(&key, &shared_tree, shared_compare);

	return found ? *found : NULL;
}

static void shared_list(struct shared_node *node)
{
	node->prev = NULL;
	node->next = shared_named;
	if (shared_named)
		shared_named->prev = node;
	shared_named = node;
}

static void shared_unlist(struct shared_node *node)
{
	if (node->prev)
		node->prev->next = node->next;
	else
		shared_named = node->next;
	if (node->next)
		node->next->prev = node->prev;
}

/* ---- the calls */

bool gm_shared_add(const struct gm_shared *shared)
{
	struct shared_node *node = calloc(1, sizeof *node);
	if (!node)
		return false;
	node->shared = *shared;

	pthread_mutex_lock(&shared_lock);
	bool added = tsearch(node, &shared_tree, shared_compare) && shared_at(shared->base) == node;
	if (added && shared->named)
		shared_list(node);
	pthread_mutex_unlock(&shared_lock);
	if (!added)
		free(node);
	return added;
}

bool gm_shared_find(gm_cu_ptr base, struct gm_shared *ret_shared)
{
	pthread_mutex_lock(&shared_lock);
	const struct shared_node *node = shared_at(base);
	if (node)
		*ret_shared = node->shared;
	pthread_mutex_unlock(&shared_lock);
	return node;
}

bool gm_shared_find_token(const gpumem_token *token, struct gm_shared *ret_shared)
{
	pthread_mutex_lock(&shared_lock);
	const struct shared_node *node = shared_named;
	while (node && memcmp(&node->shared.token, token, sizeof *token) != 0)
		node = node->next;
	if (node)
		*ret_shared = node->shared;
	pthread_mutex_unlock(&shared_lock);
	return node;
}

void gm_shared_set(const struct gm_shared *shared)
{
	pthread_mutex_lock(&shared_lock);
	struct shared_node *node = shared_at(shared->base);
	if (node) {
		if (shared->named && !node->shared.named)
			shared_list(node);
		node->shared = *shared;
	}
	pthread_mutex_unlock(&shared_lock);
}

bool gm_shared_take(gm_cu_ptr base, bool own, gpumem_buffer **ret_buffer)
{
	pthread_mutex_lock(&shared_lock);
	struct shared_node *node = shared_at(base);
	if (node && own && node->shared.opened)
		node = NULL;
	if (node) {
		(void)tdelete(node, &shared_tree, shared_compare);
		if (node->shared.named)
			shared_unlist(node);
		*ret_buffer = node->shared.buffer;
	}
	pthread_mutex_unlock(&shared_lock);
	free(node);
	return node;
}
