/* SPDX-License-Identifier: Apache-2.0 */
/* Events on the daemon's page: each is heard once, in order, and the latest counts. */
#include <errno.h>
#include <string.h>

#include "common/wire/page_event.h"
#include "tests/tap.h"

static struct gm_page_daemon page;
static struct gm_page_heard heard;
static struct gm_page_event event;

static void set_up(void)
{
	memset(&page, 0, sizeof(page));
	memset(&heard, 0, sizeof(heard));
	page.header.version = GM_PAGE_VERSION_EVENTS;
	page.header.devices = GM_BOUND_DEVICES;
}

static int next(void)
{
	return gm_page_event_next(&page, &heard, &event);
}

START_TEST(each_event_is_heard_once)
{
	ck_assert_int_eq(next(), 0);
	page.devices[1] = (struct gm_page_device){.level = 2,
		.pressure_ppm = 800000,
		.pressure_event = 5,
		.reclaim_epoch = 9,
		.reclaim_event = 6,
		.urgent = 1,
		.wanted = 4096,
		.limits_event = 7,
		.max = 8192};

	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_PRESSURE);
	ck_assert_uint_eq(event.device, 1);
	ck_assert_uint_eq(event.sequence, 5);
	ck_assert_uint_eq(event.level, 2);
	ck_assert_uint_eq(event.pressure_ppm, 800000);

	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_RECLAIM);
	ck_assert_uint_eq(event.sequence, 6);
	ck_assert_uint_eq(event.epoch, 9);
	ck_assert(event.urgent);
	ck_assert_uint_eq(event.bytes, 4096);

	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_LIMITS);
	ck_assert_uint_eq(event.bytes, 8192);

	ck_assert_int_eq(next(), 0);
	page.devices[1].limits_event = 8;
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_LIMITS);
	ck_assert_int_eq(next(), 0);
}
END_TEST

START_TEST(a_goodbye_is_the_last_event_and_is_said_once)
{
	char longer[200];

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	gm_page_event_goodbye(&page, true, longer);
	gm_page_event_goodbye(&page, false, "another reason");
	page.devices[GM_BOUND_DEVICES - 1].pressure_event = 1;

	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_PRESSURE);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_GOODBYE);
	ck_assert(event.restart);
	ck_assert_uint_eq(strlen(event.reason), GM_PAGE_REASON_BYTES - 1);
	ck_assert_int_eq(next(), 0);
}
END_TEST

START_TEST(a_block_that_is_being_written_holds_up_no_other)
{
	page.devices[0].pressure_event = 1;
	page.devices[1].pressure_event = 2;
	gm_page_write_begin(&page.devices[0].seq);
	gm_page_event_goodbye(&page, false, "the end");

	ck_assert_int_eq(next(), 1);
	ck_assert_uint_eq(event.device, 1);
	ck_assert_int_eq(next(), -EAGAIN);

	gm_page_write_end(&page.devices[0].seq);
	ck_assert_int_eq(next(), 1);
	ck_assert_uint_eq(event.device, 0);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_GOODBYE);
	ck_assert(!event.restart);
	ck_assert_str_eq(event.reason, "the end");
}
END_TEST

START_TEST(makers_that_left_are_one_event_until_it_is_heard)
{
	gm_page_event_makers(&page);
	gm_page_event_makers(&page);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_MAKERS);
	ck_assert_int_eq(next(), 0);
	gm_page_event_goodbye(&page, false, "the end");
	gm_page_event_makers(&page);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_MAKERS);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(event.kind, GM_PAGE_EVENT_GOODBYE);
	ck_assert_int_eq(next(), 0);
}
END_TEST

START_TEST(an_older_page_has_no_events)
{
	page.header.version = 2;
	page.devices[0].pressure_event = 1;
	gm_page_event_goodbye(&page, false, "the end");
	ck_assert_int_eq(next(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page_event");
	TCase *tc = tcase_create("page_event");
	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, each_event_is_heard_once);
	tcase_add_test(tc, a_goodbye_is_the_last_event_and_is_said_once);
	tcase_add_test(tc, a_block_that_is_being_written_holds_up_no_other);
	tcase_add_test(tc, makers_that_left_are_one_event_until_it_is_heard);
	tcase_add_test(tc, an_older_page_has_no_events);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
