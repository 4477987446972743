/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl version: the versions of gpumemctl and of the daemon. If no daemon answers, that is not
 * a failure here, because half of the answer needs none.
 */

#include <stdio.h>

#include "ctl/verb/verb.h"

static gpumem_status version_run(struct gm_ctl *ctl)
{
	struct gm_ctl_conn *conn;
	char protocol[32];

	snprintf(protocol, sizeof(protocol), "%d.%d", GM_WIRE_MAJOR, GM_WIRE_MINOR);
	gm_writer_text(ctl->writer, "gpumemctl", PACKAGE_VERSION);
	gm_writer_text(ctl->writer, "gpumemctl_protocol", protocol);
	gm_writer_line(ctl->writer, "gpumemctl", "%s, protocol %s", PACKAGE_VERSION, protocol);

	if (gm_verb_connect(ctl, &conn) != GPUMEM_OK) {
		gm_writer_text(ctl->writer, "gpumemd", NULL);
		gm_writer_text(ctl->writer, "gpumemd_protocol", NULL);
		gm_writer_line(ctl->writer, "gpumemd", "%s", ctl->trouble.text);
		return GPUMEM_OK;
	}

	snprintf(protocol, sizeof(protocol), "%u.%u", gm_ctl_conn_daemon_major(conn),
		gm_ctl_conn_daemon_minor(conn));
	gm_writer_text(ctl->writer, "gpumemd", gm_ctl_conn_daemon_version(conn));
	gm_writer_text(ctl->writer, "gpumemd_protocol", protocol);
	gm_writer_line(ctl->writer, "gpumemd", "%s, protocol %s", gm_ctl_conn_daemon_version(conn),
		protocol);
	gm_ctl_conn_free(conn);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_version = {
	.name = "version",
	.arguments = "",
	.summary = "the versions of gpumemctl and of the daemon",
	.help = "",
	.run = version_run,
};
