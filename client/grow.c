/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an arena gets larger. A block that does not fit goes where the least is missing; free chunks
 * of our own are moved there first, the source is asked for the rest. Small needs are met in steps
 * of at most 1/32 of what is held, so that the steps stay a small part of the whole; a large one
 * gets what it is short of and no more.
 *
 * Nothing is locked while chunks are asked for, mapped or moved. The place is taken meanwhile (a
 * busy chunk), and so is free memory next to it that the block is to use. Several threads may be at
 * it at once: one whose need is covered by what another's request brings beyond its own waits for
 * that, the others ask for themselves.
 *
 * It must never fail while what is here, moved together or ordered behind the device's work, would
 * do.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/arena_impl.h"
#include "common/limits.h"

#define STEP_MAX (UINT64_C(32) << 20)
/* Moving many small chunks costs more than asking for a few large ones. */
#define MOVES_MAX 64

/* How hard to try. */
enum stage {
	STAGE_STEP,  /* ask for a step */
	STAGE_EXACT, /* ask for what is missing, no more */
	STAGE_ALL,   /* empty all caches, move whatever is free */
	STAGE_ORDER, /* wait for the device, on the device */
	STAGE_FAIL,
};

enum {
	AGAIN = 100, /* something came in, though not the block */
};

/* ---- requests under way */

static void ask_begin(struct gm_arena *arena, struct gm_arena_ask *ask, uint64_t spare, bool slab)
{
	ask->serial = ++arena->next_ask;
	ask->spare = spare;
	ask->slab = slab;
	ask->next = arena->asks;
	arena->asks = ask;
}

static void ask_end(struct gm_arena *arena, struct gm_arena_ask *ask)
{
	struct gm_arena_ask **link = &arena->asks;

	while (*link != ask)
		link = &(*link)->next;
	*link = ask->next;
	pthread_cond_broadcast(&arena->changed);
}

static void wait_change(struct gm_arena *arena)
{
	arena->waiters++;
	pthread_cond_wait(&arena->changed, &arena->lock);
	arena->waiters--;
}

/* Waits if a request under way brings enough for this need too; *joined is the one that this thread
 * counts on already. */
static bool ask_join(struct gm_arena *arena, uint64_t bytes, bool slab, uint64_t *joined)
{
	for (struct gm_arena_ask *ask = arena->asks; ask; ask = ask->next) {
		if (ask->serial != *joined) {
			if (ask->slab != slab || (!slab && ask->spare < bytes))
				continue;
			if (!slab)
				ask->spare -= bytes;
			*joined = ask->serial;
		}
		wait_change(arena);
		return true;
	}
	return false;
}

/* ---- one growth */

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct growth {
	struct gm_arena *arena;
	struct gm_chunk_place place;
	struct gm_chunk *room;                /* the busy chunk that keeps the place */
	struct gm_heap_block *left, *right;   /* taken meanwhile */
	struct gm_chunk *moving;              /* own chunks, on their way here */
	struct gm_chunk *placed, *placed_end; /* mapped here, lowest first */
	struct gm_chunk *bad;                 /* to give back */
	uint64_t cursor;                      /* where the next chunk goes */
	int error;
};

static void append(struct growth *g, struct gm_chunk *chunk)
{
	chunk->also = NULL;
	if (g->placed_end)
		g->placed_end->also = chunk;
	else
		g->placed = chunk;
	g->placed_end = chunk;
}

static uint64_t step_of(const struct gm_arena *arena)
{
	uint64_t step = GM_CHUNK_MIN;

	while (step < STEP_MAX && step * 2 <= arena->held / 32)
		step *= 2;
	return step;
}

/* Takes the place and what lies next to it. Lock. */
static int growth_begin(struct growth *g, uint64_t room)
{
	struct gm_arena *arena = g->arena;
	struct gm_chunk_place *place = &g->place;
	struct gm_chunk *chunk;
	int r;

	r = gm_ptrmap_cover(&arena->blocks, place->addr, room);
	if (r < 0)
		return r;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	chunk->addr = place->addr;
	chunk->bytes = room;
	chunk->kind = GM_CHUNK_BUSY;
	r = gm_chunks_insert(&arena->chunks, chunk);
	if (r < 0) {
		free(chunk);
		return r;
	}
	g->room = chunk;
	g->cursor = place->addr;
	/* Whole blocks are taken: nothing is cut, so no descriptor can be lacking but the spare
	 * ones that carving always makes sure of. */
	if (place->left)
		r = gm_heap_carve(
			&arena->heap, place->left, place->left->addr, place->left->bytes, &g->left);
	if (r == 0 && place->right)
		r = gm_heap_carve(&arena->heap, place->right, place->right->addr,
			place->right->bytes, &g->right);
	return r;
}

/* Chooses free chunks to move here: as many as help, the largest first. Lock. */
static uint64_t choose_moves(struct growth *g, uint64_t missing, unsigned max)
{
	struct gm_arena *arena = g->arena;
	struct gm_chunk *list = gm_chunks_free_list(&arena->chunks, &arena->clean);
	uint64_t left = missing;
	unsigned n = 0;

	for (uint64_t size = GM_CHUNK_MAX; size >= GM_CHUNK_MIN; size /= 2) {
		for (struct gm_chunk *c = list; c && left >= size && n < max; c = c->also) {
			if (c->bytes == size && !c->chosen) {
				c->chosen = true;
				left -= size;
				n++;
			}
		}
	}
	/* The last bit from a chunk that is larger than it, if there is room. */
	if (left && n < max) {
		struct gm_chunk *best = NULL;
		uint64_t room = g->room->bytes - (missing - left);
		for (struct gm_chunk *c = list; c; c = c->also) {
			if (!c->chosen && c->bytes >= left && c->bytes <= room &&
				(!best || c->bytes < best->bytes))
				best = c;
		}
		if (best) {
			best->chosen = true;
			left = 0;
		}
	}
	g->moving = gm_arena_detach(arena, list);
	if (left && n < max && max > MOVES_MAX) {
		struct gm_chunk *slabs = gm_arena_detach_slabs(arena, left, NULL);
		while (slabs) {
			struct gm_chunk *chunk = slabs;
			slabs = chunk->also;
			chunk->also = g->moving;
			g->moving = chunk;
		}
	}
	/* What was chosen may have stayed for want of memory. */
	left = missing;
	for (struct gm_chunk *c = g->moving; c; c = c->also)
		left -= smaller(c->bytes, left);
	return left;
}

/* Own chunks that stay where they are. Lock. */
static void stay(struct gm_arena *arena, struct gm_chunk *list)
{
	struct gm_chunk *chunk;

	while ((chunk = list)) {
		list = chunk->also;
		if (gm_heap_add(&arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, NULL) ==
			0) {
			chunk->kind = GM_CHUNK_HEAP;
			chunk->touched = true;
		} else {
			chunk->also = arena->stuck;
			arena->stuck = chunk;
		}
	}
}

/* Moves them, or not, when the rest of what is missing did not come. No lock. */
static void growth_move(struct growth *g, bool go)
{
	struct gm_arena *arena = g->arena;
	const struct gm_arena_config *config = &arena->config;
	struct gm_chunk *moved = NULL, **end = &moved, *staying = NULL, *chunk;

	if (!g->moving)
		return;
	while ((chunk = g->moving)) {
		int r = -ECANCELED;
		g->moving = chunk->also;
		if (go && chunk->bytes <= g->room->addr + g->room->bytes - g->cursor)
			r = config->ops->move(config->backend, (void *)chunk->addr,
				(void *)g->cursor, chunk->bytes);
		if (r < 0) {
			chunk->also = staying;
			staying = chunk;
			continue;
		}
		chunk->to = g->cursor;
		g->cursor += chunk->bytes;
		chunk->also = NULL;
		*end = chunk;
		end = &chunk->also;
	}
	/* Their old places stayed taken until now. */
	pthread_mutex_lock(&arena->lock);
	while ((chunk = moved)) {
		moved = chunk->also;
		gm_chunks_remove(&arena->chunks, chunk);
		chunk->addr = chunk->to;
		arena->moves++;
		append(g, chunk);
	}
	stay(arena, staying);
	pthread_mutex_unlock(&arena->lock);
}

static int by_size(const void *a, const void *b)
{
	const struct gm_source_chunk *x = a, *y = b;
	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* Maps a chunk at the cursor; the fd is closed in any case. No lock. */
static void growth_map(struct growth *g, struct gm_source_chunk *got)
{
	const struct gm_arena_config *config = &g->arena->config;
	struct gm_chunk *chunk = calloc(1, sizeof(*chunk));
	int r = -ENOMEM;

	if (chunk) {
		chunk->id = got->id;
		chunk->bytes = got->bytes;
		chunk->addr = g->cursor;
		r = config->ops->map(
			config->backend, (void *)chunk->addr, chunk->bytes, got->fd, NULL);
	}
	if (got->fd >= 0)
		close(got->fd);
	got->fd = -1;
	if (r < 0) {
		g->error = r;
		free(chunk);
		config->source.put(config->source.ctx, &got->id, 1);
		pthread_mutex_lock(&g->arena->lock);
		g->arena->held -= got->bytes;
		pthread_mutex_unlock(&g->arena->lock);
		return;
	}
	g->cursor += chunk->bytes;
	append(g, chunk);
}

/* Lets the device use what was placed; what it may not use goes back. No lock. */
static void growth_access(struct growth *g)
{
	const struct gm_arena_config *config = &g->arena->config;
	int r;

	if (!g->placed)
		return;
	r = config->ops->access(
		config->backend, (void *)g->place.addr, g->cursor - g->place.addr, false);
	if (r == 0)
		return;
	g->error = r;
	g->bad = g->placed;
	for (struct gm_chunk *chunk = g->bad; chunk; chunk = chunk->also)
		chunk->unusable = true;
	g->placed = g->placed_end = NULL;
	g->cursor = g->place.addr;
}

/* Puts everything where it belongs. Lock. *ret_block: the free block that begins or ends in what
 * was placed; NULL: nothing was. */
static void growth_end(struct growth *g, struct gm_heap_block **ret_block)
{
	struct gm_arena *arena = g->arena;
	struct gm_heap_block *block = NULL;
	struct gm_chunk *chunk, *next;

	gm_chunks_remove(&arena->chunks, g->room);
	free(g->room);
	for (chunk = g->placed; chunk; chunk = next) {
		next = chunk->also;
		chunk->kind = GM_CHUNK_HEAP;
		chunk->touched = true;
		/* The place was taken by the busy chunk a moment ago: the tables cover it. */
		gm_chunks_insert(&arena->chunks, chunk);
		if (gm_heap_add(&arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, &block) <
			0) {
			g->error = -ENOMEM;
			chunk->kind = GM_CHUNK_BUSY;
			chunk->also = g->bad;
			g->bad = chunk;
		}
	}
	for (chunk = g->bad; chunk && !g->placed; chunk = chunk->also) {
		chunk->kind = GM_CHUNK_BUSY;
		gm_chunks_insert(&arena->chunks, chunk);
	}
	if (g->left)
		block = gm_heap_release(&arena->heap, g->left, &arena->clean, 0);
	if (g->right)
		block = gm_heap_release(&arena->heap, g->right, &arena->clean, 0);
	*ret_block = block;
}

/* What came beyond the room that was kept: to wherever it fits. No lock. */
static void place_rest(struct gm_arena *arena, struct gm_source_chunk *chunks, size_t n)
{
	struct gm_heap_block *block;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += chunks[i].bytes;
	if (!bytes)
		return;
	struct growth g = {.arena = arena};
	pthread_mutex_lock(&arena->lock);
	int r = gm_chunks_place(&arena->chunks, &arena->heap, NULL, bytes, GM_CHUNK_MIN, &g.place)
			? growth_begin(&g, bytes)
			: -ENOSPC;
	pthread_mutex_unlock(&arena->lock);
	if (r < 0 && !g.room) {
		const struct gm_source *source = &arena->config.source;
		for (size_t i = 0; i < n; i++) {
			if (chunks[i].fd >= 0)
				close(chunks[i].fd);
			source->put(source->ctx, &chunks[i].id, 1);
		}
		pthread_mutex_lock(&arena->lock);
		arena->held -= bytes;
		pthread_mutex_unlock(&arena->lock);
		return;
	}
	for (size_t i = 0; i < n; i++)
		growth_map(&g, &chunks[i]);
	growth_access(&g);
	pthread_mutex_lock(&arena->lock);
	growth_end(&g, &block);
	pthread_mutex_unlock(&arena->lock);
	gm_arena_discard(arena, g.bad);
}

/* Asks the source and maps what comes. No lock. 0, GM_ARENA_E_SOURCE. */
static int growth_fetch(struct growth *g, uint64_t bytes, gpumem_status *ret_status)
{
	struct gm_arena *arena = g->arena;
	const struct gm_source *source = &arena->config.source;
	struct gm_source_chunk *chunks;
	uint64_t total = 0, end = g->room->addr + g->room->bytes;
	size_t n, rest = 0;
	gpumem_status status = source->get(source->ctx, bytes, &chunks, &n);

	if (status != GPUMEM_OK) {
		*ret_status = status;
		return GM_ARENA_E_SOURCE;
	}
	for (size_t i = 0; i < n; i++)
		total += chunks[i].bytes;
	pthread_mutex_lock(&arena->lock);
	arena->held += total;
	pthread_mutex_unlock(&arena->lock);
	qsort(chunks, n, sizeof(*chunks), by_size);
	for (size_t i = 0; i < n; i++) {
		if (chunks[i].bytes <= end - g->cursor)
			growth_map(g, &chunks[i]);
		else
			chunks[rest++] = chunks[i];
	}
	place_rest(arena, chunks, rest);
	free(chunks);
	return 0;
}

/* Lock, which is let go in between. 0: *ret_block is in use. AGAIN, GM_ARENA_E_SOURCE,
 * GM_ARENA_E_SPACE, -errno. */
static int grow_once(struct gm_arena *arena, struct gm_arena_want *want, enum stage stage,
	struct gm_heap_block **ret_block)
{
	struct growth g = {.arena = arena};
	struct gm_chunk_place *place = &g.place;
	struct gm_heap_block *block;
	struct gm_arena_ask ask;
	uint64_t missing, more = 0, spare = 0, room;
	int r, r_source = 0;

	if (!gm_chunks_place(&arena->chunks, &arena->heap, &arena->clean, want->bytes,
		    want->alignment, place))
		return GM_ARENA_E_SPACE;
	if (!place->missing)
		return gm_heap_carve(
			&arena->heap, place->left, place->start, want->bytes, ret_block);
	missing = place->missing;
	if (stage == STAGE_STEP && !place->right && step_of(arena) > missing)
		more = smaller(step_of(arena), place->room) - missing;
	room = place->right ? place->room
			    : smaller(place->room,
				      missing + more + (missing + more) / 32 + GM_CHUNK_MIN);
	room &= ~(GM_CHUNK_MIN - 1);
	if (!place->right)
		spare = place->addr + missing - (place->start + want->bytes);
	r = growth_begin(&g, room);
	if (r == 0)
		missing = choose_moves(&g, missing, stage >= STAGE_ALL ? UINT32_MAX : MOVES_MAX);
	if (r == 0 && missing)
		ask_begin(arena, &ask, more + spare, false);
	else
		ask.serial = 0;
	pthread_mutex_unlock(&arena->lock);
	if (r == 0) {
		/* The source first: if it refuses, nothing was moved in vain. */
		if (missing) {
			want->asked = true;
			r_source = growth_fetch(&g, missing + more, &want->status);
		}
		growth_move(&g, r_source == 0);
		growth_access(&g);
	}
	pthread_mutex_lock(&arena->lock);
	if (g.room)
		growth_end(&g, &block);
	if (r == 0 && !g.bad && g.cursor - place->addr >= place->missing)
		r = gm_heap_carve(&arena->heap, block, place->start, want->bytes, ret_block);
	else if (r == 0)
		r = g.error ? g.error : r_source ? r_source : AGAIN;
	if (ask.serial)
		ask_end(arena, &ask);
	else
		pthread_cond_broadcast(&arena->changed);
	if (g.bad) {
		pthread_mutex_unlock(&arena->lock);
		gm_arena_discard(arena, g.bad);
		pthread_mutex_lock(&arena->lock);
	}
	return r;
}

/* Everything that waits for the device becomes the stream's, which first waits for it there. Lock,
 * which is let go in between. Returns whether that brought anything. */
static bool order(struct gm_arena *arena, const struct gm_arena_want *want)
{
	struct gm_pending *pending = &arena->pending;
	struct gm_event *events[GM_PENDING_EVENTS];
	struct gm_pending_set *set = NULL;
	uint64_t epoch, none;
	unsigned n;
	int r;

	if (!arena->streams || want->key == GM_STREAM_ANY || want->key == GM_STREAM_DONE ||
		gm_pending_bytes(pending) == 0)
		return false;
	pthread_mutex_unlock(&arena->lock);
	gm_arena_pump(arena);
	pthread_mutex_lock(&arena->lock);
	/* The others are at it for the time of a driver call. */
	while (pending->polling || pending->recording)
		wait_change(arena);
	if (gm_pending_poll_begin(pending, events, &n)) {
		epoch = pending->events[n - 1].epoch;
		pthread_mutex_unlock(&arena->lock);
		r = arena->config.ops->order(arena->config.backend, want->stream, events[n - 1]);
		pthread_mutex_lock(&arena->lock);
		if (r == 0)
			set = gm_pending_gather(
				pending, want->key, epoch, &arena->heap, &arena->small);
		gm_pending_poll_end(pending, 0, &none);
		pthread_cond_broadcast(&arena->changed);
	}
	if (set && !gm_heap_fits(&set->bins, want->bytes, want->alignment) &&
		set->bins.bytes + arena->clean.bytes >= want->bytes) {
		/* What is free for everybody may lie between. */
		struct gm_heap_block *block;
		while ((block = gm_heap_walk(&arena->clean, GM_HEAP_UNIT, NULL)))
			gm_heap_rebin(&arena->heap, block, &set->bins, gm_pending_stamp(pending));
	}
	return true;
}

int gm_arena_grow(
	struct gm_arena *arena, struct gm_arena_want *want, struct gm_heap_block **ret_block)
{
	enum stage stage = STAGE_STEP;
	uint64_t joined = 0;
	unsigned again = 0;
	bool pumped = false;
	int r, failed = GM_ARENA_E_SPACE;

	pthread_mutex_lock(&arena->lock);
	for (;;) {
		r = gm_arena_take(arena, want, ret_block);
		if (r != GM_HEAP_E_NONE)
			break;
		if (stage == STAGE_FAIL) {
			r = failed;
			break;
		}
		if (stage == STAGE_STEP && ask_join(arena, want->bytes, false, &joined))
			continue;
		if (!pumped && arena->streams && gm_pending_bytes(&arena->pending)) {
			pumped = true;
			pthread_mutex_unlock(&arena->lock);
			gm_arena_pump(arena);
			pthread_mutex_lock(&arena->lock);
			continue;
		}
		if (stage == STAGE_ORDER) {
			order(arena, want);
			stage = STAGE_FAIL;
			continue;
		}
		r = grow_once(arena, want, stage, ret_block);
		if (r == 0)
			break;
		if (r == AGAIN && ++again < 8)
			continue;
		failed = r == AGAIN ? GM_ARENA_E_SPACE : r;
		stage++;
		if (stage == STAGE_ALL) {
			pumped = false;
			pthread_mutex_unlock(&arena->lock);
			gm_tcache_drain_all(&arena->caches, false);
			pthread_mutex_lock(&arena->lock);
		}
	}
	pthread_mutex_unlock(&arena->lock);
	return r;
}

int gm_arena_grow_small(struct gm_arena *arena, bool *ret_asked, gpumem_status *ret_status)
{
	struct growth g = {.arena = arena};
	struct gm_arena_ask ask;
	struct gm_chunk *chunk;
	uint64_t joined = 0, addr, missing;
	bool odd;
	int r;

	pthread_mutex_lock(&arena->lock);
	if (ask_join(arena, 0, true, &joined)) {
		pthread_mutex_unlock(&arena->lock);
		return 0;
	}
	if (!gm_chunks_place_high(&arena->chunks, GM_SMALL_SLAB_BYTES, &addr)) {
		pthread_mutex_unlock(&arena->lock);
		return GM_ARENA_E_SPACE;
	}
	g.place.addr = addr;
	g.place.missing = g.place.room = GM_SMALL_SLAB_BYTES;
	r = growth_begin(&g, GM_SMALL_SLAB_BYTES);
	if (r < 0) {
		pthread_mutex_unlock(&arena->lock);
		return r;
	}
	missing = choose_moves(&g, GM_SMALL_SLAB_BYTES, MOVES_MAX);
	odd = arena->odd_source;
	ask_begin(arena, &ask, 0, true);
	pthread_mutex_unlock(&arena->lock);

	growth_move(&g, true);
	if (missing && !odd) {
		*ret_asked = true;
		r = growth_fetch(&g, GM_SMALL_SLAB_BYTES, ret_status);
		odd = r == 0 && !g.placed && !g.error;
	}
	growth_access(&g);

	pthread_mutex_lock(&arena->lock);
	gm_chunks_remove(&arena->chunks, g.room);
	free(g.room);
	for (chunk = g.placed ? g.placed : g.bad; chunk; chunk = chunk->also) {
		chunk->kind = GM_CHUNK_BUSY;
		gm_chunks_insert(&arena->chunks, chunk);
	}
	chunk = g.placed;
	if (chunk && gm_small_add(&arena->small, chunk->addr) == 0) {
		chunk->kind = GM_CHUNK_SLAB;
		chunk->touched = true;
	} else if (chunk) {
		r = -ENOMEM;
		g.bad = chunk;
	} else if (r == 0) {
		/* Nothing of the right size came; what came is in the heap. Asking again would
		 * bring more of that. */
		arena->odd_source = odd;
		r = g.error ? g.error : GM_ARENA_E_SPACE;
	}
	ask_end(arena, &ask);
	pthread_mutex_unlock(&arena->lock);
	gm_arena_discard(arena, g.bad);
	return r;
}
