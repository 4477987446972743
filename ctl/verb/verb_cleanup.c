/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl cleanup: the plan first, with its sizes, then what came of it. Each device is a
 * question of its own, on one connection. Where one of several cannot do what is wanted, nothing is
 * done on any.
 */

#include <stdio.h>

#include "common/units.h"
#include "ctl/io/user.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"step", "STEP", 0},
	{"bytes", "WANTED", GM_COLUMN_RIGHT},
	{"held", "HELD", GM_COLUMN_RIGHT},
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{NULL, "USER", 0},
	{"client", "CLIENT", GM_COLUMN_SHRINK | GM_COLUMN_OPTIONAL},
	{"priority", "PRIORITY", GM_COLUMN_RIGHT},
};

static const struct gm_column result_columns[] = {
	{"device", NULL, 0},
	{"planned", NULL, 0},
	{"freed", NULL, 0},
	{"reached", NULL, 0},
	{"free", NULL, 0},
};

struct cleanup_answer {
	const struct gm_options *options;
	struct gm_table *plan, *results;
	uint32_t devices[GM_LIMIT_DEVICES];
	size_t n_devices;
	uint64_t planned, freed;
	bool done, reached;
	uint64_t free;
};

static const char *cleanup_rung_word(Gm__Wire__Rung rung)
{
	switch (rung) {
	case GM__WIRE__RUNG__RUNG_POOL:
		return "pool";
	case GM__WIRE__RUNG__RUNG_CACHED:
		return "cached";
	case GM__WIRE__RUNG__RUNG_UNUSED:
		return "unused";
	default:
		return "other";
	}
}

static void cleanup_take_devices(void *user, const Gm__Wire__Packet *packet)
{
	struct cleanup_answer *answer = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		/* What a GPU is to have free says nothing of pinned host memory. */
		if (device->pinned && answer->options->given & GM_OPTION_NEED)
			continue;
		if (answer->n_devices < GM_LIMIT_DEVICES)
			answer->devices[answer->n_devices++] = device->number;
	}
}

static void cleanup_take(void *user, const Gm__Wire__Packet *packet)
{
	struct cleanup_answer *answer = user;
	const Gm__Wire__CleanupReply *reply = packet->cleanup_reply;

	if (reply->done) {
		answer->done = true;
		answer->reached = reply->reached;
		answer->free = reply->free;
		for (size_t i = 0; i < reply->n_freed; i++)
			answer->freed += reply->freed[i];
		return;
	}
	answer->planned = reply->planned;
	for (size_t i = 0; i < reply->n_steps; i++) {
		const Gm__Wire__CleanupStep *step = reply->steps[i];
		char name[GM_USER_TEXT];
		gm_table_row(answer->plan);
		gm_table_count(answer->plan, reply->device);
		gm_table_text(answer->plan, cleanup_rung_word(step->rung));
		gm_table_size(answer->plan, step->bytes);
		if (!step->session) {
			for (int k = 0; k < 7; k++)
				gm_table_none(answer->plan);
			continue;
		}
		gm_table_size(answer->plan, step->held);
		gm_table_count(answer->plan, step->session);
		gm_table_count(answer->plan, step->pid > 0 ? (uint64_t)step->pid : 0);
		gm_table_count(answer->plan, step->uid);
		gm_table_text(answer->plan, gm_user_name(step->uid, name));
		gm_table_text(answer->plan, step->client);
		gm_table_signed(answer->plan, step->priority);
	}
}

static gpumem_status cleanup_ask(struct gm_ctl *ctl, struct gm_ctl_conn *conn, uint32_t device,
	bool dry_run, gm_ctl_conn_answer_fn fn, struct cleanup_answer *answer)
{
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;

	body.device = device;
	body.need = ctl->options->need;
	body.dry_run = dry_run;
	request.body_case = GM__WIRE__PACKET__BODY_CLEANUP;
	request.cleanup = &body;
	return gm_ctl_conn_ask(
		conn, &request, GM__WIRE__PACKET__BODY_CLEANUP_REPLY, fn, answer, &ctl->trouble);
}

static void cleanup_pass_over(void *user, const Gm__Wire__Packet *packet)
{
}

/* Whether every device could: else the first that cannot says why. */
static gpumem_status cleanup_try_all(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct cleanup_answer *answer)
{
	gpumem_status status = GPUMEM_OK;

	for (size_t i = 0; i < answer->n_devices && status == GPUMEM_OK; i++)
		status =
			cleanup_ask(ctl, conn, answer->devices[i], true, cleanup_pass_over, answer);
	return status;
}

static gpumem_status cleanup_clean(struct gm_ctl *ctl, struct gm_ctl_conn *conn,
	struct cleanup_answer *answer, uint32_t device)
{
	answer->planned = answer->freed = answer->free = 0;
	answer->done = answer->reached = false;
	gpumem_status status = cleanup_ask(
		ctl, conn, device, ctl->options->given & GM_OPTION_DRY_RUN, cleanup_take, answer);
	if (status != GPUMEM_OK)
		return status;
	gm_table_row(answer->results);
	gm_table_count(answer->results, device);
	gm_table_size(answer->results, answer->planned);
	if (answer->done) {
		gm_table_size(answer->results, answer->freed);
		gm_table_bool(answer->results, answer->reached);
		gm_table_size(answer->results, answer->free);
	} else {
		for (int k = 0; k < 3; k++)
			gm_table_none(answer->results);
	}
	return GPUMEM_OK;
}

static void cleanup_say(struct gm_ctl *ctl, const struct cleanup_answer *answer, uint32_t device)
{
	char planned[GM_UNITS_TEXT], freed[GM_UNITS_TEXT];

	gm_format_size(answer->planned, planned);
	gm_format_size(answer->freed, freed);
	if (!answer->planned)
		gm_writer_line(ctl->writer, "", "Device %u: there is nothing to do.", device);
	else if (!answer->done)
		gm_writer_line(ctl->writer, "",
			"Device %u: %s could be got back; nothing was done.", device, planned);
	else
		gm_writer_line(ctl->writer, "", "Device %u: %s of %s came back%s.", device, freed,
			planned, answer->reached ? "" : ", which is not enough");
	if (answer->done && !answer->reached)
		ctl->status = GPUMEM_E_NO_MEMORY;
}

static gpumem_status cleanup_run(struct gm_ctl *ctl)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct cleanup_answer answer = {
		.options = ctl->options,
		.plan = gm_table_new(columns, sizeof(columns) / sizeof(*columns)),
		.results = gm_table_new(
			result_columns, sizeof(result_columns) / sizeof(*result_columns)),
	};
	struct cleanup_answer each[GM_LIMIT_DEVICES];
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_ctl_conn_open(
		ctl->options->socket, ctl->options->timeout_ms, &ctl->trouble, &conn);
	if (status == GPUMEM_OK && ctl->options->given & GM_OPTION_DEVICE) {
		answer.devices[answer.n_devices++] = ctl->options->device;
	} else if (status == GPUMEM_OK) {
		request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
		request.get_devices = &body;
		status = gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_DEVICES,
			cleanup_take_devices, &answer, &ctl->trouble);
		if (status == GPUMEM_OK && !answer.n_devices)
			status = gm_trouble_set(
				&ctl->trouble, GPUMEM_E_NOT_FOUND, "there are no devices");
	}
	if (status == GPUMEM_OK && answer.n_devices > 1 &&
		!(ctl->options->given & GM_OPTION_DRY_RUN))
		status = cleanup_try_all(ctl, conn, &answer);
	for (size_t i = 0; i < answer.n_devices && status == GPUMEM_OK; i++) {
		status = cleanup_clean(ctl, conn, &answer, answer.devices[i]);
		each[i] = answer;
	}
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.plan);
		gm_table_free(answer.results);
		return status;
	}
	bool steps = answer.plan && answer.plan->n_rows;
	if (steps)
		gm_writer_table(ctl->writer, "plan", answer.plan);
	else
		gm_writer_data(ctl->writer, "plan", answer.plan);
	gm_writer_data(ctl->writer, "devices", answer.results);
	if (steps)
		gm_writer_line(ctl->writer, "", "%s", "");
	for (size_t i = 0; i < answer.n_devices; i++)
		cleanup_say(ctl, &each[i], answer.devices[i]);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_cleanup = {
	.name = "cleanup",
	.arguments = "[--need SIZE]",
	.summary = "get unused memory back",
	.help = "  --need SIZE  so much is to be free on the device; else all there is to be had\n"
		"  --dry-run    show the plan, do nothing\n"
		"  --device N   only this device; else each of them\n\n"
		"Pooled chunks go first, then clients are asked for what they cache, those of low\n"
		"priority first. Takes nothing that is in use. For administrators.\n",
	.takes = GM_OPTION_NEED | GM_OPTION_DRY_RUN | GM_OPTION_DEVICE,
	.run = cleanup_run,
};
