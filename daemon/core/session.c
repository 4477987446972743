/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the processes that memory is charged to. It promises that a charge stays until the
 * process gave the memory back or is gone, whether it is connected or not, and that only the holder
 * of the token takes a quarantined session up again. It must never pool what a process that died
 * had.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/token.h"
#include "daemon/core/core_private.h"
#include "daemon/core/lease.h"
#include "daemon/core/request.h"

static void session_new_token(struct gm_session *session, uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_core *core = session->core;
	core->ops.random(core->ctx, ret_token, GM_TOKEN_BYTES);
	session->token = gm_token_hash_make(&core->token_key, ret_token);
}

/* The names that limits can be given to, kept with the session. */
static int session_copy_names(struct gm_session *session, const struct gm_session_info *info)
{
	const char *from[] = {info->unit, info->container, info->name};
	const char **to[] = {&session->info.unit, &session->info.container, &session->info.name};
	size_t sizes[3], total = 0;
	for (int i = 0; i < 3; i++) {
		size_t n = from[i] ? strnlen(from[i], GM_OWNER_NAME_BYTES + 1) : 0;
		sizes[i] = n > 0 && n <= GM_OWNER_NAME_BYTES ? n + 1 : 0;
		total += sizes[i];
		*to[i] = NULL;
	}
	if (total == 0)
		return 0;
	char *at = session->names = malloc(total);
	if (!at)
		return -ENOMEM;
	for (int i = 0; i < 3; i++) {
		if (sizes[i] == 0)
			continue;
		*to[i] = memcpy(at, from[i], sizes[i]);
		at += sizes[i];
	}
	return 0;
}

static void session_free(struct gm_session *session)
{
	free(session->names);
	free(session);
}

int gm_session_new(struct gm_core *core, const struct gm_session_info *info,
	uint8_t ret_token[GM_TOKEN_BYTES], struct gm_session **ret_session)
{
	if (core->stopping)
		return -ESHUTDOWN;
	assert(info->domain != GM_DOMAIN_FRESH);
	struct gm_session *session =
		calloc(1, sizeof(*session) + core->n_devices * sizeof(session->accounts[0]));
	if (!session)
		return -ENOMEM;
	session->core = core;
	session->id = core->ops.new_id(core->ctx);
	session->info = *info;
	if (session_copy_names(session, info) < 0) {
		session_free(session);
		return -ENOMEM;
	}
	HASH_ADD(hh, core->sessions, id, sizeof(session->id), session);
	if (!GM_TABLE_ADDED(session)) {
		session_free(session);
		return -ENOMEM;
	}
	gm_quotas_join(core, session);
	session_new_token(session, ret_token);
	*ret_session = session;
	return 0;
}

uint64_t gm_session_id(const struct gm_session *session)
{
	return session->id;
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
	return device < session->core->n_devices ? session->accounts[device].held : 0;
}

bool gm_session_quarantined(const struct gm_session *session)
{
	return session->quarantined;
}

bool gm_session_full(const struct gm_session *session)
{
	return HASH_COUNT(session->holds) + session->n_new >= GM_LIMIT_LEASES_PER_CLIENT;
}

void gm_session_changed(struct gm_session *session, uint32_t device)
{
	if (!session->ending)
		session->core->ops.session_changed(session->core->ctx, session, device);
}

static void session_settle_all(struct gm_core *core)
{
	for (uint32_t d = 0; d < core->n_devices; d++) {
		gm_device_settle(&core->devices[d]);
		gm_reserve_refill(&core->devices[d]);
	}
}

void gm_session_quarantine(struct gm_session *session)
{
	struct gm_core *core = session->core;
	if (session->quarantined)
		return;
	gm_core_enter(core);
	/* Before anything is cancelled, so that what done() may ask for is refused. */
	session->quarantined = true;
	session->info.user = NULL;
	gm_request_cancel_all(session);
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_ledger_quarantine(&core->devices[d].ledger, &session->accounts[d]);
	/* Whoever is off the socket cannot be asked for anything. */
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_ladder_gone(&core->devices[d], session);
	session_settle_all(core);
	gm_core_leave(core);
}

int gm_session_resume(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], void *user,
	uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_core *core = session->core;
	struct gm_token_hash hash = gm_token_hash_make(&core->token_key, token);
	if (!gm_secret_equal(&hash, &session->token, sizeof(hash)))
		return -EACCES;
	if (!session->quarantined)
		return -EBUSY;
	gm_core_enter(core);
	session->quarantined = false;
	session->info.user = user;
	session_new_token(session, ret_token);
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_ledger_resume(&core->devices[d].ledger, &session->accounts[d]);
	session_settle_all(core);
	gm_core_leave(core);
	return 0;
}

void gm_session_keep_token(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES])
{
	session->token = gm_token_hash_make(&session->core->token_key, token);
}

void gm_session_cancel(struct gm_session *session)
{
	struct gm_core *core = session->core;
	gm_core_enter(core);
	gm_request_cancel_all(session);
	gm_core_leave(core);
}

static void session_end(struct gm_session *session, bool died)
{
	struct gm_core *core = session->core;
	assert(!session->ending);
	gm_core_enter(core);
	session->ending = true;
	gm_request_cancel_all(session);
	while (session->holds)
		gm_lease_drop(session->holds->lease, session->holds, died);
	for (uint32_t d = 0; d < core->n_devices; d++)
		assert(session->accounts[d].held == 0);
	assert(session->n_shares == 0 && session->n_new == 0);
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_ladder_gone(&core->devices[d], session);
	gm_quotas_leave(core, session);
	HASH_DEL(core->sessions, session);
	session_free(session);
	session_settle_all(core);
	gm_core_leave(core);
}

void gm_session_end_unmapped(struct gm_session *session)
{
	session_end(session, false);
}

void gm_session_end_died(struct gm_session *session)
{
	session_end(session, true);
}

struct gm_session *gm_core_find_session(struct gm_core *core, uint64_t id)
{
	struct gm_session *session;
	HASH_FIND(hh, core->sessions, &id, sizeof(id), session);
	return session;
}

struct gm_session *gm_core_next_session(struct gm_core *core, struct gm_session *after)
{
	return after ? after->hh.next : core->sessions;
}

uint64_t gm_core_session_count(const struct gm_core *core)
{
	return HASH_COUNT(core->sessions);
}
