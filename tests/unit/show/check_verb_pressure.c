/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl pressure against a scripted daemon: what people and programs get to read, and the exit
 * status that answers whether a level is reached.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static void script_devices(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES);
	if (id)
		send_devices(f, id);
}

START_TEST(pressure_is_shown_and_asked_for_by_its_level)
{
	struct gm_options options = {0};
	char *text = run_text("pressure", script_devices);
	has(text, "DEV PRESSURE LEVEL   AVAIL CAPACITY FOREIGN\n");
	has(text, "  0       0% low    100.0G   100.0G      0B\n");
	has(text, "  1      45% medium  55.0G   100.0G    1.0G\n");
	has(text, "  2      90% high    10.0G   100.0G       -\n");
	ck_assert_int_eq(ended, GPUMEM_OK);
	free(text);
	for (uint32_t level = 0; level < 4; level++) {
		options = (struct gm_options){.at_least = level, .given = GM_OPTION_AT_LEAST};
		json_t *json = parse(run("pressure", script_devices, true, &options));
		ck_assert(json_is_boolean(json_object_get(json, "reached")));
		ck_assert_int_eq(json_is_true(json_object_get(json, "reached")), level <= 2);
		ck_assert_int_eq(exits, level <= 2 ? 0 : 1);
		equals(json, "pressure", 2, "level", "high");
		ck_assert(json_is_null(at(json, "pressure", 2, "foreign")));
		ck_assert_double_eq_tol(
			json_real_value(at(json, "pressure", 1, "pressure")), 0.45, 1e-9);
		json_decref(json);
	}
	/* Of one device. */
	options.at_least = 2;
	options.given = GM_OPTION_AT_LEAST | GM_OPTION_DEVICE;
	options.device = 1;
	json_t *json = parse(run("pressure", script_devices, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "pressure")), 1);
	ck_assert(json_is_false(json_object_get(json, "reached")));
	ck_assert_int_eq(exits, 1);
	json_decref(json);
	options.device = 3;
	ck_assert_ptr_null(run("pressure", script_devices, false, &options));
	ck_assert_str_eq(trouble.text, "there is no device 3; see 'gpumemctl devices'");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_pressure");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, pressure_is_shown_and_asked_for_by_its_level);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
