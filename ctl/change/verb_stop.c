/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl stop: ends the daemon. What clients hold waits for the next one, unless it is to be
 * forgotten.
 */

#include <stdio.h>

#include "ctl/verb/verb.h"

/* The answer says nothing but that it will be done. */
static void stop_take(void *user, const Gm__Wire__Packet *packet)
{
	(void)user;
	(void)packet;
}

static gpumem_status stop_run(struct gm_ctl *ctl)
{
	Gm__Wire__Stop body = GM__WIRE__STOP__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(STOP, stop, &body);

	body.forget = ctl->options->given & GM_OPTION_FORGET;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_DONE, stop_take, NULL);
	if (status == GPUMEM_E_DISCONNECTED && body.forget)
		snprintf(ctl->trouble.hint, sizeof(ctl->trouble.hint),
			"if no daemon runs, a keeper may still have what clients hold: "
			"'gpumemctl doctor' shows its pid, and 'kill' ends it");
	if (status != GPUMEM_OK)
		return status;

	gm_writer_bool(ctl->writer, "forgotten", body.forget);
	gm_writer_line(ctl->writer, "",
		body.forget
			? "The daemon ends, and so does all memory that it handed out."
			: "The daemon ends. What clients hold, and names, wait for the next daemon.");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_stop = {
	.name = "stop",
	.arguments = "[--forget]",
	.summary = "end the daemon",
	.help = "  --forget    end all sessions, destroy all memory of the daemon, and\n"
		"              forget what was set at run time; programs keep what they\n"
		"              have mapped, but nobody counts it any more\n\n"
		"Without --forget, leases, shares, drains and limits wait for the next daemon, as\n"
		"after 'systemctl stop'. A service manager may start it again at once. For\n"
		"administrators: root, the user that runs the daemon, and the members of the\n"
		"configured admin_group.\n",
	.takes = GM_OPTION_FORGET,
	.run = stop_run,
};
