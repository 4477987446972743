/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_SHOW_PLACEMENT_LIST_H
#define GM_CTL_SHOW_PLACEMENT_LIST_H

#include <stdint.h>

#include "common/bounds.h"
#include "ctl/verb/verb.h"

/* The list of devices that the daemon sends when it is asked for room: the best one comes first. */

#define GM_PLACEMENT_NEVER (64 + 2 * GM_UNITS_TEXT)

struct gm_placement_item {
	uint32_t device;
	uint32_t fit;  /* Gm__Wire__Fit; FIT_NONE if it is not known */
	uint64_t room; /* bytes that would be granted now */
	uint64_t most; /* bytes that could ever be granted; 0: none, or not known */
	char why[256]; /* "": it fits */
};

struct gm_placement_list {
	struct gm_placement_item items[GM_BOUND_DEVICES];
	size_t n;
};

/* Asks the daemon. On failure, ctl->trouble says why. */
gpumem_status gm_placement_list_ask(
	struct gm_ctl *ctl, uint64_t bytes, struct gm_placement_list *ret_list);
/* "now", "reclaim", "wait" or "none". */
const char *gm_placement_list_fit(uint32_t fit);
/* A row for each device. Returns NULL if out of memory. */
struct gm_table *gm_placement_list_table(const struct gm_placement_list *list);
/* Formats a sentence: no device is large enough for the request, and which device is the largest. Returns NULL if a
 * device is large enough, or if the daemon is too old to report it. */
const char *gm_placement_list_never(const struct gm_placement_list *list, struct gm_writer *writer,
	uint64_t bytes, char text[GM_PLACEMENT_NEVER]);
/* For people: a line for each device that does not fit at once, with the reason. */
void gm_placement_list_explain(const struct gm_placement_list *list, struct gm_writer *writer);

#endif
