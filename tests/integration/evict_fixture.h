/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_EVICT_FIXTURE_H
#define GM_TESTS_INTEGRATION_EVICT_FIXTURE_H

/* For tests of evictable buffers: a small device, and buffers that are made, filled, pinned and evicted. */

#include "gpumem/gpumem_evict.h"
#include "tests/integration/location_fixture.h"

/* The device is never as full as to make pressure critical, which would evict more than a test expects. */
#define CONFIG_WITH(host_limit) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"pressure_medium = 0.98\npressure_high = 0.99\npressure_critical = 1.0\n" \
	"pressure_hysteresis = 0\nhost_limit = " host_limit "\n[device 0]\nsize = 66M\n"

static inline void set_up_small(void)
{
	set_up_with(CONFIG_WITH("256M"));
}

static inline gpumem_buffer *create_in(gpumem_session *s, size_t size)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	options.tag = "evictable";
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_create(s, 0, size, &options, &buffer));
	return buffer;
}

static inline gpumem_buffer *create(size_t size)
{
	return create_in(session, size);
}

static inline void pin(gpumem_buffer *buffer)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where = GPUMEM_LOCATION_HOST;
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
}

static inline void unpin(gpumem_buffer *buffer)
{
	OK(gpumem_buffer_unpin(buffer, NULL));
}

/* On a GPU, the device may need a moment after it was unpinned. */
static inline void evict(gpumem_buffer *buffer)
{
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "idle")) {
		gpumem_status status = gpumem_buffer_evict(buffer);
		if (status != GPUMEM_E_BUSY) {
			OK(status);
			return;
		}
	}
}

static inline gpumem_buffer *filled(size_t size, uint8_t byte)
{
	gpumem_buffer *buffer = create(size);
	pin(buffer);
	fill(buffer, byte);
	unpin(buffer);
	return buffer;
}

#endif
