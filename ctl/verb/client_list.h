/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_CLIENT_LIST_H
#define GM_CTL_VERB_CLIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/verb/verb.h"

/* The clients that hold memory of one device or of all devices, and what clients left behind. */

struct gm_client_list_item {
	uint64_t session, held;
	int64_t pid;
	uint32_t uid;
	bool left, quarantined;
	char *name; /* of what a client left behind, the names that it is published under */
};

struct gm_client_list {
	bool all_devices;
	uint32_t device;
	bool connected;                    /* leave out what clients left behind */
	struct gm_client_list_item *items; /* the largest first */
	size_t n, n_left; /* n_left counts what clients left behind, also where it is left out */
	uint64_t held;    /* by the items */
	bool no_memory;
};

/* Asks the daemon. The first three fields must be set, and the others zeroed. The caller calls gm_client_list_deinit() in
 * any case. On failure, ctl->trouble says why. */
gpumem_status gm_client_list_ask(
	struct gm_client_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn);
void gm_client_list_deinit(struct gm_client_list *list);

#define GM_CLIENT_LIST_TEXT 426
/* Names those that hold most: "4.0G train (pid 4711, user ann), 1.0G pid 4712, user bob, and 3 more". Returns text. */
const char *gm_client_list_text(const struct gm_client_list *list, char text[GM_CLIENT_LIST_TEXT]);

#endif
