/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl cleanup: shows the plan, then the result. It asks for one device at a time, on one
 * connection. With several devices it asks for all plans first, and does nothing if one of the
 * devices cannot reach the goal.
 */

#include <stdio.h>

#include "common/text/units.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"step", "STEP", 0},
	{"bytes", "WANTED", GM_COLUMN_RIGHT},
	{"held", "HELD", GM_COLUMN_RIGHT},
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER},
	{"client", "CLIENT", GM_COLUMN_NAME | GM_COLUMN_OPTIONAL},
	{"priority", "PRIORITY", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
};
#define COLUMNS_OF_CLIENT 7

static const struct gm_column result_columns[] = {
	{"device", NULL, 0},
	{"planned", NULL, 0},
	{"freed", NULL, 0},
	{"reached", NULL, 0},
	{"free", NULL, 0},
	{"min_free", NULL, 0},
	{"reserve", NULL, 0},
};

struct cleanup_device {
	uint32_t number;
	uint64_t planned, min_free, reserve;
	bool done; /* the rest is known, too; never after a dry run */
	uint64_t freed, free;
	bool reached;
};

struct cleanup_answer {
	const struct gm_options *options;
	struct gm_table *plan;
	struct cleanup_device devices[GM_BOUND_DEVICES];
	size_t n_devices;
	struct cleanup_device *now; /* the device that the daemon is asked about */
};

static const char *cleanup_step_word(Gm__Wire__Stage stage)
{
	switch (stage) {
	case GM__WIRE__STAGE__STAGE_POOL:
		return "pool";
	case GM__WIRE__STAGE__STAGE_CACHED:
		return "cached";
	case GM__WIRE__STAGE__STAGE_UNUSED:
		return "unused";
	case GM__WIRE__STAGE__STAGE_SPILL:
		return "spill";
	default:
		return "other";
	}
}

static void cleanup_take_devices(void *user, const Gm__Wire__Packet *packet)
{
	struct cleanup_answer *answer = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		/* What should be free on a GPU does not apply to pinned host memory. */
		if (device->pinned && answer->options->given & GM_OPTION_NEED)
			continue;
		if (answer->n_devices < GM_BOUND_DEVICES)
			answer->devices[answer->n_devices++].number = device->number;
	}
}

static void cleanup_take(void *user, const Gm__Wire__Packet *packet)
{
	struct cleanup_answer *answer = user;
	struct cleanup_device *device = answer->now;
	const Gm__Wire__CleanupReply *reply = packet->cleanup_reply;

	device->min_free = reply->min_free;
	device->reserve = reply->reserve;
	if (reply->done) {
		device->done = true;
		device->reached = reply->reached;
		device->free = reply->free;
		for (size_t i = 0; i < reply->n_freed; i++)
			device->freed += reply->freed[i];
		return;
	}

	device->planned = reply->planned;
	for (size_t i = 0; i < reply->n_steps; i++) {
		const Gm__Wire__CleanupStep *step = reply->steps[i];

		gm_table_row(answer->plan);
		gm_table_count(answer->plan, reply->device);
		gm_table_text(answer->plan, cleanup_step_word(step->stage));
		gm_table_size(answer->plan, step->bytes);
		if (!step->session) {
			gm_table_nones(answer->plan, COLUMNS_OF_CLIENT);
			continue;
		}
		gm_table_size(answer->plan, step->held);
		gm_verb_add_client(answer->plan, step->session, step->pid, step->uid, step->client);
		gm_table_signed(answer->plan, step->priority);
	}
}

static gpumem_status cleanup_ask(struct gm_ctl *ctl, struct gm_ctl_conn *conn, uint32_t device,
	bool dry_run, gm_ctl_conn_answer_fn fn, struct cleanup_answer *answer)
{
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(CLEANUP, cleanup, &body);

	body.device = device;
	body.need = ctl->options->need;
	body.dry_run = dry_run;
	return gm_ctl_conn_ask(
		conn, &request, GM__WIRE__PACKET__BODY_CLEANUP_REPLY, fn, answer, &ctl->trouble);
}

static gpumem_status cleanup_find_devices(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct cleanup_answer *answer)
{
	if (ctl->options->given & GM_OPTION_DEVICE) {
		answer->devices[answer->n_devices++].number = ctl->options->device;
		return GPUMEM_OK;
	}

	gpumem_status status = gm_verb_ask_devices(ctl, conn, cleanup_take_devices, answer);
	if (status == GPUMEM_OK && !answer->n_devices)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"the daemon serves no device; see 'gpumemctl doctor'");
	return status;
}

static void cleanup_ignore(void *user, const Gm__Wire__Packet *packet)
{
}

static gpumem_status cleanup_all(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct cleanup_answer *answer)
{
	bool dry_run = ctl->options->given & GM_OPTION_DRY_RUN;

	gpumem_status status = cleanup_find_devices(ctl, conn, answer);

	/* Could all devices reach the goal? If not, the first that cannot says why. */
	if (!dry_run && answer->n_devices > 1)
		for (size_t i = 0; i < answer->n_devices && status == GPUMEM_OK; i++)
			status = cleanup_ask(
				ctl, conn, answer->devices[i].number, true, cleanup_ignore, answer);

	for (size_t i = 0; i < answer->n_devices && status == GPUMEM_OK; i++) {
		answer->now = &answer->devices[i];
		status = cleanup_ask(ctl, conn, answer->now->number, dry_run, cleanup_take, answer);
	}
	return status;
}

static void cleanup_add_result(struct gm_table *table, const struct cleanup_device *device)
{
	gm_table_row(table);
	gm_table_count(table, device->number);
	gm_table_size(table, device->planned);
	gm_table_size(table, device->freed);
	gm_table_known(table, device->done);
	gm_table_bool(table, device->reached);
	gm_table_known(table, device->done);
	gm_table_size(table, device->free);
	gm_table_known(table, device->done);
	gm_table_size(table, device->min_free);
	gm_table_size(table, device->reserve);
}

/* Says what of the free memory clients do not get. */
static void cleanup_say_kept(
	struct gm_writer *writer, const struct cleanup_device *device, bool needs)
{
	char text[GM_UNITS_TEXT];

	if (needs && device->min_free)
		gm_writer_line(writer, "", "  %s of what is free are never leased: min_free.",
			gm_writer_bytes(writer, device->min_free, text));
	if (device->done && device->freed && device->reserve)
		gm_writer_line(writer, "", "  The daemon will make its reserve again, of up to %s.",
			gm_writer_bytes(writer, device->reserve, text));
}

static void cleanup_say_result(struct gm_writer *writer, const struct cleanup_device *device)
{
	char planned[GM_UNITS_TEXT], freed[GM_UNITS_TEXT];

	gm_writer_bytes(writer, device->planned, planned);
	gm_writer_bytes(writer, device->freed, freed);
	if (!device->planned)
		gm_writer_line(writer, "", "Device %u: there is nothing to do.", device->number);
	else if (!device->done)
		gm_writer_line(writer, "", "Device %u: %s would come back; nothing was done.",
			device->number, planned);
	else if (device->freed > device->planned)
		gm_writer_line(writer, "", "Device %u: %s came back, %s were wanted%s.",
			device->number, freed, planned,
			device->reached ? "" : "; it is not enough");
	else
		gm_writer_line(writer, "", "Device %u: %s of %s came back%s.", device->number,
			freed, planned, device->reached ? "" : ", which is not enough");
}

static gpumem_status cleanup_run(struct gm_ctl *ctl)
{
	struct cleanup_answer answer = {.options = ctl->options, .plan = GM_TABLE_NEW(columns)};
	struct gm_table *results = GM_TABLE_NEW(result_columns);
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK)
		status = cleanup_all(ctl, conn, &answer);
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.plan);
		gm_table_free(results);
		return status;
	}

	if (gm_table_is_empty(answer.plan)) {
		gm_writer_data(ctl->writer, "plan", answer.plan);
	} else {
		gm_writer_table(ctl->writer, "plan", answer.plan);
		gm_writer_blank_line(ctl->writer);
	}

	for (size_t i = 0; i < answer.n_devices; i++) {
		const struct cleanup_device *device = &answer.devices[i];

		cleanup_add_result(results, device);
		cleanup_say_result(ctl->writer, device);
		cleanup_say_kept(ctl->writer, device, ctl->options->given & GM_OPTION_NEED);
		if (device->done && !device->reached)
			ctl->status = GPUMEM_E_NO_MEMORY;
	}
	gm_writer_data(ctl->writer, "devices", results);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_cleanup = {
	.name = "cleanup",
	.arguments = "[--need SIZE]",
	.summary = "get unused memory back",
	.help = "  --need SIZE  until this much is free on the device; without it, get back all\n"
		"               that there is\n"
		"  --dry-run    show the plan, and do nothing\n"
		"  --device N   only on this device; without it, on each device\n\n"
		"The daemon releases pooled chunks first, then asks clients for cached memory,\n"
		"then asks them to move evictable buffers to host memory; those with a low\n"
		"priority come first. It waits for them and releases what they return, which\n"
		"'trim' does not. It takes no memory that is in use. Some of what is free is\n"
		"never leased: min_free of gpumemd.conf(5). After a second, the daemon begins to\n"
		"make its reserve of fresh chunks again; after 'trim', it begins at once. For\n"
		"administrators; --dry-run is for everybody.\n",
	.takes = GM_OPTION_NEED | GM_OPTION_DRY_RUN | GM_OPTION_DEVICE,
	.run = cleanup_run,
};
