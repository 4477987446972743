/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations: see declare.h. This file promises that a declaration is charged and recorded before
 * the client hears that it may make the memory, that the device has the room by then, and that no byte
 * which the driver counts for a process is taken for declared twice. It must never refuse to give a
 * charge back.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/declare.h"

#include <assert.h>

#include "common/arith.h"
#include "common/step.h"
#include "daemon/device/reserve.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/declare_private.h"
#include "daemon/lease/commit.h"
#include "daemon/queue/queue_deadlock.h"
#include "daemon/queue/queue.h"

uint64_t gm_declare_sum(const struct gm_session *session, uint32_t device)
{
	return device < session->core->env.n_devices ? session->payer.accounts[device].declared : 0;
}

uint64_t gm_declare_seen(const struct gm_session *session, uint32_t device)
{
	return device < session->core->env.n_devices ? session->payer.accounts[device].seen : 0;
}

/* ---- more */

/* What the last count says of a process. UINT64_MAX: nothing. */
static uint64_t declare_figure(struct gm_device *device, pid_t pid)
{
	const struct gm_usage_sample_process *process =
		gm_usage_sample_find(device->maps.last, pid);
	return process ? process->bytes : UINT64_MAX;
}

static void declare_finish(struct gm_request *request)
{
	struct gm_session *session = request->session;
	struct gm_device *device = &session->core->env.devices[request->device];
	struct gm_account *account = gm_session_account(session, device);
	gpumem_status status = GPUMEM_OK;
	const char *detail = NULL;

	gm_request_unlink(request);
	if (account->declared == 0)
		account->undeclared = declare_figure(device, session->payer.pid);
	gm_ledger_declare(&device->ledger, account, request->bytes);
	if (gm_commit_declared(session) < 0) {
		gm_ledger_undeclare(&device->ledger, account, request->bytes);
		status = GPUMEM_E_HOST_MEMORY;
		detail = "the daemon's ledger has no room for another declaration";
	}
	GM_STEP("declare: charged");
	gm_session_changed(session, device);
	gm_device_settle(device);

	/* done() may free the request: do not use it from here on. */
	if (status == GPUMEM_OK)
		request->done(request, status, NULL);
	else
		gm_session_refuse(request, status, detail);
	gm_reserve_refill(device);
}

const struct gm_request_calls gm_declare_calls = {
	.no_chunks = true,
	.finish = declare_finish,
	.refuse = gm_session_refuse,
};

/* ---- less */

static void declare_give_back(struct gm_session *session, struct gm_device *device, uint64_t bytes)
{
	struct gm_account *account = gm_session_account(session, device);
	gm_ledger_undeclare(&device->ledger, account, bytes);
	gm_queue_deadlock_returned(device, account);
}

uint64_t gm_declare_less(struct gm_session *session, uint32_t number, uint64_t bytes)
{
	struct gm_env *env = &session->core->env;
	uint64_t has = gm_declare_sum(session, number);
	if (bytes >= has)
		return has;

	struct gm_device *device = &env->devices[number];
	gm_env_enter(env);
	declare_give_back(session, device, has - bytes);
	(void)gm_commit_declared(session); /* it has a record already */
	gm_session_changed(session, device);
	gm_reserve_settle(device);
	gm_env_leave(env);
	return bytes;
}

void gm_declare_end(struct gm_session *session)
{
	struct gm_env *env = &session->core->env;
	for (uint32_t d = 0; d < env->n_devices; d++) {
		uint64_t bytes = session->payer.accounts[d].declared;
		if (bytes > 0)
			declare_give_back(session, &env->devices[d], bytes);
	}
	gm_env_erase(env, &session->declared_place);
}

/* ---- after a restart */

bool gm_declare_adopt(
	struct gm_session *session, uint32_t place, const struct gm_record_declared *record)
{
	const struct gm_env *env = &session->core->env;
	if (record->n_devices == 0 || record->n_devices > GM_BOUND_DEVICES)
		return false;

	for (uint64_t i = 0; i < record->n_devices; i++) {
		uint64_t bytes = record->devices[i].bytes;
		struct gm_device *device = gm_device_by_key(env, record->devices[i].device);
		/* A device may be gone, and what was declared there is gone with it. */
		if (!device)
			continue;
		struct gm_account *account = gm_session_account(session, device);
		if (bytes > GM_LEASE_BYTES_MAX || account->declared > 0)
			continue;
		account->undeclared = UINT64_MAX;
		gm_ledger_adopt_declared(&device->ledger, account, bytes);
	}
	session->declared_place = place;
	return true;
}

/* ---- what the driver counts */

void gm_declare_count(struct gm_device *device)
{
	struct gm_usage_sample *counted = device->maps.last;
	if (device->ledger.declared == 0)
		return;

	for (size_t i = 0; counted && i < counted->n; i++)
		counted->list[i].spoken_for = 0;
	const struct gm_orphan_map *map;
	DL_FOREACH (device->maps.list, map) {
		struct gm_usage_sample_process *process = gm_usage_sample_find(counted, map->pid);
		if (process)
			process->spoken_for =
				gm_u64_min(process->bytes, process->spoken_for + map->bytes);
	}

	/* A process may have several sessions. What one of them finds, the next one does not. */
	struct gm_account *account;
	DL_FOREACH (device->ledger.holders, account) {
		if (account->declared == 0)
			continue;
		struct gm_usage_sample_process *process =
			gm_usage_sample_find(counted, account->payer->pid);
		uint64_t left = process ? process->bytes - process->spoken_for : 0;
		gm_ledger_see(&device->ledger, account, left);
		if (process)
			process->spoken_for += account->seen;
	}
}
