/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_SHORTAGE_SCRIPT_H
#define GM_TESTS_UNIT_SHORTAGE_SCRIPT_H

/* What the scripted daemon of the verbs for when memory is short hears and says, whatever the verb:
 * one packet that is filled anew for each answer, refusals, and three devices. */

#include "tests/unit/ctl/verbs_fixture.h"
#include "tests/unit/wire_failure.h"

static Gm__Wire__Packet packet;

static inline void begin(void)
{
	gm__wire__packet__init(&packet);
}

/* The next request's id; 0: it is another one than the script has. */
static inline uint64_t asked(struct gm_fake *f, Gm__Wire__Packet__BodyCase body)
{
	const Gm__Wire__Packet *request = gm_fake_expect(f, body);
	begin();
	return request ? request->id : 0;
}

static inline void refuse(struct gm_fake *f, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure body;
	packet = wire_failure(id, status, detail, &body);
	gm_fake_send(f, &packet);
}

static inline void send_devices(struct gm_fake *f, uint64_t id)
{
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Device devices[3], *list[3];
	for (uint32_t i = 0; i < 3; i++) {
		gm__wire__device__init(&devices[i]);
		list[i] = &devices[i];
		devices[i].number = i;
		devices[i].capacity = 100 * G;
		devices[i].available = (100 - 45 * i) * G;
		devices[i].pressure_ppm = 450000 * i;
		devices[i].level = i;
		devices[i].foreign = i * G;
		devices[i].measured = i != 2;
		devices[i].pinned = i == 2;
	}
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	packet.devices = &reply;
	reply.n_devices = 2;
	reply.devices = list;
	send_answer(f, &packet, id, true);
	reply.n_devices = 1;
	reply.devices = list + 2;
	send_answer(f, &packet, id, false);
}

#endif
