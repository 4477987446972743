/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * gpumemctl watch: a line per event, as it happens, until the daemon says goodbye or the reader has
 * gone. With --json each line is an object by itself.
 */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/device.h"
#include "ctl/text.h"
#include "ctl/verb.h"

static void add_text(json_t *object, const char *key, const char *text)
{
	char *clean = text && *text ? gm_text_clean(text, false) : NULL;

	json_object_set_new(object, key, clean ? json_string(clean) : json_null());
	free(clean);
}

static void add_number(json_t *object, const char *key, uint64_t n)
{
	json_object_set_new(object, key, json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n));
}

static void add_notice(json_t *object, const Gm__Wire__NoticeEvent *notice)
{
	static const char *const rungs[] = {
		"pool", "cached", "unused", "spill", "hold", "terminate"};

	if (notice->session) {
		add_number(object, "session", notice->session);
		add_number(object, "pid", notice->pid > 0 ? (uint64_t)notice->pid : 0);
		add_number(object, "uid", notice->uid);
		add_text(object, "client", notice->client);
		json_object_set_new(object, "priority", json_integer(notice->priority));
	}
	add_text(object, "owner", notice->owner);
	add_number(object, "asked", notice->asked);
	add_number(object, "held", notice->held);
	add_number(object, "max", notice->max);
	add_number(object, "bytes", notice->bytes);
	add_number(object, "waited_ms", notice->waited_ms);
	if (notice->n_rungs) {
		json_t *list = json_object();
		for (size_t i = 0; i < notice->n_rungs && i < sizeof(rungs) / sizeof(*rungs); i++)
			add_number(list, rungs[i], notice->rungs[i]);
		json_object_set_new(object, "rungs", list);
		add_text(object, "trigger", notice->trigger);
		add_number(object, "need", notice->need);
		json_object_set_new(object, "reached", json_boolean(notice->reached));
	}
}

/* What is told, as a kind, a device (-1: none) and a line. false: nothing that concerns a watcher.
 */
static bool read_event(
	const Gm__Wire__Packet *packet, const char **ret_kind, int64_t *ret_device, char line[1024])
{
	*ret_device = -1;
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_PRESSURE_EVENT:
		*ret_kind = "pressure";
		*ret_device = packet->pressure_event->device;
		snprintf(line, 1024, "device %u: pressure is %s (%u%%)",
			packet->pressure_event->device,
			gm_device_level(packet->pressure_event->level),
			packet->pressure_event->pressure_ppm / 10000);
		return true;
	case GM__WIRE__PACKET__BODY_NOTICE_EVENT:
		*ret_kind = packet->notice_event->kind;
		if (strcmp(packet->notice_event->kind, "limits"))
			*ret_device = packet->notice_event->device;
		snprintf(line, 1024, "%s", packet->notice_event->text);
		return true;
	case GM__WIRE__PACKET__BODY_GOODBYE_EVENT:
		*ret_kind = "goodbye";
		snprintf(line, 1024, "goodbye: %s", packet->goodbye_event->reason);
		return true;
	default:
		return false;
	}
}

static bool on_event(void *user, const Gm__Wire__Packet *packet)
{
	const struct gm_options *options = user;
	char line[1024], stamp[32] = "";
	const char *kind;
	int64_t device;
	time_t now = time(NULL);
	struct tm tm;

	if (!read_event(packet, &kind, &device, line))
		return true;
	if (options->given & GM_OPTION_DEVICE && device >= 0 && device != options->device)
		return true;
	if (localtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), options->json ? "%FT%T%z" : "%T", &tm);
	if (options->json) {
		json_t *object = json_object();
		add_text(object, "time", stamp);
		add_text(object, "event", kind);
		if (device >= 0)
			add_number(object, "device", (uint64_t)device);
		add_text(object, "text", line);
		if (packet->body_case == GM__WIRE__PACKET__BODY_PRESSURE_EVENT) {
			add_text(object, "level", gm_device_level(packet->pressure_event->level));
			json_object_set_new(object, "pressure",
				json_real(packet->pressure_event->pressure_ppm / 1e6));
		} else if (packet->body_case == GM__WIRE__PACKET__BODY_NOTICE_EVENT) {
			add_notice(object, packet->notice_event);
		}
		char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
		json_decref(object);
		printf("%s\n", text ? text : "{}");
		free(text);
	} else {
		char *clean = gm_text_clean(line, false);
		printf("%s  %-15s  %s\n", stamp, kind, clean ? clean : "");
		free(clean);
	}
	/* At once, and no longer than somebody reads. */
	return fflush(stdout) == 0 && packet->body_case != GM__WIRE__PACKET__BODY_GOODBYE_EVENT;
}

gpumem_status gm_verb_watch(struct gm_ctl *ctl)
{
	struct gm_conn *conn;

	gpumem_status status =
		gm_conn_open(ctl->options->socket, ctl->options->timeout_ms, &ctl->trouble, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = gm_verb_require_device(ctl, conn);
	if (status == GPUMEM_OK)
		status = gm_conn_watch(conn, on_event, (void *)ctl->options, &ctl->trouble);
	gm_conn_free(conn);
	ctl->streamed = true;
	return status;
}
