/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl trim: releases the free chunks of the pool to the device and asks clients to return
 * cached memory. It takes no memory that is in use.
 */

#include "common/text/units.h"
#include "ctl/verb/verb.h"

struct trim_answer {
	uint64_t released, clients_asked;
};

static void trim_take(void *user, const Gm__Wire__Packet *packet)
{
	struct trim_answer *answer = user;

	answer->released += packet->trim_reply->released;
	answer->clients_asked += packet->trim_reply->clients_asked;
}

static gpumem_status trim_run(struct gm_ctl *ctl)
{
	Gm__Wire__Trim body = GM__WIRE__TRIM__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(TRIM, trim, &body);
	struct trim_answer answer = {0};
	char text[GM_UNITS_TEXT];

	body.all_devices = !(ctl->options->given & GM_OPTION_DEVICE);
	body.device = ctl->options->device;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_TRIM_REPLY, trim_take, &answer);
	if (status != GPUMEM_OK)
		return status;

	gm_writer_size(ctl->writer, "released", answer.released);
	gm_writer_count(ctl->writer, "clients_asked", answer.clients_asked);
	gm_writer_line(ctl->writer, "", "Released %s of pooled memory to the device%s.",
		gm_writer_bytes(ctl->writer, answer.released, text), body.all_devices ? "s" : "");
	if (answer.clients_asked)
		gm_writer_line(ctl->writer, "", "Asked %llu client%s to return cached memory.",
			(unsigned long long)answer.clients_asked,
			answer.clients_asked == 1 ? "" : "s");
	if (answer.clients_asked)
		gm_writer_line(ctl->writer, "",
			"It goes to the pool; 'gpumemctl cleanup' releases that, too.");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_trim = {
	.name = "trim",
	.arguments = "[--device N]",
	.summary = "release pooled memory to the devices",
	.help = "  --device N  only on this device, given by number, UUID or PCI address;\n"
		"              without it, on all devices\n\n"
		"Also asks clients to return cached memory, but does not wait for it: what they\n"
		"return goes to the pool. 'cleanup' waits for it and releases it, too. Neither\n"
		"takes memory that is in use. Unless memory is short, the daemon makes its\n"
		"reserve again at once, a second later than that after 'cleanup', so the pool\n"
		"does not stay empty (see 'gpumemctl pools').\n"
		"For administrators: root, the user that runs the daemon, and the members of the\n"
		"configured admin_group.\n",
	.takes = GM_OPTION_DEVICE,
	.run = trim_run,
};
