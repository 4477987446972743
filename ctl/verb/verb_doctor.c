/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl doctor: what this host can do and what gpumemd will do on it, with or without a running
 * daemon. The exit status tells whether something keeps the daemon from serving what is configured.
 */

#include <stdlib.h>

#include "common/system/platform.h"
#include "ctl/doctor/doctor.h"
#include "ctl/verb/verb.h"

static void (*const checks[])(struct gm_doctor *doctor) = {
	gm_doctor_configuration,
	gm_doctor_platform,
	gm_doctor_container,
	gm_doctor_driver,
	gm_doctor_nodes,
	gm_doctor_nvml,
	gm_doctor_devices,
	gm_doctor_transports,
	gm_doctor_pinned,
	gm_doctor_persistence,
	gm_doctor_mig,
	gm_doctor_fabric,
	gm_doctor_mps,
	gm_doctor_context,
	gm_doctor_daemon,
	gm_doctor_drained,
	gm_doctor_keeper,
	gm_doctor_files,
	gm_doctor_memory,
	gm_doctor_service,
};

static gpumem_status doctor_run(struct gm_ctl *ctl)
{
	struct gm_doctor doctor = {
		.socket = ctl->options->socket,
		.timeout_ms = ctl->options->timeout_ms,
		.measure = ctl->options->given & GM_OPTION_MEASURE,
		.root = gm_platform_root(),
		.table = gm_doctor_table_new(),
	};

	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		checks[i](&doctor);

	gm_config_free(doctor.config);
	free(doctor.config_files);
	gm_writer_bool(ctl->writer, "ok", !doctor.failed);
	gm_writer_table(ctl->writer, "checks", doctor.table);
	if (doctor.failed)
		ctl->exit_status = EXIT_FAILURE;
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_doctor = {
	.name = "doctor",
	.arguments = "[--measure]",
	.summary = "what this host can do, and what is wrong",
	.help = "  --measure  make a CUDA context on each device for a moment, to tell how much\n"
		"             memory it costs\n\n"
		"Works with and without a running daemon. Remedies follow an arrow. The state of\n"
		"a check is ok, note, warn (the daemon can serve, but not as well as it could)\n"
		"or fail (it cannot serve what is configured; the exit status is 1).\n",
	.takes = GM_OPTION_MEASURE,
	.run = doctor_run,
};
