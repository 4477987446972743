/* SPDX-License-Identifier: Apache-2.0 */
/* Where memory would find room: the answer is that of a request, and nothing changes. */
#include <stdio.h>
#include <string.h>

#include "daemon/core/place.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

#define DEVICES 3

static struct fake_core fake;
static char detail[GM_DETAIL_BYTES];
static struct gm_place_row placements[DEVICES];

/* Three devices of 4, 8 and 16 GiB, whose pressure has no levels. */
static void setup(void)
{
	fake_core_init_asking(&fake);
	for (uint32_t i = 0; i < DEVICES; i++) {
		struct gm_core_device_info info = fake_info((UINT64_C(4) << i) * GiB);
		fake_no_levels(&info.policy);
		ck_assert_uint_eq(fake_core_add(&fake, &info), i);
	}
	detail[0] = '\0';
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static gpumem_status place_info(
	struct gm_session *session, const struct gm_session_info *info, uint64_t bytes)
{
	for (uint32_t i = 0; i < DEVICES; i++)
		placements[i] = (struct gm_place_row){.device = i};
	return gm_place(fake.core, session, info, bytes, placements, DEVICES, detail);
}

static void place(struct gm_session *session, uint64_t bytes)
{
	ck_assert_int_eq(place_info(session, NULL, bytes), GPUMEM_OK);
}

/* The i-th best placement. */
static void is(unsigned i, uint32_t device, enum gm_place_fit fit, uint64_t room)
{
	ck_assert_uint_eq(placements[i].device, device);
	ck_assert_int_eq(placements[i].fit, fit);
	ck_assert_uint_eq(placements[i].room, room);
	ck_assert_int_eq(placements[i].status == GPUMEM_OK, fit == GM_FIT_NOW);
	ck_assert_int_eq(placements[i].detail[0] == '\0', fit == GM_FIT_NOW);
}

static void limit(const char *text, uint32_t device, uint64_t max, uint64_t guarantee)
{
	struct gm_owner owner;
	struct gm_limit_values values = {.max = max,
		.guarantee = guarantee,
		.set = (max ? GM_LIMIT_MAX : 0) | (guarantee ? GM_LIMIT_GUARANTEE : 0)};
	ck_assert_int_eq(gm_owner_parse(text, &owner), 0);
	ck_assert_msg(gm_core_set_limit(fake.core, &owner, device, &values, detail) == GPUMEM_OK,
		"%s", detail);
}

START_TEST(the_device_with_most_room_comes_first)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);

	place(a, GiB);
	is(0, 2, GM_FIT_NOW, 16 * GiB);
	is(1, 1, GM_FIT_NOW, 8 * GiB);
	is(2, 0, GM_FIT_NOW, 4 * GiB);

	fake_lease(&fake, a, 2, 10 * GiB);
	place(a, GiB);
	is(0, 1, GM_FIT_NOW, 8 * GiB);
	is(1, 2, GM_FIT_NOW, 6 * GiB);
	is(2, 0, GM_FIT_NOW, 4 * GiB);
}
END_TEST

START_TEST(equal_devices_come_by_number)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);

	fake_lease(&fake, a, 1, 4 * GiB);
	fake_lease(&fake, a, 2, 12 * GiB);
	place(a, GiB);
	for (unsigned i = 0; i < DEVICES; i++)
		is(i, i, GM_FIT_NOW, 4 * GiB);
}
END_TEST

START_TEST(a_device_that_is_too_small_is_last_and_says_why)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);

	place(a, 8 * GiB);
	is(0, 2, GM_FIT_NOW, 16 * GiB);
	is(1, 1, GM_FIT_NOW, 8 * GiB);
	is(2, 0, GM_FIT_NONE, 4 * GiB);
	ck_assert_str_eq(placements[2].detail,
		"device 0 has 4.0G available of 4.0G, asked for 8.0G, which it can never give; "
		"ask for less, or use another device");
	ck_assert_int_eq(placements[2].status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(what_no_device_can_ever_give_is_not_sought_on_another_one)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);

	fake_lease(&fake, b, 2, 15 * GiB);
	limit("uid:1001", 1, 0, GiB);
	place(a, 20 * GiB);
	is(0, 1, GM_FIT_NONE, 7 * GiB);
	is(1, 0, GM_FIT_NONE, 4 * GiB);
	is(2, 2, GM_FIT_NONE, GiB);
	ck_assert_uint_eq(placements[0].most, 7 * GiB);
	ck_assert_uint_eq(placements[1].most, 4 * GiB);
	ck_assert_uint_eq(placements[2].most, 16 * GiB);
	ck_assert_str_eq(placements[1].detail,
		"device 0 has 4.0G available of 4.0G, asked for 20.0G, which it can never give; "
		"ask for less");

	limit("uid:1000", 2, 3 * GiB, 0);
	place(a, 20 * GiB);
	for (unsigned i = 0; i < DEVICES; i++)
		if (placements[i].device == 2)
			ck_assert_uint_eq(placements[i].most, 3 * GiB);
}
END_TEST

START_TEST(what_others_cache_is_better_than_what_they_use)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);

	/* All devices are full. The client on the smallest one caches enough. */
	fake_lease(&fake, b, 0, 4 * GiB);
	fake_lease(&fake, b, 1, 8 * GiB);
	fake_lease(&fake, b, 2, 15 * GiB);
	fake_says(&fake, b, 0, 3 * GiB, 0);
	fake_says(&fake, b, 1, GiB, 0);
	place(a, 2 * GiB);
	is(0, 0, GM_FIT_RECLAIM, 0);
	is(1, 2, GM_FIT_WAIT, GiB);
	is(2, 1, GM_FIT_WAIT, 0);

	/* Nobody was asked for it. */
	ck_assert_uint_eq(fake.n_asks, 0);
	/* What fits at once is better still, with however little room. */
	place(a, GiB);
	is(0, 2, GM_FIT_NOW, GiB);
	is(1, 0, GM_FIT_RECLAIM, 0);
	is(2, 1, GM_FIT_RECLAIM, 0);
}
END_TEST

START_TEST(evictable_buffers_count_as_far_as_a_request_would_move_them)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);

	fake_lease(&fake, b, 0, 4 * GiB);
	fake_lease(&fake, b, 1, 8 * GiB);
	fake_lease(&fake, b, 2, 16 * GiB);
	fake_says(&fake, b, 0, GiB, GiB);
	fake_says(&fake, b, 1, 0, GiB);
	place(a, 2 * GiB);
	is(0, 0, GM_FIT_RECLAIM, 0);
	is(1, 1, GM_FIT_WAIT, 0);
	is(2, 2, GM_FIT_WAIT, 0);
	ck_assert_uint_eq(fake.n_asks, 0);
}
END_TEST

START_TEST(a_client_that_lets_deadlines_pass_is_not_believed)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);
	struct fake_request q;

	fake_lease(&fake, b, 0, 4 * GiB);
	fake_says(&fake, b, 0, 3 * GiB, 0);
	fake_ask(&fake, &q, a, 0, 2 * GiB, GM_TRANSPORT_AUTO);
	ck_assert(fake_asked(&fake, b));
	fake_pass(&fake, 2 * GM_RECLAIM_NS + 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	place(a, 2 * GiB);
	is(2, 0, GM_FIT_WAIT, 0);
}
END_TEST

START_TEST(limits_of_the_asker_count)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);

	limit("uid:1000", 2, 2 * GiB, 0);
	place(a, GiB);
	is(0, 1, GM_FIT_NOW, 8 * GiB);
	is(1, 0, GM_FIT_NOW, 4 * GiB);
	is(2, 2, GM_FIT_NOW, 2 * GiB);
	place(a, 3 * GiB);
	is(2, 2, GM_FIT_NONE, 2 * GiB);
	ck_assert_int_eq(placements[2].status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(placements[2].detail, "may hold 2.0G, holds 0B"));

	/* Below the limit, it is another client of the same user that must return memory. */
	struct gm_session *c = fake_session(&fake, 1, 1000);
	fake_lease(&fake, c, 2, 2 * GiB);
	place(a, GiB);
	is(2, 2, GM_FIT_WAIT, 0);
	fake_says(&fake, c, 2, GiB, 0);
	place(a, GiB);
	is(2, 2, GM_FIT_RECLAIM, 0);

	/* Somebody else has no limit. */
	place(b, GiB);
	is(0, 2, GM_FIT_NOW, 14 * GiB);
}
END_TEST

START_TEST(guarantees_of_others_count)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);

	limit("uid:1001", 2, 0, 14 * GiB);
	place(a, 3 * GiB);
	is(0, 1, GM_FIT_NOW, 8 * GiB);
	is(1, 0, GM_FIT_NOW, 4 * GiB);
	is(2, 2, GM_FIT_NONE, 2 * GiB);
	ck_assert_ptr_nonnull(strstr(placements[2].detail, "for owners with a guarantee"));
	place(b, 3 * GiB);
	is(0, 2, GM_FIT_NOW, 16 * GiB);
}
END_TEST

START_TEST(a_device_that_is_drained_has_no_room)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);

	ck_assert_int_eq(gm_core_drain(fake.core, 2, 0), 0);
	place(a, GiB);
	is(0, 1, GM_FIT_NOW, 8 * GiB);
	is(2, 2, GM_FIT_NONE, 0);
	ck_assert_ptr_nonnull(strstr(placements[2].detail, "is being drained by"));
	gm_core_undrain(fake.core, 2);
	place(a, GiB);
	is(0, 2, GM_FIT_NOW, 16 * GiB);
}
END_TEST

/* Whoever waits for a device is in the way only if it may hold others back. */
START_TEST(the_answer_is_that_of_a_request)
{
	struct gm_session *a = fake_session(&fake, 1, 1000), *b = fake_session(&fake, 2, 1001);
	static const uint64_t sizes[] = {MiB, GiB, 3 * GiB, 4 * GiB, 5 * GiB, 9 * GiB, 17 * GiB};

	limit("uid:1000", 1, 4 * GiB, 0);
	limit("uid:1001", 2, 0, 12 * GiB);
	fake_lease(&fake, b, 0, GiB);
	fake_lease(&fake, b, 1, 6 * GiB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct gm_place_row said[DEVICES];
		place(a, sizes[i]);
		memcpy(said, placements, sizeof(said));

		for (unsigned j = 0; j < DEVICES; j++) {
			struct fake_request q;
			fake_ask(&fake, &q, a, said[j].device, sizes[i], GM_TRANSPORT_AUTO);
			fake_core_run(&fake);
			fake_pass(&fake, 3 * GM_RECLAIM_NS);
			ck_assert_uint_eq(q.ended, 1);
			ck_assert_int_eq(q.status, said[j].status);
			ck_assert_int_eq(q.status == GPUMEM_OK, said[j].fit == GM_FIT_NOW);
			if (q.status == GPUMEM_OK)
				gm_lease_return(a, q.r.lease);
			else
				ck_assert_str_eq(q.detail, said[j].detail);
			fake_core_run(&fake);
		}
	}
}
END_TEST

START_TEST(nothing_changes)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);
	struct gm_session_info stranger = {.pid = 7, .uid = 1002, .unit = "x.service"};
	struct gm_core_counters before, after;

	fake_lease(&fake, a, 1, 8 * GiB);
	limit("uid:1002", 1, GiB, 0);
	gm_core_counters(fake.core, &before);
	uint64_t changes = fake.device_changes, sessions = fake.session_changes, id = fake.last_id;
	size_t jobs = fake.n_jobs;
	for (int i = 0; i < 100; i++) {
		place(a, 2 * GiB);
		ck_assert_int_eq(place_info(NULL, &stranger, 2 * GiB), GPUMEM_OK);
	}
	gm_core_counters(fake.core, &after);
	ck_assert_uint_eq(after.requests, before.requests);
	ck_assert_uint_eq(after.refusals, before.refusals);
	ck_assert_uint_eq(fake.device_changes, changes);
	ck_assert_uint_eq(fake.session_changes, sessions);
	ck_assert_uint_eq(fake.last_id, id);
	ck_assert_uint_eq(fake.n_jobs, jobs);
	ck_assert_uint_eq(fake.n_asks, 0);
	ck_assert_uint_eq(fake.n_events, 0);
	ck_assert_uint_eq(gm_core_session_count(fake.core), 1);
	for (uint32_t i = 0; i < DEVICES; i++) {
		ck_assert_uint_eq(fake_queue_length(&fake, i), 0);
		fake_core_check(&fake, i);
	}
}
END_TEST

/* gpumemctl has no session. It is told what a client of its user would get. */
START_TEST(a_client_that_is_not_there_yet_has_its_limits)
{
	struct gm_session *b = fake_session(&fake, 2, 1001);
	struct gm_session_info info = {.pid = 7, .uid = 1000, .gid = 100, .unit = "x.service"};

	limit("uid:1000", 2, 2 * GiB, 0);
	limit("unit:x.service", 1, GiB, 0);
	fake_lease(&fake, b, 0, 3 * GiB);
	ck_assert_int_eq(place_info(NULL, &info, GiB), GPUMEM_OK);
	is(0, 2, GM_FIT_NOW, 2 * GiB);
	is(1, 0, GM_FIT_NOW, GiB);
	is(2, 1, GM_FIT_NOW, GiB);
	ck_assert_int_eq(place_info(NULL, &info, 2 * GiB), GPUMEM_OK);
	is(0, 2, GM_FIT_NOW, 2 * GiB);
	is(1, 0, GM_FIT_WAIT, GiB);
	is(2, 1, GM_FIT_NONE, GiB);
	ck_assert_ptr_nonnull(strstr(placements[2].detail, "x.service may hold 1.0G"));
}
END_TEST

START_TEST(sizes_that_no_request_has_are_refused)
{
	struct gm_session *a = fake_session(&fake, 1, 1000);

	ck_assert_int_eq(place_info(a, NULL, 0), GPUMEM_E_INVALID);
	ck_assert_str_eq(detail, "asked for 0 bytes; a request is for 1 byte to 64.0T");
	ck_assert_int_eq(place_info(a, NULL, UINT64_MAX), GPUMEM_E_INVALID);
	ck_assert_int_eq(place_info(a, NULL, GM_LEASE_BYTES_MAX + 1), GPUMEM_E_INVALID);
	place(a, GM_LEASE_BYTES_MAX);
	is(0, 2, GM_FIT_NONE, 16 * GiB);
}
END_TEST

START_TEST(without_memory_it_is_refused_and_nothing_is_left)
{
	struct gm_session_info info = {.pid = 7, .uid = 1000, .unit = "x.service"};
	bool failed = true;

	for (uint64_t n = 1; failed; n++) {
		failing_malloc_arm(n);
		gpumem_status status = place_info(NULL, &info, GiB);
		failed = failing_malloc_fired();
		ck_assert_int_eq(status, failed ? GPUMEM_E_HOST_MEMORY : GPUMEM_OK);
		ck_assert(failed || n > 1);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place");
	TCase *tc = tcase_create("place");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_device_with_most_room_comes_first);
	tcase_add_test(tc, equal_devices_come_by_number);
	tcase_add_test(tc, a_device_that_is_too_small_is_last_and_says_why);
	tcase_add_test(tc, what_no_device_can_ever_give_is_not_sought_on_another_one);
	tcase_add_test(tc, what_others_cache_is_better_than_what_they_use);
	tcase_add_test(tc, evictable_buffers_count_as_far_as_a_request_would_move_them);
	tcase_add_test(tc, a_client_that_lets_deadlines_pass_is_not_believed);
	tcase_add_test(tc, limits_of_the_asker_count);
	tcase_add_test(tc, guarantees_of_others_count);
	tcase_add_test(tc, a_device_that_is_drained_has_no_room);
	tcase_add_test(tc, the_answer_is_that_of_a_request);
	tcase_add_test(tc, nothing_changes);
	tcase_add_test(tc, a_client_that_is_not_there_yet_has_its_limits);
	tcase_add_test(tc, sizes_that_no_request_has_are_refused);
	tcase_add_test(tc, without_memory_it_is_refused_and_nothing_is_left);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
