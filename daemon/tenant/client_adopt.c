/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant/client_adopt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/text/units.h"
#include "daemon/tenant/client_store.h"

/* A client whose record was read, and whose session core has not adopted yet. */
struct gm_client_adopted {
	uint64_t id;
	struct gm_client *client; /* NULL: its process is gone */
	gm_domain domain;
};

/* Makes the record of a client whose process lives. */
static int client_adopt_restore(struct gm_clients *clients, const struct gm_record_client *record,
	struct gm_identity *identity, struct gm_client **ret_client)
{
	struct gm_client *client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	int r = gm_hub_flow_get(&clients->hub->flows, identity->payer_uid, &client->flow);
	if (r < 0) {
		free(client);
		return r;
	}

	client->clients = clients;
	client->id = record->head.id;
	gm_pages_init(&client->pages);
	gm_pages_init(&client->former);
	client->pages.version = record->page_version;
	client->pages.devices = clients->devices;
	r = gm_client_enter(client, identity);
	if (r < 0) {
		gm_hub_flow_unref(client->flow);
		free(client);
		return r;
	}

	clients->quarantined++;
	*ret_client = client;
	return 0;
}

/* Who the client was when it connected. */
static void client_adopt_known(const struct gm_record_client *record, struct gm_identity *ret)
{
	*ret = (struct gm_identity){
		.pid = record->pid,
		.uid = record->head.uid,
		.payer_uid = gm_record_payer_uid(&record->head, record->payer_uid),
		.gid = record->gid,
		.pidfd = -1,
		.started = record->start_time,
		.own_pid_namespace = record->own_pid_namespace,
		.confined = record->confined,
	};
	ret->cgroup.name_is_loose = record->loose;
	_Static_assert(sizeof(ret->cgroup.unit) == sizeof(record->unit) &&
			       sizeof(ret->cgroup.container) == sizeof(record->container) &&
			       sizeof(ret->cgroup.scope) == sizeof(record->scope) &&
			       sizeof(ret->command) == sizeof(record->command),
		"an identity fits its record");
	strcpy(ret->cgroup.unit, record->unit);
	strcpy(ret->cgroup.container, record->container);
	strcpy(ret->cgroup.scope, record->scope);
	strcpy(ret->command, record->command);
}

static int client_adopt_one(struct gm_clients *clients, enum gm_domain_trust trust,
	const struct gm_record_client *record, struct gm_client_kept *kept,
	struct gm_client_adopted *adopted, bool *ret_pooling)
{
	struct gm_identity known, *identity = NULL;
	if (record->pid < 0 || !gm_name_ok(record->name))
		return -EBADMSG;
	client_adopt_known(record, &known);

	int r = -ESRCH;
	if (memcmp(record->boot, clients->boot, sizeof(record->boot)) == 0)
		r = gm_identity_restore(
			&known, record->start_time, gm_steal_fd(&kept->pidfd), &identity);
	if (r < 0 && r != -ESRCH)
		return r;

	bool gone = r == -ESRCH;
	r = gm_domains_get(clients->domains, trust, &known, &adopted->domain, ret_pooling);
	if (r == 0 && !gone) {
		r = client_adopt_restore(clients, record, identity, &adopted->client);
		if (r < 0)
			gm_domains_release(clients->domains, adopted->domain);
	}
	gm_identity_unref(identity);
	if (r < 0 || gone)
		return r;

	struct gm_client *client = adopted->client;
	client->domain = adopted->domain;
	client->page_lost = kept->page < 0 || record->page_unsafe;
	client->pages.client_fd = gm_steal_fd(&kept->page);
	client->former.client_fd = gm_steal_fd(&kept->former);
	return 0;
}

int gm_clients_adopt(struct gm_clients *clients, enum gm_domain_trust trust,
	const struct gm_record_client *record, struct gm_client_kept *kept, gm_domain *ret_domain,
	bool *ret_pooling)
{
	struct gm_client_adopted *list =
		realloc(clients->adopted, (clients->n_adopted + 1) * sizeof(clients->adopted[0]));
	int r = -ENOMEM;
	if (list) {
		clients->adopted = list;
		list[clients->n_adopted] = (struct gm_client_adopted){.id = record->head.id};
		r = client_adopt_one(
			clients, trust, record, kept, &list[clients->n_adopted], ret_pooling);
	}
	if (r == 0)
		*ret_domain = list[clients->n_adopted++].domain;
	gm_close(kept->pidfd);
	gm_close(kept->page);
	gm_close(kept->former);
	return r;
}

/* Core has decided about the session of a client that lives. */
static void client_adopt_end_living(
	struct gm_clients *clients, const struct gm_client_adopted *adopted)
{
	struct gm_session *session = gm_core_find_session(clients->core, adopted->id);
	struct gm_client *client = adopted->client;
	if (!session) {
		clients->quarantined--;
		gm_client_unstore(clients, adopted->id);
		gm_client_forget(client);
		return;
	}

	client->session = session;
	for (uint32_t i = 0; i < clients->devices; i++)
		client->max[i] = gm_session_max(session, i);
	gm_client_is_away(client);
}

/* The same of one whose process is gone. Returns whether there was a session. */
static bool client_adopt_end_gone(
	struct gm_clients *clients, const struct gm_client_adopted *adopted)
{
	struct gm_session *session = gm_core_find_session(clients->core, adopted->id);

	if (session)
		gm_session_end_died(session);
	gm_domains_release(clients->domains, adopted->domain);
	gm_client_unstore(clients, adopted->id);
	return session;
}

uint64_t gm_clients_adopt_end(struct gm_clients *clients)
{
	uint64_t gone = 0;

	/* When a session ends, core tells all clients what there is now: they need their sessions. */
	for (size_t i = 0; i < clients->n_adopted; i++)
		if (clients->adopted[i].client)
			client_adopt_end_living(clients, &clients->adopted[i]);
	for (size_t i = 0; i < clients->n_adopted; i++)
		if (!clients->adopted[i].client)
			gone += client_adopt_end_gone(clients, &clients->adopted[i]);
	free(clients->adopted);
	clients->adopted = NULL;
	clients->n_adopted = 0;
	return gone;
}
