/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_DEVICE_LIMIT_FIXTURE_H
#define GM_TESTS_UNIT_DEVICE_LIMIT_FIXTURE_H

/* Limits, and clients that they are for. */

#include <string.h>

#include "daemon/device/limit.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];

static inline void setup(void)
{
	struct gm_core_device_info info = fake_info(64 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	detail[0] = 0;
}

static inline void teardown(void)
{
	fake_core_deinit(&fake);
}

static inline struct gm_owner owner(const char *text)
{
	struct gm_owner o;
	ck_assert_int_eq(gm_owner_parse(text, &o), 0);
	return o;
}

static inline gpumem_status set(const char *text, uint64_t max, uint64_t guarantee)
{
	struct gm_owner o = owner(text);
	struct gm_limit_values v = {.max = max, .guarantee = guarantee};
	v.set = (max ? GM_LIMIT_MAX : 0) | (guarantee ? GM_LIMIT_GUARANTEE : 0);
	return gm_core_set_limit(fake.core, &o, d, &v, detail);
}

static inline gpumem_status prefer(const char *text, int32_t priority)
{
	struct gm_owner o = owner(text);
	struct gm_limit_values v = {.set = GM_LIMIT_PRIORITY, .priority = priority};
	return gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail);
}

static inline struct gm_session *client(
	uid_t uid, gid_t gid, const char *unit, const char *container, const char *name)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {.pid = 1,
		.uid = uid,
		.gid = gid,
		.domain = uid + 1,
		.pooling = true,
		.unit = unit,
		.container = container,
		.name = name};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

static inline gpumem_status ask(struct gm_session *session, uint64_t bytes)
{
	struct fake_request q;
	fake_ask(&fake, &q, session, d, bytes, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	strcpy(detail, q.detail);
	fake_core_check(&fake, d);
	return q.status;
}

struct seen {
	const char *text;
	struct gm_limit_info info;
	unsigned n, all;
};

static inline bool see(void *ctx, const struct gm_limit_info *info)
{
	struct seen *seen = ctx;
	char text[GM_OWNER_TEXT];
	seen->all++;
	if (strcmp(gm_owner_format(&info->owner, text), seen->text) != 0 || info->device != d)
		return true;
	seen->info = *info;
	seen->n++;
	return true;
}

static inline struct gm_limit_info shown(const char *text)
{
	struct seen seen = {.text = text};
	gm_core_limit_each(fake.core, &(struct gm_limit_place){0}, see, &seen);
	ck_assert_msg(seen.n == 1, "%s is shown %u times", text, seen.n);
	return seen.info;
}

static inline unsigned count(void)
{
	struct seen seen = {.text = ""};
	gm_core_limit_each(fake.core, &(struct gm_limit_place){0}, see, &seen);
	return seen.all;
}

#endif
