/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits and the queue. Core decides whether a limit makes sense. This file makes sure that only an
 * administrator sets one, and tells the clients and watchers that it concerns. The list of limits
 * and the queue show no more about a client than the list of clients does.
 */
#include "daemon/serve/admin_limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/policy.h"
#include "daemon/config/config_keys.h"
#include "daemon/device/limit.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/handlers.h"
#include "daemon/serve/watch.h"
#include "daemon/tenant/client_news.h"
#include "daemon/queue/queue.h"

/* How many rows a packet takes. Each is below 512 bytes. */
/* Minimum number of rows of a packet. A row of these lists is quickly made. */
#define LIMITS_LEAST   32
#define GM_BOUNDS_ROWS 100

/* ---- the configured limits */

gpumem_status gm_admin_configure(struct gm_core *core, const struct gm_config *config,
	const struct gm_policy *policies, char detail[GM_DETAIL_BYTES])
{
	GM_AUTO_FREE struct gm_limit_rule *rules =
		calloc(config->n_limits ? config->n_limits : 1, sizeof(*rules));
	if (!rules) {
		snprintf(detail, GM_DETAIL_BYTES, "the daemon is out of memory");
		return GPUMEM_E_HOST_MEMORY;
	}

	for (size_t i = 0; i < config->n_limits; i++) {
		const struct gm_config_limit *from = &config->limits[i];
		if (gm_owner_parse(from->owner, &rules[i].owner) < 0) {
			return gm_text_refuse(
				GPUMEM_E_INVALID, detail, "\"%.100s\" names no owner", from->owner);
		}
		rules[i].device =
			from->device == GM_CONFIG_ALL_DEVICES ? GM_ALL_DEVICES : from->device;
		rules[i].values = from->values;
		memcpy(rules[i].sources, from->sources, sizeof(rules[i].sources));
	}
	return gm_core_configure(core, policies, rules, config->n_limits, detail);
}

/* ---- showing limits */

/* The cursor of a list of limits, or of the queues. */
struct limits_listing {
	struct gm_answer head;
	bool one; /* show the limits of this owner only */
	struct gm_owner owner;
	struct gm_limit_place limit;
	uint64_t hidden;       /* owners */
	struct gm_owner asked; /* the last owner that was looked at, and whether it is shown */
	bool seen;
	uint32_t device; /* whose queue */
	struct gm_queue_place waiting;
};

/* owner: NULL for all. */
static void limits_start_listing(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer), const struct gm_owner *owner)
{
	struct limits_listing *listing = gm_answer_new(serve, peer, id, next, sizeof(*listing));

	if (!listing) {
		gm_serve_fail_memory(peer, id);
		return;
	}
	listing->waiting = GM_QUEUE_FIRST;
	listing->asked = (struct gm_owner){.kind = GM_OWNER_KINDS}; /* nobody */
	if (owner) {
		listing->one = true;
		listing->owner = *owner;
	}
	gm_peer_start(peer, &listing->head.stream);
}

struct limit_rows {
	const struct gm_answer *answer;
	const struct gm_peer *peer;
	const struct gm_owner *only; /* NULL: all */
	/* The owner that was last asked about: its limits on other devices come next. */
	struct gm_owner asked;
	bool seen;
	unsigned n_asked, looked_at;
	uint64_t hidden; /* owners */
	size_t n;
	Gm__Wire__Limit limits[GM_BOUNDS_ROWS];
	Gm__Wire__Limit *list[GM_BOUNDS_ROWS];
	char owners[GM_BOUNDS_ROWS][GM_OWNER_TEXT];
};

/* Returns false if this packet may not ask about another owner. */
static bool limits_ask_owner(struct limit_rows *out, const struct gm_owner *owner)
{
	if (memcmp(&out->asked, owner, sizeof(*owner)) == 0)
		return true;
	if (!out->answer->sees_all && gm_serve_is_private(owner) &&
		out->n_asked++ == GM_ANSWER_OWNERS)
		return false;

	out->asked = *owner;
	out->seen = gm_answer_may_see_owner(out->answer, out->peer, owner);
	out->hidden += !out->seen;
	return true;
}

static bool limits_add_limit(void *ctx, const struct gm_limit_info *info)
{
	struct limit_rows *out = ctx;

	if (out->looked_at >= LIMITS_LEAST && gm_peer_time_is_up(out->peer))
		return false;
	out->looked_at++;
	if (out->only && memcmp(out->only, &info->owner, sizeof(info->owner)) != 0)
		return true;
	if (out->n == GM_BOUNDS_ROWS || !limits_ask_owner(out, &info->owner))
		return false;
	if (!out->seen)
		return true;

	size_t i = out->n++;
	Gm__Wire__Limit *row = out->list[i] = &out->limits[i];
	gm__wire__limit__init(row);
	row->owner = out->owners[i];
	gm_owner_name(&info->owner, row->owner);
	row->device = info->device;
	row->set = info->values.set;
#define LIMITS_VALUE(KIND, name, unit, bit, unset, ...) \
	row->name = info->values.set & GM_LIMIT_##KIND ? info->values.name : (unset);
	GM_LIMIT_KINDS(LIMITS_VALUE)
#undef LIMITS_VALUE
	row->run_time = info->run_time.set;
	row->held = info->held;
	row->clients = info->clients;
	row->over = info->over;
	row->name = (char *)info->label;
	return true;
}

static int limits_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct limits_listing *listing = (struct limits_listing *)stream;
	struct gm_limit_place place = listing->limit;
	struct limit_rows out;
	Gm__Wire__LimitsReply reply = GM__WIRE__LIMITS_REPLY__INIT;

	out.n = 0;
	out.n_asked = 0;
	out.looked_at = 0;
	out.hidden = listing->hidden;
	out.answer = &listing->head;
	out.peer = peer;
	out.asked = listing->asked;
	out.seen = listing->seen;
	out.only = listing->one ? &listing->owner : NULL;
	place.user = listing->head.sees_all ? 0 : UINT64_C(1) + gm_peer_identity(peer)->payer_uid;
	bool more = gm_core_limit_each(listing->head.serve->core, &place, limits_add_limit, &out);
	reply.n_limits = out.n;
	reply.limits = out.list;
	reply.hidden_owners = more ? 0 : out.hidden;
	int r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_LIMITS, &reply);
	if (r >= 0) {
		listing->limit = place;
		listing->hidden = out.hidden;
		listing->asked = out.asked;
		listing->seen = out.seen;
	}
	return r;
}

void gm_admin_get_limits(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	limits_start_listing(serve, peer, packet->id, limits_next, NULL);
}

/* ---- changing limits */

static bool limits_parse_owner(
	struct gm_peer *peer, uint64_t id, const char *text, struct gm_owner *ret)
{
	char detail[GM_DETAIL_BYTES];

	if (gm_owner_parse(text, ret) == 0)
		return true;
	gm_text_say(detail,
		"\"%.80s\" names no owner; use uid:ID, gid:ID, unit:NAME, container:NAME, client:NAME or session:ID",
		text);
	gm_peer_send_failure(peer, id, GPUMEM_E_INVALID, detail);
	return false;
}

/* Refuses a limit that would hold nobody, because somebody else pays for the uid. */
static bool limits_is_payer(const struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_owner *owner)
{
	uid_t uid = (uid_t)owner->id;
	uid_t payer_uid = owner->kind == GM_OWNER_UID
				  ? gm_subuids_payer(&serve->clients->hub->subuids, uid)
				  : uid;
	char detail[GM_DETAIL_BYTES], user[GM_UID_NAME_TEXT];

	if (payer_uid == uid)
		return true;
	snprintf(detail, sizeof(detail),
		"uid %u is a subordinate uid of %s, whose limits hold for it; set one for uid:%u",
		(unsigned)uid, gm_uid_name_say(payer_uid, user), (unsigned)payer_uid);
	gm_peer_send_failure(peer, id, GPUMEM_E_INVALID, detail);
	return false;
}

static void limits_describe(const Gm__Wire__SetLimit *set, const struct gm_limit_values *values,
	char text[GM_DETAIL_BYTES])
{
	char value[GM_UNITS_TEXT];
	int n = snprintf(text, GM_DETAIL_BYTES, "now");

	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++)
		if (values->set & gm_limit_kinds[i].bit)
			n += snprintf(text + n, (size_t)(GM_DETAIL_BYTES - n), " %s %s",
				gm_limit_kinds[i].name,
				gm_limit_values_text(values, &gm_limit_kinds[i], value));
	if (!set->all_devices)
		snprintf(text + n, (size_t)(GM_DETAIL_BYTES - n), " on device %u", set->device);
}

void gm_admin_set_limit(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__SetLimit *set = packet->set_limit;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_owner owner;
	char names[GM_LIMIT_NAMES_TEXT];
#define LIMITS_VALUE(KIND, name, ...) .name = set->name,
	const struct gm_limit_values values = {.set = set->set, GM_LIMIT_KINDS(LIMITS_VALUE)};
#undef LIMITS_VALUE

	if (!gm_serve_require_admin(serve, peer, packet->id, "setting a limit") ||
		!limits_parse_owner(peer, packet->id, set->owner, &owner) ||
		!limits_is_payer(serve, peer, packet->id, &owner))
		return;
	if (set->set & ~(uint32_t)GM_LIMIT_ALL || set->priority > GM_PRIORITY_MAX ||
		set->priority < -GM_PRIORITY_MAX) {
		gm_text_say(detail, "a limit has %s; the priority must be from -1000 to 1000",
			gm_limit_kind_names("", " and ", names));
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, detail);
		return;
	}

	/* Watchers hear of the change before its effects. */
	gm_core_hold(serve->core);
	gpumem_status status = gm_core_set_limit(serve->core, &owner,
		set->all_devices ? GM_ALL_DEVICES : set->device, &values, detail);
	if (status == GPUMEM_OK) {
		limits_describe(set, &values, detail);
		gm_clients_limits_changed(serve->clients);
		gm_watch_limits(serve, gm_peer_identity(peer), set->owner, detail,
			set->set & GM_LIMIT_MAX ? set->max : 0);
	}
	gm_core_release(serve->core);
	if (status != GPUMEM_OK) {
		gm_peer_send_failure(peer, packet->id, status, detail);
		return;
	}
	limits_start_listing(serve, peer, packet->id, limits_next, &owner);
}

void gm_admin_reset_limit(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__ResetLimit *reset = packet->reset_limit;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_owner owner;
	bool all = !reset->owner[0];

	if (!gm_serve_require_admin(serve, peer, packet->id, "resetting a limit") ||
		(!all && !limits_parse_owner(peer, packet->id, reset->owner, &owner)))
		return;

	gm_core_hold(serve->core);
	gpumem_status status = gm_core_reset_limit(serve->core, all ? NULL : &owner,
		reset->all_devices ? GM_ALL_DEVICES : reset->device, detail);
	if (status == GPUMEM_OK) {
		gm_clients_limits_changed(serve->clients);
		gm_watch_limits(serve, gm_peer_identity(peer), all ? "all" : reset->owner,
			"reset to the configuration", 0);
	}
	gm_core_release(serve->core);
	if (status != GPUMEM_OK) {
		gm_peer_send_failure(peer, packet->id, status, detail);
		return;
	}
	limits_start_listing(serve, peer, packet->id, limits_next, all ? NULL : &owner);
}

/* ---- the queue */

struct queue_rows {
	const struct gm_answer *answer;
	const struct gm_peer *peer;
	uint32_t device;
	size_t n;
	Gm__Wire__Waiting waiting[GM_BOUNDS_ROWS];
	Gm__Wire__Waiting *list[GM_BOUNDS_ROWS];
	char owners[GM_BOUNDS_ROWS][GM_OWNER_TEXT];
};

static bool limits_add_waiting(void *ctx, const struct gm_queue_info *info)
{
	struct queue_rows *out = ctx;
	const struct gm_answer *answer = out->answer;
	const struct gm_client *client = gm_clients_of(answer->serve->clients, info->session);
	bool all = client ? gm_answer_may_see(answer, out->peer, client) : answer->sees_all;

	if (out->n == GM_BOUNDS_ROWS || (out->n >= LIMITS_LEAST && gm_peer_time_is_up(out->peer)))
		return false;
	size_t i = out->n++;
	Gm__Wire__Waiting *row = out->list[i] = &out->waiting[i];
	gm__wire__waiting__init(row);
	row->device = out->device;
	row->session = gm_session_id(info->session);
	if (client) {
		row->pid = client->identity->pid;
		row->uid = client->identity->uid;
		row->resumed = client->resumed && !info->request->waited_ns;
	}
	if (client && all)
		row->client = (char *)gm_client_name(client);
	row->bytes = info->bytes;
	row->priority = info->priority;
	row->waited_ms = info->waited_ns / GM_NS_PER_MS;
	row->left_ms = info->left_ns == UINT64_MAX ? UINT64_MAX : info->left_ns / GM_NS_PER_MS;
	row->overtaken = info->overtaken;
	row->nowait = info->nowait;
	row->block = (Gm__Wire__Block)info->block;
	row->rests_ms = info->rests_ns / GM_NS_PER_MS + (info->rests_ns % GM_NS_PER_MS > 0);
	/* A guarantee belongs to others than the client. */
	bool others = info->block == GM_BLOCK_GUARANTEE;
	if (info->owner &&
		((others ? answer->sees_all : all) || !gm_serve_is_private(info->owner))) {
		row->owner = out->owners[i];
		gm_owner_name(info->owner, row->owner);
	}
	return true;
}

static int limits_queue_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct limits_listing *listing = (struct limits_listing *)stream;
	const struct gm_serve *serve = listing->head.serve;
	struct gm_queue_place place = listing->waiting;
	struct queue_rows out;
	Gm__Wire__QueueReply reply = GM__WIRE__QUEUE_REPLY__INIT;
	bool more = false;

	out.answer = &listing->head;
	out.peer = peer;
	out.n = 0;
	out.device = listing->device;
	while (out.device < serve->n_devices) {
		more = gm_core_queue_each(
			serve->core, out.device, &place, limits_add_waiting, &out);
		if (more)
			break;
		out.device++;
		place = GM_QUEUE_FIRST;
	}

	reply.n_requests = out.n;
	reply.requests = out.list;
	int r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_QUEUE, &reply);
	if (r < 0)
		return r;
	listing->device = out.device;
	listing->waiting = place;
	return r;
}

void gm_admin_get_queue(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	limits_start_listing(serve, peer, packet->id, limits_queue_next, NULL);
}
