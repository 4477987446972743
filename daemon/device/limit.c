/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of owners. This file promises that a change is checked as a whole before any of it takes
 * effect, that what an owner holds is the sum of its clients' accounts at every moment, and that a
 * request costs no lookup: a payer's limits are found when it joins and when limits change. It must
 * never take memory from anyone: a limit below what is held only keeps the owner from getting more.
 */
#include "daemon/books/hash_table.h"
#include "daemon/device/limit_private.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/units.h"

_Static_assert(GM_TALLIES == GM_OWNER_KINDS, "a session has one owner of each kind at most");

/* ---- the table */

static struct gm_limit *limit_find(const struct gm_limits *limits, const struct gm_owner *owner)
{
	uint32_t hash = gm_owner_hash(&limits->env->owner_key, owner);
	struct gm_limit *limit;
	HASH_FIND_BYHASHVALUE(hh, limits->by_owner, owner, sizeof(*owner), hash, limit);
	return limit;
}

/* Returns the owner's entry, or a new one. NULL: no memory. */
static struct gm_limit *limit_get(struct gm_limits *limits, const struct gm_owner *owner)
{
	struct gm_limit *limit = limit_find(limits, owner);
	if (limit)
		return limit;
	limit = calloc(1, sizeof(*limit) + limits->env->n_devices * sizeof(limit->devices[0]));
	if (!limit)
		return NULL;

	limit->owner = *owner;
	limit->age = ++limits->last_age;
	HASH_ADD_BYHASHVALUE(hh, limits->by_owner, owner, sizeof(limit->owner),
		gm_owner_hash(&limits->env->owner_key, owner), limit);
	if (!GM_TABLE_ADDED(limit)) {
		free(limit);
		return NULL;
	}
	return limit;
}

void gm_limits_deinit(struct gm_limits *limits)
{
	struct gm_limit *limit, *next;
	HASH_ITER (hh, limits->by_owner, limit, next) {
		HASH_DEL(limits->by_owner, limit);
		free(limit);
	}
}

static gpumem_status limit_no_memory(struct gm_limits *next, char *detail)
{
	gm_limits_deinit(next);
	return gm_text_refuse(
		GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another limit");
}

/* The first step of a change. On failure, *ret_copy stays untouched and detail says why. */
static gpumem_status limit_copy(
	const struct gm_limits *from, struct gm_limits *ret_copy, char *detail)
{
	struct gm_limits copy = {.env = from->env, .owner_of = from->owner_of};
	for (const struct gm_limit *q = from->by_owner; q; q = q->hh.next) {
		if (q->model)
			continue; /* made anew when payers join */
		struct gm_limit *mine = limit_get(&copy, &q->owner);
		if (!mine)
			return limit_no_memory(&copy, detail);
		mine->age = q->age;
		mine->id = q->id;
		mine->place = q->place;
		memcpy(mine->label, q->label, sizeof(mine->label));
		mine->named = q->named;
		for (uint32_t d = 0; d < from->env->n_devices; d++) {
			mine->devices[d].configured = q->devices[d].configured;
			mine->devices[d].run_time = q->devices[d].run_time;
		}
	}
	copy.last_age = from->last_age;
	*ret_copy = copy;
	return GPUMEM_OK;
}

static void limit_drop_empty(struct gm_limits *limits)
{
	struct gm_limit *limit, *next;
	HASH_ITER (hh, limits->by_owner, limit, next) {
		unsigned set = 0;
		for (uint32_t d = 0; d < limits->env->n_devices; d++)
			set |= gm_limit_in_force(&limit->devices[d]).set;
		if (set == 0) {
			HASH_DEL(limits->by_owner, limit);
			free(limit);
		}
	}
}

/* ---- the records of what was set at run time */

static int limit_write(const struct gm_env *env, struct gm_limit *limit,
	struct gm_record_limit *record, size_t size)
{
	gm_record_begin(&record->head, GM_RECORD_LIMIT, limit->id, size, 0);
	return gm_env_record(env, GM_RECORD_LIMIT, limit->id, &limit->place, record, size);
}

/* Writes what was set for the owner. -ENOSPC, … */
static int limit_commit(const struct gm_env *env, struct gm_limit *limit)
{
	struct gm_record_limit record = {.owner = limit->owner};
	if (!env->ops.record)
		return 0;

	for (uint32_t d = 0; d < env->n_devices; d++) {
		const struct gm_limit_values *v = &limit->devices[d].run_time;
		if (v->set == 0)
			continue;
		uint32_t device = (uint32_t)record.n_devices++;
		record.devices[device] = env->devices[d].key;
		for (unsigned bit = 1; bit <= GM_LIMIT_ALL; bit <<= 1) {
			if (!(v->set & bit))
				continue;
			uint64_t i = record.n_values++;
			record.values[i].device = device;
			record.values[i].bit = bit;
			record.values[i].value = gm_limit_values_get(v, bit);
		}
	}
	if (record.n_devices == 0) {
		gm_env_erase(env, &limit->place);
		return 0;
	}
	if (!limit->place)
		limit->id = env->ops.new_id(env->ctx);
	int r = limit_write(env, limit, &record, sizeof(record));
	/* A record of a former format has a smaller place, which has room for most limits. */
	if (r == -EMSGSIZE)
		r = limit_write(env, limit, &record,
			offsetof(struct gm_record_limit, values[record.n_values]));
	return r;
}

uint64_t gm_limits_read(
	const struct gm_record_limit *record, uint64_t device, struct gm_limit_values *ret)
{
	*ret = GM_LIMIT_VALUES_UNSET;
	if (record->head.format < GM_RECORD_FORMAT_LIMIT_ROWS) {
		*ret = (struct gm_limit_values){.set = record->former[device].set & GM_LIMIT_ALL,
			.max = record->former[device].max,
			.guarantee = record->former[device].guarantee,
			.priority = record->former[device].priority};
		return record->former[device].device;
	}
	for (uint64_t i = 0; i < gm_u64_min(record->n_values, GM_RECORD_LIMIT_ROWS); i++)
		if (record->values[i].device == device)
			gm_limit_values_set(ret, record->values[i].bit, record->values[i].value);
	return record->devices[device];
}

uint32_t gm_limits_place(const struct gm_limits *limits, const struct gm_owner *owner)
{
	const struct gm_limit *limit = limit_find(limits, owner);
	return limit ? limit->place : 0;
}

void gm_limits_adopt(
	struct gm_limits *limits, const struct gm_owner *owner, uint64_t id, uint32_t place)
{
	struct gm_limit *limit = limit_find(limits, owner);
	assert(limit && !limit->place);
	limit->id = id;
	limit->place = place;
}

int gm_limits_record(struct gm_limits *limits, const struct gm_owner *owner)
{
	return limit_commit(limits->env, limit_find(limits, owner));
}

/* ---- a change */

/* Users have as many runs as sessions. They do not count here, or users could use up what there is. */
static size_t limit_count(const struct gm_limits *limits)
{
	size_t n = 0;
	for (const struct gm_limit *q = limits->by_owner; q; q = q->hh.next)
		n += q->owner.kind != GM_OWNER_RUN;
	return n;
}

/* Returns how many owners the configuration limits. */
static size_t limit_count_configured(const struct gm_limits *limits)
{
	size_t n = 0;
	for (const struct gm_limit *q = limits->by_owner; q; q = q->hh.next) {
		bool configured = false;
		for (uint32_t d = 0; d < limits->env->n_devices; d++)
			configured = configured || q->devices[d].configured.set;
		n += configured;
	}
	return n;
}

/* The last step of a change of limits: hands out the changed copy if it is valid, frees it otherwise. The
 * configuration, which a start and a reload accept alike, and what was set at run time may together be too many. Then no
 * limit is given up, and every change at run time goes that adds none. */
static gpumem_status limit_check(const struct gm_limits *limits,
	const struct gm_limit_config *config, struct gm_limits *next, struct gm_limits *ret_next,
	char *detail)
{
	gpumem_status status = GPUMEM_OK;

	limit_drop_empty(next);
	size_t n = config ? limit_count_configured(next) : limit_count(next);
	if (n > GM_BOUND_LIMITS && (config || n > limit_count(limits)) && !next->env->adopting)
		status = gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"there can be %d limits at most; reset some", GM_BOUND_LIMITS);

	if (status == GPUMEM_OK)
		status = gm_limit_check(next, config, detail);
	if (status == GPUMEM_OK)
		*ret_next = *next;
	else
		gm_limits_deinit(next);
	return status;
}

/* ---- a client's name, and its users */

/* The user's account of the limit of a client's name. Without memory for it, the limit itself: then
 * the user shares it with others like that. */
static struct gm_limit *limit_get_user(
	struct gm_limits *limits, struct gm_limit *model, const struct gm_account_payer *payer)
{
	struct gm_owner user, owner = model->owner;
	if (!limits->owner_of(payer, GM_OWNER_UID, &user))
		return model;

	owner.id = user.id + 1;
	struct gm_limit *limit = limit_get(limits, &owner);
	if (!limit)
		return model;
	if (limit->model)
		return limit;

	limit->model = model;
	limit->next_user = model->users;
	model->users = limit;
	for (uint32_t d = 0; d < limits->env->n_devices; d++) {
		struct gm_limit_values v = gm_limit_in_force(&model->devices[d]);
		limit->devices[d].configured = v;
		limit->devices[d].tally = (struct gm_ledger_tally){.limit = limit, .max = v.max};
	}
	return limit;
}

static void limit_free_user(struct gm_limits *limits, struct gm_limit *limit)
{
	struct gm_limit **at = &limit->model->users;
	while (*at != limit)
		at = &(*at)->next_user;
	*at = limit->next_user;
	HASH_DEL(limits->by_owner, limit);
	free(limit);
}

/* The limit of this kind that the payer has joined, or NULL. */
static struct gm_limit *limit_joined(const struct gm_limits *limits,
	const struct gm_account_payer *payer, enum gm_owner_kind kind)
{
	struct gm_owner owner;
	struct gm_limit *limit = NULL;
	if (limits->owner_of(payer, kind, &owner))
		limit = limit_find(limits, &owner);
	if (!limit || kind != GM_OWNER_NAME)
		return limit;

	for (uint32_t d = 0; d < limits->env->n_devices; d++) {
		const struct gm_account *account = &payer->accounts[d];
		for (unsigned i = 0; i < account->n_tallies; i++)
			if (account->tallies[i]->limit->model == limit)
				return account->tallies[i]->limit;
	}
	return limit;
}

/* Finds the payer's part in the table. */
static void limit_join(struct gm_limits *limits, struct gm_account_payer *payer)
{
	struct gm_env *env = limits->env;
	static const enum gm_owner_kind by_rank[] = {GM_OWNER_SESSION, GM_OWNER_CONTAINER,
		GM_OWNER_UNIT, GM_OWNER_UID, GM_OWNER_GID, GM_OWNER_NAME, GM_OWNER_RUN};
	bool ranked[GM_BOUND_DEVICES] = {false};
	for (uint32_t d = 0; d < env->n_devices; d++) {
		struct gm_account *account = &payer->accounts[d];
		account->n_tallies = 0;
		account->guaranteed = NULL;
		account->priority = 0;
	}

	for (unsigned k = 0; limits->by_owner && k < GM_OWNER_KINDS; k++) {
		struct gm_owner owner;
		struct gm_limit *limit = NULL;
		if (limits->owner_of(payer, by_rank[k], &owner))
			limit = limit_find(limits, &owner);
		if (!limit)
			continue;

		if (by_rank[k] == GM_OWNER_NAME)
			limit = limit_get_user(limits, limit, payer);
		limit->clients += (payer->session != NULL);
		for (uint32_t d = 0; d < env->n_devices; d++) {
			struct gm_account *account = &payer->accounts[d];
			struct gm_limit_values v = gm_limit_in_force(&limit->devices[d]);
			if (v.set == 0)
				continue;
			gm_ledger_join(&env->devices[d].ledger, account, &limit->devices[d].tally);
			if (!(v.set & GM_LIMIT_PRIORITY))
				continue;
			if (by_rank[k] == GM_OWNER_NAME || by_rank[k] == GM_OWNER_RUN) {
				if (v.priority < account->priority)
					account->priority = v.priority;
			} else if (!ranked[d]) {
				account->priority = v.priority;
				ranked[d] = true;
			}
		}
	}
}

static void limit_set_limited(const struct gm_env *env, struct gm_account_payer *payer)
{
	payer->limited = false;
	for (uint32_t d = 0; d < env->n_devices; d++)
		payer->limited = payer->limited || payer->accounts[d].n_tallies > 0;
}

/* Makes device_admit.c look at all payers again. */
static void limit_tops_changed(struct gm_env *env)
{
	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].top_stale = true;
}

/* No payer may have a higher priority than top_most. */
static void limit_raise_tops(struct gm_env *env, const struct gm_account_payer *payer)
{
	for (uint32_t d = 0; d < env->n_devices; d++)
		if (payer->accounts[d].priority > env->devices[d].top_most)
			env->devices[d].top_most = payer->accounts[d].priority;
}

void gm_limits_replace(struct gm_limits *limits, struct gm_limits *next)
{
	struct gm_env *env = limits->env;
	struct gm_limits old = *limits;
	*limits = *next;
	*next = old;

	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].ledger.unmet = env->devices[d].guaranteed = 0;
	limit_tops_changed(env);
	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].top_most = INT32_MIN;

	for (struct gm_limit *q = limits->by_owner; q; q = q->hh.next) {
		q->clients = 0;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			struct gm_limit_values v = gm_limit_in_force(&q->devices[d]);
			q->devices[d].tally = (struct gm_ledger_tally){
				.limit = q, .max = v.max, .guarantee = v.guarantee};
			env->devices[d].ledger.unmet += v.guarantee;
			env->devices[d].guaranteed += v.guarantee;
		}
	}
	for (struct gm_account_payer *p = env->payers; p; p = p->hh.next) {
		limit_join(limits, p);
		limit_raise_tops(env, p);
	}

	for (struct gm_account_payer *p = env->payers; p; p = p->hh.next) {
		for (uint32_t d = 0; d < env->n_devices; d++)
			if (p->accounts[d].n_tallies > 0 || p->limited)
				gm_env_payer_changed(env, p, d);
		limit_set_limited(env, p);
	}
}

const struct gm_ledger_tally *gm_limits_moved(
	const struct gm_limits *limits, const struct gm_ledger_tally *old, uint32_t device)
{
	const struct gm_limit *q = limit_find(limits, &old->limit->owner);
	return q ? &q->devices[device].tally : NULL;
}

gpumem_status gm_limits_configured(const struct gm_limits *limits,
	const struct gm_limit_config *config, struct gm_limits *ret_next,
	char detail[GM_DETAIL_BYTES])
{
	struct gm_limits next;
	uint32_t n_devices = limits->env->n_devices;
	gpumem_status status = limit_copy(limits, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	for (struct gm_limit *q = next.by_owner; q; q = q->hh.next)
		for (uint32_t d = 0; d < n_devices; d++)
			q->devices[d].configured = (struct gm_limit_values){0};

	/* First the rules for all devices, then those that override them. */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < config->n_rules; i++) {
			const struct gm_limit_rule *rule = &config->rules[i];
			if ((rule->device == GM_ALL_DEVICES) != (pass == 0))
				continue;
			if (rule->owner.kind == GM_OWNER_SESSION) {
				gm_limits_deinit(&next);
				return gm_text_refuse(GPUMEM_E_INVALID, detail,
					"a single client's limit is set at run time only");
			}
			struct gm_limit *q = limit_get(&next, &rule->owner);
			if (!q)
				return limit_no_memory(&next, detail);
			for (uint32_t d = 0; d < n_devices; d++)
				if (pass == 0 || d == rule->device)
					gm_limit_put(&q->devices[d].configured, &rule->values);
		}
	}
	return limit_check(limits, config, &next, ret_next, detail);
}

gpumem_status gm_limits_with(const struct gm_limits *limits, const struct gm_owner *owner,
	uint32_t device, const struct gm_limit_values *values, struct gm_limits *ret_next,
	char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = limits->env;
	char names[GM_LIMIT_NAMES_TEXT];
	struct gm_limits next;
	if (device != GM_ALL_DEVICES && gm_device_check_number(env, device, detail))
		return GPUMEM_E_NOT_FOUND;
	if (values->set == 0)
		return gm_text_refuse(GPUMEM_E_INVALID, detail, "a limit needs %s",
			gm_limit_kind_names("a ", " or ", names));
	if (owner->kind == GM_OWNER_RUN)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"the limit of a run comes from gpumem-run --limit; set one for its user");
	if (owner->kind == GM_OWNER_SESSION) {
		const struct gm_account_payer *payer;
		HASH_FIND(hh, env->payers, &owner->id, sizeof(owner->id), payer);
		if (!payer || !payer->session)
			return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
				"there is no session %llu; see 'gpumemctl clients --columns session,pid,name'",
				(unsigned long long)owner->id);
	}
	gpumem_status status = limit_copy(limits, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	struct gm_limit *q = limit_get(&next, owner);
	if (!q)
		return limit_no_memory(&next, detail);
	for (uint32_t d = 0; d < env->n_devices; d++)
		if (device == GM_ALL_DEVICES || d == device)
			gm_limit_put(&q->devices[d].run_time, values);
	status = limit_check(limits, NULL, &next, ret_next, detail);
	if (status != GPUMEM_OK || env->adopting)
		return status;

	/* The owner has a value now, so its entry is still there. */
	if (limit_commit(env, limit_find(ret_next, owner)) == 0)
		return GPUMEM_OK;
	gm_limits_deinit(ret_next);
	return gm_text_refuse(GPUMEM_E_HOST_MEMORY, detail,
		"the daemon's ledger has no room for another limit; reset some");
}

gpumem_status gm_limits_without(const struct gm_limits *limits, const struct gm_owner *owner,
	uint32_t device, struct gm_limits *ret_next, char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = limits->env;
	struct gm_limits next;
	bool found = false;
	if (device != GM_ALL_DEVICES && gm_device_check_number(env, device, detail))
		return GPUMEM_E_NOT_FOUND;
	gpumem_status status = limit_copy(limits, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	for (struct gm_limit *q = next.by_owner; q; q = q->hh.next) {
		if (q->owner.kind == GM_OWNER_RUN)
			continue;
		if (owner && memcmp(&q->owner, owner, sizeof(*owner)) != 0)
			continue;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			if (device != GM_ALL_DEVICES && d != device)
				continue;
			found = found || q->devices[d].run_time.set;
			q->devices[d].run_time = (struct gm_limit_values){0};
		}
	}

	if (owner && !found) {
		char text[GM_OWNER_TEXT];
		gm_limits_deinit(&next);
		return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
			"nothing was set for %s at run time; see gpumemctl limit show",
			gm_owner_format(owner, text));
	}
	status = limit_check(limits, NULL, &next, ret_next, detail);
	if (status != GPUMEM_OK)
		return status;

	/* An entry without a value is gone, but its record is not. */
	for (const struct gm_limit *old = limits->by_owner; old; old = old->hh.next) {
		struct gm_limit *q = limit_find(ret_next, &old->owner);
		uint32_t place = old->place;
		if (old->model || old->owner.kind == GM_OWNER_RUN)
			continue;
		if (owner && memcmp(&old->owner, owner, sizeof(*owner)) != 0)
			continue;
		if (q)
			limit_commit(env, q);
		else
			gm_env_erase(env, &place);
	}
	return GPUMEM_OK;
}

/* ---- payers and listings */

int gm_limits_begin_run(struct gm_limits *limits, struct gm_account_payer *payer)
{
	struct gm_owner owner, name;
	if (!payer->run.set || !limits->owner_of(payer, GM_OWNER_RUN, &owner))
		return 0;
	if (limit_find(limits, &owner))
		return 0;

	struct gm_limit *limit = limit_get(limits, &owner);
	if (!limit)
		return -ENOMEM;
	if (limits->owner_of(payer, GM_OWNER_NAME, &name))
		snprintf(limit->label, sizeof(limit->label), "%.63s", name.name);
	for (uint32_t d = 0; d < limits->env->n_devices; d++) {
		limit->devices[d].run_time = payer->run;
		limit->devices[d].tally = (struct gm_ledger_tally){
			.limit = limit, .max = gm_limit_in_force(&limit->devices[d]).max};
	}
	return 0;
}

void gm_limits_name_run(
	struct gm_limits *limits, const struct gm_account_payer *payer, const char *name)
{
	struct gm_owner owner;
	if (!*name || !payer->run.set || !limits->owner_of(payer, GM_OWNER_RUN, &owner))
		return;

	struct gm_limit *limit = limit_find(limits, &owner);
	if (!limit || limit->named)
		return;
	snprintf(limit->label, sizeof(limit->label), "%.63s", name);
	limit->named = true;
}

void gm_limits_join(struct gm_limits *limits, struct gm_account_payer *payer)
{
	struct gm_env *env = limits->env;
	limit_tops_changed(env);
	if (limits->by_owner) {
		limit_join(limits, payer);
		limit_set_limited(env, payer);
	}
	limit_raise_tops(env, payer);
}

void gm_limits_leave(struct gm_limits *limits, struct gm_account_payer *payer)
{
	struct gm_env *env = limits->env;
	limit_tops_changed(env);
	if (!limits->by_owner)
		return;

	for (unsigned kind = 0; kind < GM_OWNER_KINDS; kind++) {
		struct gm_limit *limit = limit_joined(limits, payer, kind);
		if (!limit)
			continue;

		assert(limit->clients >= (payer->session != NULL));
		limit->clients -= (payer->session != NULL);
		if (limit->model && limit->clients == 0) {
			limit_free_user(limits, limit);
			continue;
		}
		if (kind != GM_OWNER_SESSION && !(kind == GM_OWNER_RUN && limit->clients == 0))
			continue;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			const struct gm_ledger_tally *tally = &limit->devices[d].tally;
			env->devices[d].ledger.unmet -= gm_ledger_tally_unmet(tally);
			env->devices[d].guaranteed -= tally->guarantee;
		}
		gm_env_erase(env, &limit->place);
		HASH_DEL(limits->by_owner, limit);
		free(limit);
	}
	for (uint32_t d = 0; d < env->n_devices; d++)
		payer->accounts[d].n_tallies = 0;
}

const struct gm_owner *gm_limit_owner(const struct gm_limit *limit)
{
	return limit->model ? &limit->model->owner : &limit->owner;
}

const struct gm_owner *gm_limits_most_kept(const struct gm_limits *limits, uint32_t device,
	const struct gm_account *account, struct gm_limit_most *last)
{
	const struct gm_owner *most = NULL;
	uint64_t kept = 0;

	if (last->known && last->guaranteed == account->guaranteed)
		return last->owner;
	for (const struct gm_limit *q = limits->by_owner; q; q = q->hh.next) {
		const struct gm_ledger_tally *tally = &q->devices[device].tally;

		if (tally == account->guaranteed || gm_ledger_tally_unmet(tally) <= kept)
			continue;
		kept = gm_ledger_tally_unmet(tally);
		most = gm_limit_owner(q);
	}
	*last = (struct gm_limit_most){true, account->guaranteed, most};
	return most;
}

const char *gm_limit_say(const struct gm_limit *limit, char text[GM_OWNER_TEXT])
{
	if (!limit->label[0])
		return gm_owner_format(gm_limit_owner(limit), text);
	snprintf(text, GM_OWNER_TEXT, "run \"%s\"", limit->label);
	return text;
}

/* Sums up what counts against a limit. user: of a client's name, only the account of this one. */
static void limit_sum_users(const struct gm_limit *limit, uint64_t user, struct gm_limit_info *info)
{
	info->held = limit->devices[info->device].tally.held;
	info->clients = limit->clients;
	info->over = info->held > info->values.max;
	for (const struct gm_limit *u = limit->users; u; u = u->next_user) {
		uint64_t held = u->devices[info->device].tally.held;
		if (user && u->owner.id != user)
			continue;
		info->held += held;
		info->clients += u->clients;
		info->over = info->over || held > info->values.max;
	}
}

bool gm_limits_each(const struct gm_limits *limits, struct gm_limit_place *place,
	bool (*visit)(void *ctx, const struct gm_limit_info *info), void *ctx)
{
	uint32_t n_devices = limits->env->n_devices;
	for (const struct gm_limit *q = limits->by_owner; q; q = q->hh.next) {
		if (q->age < place->age || q->model)
			continue;
		for (uint32_t d = q->age == place->age ? place->device : 0; d < n_devices; d++) {
			struct gm_limit_info info = {
				.owner = q->owner,
				.device = d,
				.values = gm_limit_in_force(&q->devices[d]),
				.run_time = q->devices[d].run_time,
				.label = q->label,
			};
			limit_sum_users(q, place->user, &info);
			if (info.values.set && !visit(ctx, &info)) {
				place->age = q->age;
				place->device = d;
				return true;
			}
		}
	}
	return false;
}
