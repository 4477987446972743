/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant/client_table.h"

#include <utlist.h>

struct gm_client *gm_clients_find(const struct gm_clients *clients, uint64_t id)
{
	struct gm_client *client;

	HASH_FIND(hh, clients->by_id, &id, sizeof(id), client);
	return client;
}

struct gm_client *gm_clients_of(const struct gm_clients *clients, const struct gm_session *session)
{
	return gm_clients_find(clients, gm_session_id(session));
}

struct gm_client *gm_clients_after(const struct gm_clients *clients, uint64_t id)
{
	struct gm_client *client = gm_clients_find(clients, id);

	if (client)
		return client->next;
	/* The client has ended in the meantime. */
	DL_FOREACH (clients->list, client)
		if (client->id > id)
			return client;
	return NULL;
}
