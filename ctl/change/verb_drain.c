/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl drain: empties a device, or ends that. The daemon refuses new memory and asks clients for
 * what they do not use; the rest is a matter of waiting, which gpumemctl does. So it asks again and
 * again, and the drain stays when nobody waits any more. A daemon that is restarted meanwhile goes on
 * draining.
 */

#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/units.h"
#include "common/text/message.h"
#include "ctl/verb/client_list.h"
#include "ctl/verb/verb.h"

/* How long to wait between two looks, at first and at most. */
#define DRAIN_FIRST_MS 50
#define DRAIN_MOST_MS  1000
#define DRAIN_LINE     512

static const struct gm_column columns[] = {
	{"session", NULL, GM_COLUMN_RIGHT}, {"pid", "PID", GM_COLUMN_RIGHT}, {"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER}, {"name", "NAME", GM_COLUMN_NAME},
	{"held", "HELD", GM_COLUMN_RIGHT}, {"state", NULL, 0},
	{NULL, "STATE", GM_COLUMN_OPTIONAL}, /* as in 'clients': of what is not connected */
};

/* What one look at the device found. */
struct drain_look {
	uint32_t device;
	bool drained;
	bool changed;
	uint64_t clients_asked, held, going;
	struct gm_client_list holders;
};

static void drain_take(void *user, const Gm__Wire__Packet *packet)
{
	struct drain_look *look = user;

	look->drained = packet->drain_reply->drained;
	look->changed = packet->drain_reply->changed;
	look->clients_asked = packet->drain_reply->clients_asked;
	look->held = packet->drain_reply->held;
	look->going = packet->drain_reply->going;
}

static struct gm_table *drain_table(const struct drain_look *look)
{
	struct gm_table *table = GM_TABLE_NEW(columns);

	for (size_t i = 0; i < look->holders.n; i++) {
		const struct gm_client_list_item *holder = &look->holders.items[i];
		const char *unusual = holder->left          ? "left"
				      : holder->quarantined ? "quarantined"
							    : NULL;

		gm_table_row(table);
		gm_verb_add_client(table, holder->session, holder->pid, holder->uid, holder->name);
		gm_table_size(table, holder->held);
		gm_table_text(table, unusual ? unusual : "connected");
		gm_table_text(table, unusual);
		gm_table_mark(table, GM_MARK_WARN);
	}
	return table;
}

static gpumem_status drain_ask(struct gm_ctl *ctl, struct gm_ctl_conn *conn, bool undo, bool again,
	struct drain_look *look)
{
	Gm__Wire__Drain body = GM__WIRE__DRAIN__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(DRAIN, drain, &body);

	body.device = look->device;
	body.undo = undo;
	body.again = again;
	return gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_DRAIN_REPLY, drain_take, look,
		&ctl->trouble);
}

/* Asks for the drain and for those who hold memory of the device. */
static gpumem_status drain_look(struct gm_ctl *ctl, bool undo, bool again, struct drain_look *ret)
{
	struct gm_ctl_conn *conn;

	*ret = (struct drain_look){.device = ctl->options->device};
	ret->holders.device = ret->device;
	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;

	status = drain_ask(ctl, conn, undo, again, ret);
	if (status == GPUMEM_OK && !undo)
		status = gm_client_list_ask(&ret->holders, ctl, conn);
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK)
		gm_client_list_deinit(&ret->holders);
	return status;
}

/* Says on stderr how far it is, if that changed. */
static void drain_say_progress(const struct drain_look *look, char last[DRAIN_LINE])
{
	char line[DRAIN_LINE], size[GM_UNITS_TEXT], named[GM_CLIENT_LIST_TEXT];

	if (look->held)
		snprintf(line, sizeof(line), "device %u: %s still held: %s", look->device,
			gm_format_size(look->held, size),
			gm_client_list_text(&look->holders, named));
	else
		snprintf(line, sizeof(line), "device %u: %s are being released", look->device,
			gm_format_size(look->going, size));
	if (strcmp(line, last) == 0)
		return;
	if (!*last)
		gm_message(NULL,
			"waiting until the device is empty; Ctrl-C ends the wait, and the device stays drained");
	gm_message(NULL, line);
	memcpy(last, line, DRAIN_LINE);
}

/* Whether a daemon that was there before may come back. */
static bool drain_is_away(gpumem_status status)
{
	return status == GPUMEM_E_DISCONNECTED || status == GPUMEM_E_TIMEOUT;
}

/* Drains, and waits until the device is empty or the time is over. */
static gpumem_status drain_wait(struct gm_ctl *ctl, struct drain_look *look)
{
	uint64_t until = gm_u64_plus(gm_clock_ns() / GM_NS_PER_MS, ctl->options->wait_ms);
	uint64_t pause = DRAIN_FIRST_MS;
	char last[DRAIN_LINE] = "";
	bool away = false;

	gpumem_status status = drain_look(ctl, false, false, look);
	if (status != GPUMEM_OK)
		return status;
	bool changed = look->changed;

	for (;;) {
		uint64_t now = gm_clock_ns() / GM_NS_PER_MS;
		bool known = status == GPUMEM_OK;
		if (known && (!look->drained || look->held + look->going == 0))
			break;
		if (now >= until)
			break;
		if (known)
			drain_say_progress(look, last);
		else if (!away)
			gm_message(NULL, "the daemon is away; waiting for it");
		away = !known;

		gm_verb_pause(&pause, DRAIN_MOST_MS, until);
		gm_client_list_deinit(&look->holders);
		status = drain_look(ctl, false, true, look);
		if (status != GPUMEM_OK && !drain_is_away(status))
			return status;
	}
	look->changed = changed;
	return status;
}

static void drain_write(struct gm_ctl *ctl, struct drain_look *look)
{
	struct gm_writer *writer = ctl->writer;
	bool empty = look->held + look->going == 0;
	char size[GM_UNITS_TEXT];

	gm_writer_count(writer, "device", look->device);
	gm_writer_bool(writer, "drained", look->drained);
	gm_writer_bool(writer, "changed", look->changed);
	gm_writer_bool(writer, "empty", empty);
	gm_writer_size(writer, "held", look->held);
	gm_writer_size(writer, "going", look->going);
	if (empty) {
		gm_writer_line(writer, "",
			"Device %u is empty. It stays drained until 'gpumemctl drain %u --undo'.",
			look->device, look->device);
		gm_writer_data(writer, "holders", drain_table(look));
		return;
	}

	ctl->status = GPUMEM_E_BUSY;
	struct gm_table *table = drain_table(look);
	if (look->holders.n) {
		gm_view_apply(&ctl->options->view, table);
		gm_writer_table(writer, "holders", table);
		gm_writer_blank_line(writer);
	} else {
		gm_writer_data(writer, "holders", table);
	}
	if (look->holders.n > look->holders.n_left)
		gm_writer_line(writer, "", "'gpumemctl kill CLIENT' ends a client.");
	if (look->holders.n_left)
		gm_writer_line(writer, "",
			"'gpumemctl shares remove NAME' removes the name of what was left behind.");
	gm_writer_line(writer, "", "Device %u is drained, but not empty: %s %s.", look->device,
		gm_writer_bytes(writer, look->held ? look->held : look->going, size),
		look->held ? "are still held" : "are being released");
}

static gpumem_status drain_undo(struct gm_ctl *ctl)
{
	struct drain_look look;

	gpumem_status status = drain_look(ctl, true, false, &look);
	if (status != GPUMEM_OK)
		return status;
	gm_client_list_deinit(&look.holders);

	gm_writer_count(ctl->writer, "device", look.device);
	gm_writer_bool(ctl->writer, "drained", look.drained);
	gm_writer_bool(ctl->writer, "changed", look.changed);
	gm_writer_line(ctl->writer, "",
		look.changed ? "Device %u is not drained any more." : "Device %u was not drained.",
		look.device);
	return GPUMEM_OK;
}

static gpumem_status drain_run(struct gm_ctl *ctl)
{
	unsigned given = ctl->options->given;
	struct drain_look look;

	if (!(given & GM_OPTION_DEVICE))
		return gm_verb_wrong_use(ctl,
			"'drain' needs a device: its number, UUID or PCI address; see 'gpumemctl devices'");
	if (given & GM_OPTION_UNDO && given & GM_OPTION_WAIT)
		return gm_verb_wrong_use(ctl, "--undo and --wait exclude each other");
	if (given & GM_OPTION_UNDO)
		return drain_undo(ctl);

	gpumem_status status = drain_wait(ctl, &look);
	if (status != GPUMEM_OK)
		return status;
	if (look.drained) {
		drain_write(ctl, &look);
	} else {
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_CANCELLED,
			"somebody ended the drain of device %u; see the daemon's log", look.device);
	}
	gm_client_list_deinit(&look.holders);
	return status;
}

const struct gm_verb gm_verb_drain = {
	.name = "drain",
	.arguments = "DEVICE [--undo]",
	.summary = "empty a device",
	.help = "  --wait TIME  wait so long until the device is empty, and then fail; 0s: not\n"
		"               at all; without it, wait for ever\n"
		"  --undo       end the drain: the device gives out memory again\n\n"
		"DEVICE is a number, a UUID or a PCI address. Nobody gets new memory on a drained\n"
		"device, and requests that wait for it are refused. The daemon destroys what is\n"
		"pooled there, and asks clients for all that they do not use. What they do use\n"
		"stays theirs: 'drain' waits for it, and shows on stderr who holds it. The drain\n"
		"lasts until it is undone, whether or not somebody waits and the daemon is\n"
		"restarted. For administrators: root, the user that runs the daemon, and the\n"
		"members of the configured admin_group.\n",
	.takes = GM_OPTION_DEVICE | GM_OPTION_UNDO | GM_OPTION_WAIT,
	.max_args = 1,
	.names_device = true,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "-held",
	.run = drain_run,
};
