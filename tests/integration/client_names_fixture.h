/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_CLIENT_NAMES_FIXTURE_H
#define GM_TESTS_CLIENT_NAMES_FIXTURE_H

/* Buffers to be published through the library, and calls that must be refused. */

#include <string.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/integration/refused.h"

#define BYTES (5 * MIB + 7)

static inline gpumem_buffer *filled(gpumem_session *s, uint8_t byte)
{
	gpumem_buffer *buffer = NULL;
	OK(gpumem_buffer_create(s, 0, BYTES, NULL, &buffer));
	gm_device_set(gpumem_buffer_ptr(buffer), BYTES, byte);
	return buffer;
}

static inline bool has_all(const gpumem_buffer *buffer, uint8_t byte)
{
	return gpumem_buffer_size(buffer) == BYTES &&
	       gm_device_is(gpumem_buffer_ptr(buffer), BYTES, byte);
}

#endif
