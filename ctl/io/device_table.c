/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Turns what the daemon says about a device into a row of a table. gpumemctl(1) documents the keys,
 * so they stay as they are.
 */

#include "ctl/io/device_table.h"

#include <stdio.h>
#include <string.h>

#include "common/figures.h"
#include "common/bounds.h"
#include "common/text/text.h"
#include "common/types.h"
#include "ctl/io/user_name.h"

/* Where the figures begin, and the other columns among and after them. */
enum device_columns {
	DEVICE_FIGURES = 8,
	DEVICE_CHARGED = DEVICE_FIGURES + 6,
	DEVICE_DECLARED_IF_ANY = DEVICE_FIGURES + 10,
	DEVICE_DRAINED = DEVICE_FIGURES + 22,
	DEVICE_DRAINED_BY,
	DEVICE_DRAINED_MS,
};
#define DEVICE_COLUMN(name) (DEVICE_FIGURES + DEVICE_##name)

#define DEVICE_PLACE_CORE(name, unit, column, ...) DEVICE_##name = (column),
#define DEVICE_PLACE_OTHER(name, column, ...)      DEVICE_##name = (column),
enum device_figures { GM_DEVICE_FIGURES(DEVICE_PLACE_CORE, DEVICE_PLACE_OTHER) };

#define DEVICE_TITLE_CORE(name, unit, column, title, how, note) \
	[DEVICE_COLUMN(name)] = {#name, title, how},
#define DEVICE_TITLE_OTHER(name, column, title, how, note) \
	[DEVICE_COLUMN(name)] = {#name, title, how},

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"name", "NAME", GM_COLUMN_SHRINK},
	{"uuid", NULL, 0},
	{"pci", NULL, 0},
	{"backend", NULL, 0},
	{"pinned", NULL, 0},
	{"transport_fd", NULL, 0},
	{"transport_ipc", NULL, 0},
	/* clang-format off */
	GM_DEVICE_FIGURES(DEVICE_TITLE_CORE, DEVICE_TITLE_OTHER)
		/* clang-format on */
		[DEVICE_CHARGED] = {NULL, "HELD", GM_COLUMN_RIGHT},
	[DEVICE_DECLARED_IF_ANY] = {NULL, "DECLARED", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL},
	[DEVICE_DRAINED] = {"drained", NULL, 0},
	[DEVICE_DRAINED_BY] = {"drained_by", NULL, 0},
	[DEVICE_DRAINED_MS] = {"drained_ms", NULL, 0},
};

struct gm_table *gm_device_table_new(void)
{
	return GM_TABLE_NEW(columns);
}

static void device_add_figures(struct gm_table *table, const Gm__Wire__Device *device)
{
	bool fraction_ok = device->fraction >= 0 && device->fraction <= 1;

#define DEVICE_ADD(name, unit, ...) \
	gm_table_at(table, DEVICE_COLUMN(name)); \
	gm_table_##unit(table, device->name);
	GM_DEVICE_FIGURES(DEVICE_ADD, GM_FIGURE_SKIP)
#undef DEVICE_ADD
	if (!device->measured) {
		gm_table_at(table, DEVICE_COLUMN(foreign));
		gm_table_none(table);
	}

	gm_table_at(table, DEVICE_COLUMN(fraction));
	gm_table_share(table, fraction_ok ? (uint64_t)(device->fraction * 1e6 + 0.5) : 0);
	gm_table_known(table, fraction_ok);
	gm_table_at(table, DEVICE_COLUMN(min_free));
	gm_table_size(table, device->min_free);
	gm_table_at(table, DEVICE_COLUMN(measured));
	gm_table_bool(table, device->measured);
	gm_table_at(table, DEVICE_COLUMN(pressure));
	gm_table_share(table, device->pressure_ppm);
	gm_table_mark(table, gm_device_level_mark(device->level));
	gm_table_at(table, DEVICE_COLUMN(level));
	gm_table_text(table, gm_device_level(device->level));
	gm_table_mark(table, gm_device_level_mark(device->level));
}

void gm_device_table_add(struct gm_table *table, const Gm__Wire__Device *device)
{
	char uuid[GM_DEVICE_UUID_TEXT];

	gm_table_row(table);
	gm_table_count(table, device->number);
	gm_table_text(table, device->name);
	gm_table_text(table, gm_device_uuid(device, uuid));
	gm_table_text(table, device->pci);
	gm_table_text(table, device->backend);
	gm_table_bool(table, device->pinned);
	gm_table_bool(table, device->transport_fd);
	gm_table_bool(table, device->transport_ipc);
	device_add_figures(table, device);
	gm_table_at(table, DEVICE_CHARGED);
	gm_table_size(table, device->leased + device->quarantined + device->admitted);
	gm_table_at(table, DEVICE_DECLARED_IF_ANY);
	gm_table_size(table, device->declared);
	gm_table_known(table, device->declared > 0);
	gm_table_at(table, DEVICE_DRAINED);
	gm_table_bool(table, device->drainer);
	gm_table_count(table, device->drainer ? device->drainer->uid : 0);
	gm_table_known(table, device->drainer);
	gm_table_time(table, device->drainer ? device->drainer->age_ms : 0);
	gm_table_known(table, device->drainer);
}

const char *gm_device_level(uint32_t level)
{
	static const char *const words[GM_LEVELS] = {
		[GM_PRESSURE_LEVEL_LOW] = "low",
		[GM_PRESSURE_LEVEL_MEDIUM] = "medium",
		[GM_PRESSURE_LEVEL_HIGH] = "high",
		[GM_PRESSURE_LEVEL_CRITICAL] = "critical",
	};

	return level < GM_LEVELS ? words[level] : "unknown";
}

enum gm_mark gm_device_level_mark(uint32_t level)
{
	if (level == GM_PRESSURE_LEVEL_LOW)
		return GM_MARK_NONE;
	return level < GM_PRESSURE_LEVEL_CRITICAL ? GM_MARK_WARN : GM_MARK_BAD;
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
	if (device->drainer && drains->n < GM_BOUND_DEVICES)
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
