/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of owners. It promises that a change is checked as a whole before any of it is done, that
 * what an owner holds is the sum of its clients' accounts at every moment, and that a request costs
 * no look-up: a session's limits are found when it joins and when limits change. It must never take
 * memory from anyone: a limit below what is held only keeps more from being given.
 *
 * A change is made on a copy of the table. When it stands the copy takes the table's place and
 * every session is joined anew; nothing of that can fail.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/quota.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "daemon/core/core_private.h"
#include "daemon/core/say.h"
#include "daemon/core/session.h"

_Static_assert(GM_TALLIES == GM_OWNER_KINDS, "a session has one owner of each kind at most");

struct on_device {
	struct gm_quota_values configured, run_time;
	struct gm_tally tally;
};

struct gm_quota {
	struct gm_owner owner;
	uint64_t age; /* kept while the table changes */
	uint64_t clients;
	UT_hash_handle hh;
	struct on_device devices[];
};

/* Who a session counts for. false: nobody of this kind. */
static bool quota_owner_of(
	const struct gm_session *session, enum gm_owner_kind kind, struct gm_owner *ret_owner)
{
	const struct gm_session_info *info = &session->info;
	switch (kind) {
	case GM_OWNER_UID:
		gm_owner_by_id(kind, info->uid, ret_owner);
		return true;
	case GM_OWNER_GID:
		gm_owner_by_id(kind, info->gid, ret_owner);
		return true;
	case GM_OWNER_UNIT:
		return gm_owner_by_name(kind, info->unit, ret_owner) == 0;
	case GM_OWNER_CONTAINER:
		return gm_owner_by_name(kind, info->container, ret_owner) == 0;
	case GM_OWNER_NAME:
		return gm_owner_by_name(kind, info->name, ret_owner) == 0;
	case GM_OWNER_SESSION:
		gm_owner_by_id(kind, session->id, ret_owner);
		return true;
	case GM_OWNER_KINDS:
		break;
	}
	return false;
}

/* ---- the table */

static struct gm_quota *quota_find(const struct gm_quotas *quotas, const struct gm_owner *owner)
{
	struct gm_quota *quota;
	HASH_FIND(hh, quotas->by_owner, owner, sizeof(*owner), quota);
	return quota;
}

/* The one there is, or a new one. NULL: no memory. */
static struct gm_quota *quota_get(
	struct gm_quotas *quotas, const struct gm_owner *owner, uint32_t n_devices)
{
	struct gm_quota *quota = quota_find(quotas, owner);
	if (quota)
		return quota;
	quota = calloc(1, sizeof(*quota) + n_devices * sizeof(quota->devices[0]));
	if (!quota)
		return NULL;
	quota->owner = *owner;
	quota->age = ++quotas->last_age;
	HASH_ADD(hh, quotas->by_owner, owner, sizeof(quota->owner), quota);
	if (!GM_TABLE_ADDED(quota)) {
		free(quota);
		return NULL;
	}
	return quota;
}

void gm_quotas_deinit(struct gm_quotas *quotas)
{
	struct gm_quota *quota, *next;
	HASH_ITER (hh, quotas->by_owner, quota, next) {
		HASH_DEL(quotas->by_owner, quota);
		free(quota);
	}
}

static int quota_copy(const struct gm_quotas *from, uint32_t n_devices, struct gm_quotas *to)
{
	for (const struct gm_quota *q = from->by_owner; q; q = q->hh.next) {
		struct gm_quota *mine = quota_get(to, &q->owner, n_devices);
		if (!mine)
			return -ENOMEM;
		mine->age = q->age;
		for (uint32_t d = 0; d < n_devices; d++) {
			mine->devices[d].configured = q->devices[d].configured;
			mine->devices[d].run_time = q->devices[d].run_time;
		}
	}
	to->last_age = from->last_age;
	return 0;
}

static void quota_put(struct gm_quota_values *values, const struct gm_quota_values *over)
{
	values->set |= over->set;
	if (over->set & GM_QUOTA_MAX)
		values->max = over->max;
	if (over->set & GM_QUOTA_GUARANTEE)
		values->guarantee = over->guarantee;
	if (over->set & GM_QUOTA_PRIORITY)
		values->priority = over->priority;
}

static struct gm_quota_values quota_in_force(const struct on_device *on)
{
	struct gm_quota_values values = {.max = UINT64_MAX};
	quota_put(&values, &on->configured);
	quota_put(&values, &on->run_time);
	return values;
}

static void quota_drop_empty(struct gm_quotas *quotas, uint32_t n_devices)
{
	struct gm_quota *quota, *next;
	HASH_ITER (hh, quotas->by_owner, quota, next) {
		unsigned set = 0;
		for (uint32_t d = 0; d < n_devices; d++)
			set |= quota_in_force(&quota->devices[d]).set;
		if (set == 0) {
			HASH_DEL(quotas->by_owner, quota);
			free(quota);
		}
	}
}

/* ---- a change */

static gpumem_status quota_check_device(const struct gm_quotas *quotas, uint32_t d,
	uint64_t capacity, const struct gm_quota **guaranteed, char *detail)
{
	char owner[GM_OWNER_TEXT], other[GM_OWNER_TEXT], a[GM_UNITS_TEXT], b[GM_UNITS_TEXT];
	uint64_t sum = 0;
	for (const struct gm_quota *q = quotas->by_owner; q; q = q->hh.next) {
		struct gm_quota_values v = quota_in_force(&q->devices[d]);
		if (v.guarantee == 0)
			continue;
		gm_owner_format(&q->owner, owner);
		gm_format_size(v.guarantee, a);
		if (q->owner.kind == GM_OWNER_NAME) {
			gm_say(detail,
				"%s: a client's name is its own word: it can have a max, but no "
				"guarantee",
				owner);
			return GPUMEM_E_INVALID;
		}
		if (*guaranteed && (*guaranteed)->owner.kind != q->owner.kind) {
			gm_say(detail,
				"%s and %s: guarantees can be given to one kind of owner only",
				gm_owner_format(&(*guaranteed)->owner, other), owner);
			return GPUMEM_E_INVALID;
		}
		*guaranteed = q;
		if (v.max < v.guarantee) {
			gm_say(detail, "%s: max %s is below guarantee %s", owner,
				gm_format_size(v.max, b), a);
			return GPUMEM_E_INVALID;
		}
		if (v.guarantee > capacity - sum) {
			gm_say(detail,
				"%s: with a guarantee of %s, guarantees on device %u go beyond its "
				"capacity of %s",
				owner, a, d, gm_format_size(capacity, b));
			return GPUMEM_E_INVALID;
		}
		sum += v.guarantee;
	}
	return GPUMEM_OK;
}

/* policies: that the devices will have; NULL: those they have. */
static gpumem_status quota_check(const struct gm_core *core, const struct gm_policy *policies,
	const struct gm_quotas *quotas, char *detail)
{
	const struct gm_quota *guaranteed = NULL;
	if (HASH_COUNT(quotas->by_owner) > GM_LIMIT_QUOTAS) {
		gm_say(detail, "there can be %d limits at most; reset some", GM_LIMIT_QUOTAS);
		return GPUMEM_E_LIMIT;
	}
	for (uint32_t d = 0; d < core->n_devices; d++) {
		const struct gm_device *device = &core->devices[d];
		uint64_t capacity = policies ? gm_policy_capacity(&policies[d], device->info.total)
					     : gm_device_capacity(device);
		gpumem_status status = quota_check_device(quotas, d, capacity, &guaranteed, detail);
		if (status != GPUMEM_OK)
			return status;
	}
	return GPUMEM_OK;
}

/* Every session's part in the table that is in force now. */
static void quota_join(struct gm_core *core, struct gm_session *session)
{
	static const enum gm_owner_kind by_rank[] = {GM_OWNER_SESSION, GM_OWNER_CONTAINER,
		GM_OWNER_UNIT, GM_OWNER_UID, GM_OWNER_GID, GM_OWNER_NAME};
	bool ranked[GM_LIMIT_DEVICES] = {false};
	for (uint32_t d = 0; d < core->n_devices; d++) {
		struct gm_account *account = &session->accounts[d];
		account->n_tallies = 0;
		account->guaranteed = NULL;
		account->priority = 0;
	}
	for (unsigned k = 0; core->quotas.by_owner && k < GM_OWNER_KINDS; k++) {
		struct gm_owner owner;
		struct gm_quota *quota = NULL;
		if (quota_owner_of(session, by_rank[k], &owner))
			quota = quota_find(&core->quotas, &owner);
		if (!quota)
			continue;
		quota->clients++;
		for (uint32_t d = 0; d < core->n_devices; d++) {
			struct gm_account *account = &session->accounts[d];
			struct gm_quota_values v = quota_in_force(&quota->devices[d]);
			if (v.set == 0)
				continue;
			gm_ledger_join(&core->devices[d].ledger, account, &quota->devices[d].tally);
			if (!(v.set & GM_QUOTA_PRIORITY))
				continue;
			if (by_rank[k] == GM_OWNER_NAME) {
				if (v.priority < account->priority)
					account->priority = v.priority;
			} else if (!ranked[d]) {
				account->priority = v.priority;
				ranked[d] = true;
			}
		}
	}
}

static void quota_put_in_force(struct gm_core *core)
{
	for (uint32_t d = 0; d < core->n_devices; d++)
		core->devices[d].ledger.unmet = core->devices[d].guaranteed = 0;
	for (struct gm_quota *q = core->quotas.by_owner; q; q = q->hh.next) {
		q->clients = 0;
		for (uint32_t d = 0; d < core->n_devices; d++) {
			struct gm_quota_values v = quota_in_force(&q->devices[d]);
			q->devices[d].tally = (struct gm_tally){
				.quota = q, .max = v.max, .guarantee = v.guarantee};
			core->devices[d].ledger.unmet += v.guarantee;
			core->devices[d].guaranteed += v.guarantee;
		}
	}
	for (struct gm_session *s = core->sessions; s; s = s->hh.next)
		quota_join(core, s);
	core->tops_stale = true;
}

/* What waits may have its reason in a limit that is no more. */
static void quota_repoint_waiting(struct gm_core *core)
{
	for (uint32_t d = 0; d < core->n_devices; d++) {
		struct gm_request *r;
		DL_FOREACH2(core->devices[d].queue.requests, r, waiting.next)
		{
			struct gm_waiting *w = &r->waiting;
			struct gm_account *account = &r->session->accounts[d];
			w->priority = account->priority;
			if (w->tally) {
				const struct gm_quota *old = w->tally->quota;
				struct gm_quota *q = quota_find(&core->quotas, &old->owner);
				w->tally = q ? &q->devices[d].tally : NULL;
			}
			if (w->block == GM_BLOCK_QUOTA && !w->tally)
				w->block = GM_BLOCK_DEVICE;
		}
		gm_queue_sort(&core->devices[d]);
	}
}

/* The table becomes the one given; the old one goes. */
static void quota_replace(struct gm_core *core, struct gm_quotas *with)
{
	struct gm_quotas old = core->quotas;
	core->quotas = *with;
	*with = (struct gm_quotas){0};
	quota_put_in_force(core);
	quota_repoint_waiting(core);
	gm_quotas_deinit(&old);
	for (struct gm_session *s = core->sessions; s; s = s->hh.next)
		for (uint32_t d = 0; d < core->n_devices; d++)
			if (s->accounts[d].n_tallies > 0 || s->limited)
				gm_session_changed(s, d);
	for (struct gm_session *s = core->sessions; s; s = s->hh.next) {
		s->limited = false;
		for (uint32_t d = 0; d < core->n_devices; d++)
			s->limited = s->limited || s->accounts[d].n_tallies > 0;
	}
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_device_settle(&core->devices[d]);
}

/* Puts it in force, with the policies (NULL: they stay), if it can stand; frees it otherwise. */
static gpumem_status quota_commit(struct gm_core *core, const struct gm_policy *policies,
	struct gm_quotas *next, char *detail)
{
	quota_drop_empty(next, core->n_devices);
	gpumem_status status = quota_check(core, policies, next, detail);
	if (status == GPUMEM_OK) {
		gm_core_enter(core);
		for (uint32_t d = 0; policies && d < core->n_devices; d++)
			gm_core_set_policy(core, d, &policies[d]);
		quota_replace(core, next);
		gm_core_leave(core);
	}
	gm_quotas_deinit(next);
	return status;
}

static gpumem_status quota_no_memory(struct gm_quotas *next, char *detail)
{
	gm_quotas_deinit(next);
	gm_say(detail, "the daemon has no memory for another limit");
	return GPUMEM_E_HOST_MEMORY;
}

gpumem_status gm_core_configure(struct gm_core *core, const struct gm_policy *policies,
	const struct gm_quota_rule *rules, size_t n_rules, char detail[GM_DETAIL_BYTES])
{
	struct gm_quotas next = {0};
	if (quota_copy(&core->quotas, core->n_devices, &next) < 0)
		return quota_no_memory(&next, detail);
	for (struct gm_quota *q = next.by_owner; q; q = q->hh.next)
		for (uint32_t d = 0; d < core->n_devices; d++)
			q->devices[d].configured = (struct gm_quota_values){0};
	/* First what is for all devices, then what goes over it. */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < n_rules; i++) {
			const struct gm_quota_rule *rule = &rules[i];
			if ((rule->device == GM_ALL_DEVICES) != (pass == 0))
				continue;
			if (rule->owner.kind == GM_OWNER_SESSION) {
				gm_quotas_deinit(&next);
				gm_say(detail, "a single client's limit is set at run time only");
				return GPUMEM_E_INVALID;
			}
			struct gm_quota *q = quota_get(&next, &rule->owner, core->n_devices);
			if (!q)
				return quota_no_memory(&next, detail);
			for (uint32_t d = 0; d < core->n_devices; d++)
				if (pass == 0 || d == rule->device)
					quota_put(&q->devices[d].configured, &rule->values);
		}
	}
	return quota_commit(core, policies, &next, detail);
}

static gpumem_status quota_check_device_number(
	const struct gm_core *core, uint32_t device, char *detail)
{
	if (device == GM_ALL_DEVICES || device < core->n_devices)
		return GPUMEM_OK;
	gm_say(detail, "there is no device %u; there are %u, numbered from 0", device,
		core->n_devices);
	return GPUMEM_E_NOT_FOUND;
}

gpumem_status gm_core_set_quota(struct gm_core *core, const struct gm_owner *owner, uint32_t device,
	const struct gm_quota_values *values, char detail[GM_DETAIL_BYTES])
{
	struct gm_quotas next = {0};
	gpumem_status status = quota_check_device_number(core, device, detail);
	if (status != GPUMEM_OK)
		return status;
	if (values->set == 0) {
		gm_say(detail, "a limit needs a max, a guarantee or a priority");
		return GPUMEM_E_INVALID;
	}
	if (owner->kind == GM_OWNER_SESSION && !gm_core_find_session(core, owner->id)) {
		gm_say(detail, "there is no client %llu; see gpumemctl clients",
			(unsigned long long)owner->id);
		return GPUMEM_E_NOT_FOUND;
	}
	if (quota_copy(&core->quotas, core->n_devices, &next) < 0)
		return quota_no_memory(&next, detail);
	struct gm_quota *q = quota_get(&next, owner, core->n_devices);
	if (!q)
		return quota_no_memory(&next, detail);
	for (uint32_t d = 0; d < core->n_devices; d++)
		if (device == GM_ALL_DEVICES || d == device)
			quota_put(&q->devices[d].run_time, values);
	return quota_commit(core, NULL, &next, detail);
}

gpumem_status gm_core_reset_quota(struct gm_core *core, const struct gm_owner *owner,
	uint32_t device, char detail[GM_DETAIL_BYTES])
{
	struct gm_quotas next = {0};
	bool found = false;
	gpumem_status status = quota_check_device_number(core, device, detail);
	if (status != GPUMEM_OK)
		return status;
	if (quota_copy(&core->quotas, core->n_devices, &next) < 0)
		return quota_no_memory(&next, detail);
	for (struct gm_quota *q = next.by_owner; q; q = q->hh.next) {
		if (owner && memcmp(&q->owner, owner, sizeof(*owner)) != 0)
			continue;
		for (uint32_t d = 0; d < core->n_devices; d++) {
			if (device != GM_ALL_DEVICES && d != device)
				continue;
			found = found || q->devices[d].run_time.set;
			q->devices[d].run_time = (struct gm_quota_values){0};
		}
	}
	if (owner && !found) {
		char text[GM_OWNER_TEXT];
		gm_quotas_deinit(&next);
		gm_say(detail, "nothing was set for %s at run time; see gpumemctl limit show",
			gm_owner_format(owner, text));
		return GPUMEM_E_NOT_FOUND;
	}
	return quota_commit(core, NULL, &next, detail);
}

/* ---- for sessions, and to look at */

void gm_quotas_join(struct gm_core *core, struct gm_session *session)
{
	core->tops_stale = true;
	if (!core->quotas.by_owner)
		return;
	quota_join(core, session);
	for (uint32_t d = 0; d < core->n_devices; d++)
		session->limited = session->limited || session->accounts[d].n_tallies > 0;
}

void gm_quotas_leave(struct gm_core *core, struct gm_session *session)
{
	core->tops_stale = true;
	if (!core->quotas.by_owner)
		return;
	for (unsigned kind = 0; kind < GM_OWNER_KINDS; kind++) {
		struct gm_owner owner;
		struct gm_quota *quota = NULL;
		if (quota_owner_of(session, kind, &owner))
			quota = quota_find(&core->quotas, &owner);
		if (!quota)
			continue;
		assert(quota->clients > 0);
		quota->clients--;
		if (kind != GM_OWNER_SESSION)
			continue;
		for (uint32_t d = 0; d < core->n_devices; d++) {
			const struct gm_tally *tally = &quota->devices[d].tally;
			core->devices[d].ledger.unmet -= gm_tally_unmet(tally);
			core->devices[d].guaranteed -= tally->guarantee;
		}
		HASH_DEL(core->quotas.by_owner, quota);
		free(quota);
	}
	for (uint32_t d = 0; d < core->n_devices; d++)
		session->accounts[d].n_tallies = 0;
}

const struct gm_owner *gm_quota_owner(const struct gm_quota *quota)
{
	return &quota->owner;
}

int32_t gm_quotas_top(struct gm_core *core, uint32_t device)
{
	for (uint32_t d = 0; core->tops_stale && d < core->n_devices; d++) {
		int32_t top = INT32_MIN;
		for (const struct gm_session *s = core->sessions; s; s = s->hh.next)
			if (!s->ending && s->accounts[d].priority > top)
				top = s->accounts[d].priority;
		core->devices[d].top_priority = top;
	}
	core->tops_stale = false;
	return core->devices[device].top_priority;
}

bool gm_core_quota_each(struct gm_core *core, struct gm_quota_place *place,
	bool (*visit)(void *ctx, const struct gm_quota_info *info), void *ctx)
{
	for (const struct gm_quota *q = core->quotas.by_owner; q; q = q->hh.next) {
		if (q->age < place->age)
			continue;
		for (uint32_t d = q->age == place->age ? place->device : 0; d < core->n_devices;
			d++) {
			struct gm_quota_info info = {
				.owner = q->owner,
				.device = d,
				.values = quota_in_force(&q->devices[d]),
				.run_time = q->devices[d].run_time,
				.held = q->devices[d].tally.held,
				.clients = q->clients,
			};
			info.over = info.held > info.values.max;
			if (info.values.set && !visit(ctx, &info)) {
				*place = (struct gm_quota_place){.age = q->age, .device = d};
				return true;
			}
		}
	}
	return false;
}

uint64_t gm_session_max(const struct gm_session *session, uint32_t device)
{
	if (device >= session->core->n_devices)
		return 0;
	const struct gm_account *account = &session->accounts[device];
	uint64_t most = UINT64_MAX;
	for (unsigned i = 0; i < account->n_tallies; i++)
		if (account->tallies[i]->max < most)
			most = account->tallies[i]->max;
	return most;
}

int32_t gm_session_priority(const struct gm_session *session, uint32_t device)
{
	return device < session->core->n_devices ? session->accounts[device].priority : 0;
}
