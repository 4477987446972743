/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlocks: everybody waits for everybody (see gm_deadlock_find()). This file promises to find one
 * only where nothing that core could still do, or has asked clients for, would bring the memory. It
 * must never end a request itself: the queue does that.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session_private.h"

#include <assert.h>

#include "daemon/core/ladder_private.h"

/* Whether a payer that holds what is lacking does not wait. *ret_holder: whether any payer holds
 * some of it. The one found is remembered as the witness: as long as it holds memory and does not
 * wait, no other payer has to be looked at. */
static bool deadlock_somebody_moves(
	struct gm_device *device, struct gm_tally *tally, bool *ret_holder)
{
	const struct gm_env *env = device->env;
	uint32_t d = device->number;
	uint64_t *witness = tally ? &tally->witness : &device->queue.witness;

	*ret_holder = true;
	if (*witness) {
		const struct gm_payer *p;
		HASH_FIND(hh, env->payers, witness, sizeof(*witness), p);
		if (p && p->accounts[d].held > 0 && p->accounts[d].waiting == 0)
			return true;
	}

	*ret_holder = false;
	for (const struct gm_payer *p = env->payers; p; p = p->hh.next) {
		const struct gm_account *account = &p->accounts[d];
		if ((tally && !gm_account_counts_for(account, tally)) || account->held == 0)
			continue;
		*ret_holder = true;
		if (account->waiting > 0)
			continue;
		*witness = p->id;
		return true;
	}
	return false;
}

/* Whether the request could be granted if programs outside the broker ended. */
static bool deadlock_waits_for_foreign(
	const struct gm_device *device, const struct gm_request *request)
{
	uint64_t taken = gm_ledger_charged(&device->ledger) +
			 gm_ledger_kept_from(&device->ledger, request->waiting.account);
	return taken + request->waiting.exact <= gm_device_capacity(device);
}

/* The last request in the order whose session holds something that the others lack. */
static struct gm_request *deadlock_least(
	const struct gm_device *device, const struct gm_tally *tally)
{
	struct gm_request *r, *last = NULL;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		const struct gm_account *account = r->waiting.account;
		bool counts = !tally || gm_account_counts_for(account, tally);
		if (counts && account->held > 0 && !r->waiting.parked)
			last = r;
	}
	return last;
}

/* The tally that is in the request's way; NULL: none is. */
static struct gm_tally *deadlock_tally_of(const struct gm_request *request)
{
	const struct gm_account *account = request->waiting.account;
	if (request->waiting.block == GM_BLOCK_QUOTA)
		for (unsigned i = 0; i < account->n_tallies; i++)
			if (account->tallies[i] == request->waiting.tally)
				return account->tallies[i];
	return NULL;
}

struct gm_request *gm_deadlock_find(struct gm_device *device)
{
	const struct gm_request *r;
	bool device_seen = false, holder;
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (gm_ladder_asking(device, t))
			return NULL;

	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		const struct gm_waiting *w = &r->waiting;
		struct gm_tally *tally = deadlock_tally_of(r);
		if (w->parked || (!tally && (device_seen || deadlock_waits_for_foreign(device, r))))
			continue;
		device_seen = device_seen || !tally;
		if (deadlock_somebody_moves(device, tally, &holder) || !holder)
			continue;

		struct gm_request *victim = deadlock_least(device, tally);
		assert(victim);
		return victim;
	}
	return NULL;
}
