/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_NET_LOG_LIMIT_H
#define GM_DAEMON_NET_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/log.h"
#include "daemon/user/user.h"

/*
 * How much one user can make the daemon log, and tell watchers. Each user may cause GM_LOG_LIMIT_LINES lines in
 * GM_LOG_LIMIT_S seconds, and as many warnings and errors: a user who does much else must not be able to
 * hide those. The daemon counts the lines that it leaves out, and writes at the end of that time how many they were: events of
 * one kind with the text of the first of them, and the others as a sum.
 * Lines are slots of the user (daemon/user/user.h), which are given back together at the end of that time. Lines for
 * debugging are not counted: an administrator asked for them.
 */
#define GM_LOG_LIMIT_LINES 50
#define GM_LOG_LIMIT_S     10
/* What is kept of the line that stands for those that are left out, with its end. */
#define GM_LOG_LIMIT_LIKE 384
/* Watchers hear of this many events about one user in a second, and of as many warnings. In each second they also
 * hear once each that events and warnings are left out. Two such seconds may follow each other at once. That is not
 * much more than half of the events that the daemon keeps for watchers (daemon/serve/watch_news.h), so no user drives out
 * the events about others. */
#define GM_LOG_LIMIT_NEWS 16

/* How many events there were in this second. All fields 0: none yet. */
struct gm_log_limit_news {
	uint64_t until_ms; /* the end of the second */
	uint32_t n, warnings;
};

struct gm_log_limit_user;

/* Embedded in gm_hub. */
struct gm_log_limit {
	struct gm_user_table *table;
	struct gm_log_limit_user *users; /* those that caused a line lately, oldest first */
	uv_timer_t timer;
	bool timer_open;
};

enum gm_log_limit_kind {
	GM_LOG_LIMIT_CONNECTION, /* a connection was dropped or refused */
	GM_LOG_LIMIT_EVENT,      /* see gm_log_limit_leave_out() */
	GM_LOG_LIMIT_OTHER,
	GM_LOG_LIMIT_KINDS
};

/* Bounds the lines of users. The table must outlive quiet. */
void gm_log_limit_init(struct gm_log_limit *quiet, struct gm_user_table *table, uv_loop_t *loop);
/* Closes the handle and forgets all. The loop must turn once more before the memory goes. */
void gm_log_limit_close(struct gm_log_limit *quiet);
/* Forgets the users whose time is over at now_ms, in the loop's time, and says what was left out. The
 * timer does so; here for tests. */
void gm_log_limit_expire(struct gm_log_limit *quiet, uint64_t now_ms);
/* Whether a line of this level that this user causes may be logged. If not, it is counted. */
bool gm_log_limit_allows(struct gm_log_limit *quiet, uid_t payer_uid, enum gm_log_level level,
	enum gm_log_limit_kind kind);
/* Counts a line about an event that the log does not get. like: the line, of which there will be one with their number if
 * most events of this time are of this kind. */
void gm_log_limit_leave_out(
	struct gm_log_limit *quiet, uid_t payer_uid, int event, const char *like);
/* Whether watchers may hear of an event of this level about this user. *ret_first: it is the first one in
 * this second of which they may not. */
bool gm_log_limit_allows_news(
	struct gm_log_limit *quiet, uid_t payer_uid, enum gm_log_level level, bool *ret_first);
/* The same for events about no user. The caller has a count for each thing that they are about. */
bool gm_log_limit_news_allows(
	struct gm_log_limit_news *news, uint64_t now_ms, enum gm_log_level level, bool *ret_first);

#endif
