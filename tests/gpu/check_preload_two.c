/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs that use two GPUs under libgpumem-preload.so. Where there is one, nothing is tested. See preload_actor.h.
 */

#include "tests/gpu/preload_play.h"

static void play_two(const char *scene, const char *env)
{
	struct play one = {.route = "dlsym", .scene = scene, .env = env};
	struct gm_worker worker;

	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 't');
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}

/* 1: a stream is captured when the memory is freed. */
START_TEST(memory_is_not_used_again_before_another_devices_stream_comes_to_its_free)
{
	char config[256];

	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 32M\n", getuid());
	start_with(config);
	play_two(_i ? "across-capture" : "across", "GPUMEM_RUN_WAIT=0");
}
END_TEST

START_TEST(a_thread_that_is_cancelled_frees_its_memory_for_another_devices_stream)
{
	char config[256];

	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 32M\n", getuid());
	start_with(config);
	/* On the fake driver, the thread can be cancelled in this call. */
	play_two("across-cancel", "GPUMEM_FAKE_DELAY=cuCtxPushCurrent:1000");
}
END_TEST

START_TEST(a_capture_on_another_device_than_the_current_one_is_not_broken)
{
	char config[256];

	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 128M\n", getuid());
	start_with(config);
	play_two("two-capture", "GPUMEM_RUN_SPILL=1");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preload_two");
	TCase *tc = tcase_create("preload_two");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(
		tc, memory_is_not_used_again_before_another_devices_stream_comes_to_its_free, 0, 2);
	tcase_add_test(tc, a_thread_that_is_cancelled_frees_its_memory_for_another_devices_stream);
	tcase_add_test(tc, a_capture_on_another_device_than_the_current_one_is_not_broken);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
