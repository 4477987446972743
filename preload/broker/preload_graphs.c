/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_graphs.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "preload/broker/preload_broker.h"
#include "common/lock.h"

struct graphs_charge {
	struct gm_preload_charge charge;
	bool open; /* its capture has not ended */
	struct graphs_charge *next;
};

struct graphs_piece {
	struct gm_preload_graphs_piece piece;
	bool freed; /* by piece.stream, which may use it again */
	struct graphs_piece *next;
};

/* A graph's memory belongs to all handles that were made of it. */
struct gm_preload_graphs_memory {
	unsigned handles;
	struct graphs_charge *charges;
	struct graphs_piece *pieces; /* of captures that have not ended */
};

struct graphs_handle {
	const void *handle;
	struct gm_preload_graphs_memory *memory;
	struct graphs_handle *next;
};

#define GRAPHS_PLACES 256

static struct gm_lock graphs_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct graphs_handle *graphs_table[GRAPHS_PLACES];
static atomic_size_t graphs_count; /* of handles; written with the lock held */
static atomic_size_t graphs_open;  /* of charges */

/* A forked child has none, and another thread of its parent may have had the lock. */
static bool graphs_any(void)
{
	return atomic_load_explicit(&graphs_count, memory_order_relaxed) && gm_preload_there();
}

static struct graphs_handle **graphs_place(const void *handle)
{
	uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
	struct graphs_handle **place = &graphs_table[mixed >> 56];

	while (*place && (*place)->handle != handle)
		place = &(*place)->next;
	return place;
}

/* With the lock held. Gives a handle memory, which it must not have yet. */
static bool graphs_put(const void *handle, struct gm_preload_graphs_memory *memory)
{
	struct graphs_handle **place = graphs_place(handle), *entry = malloc(sizeof *entry);
	if (!entry)
		return false;

	*entry = (struct graphs_handle){.handle = handle, .memory = memory};
	*place = entry;
	memory->handles++;
	atomic_fetch_add_explicit(&graphs_count, 1, memory_order_relaxed);
	return true;
}

/* ---- captures */

gm_cu_graph gm_preload_graphs_of(const struct gm_driver *driver, gm_cu_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;
	gm_cu_graph graph = NULL;
	gm_cu_u64 id;

	if (!driver->cuStreamGetCaptureInfo_v2 ||
		driver->cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL) ||
		status != GM_CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return NULL;
	return graph;
}

/* ---- charges */

/* With the lock held. The memory of a graph, which it gets if it has none. NULL: the host has none. */
static struct gm_preload_graphs_memory *graphs_memory(const void *handle)
{
	struct graphs_handle *entry = *graphs_place(handle);
	if (entry)
		return entry->memory;

	struct gm_preload_graphs_memory *memory = calloc(1, sizeof *memory);
	if (memory && !graphs_put(handle, memory)) {
		free(memory);
		memory = NULL;
	}
	return memory;
}

void gm_preload_graphs_add(gm_cu_graph graph, const struct gm_preload_charge *charge, bool captured)
{
	if (!charge->bytes)
		return;

	struct graphs_charge *entry = malloc(sizeof *entry);
	gm_lock(&graphs_lock);
	struct gm_preload_graphs_memory *memory = entry ? graphs_memory(graph) : NULL;
	if (memory) {
		*entry = (struct graphs_charge){*charge, captured, memory->charges};
		memory->charges = entry;
		atomic_fetch_add_explicit(&graphs_open, captured, memory_order_relaxed);
	}
	gm_lock_drop(&graphs_lock);

	if (!memory) {
		free(entry);
		gm_preload_charges_settle(charge, 0);
	}
}

/* ---- memory that a captured stream uses again */

static void graphs_forget_pieces(struct gm_preload_graphs_memory *memory)
{
	struct graphs_piece *next;

	for (; memory->pieces; memory->pieces = next) {
		next = memory->pieces->next;
		free(memory->pieces);
	}
}

/* With the lock held. */
static struct gm_preload_graphs_memory *graphs_find(gm_cu_graph graph)
{
	struct graphs_handle *entry = *graphs_place(graph);
	return entry ? entry->memory : NULL;
}

static void graphs_note(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece, bool freed)
{
	struct graphs_piece *entry = malloc(sizeof *entry);
	if (!entry)
		return; /* then it is charged as if it were never freed */

	gm_lock(&graphs_lock);
	struct gm_preload_graphs_memory *memory = graphs_find(graph);
	if (memory) {
		*entry = (struct graphs_piece){*piece, freed, memory->pieces};
		memory->pieces = entry;
	}
	gm_lock_drop(&graphs_lock);
	if (!memory)
		free(entry);
}

uint64_t gm_preload_graphs_reuse(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece)
{
	uint64_t reused = 0;

	if (!graphs_any())
		return 0;
	gm_lock(&graphs_lock);
	struct gm_preload_graphs_memory *memory = graphs_find(graph);
	struct graphs_piece **place = memory ? &memory->pieces : NULL;
	while (place && *place && reused < piece->bytes) {
		struct graphs_piece *entry = *place;
		if (!entry->freed || entry->piece.stream != piece->stream ||
			entry->piece.number != piece->number) {
			place = &entry->next;
			continue;
		}
		uint64_t left = piece->bytes - reused;
		uint64_t taken = entry->piece.bytes < left ? entry->piece.bytes : left;
		reused += taken;
		entry->piece.bytes -= taken;
		if (!entry->piece.bytes) {
			*place = entry->next;
			free(entry);
		}
	}
	gm_lock_drop(&graphs_lock);
	return reused;
}

void gm_preload_graphs_spare(
	gm_cu_graph graph, const struct gm_preload_graphs_piece *piece, uint64_t bytes)
{
	struct gm_preload_graphs_piece spare = *piece;

	spare.ptr = 0;
	spare.bytes = bytes;
	if (bytes)
		graphs_note(graph, &spare, true);
}

void gm_preload_graphs_allocated(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece)
{
	graphs_note(graph, piece, false);
}

void gm_preload_graphs_freed(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece)
{
	if (!graphs_any())
		return;
	gm_lock(&graphs_lock);
	struct gm_preload_graphs_memory *memory = graphs_find(graph);
	struct graphs_piece *entry = memory ? memory->pieces : NULL;
	while (entry && (entry->freed || entry->piece.ptr != piece->ptr))
		entry = entry->next;
	if (entry) {
		entry->freed = true;
		entry->piece.stream = piece->stream;
	}
	gm_lock_drop(&graphs_lock);
}

/* ---- the end of captures */

void gm_preload_graphs_captured(gm_cu_graph graph)
{
	if (!graphs_any() || !atomic_load_explicit(&graphs_open, memory_order_relaxed))
		return;
	gm_lock(&graphs_lock);
	struct graphs_handle *entry = *graphs_place(graph);
	for (struct graphs_charge *c = entry ? entry->memory->charges : NULL; c; c = c->next) {
		atomic_fetch_sub_explicit(&graphs_open, c->open, memory_order_relaxed);
		c->open = false;
	}
	if (entry)
		graphs_forget_pieces(entry->memory);
	gm_lock_drop(&graphs_lock);
}

/* With the lock held. Moves the charges of captures that did not end to a list. */
static void graphs_take_open(struct gm_preload_graphs_memory *memory, struct graphs_charge **list)
{
	struct graphs_charge **place = &memory->charges;

	while (*place) {
		struct graphs_charge *charge = *place;
		if (!charge->open) {
			place = &charge->next;
			continue;
		}
		*place = charge->next;
		charge->next = *list;
		*list = charge;
	}
}

static void graphs_give(struct graphs_charge *charge)
{
	struct graphs_charge *next;

	for (; charge; charge = next) {
		next = charge->next;
		atomic_fetch_sub_explicit(&graphs_open, charge->open, memory_order_relaxed);
		gm_preload_charges_settle(&charge->charge, 0);
		free(charge);
	}
}

/* With the lock held. The driver has ended a graph that has nothing else. */
static void graphs_drop(struct graphs_handle **place)
{
	struct graphs_handle *entry = *place;

	*place = entry->next;
	atomic_fetch_sub_explicit(&graphs_count, 1, memory_order_relaxed);
	graphs_forget_pieces(entry->memory);
	free(entry->memory);
	free(entry);
}

void gm_preload_graphs_drop_captured(void)
{
	struct graphs_charge *list = NULL;

	if (!graphs_any() || !atomic_load_explicit(&graphs_open, memory_order_relaxed))
		return;
	gm_lock(&graphs_lock);
	/* Another capture may have begun meanwhile, and what it has allocated is not to be dropped. */
	for (size_t i = 0; i < GRAPHS_PLACES && !gm_preload_capturing(); i++) {
		struct graphs_handle **place = &graphs_table[i];
		while (*place) {
			struct gm_preload_graphs_memory *memory = (*place)->memory;
			graphs_take_open(memory, &list);
			graphs_forget_pieces(memory);
			if (!memory->charges && memory->handles == 1)
				graphs_drop(place);
			else
				place = &(*place)->next;
		}
	}
	gm_lock_drop(&graphs_lock);
	graphs_give(list);
}

void gm_preload_graphs_share(const void *handle, const void *second)
{
	if (!graphs_any())
		return;
	gm_lock(&graphs_lock);
	struct graphs_handle *entry = *graphs_place(handle);
	if (entry && !*graphs_place(second))
		(void)graphs_put(second, entry->memory);
	gm_lock_drop(&graphs_lock);
}

/* ---- ends */

void gm_preload_graphs_move(gm_cu_graph child, gm_cu_graph parent)
{
	struct gm_preload_graphs_memory *from = gm_preload_graphs_take(child);
	struct graphs_charge **end;
	if (!from)
		return;

	gm_lock(&graphs_lock);
	struct gm_preload_graphs_memory *to = graphs_memory(parent);
	bool last = --from->handles == 0;
	if (to && last) {
		for (end = &to->charges; *end;)
			end = &(*end)->next;
		*end = from->charges;
		from->charges = NULL;
	}
	gm_lock_drop(&graphs_lock);

	/* Something was made of the child before: that has the memory. */
	if (last) {
		graphs_give(from->charges);
		graphs_forget_pieces(from);
		free(from);
	}
}

void gm_preload_graphs_end_on(uint32_t number)
{
	struct graphs_charge *list = NULL;

	if (!graphs_any())
		return;
	gm_lock(&graphs_lock);
	for (size_t i = 0; i < GRAPHS_PLACES; i++)
		for (struct graphs_handle *entry = graphs_table[i]; entry; entry = entry->next) {
			struct graphs_charge **place = &entry->memory->charges;
			while (*place) {
				struct graphs_charge *charge = *place;
				if (charge->charge.number != number) {
					place = &charge->next;
					continue;
				}
				*place = charge->next;
				charge->next = list;
				list = charge;
			}
		}
	gm_lock_drop(&graphs_lock);
	graphs_give(list);
}

struct gm_preload_graphs_memory *gm_preload_graphs_take(const void *handle)
{
	struct gm_preload_graphs_memory *memory = NULL;

	if (!graphs_any())
		return NULL;
	gm_lock(&graphs_lock);
	struct graphs_handle **place = graphs_place(handle), *entry = *place;
	if (entry) {
		*place = entry->next;
		memory = entry->memory;
		atomic_fetch_sub_explicit(&graphs_count, 1, memory_order_relaxed);
	}
	gm_lock_drop(&graphs_lock);

	free(entry);
	return memory;
}

/* The handle that was taken still counts. */
void gm_preload_graphs_settle(
	struct gm_preload_graphs_memory *memory, const void *handle, bool ended)
{
	if (!memory)
		return;
	gm_lock(&graphs_lock);
	if (!ended && !*graphs_place(handle))
		(void)graphs_put(handle, memory);
	bool last = --memory->handles == 0;
	gm_lock_drop(&graphs_lock);

	/* No handle has it any more. */
	if (last) {
		graphs_give(memory->charges);
		graphs_forget_pieces(memory);
		free(memory);
	}
}
