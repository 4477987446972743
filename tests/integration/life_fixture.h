/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_LIFE_FIXTURE_H
#define GM_TESTS_INTEGRATION_LIFE_FIXTURE_H

/* A private daemon, and a client that holds memory. */

#include "common/wire/page.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define CHUNKS  4
#define PATTERN 0xa7

static struct gm_daemon daemon_;

static inline void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static inline void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

/* A lease of CHUNKS chunks, filled. */
static inline void take(struct gm_raw *raw, struct gm_raw_lease *ret)
{
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, ret), GPUMEM_OK);
	while (ret->n < CHUNKS)
		GM_REQUIRE_EQ(gm_raw_grow(raw, ret, GM_CHUNK_MIN), GPUMEM_OK);
	for (size_t i = 0; i < ret->n; i++)
		gm_alloc_raw_chunk_fill(&ret->chunks[i], PATTERN);
}

#endif
