/* SPDX-License-Identifier: Apache-2.0 */
/* The delays between tries to reach the daemon: see backoff.h. */
#include "client/session/backoff.h"

#include "common/arith.h"

/* A connection that lasted this long was a good one. */
#define LASTED_NS (1 * GM_NS_PER_S)

void gm_backoff_init(struct gm_backoff *backoff, uint64_t seed)
{
	*backoff = (struct gm_backoff){.seed = seed, .delay_ns = GM_BACKOFF_FIRST_NS};
}

/* A random number (splitmix64). It must differ between sessions, and need not be secret. */
static uint64_t backoff_random(struct gm_backoff *backoff)
{
	uint64_t x = backoff->seed += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t backoff_draw(struct gm_backoff *backoff, uint64_t delay_ns)
{
	return delay_ns / 2 + backoff_random(backoff) % (delay_ns / 2 + 1);
}

static void backoff_plan(struct gm_backoff *backoff, uint64_t now_ns)
{
	backoff->last_ns = now_ns;
	backoff->next_ns = now_ns + backoff_draw(backoff, backoff->delay_ns);
}

void gm_backoff_lost(struct gm_backoff *backoff, uint64_t now_ns, uint64_t lasted_ns)
{
	if (lasted_ns >= LASTED_NS)
		backoff->delay_ns = GM_BACKOFF_FIRST_NS;
	backoff_plan(backoff, now_ns);
}

void gm_backoff_failed(struct gm_backoff *backoff, uint64_t now_ns)
{
	backoff->delay_ns = gm_min(2 * backoff->delay_ns, GM_BACKOFF_MOST_NS);
	backoff_plan(backoff, now_ns);
}

void gm_backoff_hurry(struct gm_backoff *backoff)
{
	if (backoff->delay_ns > GM_BACKOFF_AWAITED_NS)
		backoff->next_ns = gm_min(backoff->next_ns,
			backoff->last_ns + backoff_draw(backoff, GM_BACKOFF_AWAITED_NS));
}
