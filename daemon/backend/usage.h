/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_USAGE_H
#define GM_DAEMON_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/backend/backend.h"
#include "daemon/books/usage_sample.h"

/* A survey of a device: which processes use it at one moment. */

#define GM_USAGE_COMMAND 64

struct gm_usage_process {
	pid_t pid;
	uint64_t bytes; /* GM_BACKEND_UNKNOWN: the driver does not tell */
	uid_t uid;
	bool uid_known;
	char command[GM_USAGE_COMMAND]; /* printable; "": not known */
};

struct gm_usage {
	bool known;        /* the backend could tell */
	uint64_t unlisted; /* processes that did not fit into the list */
	size_t n;
	struct gm_usage_process list[]; /* the largest first, at most GM_BOUND_PROCESSES */
};

/* Asks the backend, then /proc. Must run on the device's thread. Returns NULL if there is no
 * memory. */
struct gm_usage *gm_usage_read(const struct gm_backend_ops *ops, void *backend, uint32_t device);
/* Asks the backend alone. Must run on the device's thread. Returns NULL if there is no memory. */
struct gm_usage_sample *gm_usage_count(
	const struct gm_backend_ops *ops, void *backend, uint32_t device);
void gm_usage_free(struct gm_usage *usage);

#endif
