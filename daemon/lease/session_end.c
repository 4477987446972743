/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session loses its connection, and how it ends. This file promises that an end takes requests, declarations,
 * tokens, views and leases with it, and that charges of what is left go to the orphaned account first. It must never pool the
 * memory of a process that died.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/declare_private.h"

#include <assert.h>

#include "common/step.h"
#include "daemon/queue/queue.h"
#include "daemon/reclaim/reclaim_run.h"

void gm_session_quarantine(struct gm_session *session)
{
	struct gm_env *env = &session->core->env;
	if (session->payer.quarantined)
		return;

	gm_env_enter(env);
	/* This comes before the cancelling, so that a request made by done() is refused. */
	session->payer.quarantined = true;
	session->info.user = NULL;
	gm_request_cancel_all(&session->payer);
	if (session->n_leaving > 0)
		gm_lease_hand_over(session);
	for (uint32_t d = 0; d < env->n_devices; d++) {
		gm_ledger_quarantine(&env->devices[d].ledger, &session->payer.accounts[d]);
		gm_reclaim_gone(&env->devices[d], &session->payer);
	}
	gm_session_settle_all(env);
	gm_env_leave(env);
}

void gm_session_cancel(struct gm_session *session)
{
	struct gm_env *env = &session->core->env;
	gm_env_enter(env);
	gm_request_cancel_all(&session->payer);
	gm_env_leave(env);
}

/* From now on the session's orphaned account pays for what the session has in leases. */
static void session_charge_orphan(struct gm_session *session)
{
	struct gm_env *env = &session->core->env;

	for (uint32_t d = 0; d < env->n_devices; d++) {
		struct gm_account *account = &session->payer.accounts[d];
		if (account->held > 0)
			gm_ledger_move(&env->devices[d].ledger, account,
				gm_orphan_account(session->orphan, &env->devices[d]),
				account->held);
	}
}

static void session_end(struct gm_session *session, bool died)
{
	struct gm_core *core = session->core;
	struct gm_env *env = &core->env;
	assert(!session->payer.ending);

	uint64_t slice = env->stopping ? UINT64_MAX : gm_orphan_work_slice(env);
	gm_env_enter(env);
	session->payer.ending = true;
	session->died = died;
	core->n_ending++;
	core->n_outgoing += session->n_made;
	gm_request_cancel_all(&session->payer);
	GM_STEP("end: begun");
	gm_declare_end(session);
	session_charge_orphan(session);
	/* Without it, the next daemon takes what is left of the client apart, too. */
	gm_env_erase(env, &session->place);
	GM_STEP("end: client's record erased");
	gm_orphan_work_add_session(session);
	gm_orphan_work_do(session->orphan->work, &slice);
	gm_session_settle_all(env);
	gm_env_leave(env);
}

void gm_session_end_unmapped(struct gm_session *session)
{
	session_end(session, false);
}

void gm_session_end_died(struct gm_session *session)
{
	session_end(session, true);
}
