/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations on the wire. Core decides whether a client may declare more. A client that resumes its
 * session says first how much it has declared, so a request that it repeats is not charged twice.
 */
#include "daemon/serve/serve_declare.h"

#include "common/arith.h"
#include "daemon/lease/declare.h"
#include "daemon/serve/serve_handles.h"
#include "daemon/serve/serve_lease.h"
#include "daemon/queue/request.h"

void gm_serve_declare(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Declare *declare = packet->declare;
	struct gm_session *session = gm_serve_session_of(peer);

	if (!gm_serve_require_device(serve, peer, packet->id, declare->device))
		return;
	uint64_t has = gm_declare_sum(session, declare->device), more = declare->bytes;
	switch (declare->how) {
	case GM__WIRE__DECLARE_HOW__DECLARE_MORE:
		break;
	case GM__WIRE__DECLARE_HOW__DECLARE_LESS:
		gm_declare_less(session, declare->device, gm_minus(has, declare->bytes));
		gm_serve_answer_declared(peer, packet->id, session, declare->device);
		return;
	case GM__WIRE__DECLARE_HOW__DECLARE_EXACTLY:
		more = gm_minus(
			declare->bytes, gm_declare_less(session, declare->device, declare->bytes));
		if (more > 0)
			break;
		gm_serve_answer_declared(peer, packet->id, session, declare->device);
		return;
	default:
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"memory is declared as more, as less, or as a sum");
		return;
	}

	const struct gm_request what = {
		.device = declare->device,
		.bytes = more,
		.declares = true,
	};
	gm_serve_ask(serve, peer, packet->id, &what, declare->wait_ms, declare->no_wait, 0);
}
