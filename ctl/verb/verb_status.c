/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl status: what somebody who was woken up wants to know, on one screen: is it up, is there
 * memory, who uses it, and what is not as it should be.
 */

#include "common/types.h"
#include "common/units.h"
#include "ctl/io/device_table.h"
#include "ctl/io/user.h"
#include "ctl/verb/verb.h"

struct status_answer {
	struct gm_writer *writer;
	struct gm_table *devices;
	bool told; /* the general part is said */
	uint64_t quarantined_clients;
	/* What the notes below the table are about. */
	struct {
		uint32_t number, level, pressure_ppm;
		uint64_t capacity, ceiling, foreign, available, quarantined;
		bool measured;
		char trouble[160]; /* "": none */
	} seen[GM_LIMIT_DEVICES];
	size_t n_seen;
};

static void status_tell_daemon(struct status_answer *answer, const Gm__Wire__StatusReply *status)
{
	struct gm_writer *writer = answer->writer;
	char text[GM_UNITS_TEXT], user[GM_USER_TEXT];

	gm_writer_text(writer, "version", status->version);
	gm_writer_count(writer, "pid", status->pid);
	gm_writer_count(writer, "uid", status->uid);
	gm_writer_time(writer, "uptime_ms", status->uptime_ms);
	gm_writer_text(writer, "socket", status->socket);
	gm_writer_text(writer, "backend", status->backend);
	gm_writer_text(writer, "preset", status->preset);
	gm_writer_count(writer, "clients", status->clients);
	gm_writer_count(writer, "quarantined_clients", status->quarantined_clients);
	gm_writer_count(writer, "leases", status->leases);
	gm_writer_count(writer, "requests", status->requests);
	gm_writer_count(writer, "refusals", status->refusals);

	gm_writer_line(writer, "daemon", "gpumemd %s, up %s, pid %llu, user %s", status->version,
		gm_format_duration(gm_ms_to_ns(status->uptime_ms), text),
		(unsigned long long)status->pid, gm_user_name((uid_t)status->uid, user));
	gm_writer_line(writer, "socket", "%s", status->socket);
	gm_writer_line(writer, "backend", "%s, preset %s", status->backend, status->preset);
	gm_writer_line(writer, "clients", "%llu, with %llu lease%s",
		(unsigned long long)status->clients, (unsigned long long)status->leases,
		status->leases == 1 ? "" : "s");
	gm_writer_line(writer, "requests", "%llu, %llu refused",
		(unsigned long long)status->requests, (unsigned long long)status->refusals);
	gm_writer_line(writer, "", "%s", "");
	answer->quarantined_clients = status->quarantined_clients;
	answer->told = true;
}

static void status_take(void *user, const Gm__Wire__Packet *packet)
{
	struct status_answer *answer = user;
	const Gm__Wire__StatusReply *status = packet->status;

	if (!answer->told)
		status_tell_daemon(answer, status);
	for (size_t i = 0; i < status->n_devices; i++) {
		const Gm__Wire__Device *device = status->devices[i];
		gm_device_table_add(answer->devices, device);
		if (answer->n_seen == GM_LIMIT_DEVICES)
			continue;
		answer->seen[answer->n_seen].number = device->number;
		answer->seen[answer->n_seen].level = device->level;
		answer->seen[answer->n_seen].pressure_ppm = device->pressure_ppm;
		answer->seen[answer->n_seen].capacity = device->capacity;
		answer->seen[answer->n_seen].ceiling = device->ceiling;
		answer->seen[answer->n_seen].foreign = device->foreign;
		answer->seen[answer->n_seen].available = device->available;
		answer->seen[answer->n_seen].quarantined = device->quarantined;
		answer->seen[answer->n_seen].measured = device->measured;
		snprintf(answer->seen[answer->n_seen].trouble,
			sizeof(answer->seen[answer->n_seen].trouble), "%s", device->trouble);
		answer->n_seen++;
	}
}

static void status_tell_unusual(struct status_answer *answer)
{
	struct gm_writer *writer = answer->writer;
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT];
	uint64_t quarantined = 0;

	gm_writer_notes(writer);
	if (answer->n_seen == 0)
		gm_writer_note(writer, "no-devices", GM_MARK_BAD,
			"there is no device: nothing can be leased");
	for (size_t i = 0; i < answer->n_seen; i++) {
		uint64_t capacity = answer->seen[i].capacity, ceiling = answer->seen[i].ceiling;
		quarantined += answer->seen[i].quarantined;
		if (answer->seen[i].level >= GM_LEVEL_HIGH)
			gm_writer_note(writer, "pressure",
				gm_device_level_mark(answer->seen[i].level),
				"device %u: pressure is %s, %s left; see gpumemctl clients",
				answer->seen[i].number, gm_device_level(answer->seen[i].level),
				gm_format_size(answer->seen[i].available, a));
		if (!answer->seen[i].measured)
			gm_writer_note(writer, "unmeasured", GM_MARK_WARN,
				"device %u: %s: what others use is not seen; see gpumemctl doctor",
				answer->seen[i].number,
				*answer->seen[i].trouble ? answer->seen[i].trouble : "no NVML");
		/* A context or two is nothing to wake up for. */
		if (ceiling < capacity && capacity - ceiling > capacity / 10)
			gm_writer_note(writer, "foreign", GM_MARK_WARN,
				"device %u: others use %s, so %s of the capacity cannot be leased",
				answer->seen[i].number, gm_format_size(answer->seen[i].foreign, a),
				gm_format_size(capacity - ceiling, b));
	}
	if (answer->quarantined_clients || quarantined)
		gm_writer_note(writer, "quarantine", GM_MARK_WARN,
			"%llu client%s in quarantine, holding %s; see gpumemctl clients",
			(unsigned long long)answer->quarantined_clients,
			answer->quarantined_clients == 1 ? "" : "s",
			gm_format_size(quarantined, a));
}

static gpumem_status status_run(struct gm_ctl *ctl)
{
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct status_answer answer = {.writer = ctl->writer, .devices = gm_device_table_new()};

	request.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
	request.get_status = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_STATUS, status_take, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.devices);
		return status;
	}
	gm_writer_table(ctl->writer, "devices", answer.devices);
	status_tell_unusual(&answer);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_status = {
	.name = "status",
	.arguments = "",
	.summary = "the daemon, its devices, anything unusual",
	.help = "TOTAL is the device's memory, CAPACITY what the broker may hand out at most,\n"
		"LEASED what clients hold, POOLED free chunks kept for reuse, FOREIGN what others\n"
		"use, AVAIL what could be leased now. PRESSURE is the share of the capacity that\n"
		"is not available.\n",
	.run = status_run,
};
