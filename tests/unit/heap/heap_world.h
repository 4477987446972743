/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_HEAP_WORLD_H
#define GM_TESTS_HEAP_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/arena.h"

/*
 * What an arena is tested in: a source that is a table and fails at will, and a backend over plain
 * memory with streams whose work is done when the test says so. It checks what it is called with:
 * a chunk mapped over another, unmapped twice, given back while mapped, used without access, a
 * call with the arena's rules broken ends the test.
 */

#define WORLD_STREAMS 8
#define WORLD_CHUNKS  16384

struct world_chunk {
	uint64_t bytes;
	uint64_t addr; /* 0: not mapped */
	bool out;      /* granted and not given back */
	bool access;
};

struct world {
	pthread_mutex_t lock;
	struct gm_map_ops ops;
	struct gm_heap_source source;
	/* the source */
	uint64_t capacity; /* what it may grant together */
	uint64_t granted;
	uint64_t gets, puts; /* calls to get, chunks put */
	uint64_t largest_get, last_get;
	unsigned fail_gets; /* the next so many calls of get fail */
	gpumem_status fail_status;
	uint64_t chunk_min;  /* no chunk is smaller; 0: GM_CHUNK_MIN */
	uint64_t chunk_most; /* no chunk is larger; 0: GM_CHUNK_MAX */
	bool regions;        /* each get is one chunk, attached where the world wants it: next to
				the one before; set before the arena is made */
	uint64_t next_addr;  /* of the next region; 0: a default */
	uint64_t open_as;    /* not 0: regions open where this chunk is, as if they were that one */
	unsigned opened_as;  /* how often that is open */
	bool tells_room;     /* it is known without a get how much it would grant */
	uint64_t most;       /* it is known that it never grants more; 0: nothing is known */
	uint64_t maps;       /* calls to map */
	bool hold_gets;      /* get waits until this is false */
	uint64_t hold_from;  /* a get of less does not wait */
	bool hold_puts;      /* put waits until this is false */
	unsigned in_put;
	unsigned in_get;
	pthread_cond_t changed;
	/* the backend */
	struct world_chunk chunks[WORLD_CHUNKS];
	uint64_t next_id;
	uint64_t reserve_max;
	uint64_t base, reserved;
	unsigned fail_map, fail_access, fail_move, fail_unmap, fail_record; /* the next so many */
	uint64_t moves, records, orders, queries;
	bool hold_records, hold_queries; /* record and passed wait until this is false */
	unsigned in_record, in_query;
	unsigned events; /* alive */
	/* streams: how much was launched and how much of it is done */
	uint64_t launched[WORLD_STREAMS], done[WORLD_STREAMS];
	/* what of another stream's work a stream is ordered behind */
	uint64_t behind[WORLD_STREAMS][WORLD_STREAMS];
	unsigned wakes;
	/* Called before memory leaves its place, with the lock held. May be NULL. */
	void (*leaving)(struct world *world, uint64_t addr, uint64_t bytes);
	/* Called when a region is closed and its address free, without the lock. May be NULL. */
	void (*closed)(struct world *world, uint64_t addr);
};

/* streams: whether the backend has any. */
void world_init(struct world *world, bool streams, uint64_t capacity);
/* Everything must be back. */
void world_deinit(struct world *world);
struct gm_arena *world_arena(struct world *world, uint64_t decay_ns);

/* Stream 0 is the default stream. */
static inline gpumem_stream world_stream(unsigned i)
{
	return (gpumem_stream)(uintptr_t)(i * 0x1000);
}
void world_launch(struct world *world, unsigned stream);
void world_finish(struct world *world, unsigned stream);
void world_finish_all(struct world *world);
/* Lets every call of get that waits, or comes, go on. */
void world_release_gets(struct world *world);
/* Waits until so many calls of get are waiting. */
void world_await_gets(struct world *world, unsigned n);
/* Waits until get was called so often. */
void world_await_asked(struct world *world, uint64_t gets);
/* The same two for put. */
void world_release_puts(struct world *world);
void world_await_puts(struct world *world, unsigned n);
/* The same two for record, and for passed. */
void world_release_records(struct world *world);
void world_await_records(struct world *world, unsigned n);
void world_release_queries(struct world *world);
void world_await_queries(struct world *world, unsigned n);

#endif
