/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl drain: empties a device, or ends that. The daemon refuses new memory and asks clients for
 * what they do not use; the rest is a matter of waiting, which gpumemctl does. So it asks again and
 * again, and the drain stays when nobody waits any more. A daemon that is restarted meanwhile goes on
 * draining.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/units.h"
#include "common/text/message.h"
#include "ctl/io/user.h"
#include "ctl/verb/name_list.h"
#include "ctl/verb/verb.h"

/* How long to wait between two looks, at first and at most. */
#define DRAIN_FIRST_MS 50
#define DRAIN_MOST_MS  1000
/* How many holders a line of progress names. */
#define DRAIN_NAMED 4
#define DRAIN_LINE  512
/* Maximum length of the list of holders in a progress line. The rest of the line has room for the sums. */
#define DRAIN_NAMED_TEXT 361

static const struct gm_column columns[] = {
	{"session", NULL, GM_COLUMN_RIGHT}, {"pid", "PID", GM_COLUMN_RIGHT}, {"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER}, {"name", "NAME", GM_COLUMN_NAME},
	{"held", "HELD", GM_COLUMN_RIGHT}, {"state", NULL, 0},
	{NULL, "STATE", GM_COLUMN_OPTIONAL}, /* as in 'clients': of what is not connected */
};

struct drain_holder {
	uint64_t session, held;
	int64_t pid;
	uint32_t uid;
	bool left, quarantined;
	char *name; /* of what a client left behind, the names that it is published under */
};

/* What one look at the device found. */
struct drain_look {
	uint32_t device;
	bool drained;
	bool changed;
	uint64_t clients_asked, held, going;
	struct drain_holder *holders; /* the largest first */
	size_t n_holders, n_left;     /* n_left of them have no process */
	bool no_memory;
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

static void drain_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	struct drain_look *look = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];
		uint64_t held = 0;

		for (size_t j = 0; j < client->n_use; j++)
			if (client->use[j]->device == look->device)
				held += client->use[j]->held;
		if (!held)
			continue;

		struct drain_holder *grown =
			reallocarray(look->holders, look->n_holders + 1, sizeof(*grown));
		char *name = strdup(client->name);
		if (grown)
			look->holders = grown;
		if (!grown || !name) {
			free(name);
			look->no_memory = true;
			return;
		}
		look->holders[look->n_holders++] = (struct drain_holder){
			.session = client->session,
			.held = held,
			.pid = client->pid,
			.uid = client->uid,
			.left = client->left,
			.quarantined = client->quarantined,
			.name = name,
		};
		look->n_left += client->left != 0;
	}
}

static int drain_compare_holders(const void *a, const void *b)
{
	const struct drain_holder *x = a, *y = b;

	return x->held < y->held ? 1 : x->held > y->held ? -1 : 0;
}

/* Asks for the names of what clients left behind. */
static gpumem_status drain_ask_names(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct drain_look *look)
{
	struct gm_name_list names = {0};

	gpumem_status status = gm_name_list_ask(&names, ctl, conn);
	for (size_t i = 0; status == GPUMEM_OK && i < look->n_holders; i++) {
		struct drain_holder *holder = &look->holders[i];
		char *name = holder->left ? gm_name_list_of(&names, holder->session) : NULL;

		if (!name)
			continue;
		free(holder->name);
		holder->name = name;
	}
	gm_name_list_deinit(&names);
	return status;
}

static void drain_forget(struct drain_look *look)
{
	for (size_t i = 0; i < look->n_holders; i++)
		free(look->holders[i].name);
	free(look->holders);
	look->holders = NULL;
	look->n_holders = look->n_left = 0;
}

static struct gm_table *drain_table(const struct drain_look *look)
{
	struct gm_table *table = GM_TABLE_NEW(columns);

	for (size_t i = 0; i < look->n_holders; i++) {
		const struct drain_holder *holder = &look->holders[i];
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
	Gm__Wire__GetClients body = GM__WIRE__GET_CLIENTS__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(GET_CLIENTS, get_clients, &body);
	struct gm_ctl_conn *conn;

	*ret = (struct drain_look){.device = ctl->options->device};
	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;

	status = drain_ask(ctl, conn, undo, again, ret);
	if (status == GPUMEM_OK && !undo)
		status = gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_CLIENTS,
			drain_take_clients, ret, &ctl->trouble);
	if (status == GPUMEM_OK && ret->n_left)
		status = drain_ask_names(ctl, conn, ret);
	gm_ctl_conn_free(conn);
	if (status == GPUMEM_OK && ret->no_memory)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY, "out of memory");
	if (status == GPUMEM_OK && ret->n_holders)
		qsort(ret->holders, ret->n_holders, sizeof(*ret->holders), drain_compare_holders);
	if (status != GPUMEM_OK)
		drain_forget(ret);
	return status;
}

/* Names the holders that hold most. */
static void drain_name_holders(const struct drain_look *look, char text[DRAIN_LINE])
{
	char user[GM_USER_TEXT], size[GM_UNITS_TEXT], who[192];
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < gm_min(look->n_holders, (size_t)DRAIN_NAMED) && used < DRAIN_LINE;
		i++) {
		const struct drain_holder *holder = &look->holders[i];
		bool named = *holder->name;

		gm_user_name(holder->uid, user);
		if (holder->left)
			snprintf(who, sizeof(who), "%.80s%sleft behind by user %s%s", holder->name,
				named ? " (" : "", user, named ? ")" : "");
		else
			snprintf(who, sizeof(who), "%s%spid %lld, user %s%s", holder->name,
				named ? " (" : "", (long long)holder->pid, user, named ? ")" : "");
		used += (size_t)snprintf(text + used, DRAIN_LINE - used, "%s%s %s",
			used ? ", " : "", gm_format_size(holder->held, size), who);
	}
}

/* Says on stderr how far it is, if that changed. */
static void drain_say_progress(const struct drain_look *look, char last[DRAIN_LINE])
{
	char line[DRAIN_LINE], size[GM_UNITS_TEXT], more[64] = "", named[DRAIN_NAMED_TEXT];
	char all[DRAIN_LINE];

	drain_name_holders(look, all);
	snprintf(named, sizeof(named), "%.360s", all);

	if (look->n_holders > DRAIN_NAMED)
		snprintf(more, sizeof(more), ", and %zu more", look->n_holders - DRAIN_NAMED);
	if (look->held)
		snprintf(line, sizeof(line), "device %u: %s still held: %s%s", look->device,
			gm_format_size(look->held, size), gm_text_mend(named), more);
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

static void drain_pause(uint64_t ms)
{
	struct timespec pause = {
		.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&pause, NULL);
}

/* Drains, and waits until the device is empty or the time is over. */
static gpumem_status drain_wait(struct gm_ctl *ctl, struct drain_look *look)
{
	uint64_t until = gm_plus(gm_clock_ns() / GM_NS_PER_MS, ctl->options->wait_ms);
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

		drain_pause(gm_min(pause, until - now));
		pause = gm_min(2 * pause, DRAIN_MOST_MS);
		drain_forget(look);
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
	if (look->n_holders) {
		gm_view_apply(&ctl->options->view, table);
		gm_writer_table(writer, "holders", table);
		gm_writer_blank_line(writer);
	} else {
		gm_writer_data(writer, "holders", table);
	}
	if (look->n_holders > look->n_left)
		gm_writer_line(writer, "", "'gpumemctl kill CLIENT' ends a client.");
	if (look->n_left)
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
	drain_forget(&look);

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
	drain_forget(&look);
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
