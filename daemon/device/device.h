/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_H
#define GM_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/figures.h"
#include "common/bounds.h"
#include "common/types.h"
#include "daemon/books/policy.h"

/*
 * This folder looks after one device: it makes, pools and destroys chunks, and says who may have more of
 * the memory. It must never know a session or a lease, only the payer that is charged.
 *
 * Here is a device as the daemon sees it: what core must be told about it, and its figures.
 */

struct gm_core_device_info {
	uint8_t uuid[GM_UUID_BYTES]; /* by which the next daemon finds the device */
	uint64_t total;
	bool transport_fd;
	bool transport_ipc;
	const char *fd_why, *ipc_why; /* why it lacks them; NULL: nobody knows. They outlive core */
	bool pinned;   /* it is host memory, so no buffer can be moved out of it to host memory */
	bool measured; /* free_bytes is what was free before core made anything on the device */
	bool counted;  /* gm_core_counted() will tell what processes have of it */
	uint64_t free_bytes;
	struct gm_policy policy;
};

/* Whether nobody gets new memory on a device, because it is to become empty. */
struct gm_device_draining {
	bool on;
	uid_t uid;         /* of who set it */
	uint64_t since_ns; /* on core's clock, also if an earlier daemon set it */
};

/* The budget arithmetic, as it stands now. */
struct gm_device_figures {
#define GM_DEVICE_FIGURE(name, ...) uint64_t name;
	GM_DEVICE_FIGURES(GM_DEVICE_FIGURE, GM_FIGURE_SKIP)
#undef GM_DEVICE_FIGURE
	uint64_t created;
	uint64_t dying; /* being destroyed */
	bool measured;  /* foreign comes from a sample; false: it is not known */
	uint32_t pressure_ppm;
	enum gm_pressure_level level;
	uint64_t reclaim_epoch;
	struct gm_device_draining drain; /* while it is on, nothing is available */
	struct gm_policy policy;
};

#endif
