/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_BACKEND_CUDA_FIXTURE_H
#define GM_TESTS_UNIT_BACKEND_CUDA_FIXTURE_H

/*
 * The daemon's cuda backend over the fake driver (run what includes this with
 * tests/fake/with-fake-gpu -n 2). Each test is a process of its own, so what it puts into the
 * environment is set before the driver is loaded.
 */
#include <stdint.h>

#include "daemon/backend/backend.h"
#include "tests/tap.h"

#define MIB ((uint64_t)1 << 20)

static const struct gm_backend_seen someone = {.domain = 1, .payer_uid = 1000};
static const struct gm_backend_ops *ops = &gm_backend_cuda;
static void *backend;
static uint32_t devices;
static char why[256];

static inline void open_it(void)
{
	struct gm_backend_config config = {0};
	int r = ops->open(&config, &backend, &devices, why);

	ck_assert_msg(r == 0, "open: %d, %s", r, why);
}

static inline uint64_t free_of(uint32_t device)
{
	uint64_t bytes = 0;

	ck_assert_int_eq(ops->memory_free(backend, device, &bytes), 0);
	return bytes;
}

#endif
