/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs that know nothing of gpumemd, under libgpumem-preload.so: every call that it stands in for, by
 * every way in which a program finds it, and every way in which a program ends. See preload_actor.h.
 */

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/gpu/preload_fixture.h"

static const char *const routes[] = {"linked", "dlsym", "default", "proc", "proc2"};
#define ROUTES (int)(sizeof routes / sizeof *routes)

struct play {
	const char *route, *scene;
	const char *env;    /* one more NAME=VALUE, or NULL */
	const char *output; /* where its stderr goes; NULL: as the test's */
	const char *socket; /* where it looks for the daemon; NULL: where it is */
	bool beside;        /* another library is preloaded, too */
	bool before;        /* before ours */
};

/* In the worker: becomes the program. */
static void act(int channel, void *argument)
{
	const struct play *play = argument;
	char preload[1024] = "", program[512];

	if (play->before) {
		built(preload, "tests/gpu", "libbeside.so");
		strcat(preload, ":");
	}
	built(preload + strlen(preload), "preload", "libgpumem-preload.so");
	built(program, "tests/gpu",
		strcmp(play->route, "linked") == 0 ? "preload_linked" : "preload_actor");
	prepare_program(channel);
	if (play->beside) {
		strcat(preload, ":");
		built(preload + strlen(preload), "tests/gpu", "libbeside.so");
	}
	setenv("LD_PRELOAD", preload, 1);
	setenv("GPUMEM_SOCKET", play->socket ? play->socket : daemon_.socket, 1);
	if (play->env)
		putenv((char *)play->env);
	if (play->output)
		redirect(play->output, STDERR_FILENO);
	execl(program, program, play->route, play->scene, (char *)NULL);
	GM_FAIL("cannot run %s: %s", program, strerror(errno));
}

/* Runs a scene until it shows what it holds, which is the daemon's. */
static void begin(struct gm_worker *worker, struct play *play)
{
	gm_worker_start(worker, act, play);
	gm_hear_word(worker->channel, 'h');
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= ACTOR_BYTES);
	GM_REQUIRE_EQ(f.clients, 1);
}

static void go_on(struct gm_worker *worker)
{
	gm_say_word(worker->channel, 'g');
}

static void play(const char *route, const char *scene, const char *env)
{
	struct play one = {.route = route, .scene = scene, .env = env};
	struct gm_worker worker;

	begin(&worker, &one);
	go_on(&worker);
	gm_worker_join(&worker);
}

static void start(void)
{
	start_with(CONFIG(""));
}

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

static void play_pinned(const char *route, const char *config, bool brokered)
{
	struct play one = {.route = route, .scene = "pinned"};
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
	play_pinned(routes[_i], CONFIG(""), true);
}
END_TEST

START_TEST(pinned_memory_that_is_not_as_the_drivers_is_not_used)
{
	play_pinned("dlsym", CONFIG("host_limit = 0\n"), false);
	play_pinned("dlsym", CONFIG("host_memory = memfd\n"), false);
	play_pinned("dlsym", CONFIG("host_limit = 2M\n"), false);
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
	gm_say_word(worker.channel, 'o');
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

START_TEST(a_thread_that_frees_memory_breaks_no_capture)
{
	start();
	/* On the fake driver, the wait for the context takes long to begin. */
	play("dlsym", "capture-race", "GPUMEM_FAKE_DELAY=cuCtxSynchronize:1000");
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

/* ---- ends */

START_TEST(everything_comes_back_however_the_program_ends)
{
	static const struct {
		const char *scene;
		int status;
	} ends[] = {{"destructor", 0}, {"abort", SIGABRT}, {"exit", 0}, {"thread", 0}};
	struct play one = {.route = "dlsym", .scene = ends[_i].scene};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	GM_REQUIRE_EQ(end_of(&worker) & 0x7f, ends[_i].status);
	tear_down();
}
END_TEST

START_TEST(a_program_that_is_killed_leaves_nothing)
{
	struct play one = {.route = "proc2", .scene = "alloc"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	gm_worker_kill(&worker);
	tear_down();
}
END_TEST

/* ---- processes */

START_TEST(a_forked_child_does_not_use_the_session_of_its_parent)
{
	start();
	play("dlsym", "fork", NULL);
	tear_down();
}
END_TEST

START_TEST(a_child_does_not_wait_for_a_thread_that_connects)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_worker worker;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer;

	/* A daemon that never answers. */
	GM_REQUIRE(fd >= 0);
	gm_scratch_path("preload-silent", address.sun_path, sizeof address.sun_path);
	unlink(address.sun_path);
	GM_REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	GM_REQUIRE(listen(fd, 1) == 0);

	struct play one = {.route = "dlsym", .scene = "fork-connect", .socket = address.sun_path};
	gm_worker_start(&worker, act, &one);
	peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	GM_REQUIRE(peer >= 0);
	gm_say_word(worker.channel, 'g');
	gm_hear_word(worker.channel, 'f');
	close(peer);
	close(fd);
	unlink(address.sun_path);
	gm_worker_join(&worker);
}
END_TEST

START_TEST(parent_and_child_each_have_a_session)
{
	struct play one = {.route = "dlsym", .scene = "fork-first"};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'h');
	gm_hear_word(worker.channel, 'h');
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= 2 * ACTOR_BYTES);
	GM_REQUIRE_EQ(f.clients, 2);
	go_on(&worker);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(processes_share_memory_by_handles)
{
	start();
	play(routes[_i], "ipc", "GPUMEM_RUN_IPC=1");
	tear_down();
}
END_TEST

START_TEST(a_program_that_takes_no_memory_has_no_session)
{
	struct play one = {.route = "dlsym", .scene = "idle"};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'i');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(another_preloaded_library_works_as_before)
{
	struct play one = {.route = "dlsym", .scene = "beside", .beside = true};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_library_that_stands_before_ours_is_found_first)
{
	struct play one = {.route = "dlsym",
		.scene = "before",
		.before = true,
		.env = "GPUMEM_RUN_LIMIT=67108864"};

	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	one_worker(act, &one);
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

START_TEST(a_library_finds_the_driver_in_its_own_scope)
{
	struct play one = {.route = "none", .scene = "local", .socket = "/nowhere/socket"};
	char library[512];

	built(library, "tests/gpu", "liblocal.so");
	GM_REQUIRE(setenv("LOCAL_LIBRARY", library, 1) == 0);
	one_worker(act, &one);
	unsetenv("LOCAL_LIBRARY");
}
END_TEST

START_TEST(a_gpu_that_the_daemon_does_not_serve_has_its_own_size)
{
	struct play one = {.route = "proc2",
		.scene = "unserved",
		.env = "GPUMEM_RUN_DEVICES=GPU-00000000-0000-0000-0000-000000000000"};

	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	GM_REQUIRE(setenv("GPUMEM_RUN_LIMIT", "1048576", 1) == 0);
	one_worker(act, &one);
	unsetenv("GPUMEM_RUN");
	unsetenv("GPUMEM_RUN_LIMIT");
	tear_down();
}
END_TEST

START_TEST(what_does_not_fit_is_spilled_to_host_memory)
{
	char config[256];
	snprintf(config, sizeof config, CONFIG("") "[limit uid:%u]\nmax = 128M\n", getuid());
	start_with(config);
	play("dlsym", "spill", "GPUMEM_RUN_SPILL=1");
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

START_TEST(a_program_without_the_driver_finds_no_driver)
{
	struct play one = {.route = "none", .scene = "no-driver", .socket = "/nowhere/socket"};

	one_worker(act, &one);
}
END_TEST

/* ---- without a daemon */

START_TEST(without_a_daemon_memory_is_refused_and_nothing_is_printed)
{
	char output[128], text[1024];
	gm_scratch_path("preload-refused", output, sizeof output);
	struct play one = {.route = "dlsym",
		.scene = "refused",
		.socket = "/nowhere/socket",
		.output = output};

	one_worker(act, &one);
	read_file(output, text, sizeof text);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(an_optional_daemon_that_is_missing_is_said_once)
{
	char output[128], text[1024];
	gm_scratch_path("preload-plain", output, sizeof output);
	struct play one = {.route = "dlsym",
		.scene = "plain",
		.socket = "/nowhere/socket",
		.output = output,
		.env = "GPUMEM_RUN_OPTIONAL=1"};

	one_worker(act, &one);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "gpumem-run: the program runs without gpumemd: ") == text);
	GM_REQUIRE(strchr(text, '\n') == text + strlen(text) - 1);
}
END_TEST

START_TEST(the_report_says_what_went_where)
{
	char output[128], text[1024];
	gm_scratch_path("preload-report", output, sizeof output);
	struct play one = {
		.route = "dlsym", .scene = "plain", .output = output, .env = "GPUMEM_RUN_REPORT=1"};

	start();
	one_worker(act, &one);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "1 allocations from gpumemd, 25165824 bytes in all, 0 refused\n") !=
		   NULL);
	one.scene = "passed";
	one_worker(act, &one);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "0 refused; served by the driver: cuMemCreate 1\n") != NULL);
	tear_down();
}
END_TEST

START_TEST(gpumemctl_shows_how_often_the_driver_served)
{
	struct play one = {.route = "dlsym", .scene = "passed", .env = "ACTOR_SHOWS=1"};
	char ctl[512], command[1200];
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	built(ctl, "ctl", "gpumemctl");
	snprintf(command, sizeof command,
		"'%s' --socket '%s' --csv --no-header clients --columns passed | grep -qx 2", ctl,
		daemon_.socket);
	/* The client publishes its figures within a second. */
	GM_UNTIL(system(command) == 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

/* ---- more rights than its user's */

static void act_secure(int channel, void *argument)
{
	const char *fake = getenv("GPUMEM_FAKE_DIR");
	char library[512], driver[512] = "libcuda.so.1";

	built(library, "preload", "libgpumem-preload.so");
	if (fake)
		snprintf(driver, sizeof driver, "%s/lib/libcuda.so.1", fake);
	prepare_program(channel);
	setenv("SECURE_LIBRARY", realpath(library, NULL), 1);
	setenv("SECURE_DRIVER", driver, 1);
	setenv("GPUMEM_SOCKET", daemon_.socket, 1);
	setenv("GPUMEM_RUN", "limited", 1);
	setenv("GPUMEM_RUN_LIMIT", "1048576", 1);
	GM_REQUIRE(setgid(UID_A) == 0 && setuid(UID_A) == 0);
	execl(argument, argument, "none", "secure", (char *)NULL);
	GM_FAIL("cannot run %s: %s", (char *)argument, strerror(errno));
}

/* Copies the actor, as a program that runs with the rights of its owner. */
static void make_setuid(char path[256])
{
	const char *fake = getenv("GPUMEM_FAKE_DIR");
	char actor[512], block[65536];
	ssize_t n;

	snprintf(path, 256, "%s/setuid-XXXXXX", fake ? fake : "/tmp");
	built(actor, "tests/gpu", "preload_actor");
	int to = mkostemp(path, O_CLOEXEC), from = open(actor, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(to >= 0 && from >= 0);
	while ((n = read(from, block, sizeof block)) > 0)
		GM_REQUIRE(write(to, block, (size_t)n) == n);
	GM_REQUIRE(n == 0 && fchmod(to, 04755) == 0);
	close(from);
	close(to);
}

START_TEST(a_program_with_more_rights_than_its_user_is_left_alone)
{
	struct gm_worker worker;
	char path[256], word;

	start();
	make_setuid(path);
	gm_worker_start(&worker, act_secure, path);
	gm_hear(worker.channel, &word, 1);
	/* 'n': the file system is one on which no program has the rights of its owner. */
	if (word == 's') {
		gm_hear_word(worker.channel, 'i');
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 0);
		go_on(&worker);
	}
	gm_worker_join(&worker);
	unlink(path);
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
	tcase_add_loop_test(
		tc, physical_memory_is_there_until_its_last_handle_and_mapping_are_gone, 0, ROUTES);
	tcase_add_test(tc, physical_memory_survives_a_restart_of_the_daemon);
	tcase_add_test(tc, physical_memory_is_bounded_and_wrong_sizes_are_refused);
	tcase_add_test(tc, a_default_stream_of_each_thread_is_meant_where_the_program_says_so);
	tcase_add_loop_test(tc, what_only_the_driver_can_make_is_charged, 0, ROUTES);
	tcase_add_test(tc, threads_and_children_leave_no_charge_behind);
	tcase_add_loop_test(tc, the_memory_of_graphs_is_charged, 0, ROUTES);
	tcase_add_test(tc, a_limit_holds_for_what_the_driver_makes);
	tcase_add_loop_test(tc, pinned_memory_comes_from_the_pool, 0, ROUTES);
	tcase_add_test(tc, pinned_memory_that_is_not_as_the_drivers_is_not_used);
	tcase_add_test(tc, the_limit_is_the_size_of_the_gpu);
	tcase_add_test(tc, nvml_says_what_the_driver_says);
	tcase_add_test(tc, free_waits_for_the_work_that_was_launched);
	tcase_add_test(tc, a_capture_goes_on_while_memory_is_allocated_and_freed);
	tcase_add_test(tc, a_thread_that_frees_memory_breaks_no_capture);
	tcase_add_test(tc, a_capture_ends_with_its_stream);
	tcase_add_test(tc, a_pair_of_calls_asks_the_driver_a_few_times_only);
	tcase_add_test(tc, memory_ends_with_its_context);
	tcase_add_test(tc, a_full_device_is_out_of_memory);
	tcase_add_test(tc, threads_allocate_and_free_at_once);
	tcase_add_loop_test(tc, everything_comes_back_however_the_program_ends, 0, 4);
	tcase_add_test(tc, a_program_that_is_killed_leaves_nothing);
	tcase_add_test(tc, a_forked_child_does_not_use_the_session_of_its_parent);
	tcase_add_test(tc, a_child_does_not_wait_for_a_thread_that_connects);
	tcase_add_test(tc, parent_and_child_each_have_a_session);
	tcase_add_loop_test(tc, processes_share_memory_by_handles, 0, ROUTES);
	tcase_add_test(tc, a_program_that_takes_no_memory_has_no_session);
	tcase_add_test(tc, another_preloaded_library_works_as_before);
	tcase_add_test(tc, a_library_that_stands_before_ours_is_found_first);
	tcase_add_test(tc, a_library_finds_the_driver_in_its_own_scope);
	tcase_add_test(tc, a_gpu_that_the_daemon_does_not_serve_has_its_own_size);
	tcase_add_test(tc, what_does_not_fit_is_spilled_to_host_memory);
	tcase_add_test(tc, pressure_is_told_by_a_signal_once);
	tcase_add_test(tc, pressure_does_not_end_a_program_that_handles_no_signal);
	tcase_add_test(tc, a_program_without_the_driver_finds_no_driver);
	tcase_add_test(tc, without_a_daemon_memory_is_refused_and_nothing_is_printed);
	tcase_add_test(tc, an_optional_daemon_that_is_missing_is_said_once);
	tcase_add_test(tc, the_report_says_what_went_where);
	tcase_add_test(tc, gpumemctl_shows_how_often_the_driver_served);
	if (GM_TAP_WITH_USERS(a_program_with_more_rights_than_its_user_is_left_alone))
		tcase_add_test(tc, a_program_with_more_rights_than_its_user_is_left_alone);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
