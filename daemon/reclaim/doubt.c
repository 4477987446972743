/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose claims are doubted. An account knows what its own client has promised and not returned (ledger.h).
 * This file keeps that for the user when the client goes, in a table of a fixed size: a user costs one
 * place for each device. When all places are taken, a new doubt takes that of the oldest one.
 */
#include "daemon/reclaim/doubt.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "common/arith.h"

static bool doubt_holds(const struct gm_device *device, const struct gm_doubt *doubt)
{
	return doubt->broken > 0 && gm_device_now(device) < doubt->until_ns;
}

/* The user's place in the table, or else the one that it can have. */
static struct gm_doubt *doubt_place(struct gm_device *device, uid_t payer_uid)
{
	struct gm_doubt *doubts = device->ladder.doubts, *first = &doubts[0];

	for (size_t i = 0; i < GM_DOUBTS; i++) {
		if (doubts[i].payer_uid == payer_uid && doubt_holds(device, &doubts[i]))
			return &doubts[i];
		if (!doubt_holds(device, &doubts[i]))
			doubts[i] = (struct gm_doubt){0};
		if (doubts[i].until_ns < first->until_ns)
			first = &doubts[i];
	}
	*first = (struct gm_doubt){.payer_uid = payer_uid};
	return first;
}

void gm_doubt_remember(struct gm_device *device, const struct gm_account *account)
{
	if (account->asked.quiet.failures == 0)
		return;

	struct gm_doubt *doubt = doubt_place(device, account->payer->payer_uid);
	doubt->broken = gm_max(doubt->broken, account->asked.broken);
	doubt->until_ns = gm_plus(gm_device_now(device), GM_DOUBT_NS);
}

void gm_doubt_mend(struct gm_device *device, uid_t payer_uid, uint64_t bytes)
{
	for (size_t i = 0; i < GM_DOUBTS; i++) {
		struct gm_doubt *doubt = &device->ladder.doubts[i];
		if (doubt->payer_uid == payer_uid)
			doubt->broken -= gm_min(doubt->broken, bytes);
	}
}

/* ---- the list */

static int doubt_compare(const void *left, const void *right)
{
	const uid_t *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

int gm_doubt_list(const struct gm_device *device, struct gm_doubted *ret_list)
{
	const struct gm_account *account;
	struct gm_doubted list = {0};
	size_t ignored = 0, most = 0;

	for (size_t i = 0; i < GM_DOUBTS; i++)
		most += doubt_holds(device, &device->ladder.doubts[i]);
	DL_FOREACH (device->ledger.holders, account)
		ignored += account->asked.quiet.failures > 0;
	most += ignored;
	if (most > 0 && !(list.uids = malloc(most * sizeof(*list.uids))))
		return -ENOMEM;

	for (size_t i = 0; i < GM_DOUBTS; i++)
		if (doubt_holds(device, &device->ladder.doubts[i]))
			list.uids[list.n++] = device->ladder.doubts[i].payer_uid;
	for (account = device->ledger.holders; account && ignored > 0; account = account->next) {
		if (account->asked.quiet.failures == 0)
			continue;
		list.uids[list.n++] = account->payer->payer_uid;
		ignored--;
	}
	if (list.n > 0)
		qsort(list.uids, list.n, sizeof(*list.uids), doubt_compare);
	*ret_list = list;
	return 0;
}

void gm_doubt_list_deinit(struct gm_doubted *list)
{
	free(list->uids);
	*list = (struct gm_doubted){0};
}

bool gm_doubt_lists(const struct gm_doubted *list, uid_t payer_uid)
{
	return list->n > 0 &&
	       bsearch(&payer_uid, list->uids, list->n, sizeof(*list->uids), doubt_compare) != NULL;
}
