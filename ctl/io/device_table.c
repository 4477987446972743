/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Turns what the daemon says about a device into a row of a table. gpumemctl(1) documents the keys,
 * so they stay as they are.
 */

#include "ctl/io/device_table.h"

#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "common/text/text.h"
#include "common/types.h"
#include "ctl/io/user_name.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"name", "NAME", GM_COLUMN_SHRINK},
	{"uuid", NULL, 0},
	{"pci", NULL, 0},
	{"backend", NULL, 0},
	{"pinned", NULL, 0},
	{"transport_fd", NULL, 0},
	{"transport_ipc", NULL, 0},
	{"total", "TOTAL", GM_COLUMN_RIGHT},
	{"fraction", NULL, 0},
	{"min_free", NULL, 0},
	{"capacity", "CAPACITY", GM_COLUMN_RIGHT},
	{"ceiling", NULL, 0},
	{"leased", NULL, 0},
	{NULL, "LEASED", GM_COLUMN_RIGHT},
	{"quarantined", NULL, 0},
	{"admitted", NULL, 0},
	{"pooled", "POOLED", GM_COLUMN_RIGHT},
	{NULL, "DECLARED", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL},
	{"foreign", "FOREIGN", GM_COLUMN_RIGHT},
	{"free", NULL, 0},
	{"measured", NULL, 0},
	{"available", "AVAIL", GM_COLUMN_RIGHT},
	{"peak_charged", NULL, 0},
	{"chunks", NULL, 0},
	{"pressure", "PRESSURE", GM_COLUMN_RIGHT},
	{"level", "LEVEL", 0},
	{"lingering", NULL, 0},
	{"declared", NULL, 0},
	{"declared_seen", NULL, 0},
	{"drained", NULL, 0},
	{"drained_by", NULL, 0},
	{"drained_ms", NULL, 0},
};

struct gm_table *gm_device_table_new(void)
{
	return GM_TABLE_NEW(columns);
}

void gm_device_table_add(struct gm_table *table, const Gm__Wire__Device *device)
{
	char uuid[GM_DEVICE_UUID_TEXT];
	bool fraction_ok = device->fraction >= 0 && device->fraction <= 1;

	gm_table_row(table);
	gm_table_count(table, device->number);
	gm_table_text(table, device->name);
	gm_table_text(table, gm_device_uuid(device, uuid));
	gm_table_text(table, device->pci);
	gm_table_text(table, device->backend);
	gm_table_bool(table, device->pinned);
	gm_table_bool(table, device->transport_fd);
	gm_table_bool(table, device->transport_ipc);
	gm_table_size(table, device->total);
	gm_table_share(table, fraction_ok ? (uint64_t)(device->fraction * 1e6 + 0.5) : 0);
	gm_table_known(table, fraction_ok);
	gm_table_size(table, device->min_free);
	gm_table_size(table, device->capacity);
	gm_table_size(table, device->ceiling);
	gm_table_size(table, device->leased);
	gm_table_size(table, device->leased + device->quarantined + device->admitted);
	gm_table_size(table, device->quarantined);
	gm_table_size(table, device->admitted);
	gm_table_size(table, device->pooled);
	gm_table_size(table, device->declared);
	gm_table_known(table, device->declared > 0);
	gm_table_size(table, device->foreign);
	gm_table_known(table, device->measured);
	gm_table_size(table, device->free);
	gm_table_bool(table, device->measured);
	gm_table_size(table, device->available);
	gm_table_size(table, device->peak_charged);
	gm_table_count(table, device->chunks);
	gm_table_share(table, device->pressure_ppm);
	gm_table_mark(table, gm_device_level_mark(device->level));
	gm_table_text(table, gm_device_level(device->level));
	gm_table_mark(table, gm_device_level_mark(device->level));
	gm_table_size(table, device->lingering);
	gm_table_size(table, device->declared);
	gm_table_size(table, device->declared_seen);
	gm_table_bool(table, device->drainer);
	gm_table_count(table, device->drainer ? device->drainer->uid : 0);
	gm_table_known(table, device->drainer);
	gm_table_time(table, device->drainer ? device->drainer->age_ms : 0);
	gm_table_known(table, device->drainer);
}

const char *gm_device_level(uint32_t level)
{
	static const char *const words[GM_LEVELS] = {
		[GM_LEVEL_LOW] = "low",
		[GM_LEVEL_MEDIUM] = "medium",
		[GM_LEVEL_HIGH] = "high",
		[GM_LEVEL_CRITICAL] = "critical",
	};

	return level < GM_LEVELS ? words[level] : "unknown";
}

enum gm_mark gm_device_level_mark(uint32_t level)
{
	if (level == GM_LEVEL_LOW)
		return GM_MARK_NONE;
	return level < GM_LEVEL_CRITICAL ? GM_MARK_WARN : GM_MARK_BAD;
}

const char *gm_device_transport(Gm__Wire__Transport transport)
{
	switch ((int)transport) {
	case GM__WIRE__TRANSPORT__TRANSPORT_AUTO:
		return "auto";
	case GM__WIRE__TRANSPORT__TRANSPORT_FD:
		return "fd";
	case GM__WIRE__TRANSPORT__TRANSPORT_IPC:
		return "ipc";
	}
	return "unknown";
}

const char *gm_device_uuid(const Gm__Wire__Device *device, char text[GM_DEVICE_UUID_TEXT])
{
	const ProtobufCBinaryData *uuid = &device->uuid;
	char *end = text;

	*end = '\0';
	if (uuid->len != GM_UUID_BYTES)
		return text;

	if (!strcmp(device->backend, "cuda"))
		end += sprintf(end, device->mig ? "MIG-" : "GPU-");
	for (size_t i = 0; i < GM_UUID_BYTES; i++)
		end += sprintf(end, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			uuid->data[i]);
	return text;
}

void gm_device_drains_add(struct gm_device_drains *drains, const Gm__Wire__Device *device)
{
	if (device->drainer && drains->n < GM_LIMIT_DEVICES)
		drains->items[drains->n++] = (struct gm_device_drain){
			.number = device->number,
			.uid = device->drainer->uid,
			.age_ms = device->drainer->age_ms,
		};
}

void gm_device_drains_note(const struct gm_device_drains *drains, struct gm_writer *writer)
{
	char user[GM_USER_NAME_TEXT], time[GM_UNITS_TEXT];

	for (size_t i = 0; i < drains->n; i++) {
		const struct gm_device_drain *drain = &drains->items[i];

		gm_writer_note(writer, "drained", GM_MARK_WARN,
			"device %u: drained by user %s for %s; gpumemctl drain %u --undo ends it",
			drain->number, gm_user_name(drain->uid, user),
			gm_text_duration(drain->age_ms, time), drain->number);
	}
}
