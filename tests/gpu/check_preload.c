/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs that know nothing of gpumemd, under libgpumem-preload.so: every call that it stands in for, by
 * every way in which a program finds it. See preload_actor.h.
 */

#include "tests/gpu/preload_play.h"

static const char *const routes[] = {"linked", "dlsym", "default", "proc", "proc2"};
#define ROUTES (int)(sizeof routes / sizeof *routes)

/* ---- calls */

START_TEST(each_way_to_a_call_leads_to_the_broker)
{
	static const char *const scenes[] = {"alloc", "pitch", "async", "figures", "pointers"};

	start();
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		play(routes[_i], scenes[i], NULL);
	tear_down();
}
END_TEST

START_TEST(pools_are_served_and_answer_for_themselves)
{
	struct play one = {.route = routes[_i], .scene = "pools"};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= 2 * ACTOR_BYTES);
	go_on(&worker);
	gm_hear_word(worker.channel, 't');
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= ACTOR_BYTES && f.leased < 2 * ACTOR_BYTES);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_trim_gives_back_what_the_device_is_done_with)
{
	start();
	/* On the fake driver, another thread is then often recording an event. */
	play("dlsym", "pools-trimmed", "GPUMEM_FAKE_DELAY=cuCtxRecordEvent:300");
	tear_down();
}
END_TEST

START_TEST(pools_come_and_go_in_several_threads)
{
	struct play one = {.route = "dlsym", .scene = "pool-threads"};

	start();
	one_worker(act, &one);
	tear_down();
}
END_TEST

/* Every chunk of physical memory is exactly as large as the program asked, and is never pooled. */
START_TEST(physical_memory_is_there_until_its_last_handle_and_mapping_are_gone)
{
	struct play one = {.route = routes[_i], .scene = "physical"};
	struct gm_worker worker;

	start_with(CONFIG("") "[device 0]\nreserve = 0\n");
	begin(&worker, &one);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, ACTOR_BYTES + ACTOR_PIECE);
	GM_REQUIRE_EQ(f.chunks, 2);
	go_on(&worker);
	gm_hear_word(worker.channel, 'm');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, ACTOR_BYTES + ACTOR_PIECE);
	go_on(&worker);
	gm_hear_word(worker.channel, 'b');
	GM_UNTIL(gm_figures_now(&daemon_).leased == ACTOR_PIECE);
	go_on(&worker);
	gm_hear_word(worker.channel, 'n');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(physical_memory_survives_a_restart_of_the_daemon)
{
	struct play one = {.route = "proc2", .scene = "physical-restart"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	go_on(&worker);
	gm_hear_word(worker.channel, 'm');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, ACTOR_BYTES + ACTOR_PIECE);
	go_on(&worker);
	gm_hear_word(worker.channel, 'n');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(physical_memory_is_bounded_and_wrong_sizes_are_refused)
{
	char config[256];
	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 128M\n", getuid());
	start_with(config);
	play("dlsym", "physical-wrong", NULL);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).peak_charged, 5 * ACTOR_BYTES);
	tear_down();
}
END_TEST

START_TEST(a_default_stream_of_each_thread_is_meant_where_the_program_says_so)
{
	start();
	play("proc2", "per-thread", NULL);
	tear_down();
}
END_TEST

/* What is charged at each show() of a scene. */
static void play_charged(
	const char *route, const char *scene, const uint64_t *expected_charges, size_t n)
{
	struct play one = {.route = route, .scene = scene};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	for (size_t i = 0; i < n; i++) {
		gm_hear_word(worker.channel, 'd');
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).declared, expected_charges[i]);
		go_on(&worker);
	}
	gm_worker_join(&worker);
	tear_down();
}

START_TEST(what_only_the_driver_can_make_is_charged)
{
	static const uint64_t charges[] = {ACTOR_BYTES, ACTOR_BYTES + ACTOR_SOLID, ACTOR_SOLID, 0,
		ACTOR_BYTES, ACTOR_MIPMAP, 0, ACTOR_BYTES, 0, ACTOR_BYTES, 0, 0,
		ACTOR_BYTES + ACTOR_SOLID, 0};

	play_charged(routes[_i], "declared", charges, sizeof charges / sizeof *charges);
}
END_TEST

START_TEST(threads_and_children_leave_no_charge_behind)
{
	static const uint64_t charges[] = {ACTOR_BYTES, 0};

	play_charged("dlsym", "declared-threads", charges, 2);
}
END_TEST

START_TEST(the_memory_of_graphs_is_charged)
{
	static const uint64_t charges[] = {
		ACTOR_BYTES, ACTOR_BYTES, 0, ACTOR_BYTES, 2 * ACTOR_BYTES, 0, 0};

	play_charged(routes[_i], "graphs", charges, sizeof charges / sizeof *charges);
}
END_TEST

START_TEST(graphs_are_charged_for_what_they_use_at_once_and_while_they_are_there)
{
	static const uint64_t most = ACTOR_BYTES + ACTOR_PIECE;
	static const uint64_t charges[] = {most, 0, most, most, 0, most, 0};

	play_charged(routes[_i], "graphs-end", charges, sizeof charges / sizeof *charges);
}
END_TEST

START_TEST(a_limit_holds_for_what_the_driver_makes)
{
	struct play one = {
		.route = "dlsym", .scene = "declared-limit", .env = "GPUMEM_RUN_LIMIT=67108864"};
	struct gm_worker worker;

	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "charged", 1) == 0);
	gm_worker_start(&worker, act, &one);
	unsetenv("GPUMEM_RUN");
	gm_hear_word(worker.channel, 'd');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).declared, 2 * ACTOR_BYTES);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

static void play_pinned(const char *route, const char *scene, const char *config, bool brokered)
{
	struct play one = {.route = route, .scene = scene};
	struct gm_worker worker;
	struct gm_figures f;

	start_with(config);
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'p');
	if (brokered) {
		gm_figures_of(&daemon_, 1, &f);
		GM_REQUIRE(f.leased >= ACTOR_PIECE);
	}
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}

START_TEST(pinned_memory_comes_from_the_pool)
{
	play_pinned(routes[_i], "pinned", CONFIG(""), true);
}
END_TEST

START_TEST(pinned_memory_that_is_not_as_the_drivers_is_not_used)
{
	play_pinned("dlsym", "pinned", CONFIG("host_limit = 0\n"), false);
	play_pinned("dlsym", "pinned", CONFIG("host_memory = memfd\n"), false);
	play_pinned("dlsym", "pinned", CONFIG("host_limit = 2M\n"), false);
}
END_TEST

START_TEST(the_limit_is_the_size_of_the_gpu)
{
	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	play("dlsym", "figures", "GPUMEM_RUN_LIMIT=67108864");
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

START_TEST(nvml_says_what_the_driver_says)
{
	start();
	play("dlsym", "nvml", NULL);
	play("dlsym", "nvml", "GPUMEM_RUN_SEE_ALL=1");
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	play("dlsym", "nvml", "GPUMEM_RUN_LIMIT=67108864");
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

START_TEST(free_waits_for_the_work_that_was_launched)
{
	struct play one = {.route = "dlsym", .scene = "wait"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_hear_word(worker.channel, 'w');
	gm_text_say_word(worker.channel, 'o');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_capture_goes_on_while_memory_is_allocated_and_freed)
{
	start();
	play("dlsym", "capture", NULL);
	tear_down();
}
END_TEST

START_TEST(an_allocation_does_not_wait_for_what_was_freed_during_a_capture)
{
	struct play one = {.route = "dlsym", .scene = "capture-room"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_hear_word(worker.channel, 'w');
	gm_text_say_word(worker.channel, 'o');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(memory_that_was_freed_during_a_capture_can_be_had_after_it)
{
	char config[256], output[128], text[1024];
	gm_scratch_path("preload-capture-full", output, sizeof output);
	struct play one = {.route = "dlsym",
		.scene = "capture-full",
		.env = "GPUMEM_RUN_WAIT=0",
		.output = output};
	struct gm_worker worker;

	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 32M\n", getuid());
	start_with(config);
	GM_REQUIRE(setenv("GPUMEM_RUN_REPORT", "1", 1) == 0);
	begin(&worker, &one);
	unsetenv("GPUMEM_RUN_REPORT");
	go_on(&worker);
	gm_hear_word(worker.channel, 'w');
	gm_text_say_word(worker.channel, 'o');
	gm_worker_join(&worker);
	/* The daemon refused it at first. */
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "M in all, 0 refused\n") != NULL);
	tear_down();
}
END_TEST

START_TEST(a_thread_that_frees_memory_breaks_no_capture)
{
	start();
	/* On the fake driver, the wait for the context takes long to begin. */
	play("dlsym", "capture-race", "GPUMEM_FAKE_DELAY=cuCtxSynchronize:1000");
	tear_down();
}
END_TEST

START_TEST(memory_that_was_freed_before_a_capture_does_not_break_it)
{
	start();
	/* On the fake driver, the event that the library records takes long to begin. */
	play("dlsym", "capture-after-free", "GPUMEM_FAKE_DELAY=cuCtxRecordEvent:1000");
	tear_down();
}
END_TEST

START_TEST(a_thread_that_is_cancelled_makes_its_call_to_the_end)
{
	start();
	/* On the fake driver, a thread can be cancelled within these calls. */
	play("dlsym", "capture-cancel",
		"GPUMEM_FAKE_DELAY=cuStreamEndCapture:1000,cuDevicePrimaryCtxReset:1000");
	tear_down();
}
END_TEST

START_TEST(a_capture_that_began_before_the_session_is_not_broken)
{
	start();
	play("dlsym", "capture-first", NULL);
	tear_down();
}
END_TEST

START_TEST(pinned_memory_that_was_freed_during_a_capture_goes_back_after_it)
{
	struct play one = {.route = "dlsym", .scene = "capture-pinned"};
	struct gm_worker worker;
	struct gm_figures f;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'p');
	gm_figures_of(&daemon_, 1, &f);
	GM_REQUIRE(f.leased >= ACTOR_PIECE);
	go_on(&worker);
	for (;;) {
		gm_hear_word(worker.channel, 't');
		gm_figures_of(&daemon_, 1, &f);
		if (f.leased == 0)
			break;
		go_on(&worker);
	}
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_capture_ends_with_its_stream)
{
	start();
	play("proc2", "capture-destroyed", NULL);
	tear_down();
}
END_TEST

START_TEST(a_stream_that_joined_a_capture_may_be_destroyed)
{
	start();
	play("proc2", "capture-joined", NULL);
	tear_down();
}
END_TEST

START_TEST(a_capture_ends_before_its_stream_is_destroyed)
{
	play_pinned("dlsym", "capture-destroying", CONFIG(""), true);
}
END_TEST

START_TEST(a_pair_of_calls_asks_the_driver_a_few_times_only)
{
	start();
	play("dlsym", "calls", NULL);
	tear_down();
}
END_TEST

START_TEST(memory_ends_with_its_context)
{
	start();
	play("dlsym", "reset", NULL);
	tear_down();
}
END_TEST

START_TEST(memory_of_a_green_context_is_the_primary_ones)
{
	struct play one = {.route = "dlsym", .scene = "green"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_hear_word(worker.channel, 'w');
	gm_text_say_word(worker.channel, 'o');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_full_device_is_out_of_memory)
{
	/* On a real GPU, too, that is soon full. */
	char config[256];
	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 128M\n", getuid());
	start_with(config);
	play("dlsym", "fill", NULL);
	GM_REQUIRE(gm_figures_now(&daemon_).peak_charged <= UINT64_C(128) << 20);
	tear_down();
}
END_TEST

START_TEST(threads_allocate_and_free_at_once)
{
	struct play one = {.route = "proc2", .scene = "threads"};

	start();
	one_worker(act, &one);
	tear_down();
}
END_TEST

START_TEST(processes_share_memory_by_handles)
{
	start();
	play(routes[_i], "ipc", NULL);
	tear_down();
}
END_TEST

START_TEST(what_does_not_fit_is_spilled_to_host_memory)
{
	char config[256];
	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 128M\n", getuid());
	char output[128], text[1024];
	gm_scratch_path("preload-spill", output, sizeof output);
	unlink(output);
	struct play one = {
		.route = "dlsym", .scene = "spill", .env = "GPUMEM_RUN_SPILL=1", .output = output};
	struct gm_worker worker;

	start_with(config);
	GM_REQUIRE(setenv("GPUMEM_RUN_REPORT", "1", 1) == 0);
	begin(&worker, &one);
	unsetenv("GPUMEM_RUN_REPORT");
	go_on(&worker);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).refusals, 0);
	gm_worker_join(&worker);
	/* Nothing was refused, so the daemon speaks of no refusal. */
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "refused"), 0);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "reached a limit"), 0);
	/* The program had all the memory that it asked for, nine pieces. The device had room for five. */
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, ": 9 allocations from gpumemd, 216.0M in all, "
				"96.0M of it spilled to host memory, 0 refused\n") != NULL);
	tear_down();
}
END_TEST

/* The daemon lets requests wait that do not say for how long: not this one, which has found the device full. */
START_TEST(an_allocation_that_must_not_wait_does_not_wait_for_host_memory)
{
	char config[256];
	snprintf(config, sizeof config,
		CONFIG("oom = wait\noom_wait = 1h\n") "[limit uid:%u]\nmax = 128M\n", getuid());
	start_with(config);
	GM_REQUIRE(setenv("GPUMEM_RUN_WAIT", "0", 1) == 0);
	play("dlsym", "fill", "GPUMEM_RUN_SPILL=1");
	unsetenv("GPUMEM_RUN_WAIT");
	/* Host memory was refused, too, which is what the daemon says. */
	GM_REQUIRE(gm_daemon_said(&daemon_, "pinned host memory") > 0);
	tear_down();
}
END_TEST

/* Little enough that a program can fill it, on a fake GPU and on a real one. */
static const char *small(void)
{
	return getenv("GPUMEM_FAKE_DIR")
		       ? CONFIG("")
		       : "[gpumemd]\nfraction = 0.002\nmin_free = 16M\nreserve = 8M\n";
}

START_TEST(pressure_is_told_by_a_signal_once)
{
	struct play one = {
		.route = "dlsym", .scene = "pressure", .env = "GPUMEM_ON_PRESSURE=SIGUSR2"};

	start_with(small());
	one_worker(act, &one);
	tear_down();
}
END_TEST

START_TEST(pressure_does_not_end_a_program_that_handles_no_signal)
{
	start_with(small());
	play("dlsym", "fill", "GPUMEM_ON_PRESSURE=signal");
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preload");
	TCase *tc = tcase_create("preload");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, each_way_to_a_call_leads_to_the_broker, 0, ROUTES);
	tcase_add_loop_test(tc, pools_are_served_and_answer_for_themselves, 0, ROUTES);
	tcase_add_test(tc, pools_come_and_go_in_several_threads);
	tcase_add_test(tc, a_trim_gives_back_what_the_device_is_done_with);
	tcase_add_loop_test(
		tc, physical_memory_is_there_until_its_last_handle_and_mapping_are_gone, 0, ROUTES);
	tcase_add_test(tc, physical_memory_survives_a_restart_of_the_daemon);
	tcase_add_test(tc, physical_memory_is_bounded_and_wrong_sizes_are_refused);
	tcase_add_test(tc, a_default_stream_of_each_thread_is_meant_where_the_program_says_so);
	tcase_add_loop_test(tc, what_only_the_driver_can_make_is_charged, 0, ROUTES);
	tcase_add_test(tc, threads_and_children_leave_no_charge_behind);
	tcase_add_loop_test(tc, the_memory_of_graphs_is_charged, 0, ROUTES);
	tcase_add_loop_test(tc,
		graphs_are_charged_for_what_they_use_at_once_and_while_they_are_there, 0, ROUTES);
	tcase_add_test(tc, a_limit_holds_for_what_the_driver_makes);
	tcase_add_loop_test(tc, pinned_memory_comes_from_the_pool, 0, ROUTES);
	tcase_add_test(tc, pinned_memory_that_is_not_as_the_drivers_is_not_used);
	tcase_add_test(tc, the_limit_is_the_size_of_the_gpu);
	tcase_add_test(tc, nvml_says_what_the_driver_says);
	tcase_add_test(tc, free_waits_for_the_work_that_was_launched);
	tcase_add_test(tc, a_capture_goes_on_while_memory_is_allocated_and_freed);
	tcase_add_test(tc, an_allocation_does_not_wait_for_what_was_freed_during_a_capture);
	tcase_add_test(tc, memory_that_was_freed_during_a_capture_can_be_had_after_it);
	tcase_add_test(tc, a_thread_that_frees_memory_breaks_no_capture);
	tcase_add_test(tc, memory_that_was_freed_before_a_capture_does_not_break_it);
	tcase_add_test(tc, a_thread_that_is_cancelled_makes_its_call_to_the_end);
	tcase_add_test(tc, a_capture_that_began_before_the_session_is_not_broken);
	tcase_add_test(tc, pinned_memory_that_was_freed_during_a_capture_goes_back_after_it);
	tcase_add_test(tc, a_capture_ends_with_its_stream);
	tcase_add_test(tc, a_capture_ends_before_its_stream_is_destroyed);
	tcase_add_test(tc, a_stream_that_joined_a_capture_may_be_destroyed);
	tcase_add_test(tc, a_pair_of_calls_asks_the_driver_a_few_times_only);
	tcase_add_test(tc, memory_ends_with_its_context);
	tcase_add_test(tc, memory_of_a_green_context_is_the_primary_ones);
	tcase_add_test(tc, a_full_device_is_out_of_memory);
	tcase_add_test(tc, threads_allocate_and_free_at_once);
	tcase_add_loop_test(tc, processes_share_memory_by_handles, 0, ROUTES);
	tcase_add_test(tc, what_does_not_fit_is_spilled_to_host_memory);
	tcase_add_test(tc, an_allocation_that_must_not_wait_does_not_wait_for_host_memory);
	tcase_add_test(tc, pressure_is_told_by_a_signal_once);
	tcase_add_test(tc, pressure_does_not_end_a_program_that_handles_no_signal);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
