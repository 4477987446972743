/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_JOURNAL_H
#define GM_DAEMON_JOURNAL_H

#include <stdint.h>

#include "common/log.h"
#include "common/text/uid_name.h"
#include "common/text/limit_values.h"
#include "daemon/books/owner.h"
#include "daemon/core/core.h"
#include "daemon/net/identity.h"

/*
 * Journal entries about memory: a line for people, and a message id and fields for programs.
 * gpumemd(8) lists them. The ids must never change.
 */
#define GM_MESSAGE_PRESSURE        "04662ca187fe4f44a77c4a76b8e4e654"
#define GM_MESSAGE_LIMIT           "ca7196926c7142adbafd7bfaf8afe8f2"
#define GM_MESSAGE_RECLAIM_STARTED "25e213aaa1434763812d4a72e98a7d31"
#define GM_MESSAGE_RECLAIM_ENDED   "8ae7d32e0aae40418157d8b313788efd"
#define GM_MESSAGE_IGNORED         "2a9c9b8f86f84fe98fc37276c0786664"
#define GM_MESSAGE_QUEUED          "bff1e08216e54876a036ad281ddf24e1"
#define GM_MESSAGE_RESTS           "fc7e9562f3354f49a40e3debf7125c19"
#define GM_MESSAGE_GRANTED         "2bb463bcdae34de8b40add7e63abcfac"
#define GM_MESSAGE_CANCELLED       "59d8ab10efd14c0693e8b0a54f3c1c77"
#define GM_MESSAGE_REFUSED         "926526606af1482ea8d36e93da17e071"
#define GM_MESSAGE_TERMINATED      "4df97b7e1c4d435e965de88bb9fd397f"
#define GM_MESSAGE_LIMITS_SET      "4cdd51f1f9b341b1ad6e6cfde7d147be"
#define GM_MESSAGE_CONTRADICTION   "b1f0c2e86d0b4c0fa51f7d3c9a6e2b74"
#define GM_MESSAGE_POWERLESS       "97e05145fd13481ea3d2e6a12e8ad477"
#define GM_MESSAGE_DRAIN           "5e0b7d3a9c424f6f8a1d2c7be95b60d4"

#define GM_JOURNAL_TEXT 640

/* "limit", "reclaim-started", …: the name of a kind in gpumemctl watch and in GPUMEM_EVENT=. */
const char *gm_journal_kind(enum gm_event_kind kind);
const char *gm_journal_trigger(enum gm_reclaim_trigger trigger);
/* The level that an event counts as where each user may cause only so many (daemon/net/log_limit.h). */
enum gm_log_level gm_journal_counts_as(enum gm_event_kind kind);
/* Makes the whole line: the client that the event is about, and core's own words. identity NULL:
 * the event is about no client, or the client has gone. */
void gm_journal_text(const struct gm_event *event, const struct gm_identity *identity,
	const char *name, char text[GM_JOURNAL_TEXT]);
/* Writes an event's entry, with that line. */
void gm_journal_event(
	const struct gm_event *event, const struct gm_identity *identity, const char *text);
void gm_journal_pressure(uint32_t device, const struct gm_device_figures *figures);
#define GM_JOURNAL_OWNER (GM_OWNER_TEXT + GM_UID_NAME_TEXT)
/* Writes an owner with the name of its user, if that is known: "uid:ann". Returns text. */
const char *gm_journal_owner(const char *owner, char text[GM_JOURNAL_OWNER]);
/* An administrator changed limits. */
void gm_journal_limits(const struct gm_identity *who, const char *owner, const char *what);
/* At a start: the values of an owner on a device, which were set at run time, contradict the configuration (why). The
 * values now hold instead. */
void gm_journal_contradiction(const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *set, const struct gm_limit_values *now, const char *why);
/* An administrator drains a device, or (undone) ends that. */
void gm_journal_drain(const struct gm_identity *who, uint32_t device, bool undone);

#endif
