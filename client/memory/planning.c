/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning: what a model needs, and which device has room for it. The daemon answers the second
 * question, with the checks that a request goes through. This file must never guess.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/session_call.h"
#include "common/cancel.h"
#include "common/text/device_name.h"
#include "common/estimate.h"
#include "gpumem/gpumem_plan.h"

gpumem_status gpumem_estimate_inference(const gpumem_model *model, gpumem_estimate *ret_estimate)
{
	gpumem_model given = GPUMEM_MODEL_INIT;
	gpumem_estimate estimate = GPUMEM_ESTIMATE_INIT;
	char wrong[GM_ESTIMATE_WRONG];

	if (!model)
		return gm_error(GPUMEM_E_INVALID, "model must not be NULL");
	if (!ret_estimate)
		return gm_error(GPUMEM_E_INVALID, "ret_estimate must not be NULL");
	gpumem_status status = gm_sized_in(&given, sizeof(given), model);
	if (status)
		return status;

	status = gm_estimate_inference(&given, &estimate, wrong);
	if (status)
		return gm_error(status, "%s", wrong);
	return gm_sized_out(ret_estimate, &estimate, sizeof(estimate));
}

/* ---- which device has room */

/* The wire has the same numbers as the public header. */
_Static_assert((int)GPUMEM_FIT_NOW == (int)GM__WIRE__FIT__FIT_NOW, "now");
_Static_assert((int)GPUMEM_FIT_RECLAIM == (int)GM__WIRE__FIT__FIT_RECLAIM, "reclaim");
_Static_assert((int)GPUMEM_FIT_WAIT == (int)GM__WIRE__FIT__FIT_WAIT, "wait");
_Static_assert((int)GPUMEM_FIT_NONE == (int)GM__WIRE__FIT__FIT_NONE, "none");

struct planning_call {
	struct gm_conn_request call;
	uint32_t n;
	struct planning_answer {
		gpumem_placement placement;
		gpumem_status status; /* of a request that may not wait */
	} answers[GM_BOUND_DEVICES];
};

static int planning_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct planning_call *call = (struct planning_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_PLACE_REPLY)
		return -EPROTO;
	for (size_t i = 0; i < packet->place_reply->n_placements; i++) {
		const Gm__Wire__Placement *from = packet->place_reply->placements[i];
		struct planning_answer *to = &call->answers[call->n];

		if (call->n >= GM_BOUND_DEVICES)
			return -EPROTO;
		to->placement = (gpumem_placement)GPUMEM_PLACEMENT_INIT;
		to->placement.device = from->device;
		/* A newer daemon may answer something that this library does not know. */
		to->placement.fit = (unsigned)from->fit <= GPUMEM_FIT_WAIT ? (gpumem_fit)from->fit
									   : GPUMEM_FIT_NONE;
		to->placement.room = from->room;
		snprintf(to->placement.why, sizeof(to->placement.why), "%s", from->detail);
		to->status = (gpumem_status)from->status;
		call->n++;
	}
	return 0;
}

static void planning_late(struct gm_conn_request *call)
{
	free(call);
}

static int planning_repeat(struct gm_conn_request *base)
{
	((struct planning_call *)base)->n = 0;
	return 0;
}

static const struct gm_conn_request_ops planning_ops = {
	.take = planning_take, .late = planning_late, .repeat = planning_repeat};

/* On success the caller frees *ret_call. */
static gpumem_status planning_ask(
	gpumem_session *session, uint64_t bytes, struct planning_call **ret_call)
{
	struct planning_call *place = calloc(1, sizeof(*place));
	if (!place)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	place->call.ops = &planning_ops;

	Gm__Wire__Place body = GM__WIRE__PLACE__INIT;
	body.bytes = bytes;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(PLACE, place, &body);

	struct gm_conn_request *call = &place->call;
	gpumem_status status = gm_session_call(session, NULL, &packet, &call);
	if (!status)
		*ret_call = place;
	else
		free(call);
	return status;
}

/* Nothing is good enough. The sentence has as many of the reasons as it has room for. */
static gpumem_status planning_refuse(const struct planning_call *place)
{
	char text[GM_ERROR_BYTES], before[GM_DEVICE_NAME_BEFORE];
	size_t at = 0;

	if (place->n == 0)
		return gm_error(GPUMEM_E_NO_MEMORY, "the daemon serves no device");
	for (uint32_t i = 0; i < place->n && at < sizeof(text); i++) {
		const gpumem_placement *p = &place->answers[i].placement;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s%s", i ? "; " : "",
			gm_device_name_before(p->device, p->why, before), p->why);
	}
	gpumem_status status = place->answers[0].status;
	return gm_error(status ? status : GPUMEM_E_NO_MEMORY, "%s", text);
}

gpumem_status gpumem_place(gpumem_session *session, uint64_t bytes, gpumem_fit at_worst,
	gpumem_placement *ret_placement)
{
	struct planning_call *place;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_placement)
		return gm_error(GPUMEM_E_INVALID, "ret_placement must not be NULL");
	if ((unsigned)at_worst > GPUMEM_FIT_WAIT)
		return gm_error(GPUMEM_E_INVALID, "at_worst must be now, reclaim or wait");
	gpumem_status status = planning_ask(session, bytes, &place);
	if (status)
		return status;

	const gpumem_placement *best = &place->answers[0].placement;
	if (place->n > 0 && best->fit <= at_worst)
		status = gm_sized_out(ret_placement, best, sizeof(*best));
	else
		status = planning_refuse(place);
	free(place);
	return status;
}

gpumem_status gpumem_place_each(
	gpumem_session *session, uint64_t bytes, gpumem_placement_fn fn, void *user)
{
	struct planning_call *place;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!fn)
		return gm_error(GPUMEM_E_INVALID, "fn must not be NULL");
	gpumem_status status = planning_ask(session, bytes, &place);
	if (status)
		return status;

	for (uint32_t i = 0; i < place->n; i++)
		fn(user, &place->answers[i].placement);
	free(place);
	return GPUMEM_OK;
}
