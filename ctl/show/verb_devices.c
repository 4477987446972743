/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl devices: a block of figures for each device, then the processes that use the devices by
 * themselves. It asks for the processes first, because the daemon then measures its devices: the
 * figures that it sends next belong to the same moment.
 */

#include "common/text/units.h"
#include "ctl/io/device_table.h"
#include "ctl/io/user_name.h"
#include "ctl/show/usage_list.h"
#include "ctl/verb/verb.h"

static const struct gm_column process_columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER},
	{"command", "COMMAND", GM_COLUMN_NAME},
	{"bytes", "FOREIGN", GM_COLUMN_RIGHT},
	{"kind", NULL, 0},
	{NULL, "WHAT", 0},
};

struct devices_answer {
	struct gm_writer *writer;
	struct gm_table *devices, *processes;
	size_t n;
	struct gm_device_drains drains;
	struct gm_usage_list usage;
};

/* ---- processes */

static void devices_add_process(struct gm_table *table, const struct gm_usage_item *process)
{
	char user[GM_USER_NAME_TEXT];
	const char *kind = "other", *what = NULL;

	switch ((int)process->kind) {
	case GM__WIRE__PROCESS_KIND__PROCESS_CLIENT:
		kind = "client";
		what = "outside leases";
		break;
	case GM__WIRE__PROCESS_KIND__PROCESS_DAEMON:
		kind = "daemon";
		what = "gpumemd";
		break;
	}

	gm_table_row(table);
	gm_table_count(table, process->device);
	gm_table_count(table, process->pid > 0 ? (uint64_t)process->pid : 0);
	gm_table_count(table, process->uid);
	gm_table_known(table, process->uid_known);
	gm_table_text(table, process->uid_known ? gm_user_name(process->uid, user) : NULL);
	gm_table_text(table, process->command);
	gm_table_size(table, process->bytes);
	gm_table_known(table, process->bytes_known);
	gm_table_text(table, kind);
	gm_table_text(table, what);
}

/* Adds the foreign memory that belongs to no listed process. */
static void devices_add_rest(struct devices_answer *answer, const Gm__Wire__Device *device)
{
	struct gm_table *table = answer->processes;
	uint64_t rest = gm_usage_list_rest(&answer->usage, device);

	if (rest == 0)
		return;
	gm_table_row(table);
	gm_table_count(table, device->number);
	gm_table_nones(table, 4);
	gm_table_size(table, rest);
	gm_table_text(table, "unlisted");
	gm_table_text(table, "no process");
}

/* ---- figures */

static void devices_say_foreign(struct gm_writer *writer, const Gm__Wire__Device *device)
{
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT];

	if (device->measured) {
		gm_writer_line(writer, "foreign", "%s, which leaves a ceiling of %s",
			gm_writer_bytes(writer, device->foreign, a),
			gm_writer_bytes(writer, device->ceiling, b));
		gm_writer_line(writer, "free", "%s", gm_writer_bytes(writer, device->free, a));
	} else {
		gm_writer_line(writer, "foreign", "not known (%s); see gpumemctl doctor",
			*device->trouble ? device->trouble : "no figures from NVML");
		gm_writer_line(
			writer, "free", "at most %s", gm_writer_bytes(writer, device->free, a));
	}
}

static void devices_say(struct devices_answer *answer, const Gm__Wire__Device *device)
{
	struct gm_writer *writer = answer->writer;
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT], c[GM_UNITS_TEXT], uuid[GM_DEVICE_UUID_TEXT];

	if (answer->n++)
		gm_writer_blank_line(writer);

	gm_writer_line(writer, "device", "%u, %s", device->number, device->name);
	if (*gm_device_uuid(device, uuid))
		gm_writer_line(writer, "uuid", "%s", uuid);
	if (*device->pci)
		gm_writer_line(writer, "pci", "%s", device->pci);
	gm_writer_line(writer, "backend", "%s, transport%s", device->backend,
		device->transport_fd && device->transport_ipc ? "s fd and ipc"
		: device->transport_fd                        ? " fd"
		: device->transport_ipc                       ? " ipc"
							      : ": none");

	gm_writer_line(writer, "total", "%s", gm_writer_bytes(writer, device->total, a));
	gm_writer_line(writer, "leased", "%s", gm_writer_bytes(writer, device->leased, a));
	if (device->orphaned)
		gm_writer_line(writer, "quarantined", "%s (%s orphaned)",
			gm_writer_bytes(writer, device->quarantined, a),
			gm_writer_bytes(writer, device->orphaned, b));
	else
		gm_writer_line(writer, "quarantined", "%s",
			gm_writer_bytes(writer, device->quarantined, a));
	gm_writer_line(writer, "pooled", "%s", gm_writer_bytes(writer, device->pooled, a));
	if (device->declared)
		gm_writer_line(writer, "declared", "%s (%s of it seen by the driver)",
			gm_writer_bytes(writer, device->declared, a),
			gm_writer_bytes(writer, device->declared_seen, b));
	if (device->pinned) {
		/* No memory of it can be foreign. */
		gm_writer_line(writer, "free", "%s", gm_writer_bytes(writer, device->free, a));
		gm_writer_line(writer, "capacity", "%s (host_limit)",
			gm_writer_bytes(writer, device->capacity, a));
	} else {
		devices_say_foreign(writer, device);
		gm_writer_line(writer, "capacity", "%s (fraction %.4g, min_free %s)",
			gm_writer_bytes(writer, device->capacity, a), device->fraction,
			gm_writer_bytes(writer, device->min_free, b));
	}

	gm_writer_line(writer, "charged", "%s (of which %s admitted), at most %s so far",
		gm_writer_bytes(writer,
			device->leased + device->quarantined + device->admitted + device->declared,
			a),
		gm_writer_bytes(writer, device->admitted, b),
		gm_writer_bytes(writer, device->peak_charged, c));
	gm_writer_line(writer, "chunks", "%llu", (unsigned long long)device->chunks);
	gm_writer_line(writer, "available", "%s", gm_writer_bytes(writer, device->available, a));
	gm_writer_line(writer, "pressure", "%s, %s", gm_format_percent(device->pressure_ppm, a),
		gm_device_level(device->level));
}

static void devices_take(void *user, const Gm__Wire__Packet *packet)
{
	struct devices_answer *answer = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		gm_device_table_add(answer->devices, packet->devices->devices[i]);
		gm_device_drains_add(&answer->drains, packet->devices->devices[i]);
		devices_say(answer, packet->devices->devices[i]);
		devices_add_rest(answer, packet->devices->devices[i]);
	}
}

/* Asks both questions on one connection. */
static gpumem_status devices_ask(struct gm_ctl *ctl, struct devices_answer *answer)
{
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;

	status = gm_usage_list_ask(conn, &answer->usage, &ctl->trouble);
	for (size_t i = 0; i < answer->usage.n; i++)
		devices_add_process(answer->processes, &answer->usage.items[i]);
	if (answer->usage.no_memory)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NO_MEMORY, "out of memory");
	if (status == GPUMEM_OK)
		status = gm_verb_ask_devices(ctl, conn, devices_take, answer);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status devices_run(struct gm_ctl *ctl)
{
	struct devices_answer answer = {
		.writer = ctl->writer,
		.devices = gm_device_table_new(),
		.processes = GM_TABLE_NEW(process_columns),
	};

	gpumem_status status = devices_ask(ctl, &answer);
	if (status != GPUMEM_OK) {
		gm_usage_list_deinit(&answer.usage);
		gm_table_free(answer.devices);
		gm_table_free(answer.processes);
		return status;
	}

	if (answer.n == 0)
		gm_writer_line(ctl->writer, "", "The daemon serves no device.");
	gm_writer_data(ctl->writer, "devices", answer.devices);
	if (gm_table_is_empty(answer.processes)) {
		gm_writer_data(ctl->writer, "processes", answer.processes);
	} else {
		gm_writer_blank_line(ctl->writer);
		gm_writer_table(ctl->writer, "processes", answer.processes);
	}

	gm_usage_list_note(&answer.usage, ctl->writer);
	gm_device_drains_note(&answer.drains, ctl->writer);
	gm_usage_list_deinit(&answer.usage);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_devices = {
	.name = "devices",
	.arguments = "",
	.summary = "each device with all its figures",
	.help = "The total is the sum of five parts: leased, quarantined, pooled, foreign and\n"
		"free. The other figures follow from these. Below are the processes that use a\n"
		"device by themselves. WHAT is outside leases (what a client has beside its\n"
		"leases, such as its CUDA context), gpumemd (the daemon's own context, for ipc\n"
		"chunks), no process (memory of the device that belongs to none), or - for all\n"
		"others. What is outside leases counts as foreign, too. Orphaned memory is part\n"
		"of quarantined: no client has it any more, but a process may still map it. On a\n"
		"GPU, it is in the figure of that process, too. Memory that clients make\n"
		"themselves and declare is charged; what the driver sees of it is a sixth part.\n",
	.run = devices_run,
};
