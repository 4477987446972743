/* SPDX-License-Identifier: Apache-2.0 */
/* The retire list: when an item ends, by whose permission, and when to look again. */
#include "client/device/retired.h"

#include <check.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/map/map.h"
#include "tests/tap.h"

static struct gpumem_session session = {
	.lock = GM_LOCK_INITIALIZER(GM_LOCK_SESSION),
};
static bool finished;      /* whether the device has finished */
static uint64_t next_seen; /* when another thread would look again while one looks */

static int record(void *backend, struct gm_map_event **ret_event)
{
	static char event;
	*ret_event = (struct gm_map_event *)&event;
	return 0;
}

static int passed(void *backend, struct gm_map_event *event)
{
	next_seen = gm_retired_next(&session, 1);
	return finished;
}

static void forget(void *backend, struct gm_map_event *event)
{
}

static const struct gm_map_ops ops = {.record = record, .passed = passed, .forget = forget};
static struct gm_session_device device;

/* An item that needs a permission, and counts how often it ends. */
struct thing {
	struct gm_retired retired;
	enum gm_retired_may needs;
	unsigned ends;
	bool again; /* the first end adds it again, ready */
};

static bool thing_end(struct gm_retired *item, enum gm_retired_may may)
{
	struct thing *thing = (struct thing *)item;

	if (may < thing->needs)
		return false;
	thing->ends++;
	if (thing->again) {
		thing->again = false;
		gm_retired_add(&session, item, &device, GM_RETIRED_READY);
	}
	return true;
}

static void thing_add(struct thing *thing, enum gm_retired_when when)
{
	thing->retired.end = thing_end;
	gm_retired_add(&session, &thing->retired, &device, when);
}

static bool fits(const struct gm_retired *item, const void *ctx)
{
	return item == ctx;
}

static void set_up(void)
{
	finished = false;
	next_seen = 0;
	ck_assert_int_eq(gm_retired_init(&session), 0);
	session.wake = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(session.wake, 0);
	atomic_store(&device.map, &ops);
}

static void tear_down(void)
{
	gm_retired_deinit(&session);
	close(session.wake);
}

START_TEST(what_the_device_has_finished_with_ends_once)
{
	struct thing thing = {0};
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
	thing_add(&thing, GM_RETIRED_EVENT);
	gm_retired_settle(&session, GM_RETIRED_THREAD);
	ck_assert_uint_eq(thing.ends, 0);
	ck_assert_uint_ne(gm_retired_next(&session, 1), UINT64_MAX);
	finished = true;
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_eq(thing.ends, 1);
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_eq(thing.ends, 1);
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
}
END_TEST

/* The library's thread asks for the next time while another thread looks. If it heard that nothing
 * is retired, nobody would look again. */
START_TEST(while_a_thread_looks_the_others_know_that_something_is_retired)
{
	struct thing thing = {0};
	thing_add(&thing, GM_RETIRED_EVENT);
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_ne(next_seen, 0);
	ck_assert_uint_ne(next_seen, UINT64_MAX);
}
END_TEST

START_TEST(an_item_ends_only_with_the_permission_that_it_needs)
{
	struct thing host = {.needs = GM_RETIRED_HOST_WAIT}, managed = {.needs = GM_RETIRED_THREAD};
	thing_add(&host, GM_RETIRED_READY);
	thing_add(&managed, GM_RETIRED_EVENT);
	finished = true;
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_eq(host.ends + managed.ends, 0);
	ck_assert_uint_ne(gm_retired_next(&session, 1), UINT64_MAX);
	/* Its event has passed: the item is ready, whatever was launched since. */
	finished = false;
	gm_retired_settle(&session, GM_RETIRED_HOST_WAIT);
	ck_assert_uint_eq(host.ends, 1);
	ck_assert_uint_eq(managed.ends, 0);
	gm_retired_settle(&session, GM_RETIRED_THREAD);
	ck_assert_uint_eq(host.ends, 1);
	ck_assert_uint_eq(managed.ends, 1);
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(an_item_that_is_added_again_at_its_end_ends_in_the_same_call)
{
	struct thing thing = {.again = true};
	thing_add(&thing, GM_RETIRED_EVENT);
	finished = true;
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_eq(thing.ends, 2);
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(at_the_end_of_the_session_every_item_ends)
{
	struct thing things[4] = {{.again = true}, {.needs = GM_RETIRED_THREAD},
		{.needs = GM_RETIRED_LAST}, {.needs = GM_RETIRED_LAST, .again = true}};
	finished = true;
	thing_add(&things[0], GM_RETIRED_EVENT);
	thing_add(&things[1], GM_RETIRED_EVENT);
	thing_add(&things[2], GM_RETIRED_READY);
	thing_add(&things[3], GM_RETIRED_IDLE);
	gm_retired_end_all(&session);
	ck_assert_uint_eq(things[0].ends, 2);
	ck_assert_uint_eq(things[1].ends, 1);
	ck_assert_uint_eq(things[2].ends, 1);
	ck_assert_uint_eq(things[3].ends, 2);
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(what_waits_for_an_idle_device_stays_until_nothing_is_launched)
{
	struct thing things[2] = {{.needs = GM_RETIRED_HOST_WAIT}, {.needs = GM_RETIRED_HOST_WAIT}};
	thing_add(&things[0], GM_RETIRED_IDLE);
	thing_add(&things[1], GM_RETIRED_IDLE);
	gm_retired_settle(&session, GM_RETIRED_THREAD);
	ck_assert_uint_eq(things[0].ends + things[1].ends, 0);
	ck_assert_uint_ne(gm_retired_next(&session, 1), UINT64_MAX);
	ck_assert_ptr_null(gm_retired_take_back(&session, fits, NULL));
	struct gm_retired *back = gm_retired_take_back(&session, fits, &things[0].retired);
	ck_assert_ptr_eq(back, &things[0].retired);
	ck_assert_ptr_null(gm_retired_take_back(&session, fits, &things[0].retired));
	finished = true;
	gm_retired_settle(&session, GM_RETIRED_NO_WAIT);
	ck_assert_uint_eq(things[1].ends, 0);
	/* The device was idle: nobody takes it back any more. */
	ck_assert_ptr_null(gm_retired_take_back(&session, fits, &things[1].retired));
	gm_retired_settle(&session, GM_RETIRED_HOST_WAIT);
	ck_assert_uint_eq(things[0].ends, 0);
	ck_assert_uint_eq(things[1].ends, 1);
	ck_assert_uint_eq(gm_retired_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(what_waits_for_an_idle_device_ends_at_once_on_demand)
{
	struct thing things[2] = {{.needs = GM_RETIRED_HOST_WAIT}};
	ck_assert(!gm_retired_end_idle(&session));
	thing_add(&things[0], GM_RETIRED_IDLE);
	thing_add(&things[1], GM_RETIRED_EVENT);
	ck_assert(gm_retired_end_idle(&session));
	ck_assert_uint_eq(things[0].ends, 1);
	ck_assert_uint_eq(things[1].ends, 0);
	ck_assert(!gm_retired_end_idle(&session));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("retired");
	TCase *tc = tcase_create("retired");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, what_the_device_has_finished_with_ends_once);
	tcase_add_test(tc, while_a_thread_looks_the_others_know_that_something_is_retired);
	tcase_add_test(tc, an_item_ends_only_with_the_permission_that_it_needs);
	tcase_add_test(tc, an_item_that_is_added_again_at_its_end_ends_in_the_same_call);
	tcase_add_test(tc, at_the_end_of_the_session_every_item_ends);
	tcase_add_test(tc, what_waits_for_an_idle_device_stays_until_nothing_is_launched);
	tcase_add_test(tc, what_waits_for_an_idle_device_ends_at_once_on_demand);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
