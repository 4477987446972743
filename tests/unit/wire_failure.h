/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_WIRE_FAILURE_H
#define GM_TESTS_UNIT_WIRE_FAILURE_H

#include "common/wire/wire.h"
#include "gpumem/status.h"

/* A refusal, as a daemon sends it. The packet points to body and detail. */
static inline Gm__Wire__Packet wire_failure(
	uint64_t id, gpumem_status status, const char *detail, Gm__Wire__Failure *body)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	gm__wire__failure__init(body);
	body->status = status;
	body->detail = (char *)detail;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = body;
	return packet;
}

#endif
