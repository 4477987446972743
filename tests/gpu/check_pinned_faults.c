/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Pinned host memory from a driver that fails, on fake GPUs, which do when told: in the client or
 * in the daemon, halfway or for good. Nothing stays registered or leased, the driver's word for it
 * is told, and what can be had afterwards is.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/pinned.h"
#include "tests/gpu/worker.h"
#include "tests/tap.h"

/* The driver fails in the client, at the call that its argument names; 14 MiB are three chunks. */
static void unlucky(int channel, void *argument)
{
	gpumem_buffer *buffer;
	setenv("GPUMEM_FAKE_FAIL", argument, 1);
	join("unlucky");
	use_gpu_of(0);
	GM_REQUIRE(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 14 * MIB, NULL, &buffer));
	GM_REQUIRE(strstr(gpumem_error_detail(), "CUDA_ERROR_OPERATING_SYSTEM"));
	GM_REQUIRE_EQ(registered(), 0);
	GM_UNTIL(now().leased == 0);
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 14 * MIB, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 1, 14 * MIB);
	GM_REQUIRE_EQ(registered(), registers() ? 1 : 0);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

static const char *const halfway[] = {"cuMemImportFromShareableHandle:2:304", "cuMemMap:2:304",
	"cuMemSetAccess:1:304", "cuMemHostRegister:1:304"};

START_TEST(a_mapping_that_fails_halfway_leaves_nothing)
{
	one_worker(unlucky, (void *)halfway[_i]);
}
END_TEST

/* In the heap, and for good. */
static void hopeless(int channel, void *argument)
{
	void *host;
	setenv("GPUMEM_FAKE_FAIL", argument, 1);
	join("hopeless");
	use_gpu_of(0);
	for (int i = 0; i < 3; i++)
		GM_REQUIRE(gpumem_host_alloc(session, 7 * MIB, NULL, &host) != GPUMEM_OK);
	GM_REQUIRE_EQ(registered(), 0);
	GM_UNTIL(gpumem_trim(session, NULL) == GPUMEM_OK && now().leased == 0);
	gpumem_disconnect(session);
}

START_TEST(a_driver_that_maps_nothing_is_told_and_costs_nothing)
{
	one_worker(hopeless,
		(void *)(registers() ? "cuMemHostRegister:0:304" : "cuMemSetAccess:0:304"));
}
END_TEST

static void hungry(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("hungry");
	use_gpu_of(0);
	GM_REQUIRE(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 14 * MIB, NULL, &buffer));
	GM_UNTIL(now().leased == 0);
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 14 * MIB, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 1, 14 * MIB);
	gpumem_disconnect(session);
}

START_TEST(a_creation_that_fails_halfway_leaves_nothing)
{
	/* In the daemon: the first one is its trial at the start, 14 MiB are three chunks. */
	setenv("GPUMEM_FAKE_FAIL", "cuMemExportToShareableHandle:3:304", 1);
	set_up();
	unsetenv("GPUMEM_FAKE_FAIL");
	one_worker(hungry, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	if (!on_fake() || on_host()) {
		printf("1..0 # SKIP what goes wrong is made to by the fake driver\n");
		return 0;
	}
	Suite *suite = suite_create("pinned host memory, faults");
	TCase *t = tcase_create(registers() ? "registered" : "shared");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, a_mapping_that_fails_halfway_leaves_nothing, registers() ? 3 : 0,
		registers() ? 4 : 3);
	tcase_add_test(t, a_driver_that_maps_nothing_is_told_and_costs_nothing);
	suite_add_tcase(suite, t);
	if (!registers()) {
		t = tcase_create("without a fixture");
		tcase_set_timeout(t, 120);
		tcase_add_test(t, a_creation_that_fails_halfway_leaves_nothing);
		suite_add_tcase(suite, t);
	}
	return gm_tap_run(suite);
}
