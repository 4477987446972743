/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_PRIVATE_H
#define GM_CORE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/core/device.h"
#include "daemon/core/token_hash.h"

/* What struct gm_core is, for core's own files. */

struct gm_share;

struct gm_core {
	struct gm_core_ops ops;
	void *ctx;
	bool stopping;
	struct gm_token_hash_key token_key;

	struct gm_device devices[GM_LIMIT_DEVICES];
	uint32_t n_devices;

	struct gm_session *sessions; /* by id, in order of age */
	struct gm_chunk *chunks;     /* by id */
	struct gm_share *shares;     /* by hash of token */
	uint64_t n_leases;
	struct gm_core_counters counters;
};

#endif
