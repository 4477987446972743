/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/limit.c and owner.c, through the core: whose limit counts, what a refusal says, what
 * contradicts what, and what stays over a reload. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/device/limit.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/device/limit_fixture.h"

static struct gm_session *subordinate(uid_t payer_uid, uid_t uid)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {
		.pid = 1, .uid = uid, .payer_uid = payer_uid, .domain = uid + 1, .pooling = true};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

START_TEST(owners_are_written_as_they_are_read)
{
	static const char *const good[][2] = {{"uid:1002", "user 1002"}, {"gid:0", "gid 0"},
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
		"user 1002 may hold 48.0G, holds 48.0G, asked for 2.0G; see gpumemctl limit");
	ck_assert_int_eq(ask(s, 49 * GiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(detail,
		"user 1002 may hold 48.0G, holds 48.0G, asked for 49.0G, which it can never have; "
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
		ck_assert_int_eq(gm_core_reset_limit(fake.core, &o, d, detail), GPUMEM_OK);
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
	ck_assert_ptr_nonnull(strstr(detail, "user 7 "));
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
		ck_assert_uint_eq(shown("user 7").held, held);
		ck_assert_uint_le(held, 101 * MiB);
	}
	ck_assert_uint_eq(held, 100 * MiB);
	ck_assert_uint_eq(shown("user 7").clients, 8);
	gm_session_end_died(s[0]);
	fake_core_run(&fake);
	ck_assert_uint_eq(shown("user 7").clients, 7);
	ck_assert_uint_eq(shown("user 7").held, 100 * MiB - 16 * MiB);
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
	ck_assert_uint_eq(shown("user 1002").held, 8 * MiB);
	ck_assert_uint_eq(shown("user 1002").clients, 3);
	ck_assert_uint_eq(shown("user 100001").held, 0);

	ck_assert_int_eq(ask(user, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(
		detail, "user 1002 may hold 8.0M, holds 8.0M, asked for 2.0M; see gpumemctl limit");
	ck_assert_int_eq(ask(two, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_str_eq(detail,
		"user 1002 (with subordinate uid 100001) may hold 8.0M, holds 8.0M, asked for 2.0M; "
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
	ck_assert(shown("user 7").over);
	ck_assert_uint_eq(shown("user 7").held, 8 * GiB);
	ck_assert_uint_eq(gm_session_held(s, d), 8 * GiB);
	ck_assert_int_eq(ask(s, 2 * MiB), GPUMEM_E_LIMIT);
	gm_lease_return(s, lease);
	ck_assert(!shown("user 7").over);
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
	ck_assert_str_eq(
		detail, "user 2: max 8.0G is below guarantee 16.0G; raise max, or lower guarantee");
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
	struct gm_limit_values v = {.set = GM_LIMIT_MAX, .max = GiB};
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, 7, &v, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(count(), 1);
	ck_assert_uint_eq(shown("user 2").values.max, 32 * GiB);
	ck_assert_uint_eq(shown("user 2").values.guarantee, 16 * GiB);
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
	gm_core_limit_each(fake.core, &(struct gm_limit_place){.user = 8 + 1}, see, &seen);
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

START_TEST(a_shared_lease_counts_for_its_makers_owners_until_the_last_opener_has_left)
{
	struct gm_session *maker = client(7, 70, "u.service", "box", "n");
	struct gm_session *opener = client(8, 8, NULL, NULL, NULL);
	fake.for_others = true;
	struct gm_lease *lease = fake_lease(&fake, maker, d, GiB), *opened;
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 8};
	uint8_t token[GM_TOKEN_BYTES];
	ck_assert_int_eq(set("uid:8", 512 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("uid:7", GiB + 2 * MiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("gid:70", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("unit:u.service", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(maker, lease, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(opener, token, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_uint_eq(shown("user 8").held, 0);
	gm_session_end_died(maker);
	ck_assert_uint_eq(shown("user 7").held, GiB);
	ck_assert_uint_eq(shown("user 7").clients, 0);
	ck_assert_uint_eq(shown("gid 70").held, GiB);
	ck_assert_uint_eq(shown("unit u.service").held, GiB);
	ck_assert_uint_eq(shown("user 8").held, 0);
	/* A limit that comes later counts it, too. */
	ck_assert_int_eq(set("container:box", 2 * GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(shown("container box").held, GiB);

	struct gm_session *next = client(7, 7, NULL, NULL, NULL);
	ck_assert_int_eq(ask(next, 4 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(opener, 2 * MiB), GPUMEM_OK);
	gm_lease_return(opener, opened);
	ck_assert_uint_eq(shown("user 7").held, 0);
	ck_assert_int_eq(ask(next, 4 * MiB), GPUMEM_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limit");
	TCase *tcase = tcase_create("limit");
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
	tcase_add_test(
		tcase, a_shared_lease_counts_for_its_makers_owners_until_the_last_opener_has_left);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
