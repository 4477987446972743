/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_RESIZE_FIXTURE_H
#define GM_TESTS_INTEGRATION_RESIZE_FIXTURE_H

/* For tests of buffers that grow and shrink. */

#include "tests/integration/client_fixture.h"

static inline gpumem_stats_t stats_now(void)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	return stats;
}

static inline gpumem_buffer *create_with(size_t size, gpumem_buffer_options options)
{
	gpumem_buffer *buffer = NULL;
	OK(gpumem_buffer_create(session, 0, size, &options, &buffer));
	return buffer;
}

static inline gpumem_buffer *create(size_t size, size_t max_size)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.max_size = max_size;
	options.tag = "growing";
	return create_with(size, options);
}

struct was {
	void *ptr;
	size_t size;
	gpumem_stats_t stats;
	uint64_t leased;
};

static inline struct was now(const gpumem_buffer *buffer)
{
	return (struct was){gpumem_buffer_ptr(buffer), gpumem_buffer_size(buffer), stats_now(),
		gm_figures_now(&daemon_).leased};
}

/* Nothing has changed. */
static inline void require_as(const gpumem_buffer *buffer, const struct was *was)
{
	gpumem_stats_t stats = stats_now();
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == was->ptr);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), was->size);
	GM_REQUIRE_EQ(stats.in_use, was->stats.in_use);
	GM_REQUIRE_EQ(stats.allocated, was->stats.allocated);
	GM_REQUIRE_EQ(stats.active_buffers, was->stats.active_buffers);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, was->leased);
}

#endif
