/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice on where to ask for memory. This file promises the answer that a request would get at this
 * moment: it runs the checks of a request and stops before the first change. It must never charge,
 * ask or probe anything.
 */
#include "daemon/core/place.h"

#include <stdlib.h>

#include "common/text/units.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/device/device_plan.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/request_private.h"

/* The id of a client that does not exist. No session has it: ids are below 2^53. */
#define PLACE_NOBODY UINT64_MAX

/* Whether clients say that they could return what a request lacks. Returns GM_FIT_WAIT if they do not,
 * or if the daemon has no memory to find out. */
static enum gm_place_fit place_find_reclaimable(struct gm_device *device,
	const struct gm_account *account, uint64_t exact, const struct gm_request_refusal *refusal)
{
	struct gm_reclaim_plan plan;
	if (refusal->block != GM_BLOCK_LIMIT && refusal->block != GM_BLOCK_DEVICE &&
		refusal->block != GM_BLOCK_GUARANTEE)
		return GM_FIT_WAIT;

	uint64_t missing = gm_device_admit_missing(device, account, exact, refusal);
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_REQUEST, missing, &plan);
	int r = gm_reclaim_plan_clients(
		device, account, refusal->tally, GM_STAGE_CACHED, missing, &plan);
	if (r == 0 && gm_reclaim_plan_sure(&plan) < missing)
		r = gm_reclaim_plan_clients(device, account, refusal->tally, GM_STAGE_SPILL,
			missing - gm_reclaim_plan_sure(&plan), &plan);
	bool enough = r == 0 && gm_reclaim_plan_sure(&plan) >= missing;
	gm_reclaim_plan_deinit(&plan);
	return enough ? GM_FIT_RECLAIM : GM_FIT_WAIT;
}

static void place_try(struct gm_session *session, uint64_t bytes, struct gm_place_row *p)
{
	struct gm_device *device = &session->core->env.devices[p->device];
	struct gm_request request = {.session = session, .device = p->device, .bytes = bytes};
	struct gm_request_refusal refusal = {0};

	p->detail[0] = '\0';
	p->room = gm_session_room(session, p->device);
	p->most = gm_device_admit_most(device, gm_session_account(session, device));
	if (gm_session_full(session, p->detail))
		p->status = GPUMEM_E_LIMIT;
	else
		p->status = gm_request_pick_transport(
			device, GM_TRANSPORT_AUTO, &request.transport, p->detail);
	if (p->status == GPUMEM_OK)
		p->status = gm_request_foresee(&request, device, &refusal, p->detail);

	if (p->status == GPUMEM_OK)
		p->fit = GM_FIT_NOW;
	else if (refusal.block == GM_BLOCK_NONE || refusal.never)
		p->fit = GM_FIT_NONE;
	else
		p->fit = place_find_reclaimable(device, gm_session_account(session, device),
			gm_device_plan_exact(bytes), &refusal);
}

static int place_compare(const void *left, const void *right)
{
	const struct gm_place_row *a = left, *b = right;
	if (a->fit != b->fit)
		return a->fit < b->fit ? -1 : 1;
	if (a->room != b->room)
		return a->room > b->room ? -1 : 1;
	return a->device < b->device ? -1 : 1;
}

gpumem_status gm_place(struct gm_core *core, struct gm_session *session,
	const struct gm_session_info *info, uint64_t bytes, struct gm_place_row *placements,
	size_t n, char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = gm_request_check_bytes(bytes, detail);
	if (status != GPUMEM_OK)
		return status;
	if (core->env.stopping)
		return gm_text_refuse(GPUMEM_E_DISCONNECTED, detail, "the daemon is stopping");

	struct gm_session *visitor = NULL;
	if (!session)
		session = visitor = gm_session_make(core, PLACE_NOBODY, info);
	if (!session)
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for the answer");

	for (size_t i = 0; i < n; i++)
		place_try(session, bytes, &placements[i]);
	if (n > 0)
		qsort(placements, n, sizeof(*placements), place_compare);
	if (visitor)
		gm_session_unmake(visitor);
	return GPUMEM_OK;
}
