/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs under libgpumem-preload.so that do what few do, and may. See preload_actor.h.
 */

#include "tests/gpu/preload_play.h"

START_TEST(without_descriptors_memory_is_refused_and_goes_back)
{
	struct play one = {.route = "dlsym", .scene = "odd-files"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	uint64_t before = gm_figures_now(&daemon_).leased;
	go_on(&worker);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).leased == before);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(the_librarys_threads_have_stacks_that_are_large_enough)
{
	struct play one = {.route = "dlsym", .scene = "odd-stacks"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_thread_that_is_cancelled_loses_no_memory_and_no_lock)
{
	/* On the fake driver, a thread can be cancelled within these calls. */
	struct play one = {.route = "dlsym",
		.scene = "odd-cancel",
		.env = "GPUMEM_FAKE_DELAY=cuDeviceGetDefaultMemPool:1000,cuMemAllocManaged:1000,"
		       "cuMemFree:1000,cuArray3DCreate:1000,cuArrayDestroy:1000,cuMipmappedArrayCreate:1000,"
		       "cuMipmappedArrayDestroy:1000,cuMemPoolCreate:1000,cuMemAllocFromPoolAsync:1000,"
		       "cuMemFreeAsync:1000,cuMemPoolDestroy:1000,cuMemImportFromShareableHandle:1000,"
		       "cuMemMap:1000,cuMemRetainAllocationHandle:1000,cuMemUnmap:1000,cuMemRelease:1000,"
		       "cuGraphAddMemAllocNode:1000,cuGraphInstantiateWithFlags:1000,cuGraphDestroy:1000,"
		       "cuGraphExecDestroy:1000"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_hear_word(worker.channel, 'd');
	GM_UNTIL(gm_figures_now(&daemon_).declared == 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preload_odd");
	TCase *tc = tcase_create("preload_odd");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, without_descriptors_memory_is_refused_and_goes_back);
	tcase_add_test(tc, the_librarys_threads_have_stacks_that_are_large_enough);
	tcase_add_test(tc, a_thread_that_is_cancelled_loses_no_memory_and_no_lock);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
