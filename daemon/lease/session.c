/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the processes that memory is charged to. This file promises that a charge stays until
 * the process gave the memory back or is gone, whether it is connected or not, and that only the
 * holder of the token can resume a quarantined session. It must never pool the memory of a process
 * that died.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/token.h"
#include "common/text/uid_name.h"
#include "daemon/books/fds.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/device/reserve.h"

static void session_new_token(struct gm_session *session, uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_core *core = session->core;
	core->env.ops.random(core->env.ctx, ret_token, GM_TOKEN_BYTES);
	session->token = gm_token_hash_make(&core->token_key, ret_token);
}

/* Copies the strings of an identity. */
static int session_copy_names(struct gm_session *session, const struct gm_session_info *info)
{
	struct gm_session_info *own = &session->info;
	const struct {
		const char *from;
		const char **to;
		size_t room; /* in struct gm_record_client */
	} strings[] = {
		{info->unit, &own->unit, GM_RECORD_UNIT_BYTES},
		{info->container, &own->container, GM_RECORD_CONTAINER_BYTES},
		{info->name, &own->name, GM_BOUND_NAME_BYTES + 1},
		{info->run, &own->run, GM_BOUND_RUN_BYTES + 1},
		{info->scope, &own->scope, GM_RECORD_SCOPE_BYTES},
		{info->command, &own->command, GM_RECORD_COMMAND_BYTES},
	};
	const size_t n_strings = sizeof(strings) / sizeof(strings[0]);
	size_t sizes[sizeof(strings) / sizeof(strings[0])], total = 0;
	for (size_t i = 0; i < n_strings; i++) {
		size_t n = strings[i].from ? strnlen(strings[i].from, strings[i].room) : 0;
		sizes[i] = n > 0 && n < strings[i].room ? n + 1 : 0;
		total += sizes[i];
		*strings[i].to = NULL;
	}

	if (total == 0)
		return 0;

	char *at = session->names = malloc(total);
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < n_strings; i++) {
		if (sizes[i] == 0)
			continue;
		*strings[i].to = memcpy(at, strings[i].from, sizes[i]);
		at += sizes[i];
	}
	return 0;
}

/* Its client may repeat requests from now on, or it ends. */
static void session_forget_grants(struct gm_session *session)
{
	free(session->grants);
	session->grants = NULL;
	session->n_grants = 0;
	session->indexed = false;
}

static void session_free(struct gm_session *session)
{
	session_forget_grants(session);
	free(session->names);
	free(session->run_name);
	free(session);
}

int gm_account_payer_begin(struct gm_core *core, struct gm_account_payer *payer, uint64_t id)
{
	struct gm_env *env = &core->env;

	payer->id = id ? id : env->ops.new_id(env->ctx);
	for (uint32_t d = 0; d < env->n_devices; d++)
		payer->accounts[d].payer = payer;
	payer->user = gm_user_get(env->users, payer->payer_uid);
	if (!payer->user)
		return -ENOMEM;

	HASH_ADD(hh, env->payers, id, sizeof(payer->id), payer);
	if (!GM_TABLE_ADDED(payer))
		goto no_entry;
	if (gm_limits_begin_run(&core->limits, payer) < 0)
		goto no_run;
	gm_limits_join(&core->limits, payer);
	return 0;
no_run:
	HASH_DEL(env->payers, payer);
no_entry:
	gm_user_unref(payer->user);
	return -ENOMEM;
}

void gm_account_payer_end(struct gm_core *core, struct gm_account_payer *payer)
{
	struct gm_env *env = &core->env;

	for (uint32_t d = 0; d < env->n_devices; d++) {
		assert(payer->accounts[d].held == 0);
		gm_orphan_map_unref(payer->accounts[d].map);
	}
	gm_limits_leave(&core->limits, payer);
	HASH_DEL(env->payers, payer);
	gm_user_unref(payer->user);
}

struct gm_session *gm_session_make(
	struct gm_core *core, uint64_t id, const struct gm_session_info *info)
{
	struct gm_env *env = &core->env;
	struct gm_session *session =
		calloc(1, sizeof(*session) + env->n_devices * sizeof(struct gm_account));
	if (!session)
		return NULL;

	session->core = core;
	session->info = *info;
	session->info.domain_key = NULL; /* the caller's */
	struct gm_account_payer *payer = &session->payer;
	payer->session = session;
	payer->uid = info->uid;
	payer->payer_uid = session->info.payer_uid = gm_session_payer_uid(info);
	session->info.subordinate = payer->payer_uid != info->uid;
	payer->pid = info->pid;
	payer->run = info->run_limit;
	payer->domain = info->domain;
	payer->pooling = info->pooling;
	if (session_copy_names(session, info) < 0 || gm_account_payer_begin(core, payer, id) < 0) {
		session_free(session);
		return NULL;
	}
	gm_user_charge_init(&session->charge, payer->user, GM_USER_SESSIONS);
	gm_user_charge_init(&session->bare, payer->user, GM_USER_BARE_LEASES);
	gm_user_charge_init(&session->shares, payer->user, GM_USER_SHARES);
	return session;
}

void gm_session_unmake(struct gm_session *session)
{
	gm_user_charge_deinit(&session->charge);
	gm_user_charge_deinit(&session->bare);
	gm_user_charge_deinit(&session->shares);
	gm_account_payer_end(session->core, &session->payer);
	session_free(session);
}

struct gm_token_hash gm_core_domain(const struct gm_core *core, const char *key)
{
	static const struct gm_token_hash none;

	return key ? gm_token_hash_text(&core->token_key, key) : none;
}

int gm_session_new(struct gm_core *core, const struct gm_session_info *info,
	uint8_t ret_token[GM_TOKEN_BYTES], struct gm_session **ret_session)
{
	struct gm_orphan *orphan;
	if (core->env.stopping)
		return -ESHUTDOWN;

	assert(info->domain != GM_DOMAIN_FRESH);
	int r = gm_orphan_get_for(core, info, &orphan);
	if (r < 0)
		return r;

	if (gm_user_check(orphan->charge.user, GM_USER_SESSIONS, 1)) {
		gm_orphan_unref(orphan);
		return -ENOSPC;
	}

	struct gm_session *session = gm_session_make(core, 0, info);
	if (!session) {
		gm_orphan_unref(orphan);
		return -ENOMEM;
	}
	session->orphan = orphan;
	gm_user_charge_add(&session->charge, 1);
	session->domain = gm_core_domain(core, info->domain_key);
	session->info.since_ns = core->env.ops.now_ns(core->env.ctx);
	session_new_token(session, ret_token);
	*ret_session = session;
	return 0;
}

int gm_session_keep(struct gm_session *session, uint32_t page_version, bool page_unsafe)
{
	session->page_version = page_version;
	session->page_unsafe = page_unsafe;
	return gm_commit_session(session);
}

/* Writes what has changed, if the session has a record. */
static void session_commit(struct gm_session *session)
{
	if (session->place)
		(void)gm_commit_session(session);
}

uint64_t gm_session_id(const struct gm_session *session)
{
	return session->payer.id;
}

const struct gm_session_info *gm_session_info(const struct gm_session *session)
{
	return &session->info;
}

void gm_session_set_user(struct gm_session *session, void *user)
{
	session->info.user = user;
}

uint64_t gm_session_held(const struct gm_session *session, uint32_t device)
{
	return device < session->core->env.n_devices ? session->payer.accounts[device].held : 0;
}

uint64_t gm_session_max(const struct gm_session *session, uint32_t device)
{
	if (device >= session->core->env.n_devices)
		return 0;
	const struct gm_account *account = &session->payer.accounts[device];
	uint64_t most = UINT64_MAX;
	for (unsigned i = 0; i < account->n_tallies; i++)
		most = gm_u64_min(most, account->tallies[i]->max);
	return most;
}

uint64_t gm_session_room(const struct gm_session *session, uint32_t device)
{
	const struct gm_env *env = &session->core->env;
	if (device >= env->n_devices)
		return 0;
	const struct gm_device *d = &env->devices[device];
	if (d->drain.on)
		return 0;
	return gm_ledger_room(&d->ledger, &session->payer.accounts[device], gm_device_ceiling(d));
}

bool gm_session_full_of_bare(const struct gm_session *session, char detail[GM_DETAIL_BYTES])
{
	char name[GM_UID_NAME_PAYER_TEXT];
	if (session->n_views >= GM_BOUND_LEASES_PER_CLIENT) {
		gm_text_say(detail,
			"this client has opened leases %d times, which is the most; return some",
			GM_BOUND_LEASES_PER_CLIENT);
		return true;
	}
	if (gm_user_check(session->payer.user, GM_USER_BARE_LEASES, 1) == 0)
		return false;
	gm_text_say(detail,
		"%s has %llu leases that it opened or that are empty, as many as it leaves "
		"to others; the most is %d for all; return some",
		gm_uid_name_say_payer(session->payer.payer_uid, session->info.uid, name),
		(unsigned long long)session->payer.user->has[GM_USER_BARE_LEASES],
		GM_BOUND_BARE_LEASES);
	return true;
}

bool gm_session_full(const struct gm_session *session, char detail[GM_DETAIL_BYTES])
{
	if (HASH_COUNT(session->refs) + session->payer.n_new >= GM_BOUND_LEASES_PER_CLIENT) {
		gm_text_say(detail,
			"this client has %d leases, which is the most; return some, or grow one",
			GM_BOUND_LEASES_PER_CLIENT);
		return true;
	}
	return gm_session_full_of_bare(session, detail);
}

static bool session_owner(
	const struct gm_session *session, enum gm_owner_kind kind, struct gm_owner *ret_owner)
{
	const struct gm_session_info *info = &session->info;
	switch (kind) {
	case GM_OWNER_UNIT:
		return gm_owner_by_name(kind, info->unit, ret_owner) == 0;
	case GM_OWNER_CONTAINER:
		return gm_owner_by_name(kind, gm_session_container(info), ret_owner) == 0;
	case GM_OWNER_NAME:
		return gm_owner_by_name(kind, info->name, ret_owner) == 0;
	case GM_OWNER_SESSION:
		gm_owner_by_id(kind, session->payer.id, ret_owner);
		return true;
	case GM_OWNER_RUN:
		if (!session->payer.run.set || gm_owner_by_name(kind, info->run, ret_owner) < 0)
			return false;
		ret_owner->id = gm_owner_run_id(info->payer_uid, gm_session_container(info));
		return true;
	default:
		gm_owner_by_id(kind, kind == GM_OWNER_UID ? info->payer_uid : info->gid, ret_owner);
		return true;
	}
}

bool gm_account_payer_owner(
	const struct gm_account_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner)
{
	return payer->session ? session_owner(payer->session, kind, ret_owner)
			      : gm_orphan_owner(payer, kind, ret_owner);
}

void gm_session_name_run(struct gm_session *session, const char *name)
{
	gm_limits_name_run(&session->core->limits, &session->payer, name);
	/* Only lists have it. Without memory, they do without. */
	if (*name && !session->run_name)
		session->run_name = strdup(name);
}

const char *gm_session_run_name(const struct gm_session *session)
{
	return session->run_name ? session->run_name : "";
}

void gm_session_settle_all(struct gm_env *env)
{
	for (uint32_t d = 0; d < env->n_devices; d++)
		gm_reserve_settle(&env->devices[d]);
}

int gm_session_resume(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], void *user,
	uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_core *core = session->core;
	struct gm_env *env = &core->env;
	struct gm_token_hash hash = gm_token_hash_make(&core->token_key, token);
	bool latest = gm_secret_equal(&hash, &session->token, sizeof(hash));
	bool former = gm_secret_equal(&hash, &session->former, sizeof(hash));
	if (!latest && !(former && session->former_valid))
		return -EACCES;
	if (!session->payer.quarantined)
		return -EBUSY;

	gm_env_enter(env);
	session->payer.quarantined = false;
	session->info.user = user;
	session->former = hash;
	session->former_valid = true;
	session_forget_grants(session);
	session_new_token(session, ret_token);
	session_commit(session);
	for (uint32_t d = 0; d < env->n_devices; d++)
		gm_ledger_resume(&env->devices[d].ledger, &session->payer.accounts[d]);
	gm_session_settle_all(env);
	gm_env_leave(env);
	return 0;
}

void gm_session_keep_token(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES])
{
	session->token = gm_token_hash_make(&session->core->token_key, token);
	session->former_valid = false;
	session_commit(session);
}

void gm_session_confirm(struct gm_session *session)
{
	if (!session->former_valid)
		return;
	session->former_valid = false;
	session_commit(session);
}

void gm_session_finish(struct gm_session *session)
{
	struct gm_env *env = &session->core->env;
	struct gm_orphan *orphan = session->orphan;

	assert(!session->refs && session->shares.amount == 0 && session->payer.n_new == 0);
	for (uint32_t d = 0; d < env->n_devices; d++)
		gm_reclaim_gone(&env->devices[d], &session->payer);
	GM_STEP("end: leases dropped");
	session->core->n_ending--;
	gm_session_unmake(session);
	gm_orphan_unref(orphan);
}

void gm_session_refuse(struct gm_request *request, gpumem_status status, const char *detail)
{
	if (status != GPUMEM_E_CANCELLED && !request->again &&
		!gm_request_host_will_do(request, status)) {
		request->session->core->counters.refusals++;
		request->session->n_refused++;
	}
	request->done(request, status, detail);
}
