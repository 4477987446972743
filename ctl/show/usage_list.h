/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_SHOW_USAGE_LIST_H
#define GM_CTL_SHOW_USAGE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bounds.h"
#include "ctl/verb/verb.h"

/* The processes that use devices by themselves: what they have there is foreign memory. */

struct gm_usage_item {
	uint32_t device;
	int64_t pid;
	Gm__Wire__ProcessKind kind;
	uint32_t uid;
	bool uid_known;
	uint64_t bytes;
	uint64_t foreign; /* part of bytes: what a client has declared is not */
	bool bytes_known;
	char command[64]; /* "": not known, or not for the asker to see */
	char client[GM_BOUND_NAME_BYTES +
		    1]; /* the client's name, for 'who' to fill in; "": none */
};

/* Maximum size of what is taken for the context of a client, in bytes. On an H200 a context takes about 527 MiB, and
 * libraries such as cuBLAS add to that. */
#define GM_USAGE_CONTEXT_MAX (UINT64_C(1) << 30)

struct gm_usage_list {
	struct gm_usage_item *items; /* by device, the largest first */
	size_t n, room;
	bool no_memory; /* items are missing */
	/* How much the listed processes of each device use together. */
	struct {
		uint64_t bytes;
		bool complete; /* all processes are listed, and what each of them uses is known */
	} sums[GM_BOUND_DEVICES];
	uint64_t unlisted;
};

/* Asks the daemon, which measures its devices for the answer: figures that it sends next belong to the same
 * moment. On failure, *trouble says why. The caller calls
 * gm_usage_list_deinit() in any case. */
gpumem_status gm_usage_list_ask(
	struct gm_ctl_conn *conn, struct gm_usage_list *ret_list, struct gm_trouble *trouble);
void gm_usage_list_deinit(struct gm_usage_list *list);

/* Begins the notes, and says how many processes are not in the list, if any. */
void gm_usage_list_note(const struct gm_usage_list *list, struct gm_writer *writer);

/*
 * Returns the foreign memory of a device that belongs to no listed process: a process only has an fd of
 * it, or uses the device without a context. What is orphaned on a GPU, or was declared, is not foreign, but
 * processes are listed with it. Returns 0 if that is not known.
 */
uint64_t gm_usage_list_rest(const struct gm_usage_list *list, const Gm__Wire__Device *device);
/* Returns the process that has most foreign memory of the device, a client or not, or NULL. */
const struct gm_usage_item *gm_usage_list_largest(
	const struct gm_usage_list *list, uint32_t device);

#endif
