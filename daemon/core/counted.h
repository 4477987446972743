/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_COUNTED_H
#define GM_CORE_COUNTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the driver says each process has on a device, at one moment. debt.c makes estimates of it. */

struct gm_counted_process {
	pid_t pid;
	uint64_t bytes;
};

/* A count is one block of malloc(). */
struct gm_counted {
	bool known;          /* the driver could tell */
	bool sampled;        /* free_bytes was measured together with the count */
	uint64_t free_bytes; /* of the device */
	size_t n;
	struct gm_counted_process list[]; /* in order of pid, each once */
};

/* What became of a process. */
enum gm_fate {
	GM_FATE_ALIVE,    /* it lives, or nobody can tell */
	GM_FATE_GONE,     /* it has ended, and no process has its number */
	GM_FATE_REPLACED, /* another process has its number */
};

#endif
