/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_RING_RING_FIXTURE_H
#define GM_TESTS_UNIT_RING_RING_FIXTURE_H

/* Rings in memory of the test's own, without a daemon. On both sides of the memory lies a page that
 * nobody may touch, and it ends where the ring ends, as nearly as its alignment allows. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ring/ring.h"
#include "client/ring/ring_owner.h"
#include "tests/tap.h"

struct ring_memory {
	unsigned char *range;
	size_t range_bytes;
	void *at;
	struct gm_ring_shape shape;
};

static inline struct ring_memory ring_memory_new(
	size_t message_bytes, size_t messages, uint64_t first)
{
	struct ring_memory memory = {0};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	ck_assert_int_eq(gm_ring_shape_of(message_bytes, messages, &memory.shape), GPUMEM_OK);
	size_t bytes = (memory.shape.bytes + page - 1) / page * page;
	memory.range_bytes = bytes + 2 * page;
	memory.range = mmap(NULL, memory.range_bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory.range, MAP_FAILED);
	ck_assert_int_eq(mprotect(memory.range + page, bytes, PROT_READ | PROT_WRITE), 0);
	memory.at = memory.range + page + bytes - memory.shape.bytes;
	ck_assert_uint_eq((uintptr_t)memory.at % 256, 0);
	gm_ring_format(memory.at, &memory.shape, first);
	return memory;
}

static inline void ring_memory_free(struct ring_memory *memory)
{
	munmap(memory->range, memory->range_bytes);
}

static inline gpumem_ring *ring_near(const struct ring_memory *memory, gpumem_ring_options options)
{
	gpumem_ring *ring = NULL;
	ck_assert_int_eq(
		gm_ring_new(memory->at, &memory->shape, false, &options, &ring), GPUMEM_OK);
	return ring;
}

static inline gpumem_ring_control *ring_control(const struct ring_memory *memory, bool far)
{
	return (gpumem_ring_control *)memory->at + far;
}

/* As gpumem_ring_open() does. */
static inline gpumem_ring *ring_far(const struct ring_memory *memory, gpumem_ring_options options)
{
	gpumem_ring *ring = NULL;
	ck_assert_int_eq(gm_ring_owner_claim(
				 &ring_control(memory, true)->sender, GPUMEM_RING_PROCESS, false),
		GPUMEM_OK);
	ck_assert_int_eq(gm_ring_new(memory->at, &memory->shape, true, &options, &ring), GPUMEM_OK);
	return ring;
}

static inline gpumem_ring_options ring_options(
	gpumem_ring_full full, uint32_t wait_ms, uint32_t flush_every)
{
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT;
	options.full = full;
	options.wait_ms = wait_ms;
	options.flush_every = flush_every;
	return options;
}

static inline gpumem_ring_stats_t ring_stats(const gpumem_ring *ring)
{
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
	ck_assert_int_eq(gpumem_ring_stats(ring, &stats), GPUMEM_OK);
	return stats;
}

#endif
