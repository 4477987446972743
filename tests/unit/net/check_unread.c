/* SPDX-License-Identifier: Apache-2.0 */

/* The account of answers that are not read. */

#include "common/limits.h"
#include "daemon/net/unread.h"
#include "tests/limit.h"
#include "tests/tap.h"

enum { MIB = 1024 * 1024, PER_UID = GM_LIMIT_UNREAD_BYTES_PER_UID / MIB, USERS = 12 };

static uv_loop_t loop;
static struct gm_lanes lanes;
static struct gm_lane *users[USERS];
static struct gm_unread clients[USERS][PER_UID + 1];

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_lanes_init(&lanes, &loop), 0);
	for (size_t u = 0; u < USERS; u++) {
		ck_assert_int_eq(gm_lane_get(&lanes, 1000 + u, &users[u]), 0);
		for (size_t i = 0; i <= PER_UID; i++)
			gm_unread_init(&clients[u][i], users[u]);
	}
}

static void teardown(void)
{
	for (size_t u = 0; u < USERS; u++) {
		for (size_t i = 0; i <= PER_UID; i++)
			gm_unread_deinit(&clients[u][i]);
		ck_assert_uint_eq(users[u]->bytes_unread, 0);
		gm_lane_unref(users[u]);
	}
	ck_assert_uint_eq(lanes.bytes_unread, 0);
	gm_lanes_close(&lanes);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* Each client of the user keeps as much as one may. Returns how many could. */
static size_t fill(size_t user)
{
	for (size_t i = 0; i <= PER_UID; i++) {
		if (!gm_unread_allows(&clients[user][i], GM_LIMIT_SEND_QUEUE_BYTES))
			return i;
		gm_unread_add(&clients[user][i], GM_LIMIT_SEND_QUEUE_BYTES);
	}
	return PER_UID + 1;
}

START_TEST(a_client_keeps_so_much)
{
	GM_LIMIT_TEST(SEND_QUEUE_BYTES);
	ck_assert(gm_unread_allows(&clients[0][0], GM_LIMIT_SEND_QUEUE_BYTES));
	ck_assert(!gm_unread_allows(&clients[0][0], GM_LIMIT_SEND_QUEUE_BYTES + 1));
	gm_unread_add(&clients[0][0], GM_LIMIT_SEND_QUEUE_BYTES);
	ck_assert(!gm_unread_allows(&clients[0][0], 1));
	gm_unread_remove(&clients[0][0], 1);
	ck_assert(gm_unread_allows(&clients[0][0], 1));
}
END_TEST

START_TEST(all_clients_of_a_user_keep_so_much)
{
	GM_LIMIT_TEST(UNREAD_BYTES_PER_UID);
	ck_assert_uint_eq(fill(0), PER_UID);
	ck_assert(!gm_unread_allows(&clients[0][PER_UID], 1));
	ck_assert(gm_unread_allows(&clients[1][0], 1));
}
END_TEST

START_TEST(all_users_keep_so_much_and_each_a_little)
{
	GM_LIMIT_TEST(UNREAD_BYTES);
	enum { FULL = GM_LIMIT_UNREAD_BYTES / GM_LIMIT_UNREAD_BYTES_PER_UID - 1 };
	_Static_assert(FULL + 5 <= USERS, "there are users left");

	for (size_t u = 0; u < FULL; u++)
		ck_assert_uint_eq(fill(u), PER_UID);
	/* From here on a user gets half of what is left. */
	for (size_t u = FULL, left = PER_UID; u < FULL + 4; u++, left /= 2)
		ck_assert_uint_eq(fill(u), left / 2);
	ck_assert_uint_eq(lanes.bytes_unread, GM_LIMIT_UNREAD_BYTES - MIB);

	/* One packet is there for every user, and the sum stays bounded. */
	struct gm_unread *late = &clients[FULL + 4][0];
	ck_assert(!gm_unread_allows(late, MIB));
	ck_assert(gm_unread_allows(late, MIB / 2));
	gm_unread_add(late, MIB / 2);
	ck_assert(!gm_unread_allows(late, 1));
	gm_unread_remove(late, MIB / 2);
	gm_unread_add(&clients[0][PER_UID], MIB);
	ck_assert(gm_unread_allows(late, GM_LIMIT_PACKET_BYTES));
	ck_assert(!gm_unread_allows(late, GM_LIMIT_PACKET_BYTES + 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unread");
	TCase *tests = tcase_create("unread");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_client_keeps_so_much);
	tcase_add_test(tests, all_clients_of_a_user_keep_so_much);
	tcase_add_test(tests, all_users_keep_so_much_and_each_a_little);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
