/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/quota.c and owner.c, through the core: whose limit counts, what a refusal says, what
 * contradicts what, and what stays over a reload. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/device/quota.h"
#include "tests/limit.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];

static void setup(void)
{
	struct gm_core_device_info info = fake_info(64 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	detail[0] = 0;
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static struct gm_owner owner(const char *text)
{
	struct gm_owner o;
	ck_assert_int_eq(gm_owner_parse(text, &o), 0);
	return o;
}

static gpumem_status set(const char *text, uint64_t max, uint64_t guarantee)
{
	struct gm_owner o = owner(text);
	struct gm_quota_values v = {.max = max, .guarantee = guarantee};
	v.set = (max ? GM_QUOTA_MAX : 0) | (guarantee ? GM_QUOTA_GUARANTEE : 0);
	return gm_core_set_quota(fake.core, &o, d, &v, detail);
}

static gpumem_status prefer(const char *text, int32_t priority)
{
	struct gm_owner o = owner(text);
	struct gm_quota_values v = {.set = GM_QUOTA_PRIORITY, .priority = priority};
	return gm_core_set_quota(fake.core, &o, GM_ALL_DEVICES, &v, detail);
}

static struct gm_session *client(
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

static struct gm_session *subordinate(uid_t payer_uid, uid_t uid)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {
		.pid = 1, .uid = uid, .payer_uid = payer_uid, .domain = uid + 1, .pooling = true};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

static gpumem_status ask(struct gm_session *session, uint64_t bytes)
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
	struct gm_quota_info info;
	unsigned n, all;
};

static bool see(void *ctx, const struct gm_quota_info *info)
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

static struct gm_quota_info shown(const char *text)
{
	struct seen seen = {.text = text};
	gm_core_quota_each(fake.core, &(struct gm_quota_place){0}, see, &seen);
	ck_assert_msg(seen.n == 1, "%s is shown %u times", text, seen.n);
	return seen.info;
}

static unsigned count(void)
{
	struct seen seen = {.text = ""};
	gm_core_quota_each(fake.core, &(struct gm_quota_place){0}, see, &seen);
	return seen.all;
}

START_TEST(owners_are_written_as_they_are_read)
{
	static const char *const good[][2] = {{"uid:1002", "uid 1002"}, {"gid:0", "gid 0"},
		{"unit:training.service", "unit training.service"},
		{"container:web:1", "container web:1"}, {"client:a b", "client a b"},
		{"run:1f", "run 1f"},
		{"session:18446744073709551615", "session 18446744073709551615"}};
	static const char *const bad[] = {"container:\xff\xfe", "unit:a\x1b[2J", "client:\xc3", "",
		"uid", "uid:", "uid:x", "uid:-1", "uid:4294967295", "user:1",
		"unit:", "client:", "Uid:1", "uid :1"};
	char text[GM_OWNER_TEXT], longest[GM_OWNER_NAME_BYTES + 8];
	struct gm_owner o, untouched;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		o = owner(good[i][0]);
		ck_assert_str_eq(gm_owner_format(&o, text), good[i][1]);
		ck_assert_str_eq(gm_owner_name(&o, text), good[i][0]);
	}
	memset(&untouched, 7, sizeof(untouched));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		o = untouched;
		ck_assert_msg(gm_owner_parse(bad[i], &o) == -EINVAL, "%s", bad[i]);
		ck_assert_mem_eq(&o, &untouched, sizeof(o));
	}
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "unit:", 5);
	longest[5 + GM_OWNER_NAME_BYTES] = 0;
	ck_assert_int_eq(gm_owner_parse(longest, &o), 0);
	ck_assert_uint_eq(strlen(gm_owner_format(&o, text)), 5 + GM_OWNER_NAME_BYTES);
	longest[5 + GM_OWNER_NAME_BYTES] = 'x';
	longest[6 + GM_OWNER_NAME_BYTES] = 0;
	ck_assert_int_eq(gm_owner_parse(longest, &o), -EINVAL);
}
END_TEST

START_TEST(a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked)
{
	struct gm_session *s = client(1002, 5, NULL, NULL, NULL);
	ck_assert_int_eq(set("uid:1002", 48 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 48 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(detail,
		"uid 1002 may hold 48.0G, holds 48.0G, asked for 2.0G; see gpumemctl limit");
	ck_assert_int_eq(ask(s, 49 * GiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(detail,
		"uid 1002 may hold 48.0G, holds 48.0G, asked for 49.0G, which it can never have; "
		"see gpumemctl limit");
}
END_TEST

START_TEST(every_max_that_matches_applies)
{
	static const char *const texts[] = {
		"uid:7", "gid:8", "unit:u.service", "container:c", "client:n"};
	struct gm_session *s = client(7, 8, "u.service", "c", "n");
	struct gm_session *other = client(9, 9, "v.service", "d", "m");
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_int_eq(set(texts[i], 10 * MiB, 0), GPUMEM_OK);
		ck_assert_int_eq(ask(s, 12 * MiB), GPUMEM_E_LIMIT);
		ck_assert_int_eq(ask(other, 12 * MiB), GPUMEM_OK);
		struct gm_owner o = owner(texts[i]);
		ck_assert_int_eq(gm_core_reset_quota(fake.core, &o, d, detail), GPUMEM_OK);
		ck_assert_int_eq(ask(s, 12 * MiB), GPUMEM_OK);
	}
	char text[64];
	snprintf(text, sizeof(text), "session:%llu", (unsigned long long)gm_session_id(s));
	ck_assert_int_eq(set(text, 64 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 6 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(s, 4 * MiB), GPUMEM_OK);
	/* All together: the tightest is met first, whichever it is. */
	ck_assert_int_eq(set("uid:7", 80 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set(text, 1 * GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 80 * MiB);
	ck_assert_uint_eq(gm_session_max(other, d), UINT64_MAX);
	ck_assert_int_eq(ask(s, 18 * MiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "uid 7 "));
}
END_TEST

START_TEST(it_is_shared_by_all_clients_of_the_owner_and_never_passed_by_a_byte)
{
	struct gm_session *s[8];
	ck_assert_int_eq(set("uid:7", 101 * MiB, 0), GPUMEM_OK);
	for (int i = 0; i < 8; i++)
		s[i] = client(7, 100 + (gid_t)i, NULL, NULL, NULL);
	uint64_t held = 0;
	for (int i = 0; i < 100; i++) {
		/* Sizes that would be rounded up if there were room. */
		if (ask(s[i % 8], 3 * MiB) == GPUMEM_OK)
			held += 4 * MiB;
		ck_assert_uint_eq(shown("uid 7").held, held);
		ck_assert_uint_le(held, 101 * MiB);
	}
	ck_assert_uint_eq(held, 100 * MiB);
	ck_assert_uint_eq(shown("uid 7").clients, 8);
	gm_session_end_died(s[0]);
	fake_core_run(&fake);
	ck_assert_uint_eq(shown("uid 7").clients, 7);
	ck_assert_uint_eq(shown("uid 7").held, 100 * MiB - 16 * MiB);
	ck_assert_int_eq(ask(s[1], 16 * MiB), GPUMEM_OK);
}
END_TEST

START_TEST(it_counts_for_the_user_who_pays_for_a_uid)
{
	struct gm_session *user = client(1002, 1, NULL, NULL, NULL);
	struct gm_session *one = subordinate(1002, 100000), *two = subordinate(1002, 100001);
	ck_assert_int_eq(set("uid:1002", 8 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("uid:100001", 2 * MiB, 0), GPUMEM_OK);

	ck_assert_int_eq(ask(user, 2 * MiB), GPUMEM_OK);
	ck_assert_int_eq(ask(one, 2 * MiB), GPUMEM_OK);
	ck_assert_int_eq(ask(two, 4 * MiB), GPUMEM_OK);
	ck_assert_uint_eq(shown("uid 1002").held, 8 * MiB);
	ck_assert_uint_eq(shown("uid 1002").clients, 3);
	ck_assert_uint_eq(shown("uid 100001").held, 0);

	ck_assert_int_eq(ask(user, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(
		detail, "uid 1002 may hold 8.0M, holds 8.0M, asked for 2.0M; see gpumemctl limit");
	ck_assert_int_eq(ask(two, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(detail,
		"uid 1002 (with subordinate uid 100001) may hold 8.0M, holds 8.0M, asked for 2.0M; "
		"see gpumemctl limit");
}
END_TEST

START_TEST(rounding_up_stops_at_the_limit)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	/* 1 GiB - 2 MiB would be a chunk of 1 GiB where there is room for it. */
	ck_assert_int_eq(ask(s, GiB - 2 * MiB), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(s, d), GiB);
	ck_assert_int_eq(set("uid:7", 2 * GiB - 2 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, GiB - 2 * MiB), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(s, d), 2 * GiB - 2 * MiB);
}
END_TEST

START_TEST(a_max_below_what_is_held_is_over_and_takes_nothing)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	struct gm_lease *lease = fake_lease(&fake, s, d, 8 * GiB);
	ck_assert_int_eq(set("uid:7", 2 * GiB, 0), GPUMEM_OK);
	ck_assert(shown("uid 7").over);
	ck_assert_uint_eq(shown("uid 7").held, 8 * GiB);
	ck_assert_uint_eq(gm_session_held(s, d), 8 * GiB);
	ck_assert_int_eq(ask(s, 2 * MiB), GPUMEM_E_LIMIT);
	gm_lease_return(s, lease);
	ck_assert(!shown("uid 7").over);
	ck_assert_int_eq(ask(s, 2 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 2 * MiB), GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(a_guarantee_is_kept_free_for_its_owner_under_full_load)
{
	struct gm_session *greedy = client(1, 1, NULL, NULL, NULL);
	struct gm_session *owner_client = client(2, 2, NULL, NULL, NULL);
	ck_assert_int_eq(set("uid:2", 0, 16 * GiB), GPUMEM_OK);
	while (ask(greedy, GiB) == GPUMEM_OK)
		;
	ck_assert_ptr_nonnull(strstr(detail, "keeps 16.0G of 16.0G for owners with a guarantee"));
	ck_assert_uint_eq(gm_session_held(greedy, d), 48 * GiB);
	ck_assert_int_eq(ask(greedy, 2 * MiB), GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(ask(owner_client, 6 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(greedy, 2 * MiB), GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(ask(owner_client, 10 * GiB), GPUMEM_OK);
	/* Beyond its guarantee it is one of many. */
	ck_assert_int_eq(ask(owner_client, 2 * MiB), GPUMEM_E_NO_MEMORY);
	gm_session_end_died(greedy);
	fake_core_run(&fake);
	ck_assert_int_eq(ask(owner_client, 48 * GiB), GPUMEM_OK);
	/* What it holds within its guarantee is not kept twice. */
	struct gm_session *late = client(3, 3, NULL, NULL, NULL);
	gm_session_end_died(owner_client);
	fake_core_run(&fake);
	ck_assert_int_eq(ask(late, 48 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(late, 2 * MiB), GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(ask(late, 50 * GiB), GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(detail, "keeps 16.0G of 64.0G"));
}
END_TEST

START_TEST(contradictions_are_an_error_and_change_nothing)
{
	struct gm_session *s = client(2, 2, NULL, NULL, NULL);
	ck_assert_int_eq(set("uid:2", 32 * GiB, 16 * GiB), GPUMEM_OK);
	ck_assert_int_eq(set("uid:2", 8 * GiB, 0), GPUMEM_E_INVALID);
	ck_assert_str_eq(detail, "uid 2: max 8.0G is below guarantee 16.0G");
	ck_assert_int_eq(set("uid:3", 0, 49 * GiB), GPUMEM_E_INVALID);
	ck_assert_ptr_nonnull(strstr(detail, "beyond its capacity of 64.0G"));
	ck_assert_int_eq(set("uid:3", 0, UINT64_MAX - 1), GPUMEM_E_INVALID);
	ck_assert_int_eq(set("gid:3", 0, 1 * GiB), GPUMEM_E_INVALID);
	ck_assert_ptr_nonnull(strstr(detail, "one kind of owner only"));
	ck_assert_int_eq(set("client:n", 0, 1 * GiB), GPUMEM_E_INVALID);
	ck_assert_ptr_nonnull(strstr(detail, "its own word"));
	ck_assert_int_eq(set("session:4711", GiB, 0), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(set("uid:2", 0, 0), GPUMEM_E_INVALID);
	struct gm_owner o = owner("uid:2");
	struct gm_quota_values v = {.set = GM_QUOTA_MAX, .max = GiB};
	ck_assert_int_eq(gm_core_set_quota(fake.core, &o, 7, &v, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(count(), 1);
	ck_assert_uint_eq(shown("uid 2").values.max, 32 * GiB);
	ck_assert_uint_eq(shown("uid 2").values.guarantee, 16 * GiB);
	ck_assert_int_eq(ask(s, 30 * GiB), GPUMEM_OK);
	/* Just as much as there is is no contradiction. */
	ck_assert_int_eq(set("uid:3", 0, 48 * GiB), GPUMEM_OK);
}
END_TEST

START_TEST(the_name_a_client_gives_itself_can_only_tighten)
{
	struct gm_session *s = client(7, 7, NULL, NULL, "vip");
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("client:vip", 32 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(prefer("client:vip", 9), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(s, d), 0);
	ck_assert_int_eq(prefer("client:vip", -9), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(s, d), -9);
	ck_assert_int_eq(prefer("uid:7", -20), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(s, d), -20);
}
END_TEST

START_TEST(what_others_hold_under_the_same_name_does_not_count)
{
	struct gm_session *mine = client(7, 7, NULL, NULL, "trainer");
	struct gm_session *stranger = client(8, 8, NULL, NULL, "trainer");
	struct gm_session *second = client(7, 7, NULL, NULL, "trainer");
	ck_assert_int_eq(set("client:trainer", 100 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(stranger, 64 * MiB), GPUMEM_OK);
	ck_assert_int_eq(ask(mine, 60 * MiB), GPUMEM_OK);

	/* One user's clients count together. */
	ck_assert_int_eq(ask(second, 60 * MiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "client trainer may hold 100.0M, holds 60.0M"));
	ck_assert_int_eq(ask(second, 40 * MiB), GPUMEM_OK);

	/* Who asks for all users sees the sum, which may be more than the max. */
	ck_assert_uint_eq(shown("client trainer").held, 164 * MiB);
	ck_assert_uint_eq(shown("client trainer").clients, 3);
	ck_assert(!shown("client trainer").over);
	ck_assert_uint_eq(count(), 1);
	struct seen seen = {.text = "client trainer"};
	gm_core_quota_each(fake.core, &(struct gm_quota_place){.user = 8 + 1}, see, &seen);
	ck_assert_uint_eq(seen.info.held, 64 * MiB);
	ck_assert_uint_eq(seen.info.clients, 1);

	/* The accounts outlive a change of limits, and end with their clients. */
	ck_assert_int_eq(set("client:trainer", 80 * MiB, 0), GPUMEM_OK);
	ck_assert(shown("client trainer").over);
	ck_assert_int_eq(ask(mine, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(stranger, 16 * MiB), GPUMEM_OK);
	gm_session_end_died(stranger);
	fake_core_run(&fake);
	ck_assert_uint_eq(shown("client trainer").held, 100 * MiB);
	ck_assert_uint_eq(shown("client trainer").clients, 2);
	gm_session_end_died(mine);
	gm_session_end_died(second);
	fake_core_run(&fake);
	ck_assert_uint_eq(shown("client trainer").held, 0);
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(count(), 2);
}
END_TEST

START_TEST(the_closest_owner_gives_the_priority)
{
	struct gm_session *s = client(7, 8, "u", "c", NULL);
	static const char *const rising[] = {"gid:8", "uid:7", "unit:u", "container:c"};
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(prefer(rising[i], 10 - 20 * (i % 2)), GPUMEM_OK);
		ck_assert_int_eq(fake_priority(s, d), 10 - 20 * (i % 2));
	}
	char text[64];
	snprintf(text, sizeof(text), "session:%llu", (unsigned long long)gm_session_id(s));
	ck_assert_int_eq(prefer(text, 5), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(s, d), 5);
	ck_assert_int_eq(fake_priority(client(7, 8, NULL, NULL, NULL), d), -10);
}
END_TEST

START_TEST(what_was_set_at_run_time_stays_over_a_reload_until_it_is_reset)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	struct gm_quota_rule rules[2] = {
		{.owner = owner("uid:7"),
			.device = GM_ALL_DEVICES,
			.values = {.set = GM_QUOTA_MAX | GM_QUOTA_PRIORITY,
				.max = 4 * GiB,
				.priority = 3}},
		{.owner = owner("uid:7"),
			.device = 0,
			.values = {.set = GM_QUOTA_MAX, .max = 5 * GiB}},
	};
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, 2, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 5 * GiB);
	ck_assert_int_eq(fake_priority(s, d), 3);
	ck_assert_int_eq(set("uid:7", 6 * GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 6 * GiB);
	ck_assert_uint_eq(shown("uid 7").run_time.set, GM_QUOTA_MAX);
	/* The reload changes what nobody set by hand. */
	rules[0].values.priority = 4;
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, 1, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 6 * GiB);
	ck_assert_int_eq(fake_priority(s, d), 4);
	struct gm_owner o = owner("uid:7");
	ck_assert_int_eq(gm_core_reset_quota(fake.core, &o, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 4 * GiB);
	ck_assert_int_eq(
		gm_core_reset_quota(fake.core, &o, GM_ALL_DEVICES, detail), GPUMEM_E_NOT_FOUND);
	/* No limit at all can be set by hand, too. */
	ck_assert_int_eq(set("uid:7", UINT64_MAX, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 8 * GiB), GPUMEM_OK);
	ck_assert_int_eq(gm_core_reset_quota(fake.core, NULL, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert(shown("uid 7").over);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, NULL, 0, detail), GPUMEM_OK);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(fake_priority(s, d), 0);
}
END_TEST

START_TEST(a_reload_that_contradicts_what_was_set_keeps_the_old_one)
{
	struct gm_quota_rule rule = {.owner = owner("uid:7"),
		.device = GM_ALL_DEVICES,
		.values = {.set = GM_QUOTA_GUARANTEE, .guarantee = 2 * GiB}};
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_E_INVALID);
	ck_assert_uint_eq(shown("uid 7").values.guarantee, 0);
	rule.owner = owner("session:1");
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_E_INVALID);
	rule.owner = owner("uid:8");
	rule.device = 3; /* not there: passed over */
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_OK);
	ck_assert_uint_eq(count(), 1);
}
END_TEST

START_TEST(a_single_clients_limit_goes_with_it)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	struct gm_session *other = client(8, 8, NULL, NULL, NULL);
	char text[64];
	snprintf(text, sizeof(text), "session:%llu", (unsigned long long)gm_session_id(s));
	ck_assert_int_eq(set(text, 0, 60 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(other, 5 * GiB), GPUMEM_E_NO_MEMORY);
	gm_session_end_died(s);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(ask(other, 64 * GiB), GPUMEM_OK);
}
END_TEST

/* A client of a run in a container; max 0: it says nothing about a limit. */
static struct gm_session *contained(
	uid_t uid, const char *container, const char *run, uint64_t max, int32_t priority)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {.pid = 1,
		.uid = uid,
		.gid = uid,
		.domain = uid + 1,
		.pooling = true,
		.container = container,
		.run = run,
		.run_limit = {.set = (max ? GM_QUOTA_MAX : 0) | (priority ? GM_QUOTA_PRIORITY : 0),
			.max = max,
			.priority = priority}};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

static struct gm_session *runner(uid_t uid, const char *run, uint64_t max, int32_t priority)
{
	return contained(uid, NULL, run, max, priority);
}

START_TEST(all_clients_of_a_run_share_its_limit_and_the_last_one_ends_it)
{
	struct gm_session *a = runner(7, "r", 4 * GiB, 0), *b = runner(7, "r", 4 * GiB, 0);
	struct gm_session *other = runner(8, "r", 2 * GiB, 0),
			  *free_of = client(7, 7, NULL, NULL, NULL);

	ck_assert_uint_eq(count(), 2); /* each user has its own */
	ck_assert_int_eq(ask(a, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run r"));
	ck_assert_uint_eq(gm_session_room(b, d), GiB);
	ck_assert_int_eq(ask(b, GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(a, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(other, 2 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(free_of, 8 * GiB), GPUMEM_OK);

	/* What one of them had, the next one can have. */
	gm_session_end_died(a);
	fake_core_run(&fake);
	ck_assert_int_eq(ask(b, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * MiB), GPUMEM_E_LIMIT);
	gm_session_end_died(b);
	ck_assert_uint_eq(count(), 1);
	gm_session_end_died(other);
	ck_assert_uint_eq(count(), 0);
}
END_TEST

START_TEST(containers_of_one_user_do_not_share_a_run)
{
	struct gm_session *a = contained(7, "box1", "r", 4 * GiB, 0);
	struct gm_session *b = contained(7, "box2", "r", 2 * GiB, 0);
	struct gm_session *c = contained(7, "box1", "r", 4 * GiB, 0);
	struct gm_session *outside = runner(7, "r", GiB, 0);

	ck_assert_uint_eq(count(), 3);
	ck_assert_int_eq(ask(a, 4 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(c, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(b, 2 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(outside, GiB), GPUMEM_OK);
}
END_TEST

START_TEST(the_limit_of_a_run_is_its_own)
{
	struct gm_session *a = runner(7, "r", 4 * GiB, 0);
	struct gm_quota_rule rule = {.owner = owner("uid:7"),
		.device = GM_ALL_DEVICES,
		.values = {.set = GM_QUOTA_MAX, .max = 6 * GiB}};
	struct gm_owner run = owner("run:r");

	/* Nobody else sets or resets it, and a reload leaves it as it is. */
	ck_assert_int_eq(ask(a, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(set("run:r", 8 * GiB, 0), GPUMEM_E_INVALID);
	ck_assert_int_eq(
		gm_core_reset_quota(fake.core, &run, GM_ALL_DEVICES, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_OK);
	ck_assert_int_eq(gm_core_reset_quota(fake.core, NULL, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert_uint_eq(shown("run r").held, 3 * GiB);
	ck_assert_uint_eq(gm_session_room(a, d), GiB);

	/* Later clients do not change it. One that says nothing about it is not of the run. */
	struct gm_session *more = runner(7, "r", 20 * GiB, 0), *none = runner(7, "r", 0, 0);
	ck_assert_uint_eq(gm_session_room(more, d), GiB);
	ck_assert_uint_eq(gm_session_room(none, d), 3 * GiB);
	ck_assert_uint_eq(shown("run r").clients, 2);
	gm_session_end_died(none);
	gm_session_end_died(more);
	ck_assert_uint_eq(shown("run r").clients, 1);
	ck_assert_int_eq(ask(a, 2 * GiB), GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(a_run_can_only_lower_its_priority)
{
	ck_assert_int_eq(prefer("uid:7", 3), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(runner(7, "low", 0, -5), d), -5);
	ck_assert_int_eq(fake_priority(runner(7, "high", 0, 100), d), 3);
}
END_TEST

START_TEST(runs_of_users_leave_room_for_limits)
{
	char run[32];
	for (int i = 0; i < GM_LIMIT_QUOTAS; i++) {
		snprintf(run, sizeof(run), "run%d", i);
		runner(7, run, GiB, 0);
	}
	ck_assert_int_eq(set("uid:8", GiB, 0), GPUMEM_OK);
}
END_TEST

START_TEST(a_shared_lease_counts_for_its_makers_owners_until_the_last_opener_has_left)
{
	struct gm_session *maker = client(7, 70, "u.service", "box", "n");
	struct gm_session *opener = client(8, 8, NULL, NULL, NULL);
	fake.for_others = true;
	struct gm_lease *lease = fake_lease(&fake, maker, d, GiB), *opened;
	struct gm_share_options options = {.audience = GM_AUDIENCE_UID, .id = 8};
	uint8_t token[GM_TOKEN_BYTES];
	ck_assert_int_eq(set("uid:8", 512 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("uid:7", GiB + 2 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("gid:70", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("unit:u.service", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(maker, lease, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(opener, token, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_uint_eq(shown("uid 8").held, 0);
	gm_session_end_died(maker);
	ck_assert_uint_eq(shown("uid 7").held, GiB);
	ck_assert_uint_eq(shown("uid 7").clients, 0);
	ck_assert_uint_eq(shown("gid 70").held, GiB);
	ck_assert_uint_eq(shown("unit u.service").held, GiB);
	ck_assert_uint_eq(shown("uid 8").held, 0);
	/* A limit that comes later counts it, too. */
	ck_assert_int_eq(set("container:box", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(shown("container box").held, GiB);

	struct gm_session *next = client(7, 7, NULL, NULL, NULL);
	ck_assert_int_eq(ask(next, 4 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(opener, 2 * MiB), GPUMEM_OK);
	gm_lease_return(opener, opened);
	ck_assert_uint_eq(shown("uid 7").held, 0);
	ck_assert_int_eq(ask(next, 4 * MiB), GPUMEM_OK);
}
END_TEST

START_TEST(clients_hear_of_a_new_limit)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	uint64_t before = fake.session_changes;
	ck_assert_int_eq(set("uid:8", GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before);
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before + 1);
	ck_assert_uint_eq(gm_session_max(s, d), GiB);
	ck_assert_int_eq(gm_core_reset_quota(fake.core, NULL, d, detail), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before + 2);
	ck_assert_uint_eq(gm_session_max(s, d), UINT64_MAX);
}
END_TEST

START_TEST(a_limit_too_many_is_refused)
{
	GM_LIMIT_TEST(QUOTAS);
	struct gm_quota_rule *rules = calloc(GM_LIMIT_QUOTAS + 1, sizeof(*rules));
	ck_assert_ptr_nonnull(rules);
	for (size_t i = 0; i <= GM_LIMIT_QUOTAS; i++) {
		gm_owner_by_id(GM_OWNER_UID, i, &rules[i].owner);
		rules[i].device = GM_ALL_DEVICES;
		rules[i].values = (struct gm_quota_values){.set = GM_QUOTA_MAX, .max = GiB};
	}
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, GM_LIMIT_QUOTAS + 1, detail),
		GPUMEM_E_LIMIT);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(
		gm_core_configure(fake.core, NULL, rules, GM_LIMIT_QUOTAS, detail), GPUMEM_OK);
	free(rules);
	ck_assert_int_eq(set("uid:100000", GiB, 0), GPUMEM_E_LIMIT);
	ck_assert_int_eq(set("uid:3", 2 * GiB, 0), GPUMEM_OK);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
	struct gm_session *s = client(7, 7, "u", "c", "n");
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("unit:u", GiB, 0), GPUMEM_OK);
	struct gm_owner o = owner("uid:7");
	struct gm_quota_values v = {.set = GM_QUOTA_MAX, .max = 2 * GiB};
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		gpumem_status status = gm_core_set_quota(fake.core, &o, d, &v, detail);
		bool fired = failing_malloc_fired();
		ck_assert_int_eq(status, fired ? GPUMEM_E_HOST_MEMORY : GPUMEM_OK);
		if (!fired)
			break;
		ck_assert_uint_eq(shown("uid 7").values.max, GiB);
		ck_assert_uint_eq(gm_session_max(s, d), GiB);
	}
	for (uint64_t n = 1;; n++) {
		uint8_t token[GM_TOKEN_BYTES];
		struct gm_session *made;
		struct gm_session_info info = {.domain = 1,
			.unit = "a",
			.name = "b",
			.run = "r",
			.run_limit = {.set = GM_QUOTA_MAX, .max = GiB}};
		failing_malloc_arm(n);
		int r = gm_session_new(fake.core, &info, token, &made);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(r, -ENOMEM);
	}
}
END_TEST

/* Takes so many, and then no more. */
struct part {
	unsigned room, n;
	char owners[64][GM_OWNER_TEXT];
	uint32_t devices[64];
};

static bool take(void *ctx, const struct gm_quota_info *info)
{
	struct part *part = ctx;
	if (part->room == 0)
		return false;
	part->room--;
	ck_assert_uint_lt(part->n, 64);
	gm_owner_name(&info->owner, part->owners[part->n]);
	part->devices[part->n++] = info->device;
	return true;
}

START_TEST(a_list_in_parts_has_each_limit_once_whatever_changes_in_between)
{
	struct gm_core_device_info more = fake_info(64 * GiB);
	struct gm_quota_place place = {0};
	struct part part = {.room = 3};
	char text[32];
	ck_assert_uint_eq(fake_core_add(&fake, &more), 1);
	for (int i = 0; i < 6; i++) {
		snprintf(text, sizeof(text), "uid:%d", i);
		ck_assert_int_eq(prefer(text, i), GPUMEM_OK);
	}
	/* It stops within uid 1, before its second device. */
	ck_assert(gm_core_quota_each(fake.core, &place, take, &part));
	ck_assert_uint_eq(part.n, 3);
	/* One that was listed goes, and so does the one where it stopped; one comes, one stays and
	 * has another value. */
	for (int i = 0; i < 2; i++) {
		struct gm_owner gone = owner(i ? "uid:1" : "uid:0");
		ck_assert_int_eq(
			gm_core_reset_quota(fake.core, &gone, GM_ALL_DEVICES, detail), GPUMEM_OK);
	}
	ck_assert_int_eq(prefer("uid:6", 6), GPUMEM_OK);
	ck_assert_int_eq(prefer("uid:3", 7), GPUMEM_OK);
	/* One at a time from here on, each with a change behind it. */
	for (unsigned k = 0; k < 20; k++) {
		part.room = 1;
		if (!gm_core_quota_each(fake.core, &place, take, &part))
			break;
		ck_assert_int_eq(prefer("uid:5", (int32_t)k), GPUMEM_OK);
	}
	static const char *const want[] = {"uid:0", "uid:0", "uid:1", "uid:2", "uid:2", "uid:3",
		"uid:3", "uid:4", "uid:4", "uid:5", "uid:5", "uid:6", "uid:6"};
	ck_assert_uint_eq(part.n, sizeof(want) / sizeof(want[0]));
	for (unsigned i = 0; i < part.n; i++) {
		ck_assert_str_eq(part.owners[i], want[i]);
		ck_assert_uint_eq(part.devices[i], i < 3 ? i % 2 : (i + 1) % 2);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quota");
	TCase *tcase = tcase_create("quota");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, owners_are_written_as_they_are_read);
	tcase_add_test(tcase, a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked);
	tcase_add_test(tcase, every_max_that_matches_applies);
	tcase_add_test(tcase, it_is_shared_by_all_clients_of_the_owner_and_never_passed_by_a_byte);
	tcase_add_test(tcase, it_counts_for_the_user_who_pays_for_a_uid);
	tcase_add_test(tcase, rounding_up_stops_at_the_limit);
	tcase_add_test(tcase, a_max_below_what_is_held_is_over_and_takes_nothing);
	tcase_add_test(tcase, a_guarantee_is_kept_free_for_its_owner_under_full_load);
	tcase_add_test(tcase, contradictions_are_an_error_and_change_nothing);
	tcase_add_test(tcase, the_name_a_client_gives_itself_can_only_tighten);
	tcase_add_test(tcase, what_others_hold_under_the_same_name_does_not_count);
	tcase_add_test(tcase, the_closest_owner_gives_the_priority);
	tcase_add_test(tcase, what_was_set_at_run_time_stays_over_a_reload_until_it_is_reset);
	tcase_add_test(tcase, a_reload_that_contradicts_what_was_set_keeps_the_old_one);
	tcase_add_test(tcase, a_single_clients_limit_goes_with_it);
	tcase_add_test(tcase, all_clients_of_a_run_share_its_limit_and_the_last_one_ends_it);
	tcase_add_test(tcase, containers_of_one_user_do_not_share_a_run);
	tcase_add_test(tcase, the_limit_of_a_run_is_its_own);
	tcase_add_test(tcase, a_run_can_only_lower_its_priority);
	tcase_add_test(tcase, runs_of_users_leave_room_for_limits);
	tcase_add_test(
		tcase, a_shared_lease_counts_for_its_makers_owners_until_the_last_opener_has_left);
	tcase_add_test(tcase, clients_hear_of_a_new_limit);
	tcase_add_test(tcase, a_list_in_parts_has_each_limit_once_whatever_changes_in_between);
	tcase_add_test(tcase, a_limit_too_many_is_refused);
	tcase_add_test(tcase, without_memory_nothing_changes);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
