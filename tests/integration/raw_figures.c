/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What the daemon says of itself and of its clients, asked by an observer. */

#include <stdlib.h>
#include <string.h>

#include "tests/integration/raw.h"

static void raw_fill_figures(const struct gm_raw *raw, uint32_t device, struct gm_figures *ret)
{
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_STATUS);
	const Gm__Wire__StatusReply *s = raw->packet->status;
	GM_REQUIRE(s->n_devices > device);
	const Gm__Wire__Device *d = s->devices[device];
	*ret = (struct gm_figures){.clients = s->clients,
		.quarantined_clients = s->quarantined_clients,
		.leases = s->leases,
		.requests = s->requests,
		.refusals = s->refusals,
		.total = d->total,
		.capacity = d->capacity,
		.ceiling = d->ceiling,
		.available = d->available,
		.leased = d->leased,
		.quarantined = d->quarantined,
		.orphaned = d->orphaned,
		.declared = d->declared,
		.declared_seen = d->declared_seen,
		.free = d->free,
		.admitted = d->admitted,
		.pooled = d->pooled,
		.foreign = d->foreign,
		.chunks = d->chunks,
		.peak_charged = d->peak_charged,
		.generation = raw->generation,
		.kept = s->keeper ? s->keeper->items : 0,
		.records = s->keeper ? s->keeper->records : 0};
}

void gm_figures_of(const struct gm_daemon *daemon, uint32_t device, struct gm_figures *ret)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, daemon);
	Gm__Wire__GetStatus get = GM__WIRE__GET_STATUS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &get)), GPUMEM_OK);
	raw_fill_figures(&raw, device, ret);
	gm_raw_close(&raw);
}

bool gm_figures_try(const struct gm_daemon *daemon, struct gm_figures *ret)
{
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__GetStatus get = GM__WIRE__GET_STATUS__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"raw";
	hello.observer = true;
	if (gm_raw_connect(&raw, daemon->socket) < 0)
		return false;
	gpumem_status status = gm_raw_call(&raw, GM_RAW_PACKET(HELLO, hello, &hello));
	if (status == GPUMEM_OK)
		status = gm_raw_call(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &get));
	if (status == GPUMEM_OK)
		raw_fill_figures(&raw, 0, ret);
	gm_raw_close(&raw);
	if (status != GPUMEM_OK && status != GPUMEM_E_DISCONNECTED)
		GM_FAIL("the daemon refused to tell its figures: %d", (int)status);
	return status == GPUMEM_OK;
}

void gm_figures(const struct gm_daemon *daemon, struct gm_figures *ret)
{
	gm_figures_of(daemon, 0, ret);
}

struct gm_figures gm_figures_now(const struct gm_daemon *daemon)
{
	struct gm_figures figures;
	gm_figures(daemon, &figures);
	return figures;
}

void gm_figures_await_none(const struct gm_daemon *daemon)
{
	struct gm_figures f;
	GM_UNTIL((f = gm_figures_now(daemon),
		f.clients + f.leases + f.leased + f.quarantined + f.admitted + f.declared == 0));
}

static void raw_fill_row(const Gm__Wire__Client *c, struct gm_client_row *ret)
{
	*ret = (struct gm_client_row){.session = c->session,
		.leases = c->leases,
		.pid = c->pid,
		.uid = c->uid,
		.quarantined = c->quarantined,
		.left = c->left,
		.details = c->details};
	GM_REQUIRE(strlen(c->name) <= GM_BOUND_NAME_BYTES);
	strcpy(ret->name, c->name);
	if (c->n_use > 0) {
		ret->held = c->use[0]->held;
		ret->in_use = c->use[0]->in_use;
		ret->cached = c->use[0]->cached;
		ret->active_buffers = c->use[0]->active_buffers;
		ret->declared = c->use[0]->declared;
	}
}

/* Calls visit() for each row of the answer to GetClients. */
static void raw_each_row(const struct gm_daemon *daemon,
	void (*visit)(void *ctx, const struct gm_client_row *row), void *ctx)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, daemon);
	Gm__Wire__GetClients get = GM__WIRE__GET_CLIENTS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_CLIENTS, get_clients, &get)), GPUMEM_OK);
	for (;;) {
		GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_CLIENTS);
		const Gm__Wire__ClientsReply *reply = raw.packet->clients;
		for (size_t i = 0; i < reply->n_clients; i++) {
			struct gm_client_row row;
			raw_fill_row(reply->clients[i], &row);
			visit(ctx, &row);
		}
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
}

struct raw_search {
	uint64_t session;
	bool found;
	struct gm_client_row row;
};

static void raw_match_row(void *ctx, const struct gm_client_row *row)
{
	struct raw_search *search = ctx;
	if (row->session != search->session)
		return;
	search->found = true;
	search->row = *row;
}

bool gm_client_row(const struct gm_daemon *daemon, uint64_t session, struct gm_client_row *ret)
{
	struct raw_search search = {.session = session};
	raw_each_row(daemon, raw_match_row, &search);
	if (search.found)
		*ret = search.row;
	return search.found;
}

struct raw_rows {
	struct gm_client_row *rows;
	size_t n, most;
};

static void raw_add_row(void *ctx, const struct gm_client_row *row)
{
	struct raw_rows *all = ctx;
	if (all->n < all->most)
		all->rows[all->n] = *row;
	all->n++;
}

static int raw_compare_rows(const void *a, const void *b)
{
	const struct gm_client_row *x = a, *y = b;
	return x->session < y->session ? -1 : x->session > y->session;
}

size_t gm_client_rows(const struct gm_daemon *daemon, struct gm_client_row *rows, size_t most)
{
	struct raw_rows all = {.rows = rows, .most = most};
	raw_each_row(daemon, raw_add_row, &all);
	qsort(rows, all.n < most ? all.n : most, sizeof(*rows), raw_compare_rows);
	return all.n;
}

struct raw_left {
	uid_t uid;
	uint64_t held;
};

static void raw_add_left(void *ctx, const struct gm_client_row *row)
{
	struct raw_left *left = ctx;
	if (row->left && row->uid == left->uid)
		left->held += row->held;
}

uint64_t gm_left_by(const struct gm_daemon *daemon, uid_t uid)
{
	struct raw_left left = {.uid = uid};
	raw_each_row(daemon, raw_add_left, &left);
	return left.held;
}

uint64_t gm_queue_wait(const struct gm_daemon *daemon)
{
	struct gm_raw ctl;
	Gm__Wire__GetQueue body = GM__WIRE__GET_QUEUE__INIT;
	uint64_t n = 0;
	gm_raw_observe(&ctl, daemon);
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_QUEUE, get_queue, &body)), GPUMEM_OK);
	for (;;) {
		for (size_t i = 0; i < ctl.packet->queue->n_requests; i++)
			n += !ctl.packet->queue->requests[i]->nowait;
		if (!ctl.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&ctl));
	}
	gm_raw_close(&ctl);
	return n;
}
