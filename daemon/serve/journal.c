/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journal entries about memory: their ids, levels and fields. The line for people is made here and
 * nowhere else, so that the journal and gpumemctl watch say the same.
 */
#include "daemon/serve/journal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/text_say.h"
#include "daemon/device/limit.h"

static const struct {
	const char *kind, *id;
	enum gm_log_level level;
} kinds[GM_EVENTS] = {
	[GM_EVENT_LIMIT] = {"limit", GM_MESSAGE_LIMIT, GM_LOG_NOTICE},
	[GM_EVENT_RECLAIM_STARTED] = {"reclaim-started", GM_MESSAGE_RECLAIM_STARTED, GM_LOG_INFO},
	[GM_EVENT_RECLAIM_ENDED] = {"reclaim-ended", GM_MESSAGE_RECLAIM_ENDED, GM_LOG_INFO},
	[GM_EVENT_IGNORED] = {"ignored", GM_MESSAGE_IGNORED, GM_LOG_NOTICE},
	[GM_EVENT_QUEUED] = {"queued", GM_MESSAGE_QUEUED, GM_LOG_INFO},
	[GM_EVENT_RESTS] = {"rests", GM_MESSAGE_RESTS, GM_LOG_INFO},
	[GM_EVENT_GRANTED] = {"granted", GM_MESSAGE_GRANTED, GM_LOG_INFO},
	[GM_EVENT_REFUSED] = {"refused", GM_MESSAGE_REFUSED, GM_LOG_NOTICE},
	[GM_EVENT_CANCELLED] = {"cancelled", GM_MESSAGE_CANCELLED, GM_LOG_INFO},
	[GM_EVENT_VICTIM] = {"terminated", GM_MESSAGE_TERMINATED, GM_LOG_WARNING},
};

const char *gm_journal_kind(enum gm_event_kind kind)
{
	return kinds[kind].kind;
}

enum gm_log_level gm_journal_counts_as(enum gm_event_kind kind)
{
	/* A user must not be able to hide it by running against its own limits. */
	return kind == GM_EVENT_IGNORED ? GM_LOG_WARNING : kinds[kind].level;
}

const char *gm_journal_trigger(enum gm_reclaim_trigger trigger)
{
	static const char *const names[GM_TRIGGERS] = {
		[GM_RECLAIM_TRIGGER_REQUEST] = "request",
		[GM_RECLAIM_TRIGGER_PRESSURE] = "pressure",
		[GM_RECLAIM_TRIGGER_MIN_FREE] = "min-free",
		[GM_RECLAIM_TRIGGER_MANUAL] = "manual",
	};
	return names[trigger];
}

void gm_journal_text(const struct gm_event *event, const struct gm_identity *identity,
	const char *name, char text[GM_JOURNAL_TEXT])
{
	char user[GM_UID_NAME_TEXT];

	if (!identity) {
		snprintf(text, GM_JOURNAL_TEXT, "%s", event->text);
		return;
	}
	if (!name || !name[0])
		name = identity->command;
	gm_uid_name_say(identity->uid, user);

	/* GPUMEM_CLIENT has the number, which says nothing to people. */
	snprintf(text, GM_JOURNAL_TEXT, "%s (pid %d, %s): %s", name, (int)identity->pid, user,
		event->text);
}

struct fields {
	char text[24][64 + GM_OWNER_TEXT];
	const char *list[25];
	size_t n;
};

static void journal_add(struct fields *fields, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void journal_add(struct fields *fields, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(fields->text[fields->n], sizeof(fields->text[0]), format, args);
	va_end(args);
	fields->list[fields->n] = fields->text[fields->n];
	fields->list[++fields->n] = NULL;
}

static void journal_add_number(struct fields *fields, const char *name, uint64_t n)
{
	journal_add(fields, "GPUMEM_%s=%llu", name, (unsigned long long)n);
}

static void journal_add_identity(struct fields *fields, const struct gm_identity *identity)
{
	journal_add(fields, "GPUMEM_PID=%d", (int)identity->pid);
	journal_add(fields, "GPUMEM_UID=%u", identity->uid);
}

void gm_journal_event(
	const struct gm_event *event, const struct gm_identity *identity, const char *text)
{
	struct fields f = {.n = 0};

	journal_add(&f, "MESSAGE_ID=%s", kinds[event->kind].id);
	journal_add(&f, "GPUMEM_EVENT=%s", kinds[event->kind].kind);
	journal_add_number(&f, "DEVICE", event->device);
	if (event->session)
		journal_add_number(&f, "CLIENT", gm_session_id(event->session));
	if (identity)
		journal_add_identity(&f, identity);

	switch (event->kind) {
	case GM_EVENT_RECLAIM_STARTED:
	case GM_EVENT_RECLAIM_ENDED: {
		uint64_t sum = 0;
		for (size_t i = 0; i < GM_STAGES; i++)
			sum += event->stages[i];
		journal_add(&f, "GPUMEM_TRIGGER=%s", gm_journal_trigger(event->trigger));
		journal_add_number(&f, "NEED", event->need);
		journal_add_number(&f, "BYTES", sum);
		if (event->kind == GM_EVENT_RECLAIM_ENDED)
			journal_add_number(&f, "REACHED", event->reached);
		break;
	}
	case GM_EVENT_VICTIM:
		journal_add_number(&f, "HELD", event->held);
		journal_add(&f, "GPUMEM_PRIORITY=%d", event->priority);
		if (event->error)
			journal_add(&f, "ERRNO=%d", -event->error);
		break;
	default:
		journal_add_number(&f, "ASKED", event->asked);
		if (event->held)
			journal_add_number(&f, "HELD", event->held);
		if (event->max)
			journal_add_number(&f, "MAX", event->max);
		/* For a client that ignored a reclaim, 0 bytes are worth saying. */
		if (event->bytes || event->kind == GM_EVENT_IGNORED)
			journal_add_number(&f, "BYTES", event->bytes);
		if (event->waited_ns)
			journal_add_number(&f, "WAITED_MS", event->waited_ns / GM_NS_PER_MS);
		if (event->kind == GM_EVENT_QUEUED || event->kind == GM_EVENT_RESTS)
			journal_add(&f, "GPUMEM_PRIORITY=%d", event->priority);
		if (event->owner) {
			char owner[GM_OWNER_TEXT];
			journal_add(&f, "GPUMEM_OWNER=%s", gm_owner_name(event->owner, owner));
		}
		if (event->status)
			journal_add_number(&f, "STATUS", (uint64_t)event->status);
		break;
	}

	gm_log_fields(kinds[event->kind].level, f.list, "%s", text);
}

void gm_journal_pressure(uint32_t device, const struct gm_device_figures *figures)
{
	static const char *const names[GM_LEVELS] = {"low", "medium", "high", "critical"};
	static const char *const next[GM_LEVELS] = {"nothing needs to be done",
		"the reserve is not refilled",
		"pooled chunks are destroyed, and clients are asked for what they cache",
		"clients must return everything unused, and new leases of lower priority wait or are refused"};
	char available[GM_UNITS_TEXT], capacity[GM_UNITS_TEXT];
	struct fields f = {.n = 0};

	journal_add(&f, "MESSAGE_ID=%s", GM_MESSAGE_PRESSURE);
	journal_add(&f, "GPUMEM_EVENT=pressure");
	journal_add_number(&f, "DEVICE", device);
	journal_add(&f, "GPUMEM_LEVEL=%s", names[figures->level]);
	journal_add_number(&f, "PRESSURE_PPM", figures->pressure_ppm);
	journal_add_number(&f, "AVAILABLE", figures->available);
	journal_add_number(&f, "FOREIGN", figures->foreign);

	gm_log_fields(GM_LOG_INFO, f.list, "device %u: pressure is %s: %s of %s available; %s",
		device, names[figures->level], gm_format_size(figures->available, available),
		gm_format_size(figures->capacity, capacity), next[figures->level]);
}

const char *gm_journal_owner(const char *owner, char text[GM_JOURNAL_OWNER])
{
	static const char word[] = "user ";
	char user[GM_UID_NAME_TEXT];
	unsigned uid;

	if (sscanf(owner, "uid:%u", &uid) != 1)
		snprintf(text, GM_JOURNAL_OWNER, "%s", owner);
	else
		snprintf(text, GM_JOURNAL_OWNER, "uid:%s",
			gm_uid_name_say(uid, user) + strlen(word));
	return text;
}

void gm_journal_limits(const struct gm_identity *who, const char *owner, const char *what)
{
	struct fields f = {.n = 0};
	char user[GM_UID_NAME_TEXT], name[GM_JOURNAL_OWNER];

	journal_add(&f, "MESSAGE_ID=%s", GM_MESSAGE_LIMITS_SET);
	journal_add(&f, "GPUMEM_EVENT=limits");
	journal_add_identity(&f, who);
	journal_add(&f, "GPUMEM_OWNER=%s", owner);

	gm_log_fields(GM_LOG_NOTICE, f.list, "%s (%s, pid %d) changed limits: %s %s",
		gm_uid_name_say(who->uid, user), who->command, (int)who->pid,
		gm_journal_owner(owner, name), what);
}

/* "max 50.0M and guarantee 10.0M": the values of the bits. A priority contradicts nothing and is left out. */
static const char *journal_values(
	const struct gm_limit_values *values, unsigned bits, char text[GM_DETAIL_BYTES])
{
	char value[GM_UNITS_TEXT];
	int n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++) {
		const struct gm_limit_kind *kind = &gm_limit_kinds[i];

		if (bits & kind->bit && kind->bit != GM_LIMIT_PRIORITY)
			n += snprintf(text + n, (size_t)(GM_DETAIL_BYTES - n), "%s%s %s",
				n ? " and " : "", kind->name,
				gm_limit_values_text(values, kind, value));
	}
	return text;
}

void gm_journal_contradiction(const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *set, const struct gm_limit_values *now, const char *why)
{
	struct fields f = {.n = 0};
	char who[GM_OWNER_TEXT], name[GM_OWNER_TEXT], values[GM_DETAIL_BYTES];
	char guarantee[GM_UNITS_TEXT];
	unsigned dropped = set->set & ~now->set;
	bool lowered = now->set & GM_LIMIT_GUARANTEE;

	gm_owner_format(owner, who);
	gm_owner_name(owner, name);
	journal_add(&f, "MESSAGE_ID=%s", GM_MESSAGE_CONTRADICTION);
	journal_add(&f, "GPUMEM_EVENT=contradiction");
	journal_add_number(&f, "DEVICE", device);
	journal_add(&f, "GPUMEM_OWNER=%s", name);

	if (lowered)
		gm_log_fields(GM_LOG_WARNING, f.list,
			"%s, device %u: the limit that was set at run time (%s) contradicts the configuration (%s): the max stays, and the guarantee is now %s; to use the configuration: gpumemctl limit reset %s",
			who, device, journal_values(set, set->set, values), why,
			gm_format_size(now->guarantee, guarantee), name);
	else
		gm_log_fields(GM_LOG_WARNING, f.list,
			"%s, device %u: %s, set at run time, contradicts the configuration and is dropped (%s); change the configuration, or set it again: gpumemctl limit set %s",
			who, device, journal_values(set, dropped, values), why, name);
}

void gm_journal_drain(const struct gm_identity *who, uint32_t device, bool undone)
{
	struct fields f = {.n = 0};
	char user[GM_UID_NAME_TEXT];

	journal_add(&f, "MESSAGE_ID=%s", GM_MESSAGE_DRAIN);
	journal_add(&f, "GPUMEM_EVENT=drain");
	journal_add_identity(&f, who);
	journal_add_number(&f, "DEVICE", device);

	gm_log_fields(GM_LOG_NOTICE, f.list, "%s (%s, pid %d) %s device %u",
		gm_uid_name_say(who->uid, user), who->command, (int)who->pid,
		undone ? "ended the drain of" : "drains", device);
}
