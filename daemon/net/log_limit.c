/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines per user. A record lives from the first line until the timer finds that its time is over, up
 * to a second late. There are as many as users caused a line in the last seconds, but no more
 * than GM_BOUND_LOGGED_UIDS. A further user, or one for which there is
 * no memory, says nothing at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/net/log_limit.h"

/* How often the timer looks, while there are records. */
#define QUIET_LOOK_MS 1000

struct gm_log_limit_user {
	struct gm_user *user;
	struct gm_user_charge logged, lines, warnings;
	uint64_t until_ms;
	struct gm_log_limit_news news;
	uint64_t left_out[GM_LOG_LIMIT_KINDS];
	int event; /* the kind of events that like is of */
	char like[GM_LOG_LIMIT_LIKE];
	struct gm_log_limit_user *prev, *next;
};

static void log_limit_sum_up(const struct gm_log_limit_user *user)
{
	char uid[32], who[GM_UID_NAME_TEXT], more[GM_UNITS_TEXT], lines[48 + GM_UID_NAME_TEXT] = "";
	const char *const fields[] = {uid, NULL};
	uint64_t connections = user->left_out[GM_LOG_LIMIT_CONNECTION];
	uint64_t others = user->left_out[GM_LOG_LIMIT_OTHER];

	snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", user->user->uid);
	if (user->left_out[GM_LOG_LIMIT_EVENT])
		gm_log_fields(GM_LOG_NOTICE, fields, "%s (%s more like this)", user->like,
			gm_format_count(user->left_out[GM_LOG_LIMIT_EVENT], more));
	if (connections == 0 && others == 0)
		return;
	gm_uid_name_say(user->user->uid, who);
	if (others)
		snprintf(lines, sizeof(lines), "left out %llu log line%s about %s",
			(unsigned long long)others, others == 1 ? "" : "s", who);
	if (connections)
		gm_log_fields(GM_LOG_WARNING, fields,
			"dropped %llu more connection%s from %s in %d s%s%s",
			(unsigned long long)connections, connections == 1 ? "" : "s", who,
			GM_LOG_LIMIT_S, others ? ", and " : "", lines);
	else
		gm_log_fields(GM_LOG_WARNING, fields, "%s in %d s", lines, GM_LOG_LIMIT_S);
}

/* Gives the user its lines back. */
static void log_limit_free(struct gm_log_limit_user *user)
{
	gm_user_charge_deinit(&user->logged);
	gm_user_charge_deinit(&user->lines);
	gm_user_charge_deinit(&user->warnings);
	user->user->quiet = NULL;
	gm_user_unref(user->user);
	free(user);
}

void gm_log_limit_expire(struct gm_log_limit *quiet, uint64_t now_ms)
{
	struct gm_log_limit_user *user, *next;

	DL_FOREACH_SAFE (quiet->users, user, next) {
		if (user->until_ms > now_ms)
			continue;
		log_limit_sum_up(user);
		DL_DELETE(quiet->users, user);
		log_limit_free(user);
	}
	if (!quiet->users)
		uv_timer_stop(&quiet->timer);
}

static void log_limit_on_timer(uv_timer_t *timer)
{
	gm_log_limit_expire(timer->data, uv_now(timer->loop));
}

void gm_log_limit_init(struct gm_log_limit *quiet, struct gm_user_table *table, uv_loop_t *loop)
{
	memset(quiet, 0, sizeof(*quiet));
	quiet->table = table;
	table->bounds[GM_USER_LOG_LINES].own = GM_LOG_LIMIT_LINES;
	table->bounds[GM_USER_LOG_WARNINGS].own = GM_LOG_LIMIT_LINES;
	uv_timer_init(loop, &quiet->timer); /* cannot fail */
	uv_unref((uv_handle_t *)&quiet->timer);
	quiet->timer.data = quiet;
	quiet->timer_open = true;
}

void gm_log_limit_close(struct gm_log_limit *quiet)
{
	if (!quiet->timer_open)
		return;
	gm_log_limit_expire(quiet, UINT64_MAX);
	uv_close((uv_handle_t *)&quiet->timer, NULL);
	quiet->timer_open = false;
}

/* Makes the record of a user that has none. NULL: there are too many, or no memory. */
static struct gm_log_limit_user *log_limit_new(struct gm_log_limit *quiet, struct gm_user *counted)
{
	if (gm_user_check(counted, GM_USER_LOGGED, 1))
		return NULL;
	struct gm_log_limit_user *user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;

	user->user = gm_user_ref(counted);
	counted->quiet = user;
	gm_user_charge_init(&user->logged, counted, GM_USER_LOGGED);
	gm_user_charge_add(&user->logged, 1);
	gm_user_charge_init(&user->lines, counted, GM_USER_LOG_LINES);
	gm_user_charge_init(&user->warnings, counted, GM_USER_LOG_WARNINGS);
	user->until_ms = uv_now(quiet->timer.loop) + GM_LOG_LIMIT_S * 1000;
	DL_APPEND(quiet->users, user);
	if (!uv_is_active((uv_handle_t *)&quiet->timer))
		uv_timer_start(&quiet->timer, log_limit_on_timer, QUIET_LOOK_MS, QUIET_LOOK_MS);
	return user;
}

static struct gm_log_limit_user *log_limit_get(struct gm_log_limit *quiet, uid_t payer_uid)
{
	struct gm_user *counted = gm_user_get(quiet->table, payer_uid);
	if (!counted)
		return NULL;

	struct gm_log_limit_user *user =
		counted->quiet ? counted->quiet : log_limit_new(quiet, counted);
	gm_user_unref(counted);
	return user;
}

bool gm_log_limit_allows(struct gm_log_limit *quiet, uid_t payer_uid, enum gm_log_level level,
	enum gm_log_limit_kind kind)
{
	if (level >= GM_LOG_DEBUG)
		return true;

	struct gm_log_limit_user *user = quiet->timer_open ? log_limit_get(quiet, payer_uid) : NULL;

	if (!user)
		return false;
	if (gm_user_charge(level <= GM_LOG_WARNING ? &user->warnings : &user->lines, 1) == 0)
		return true;
	if (kind != GM_LOG_LIMIT_EVENT)
		user->left_out[kind]++;
	return false;
}

void gm_log_limit_leave_out(
	struct gm_log_limit *quiet, uid_t payer_uid, int event, const char *like)
{
	struct gm_log_limit_user *user = quiet->timer_open ? log_limit_get(quiet, payer_uid) : NULL;

	if (!user)
		return;
	if (!user->left_out[GM_LOG_LIMIT_EVENT]) {
		user->event = event;
		snprintf(user->like, sizeof(user->like), "%s", like);
		gm_text_mend(user->like);
	}
	user->left_out[user->event == event ? GM_LOG_LIMIT_EVENT : GM_LOG_LIMIT_OTHER]++;
}

bool gm_log_limit_news_allows(
	struct gm_log_limit_news *news, uint64_t now_ms, enum gm_log_level level, bool *ret_first)
{
	if (now_ms >= news->until_ms)
		*news = (struct gm_log_limit_news){.until_ms = now_ms + 1000};

	uint32_t *n = level <= GM_LOG_WARNING ? &news->warnings : &news->n;
	++*n;
	*ret_first = *n == GM_LOG_LIMIT_NEWS + 1;
	return *n <= GM_LOG_LIMIT_NEWS;
}

bool gm_log_limit_allows_news(
	struct gm_log_limit *quiet, uid_t payer_uid, enum gm_log_level level, bool *ret_first)
{
	struct gm_log_limit_user *user = quiet->timer_open ? log_limit_get(quiet, payer_uid) : NULL;

	*ret_first = false;
	if (!user)
		return false;
	return gm_log_limit_news_allows(&user->news, uv_now(quiet->timer.loop), level, ret_first);
}
