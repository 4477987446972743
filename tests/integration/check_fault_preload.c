/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A CUDA program that knows nothing of gpumemd, under gpumem-run, of which each call fails in turn
 * (fault_loop.h): the calls that libgpumem-preload.so and the client library make, and the calls of the
 * driver. Calls that the program itself makes to the C library never fail. The program ends by itself.
 * Each of its calls has succeeded, or returned an error that a program expects, and a refusal was told.
 * Its memory has what it wrote, no descriptor is left open, and nothing is left in the daemon.
 */

#include <stdlib.h>

#include "tests/gpu/gpumem_run_fixture.h"
#include "tests/integration/fault_loop.h"

#define ACTOR "preload_actor"
/* The line with which the program ends. */
#define LAST_LINE "descriptors "
/* The result of a call, as the program prints it, if the driver cannot be used. */
#define NOT_SUPPORTED ": 801\n"

struct descriptors {
	unsigned others, memory; /* memory: those of the driver's memory */
};

struct scene {
	const char *name;
	char output[128];
	int status;
	/* If nothing fails: */
	char *results; /* of the program's calls, without gpumemd */
	struct descriptors descriptors;
};

static struct scene *shown; /* the scene that runs */

static struct scene scenes[] = {{.name = "failing-memory"}, {.name = "failing-others"}};

/* The program asks for more of the device than its limit. */
static const char config[] = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
			     "host_limit = 256M\n[device 0]\nsize = 512M\n";

/* In a worker: becomes the program, under gpumem-run if it is known what it does without. */
static void become_program(int channel, void *argument)
{
	struct scene *scene = argument;
	char program[512];

	built(program, "tests/gpu", ACTOR);
	struct command command = {
		.arguments = ARGUMENTS("--spill", "--limit", LIMIT, "--wait", "0s", "--report",
			"--", program, "dlsym", scene->name),
		.output = scene->output,
	};
	for (const char *const *env = gm_fault_env(); *env; env++)
		putenv((char *)(uintptr_t)*env);
	if (scene->results)
		run(channel, &command);

	prepare_program(channel);
	redirect(scene->output, STDOUT_FILENO);
	redirect(scene->output, STDERR_FILENO);
	execl(program, program, "dlsym", scene->name, (char *)NULL);
	GM_FAIL("cannot run %s: %s", program, strerror(errno));
}

static void run_scene(const struct gm_fault_scenario *scenario)
{
	struct scene *scene = scenario->data;
	struct gm_worker worker;

	unlink(scene->output);
	gm_worker_start(&worker, become_program, scene);
	scene->status = gm_fault_reap(worker.pid);
	close(worker.channel);
}

/* Cuts off the last line of the program, and returns what it says. */
static struct descriptors cut_descriptors(char *text)
{
	struct descriptors found = {0};
	char *last = strstr(text, LAST_LINE);

	if (last) {
		(void)sscanf(last + strlen(LAST_LINE), "%u %u", &found.others, &found.memory);
		*last = '\0';
	}
	return found;
}

/* A connection makes one more when a request waits. Where calls go on failing, the library may be about to connect again when the
 * program counts, and cannot return what is cached. */
static void require_closed(struct scene *scene, const struct descriptors *found)
{
	struct descriptors *expected = &scene->descriptors;
	uint64_t failed = atomic_load(&gm_fault_page->failed);

	if (failed == 0 && found->others > expected->others)
		expected->others = found->others;
	if (failed == 0 && found->memory > expected->memory)
		expected->memory = found->memory;
	if (failed <= 1 &&
		(found->others > expected->others + 1 || found->memory > expected->memory))
		GM_FAIL("%s: %u descriptors are left, and %u of memory, not %u and %u", scene->name,
			found->others, found->memory, expected->others, expected->memory);
}

/* Returns whether each call of a program has succeeded that is said to have a result. */
static bool all_went(const char *text)
{
	for (const char *at = text; (at = strstr(at, ": ")); at++)
		if (strncmp(at, ": 0\n", 4) != 0)
			return false;
	return true;
}

/* Returns whether a call that makes memory failed: gpumem-run reports no others. */
static bool memory_was_refused(const char *text)
{
	static const char *const calls[] = {"\ncuMemAlloc", "\ncuMemCreate", "\ncuArrayCreate"};

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		for (const char *at = text; (at = strstr(at, calls[i])); at++)
			if (strncmp(at + 1 + strcspn(at + 1, ":"), ": 0\n", 4) != 0)
				return true;
	return false;
}

static void require_nothing_left(const struct gm_fault_scenario *scenario)
{
	struct scene *scene = scenario->data;
	char text[16384];

	read_file(scene->output, text, sizeof text);
	if (scene->status != 0)
		GM_FAIL("%s: wait status %#x", scene->name, (unsigned)scene->status);
	const bool told = strstr(text, "): refused: ") != NULL;
	if (strstr(text, "cuMemAlloc") && strstr(text, "no CUDA call asked for device memory"))
		GM_FAIL("%s: its calls did not pass the library", scene->name);
	const bool failed = atomic_load(&gm_fault_page->failed) > 0;
	const struct descriptors descriptors = cut_descriptors(text);

	if (!failed && scene->results && strcmp(text, scene->results) != 0)
		GM_FAIL("%s: its calls have other results than without gpumemd", scene->name);
	/* The driver refuses for itself, unless it does not start. What cannot be written is not told. */
	const unsigned kind = atomic_load(&gm_fault_page->kind);
	const bool refused = kind == GM_FAULT_driver ? strstr(text, NOT_SUPPORTED) != NULL
						     : memory_was_refused(text);
	if (refused && !told && kind != GM_FAULT_write)
		GM_FAIL("%s: it was refused memory, and not told why", scene->name);
	require_closed(scene, &descriptors);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	struct gm_figures f;
	GM_UNTIL((f = gm_figures_now(&daemon_),
		f.leases + f.leased + f.quarantined + f.admitted + f.orphaned + f.declared == 0));
}

/* Learns what a program does without gpumemd. */
static void learn(const struct gm_fault_scenario *scenario)
{
	struct scene *scene = scenario->data;
	char text[16384];

	gm_scratch_path(scene->name, scene->output, sizeof scene->output);
	shown = scene;
	run_scene(scenario);
	read_file(scene->output, text, sizeof text);
	(void)cut_descriptors(text);
	if (scene->status != 0 || !all_went(text))
		GM_FAIL("%s: wait status %#x", scene->name, (unsigned)scene->status);
	scene->results = strdup(text);
	GM_REQUIRE(scene->results);
}

/* A test that fails ends its process: it shows what the program printed last. */
static void show_output(void)
{
	char text[16384] = "";

	if (shown)
		read_file(shown->output, text, sizeof text);
	fprintf(stderr, "%s", text);
}

static void forget(void)
{
	unlink(shown->output);
	shown = NULL;
}

static void set_up(void)
{
	gm_fault_open(ACTOR);
	snprintf(gm_fault_page->exempt, sizeof gm_fault_page->exempt, ACTOR);
	atexit(show_output);
	start_with(config);
}

static void stop(void)
{
	tear_down();
	gm_fault_close();
}

static struct gm_fault_scenario scenario_of(struct scene *scene)
{
	return (struct gm_fault_scenario){
		.name = scene->name,
		.program = ACTOR,
		.kinds = GM_FAULT_ALL,
		.run = run_scene,
		.after = require_nothing_left,
		.data = scene,
	};
}

START_TEST(a_program_has_the_same_results_as_without_gpumemd)
{
	const struct gm_fault_scenario scenario = scenario_of(&scenes[_i]);

	learn(&scenario);
	run_scene(&scenario);
	require_nothing_left(&scenario);
	forget();
}
END_TEST

START_TEST(a_program_survives_each_call_that_fails)
{
	const struct gm_fault_scenario scenario = scenario_of(&scenes[_i]);

	learn(&scenario);
	gm_fault_loop(&scenario);
	forget();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_preload");
	TCase *tests = tcase_create("programs under gpumem-run");
	const int n = sizeof scenes / sizeof *scenes;

	tcase_add_checked_fixture(tests, set_up, stop);
	tcase_set_timeout(tests, 3600);
	tcase_add_loop_test(tests, a_program_has_the_same_results_as_without_gpumemd, 0, n);
	if (!gm_sanitized())
		tcase_add_loop_test(tests, a_program_survives_each_call_that_fails, 0, n);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
