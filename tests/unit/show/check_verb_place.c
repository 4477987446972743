/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl place against a scripted daemon: which device it names, and how it ends without one. */

#include "tests/tap.h"
#include "tests/unit/show/placement_script.h"

static struct gm_options asks(unsigned given)
{
	return (struct gm_options){.args = {"20G"}, .n_args = 1, .given = given};
}

START_TEST(the_best_device_is_named_with_the_reason)
{
	static const char *const reasons[] = {"Device 7: 20.0G at once, and up to 44.0G.\n",
		"Device 7: 20.0G once clients return cached memory; 44.0G at once.\n"};
	for (best_fit = 0; best_fit < GM__WIRE__FIT__FIT_WAIT; best_fit++) {
		struct gm_options options = asks(0);
		char *text = run("place", script_place, false, &options);
		ck_assert_uint_eq(placed, 20 * G);
		ck_assert_ptr_nonnull(text);
		has(text, reasons[best_fit]);
		ck_assert_int_eq(exits, EXIT_SUCCESS);
		free(text);
	}
}
END_TEST

START_TEST(a_script_gets_the_number_alone)
{
	struct gm_options options = asks(GM_OPTION_QUIET);
	char *text = run("place", script_place, false, &options);
	ck_assert_str_eq(text, "7\n");
	free(text);
}
END_TEST

START_TEST(a_device_that_must_be_waited_for_is_named_only_if_one_may_wait)
{
	best_fit = GM__WIRE__FIT__FIT_WAIT;
	struct gm_options options = asks(0);
	char *text = run("place", script_place, false, &options);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(exits, EXIT_FAILURE);
	free(text);

	options = asks(GM_OPTION_MAY_WAIT);
	text = run("place", script_place, false, &options);
	has(text, "Device 7: 20.0G once clients free memory that they use; 44.0G at once.\n");
	ck_assert_int_eq(exits, EXIT_SUCCESS);
	free(text);
}
END_TEST

START_TEST(programs_get_every_device)
{
	best_fit = GM__WIRE__FIT__FIT_RECLAIM;
	struct gm_options options = asks(0);
	json_t *json = parse(run("place", script_place, true, &options));
	ck_assert_int_eq(json_integer_value(json_object_get(json, "device")), 7);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "bytes")), 20 * G);
	ck_assert_str_eq(json_string_value(json_object_get(json, "fit")), "reclaim");
	ck_assert_uint_eq(json_array_size(json_object_get(json, "placements")), 3);
	ck_assert_int_eq(number(json, "placements", 0, "room"), 44 * G);
	equals(json, "placements", 0, "why", "device 7 is short of it");
	equals(json, "placements", 1, "fit", "wait");
	equals(json, "placements", 2, "fit", "none");
	json_decref(json);

	/* It could wait, but nobody said that it may. */
	best_fit = GM__WIRE__FIT__FIT_WAIT;
	json = parse(run("place", script_place, true, &options));
	ck_assert(json_is_null(json_object_get(json, "device")));
	ck_assert_str_eq(json_string_value(json_object_get(json, "fit")), "wait");
	ck_assert_int_eq(exits, EXIT_FAILURE);
	json_decref(json);

	best_fit = GM__WIRE__FIT__FIT_NONE;
	json = parse(run("place", script_place, true, &options));
	ck_assert(json_is_null(json_object_get(json, "device")));
	ck_assert_str_eq(json_string_value(json_object_get(json, "fit")), "none");
	ck_assert_int_eq(exits, EXIT_FAILURE);
	json_decref(json);
}
END_TEST

START_TEST(programs_are_told_what_each_device_can_ever_give)
{
	too_small = true;
	struct gm_options options = asks(0);
	json_t *json = parse(run("place", script_place, true, &options));
	ck_assert(json_is_null(json_object_get(json, "device")));
	ck_assert_int_eq(number(json, "placements", 1, "most"), 6 * G);
	ck_assert_int_eq(exits, EXIT_FAILURE);
	json_decref(json);
	too_small = false;
}
END_TEST

START_TEST(what_a_newer_daemon_says_is_no_room)
{
	best_fit = (Gm__Wire__Fit)4711;
	struct gm_options options = asks(GM_OPTION_MAY_WAIT);
	json_t *json = parse(run("place", script_place, true, &options));
	ck_assert(json_is_null(json_object_get(json, "device")));
	equals(json, "placements", 0, "fit", "none");
	json_decref(json);
}
END_TEST

START_TEST(without_devices_there_is_none)
{
	n_placements = 0;
	struct gm_options options = asks(0);
	char *text = run("place", script_place, false, &options);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(exits, EXIT_FAILURE);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_place");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, the_best_device_is_named_with_the_reason);
	tcase_add_test(tcase, a_script_gets_the_number_alone);
	tcase_add_test(tcase, a_device_that_must_be_waited_for_is_named_only_if_one_may_wait);
	tcase_add_test(tcase, programs_get_every_device);
	tcase_add_test(tcase, programs_are_told_what_each_device_can_ever_give);
	tcase_add_test(tcase, what_a_newer_daemon_says_is_no_room);
	tcase_add_test(tcase, without_devices_there_is_none);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
