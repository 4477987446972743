/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpumemctl shows. The lists of clients, buffers, buckets and settings may not fit into one
 * packet, so they are long answers (answer.h). What a client says about itself on its page is shown
 * as the client's own word, within the bounds of what the daemon knows.
 */
#include "autoconf.h"

#include "daemon/serve/handlers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/units.h"
#include "daemon/store/store.h"
#include "daemon/lease/declare.h"
#include "daemon/serve/answer.h"

/* The most entries in a packet. So many stay far below GM_BOUND_PACKET_BYTES. */
#define GM_ADMIN_CLIENTS 32
#define GM_ADMIN_BUFFERS 128
#define GM_ADMIN_BUCKETS 128
#define GM_ADMIN_ENTRIES 128
/* How many clients' pages are read for one packet. Reading a page full of rows takes a while. */
#define GM_ADMIN_PAGES  8
#define GM_ADMIN_TOTALS (GM_ADMIN_PAGES * GM_BOUND_DEVICES)
/* The most bytes of a packet's list. The envelope fits into the rest. */
#define GM_ADMIN_BYTES (GM_BOUND_PACKET_BYTES - 1024)

static void admin_fill_keeper(const struct gm_store *store, Gm__Wire__Keeper *ret)
{
	struct gm_store_state state;

	gm_store_get_state(store, &state);
	ret->ready = state.ready;
	ret->pid = (uint64_t)state.pid;
	ret->socket = (char *)state.path;
	ret->items = state.items;
	ret->waiting = state.waiting;
	ret->capacity = state.capacity;
	ret->lost = state.lost;
	ret->restarts = state.restarts;
	ret->records = state.ledger.records;
	ret->ledger_bytes = state.ledger.bytes;
	ret->damaged = state.ledger.damaged;
}

void gm_admin_get_status(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	Gm__Wire__StatusReply reply = GM__WIRE__STATUS_REPLY__INIT;
	Gm__Wire__Keeper keeper = GM__WIRE__KEEPER__INIT;
	struct gm_serve_devices devices;
	struct gm_core_counters counters;
	struct rlimit files;
	struct stat pids;

	gm_core_counters(serve->core, &counters);
	gm_serve_list_devices(serve, &devices);
	reply.version = (char *)PACKAGE_VERSION;
	reply.pid = (uint64_t)getpid();
	reply.uptime_ms = (gm_clock_ns() - serve->start_ns) / GM_NS_PER_MS;
	reply.clients = gm_core_session_count(serve->core);
	reply.quarantined_clients = serve->clients->quarantined;
	reply.uncharged_clients = serve->clients->uncharged_clients;
	reply.uncharged = serve->clients->uncharged;
	reply.leases = gm_core_lease_count(serve->core);
	reply.backend = (char *)serve->ops->name;
	reply.socket = (char *)serve->socket;
	reply.preset = (char *)serve->config->preset;
	reply.n_devices = serve->n_devices;
	reply.devices = devices.list;
	reply.requests = counters.requests;
	reply.refusals = counters.refusals;
	reply.uid = serve->uid;
	reply.backend_note = serve->backend_note;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		reply.fd_limit = files.rlim_cur;
	if (serve->store) {
		admin_fill_keeper(serve->store, &keeper);
		reply.keeper = &keeper;
	}
	if (stat("/proc/self/ns/pid", &pids) == 0)
		reply.pid_namespace = pids.st_ino;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_STATUS, &reply);
}

/* The cursor of a long answer. Each kind of list uses its own part. */
struct admin_listing {
	struct gm_answer head;
	bool inside; /* the client's rows, or the device's buckets, are not all listed yet */
	/* clients and buffers */
	uint64_t client; /* the last one listed, or the one being listed */
	uint64_t orphan; /* the last one listed */
	uint32_t row;    /* the next on that client's page */
	uint64_t older_than_ns;
	uint64_t untracked;
	uint64_t tracked[GM_BOUND_DEVICES]; /* the sum of that client's rows so far */
	uint64_t hidden;                    /* clients */
	/* pools */
	uint32_t device;
	struct gm_pool_bucket_info bucket; /* the last one listed */
	/* configuration */
	size_t entry;
};

static void admin_start_listing(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer), uint64_t older_than_ms)
{
	struct admin_listing *listing = gm_answer_new(serve, peer, id, next, sizeof(*listing));

	if (!listing) {
		gm_serve_fail_memory(peer, id);
		return;
	}
	listing->older_than_ns = older_than_ms > UINT64_MAX / GM_NS_PER_MS
					 ? UINT64_MAX
					 : older_than_ms * GM_NS_PER_MS;
	gm_peer_start(peer, &listing->head.stream);
}

/* ---- clients */

struct client_entry {
	Gm__Wire__Client client;
	Gm__Wire__ClientUse use[GM_BOUND_DEVICES];
	Gm__Wire__ClientUse *list[GM_BOUND_DEVICES];
};

static void admin_fill_client(const struct gm_serve *serve, const struct gm_client *client,
	bool details, struct client_entry *ret)
{
	Gm__Wire__Client *c = &ret->client;

	gm__wire__client__init(c);
	c->session = client->id;
	c->pid = client->identity->pid;
	c->uid = client->identity->uid;
	c->quarantined = !client->peer;
	c->ended = gm_identity_dead(client->identity);
	c->details = details;
	if (details) {
		const char *run = gm_session_info(client->session)->run;

		c->name = (char *)gm_client_name(client);
		c->run = run ? (char *)run : c->run;
		c->run_name = (char *)gm_session_run_name(client->session);
		c->unit = (char *)client->identity->cgroup.unit;
		c->container = (char *)client->identity->cgroup.container;
		c->command = (char *)client->identity->command;
		c->age_ms =
			(gm_clock_ns() - gm_session_info(client->session)->since_ns) / GM_NS_PER_MS;
		c->leases = gm_session_lease_count(client->session);
		c->refused = gm_session_refusal_count(client->session);
		c->waiting = gm_session_waiting_count(client->session);
	}

	c->n_use = serve->n_devices;
	c->use = ret->list;
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		Gm__Wire__ClientUse *use = ret->list[i] = &ret->use[i];
		struct gm_page_use said;
		gm__wire__client_use__init(use);
		use->device = i;
		use->held = gm_session_held(client->session, i);
		use->declared = gm_declare_sum(client->session, i);
		uint64_t in_chunks = use->held - use->declared;
		if (!details || gm_pages_read_use(&client->pages, i, in_chunks, &said) < 0)
			continue;
#define ADMIN_SAID(name, ...) use->name = said.name;
		GM_CLIENT_FIGURES(ADMIN_SAID, GM_FIGURE_SKIP, GM_FIGURE_SKIP)
#undef ADMIN_SAID
		if (serve->devices[i].pinned)
			use->evictable = 0;
	}
}

/* What fits into one packet of the list of clients. */
struct client_list {
	const struct admin_listing *listing;
	struct gm_peer *peer;
	struct client_entry entries[GM_ADMIN_CLIENTS];
	Gm__Wire__Client *list[GM_ADMIN_CLIENTS];
	size_t n, bytes;
};

/* Adds the entry that was filled in last. Returns false if there is no room for it. */
static bool admin_add_client(struct client_list *out)
{
	Gm__Wire__Client *client = &out->entries[out->n].client;

	out->bytes += gm__wire__client__get_packed_size(client) + 8;
	if (out->bytes > GM_ADMIN_BYTES)
		return false;
	out->list[out->n++] = client;
	return true;
}

/* Like gm_answer_may_see(), for what clients left behind. */
static bool admin_may_see_orphan(const struct gm_answer *answer, const struct gm_peer *peer,
	const struct gm_orphan_info *info)
{
	const struct gm_identity *identity = gm_peer_identity(peer);
	const char *container = info->container ? info->container : "";

	return answer->sees_all ||
	       (!identity->confined && identity->uid == info->uid &&
		       strcmp(gm_cgroup_limit_name(&identity->cgroup), container) == 0);
}

/* For gm_core_orphan_each(). */
static bool admin_add_orphan(void *ctx, const struct gm_orphan *orphan)
{
	struct client_list *out = ctx;
	const struct gm_orphan_info *info = gm_orphan_info(orphan);
	uint32_t n_devices = out->listing->head.serve->n_devices;

	if (out->n == GM_ADMIN_CLIENTS ||
		(out->n >= GM_ANSWER_LEAST && gm_peer_time_is_up(out->peer)))
		return false;
	struct client_entry *entry = &out->entries[out->n];
	Gm__Wire__Client *c = &entry->client;
	gm__wire__client__init(c);
	c->session = gm_orphan_id(orphan);
	c->uid = info->uid;
	c->left = true;
	c->details = admin_may_see_orphan(&out->listing->head, out->peer, info);
	if (c->details) {
		c->unit = info->unit ? (char *)info->unit : c->unit;
		c->container = info->container ? (char *)info->container : c->container;
	}

	c->n_use = n_devices;
	c->use = entry->list;
	for (uint32_t i = 0; i < n_devices; i++) {
		Gm__Wire__ClientUse *use = entry->list[i] = &entry->use[i];
		gm__wire__client_use__init(use);
		use->device = i;
		use->held = gm_orphan_held(orphan, i);
		use->orphaned = gm_orphan_orphaned(orphan, i);
	}
	return admin_add_client(out);
}

/* First the clients, then what clients have left behind. */
static int admin_clients_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct admin_listing *listing = (struct admin_listing *)stream;
	struct gm_serve *serve = listing->head.serve;
	struct client_list out;
	struct gm_client *client = gm_clients_after(serve->clients, listing->client);
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	uint64_t last = listing->client;

	out.listing = listing;
	out.peer = peer;
	out.n = out.bytes = 0;
	for (; client && out.n < GM_ADMIN_CLIENTS; client = client->next) {
		if (out.n >= GM_ANSWER_LEAST && gm_peer_time_is_up(peer))
			break;
		admin_fill_client(serve, client, gm_answer_may_see(&listing->head, peer, client),
			&out.entries[out.n]);
		if (!admin_add_client(&out))
			break;
		last = client->id;
	}
	bool more =
		client || gm_core_orphan_each(serve->core, listing->orphan, admin_add_orphan, &out);

	reply.n_clients = out.n;
	reply.clients = out.list;
	int r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_CLIENTS, &reply);
	if (r < 0)
		return r;
	listing->client = last;
	if (out.n > 0 && out.list[out.n - 1]->left)
		listing->orphan = out.list[out.n - 1]->session;
	return r;
}

void gm_admin_get_clients(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	admin_start_listing(serve, peer, packet->id, admin_clients_next, 0);
}

/* ---- buffers */

struct buffer_list {
	Gm__Wire__Buffer buffers[GM_ADMIN_BUFFERS];
	Gm__Wire__Buffer *list[GM_ADMIN_BUFFERS];
	Gm__Wire__BufferGrowth growth[GM_ADMIN_BUFFERS];
	struct gm_pages_row rows[GM_ADMIN_BUFFERS]; /* have the texts */
	size_t n;
	Gm__Wire__BufferTotals totals[GM_ADMIN_TOTALS];
	Gm__Wire__BufferTotals *totals_list[GM_ADMIN_TOTALS];
	size_t n_totals;
};

/* Says how the buffer grows, and how much of it is used. policy is memory for it. */
static void admin_add_growth(Gm__Wire__Buffer *buffer, const struct gm_page_growth *growth,
	Gm__Wire__BufferGrowth *policy)
{
	buffer->max_bytes = growth->max * GM_CHUNK_MIN;
	buffer->use_known = growth->use_known != 0;
	buffer->used_bytes = growth->use_known ? growth->used : 0;
	if (!growth->percent && !growth->step && !growth->ceiling)
		return;
	gm__wire__buffer_growth__init(policy);
	policy->percent = growth->percent;
	policy->step = growth->step * GM_CHUNK_MIN;
	policy->ceiling = growth->ceiling * GM_CHUNK_MIN;
	buffer->growth = policy;
}

/*
 * Adds a client's rows, beginning with at->row. Returns false if the list is full or the turn's
 * time is up: then at->row is the next one to add. A client that lists more than it holds lies. Its
 * rows end where they would exceed that.
 */
static bool admin_list_rows(struct admin_listing *at, const struct gm_peer *peer,
	const struct gm_client *client, struct buffer_list *out)
{
	uint64_t room[GM_BOUND_DEVICES] = {0};
	uint64_t now = gm_clock_ns();
	struct gm_pages_rows rows = {.valid = false};

	for (uint32_t i = 0; i < at->head.serve->n_devices; i++) {
		uint64_t held = gm_session_held(client->session, i);
		room[i] = held > at->tracked[i] ? held - at->tracked[i] : 0;
	}

	while (out->n < GM_ADMIN_BUFFERS) {
		struct gm_pages_row *found = &out->rows[out->n];
		int r = gm_pages_next_row(&client->pages, &rows, room, now, &at->row, found);
		if (r == -EAGAIN && !gm_peer_time_is_up(peer))
			continue;
		if (r <= 0)
			return r != -EAGAIN;
		room[found->device] -= found->bytes;
		at->tracked[found->device] += found->bytes;
		if (now - found->born_ns < at->older_than_ns) {
			if ((out->n == 0 || out->n >= GM_ANSWER_LEAST) && gm_peer_time_is_up(peer))
				return false;
			continue;
		}

		Gm__Wire__Buffer *buffer = out->list[out->n] = &out->buffers[out->n];
		gm__wire__buffer__init(buffer);
		buffer->session = client->id;
		buffer->pid = client->identity->pid;
		buffer->uid = client->identity->uid;
		buffer->client = (char *)gm_client_name(client);
		buffer->device = found->device;
		buffer->bytes = found->bytes;
		buffer->age_ms = (now - found->born_ns) / GM_NS_PER_MS;
		buffer->idle_ms = (now - found->used_ns) / GM_NS_PER_MS;
		buffer->tag = found->tag;
		buffer->type = found->type;
		buffer->precision = found->precision;
		buffer->stack = found->stack;
		buffer->row = found->number;
		buffer->evictable = found->place & GM_PAGE_PLACE_EVICTABLE;
		buffer->pinned = found->place & GM_PAGE_PLACE_PINNED;
		buffer->in_host = found->place & GM_PAGE_PLACE_HOST;
		buffer->shared = found->place & GM_PAGE_PLACE_SHARED;
		buffer->paused = found->place & GM_PAGE_PLACE_PAUSED;
		buffer->home = found->home;
		admin_add_growth(buffer, &found->growth, &out->growth[out->n]);
		out->n++;
		if (out->n >= GM_ANSWER_LEAST && gm_peer_time_is_up(peer))
			return false;
	}
	return false;
}

/* Adds what the client has on each device. Returns how many buffers found no room in its table. */
static uint64_t admin_add_totals(
	const struct admin_listing *at, const struct gm_client *client, struct buffer_list *out)
{
	const struct gm_serve *serve = at->head.serve;
	uint64_t untracked = 0;

	for (uint32_t i = 0; i < serve->n_devices; i++) {
		uint64_t held = gm_session_held(client->session, i);
		struct gm_page_use said = {0};

		uint64_t declared = gm_declare_sum(client->session, i);
		if (!held)
			continue;
		if (gm_pages_read_use(&client->pages, i, held - declared, &said) == 0)
			untracked += said.untracked;

		Gm__Wire__BufferTotals *totals = &out->totals[out->n_totals];
		gm__wire__buffer_totals__init(totals);
		totals->session = client->id;
		totals->pid = client->identity->pid;
		totals->uid = client->identity->uid;
		totals->client = (char *)gm_client_name(client);
		totals->device = i;
		totals->held = held;
		totals->declared = declared;
		totals->in_use = said.in_use;
		totals->cached = said.cached;
		totals->tracked = gm_u64_min(at->tracked[i], held);
		out->totals_list[out->n_totals++] = totals;
	}
	return untracked;
}

static bool admin_holds(const struct gm_serve *serve, const struct gm_client *client)
{
	for (uint32_t i = 0; i < serve->n_devices; i++)
		if (gm_session_held(client->session, i))
			return true;
	return false;
}

static int admin_buffers_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct admin_listing *listing = (struct admin_listing *)stream;
	struct gm_clients *clients = listing->head.serve->clients;
	struct admin_listing at = *listing;
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	struct buffer_list out;
	bool more = false, enough = false;

	out.n = out.n_totals = 0;
	for (int pages = 0; !enough;) {
		struct gm_client *client = NULL;
		if (at.inside)
			client = gm_clients_find(clients, at.client);
		if (!client) {
			client = gm_clients_after(clients, at.client);
			at.row = 0;
			at.inside = false;
			memset(at.tracked, 0, sizeof(at.tracked));
		}
		if (!client)
			break;
		at.client = client->id;
		if (!gm_answer_may_see(&listing->head, peer, client)) {
			at.hidden += admin_holds(listing->head.serve, client);
			enough = gm_peer_time_is_up(peer);
			continue;
		}
		at.inside = !admin_list_rows(&at, peer, client, &out);
		if (at.inside) {
			more = true;
			break;
		}
		at.untracked += admin_add_totals(&at, client, &out);
		enough = ++pages == GM_ADMIN_PAGES || gm_peer_time_is_up(peer);
	}
	if (enough)
		more = gm_clients_after(clients, at.client) != NULL;

	reply.n_buffers = out.n;
	reply.buffers = out.list;
	reply.n_totals = out.n_totals;
	reply.totals = out.totals_list;
	reply.untracked = more ? 0 : at.untracked;
	reply.hidden_clients = more ? 0 : at.hidden;
	int r = 1;
	if (out.n > 0 || out.n_totals > 0 || !more)
		r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_BUFFERS, &reply);
	if (r < 0)
		return r;
	listing->client = at.client;
	listing->row = at.row;
	listing->inside = at.inside;
	listing->untracked = at.untracked;
	memcpy(listing->tracked, at.tracked, sizeof(at.tracked));
	listing->hidden = at.hidden;
	return r;
}

void gm_admin_get_buffers(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	admin_start_listing(
		serve, peer, packet->id, admin_buffers_next, packet->get_buffers->older_than_ms);
}

/* ---- pools */

/* The buckets of a device that come next by their keys, as many as there is room for. The pool
 * visits its buckets in no particular order. */
struct bucket_list {
	const struct gm_pool_bucket_info *after; /* NULL: from the first */
	size_t n, room;
	bool more;
	struct gm_pool_bucket_info *infos;
};

static int admin_compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int admin_compare_buckets(
	const struct gm_pool_bucket_info *a, const struct gm_pool_bucket_info *b)
{
	int r = admin_compare(a->chunk_bytes, b->chunk_bytes);

	if (r == 0)
		r = admin_compare(a->transport, b->transport);
	return r ? r : admin_compare(a->domain, b->domain);
}

static void admin_add_bucket(void *ctx, const struct gm_pool_bucket_info *info)
{
	struct bucket_list *list = ctx;
	size_t at;

	if (list->after && admin_compare_buckets(info, list->after) <= 0)
		return;
	if (list->n == list->room) {
		list->more = true;
		if (admin_compare_buckets(info, &list->infos[list->n - 1]) > 0)
			return;
		list->n--;
	}
	for (at = list->n++; at > 0 && admin_compare_buckets(&list->infos[at - 1], info) > 0; at--)
		list->infos[at] = list->infos[at - 1];
	list->infos[at] = *info;
}

static void admin_fill_totals(
	const struct gm_serve *serve, uint32_t device, Gm__Wire__PoolTotals *ret)
{
	struct gm_pool_totals sums;

	gm_core_pool_totals(serve->core, device, &sums);
	gm__wire__pool_totals__init(ret);
	ret->device = device;
#define ADMIN_POOL(name, ...) ret->name = sums.name;
	GM_POOL_FIGURES(ADMIN_POOL, GM_FIGURE_SKIP)
#undef ADMIN_POOL
}

struct pools_packet {
	struct gm_pool_bucket_info infos[GM_ADMIN_BUCKETS];
	Gm__Wire__PoolBucket buckets[GM_ADMIN_BUCKETS];
	Gm__Wire__PoolBucket *list[GM_ADMIN_BUCKETS];
	char domains[GM_ADMIN_BUCKETS][GM_DOMAIN_TEXT];
	Gm__Wire__PoolTotals totals[GM_BOUND_DEVICES];
	Gm__Wire__PoolTotals *totals_list[GM_BOUND_DEVICES];
};

static void admin_fill_bucket(const struct admin_listing *listing, const struct gm_peer *peer,
	uint32_t device, struct pools_packet *out, size_t i)
{
	const struct gm_pool_bucket_info *info = &out->infos[i];
	Gm__Wire__PoolBucket *bucket = out->list[i] = &out->buckets[i];

	gm__wire__pool_bucket__init(bucket);
	bucket->device = device;
	bucket->transport = (Gm__Wire__Transport)info->transport;
	bucket->chunk_bytes = info->chunk_bytes;
	bucket->domain =
		(char *)gm_domains_text(listing->head.serve->clients->domains, info->domain,
			listing->head.sees_all ? NULL : gm_peer_identity(peer), out->domains[i]);
	bucket->chunks = info->chunks;
	bucket->oldest_ms = info->oldest_ns / GM_NS_PER_MS;
	bucket->decays = info->decay_ns != UINT64_MAX;
	bucket->decay_ms = bucket->decays ? info->decay_ns / GM_NS_PER_MS : 0;
}

static int admin_pools_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct admin_listing *listing = (struct admin_listing *)stream;
	const struct gm_serve *serve = listing->head.serve;
	Gm__Wire__PoolsReply reply = GM__WIRE__POOLS_REPLY__INIT;
	GM_AUTO_FREE struct pools_packet *out = calloc(1, sizeof(*out));
	uint32_t device = listing->device;
	bool inside = listing->inside;
	size_t n = 0;

	if (!out)
		return -ENOMEM;
	for (; device < serve->n_devices && n < GM_ADMIN_BUCKETS; device++, inside = false) {
		struct bucket_list list = {.after = inside ? &listing->bucket : NULL,
			.room = GM_ADMIN_BUCKETS - n,
			.infos = out->infos + n};
		gm_core_pool_each(serve->core, device, admin_add_bucket, &list);
		for (size_t end = n + list.n; n < end; n++)
			admin_fill_bucket(listing, peer, device, out, n);
		inside = list.more;
		if (inside)
			break;
	}

	/* The last packet has the totals. */
	bool more = device < serve->n_devices;
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		admin_fill_totals(serve, i, &out->totals[i]);
		out->totals_list[i] = &out->totals[i];
	}
	reply.n_totals = more ? 0 : serve->n_devices;
	reply.totals = out->totals_list;
	reply.n_buckets = n;
	reply.buckets = out->list;
	int r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_POOLS, &reply);
	if (r < 0)
		return r;
	listing->device = device;
	listing->inside = inside;
	if (inside)
		listing->bucket = out->infos[n - 1];
	return r;
}

void gm_admin_get_pools(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	admin_start_listing(serve, peer, packet->id, admin_pools_next, 0);
}

/* ---- configuration */

/* The owner that a section of the configuration is about. Returns false if there is none. */
static bool admin_entry_owner(const struct gm_config_entry *entry, struct gm_owner *ret_owner)
{
	static const char word[] = "limit ";
	const char *at = entry->section;

	if (strncmp(at, "device ", 7) == 0) {
		at += 7;
		at += strcspn(at, " ");
		at += *at == ' ';
	}
	return strncmp(at, word, strlen(word)) == 0 &&
	       gm_owner_parse(at + strlen(word), ret_owner) == 0;
}

static int admin_config_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct admin_listing *listing = (struct admin_listing *)stream;
	const struct gm_config *config = listing->head.serve->config;
	Gm__Wire__ConfigEntry entries[GM_ADMIN_ENTRIES];
	Gm__Wire__ConfigEntry *list[GM_ADMIN_ENTRIES];
	Gm__Wire__ConfigReply reply = GM__WIRE__CONFIG_REPLY__INIT;
	size_t n = 0, bytes = 0, at = listing->entry;
	unsigned asked = 0;

	for (; at < config->n_entries && n < GM_ADMIN_ENTRIES; at++) {
		if (at >= listing->entry + GM_ANSWER_LEAST && gm_peer_time_is_up(peer))
			break;
		const struct gm_config_entry *from = &config->entries[at];
		struct gm_owner owner;
		if (!listing->head.sees_all && admin_entry_owner(from, &owner)) {
			if (gm_serve_is_private(&owner) && asked++ == GM_ANSWER_OWNERS)
				break;
			if (!gm_answer_may_see_owner(&listing->head, peer, &owner))
				continue;
		}
		gm__wire__config_entry__init(&entries[n]);
		entries[n].section = from->section;
		entries[n].key = from->key;
		entries[n].value = from->value;
		entries[n].source = from->source;
		bytes += gm__wire__config_entry__get_packed_size(&entries[n]) + 8;
		if (bytes > GM_ADMIN_BYTES && n > 0)
			break;
		list[n] = &entries[n];
		n++;
	}

	reply.n_entries = n;
	reply.entries = list;
	int r = gm_answer_emit(
		stream, peer, at < config->n_entries, GM__WIRE__PACKET__BODY_CONFIG, &reply);
	if (r >= 0)
		listing->entry = at;
	return r;
}

void gm_admin_get_config(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	admin_start_listing(serve, peer, packet->id, admin_config_next, 0);
}
