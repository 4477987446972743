/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everybody waits for everybody: see deadlock.h. It promises to find one only where nothing that
 * core could still do, or has asked for, would bring the memory. It must never end a request
 * itself: the queue does.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/deadlock.h"

#include <assert.h>

#include "daemon/core/core_private.h"
#include "daemon/core/session.h"

static struct gm_account *deadlock_account_of(const struct gm_request *request)
{
	return &request->session->accounts[request->waiting.device];
}

/* Whether somebody who holds what is lacking does not wait; *ret_holder: there is one at all. Who
 * it was is remembered: as long as that one does not wait, nobody else is looked at. */
static bool deadlock_somebody_moves(
	struct gm_device *device, struct gm_tally *tally, bool *ret_holder)
{
	struct gm_core *core = device->core;
	uint32_t d = device->number;
	uint64_t *witness = tally ? &tally->witness : &device->queue.witness;
	*ret_holder = true;
	if (*witness) {
		const struct gm_session *s = gm_core_find_session(core, *witness);
		if (s && s->accounts[d].held > 0 && s->accounts[d].waiting == 0)
			return true;
	}
	*ret_holder = false;
	for (const struct gm_session *s = core->sessions; s; s = s->hh.next) {
		const struct gm_account *account = &s->accounts[d];
		bool counts = !tally;
		for (unsigned i = 0; i < account->n_tallies; i++)
			counts = counts || account->tallies[i] == tally;
		if (!counts || account->held == 0)
			continue;
		*ret_holder = true;
		if (account->waiting > 0)
			continue;
		*witness = s->id;
		return true;
	}
	return false;
}

/* Whether it could be granted if programs outside the broker ended. */
static bool deadlock_waits_for_foreign(
	const struct gm_device *device, const struct gm_request *request)
{
	uint64_t taken = gm_ledger_charged(&device->ledger) +
			 gm_ledger_kept_from(&device->ledger, deadlock_account_of(request));
	return taken + request->waiting.exact <= gm_device_capacity(device);
}

/* The last in the order, of those who hold something that the others lack. */
static struct gm_request *deadlock_least(
	const struct gm_device *device, const struct gm_tally *tally)
{
	struct gm_request *r, *last = NULL;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		const struct gm_account *account = deadlock_account_of(r);
		bool counts = !tally;
		for (unsigned i = 0; i < account->n_tallies; i++)
			counts = counts || account->tallies[i] == tally;
		if (counts && account->held > 0 && !r->waiting.parked)
			last = r;
	}
	return last;
}

/* The one that is in the request's way, to be written to; NULL: none is. */
static struct gm_tally *deadlock_tally_of(const struct gm_request *request)
{
	const struct gm_account *account = deadlock_account_of(request);
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
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
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
