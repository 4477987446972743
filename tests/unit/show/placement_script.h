/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_PLACEMENT_SCRIPT_H
#define GM_TESTS_UNIT_PLACEMENT_SCRIPT_H

/* A daemon with three devices, of which each has another answer to a question for room. */

#include "tests/unit/ctl/verbs_fixture.h"

static uint64_t placed;         /* the bytes that were asked for last */
static Gm__Wire__Fit best_fit;  /* of device 7, which comes first */
static size_t n_placements = 3; /* how many devices there are */
static bool too_small;          /* none can ever give so much */

static inline void script_place(struct gm_fake *f, void *user)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__PlaceReply reply = GM__WIRE__PLACE_REPLY__INIT;
	Gm__Wire__Placement p[3], *list[3];
	static const char *const details[] = {
		"device 7 is short of it", "device 2 is full", "device 0 is too small"};
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_PLACE);
	if (!packet)
		return;
	placed = packet->place->bytes;

	for (size_t i = 0; i < 3; i++) {
		gm__wire__placement__init(&p[i]);
		list[i] = &p[i];
		p[i].status = GPUMEM_E_NO_MEMORY;
		p[i].detail = (char *)details[i];
	}
	p[0].device = 7;
	p[0].fit = best_fit;
	p[0].room = 44 * G;
	if (best_fit == GM__WIRE__FIT__FIT_NOW) {
		p[0].status = GPUMEM_OK;
		p[0].detail = (char *)"";
	}
	p[1].device = 2;
	p[1].fit = GM__WIRE__FIT__FIT_WAIT;
	p[2].device = 0;
	p[2].fit = GM__WIRE__FIT__FIT_NONE;
	for (size_t i = 0; too_small && i < 3; i++) {
		p[i].fit = GM__WIRE__FIT__FIT_NONE;
		p[i].most = i == 1 ? 6 * G : 4 * G;
	}
	reply.n_placements = n_placements;
	reply.placements = list;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_PLACE_REPLY;
	answer.place_reply = &reply;
	gm_fake_send(f, &answer);
	gm_fake_wait_end(f);
}

#endif
