/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Planning on a GPU: the room that the daemon tells is there, on both transports, whatever other programs
 * have of the GPU; and a GPU says how far the CPU sees managed memory. See broker.h.
 */

#include "gpumem/gpumem_plan.h"
#include "tests/gpu/broker.h"

#define BYTES (32 * MIB)

static const char *const configs[] = {CONFIG(""), IPC_CONFIG};

static void planner(int channel, void *argument)
{
	gpumem_placement p = GPUMEM_PLACEMENT_INIT;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_buffer *buffer;

	(void)channel;
	(void)argument;
	join("planner");
	OK(gpumem_place(session, BYTES, GPUMEM_FIT_NOW, &p));
	OK(gpumem_device_info(session, p.device, &info));
	GM_REQUIRE(strcmp(info.backend, "cuda") == 0);
	GM_REQUIRE(p.room >= BYTES && p.room <= info.capacity);
	GM_REQUIRE(info.visibility >= GPUMEM_VISIBILITY_SYSTEM);

	/* What it takes is missing afterwards, and is there again. */
	OK(gpumem_buffer_create(session, p.device, BYTES, NULL, &buffer));
	gpumem_placement less = GPUMEM_PLACEMENT_INIT;
	OK(gpumem_place(session, MIB, GPUMEM_FIT_NOW, &less));
	if (less.device == p.device)
		GM_REQUIRE(less.room + BYTES <= info.capacity);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_place(session, BYTES, GPUMEM_FIT_NOW, &p));

	/* More than any device has. */
	GM_REQUIRE_EQ(
		gpumem_place(session, UINT64_C(1) << 45, GPUMEM_FIT_WAIT, &p), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gpumem_error_detail(), "which it can never give"));
	gpumem_disconnect(session);
}

START_TEST(what_is_told_can_be_had)
{
	struct gm_worker worker;

	start_with(configs[_i]);
	gm_worker_start(&worker, planner, NULL);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place gpu");
	TCase *tc = tcase_create("place gpu");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, what_is_told_can_be_had, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
