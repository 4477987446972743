/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl watch: writes a line for each event as it happens, until nobody reads any more. When the daemon
 * ends, waits for the next one, unless the user does not want that. With --json, each line is an object.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/arith.h"
#include "common/system/path.h"
#include "common/text/units.h"
#include "ctl/io/device_table.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"

#define WATCH_LINE 2048
#define WATCH_TEXT 1024
#define WATCH_KIND 15 /* columns for the kind of an event */

#define WATCH_PAUSE_NS   200000000 /* between looks for the next daemon */
#define WATCH_EXIT_ENDED 7         /* the daemon has ended, and --no-reconnect was given */

static void watch_add_notice(struct gm_writer *writer, const Gm__Wire__NoticeEvent *notice)
{
	/* The stages that give bytes, in the order of Gm__Wire__Stage. */
	static const char *const stages[] = {"pool", "cached", "unused", "spill"};
	char user[GM_USER_NAME_TEXT];

	if (notice->session) {
		gm_writer_count(writer, "session", notice->session);
		gm_writer_count(writer, "pid", notice->pid > 0 ? (uint64_t)notice->pid : 0);
		gm_writer_count(writer, "uid", notice->uid);
		gm_writer_text(writer, "user", gm_user_name(notice->uid, user));
		gm_writer_text(writer, "client", notice->client);
		gm_writer_signed(writer, "priority", notice->priority);
	} else if (!strcmp(notice->kind, "lost") && *notice->owner) {
		/* Further events about this user. Without an owner, it is not about a user. */
		gm_writer_count(writer, "uid", notice->uid);
		gm_writer_text(writer, "user", gm_user_name(notice->uid, user));
	}
	gm_writer_text(writer, "owner", notice->owner);
	gm_writer_size(writer, "asked", notice->asked);
	gm_writer_size(writer, "held", notice->held);
	gm_writer_size(writer, "max", notice->max);
	gm_writer_size(writer, "bytes", notice->bytes);
	gm_writer_time(writer, "waited_ms", notice->waited_ms);

	if (notice->n_stages) {
		gm_writer_group(writer, "stages");
		for (size_t i = 0; i < notice->n_stages && i < sizeof(stages) / sizeof(*stages);
			i++)
			gm_writer_size(writer, stages[i], notice->stages[i]);
		gm_writer_group(writer, NULL);
		gm_writer_text(writer, "trigger", notice->trigger);
		gm_writer_size(writer, "need", notice->need);
		gm_writer_bool(writer, "reached", notice->reached);
	}
}

/* Makes the line of a notice about a client. It names the client rather than its number. */
static void watch_name_client(const Gm__Wire__NoticeEvent *notice, char line[WATCH_LINE])
{
	char number[64], who[512], user[GM_USER_NAME_TEXT], what[WATCH_TEXT];

	gm_user_name_sentence(notice->what, what, sizeof(what));
	snprintf(who, sizeof(who), "%.256s%s%lld, user %s%s", notice->client,
		*notice->client ? " (pid " : "pid ", (long long)notice->pid,
		gm_user_name(notice->uid, user), *notice->client ? ")" : "");

	/* Some texts have the client in their middle. */
	size_t n = (size_t)snprintf(
		number, sizeof(number), "client %llu ", (unsigned long long)notice->session);
	const char *at = strstr(what, number);
	int length =
		at ? snprintf(line, WATCH_LINE, "%.*s%s %s", (int)(at - what), what, who, at + n)
		   : snprintf(line, WATCH_LINE, "%s: %s", who, what);
	if (length >= WATCH_LINE)
		gm_text_mend(line);
}

/* How much attention an event deserves. */
static enum gm_mark watch_mark(const Gm__Wire__Packet *packet, const char *kind)
{
	static const struct {
		const char *kind;
		enum gm_mark mark;
	} marks[] = {
		{"granted", GM_MARK_GOOD},
		{"limit", GM_MARK_WARN},
		{"ignored", GM_MARK_WARN},
		{"goodbye", GM_MARK_WARN},
		{"disconnected", GM_MARK_WARN},
		{"reconnected", GM_MARK_GOOD},
		{"refused", GM_MARK_BAD},
		{"terminated", GM_MARK_BAD},
	};

	if (packet->body_case == GM__WIRE__PACKET__BODY_PRESSURE_EVENT)
		return gm_device_level_mark(packet->pressure_event->level);
	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (!strcmp(kind, marks[i].kind))
			return marks[i].mark;
	return GM_MARK_NONE;
}

/*
 * Reads kind, device (-1: the event is about no device) and text of an event. Returns false for a
 * packet that is no event for watchers.
 */
static bool watch_read_event(const Gm__Wire__Packet *packet, bool json, const char **ret_kind,
	int64_t *ret_device, char line[WATCH_LINE])
{
	char percent[GM_UNITS_TEXT];

	*ret_device = -1;
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_PRESSURE_EVENT:
		*ret_kind = "pressure";
		*ret_device = packet->pressure_event->device;
		snprintf(line, WATCH_LINE, "device %u: pressure is %s (%s)",
			packet->pressure_event->device,
			gm_device_level(packet->pressure_event->level),
			gm_format_percent(packet->pressure_event->pressure_ppm, percent));
		return true;
	case GM__WIRE__PACKET__BODY_NOTICE_EVENT:
		*ret_kind = packet->notice_event->kind;
		/* These are about no device. */
		if (strcmp(*ret_kind, "limits") && strcmp(*ret_kind, "lost"))
			*ret_device = packet->notice_event->device;
		snprintf(line, WATCH_LINE, "%s", packet->notice_event->text);
		if (!json && *packet->notice_event->what)
			watch_name_client(packet->notice_event, line);
		else if (!json && (!strcmp(*ret_kind, "limits") || !strcmp(*ret_kind, "drain") ||
					  !strcmp(*ret_kind, "lost")))
			gm_user_name_sentence(packet->notice_event->text, line, WATCH_LINE);
		return true;
	case GM__WIRE__PACKET__BODY_GOODBYE_EVENT:
		*ret_kind = "goodbye";
		snprintf(line, WATCH_LINE, "%s", packet->goodbye_event->reason);
		return true;
	default:
		return false;
	}
}

/* Writes an event for people: one line, which goes on below its text where the terminal ends. Returns 0,
 * -ENOMEM, or why writing failed. */
static int watch_write_line(
	const char *stamp, const char *kind, const char *line, const char *colour, size_t columns)
{
	char *clean_kind = gm_text_clean(kind, false), *clean = gm_text_clean(line, false);
	int r = -ENOMEM;

	if (clean_kind && clean) {
		size_t kind_columns = gm_u64_max(gm_text_width(clean_kind), (size_t)WATCH_KIND);

		errno = 0;
		printf("%s  %s%-*s%s  ", stamp, colour, WATCH_KIND, clean_kind,
			*colour ? GM_COLOUR_END : "");
		gm_text_put(stdout, clean, columns, strlen(stamp) + 2 + kind_columns + 2);
		putchar('\n');
		r = !fflush(stdout) && !ferror(stdout) ? 0 : errno ? -errno : -EIO;
	}
	free(clean_kind);
	free(clean);
	return r;
}

/* Writes an event for programs. Returns the same. */
static int watch_write_object(const char *stamp, const char *kind, int64_t device, const char *line,
	const Gm__Wire__Packet *packet)
{
	struct gm_writer *writer = gm_writer_json_line_new();

	if (!writer)
		return -ENOMEM;

	gm_writer_text(writer, "time", stamp);
	gm_writer_text(writer, "event", kind);
	if (device >= 0)
		gm_writer_count(writer, "device", (uint64_t)device);
	gm_writer_text(writer, "text", line);
	if (packet->body_case == GM__WIRE__PACKET__BODY_PRESSURE_EVENT) {
		gm_writer_text(writer, "level", gm_device_level(packet->pressure_event->level));
		gm_writer_share(writer, "pressure", packet->pressure_event->pressure_ppm);
	} else if (packet->body_case == GM__WIRE__PACKET__BODY_NOTICE_EVENT) {
		watch_add_notice(writer, packet->notice_event);
	}

	int r = gm_writer_finish(writer, stdout);
	gm_writer_free(writer);
	return r;
}

/* Writes an event. ctl->stream_error says how that went. */
static void watch_write(struct gm_ctl *ctl, const Gm__Wire__Packet *packet, const char *kind,
	int64_t device, const char *line)
{
	const struct gm_options *options = ctl->options;
	char stamp[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), options->json ? "%FT%T%z" : "%T", &tm);
	ctl->stream_error =
		options->json ? watch_write_object(stamp, kind, device, line, packet)
			      : watch_write_line(stamp, kind, line,
					ctl->colour ? gm_mark_colour(watch_mark(packet, kind)) : "",
					ctl->columns);
}

static bool watch_on_event(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_ctl *ctl = user;
	const struct gm_options *options = ctl->options;
	char line[WATCH_LINE];
	const char *kind;
	int64_t device;

	if (!watch_read_event(packet, options->json, &kind, &device, line))
		return true;
	if (options->given & GM_OPTION_DEVICE && device >= 0 && device != options->device)
		return true;

	watch_write(ctl, packet, kind, device, line);
	return ctl->stream_error == 0 && packet->body_case != GM__WIRE__PACKET__BODY_GOODBYE_EVENT;
}

/* ---- the end of the daemon, and the next one */

/* Looks at the file beside the socket that each daemon replaces when it starts. Returns false if there is
 * none. Its content may not be for this user to read. */
static bool watch_find_generation(const char *socket, struct stat *ret)
{
	char path[GM_PATH_BYTES + 16];

	snprintf(path, sizeof(path), "%s", socket);
	char *slash = strrchr(path, '/');
	if (!slash)
		return false;
	strcpy(slash + 1, "generation");
	return stat(path, ret) == 0;
}

/* Writes an event of gpumemctl itself. Returns whether it could. */
static bool watch_say(struct gm_ctl *ctl, const char *kind, const char *text)
{
	const Gm__Wire__Packet none = GM__WIRE__PACKET__INIT;

	watch_write(ctl, &none, kind, -1, text);
	return ctl->stream_error == 0;
}

/*
 * Waits for the next daemon and connects to it. A connection would start a daemon that was stopped, if a
 * service manager listens on the socket. Therefore waits until another daemon has replaced the file of its
 * generation; before: the file of the one that ended, NULL if there was none.
 */
static gpumem_status watch_reconnect(struct gm_ctl *ctl, const char *socket,
	const struct stat *before, struct gm_ctl_conn **ret_conn)
{
	const struct timespec pause = {.tv_nsec = WATCH_PAUSE_NS};
	gpumem_status status;
	struct stat now;

	while (before && (!watch_find_generation(socket, &now) ||
				 (now.st_ino == before->st_ino &&
					 now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
					 now.st_mtim.tv_nsec == before->st_mtim.tv_nsec)))
		nanosleep(&pause, NULL);
	while ((status = gm_verb_connect_on_device(ctl, ret_conn)) == GPUMEM_E_DISCONNECTED ||
		status == GPUMEM_E_TIMEOUT)
		nanosleep(&pause, NULL);
	return status;
}

/* Watches one daemon until it ends. */
static gpumem_status watch_daemon(struct gm_ctl *ctl, struct gm_ctl_conn *conn, bool *ret_ended)
{
	gpumem_status status = gm_ctl_conn_watch(conn, watch_on_event, ctl, &ctl->trouble);

	/* It said goodbye, or it died. */
	*ret_ended =
		ctl->stream_error == 0 && (status == GPUMEM_OK || status == GPUMEM_E_DISCONNECTED);
	return status;
}

static gpumem_status watch_run(struct gm_ctl *ctl)
{
	bool reconnects = !(ctl->options->given & GM_OPTION_NO_RECONNECT), ended = false;
	char socket[GM_PATH_BYTES], text[128];
	struct stat generation;
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);
	while (status == GPUMEM_OK) {
		snprintf(socket, sizeof(socket), "%s", gm_ctl_conn_path(conn));
		bool known = watch_find_generation(socket, &generation);
		status = watch_daemon(ctl, conn, &ended);
		gm_ctl_conn_free(conn);
		ctl->streamed = true;
		if (!ended)
			return status;
		if (!reconnects) {
			ctl->exit_status = WATCH_EXIT_ENDED;
			/* It died without a goodbye. */
			if (status != GPUMEM_OK)
				watch_say(ctl, "disconnected", ctl->trouble.text);
			return GPUMEM_OK;
		}
		if (!watch_say(
			    ctl, "disconnected", "the daemon has ended; waiting for the next one"))
			return GPUMEM_OK;
		status = watch_reconnect(ctl, socket, known ? &generation : NULL, &conn);
		if (status != GPUMEM_OK)
			return status;
		snprintf(text, sizeof(text),
			"connected again, to gpumemd %.64s; events in between are not known",
			gm_ctl_conn_daemon_version(conn));
		if (!watch_say(ctl, "reconnected", text)) {
			gm_ctl_conn_free(conn);
			return GPUMEM_OK;
		}
	}
	return status;
}

const struct gm_verb gm_verb_watch = {
	.name = "watch",
	.arguments = "[--device N]",
	.summary = "show events as they happen",
	.help = "  --device N      only events of this device\n"
		"  --no-reconnect  end with exit status 7 when the daemon ends\n\n"
		"Shows the level of pressure of each device, and then one line for each event:\n"
		"changes of the level, limits that are reached or changed, drains, requests that\n"
		"wait, reclaims, and clients that did not return memory in time. If the daemon\n"
		"ends, watch says so and waits for the next one. With --json, each line is an\n"
		"object.\n",
	.takes = GM_OPTION_DEVICE | GM_OPTION_NO_RECONNECT,
	.streams = true,
	.run = watch_run,
};
