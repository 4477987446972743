/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_USAGE_SAMPLE_H
#define GM_BOOKS_USAGE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

/* A count: how much memory of a device each process has at one moment, according to the driver. orphan_map.c estimates
 * orphaned memory from it. */

struct gm_usage_sample_process {
	pid_t pid;
	uint64_t bytes;
	uint64_t spoken_for; /* part of bytes: what its sessions owe or declared (declare.c) */
	/* What its sessions declared and may still make, and what it had before that. gm_declare_expect()
	 * sets both. */
	uint64_t expected, before;
};

/* A count is one block of malloc(). */
struct gm_usage_sample {
	bool known;          /* the driver could tell */
	bool sampled;        /* free_bytes was measured together with the count */
	uint64_t free_bytes; /* of the device */
	size_t n;
	struct gm_usage_sample_process list[]; /* in order of pid, each once */
};

/* Order of pid, for bsearch(). */
static inline int gm_usage_sample_order(const void *a, const void *b)
{
	const struct gm_usage_sample_process *x = a, *y = b;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Finds a process in a count. NULL: it is not there, or there is no count. */
static inline struct gm_usage_sample_process *gm_usage_sample_find(
	struct gm_usage_sample *counted, pid_t pid)
{
	struct gm_usage_sample_process key = {.pid = pid};
	if (!counted || counted->n == 0)
		return NULL;
	return bsearch(&key, counted->list, counted->n, sizeof(key), gm_usage_sample_order);
}

/* What became of a process. */
enum gm_env_process {
	GM_ENV_PROCESS_ALIVE,    /* it lives, or nobody can tell */
	GM_ENV_PROCESS_GONE,     /* it has ended, and no process has its number */
	GM_ENV_PROCESS_REPLACED, /* another process has its number */
};

#endif
