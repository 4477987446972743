/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RING_RING_WAIT_H
#define GM_CLIENT_RING_RING_WAIT_H

#include <stdint.h>

#include "gpumem/status.h"

/* Waiting for a word that the other end of a ring changes. */

/* How long an end that waits looks before it sleeps. Begins with zeros. */
struct gm_ring_spin {
	uint32_t waits;
	uint32_t shorter; /* how often looking found nothing */
};

struct gm_ring_wait {
	uint64_t *word;        /* what the other end changes */
	uint64_t seen;         /* the word's value for which there was nothing to do */
	uint32_t *sleeps;      /* tells the other end that it must wake this one */
	const uint64_t *other; /* who has the other end */
	struct gm_ring_spin *spin;
	unsigned gone_from; /* from this state on, the other end will not change the word */
};

/* When a wait of so many milliseconds ends that begins now. */
uint64_t gm_ring_wait_end(uint32_t wait_ms);
/* Waits until the word has another value. GPUMEM_E_TIMEOUT; GPUMEM_E_CANCELLED: it will not have one. */
gpumem_status gm_ring_wait(const struct gm_ring_wait *wait, uint64_t until_ns);
/* Wakes whoever waits for the word to change. */
void gm_ring_wake(const uint64_t *word);

#endif
