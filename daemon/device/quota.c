/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of owners. This file promises that a change is checked as a whole before any of it takes
 * effect, that what an owner holds is the sum of its clients' accounts at every moment, and that a
 * request costs no lookup: a payer's limits are found when it joins and when limits change. It must
 * never take memory from anyone: a limit below what is held only keeps the owner from getting more.
 */
#include "daemon/books/hash_table.h"
#include "daemon/device/quota_private.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/units.h"

_Static_assert(GM_TALLIES == GM_OWNER_KINDS, "a session has one owner of each kind at most");

/* ---- the table */

static struct gm_quota *quota_find(const struct gm_quotas *quotas, const struct gm_owner *owner)
{
	uint32_t hash = gm_owner_hash(&quotas->env->owner_key, owner);
	struct gm_quota *quota;
	HASH_FIND_BYHASHVALUE(hh, quotas->by_owner, owner, sizeof(*owner), hash, quota);
	return quota;
}

/* Returns the owner's entry, or a new one. NULL: no memory. */
static struct gm_quota *quota_get(struct gm_quotas *quotas, const struct gm_owner *owner)
{
	struct gm_quota *quota = quota_find(quotas, owner);
	if (quota)
		return quota;
	quota = calloc(1, sizeof(*quota) + quotas->env->n_devices * sizeof(quota->devices[0]));
	if (!quota)
		return NULL;

	quota->owner = *owner;
	quota->age = ++quotas->last_age;
	HASH_ADD_BYHASHVALUE(hh, quotas->by_owner, owner, sizeof(quota->owner),
		gm_owner_hash(&quotas->env->owner_key, owner), quota);
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

static gpumem_status quota_no_memory(struct gm_quotas *next, char *detail)
{
	gm_quotas_deinit(next);
	return gm_refuse(
		GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another limit");
}

/* The first step of a change. On failure, *ret_copy stays untouched and detail says why. */
static gpumem_status quota_copy(
	const struct gm_quotas *from, struct gm_quotas *ret_copy, char *detail)
{
	struct gm_quotas copy = {.env = from->env, .owner_of = from->owner_of};
	for (const struct gm_quota *q = from->by_owner; q; q = q->hh.next) {
		if (q->model)
			continue; /* made anew when payers join */
		struct gm_quota *mine = quota_get(&copy, &q->owner);
		if (!mine)
			return quota_no_memory(&copy, detail);
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

static void quota_drop_empty(struct gm_quotas *quotas)
{
	struct gm_quota *quota, *next;
	HASH_ITER (hh, quotas->by_owner, quota, next) {
		unsigned set = 0;
		for (uint32_t d = 0; d < quotas->env->n_devices; d++)
			set |= gm_quota_in_force(&quota->devices[d]).set;
		if (set == 0) {
			HASH_DEL(quotas->by_owner, quota);
			free(quota);
		}
	}
}

/* ---- the records of what was set at run time */

static int quota_write(const struct gm_env *env, struct gm_quota *quota,
	struct gm_record_limit *record, size_t size)
{
	gm_record_begin(&record->head, GM_RECORD_LIMIT, quota->id, size, 0);
	return gm_env_record(env, GM_RECORD_LIMIT, quota->id, &quota->place, record, size);
}

/* Writes what was set for the owner. -ENOSPC, … */
static int quota_commit(const struct gm_env *env, struct gm_quota *quota)
{
	struct gm_record_limit record = {.owner = quota->owner};
	if (!env->ops.record)
		return 0;

	for (uint32_t d = 0; d < env->n_devices; d++) {
		const struct gm_quota_values *v = &quota->devices[d].run_time;
		if (v->set == 0)
			continue;
		uint32_t device = (uint32_t)record.n_devices++;
		record.devices[device] = env->devices[d].key;
		for (unsigned bit = 1; bit <= GM_QUOTA_ALL; bit <<= 1) {
			if (!(v->set & bit))
				continue;
			uint64_t i = record.n_values++;
			record.values[i].device = device;
			record.values[i].bit = bit;
			record.values[i].value = gm_quota_values_get(v, bit);
		}
	}
	if (record.n_devices == 0) {
		gm_env_erase(env, &quota->place);
		return 0;
	}
	if (!quota->place)
		quota->id = env->ops.new_id(env->ctx);
	int r = quota_write(env, quota, &record, sizeof(record));
	/* A record of a former format has a smaller place, which has room for most limits. */
	if (r == -EMSGSIZE)
		r = quota_write(env, quota, &record,
			offsetof(struct gm_record_limit, values[record.n_values]));
	return r;
}

uint64_t gm_quotas_read(
	const struct gm_record_limit *record, uint64_t device, struct gm_quota_values *ret)
{
	*ret = GM_QUOTA_VALUES_UNSET;
	if (record->head.format < GM_RECORD_FORMAT_LIMIT_ROWS) {
		*ret = (struct gm_quota_values){.set = record->former[device].set & GM_QUOTA_ALL,
			.max = record->former[device].max,
			.guarantee = record->former[device].guarantee,
			.priority = record->former[device].priority};
		return record->former[device].device;
	}
	for (uint64_t i = 0; i < gm_min(record->n_values, GM_RECORD_LIMIT_ROWS); i++)
		if (record->values[i].device == device)
			gm_quota_values_set(ret, record->values[i].bit, record->values[i].value);
	return record->devices[device];
}

uint32_t gm_quotas_place(const struct gm_quotas *quotas, const struct gm_owner *owner)
{
	const struct gm_quota *quota = quota_find(quotas, owner);
	return quota ? quota->place : 0;
}

void gm_quotas_adopt(
	struct gm_quotas *quotas, const struct gm_owner *owner, uint64_t id, uint32_t place)
{
	struct gm_quota *quota = quota_find(quotas, owner);
	assert(quota && !quota->place);
	quota->id = id;
	quota->place = place;
}

int gm_quotas_record(struct gm_quotas *quotas, const struct gm_owner *owner)
{
	return quota_commit(quotas->env, quota_find(quotas, owner));
}

/* ---- a change */

/* Users have as many runs as sessions. They do not count here, or users could use up what there is. */
static size_t quota_count(const struct gm_quotas *quotas)
{
	size_t n = 0;
	for (const struct gm_quota *q = quotas->by_owner; q; q = q->hh.next)
		n += q->owner.kind != GM_OWNER_RUN;
	return n;
}

/* Returns how many owners the configuration limits. */
static size_t quota_count_configured(const struct gm_quotas *quotas)
{
	size_t n = 0;
	for (const struct gm_quota *q = quotas->by_owner; q; q = q->hh.next) {
		bool configured = false;
		for (uint32_t d = 0; d < quotas->env->n_devices; d++)
			configured = configured || q->devices[d].configured.set;
		n += configured;
	}
	return n;
}

/* The last step of a change of quotas: hands out the changed copy if it is valid, frees it otherwise. The
 * configuration, which a start and a reload accept alike, and what was set at run time may together be too many. Then no
 * limit is given up, and every change at run time goes that adds none. */
static gpumem_status quota_check(const struct gm_quotas *quotas,
	const struct gm_quota_config *config, struct gm_quotas *next, struct gm_quotas *ret_next,
	char *detail)
{
	gpumem_status status = GPUMEM_OK;

	quota_drop_empty(next);
	size_t n = config ? quota_count_configured(next) : quota_count(next);
	if (n > GM_LIMIT_QUOTAS && (config || n > quota_count(quotas)) && !next->env->adopting)
		status = gm_refuse(GPUMEM_E_LIMIT, detail,
			"there can be %d limits at most; reset some", GM_LIMIT_QUOTAS);

	if (status == GPUMEM_OK)
		status = gm_quota_check(next, config, detail);
	if (status == GPUMEM_OK)
		*ret_next = *next;
	else
		gm_quotas_deinit(next);
	return status;
}

/* ---- a client's name, and its users */

/* The user's account of the limit of a client's name. Without memory for it, the limit itself: then
 * the user shares it with others like that. */
static struct gm_quota *quota_get_user(
	struct gm_quotas *quotas, struct gm_quota *model, const struct gm_payer *payer)
{
	struct gm_owner user, owner = model->owner;
	if (!quotas->owner_of(payer, GM_OWNER_UID, &user))
		return model;

	owner.id = user.id + 1;
	struct gm_quota *quota = quota_get(quotas, &owner);
	if (!quota)
		return model;
	if (quota->model)
		return quota;

	quota->model = model;
	quota->next_user = model->users;
	model->users = quota;
	for (uint32_t d = 0; d < quotas->env->n_devices; d++) {
		struct gm_quota_values v = gm_quota_in_force(&model->devices[d]);
		quota->devices[d].configured = v;
		quota->devices[d].tally = (struct gm_tally){.quota = quota, .max = v.max};
	}
	return quota;
}

static void quota_free_user(struct gm_quotas *quotas, struct gm_quota *quota)
{
	struct gm_quota **at = &quota->model->users;
	while (*at != quota)
		at = &(*at)->next_user;
	*at = quota->next_user;
	HASH_DEL(quotas->by_owner, quota);
	free(quota);
}

/* The quota of this kind that the payer has joined, or NULL. */
static struct gm_quota *quota_joined(
	const struct gm_quotas *quotas, const struct gm_payer *payer, enum gm_owner_kind kind)
{
	struct gm_owner owner;
	struct gm_quota *quota = NULL;
	if (quotas->owner_of(payer, kind, &owner))
		quota = quota_find(quotas, &owner);
	if (!quota || kind != GM_OWNER_NAME)
		return quota;

	for (uint32_t d = 0; d < quotas->env->n_devices; d++) {
		const struct gm_account *account = &payer->accounts[d];
		for (unsigned i = 0; i < account->n_tallies; i++)
			if (account->tallies[i]->quota->model == quota)
				return account->tallies[i]->quota;
	}
	return quota;
}

/* Finds the payer's part in the table. */
static void quota_join(struct gm_quotas *quotas, struct gm_payer *payer)
{
	struct gm_env *env = quotas->env;
	static const enum gm_owner_kind by_rank[] = {GM_OWNER_SESSION, GM_OWNER_CONTAINER,
		GM_OWNER_UNIT, GM_OWNER_UID, GM_OWNER_GID, GM_OWNER_NAME, GM_OWNER_RUN};
	bool ranked[GM_LIMIT_DEVICES] = {false};
	for (uint32_t d = 0; d < env->n_devices; d++) {
		struct gm_account *account = &payer->accounts[d];
		account->n_tallies = 0;
		account->guaranteed = NULL;
		account->priority = 0;
	}

	for (unsigned k = 0; quotas->by_owner && k < GM_OWNER_KINDS; k++) {
		struct gm_owner owner;
		struct gm_quota *quota = NULL;
		if (quotas->owner_of(payer, by_rank[k], &owner))
			quota = quota_find(quotas, &owner);
		if (!quota)
			continue;

		if (by_rank[k] == GM_OWNER_NAME)
			quota = quota_get_user(quotas, quota, payer);
		quota->clients += (payer->session != NULL);
		for (uint32_t d = 0; d < env->n_devices; d++) {
			struct gm_account *account = &payer->accounts[d];
			struct gm_quota_values v = gm_quota_in_force(&quota->devices[d]);
			if (v.set == 0)
				continue;
			gm_ledger_join(&env->devices[d].ledger, account, &quota->devices[d].tally);
			if (!(v.set & GM_QUOTA_PRIORITY))
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

static void quota_set_limited(const struct gm_env *env, struct gm_payer *payer)
{
	payer->limited = false;
	for (uint32_t d = 0; d < env->n_devices; d++)
		payer->limited = payer->limited || payer->accounts[d].n_tallies > 0;
}

/* Makes admit.c look at all payers again. */
static void quota_tops_changed(struct gm_env *env)
{
	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].top_stale = true;
}

/* No payer may have a higher priority than top_most. */
static void quota_raise_tops(struct gm_env *env, const struct gm_payer *payer)
{
	for (uint32_t d = 0; d < env->n_devices; d++)
		if (payer->accounts[d].priority > env->devices[d].top_most)
			env->devices[d].top_most = payer->accounts[d].priority;
}

void gm_quotas_replace(struct gm_quotas *quotas, struct gm_quotas *next)
{
	struct gm_env *env = quotas->env;
	struct gm_quotas old = *quotas;
	*quotas = *next;
	*next = old;

	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].ledger.unmet = env->devices[d].guaranteed = 0;
	quota_tops_changed(env);
	for (uint32_t d = 0; d < env->n_devices; d++)
		env->devices[d].top_most = INT32_MIN;

	for (struct gm_quota *q = quotas->by_owner; q; q = q->hh.next) {
		q->clients = 0;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			struct gm_quota_values v = gm_quota_in_force(&q->devices[d]);
			q->devices[d].tally = (struct gm_tally){
				.quota = q, .max = v.max, .guarantee = v.guarantee};
			env->devices[d].ledger.unmet += v.guarantee;
			env->devices[d].guaranteed += v.guarantee;
		}
	}
	for (struct gm_payer *p = env->payers; p; p = p->hh.next) {
		quota_join(quotas, p);
		quota_raise_tops(env, p);
	}

	for (struct gm_payer *p = env->payers; p; p = p->hh.next) {
		for (uint32_t d = 0; d < env->n_devices; d++)
			if (p->accounts[d].n_tallies > 0 || p->limited)
				gm_env_payer_changed(env, p, d);
		quota_set_limited(env, p);
	}
}

const struct gm_tally *gm_quotas_moved(
	const struct gm_quotas *quotas, const struct gm_tally *old, uint32_t device)
{
	const struct gm_quota *q = quota_find(quotas, &old->quota->owner);
	return q ? &q->devices[device].tally : NULL;
}

gpumem_status gm_quotas_configured(const struct gm_quotas *quotas,
	const struct gm_quota_config *config, struct gm_quotas *ret_next,
	char detail[GM_DETAIL_BYTES])
{
	struct gm_quotas next;
	uint32_t n_devices = quotas->env->n_devices;
	gpumem_status status = quota_copy(quotas, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	for (struct gm_quota *q = next.by_owner; q; q = q->hh.next)
		for (uint32_t d = 0; d < n_devices; d++)
			q->devices[d].configured = (struct gm_quota_values){0};

	/* First the rules for all devices, then those that override them. */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < config->n_rules; i++) {
			const struct gm_quota_rule *rule = &config->rules[i];
			if ((rule->device == GM_ALL_DEVICES) != (pass == 0))
				continue;
			if (rule->owner.kind == GM_OWNER_SESSION) {
				gm_quotas_deinit(&next);
				return gm_refuse(GPUMEM_E_INVALID, detail,
					"a single client's limit is set at run time only");
			}
			struct gm_quota *q = quota_get(&next, &rule->owner);
			if (!q)
				return quota_no_memory(&next, detail);
			for (uint32_t d = 0; d < n_devices; d++)
				if (pass == 0 || d == rule->device)
					gm_quota_put(&q->devices[d].configured, &rule->values);
		}
	}
	return quota_check(quotas, config, &next, ret_next, detail);
}

gpumem_status gm_quotas_with(const struct gm_quotas *quotas, const struct gm_owner *owner,
	uint32_t device, const struct gm_quota_values *values, struct gm_quotas *ret_next,
	char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = quotas->env;
	char names[GM_QUOTA_NAMES_TEXT];
	struct gm_quotas next;
	if (device != GM_ALL_DEVICES && gm_device_check_number(env, device, detail))
		return GPUMEM_E_NOT_FOUND;
	if (values->set == 0)
		return gm_refuse(GPUMEM_E_INVALID, detail, "a limit needs %s",
			gm_quota_kind_names("a ", " or ", names));
	if (owner->kind == GM_OWNER_RUN)
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"the limit of a run comes from gpumem-run --limit; set one for its user");
	if (owner->kind == GM_OWNER_SESSION) {
		const struct gm_payer *payer;
		HASH_FIND(hh, env->payers, &owner->id, sizeof(owner->id), payer);
		if (!payer || !payer->session)
			return gm_refuse(GPUMEM_E_NOT_FOUND, detail,
				"there is no session %llu; see 'gpumemctl clients --columns session,pid,name'",
				(unsigned long long)owner->id);
	}
	gpumem_status status = quota_copy(quotas, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	struct gm_quota *q = quota_get(&next, owner);
	if (!q)
		return quota_no_memory(&next, detail);
	for (uint32_t d = 0; d < env->n_devices; d++)
		if (device == GM_ALL_DEVICES || d == device)
			gm_quota_put(&q->devices[d].run_time, values);
	status = quota_check(quotas, NULL, &next, ret_next, detail);
	if (status != GPUMEM_OK || env->adopting)
		return status;

	/* The owner has a value now, so its entry is still there. */
	if (quota_commit(env, quota_find(ret_next, owner)) == 0)
		return GPUMEM_OK;
	gm_quotas_deinit(ret_next);
	return gm_refuse(GPUMEM_E_HOST_MEMORY, detail,
		"the daemon's ledger has no room for another limit; reset some");
}

gpumem_status gm_quotas_without(const struct gm_quotas *quotas, const struct gm_owner *owner,
	uint32_t device, struct gm_quotas *ret_next, char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = quotas->env;
	struct gm_quotas next;
	bool found = false;
	if (device != GM_ALL_DEVICES && gm_device_check_number(env, device, detail))
		return GPUMEM_E_NOT_FOUND;
	gpumem_status status = quota_copy(quotas, &next, detail);
	if (status != GPUMEM_OK)
		return status;

	for (struct gm_quota *q = next.by_owner; q; q = q->hh.next) {
		if (q->owner.kind == GM_OWNER_RUN)
			continue;
		if (owner && memcmp(&q->owner, owner, sizeof(*owner)) != 0)
			continue;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			if (device != GM_ALL_DEVICES && d != device)
				continue;
			found = found || q->devices[d].run_time.set;
			q->devices[d].run_time = (struct gm_quota_values){0};
		}
	}

	if (owner && !found) {
		char text[GM_OWNER_TEXT];
		gm_quotas_deinit(&next);
		return gm_refuse(GPUMEM_E_NOT_FOUND, detail,
			"nothing was set for %s at run time; see gpumemctl limit show",
			gm_owner_format(owner, text));
	}
	status = quota_check(quotas, NULL, &next, ret_next, detail);
	if (status != GPUMEM_OK)
		return status;

	/* An entry without a value is gone, but its record is not. */
	for (const struct gm_quota *old = quotas->by_owner; old; old = old->hh.next) {
		struct gm_quota *q = quota_find(ret_next, &old->owner);
		uint32_t place = old->place;
		if (old->model || old->owner.kind == GM_OWNER_RUN)
			continue;
		if (owner && memcmp(&old->owner, owner, sizeof(*owner)) != 0)
			continue;
		if (q)
			quota_commit(env, q);
		else
			gm_env_erase(env, &place);
	}
	return GPUMEM_OK;
}

/* ---- payers and listings */

int gm_quotas_begin_run(struct gm_quotas *quotas, struct gm_payer *payer)
{
	struct gm_owner owner, name;
	if (!payer->run.set || !quotas->owner_of(payer, GM_OWNER_RUN, &owner))
		return 0;
	if (quota_find(quotas, &owner))
		return 0;

	struct gm_quota *quota = quota_get(quotas, &owner);
	if (!quota)
		return -ENOMEM;
	if (quotas->owner_of(payer, GM_OWNER_NAME, &name))
		snprintf(quota->label, sizeof(quota->label), "%.63s", name.name);
	for (uint32_t d = 0; d < quotas->env->n_devices; d++) {
		quota->devices[d].run_time = payer->run;
		quota->devices[d].tally = (struct gm_tally){
			.quota = quota, .max = gm_quota_in_force(&quota->devices[d]).max};
	}
	return 0;
}

void gm_quotas_name_run(struct gm_quotas *quotas, const struct gm_payer *payer, const char *name)
{
	struct gm_owner owner;
	if (!*name || !payer->run.set || !quotas->owner_of(payer, GM_OWNER_RUN, &owner))
		return;

	struct gm_quota *quota = quota_find(quotas, &owner);
	if (!quota || quota->named)
		return;
	snprintf(quota->label, sizeof(quota->label), "%.63s", name);
	quota->named = true;
}

void gm_quotas_join(struct gm_quotas *quotas, struct gm_payer *payer)
{
	struct gm_env *env = quotas->env;
	quota_tops_changed(env);
	if (quotas->by_owner) {
		quota_join(quotas, payer);
		quota_set_limited(env, payer);
	}
	quota_raise_tops(env, payer);
}

void gm_quotas_leave(struct gm_quotas *quotas, struct gm_payer *payer)
{
	struct gm_env *env = quotas->env;
	quota_tops_changed(env);
	if (!quotas->by_owner)
		return;

	for (unsigned kind = 0; kind < GM_OWNER_KINDS; kind++) {
		struct gm_quota *quota = quota_joined(quotas, payer, kind);
		if (!quota)
			continue;

		assert(quota->clients >= (payer->session != NULL));
		quota->clients -= (payer->session != NULL);
		if (quota->model && quota->clients == 0) {
			quota_free_user(quotas, quota);
			continue;
		}
		if (kind != GM_OWNER_SESSION && !(kind == GM_OWNER_RUN && quota->clients == 0))
			continue;
		for (uint32_t d = 0; d < env->n_devices; d++) {
			const struct gm_tally *tally = &quota->devices[d].tally;
			env->devices[d].ledger.unmet -= gm_tally_unmet(tally);
			env->devices[d].guaranteed -= tally->guarantee;
		}
		gm_env_erase(env, &quota->place);
		HASH_DEL(quotas->by_owner, quota);
		free(quota);
	}
	for (uint32_t d = 0; d < env->n_devices; d++)
		payer->accounts[d].n_tallies = 0;
}

const struct gm_owner *gm_quota_owner(const struct gm_quota *quota)
{
	return quota->model ? &quota->model->owner : &quota->owner;
}

const struct gm_owner *gm_quotas_most_kept(const struct gm_quotas *quotas, uint32_t device,
	const struct gm_account *account, struct gm_quota_most *last)
{
	const struct gm_owner *most = NULL;
	uint64_t kept = 0;

	if (last->known && last->guaranteed == account->guaranteed)
		return last->owner;
	for (const struct gm_quota *q = quotas->by_owner; q; q = q->hh.next) {
		const struct gm_tally *tally = &q->devices[device].tally;

		if (tally == account->guaranteed || gm_tally_unmet(tally) <= kept)
			continue;
		kept = gm_tally_unmet(tally);
		most = gm_quota_owner(q);
	}
	*last = (struct gm_quota_most){true, account->guaranteed, most};
	return most;
}

const char *gm_quota_say(const struct gm_quota *quota, char text[GM_OWNER_TEXT])
{
	if (!quota->label[0])
		return gm_owner_format(gm_quota_owner(quota), text);
	snprintf(text, GM_OWNER_TEXT, "run \"%s\"", quota->label);
	return text;
}

/* Sums up what counts against a limit. user: of a client's name, only the account of this one. */
static void quota_sum_users(const struct gm_quota *quota, uint64_t user, struct gm_quota_info *info)
{
	info->held = quota->devices[info->device].tally.held;
	info->clients = quota->clients;
	info->over = info->held > info->values.max;
	for (const struct gm_quota *u = quota->users; u; u = u->next_user) {
		uint64_t held = u->devices[info->device].tally.held;
		if (user && u->owner.id != user)
			continue;
		info->held += held;
		info->clients += u->clients;
		info->over = info->over || held > info->values.max;
	}
}

bool gm_quotas_each(const struct gm_quotas *quotas, struct gm_quota_place *place,
	bool (*visit)(void *ctx, const struct gm_quota_info *info), void *ctx)
{
	uint32_t n_devices = quotas->env->n_devices;
	for (const struct gm_quota *q = quotas->by_owner; q; q = q->hh.next) {
		if (q->age < place->age || q->model)
			continue;
		for (uint32_t d = q->age == place->age ? place->device : 0; d < n_devices; d++) {
			struct gm_quota_info info = {
				.owner = q->owner,
				.device = d,
				.values = gm_quota_in_force(&q->devices[d]),
				.run_time = q->devices[d].run_time,
				.label = q->label,
			};
			quota_sum_users(q, place->user, &info);
			if (info.values.set && !visit(ctx, &info)) {
				place->age = q->age;
				place->device = d;
				return true;
			}
		}
	}
	return false;
}
