/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking for memory in this process while the daemon is asked for it, or awaited. This file
 * promises that memory which another thread frees in time is not missed: the heap, the caches of
 * all threads and what waits for the GPU are searched, and unused chunks of the heap and of regions go
 * back to the daemon. It must never wait for the GPU, and it must not strip a heap that other threads
 * use all the time: chunks go back every TRIM_NS at most.
 */
#include "client/device/wait_elsewhere.h"

#include "client/heap/arena.h"
#include "client/session/reconnect.h"
#include "common/arith.h"
#include "common/clock.h"

/* A request that can be granted is answered before it looks for the first time. */
#define FIRST_NS   (1 * GM_NS_PER_MS)
#define MOST_NS    (1 * GM_NS_PER_S)
#define TRIM_NS    (100 * GM_NS_PER_MS)
#define PENDING_NS (5 * GM_NS_PER_MS)

/* Whether the call needs more than this client may ever hold. */
static bool wait_elsewhere_hopeless(const struct gm_wait_elsewhere *elsewhere)
{
	return elsewhere->bytes >
	       gm_session_pages_most(&elsewhere->session->pages, elsewhere->device);
}

static uint64_t wait_elsewhere_look(void *ctx)
{
	struct gm_wait_elsewhere *elsewhere = ctx;
	struct gm_arena *arena = atomic_load_explicit(
		&elsewhere->session->device[elsewhere->device].arena, memory_order_acquire);
	uint64_t now = gm_clock_ns(), next = now + elsewhere->delay_ns;
	elsewhere->delay_ns = gm_u64_min(2 * elsewhere->delay_ns, MOST_NS);
	if (elsewhere->found)
		return 0;

	if (arena && elsewhere->take) {
		/* Empties the caches of all threads, and gives nothing back yet. */
		(void)gm_arena_trim(arena, 0);
		elsewhere->found = elsewhere->take(elsewhere->ctx);
		if (elsewhere->found)
			return 0;
	}

	/* An absent daemon has no use for unused chunks, but other threads may have. Nor do chunks help a call that
	 * can never succeed. */
	if (gm_reconnect_now(elsewhere->session) || wait_elsewhere_hopeless(elsewhere))
		elsewhere->trim_ns = now + TRIM_NS;
	if (now >= elsewhere->trim_ns) {
		elsewhere->trim_ns = now + TRIM_NS;
		struct gpumem_session *session = elsewhere->session;
		uint64_t returned = (arena ? gm_arena_trim(arena, UINT64_MAX) : 0) +
				    session->trim_regions(session, elsewhere->device, UINT64_MAX);
		if (returned)
			gm_session_dirty(elsewhere->session);
	} else {
		next = gm_u64_min(next, elsewhere->trim_ns);
	}

	struct gm_arena_stats stats = {0};
	if (arena)
		gm_arena_stats(arena, &stats);
	return stats.pending ? gm_u64_min(next, now + PENDING_NS) : next;
}

struct gm_wait gm_wait_elsewhere_wait(struct gm_wait_elsewhere *elsewhere, uint32_t wait_ms)
{
	uint64_t now = gm_clock_ns();
	struct gm_wait wait = gm_wait_of(wait_ms);

	elsewhere->delay_ns = FIRST_NS;
	elsewhere->trim_ns = now + TRIM_NS;
	elsewhere->look = (struct gm_wait_look){
		.look = wait_elsewhere_look, .ctx = elsewhere, .at_ns = now + FIRST_NS};
	wait.look = &elsewhere->look;
	return wait;
}
