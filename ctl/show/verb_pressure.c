/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl pressure: shows how short memory is and, with --at-least, answers a script by the exit
 * status.
 */

#include <stdlib.h>

#include "ctl/io/device_table.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"pressure", "PRESSURE", GM_COLUMN_RIGHT},
	{"level", "LEVEL", 0},
	{"available", "AVAIL", GM_COLUMN_RIGHT},
	{"capacity", "CAPACITY", GM_COLUMN_RIGHT},
	{"foreign", "FOREIGN", GM_COLUMN_RIGHT},
};

struct pressure_answer {
	const struct gm_options *options;
	struct gm_table *table;
	bool found, reached;
	uint32_t level; /* the highest */
	struct gm_device_drains drains;
};

static void pressure_take(void *user, const Gm__Wire__Packet *packet)
{
	struct pressure_answer *answer = user;
	const struct gm_options *options = answer->options;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];

		if (options->given & GM_OPTION_DEVICE && device->number != options->device)
			continue;
		answer->found = true;
		gm_device_drains_add(&answer->drains, device);
		answer->reached = answer->reached || device->level >= options->at_least;
		answer->level = device->level > answer->level ? device->level : answer->level;

		gm_table_row(answer->table);
		gm_table_count(answer->table, device->number);
		gm_table_share(answer->table, device->pressure_ppm);
		gm_table_text(answer->table, gm_device_level(device->level));
		gm_table_mark(answer->table, gm_device_level_mark(device->level));
		gm_table_size(answer->table, device->available);
		gm_table_size(answer->table, device->capacity);
		gm_table_size(answer->table, device->foreign);
		gm_table_known(answer->table, device->measured);
	}
}

/* The exit status is the whole answer. 1 to 6 are left for failures. */
static void pressure_tell_quietly(struct gm_ctl *ctl, const struct pressure_answer *answer)
{
	if (!(ctl->options->given & GM_OPTION_AT_LEAST))
		ctl->exit_status = 10 * (int)answer->level;
	else if (!answer->reached)
		ctl->exit_status = EXIT_FAILURE;
}

static gpumem_status pressure_run(struct gm_ctl *ctl)
{
	struct pressure_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};

	gpumem_status status = gm_verb_ask_devices(ctl, NULL, pressure_take, &answer);
	if (status == GPUMEM_OK && !answer.found)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			ctl->options->given & GM_OPTION_DEVICE
				? "there is no device %u; see 'gpumemctl devices'"
				: "the daemon serves no device; see 'gpumemctl doctor'",
			ctl->options->device);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}

	if (ctl->options->given & GM_OPTION_QUIET) {
		gm_table_free(answer.table);
		pressure_tell_quietly(ctl, &answer);
		return GPUMEM_OK;
	}

	gm_writer_table(ctl->writer, "pressure", answer.table);
	gm_writer_notes(ctl->writer);
	gm_device_drains_note(&answer.drains, ctl->writer);
	if (ctl->options->given & GM_OPTION_AT_LEAST) {
		gm_writer_bool(ctl->writer, "reached", answer.reached);
		/* "No" is an answer, too, which the exit status tells. */
		if (!answer.reached)
			ctl->exit_status = EXIT_FAILURE;
	}
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_pressure = {
	.name = "pressure",
	.arguments = "[--at-least LEVEL]",
	.summary = "how short memory is",
	.help = "  --at-least LEVEL  exit with 0 if a device is at this level (low, medium, high,\n"
		"                    critical) or above, else with 1\n"
		"  --quiet           write nothing; the exit status is 0 for low, 10 for medium,\n"
		"                    20 for high and 30 for critical (the highest of all devices)\n"
		"  --device N        only this device\n\n"
		"Pressure is the share of a device's capacity that is not available.\n",
	.takes = GM_OPTION_AT_LEAST | GM_OPTION_DEVICE | GM_OPTION_QUIET,
	.run = pressure_run,
};
