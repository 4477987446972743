/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_KEEP_H
#define GM_DAEMON_CLIENT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/keep_kind.h"
#include "daemon/tenant/client_table.h"

/*
 * What the daemon keeps of each client for the next daemon, beside the record that core writes: copies of its descriptors
 * in the keeper. client.c calls this as clients come and go; client_adopt.c takes them back.
 */

struct gm_clients_keep {
	/* Keeps a copy of a client's fd (GM_KEEP_PROCESS, GM_KEEP_PAGE or GM_KEEP_FORMER), in place of the
	 * one that it kept before. Returns whether the copy is safe
	 * by now: it may have to wait, or there may be no room for it. */
	bool (*deposit)(void *ctx, enum gm_keep_kind kind, uint64_t id, int fd);
	/* Gives up the copy, if there is one. */
	void (*withdraw)(void *ctx, enum gm_keep_kind kind, uint64_t id);
};

/* From now on, clients outlive the daemon. Before anybody joins; keep must outlive clients. */
int gm_clients_set_keep(struct gm_clients *clients, const struct gm_clients_keep *keep, void *ctx);

/* Without gm_clients_set_keep(), all of these succeed and do nothing. */

/* Copies a descriptor. Returns whether the copy is safe. fd -1: there is none any more. */
bool gm_client_keep_fd(const struct gm_client *client, enum gm_keep_kind kind, int fd);
/* Gives up the copies of a client whose session has ended, and with it the record. */
void gm_client_unkeep(const struct gm_clients *clients, uint64_t id);

#endif
