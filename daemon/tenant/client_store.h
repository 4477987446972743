/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_TENANT_CLIENT_STORE_H
#define GM_DAEMON_TENANT_CLIENT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/store_kind.h"
#include "daemon/tenant/client_table.h"

/*
 * What the daemon keeps of each client for the next daemon, beside the record that core writes: copies of its descriptors
 * in the keeper. client.c calls this as clients come and go; client_adopt.c takes them back.
 */

struct gm_clients_store {
	/* Keeps a copy of a client's fd (GM_STORE_PROCESS, GM_STORE_PAGE or GM_STORE_FORMER), in place of the
	 * one that it kept before. Returns whether the copy is safe
	 * by now: it may have to wait, or there may be no room for it. */
	bool (*deposit)(void *ctx, enum gm_store_kind kind, uint64_t id, int fd);
	/* Gives up the copy, if there is one. */
	void (*withdraw)(void *ctx, enum gm_store_kind kind, uint64_t id);
};

/* From now on, clients outlive the daemon. Before anybody joins; keep must outlive clients. */
int gm_clients_set_store(
	struct gm_clients *clients, const struct gm_clients_store *store, void *ctx);

/* Without gm_clients_set_store(), all of these succeed and do nothing. */

/* Copies a descriptor. Returns whether the copy is safe. fd -1: there is none any more. */
bool gm_client_store_fd(const struct gm_client *client, enum gm_store_kind kind, int fd);
/* Gives up the copies of a client whose session has ended, and with it the record. */
void gm_client_unstore(const struct gm_clients *clients, uint64_t id);

#endif
