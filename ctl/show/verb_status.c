/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl status: what an administrator who was woken up at night wants to know, on one screen.
 * Is the daemon up, how much memory is left, and is anything unusual?
 */

#include <stdio.h>
#include <string.h>

#include "common/types.h"
#include "common/text/units.h"
#include "ctl/io/device_table.h"
#include "ctl/io/other_daemon.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "ctl/show/usage_list.h"
#include "ctl/verb/verb.h"

/* What the notes below the table need to know about a device. */
struct status_device {
	uint32_t number, level;
	uint64_t capacity, ceiling, foreign, available, quarantined, orphaned;
	bool measured;
	char trouble[160]; /* "": none */
};

struct status_answer {
	struct gm_writer *writer;
	const char *path; /* of the socket that was asked */
	uint64_t timeout_ms;
	struct gm_table *table;
	struct gm_table *others; /* other daemons */
	bool daemon_said;        /* the part about the daemon is written */
	uint64_t quarantined_clients, uncharged_clients, uncharged;
	uint64_t waiting;          /* requests */
	bool keeper, keeper_ready; /* there is to be one; it has everything */
	uint64_t lost, damaged;    /* see the message Keeper */
	struct gm_device_drains drains;
	struct status_device devices[GM_BOUND_DEVICES];
	size_t n_devices;
	struct gm_usage_list usage; /* filled if a device has much foreign memory */
};

static const struct gm_column other_columns[] = {
	{"which", NULL, 0},
	{"socket", NULL, 0},
	{"state", NULL, 0},
	{"pid", NULL, 0},
	{"uid", NULL, 0},
	{"user", NULL, 0},
};

/* Tells that there are other daemons, and how to reach them. */
static void status_say_others(struct gm_writer *writer, struct status_answer *answer)
{
	struct gm_other_daemon others[GM_OTHER_DAEMONS];
	struct gm_table *table = GM_TABLE_NEW(other_columns);
	size_t n = gm_other_daemon_find(answer->path, answer->timeout_ms, others);

	for (size_t i = 0; i < n; i++) {
		const struct gm_other_daemon *other = &others[i];
		bool running = !strcmp(other->state, "running");
		char user[GM_USER_NAME_TEXT];

		gm_table_row(table);
		gm_table_text(table, gm_other_daemon_word(other->kind));
		gm_table_text(table, other->path);
		gm_table_text(table, other->state);
		gm_table_count(table, other->pid);
		gm_table_known(table, running);
		gm_table_count(table, other->uid);
		gm_table_known(table, running);
		gm_table_text(table, running ? gm_user_name((uid_t)other->uid, user) : NULL);

		if (running)
			gm_writer_line(writer, "also here", "%s, pid %llu, user %s",
				gm_other_daemon_words(other->kind), (unsigned long long)other->pid,
				user);
		else
			gm_writer_line(writer, "also here", "%s, which %s",
				gm_other_daemon_words(other->kind),
				!strcmp(other->state, "denied") ? "you may not ask"
								: "does not answer");
		gm_writer_line(writer, "reach it", "--socket %s, or GPUMEM_SOCKET", other->path);
	}
	answer->others = table;
}

static void status_say_keeper(struct status_answer *answer, const Gm__Wire__Keeper *keeper)
{
	struct gm_writer *writer = answer->writer;

	gm_writer_bool(writer, "keeper_ready", keeper && keeper->ready);
	gm_writer_count(writer, "keeper_pid", keeper ? keeper->pid : 0);
	gm_writer_count(writer, "keeper_items", keeper ? keeper->items : 0);
	gm_writer_count(writer, "keeper_capacity", keeper ? keeper->capacity : 0);
	gm_writer_count(writer, "keeper_restarts", keeper ? keeper->restarts : 0);
	gm_writer_count(writer, "store_records", keeper ? keeper->records : 0);
	gm_writer_count(writer, "store_damaged", keeper ? keeper->damaged : 0);
	if (!keeper) {
		gm_writer_line(writer, "keeper", "none: nothing outlives the daemon");
		return;
	}

	if (keeper->pid)
		gm_writer_line(writer, "keeper", "pid %llu, %llu descriptor%s, %llu record%s",
			(unsigned long long)keeper->pid, (unsigned long long)keeper->items,
			keeper->items == 1 ? "" : "s", (unsigned long long)keeper->records,
			keeper->records == 1 ? "" : "s");
	else
		gm_writer_line(writer, "keeper", "away");
	answer->keeper = true;
	answer->keeper_ready = keeper->ready;
	answer->lost = keeper->lost;
	answer->damaged = keeper->damaged;
}

static void status_say_daemon(struct status_answer *answer, const Gm__Wire__StatusReply *status)
{
	struct gm_writer *writer = answer->writer;
	enum gm_daemon_kind kind = gm_other_daemon_kind(answer->path);
	char text[GM_UNITS_TEXT], user[GM_USER_NAME_TEXT];

	gm_writer_text(writer, "version", status->version);
	gm_writer_count(writer, "pid", status->pid);
	gm_writer_count(writer, "uid", status->uid);
	gm_writer_text(writer, "user", gm_user_name((uid_t)status->uid, user));
	gm_writer_text(writer, "which", gm_other_daemon_word(kind));
	gm_writer_time(writer, "uptime_ms", status->uptime_ms);
	gm_writer_text(writer, "socket", status->socket);
	gm_writer_text(writer, "backend", status->backend);
	gm_writer_text(writer, "preset", status->preset);
	gm_writer_count(writer, "clients", status->clients);
	gm_writer_count(writer, "quarantined_clients", status->quarantined_clients);
	gm_writer_count(writer, "uncharged_clients", status->uncharged_clients);
	gm_writer_size(writer, "uncharged", status->uncharged);
	gm_writer_count(writer, "leases", status->leases);
	gm_writer_count(writer, "requests", status->requests);
	gm_writer_count(writer, "refusals", status->refusals);

	gm_writer_line(writer, "daemon", "gpumemd %s, up %s, pid %llu, user %s", status->version,
		gm_text_duration(status->uptime_ms, text), (unsigned long long)status->pid,
		gm_user_name((uid_t)status->uid, user));
	gm_writer_line(writer, "socket", "%s%s%s", status->socket,
		kind == GM_DAEMON_ELSEWHERE ? "" : ", ",
		kind == GM_DAEMON_ELSEWHERE ? "" : gm_other_daemon_words(kind));
	status_say_others(writer, answer);
	gm_writer_line(writer, "backend", "%s, preset %s", status->backend, status->preset);
	gm_writer_line(writer, "clients", "%llu, with %llu lease%s",
		(unsigned long long)status->clients, (unsigned long long)status->leases,
		status->leases == 1 ? "" : "s");
	gm_writer_line(writer, "requests", "%llu, %llu refused",
		(unsigned long long)status->requests, (unsigned long long)status->refusals);
	status_say_keeper(answer, status->keeper);
	gm_writer_blank_line(writer);
}

static void status_take(void *user, const Gm__Wire__Packet *packet)
{
	struct status_answer *answer = user;
	const Gm__Wire__StatusReply *status = packet->status;

	if (!answer->daemon_said) {
		status_say_daemon(answer, status);
		answer->quarantined_clients = status->quarantined_clients;
		answer->uncharged_clients = status->uncharged_clients;
		answer->uncharged = status->uncharged;
		answer->daemon_said = true;
	}

	for (size_t i = 0; i < status->n_devices; i++) {
		const Gm__Wire__Device *device = status->devices[i];

		gm_device_table_add(answer->table, device);
		gm_device_drains_add(&answer->drains, device);
		if (answer->n_devices == GM_BOUND_DEVICES)
			continue;

		struct status_device *kept = &answer->devices[answer->n_devices++];
		*kept = (struct status_device){
			.number = device->number,
			.level = device->level,
			.capacity = device->capacity,
			.ceiling = device->ceiling,
			.foreign = device->foreign,
			.available = device->available,
			.quarantined = device->quarantined - device->orphaned,
			.orphaned = device->orphaned,
			.measured = device->measured,
		};
		snprintf(kept->trouble, sizeof(kept->trouble), "%s", device->trouble);
	}
}

/* Whether foreign memory takes more of the capacity than a few CUDA contexts, which are not unusual. */
static bool status_is_crowded(const struct status_device *device)
{
	return device->ceiling < device->capacity &&
	       device->capacity - device->ceiling > device->capacity / 10;
}

/* Notes how much foreign memory there is, who has most of it, and where to see the others. */
static void status_note_foreign(
	const struct status_answer *answer, const struct status_device *device)
{
	struct gm_writer *writer = answer->writer;
	const struct gm_usage_item *most = gm_usage_list_largest(&answer->usage, device->number);
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT], c[GM_UNITS_TEXT], user[GM_USER_NAME_TEXT];
	char who[GM_USER_NAME_TEXT + GM_UNITS_TEXT + 128] = "";

	if (most)
		snprintf(who, sizeof(who), "; %s%spid %lld%s%s has %s of it",
			*most->command ? most->command : "", *most->command ? ", " : "",
			(long long)most->pid, most->uid_known ? " of user " : "",
			most->uid_known ? gm_user_name(most->uid, user) : "",
			gm_writer_bytes(writer, most->foreign, c));
	gm_writer_note(writer, "foreign", GM_MARK_WARN,
		"device %u: foreign memory is %s, so %s of the capacity cannot be leased%s; see gpumemctl who %u",
		device->number, gm_writer_bytes(writer, device->foreign, a),
		gm_writer_bytes(writer, device->capacity - device->ceiling, b), who,
		device->number);
}

static void status_note_device(
	const struct status_answer *answer, const struct status_device *device)
{
	struct gm_writer *writer = answer->writer;
	char a[GM_UNITS_TEXT];

	if (device->level >= GM_PRESSURE_LEVEL_HIGH)
		gm_writer_note(writer, "pressure", gm_device_level_mark(device->level),
			"device %u: pressure is %s, %s available; see gpumemctl clients",
			device->number, gm_device_level(device->level),
			gm_writer_bytes(writer, device->available, a));
	if (!device->measured)
		gm_writer_note(writer, "unmeasured", GM_MARK_WARN,
			"device %u: %s: foreign memory is not known; see gpumemctl doctor",
			device->number, *device->trouble ? device->trouble : "no NVML");
	if (status_is_crowded(device))
		status_note_foreign(answer, device);
}

static void status_note_unusual(const struct status_answer *answer)
{
	struct gm_writer *writer = answer->writer;
	char text[GM_UNITS_TEXT];
	uint64_t quarantined = 0, orphaned = 0;

	gm_writer_notes(writer);
	if (answer->n_devices == 0)
		gm_writer_note(writer, "no-devices", GM_MARK_BAD,
			"the daemon serves no device, so nothing can be leased; see gpumemctl doctor");

	gm_device_drains_note(&answer->drains, writer);
	for (size_t i = 0; i < answer->n_devices; i++) {
		status_note_device(answer, &answer->devices[i]);
		quarantined += answer->devices[i].quarantined;
		orphaned += answer->devices[i].orphaned;
	}

	if (answer->waiting)
		gm_writer_note(writer, "waiting", GM_MARK_WARN,
			"%llu request%s waiting; see gpumemctl queue",
			(unsigned long long)answer->waiting,
			answer->waiting == 1 ? " is" : "s are");
	if (answer->keeper && !answer->keeper_ready)
		gm_writer_note(writer, "keeper", GM_MARK_BAD,
			"the keeper is away, so new memory waits for it; until it is back, do not stop gpumemd: what clients hold would be lost; see gpumemctl doctor");
	if (answer->lost)
		gm_writer_note(writer, "keeper", GM_MARK_WARN,
			"the keeper could not take %llu descriptor%s; see gpumemctl doctor",
			(unsigned long long)answer->lost, answer->lost == 1 ? "" : "s");
	if (answer->damaged)
		gm_writer_note(writer, "store", GM_MARK_WARN,
			"%llu record%s of the store %s damaged when the daemon began; see its log",
			(unsigned long long)answer->damaged, answer->damaged == 1 ? "" : "s",
			answer->damaged == 1 ? "was" : "were");
	if (answer->uncharged_clients)
		gm_writer_note(writer, "uncharged", GM_MARK_WARN,
			"nobody is charged for %s: %llu client%s came back with memory that this daemon does not know, because the daemon before and its keeper died; it is freed when %s",
			gm_writer_bytes(writer, answer->uncharged, text),
			(unsigned long long)answer->uncharged_clients,
			answer->uncharged_clients == 1 ? "" : "s",
			answer->uncharged_clients == 1 ? "the client ends" : "they end");
	if (answer->quarantined_clients || quarantined)
		gm_writer_note(writer, "quarantine", GM_MARK_WARN,
			"%llu client%s in quarantine, holding %s; see gpumemctl clients",
			(unsigned long long)answer->quarantined_clients,
			answer->quarantined_clients == 1 ? "" : "s",
			gm_writer_bytes(writer, quarantined, text));
	if (orphaned)
		gm_writer_note(writer, "orphaned", GM_MARK_WARN,
			"%s cannot be freed yet: processes that are no clients still map it; see gpumemctl doctor",
			gm_writer_bytes(writer, orphaned, text));
}

/* Asks who has the foreign memory, if it is much. The rest of the answer stands without that. */
static void status_ask_processes(struct gm_ctl_conn *conn, struct status_answer *answer)
{
	struct gm_trouble trouble;
	bool crowded = false;

	for (size_t i = 0; i < answer->n_devices; i++)
		crowded = crowded || status_is_crowded(&answer->devices[i]);
	if (crowded)
		(void)gm_usage_list_ask(conn, &answer->usage, &trouble);
}

static void status_count_waiting(void *user, const Gm__Wire__Packet *packet)
{
	struct status_answer *answer = user;

	answer->waiting += packet->queue->n_requests;
}

/* Asks how many requests wait. The rest of the answer stands without that. */
static void status_ask_queue(struct gm_ctl_conn *conn, struct status_answer *answer)
{
	struct gm_trouble trouble;

	(void)gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_QUEUE, status_count_waiting, answer, &trouble);
}

static gpumem_status status_run(struct gm_ctl *ctl)
{
	struct status_answer answer = {
		.writer = ctl->writer,
		.timeout_ms = ctl->options->timeout_ms,
		.table = gm_device_table_new(),
	};
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK) {
		answer.path = gm_ctl_conn_path(conn);
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_STATUS, status_take,
			&answer, &ctl->trouble);
		if (status == GPUMEM_OK) {
			status_ask_processes(conn, &answer);
			status_ask_queue(conn, &answer);
		}
		gm_ctl_conn_free(conn);
	}
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		gm_table_free(answer.others);
		return status;
	}

	gm_writer_table(ctl->writer, "devices", answer.table);
	gm_writer_data(ctl->writer, "others", answer.others);
	status_note_unusual(&answer);
	gm_usage_list_deinit(&answer.usage);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_status = {
	.name = "status",
	.arguments = "",
	.summary = "the daemon, its devices, and anything unusual",
	.help = "TOTAL is the memory of the device. CAPACITY is the most that the daemon may\n"
		"hand out. HELD is what clients hold. POOLED are free chunks that are kept\n"
		"for reuse. FOREIGN is memory in use that the daemon did not hand out. AVAIL is\n"
		"what could be leased now. PRESSURE is the share of the capacity that is not\n"
		"available.\n",
	.run = status_run,
};
