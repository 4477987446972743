/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_TRANSFER_H
#define GM_TESTS_INTEGRATION_TRANSFER_H

/* What all tests and benchmarks of transfers need: bytes that tell where they belong, and options. */

#include <stdlib.h>
#include <string.h>

#include "gpumem/gpumem_copy.h"
#include "tests/integration/ok.h"
#include "tests/integration/refused.h"

/* Each page begins with its number. Page by page, because with every access of ours watched, a loop over so
 * many bytes takes minutes. */
static inline uint8_t *pattern(size_t n, unsigned seed)
{
	uint8_t page[4096], *bytes = malloc(n + 1);
	GM_REQUIRE(bytes);
	for (size_t i = 0; i < sizeof(page); i++)
		page[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
	for (size_t at = 0; at < n; at += sizeof(page)) {
		size_t number = at / sizeof(page) + seed;
		memcpy(page, &number, sizeof(number));
		memcpy(bytes + at, page, n - at < sizeof(page) ? n - at : sizeof(page));
	}
	return bytes;
}

static inline gpumem_copy_options by_threads(
	gpumem_copy_strategy strategy, uint32_t threads, uint32_t slots, size_t slot_bytes)
{
	gpumem_copy_options options = GPUMEM_COPY_OPTIONS_INIT;
	options.strategy = strategy;
	options.threads = threads;
	options.slots = slots;
	options.slot_bytes = slot_bytes;
	return options;
}

#endif
