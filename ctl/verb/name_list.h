/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_NAME_LIST_H
#define GM_CTL_VERB_NAME_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "ctl/verb/verb.h"

/* The names of published buffers, with the row in the list of clients that is charged for each. Memory that outlived its
 * client has no other name. */

struct gm_name_list_item {
	uint64_t payer; /* the session of the row */
	uint32_t device;
	uint64_t bytes, age_ms;
	char name[GM_BOUND_NAME_BYTES + 1];
};

struct gm_name_list {
	struct gm_name_list_item *items;
	size_t n;
	bool no_memory;
};

/* Asks the daemon. The list must be zeroed before. A daemon that does not know names has none. */
gpumem_status gm_name_list_ask(
	struct gm_name_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn);
void gm_name_list_deinit(struct gm_name_list *list);
/* Returns the names that the row is charged for: "llama, qwen"; malloc'ed. NULL: none, or no memory. */
char *gm_name_list_of(const struct gm_name_list *list, uint64_t payer);

#endif
