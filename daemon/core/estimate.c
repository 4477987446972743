/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lingering memory where nobody can see who has a chunk: on a GPU. A destroyed chunk whose memory
 * did not come back is a debt of its owners. This file promises to charge, of all debts, no more
 * than the device has in use that belongs to no process and to no chunk, the oldest debt first, and
 * to forget the rest. What it charges is not foreign, and takes nothing from anybody that foreign
 * memory would not take. It must never delay a destruction.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session_private.h"

#include <assert.h>
#include <stdlib.h>

#include "common/arith.h"

/* What the sessions of an estate had, and the device did not get back. */
struct gm_debt {
	struct gm_estate *estate;
	uint64_t bytes;
	uint64_t charged; /* of that */
	struct gm_debt *prev, *next;
};

static struct gm_debt *estimate_debt_of(struct gm_device *device, struct gm_estate *estate)
{
	struct gm_debt *debt;
	DL_SEARCH_SCALAR(device->estimate.debts, debt, estate, estate);
	if (debt)
		return debt;

	debt = calloc(1, sizeof(*debt));
	if (!debt)
		return NULL;
	debt->estate = gm_estate_ref(estate);
	DL_APPEND(device->estimate.debts, debt);
	return debt;
}

void gm_estimate_add(
	struct gm_core *core, struct gm_device *device, struct gm_chunk *chunk, uint64_t bytes)
{
	struct gm_estate *estate = chunk->estate;
	if (core->env.stopping || chunk->uid == (uid_t)-1)
		return;

	/* A pooled chunk has no owner but the uid that had it last. */
	struct gm_session_info info = {.uid = chunk->uid, .gid = (gid_t)-1};
	if (estate)
		gm_estate_ref(estate);
	else if (gm_estate_get(core, &info, &estate) < 0)
		return;

	struct gm_debt *debt = estimate_debt_of(device, estate);
	if (debt) {
		debt->bytes += bytes;
		device->estimate.owed += bytes;
	}
	gm_estate_unref(estate);
}

static void estimate_charge(struct gm_device *device, struct gm_debt *debt, uint64_t bytes)
{
	struct gm_ledger *ledger = &device->ledger;
	struct gm_account *account = gm_estate_account(debt->estate, device);
	if (bytes > debt->charged)
		gm_ledger_linger_unseen(ledger, account, bytes - debt->charged);
	else if (bytes < debt->charged)
		gm_ledger_unlinger_unseen(ledger, account, debt->charged - bytes);
	debt->charged = bytes;
}

/* Charges so much in all, the oldest debt first, and forgets what is owed beyond that. */
static void estimate_charge_all(struct gm_device *device, uint64_t bytes)
{
	struct gm_debt *debt, *next;
	DL_FOREACH_SAFE (device->estimate.debts, debt, next) {
		uint64_t now = gm_min(debt->bytes, bytes);
		bytes -= now;
		device->estimate.owed -= debt->bytes - now;
		debt->bytes = now;
		estimate_charge(device, debt, now);
		if (now > 0)
			continue;
		DL_DELETE(device->estimate.debts, debt);
		gm_estate_unref(debt->estate);
		free(debt);
	}
}

bool gm_estimate_wanted(const struct gm_device *device)
{
	return !device->estimate.based || device->estimate.owed > 0;
}

void gm_estimate_update(struct gm_device *device, uint64_t outside, uint64_t attributed)
{
	struct gm_estimate *estimate = &device->estimate;
	uint64_t nobodys = gm_minus(outside, attributed);
	/* What was nobody's before there was a debt, or is less now, is the driver's own. */
	if (!estimate->based || estimate->owed == 0 || nobodys < estimate->base)
		estimate->base = nobodys;
	estimate->based = true;

	estimate_charge_all(device, gm_min(estimate->owed, nobodys - estimate->base));
}

void gm_estimate_end(struct gm_device *device)
{
	device->ledger.foreign += device->ledger.unseen;
	estimate_charge_all(device, 0);
	assert(device->ledger.unseen == 0 && device->estimate.owed == 0);
	/* Nobody is asked again before there is another debt. */
	device->estimate.based = true;
	device->estimate.base = UINT64_MAX;
}
