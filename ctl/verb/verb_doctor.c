/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl doctor: what this host can do and what gpumemd will do on it, whether it runs or not.
 * The exit status says whether something stops it from serving what is configured.
 */

#include "common/platform.h"
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
	gm_doctor_files,
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
	gm_writer_bool(ctl->writer, "ok", !doctor.failed);
	gm_writer_table(ctl->writer, "checks", doctor.table);
	if (doctor.failed)
		ctl->status = GPUMEM_E_INVALID;
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_doctor = {
	.name = "doctor",
	.arguments = "[--measure]",
	.summary = "what this host can do, and what is amiss",
	.help = "  --measure  make a CUDA context on each device for a moment: what does it cost?\n\n"
		"Works whether the daemon runs or not. A remedy stands behind an arrow. The state\n"
		"is ok, note, warn (it serves, but not as well as it could) or fail (it cannot\n"
		"serve what is configured: the exit status is 1).\n",
	.takes = GM_OPTION_MEASURE,
	.run = doctor_run,
};
