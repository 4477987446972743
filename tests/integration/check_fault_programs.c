/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs of which each call fails in turn (fault_loop.h): gpumemctl, gpumem-run, and a program that
 * uses the client library. Each ends by itself, with what it was asked for or with an error that says
 * why, and leaves nothing in the daemon. The client library also leaves no descriptor and no block.
 */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpumem/gpumem.h"
#include "gpumem/gpumem_copy.h"
#include "gpumem/gpumem_evict.h"
#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_piece.h"
#include "gpumem/gpumem_plan.h"
#include "gpumem/gpumem_region.h"
#include "gpumem/gpumem_share.h"
#include "gpumem/gpumem_weights.h"
#include "tests/integration/fault_loop.h"
#include "tests/integration/raw.h"
#include "tests/integration/weights_fixture.h"
#include "tests/scratch.h"
#include "tests/tap.h"

#define MIB    (UINT64_C(1) << 20)
#define NAME   "faulty"
#define WORKER "fault-worker"
/* Only turns a program that does not end into a failure. */
#define PATIENCE_S 50

static struct gm_daemon daemon_;
static char folder[64], own_program[512];

/* ---- the program that uses the library; it is this one, under another name */

static unsigned refusals;

/* A call that fails must say why. Returns whether it succeeded. */
static bool went(gpumem_status status, const char *call)
{
	if (status == GPUMEM_OK)
		return true;
	refusals++;
	const char *why = gpumem_error_detail();
	if (!why || strlen(why) < 8) {
		fprintf(stderr, "%s: %s, without a reason\n", call, gpumem_status_text(status));
		_exit(99);
	}
	fprintf(stderr, "%s: %s\n", call, why);
	return false;
}
#define WENT(call) went(call, #call)

/* Counts without a call that could fail. */
static size_t open_files(void)
{
	size_t n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The CPU reads and writes memory of the host backend only. */
static void put(void *ptr, size_t at, uint8_t byte)
{
	if (ptr && !gm_on_gpu())
		((uint8_t *)ptr)[at] = byte;
}

/* Ends the program if the memory has lost its content. */
static void look(const void *ptr, size_t at, uint8_t byte)
{
	if (ptr && !gm_on_gpu() && ((const uint8_t *)ptr)[at] != byte)
		_exit(98);
}

static void use_heap(gpumem_session *s)
{
	void *ptr[3] = {NULL};
	for (size_t i = 0; i < 3; i++)
		if (WENT(gpumem_alloc(s, 0, i * 3 * MIB + 512, NULL, NULL, &ptr[i])))
			put(ptr[i], i * 3 * MIB + 511, (uint8_t)(i + 1));
	gpumem_piece piece;
	gpumem_buffer *opened = NULL;
	if (ptr[2] && WENT(gpumem_share_ptr(s, ptr[2], &piece)) &&
		WENT(gpumem_open_piece(s, &piece, &opened)))
		gpumem_buffer_destroy(opened);
	gpumem_request *request = NULL;
	void *later = NULL;
	if (WENT(gpumem_alloc_begin(s, 0, 5 * MIB, NULL, NULL, &request))) {
		(void)WENT(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER));
		if (gpumem_request_ready(request) == GPUMEM_REQUEST_PENDING)
			gpumem_request_cancel(request);
		else if (WENT(gpumem_alloc_take(request, &later)))
			(void)WENT(gpumem_free(s, later, GPUMEM_STREAM_DONE));
	}
	for (size_t i = 0; i < 3; i++) {
		look(ptr[i], i * 3 * MIB + 511, (uint8_t)(i + 1));
		if (ptr[i])
			(void)WENT(gpumem_free(s, ptr[i], GPUMEM_STREAM_DONE));
	}
	(void)WENT(gpumem_trim(s, NULL));
}

static void use_buffers(gpumem_session *s)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL, *view = NULL;
	gpumem_token token;
	options.max_size = 64 * MIB;
	if (!WENT(gpumem_buffer_create(s, 0, 4 * MIB, &options, &buffer)))
		return;
	char back[5] = {0};
	bool there = WENT(gpumem_copy_in(buffer, 1, "12345", 5, GPUMEM_STREAM_DONE, NULL, NULL));
	if (WENT(gpumem_copy_out(buffer, 1, back, 5, GPUMEM_STREAM_DONE, NULL, NULL)) && there &&
		memcmp(back, "12345", 5) != 0)
		_exit(98);
	put(gpumem_buffer_ptr(buffer), 0, 7);
	(void)WENT(gpumem_buffer_resize(buffer, 12 * MIB, NULL, NULL));
	(void)WENT(gpumem_buffer_resize(buffer, 4 * MIB, GPUMEM_STREAM_DONE, NULL));
	if (WENT(gpumem_share(buffer, NULL, &token)) && WENT(gpumem_open(s, &token, &view)))
		gpumem_buffer_destroy(view);
	gpumem_publish_options publish = GPUMEM_PUBLISH_OPTIONS_INIT;
	publish.metadata = "what it is";
	publish.metadata_size = 10;
	uint64_t version;
	if (WENT(gpumem_publish(buffer, NAME, &publish, GPUMEM_STREAM_DONE, &version))) {
		void *data;
		size_t size;
		if (WENT(gpumem_attach(s, NAME, &view)))
			gpumem_buffer_destroy(view);
		if (WENT(gpumem_metadata_read(s, NAME, &data, &size, &version)))
			gpumem_metadata_free(data);
		(void)WENT(gpumem_unpublish(s, NAME));
	}
	look(gpumem_buffer_ptr(buffer), 0, 7);
	gpumem_buffer_destroy(buffer);
}

static void use_eviction(gpumem_session *s)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	if (!WENT(gpumem_buffer_create(s, 0, 2 * MIB, &options, &buffer)))
		return;
	bool filled = WENT(gpumem_buffer_pin(buffer, NULL, NULL));
	if (filled) {
		put(gpumem_buffer_ptr(buffer), 5, 9);
		(void)WENT(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	}
	(void)WENT(gpumem_buffer_evict(buffer));
	if (WENT(gpumem_buffer_pin(buffer, NULL, NULL))) {
		if (filled)
			look(gpumem_buffer_ptr(buffer), 5, 9);
		(void)WENT(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	}
	gpumem_buffer_destroy(buffer);
}

static void use_region(gpumem_session *s)
{
	gpumem_region *region = NULL;
	void *ptr = NULL;
	if (!WENT(gpumem_region_create(s, 0, "weights", 32 * MIB, NULL, &region)))
		return;
	if (WENT(gpumem_region_alloc(region, 3 * MIB, NULL, NULL, &ptr))) {
		put(ptr, 100, 11);
		if (WENT(gpumem_region_pause(s, "weights", GPUMEM_REGION_KEEP)) &&
			WENT(gpumem_region_resume(s, "weights", GPUMEM_WAIT_FOREVER)))
			look(ptr, 100, 11);
	}
	gpumem_region_destroy(region);
}

static void use_others(gpumem_session *s)
{
	gpumem_batch_entry entries[3] = {{.bytes = MIB}, {.bytes = 3 * MIB}, {.bytes = 100}};
	gpumem_batch *batch = NULL;
	gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	void *pinned = NULL;
	if (WENT(gpumem_batch_create(s, 0, entries, 3, NULL, &batch)))
		gpumem_batch_destroy(batch);
	(void)WENT(gpumem_place(s, MIB, GPUMEM_FIT_NOW, &placement));
	if (WENT(gpumem_declare(s, 0, MIB, 0)))
		(void)WENT(gpumem_undeclare(s, 0, MIB));
	if (WENT(gpumem_host_alloc(s, MIB, NULL, &pinned)))
		(void)WENT(gpumem_host_free(s, pinned));
	(void)WENT(gpumem_stats(s, 0, &stats));
}

/* Looks at each tensor, without a call that could fail. */
static bool weights_are_whole(const gpumem_weights *weights)
{
	uint64_t begin = 0;
	for (size_t i = 0; i < MODEL_TENSORS; i++) {
		const gpumem_weights_tensor *tensor = gpumem_weights_at(weights, i);
		begin = i == MODEL_ODD + 1 ? 0 : begin; /* the second file */
		for (uint64_t at = 0; tensor && at < tensor->bytes; at += 997)
			look(tensor->ptr, at, model_byte(begin + at, 3));
		begin += tensor ? tensor->bytes : 0;
	}
	return gpumem_weights_count(weights) == MODEL_TENSORS;
}

static void use_weights(gpumem_session *s)
{
	gpumem_weights *weights = NULL;
	gpumem_weights_entry *entries = NULL;
	size_t n;
	if (WENT(gpumem_weights_load(s, 0, getenv("GPUMEM_TEST_MODEL"), NAME, NULL, &weights)))
		gpumem_weights_detach(weights);
	if (WENT(gpumem_weights_list(s, &entries, &n)))
		gpumem_weights_list_free(entries);
	if (WENT(gpumem_weights_attach(s, NAME, 0, &weights))) {
		if (!weights_are_whole(weights))
			_exit(98);
		gpumem_weights_detach(weights);
	}
	(void)WENT(gpumem_weights_remove(s, NAME));
}

static const struct {
	const char *name;
	void (*use)(gpumem_session *session);
} uses[] = {
	{"heap", use_heap},
	{"buffers", use_buffers},
	{"eviction", use_eviction},
	{"region", use_region},
	{"others", use_others},
	{"weights", use_weights},
};
#define USES (sizeof(uses) / sizeof(uses[0]))

/* Connects, uses the library and disconnects, in a thread of its own: what the library keeps for a thread, such as its
 * cache of small objects, goes with that. */
static void *use_and_leave(void *use)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session = NULL;

	options.away_ms = 1000;
	if (WENT(gpumem_connect(&options, &session))) {
		for (size_t i = 0; i < USES; i++)
			if (strcmp(uses[i].name, use) == 0)
				uses[i].use(session);
		gpumem_disconnect(session);
	}
	return NULL;
}

/* Exits with 0 if nothing failed, with 1 if something did and that was said. */
static int work(const char *use)
{
	pthread_t thread;

	alarm(PATIENCE_S);
	size_t files = open_files();
	int r = pthread_create(&thread, NULL, use_and_leave, (char *)(uintptr_t)use);
	if (r == 0) {
		pthread_join(thread, NULL);
	} else {
		refusals++;
		fprintf(stderr, "cannot start a thread: %s\n", strerror(r));
	}

	/* A driver has descriptors of its own, and keeps memory that it cannot unmap. */
	size_t now = open_files();
	if (now > files && !gm_on_gpu()) {
		fprintf(stderr, "%zu descriptors before, %zu now\n", files, now);
		return 97;
	}
	printf("%s ends.\n", use);
	fflush(stdout);
	_exit(refusals > 0);
}

static gpumem_session *weights_join(const char *name)
{
	return NULL;
}

/* ---- what runs, and what must be so after it */

struct command {
	const char *name;
	const char *arguments[8];
	bool varies; /* it does not print the same each time */
	bool judges; /* its exit status says what it found, and that is on stdout */
	char out[96], err[96];
	char *expected; /* what it prints if nothing fails; NULL: not known yet */
	int status;
	int64_t blocks; /* that the library leaves if nothing fails */
};

static char *read_all(const char *path)
{
	struct gm_daemon file = {0};
	snprintf(file.log, sizeof(file.log), "%s", path);
	return gm_daemon_log(&file);
}

static void redirect(const char *path, int fd)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (file < 0 || dup2(file, fd) < 0)
		_exit(96);
}

static void set_variable(const char *variable)
{
	char name[64];
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(variable, "="), variable);
	setenv(name, strchr(variable, '=') + 1, 1);
}

static void run_command(const struct gm_fault_scenario *scenario)
{
	struct command *command = scenario->data;
	const char *const *env = gm_fault_env();
	const char *build = getenv("top_builddir") ? getenv("top_builddir") : ".";
	char path[512];
	bool is_ctl = strcmp(scenario->program, "gpumemctl") == 0;
	bool is_run = strcmp(scenario->program, "gpumem-run") == 0;

	snprintf(path, sizeof(path), "%s/%s", build,
		is_ctl ? "ctl/gpumemctl" : "run/.libs/gpumem-run");
	if (is_run && access(path, X_OK) != 0)
		snprintf(path, sizeof(path), "%s/run/gpumem-run", build);
	if (!is_ctl && !is_run)
		snprintf(path, sizeof(path), "%s", own_program);
	snprintf(command->out, sizeof(command->out), "%s/out", folder);
	snprintf(command->err, sizeof(command->err), "%s/err", folder);
	atomic_store(&gm_fault_page->blocks, 0);
	fflush(NULL);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		const char *arguments[10] = {scenario->program};
		for (size_t i = 0; i < 8; i++)
			arguments[i + 1] = command->arguments[i];
		setenv("GPUMEM_SOCKET", daemon_.socket, 1);
		setenv("GPUMEM_TEST_MODEL", folder, 1);
		char preload[600];
		snprintf(preload, sizeof(preload), "%s/preload/.libs/libgpumem-preload.so", build);
		setenv("GPUMEM_PRELOAD", preload, 1);
		for (; *env; env++)
			set_variable(*env);
		redirect(command->out, STDOUT_FILENO);
		redirect(command->err, STDERR_FILENO);
		execv(path, (char **)(uintptr_t)arguments);
		_exit(96);
	}
	command->status = gm_fault_reap(child);
}

static void require_nothing(void)
{
	struct gm_raw raw;
	struct gm_figures f;
	gm_raw_observe(&raw, &daemon_);
	gpumem_status status = gm_raw_unpublish(&raw, geteuid(), NAME);
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_NOT_FOUND);
	gm_raw_close(&raw);
	GM_UNTIL((f = gm_figures_now(&daemon_), f.clients == 0 && f.leases == 0 && f.leased == 0 &&
							f.quarantined == 0 && f.orphaned == 0 &&
							f.admitted == 0 && f.declared == 0));
}

static void require_told(const struct gm_fault_scenario *scenario)
{
	struct command *command = scenario->data;
	char *out = read_all(command->out), *err = read_all(command->err);
	int64_t blocks = atomic_load(&gm_fault_page->blocks);
	bool worker = strcmp(scenario->program, WORKER) == 0;
	bool failed = atomic_load(&gm_fault_page->failed) > 0;

	GM_REQUIRE(out && err);
	if (!WIFEXITED(command->status) || (worker && WEXITSTATUS(command->status) > 1))
		GM_FAIL("%s %s: wait status %#x: %s", scenario->program, command->name,
			(unsigned)command->status, err);
	if (!command->expected) {
		if (command->status != 0)
			GM_FAIL("%s %s: wait status %#x: %s", scenario->program, command->name,
				(unsigned)command->status, err);
		command->expected = strdup(out);
	}
	command->blocks = failed || blocks < command->blocks ? command->blocks : blocks;
	if (worker && blocks > command->blocks && !gm_on_gpu())
		GM_FAIL("%s: %lld blocks are left, not %lld", command->name, (long long)blocks,
			(long long)command->blocks);
	if (WEXITSTATUS(command->status) != 0 && strlen(err) < 12 &&
		(!command->judges || strlen(out) < 12))
		GM_FAIL("%s %s: status %d, and does not say why: '%s'", scenario->program,
			command->name, WEXITSTATUS(command->status), err);
	if (command->status == 0 && !*err && !command->varies &&
		strcmp(out, command->expected) != 0)
		GM_FAIL("%s %s: prints this, and nothing is wrong: '%s'", scenario->program,
			command->name, out);
	if (command->status == 0 && *command->expected && !*out)
		GM_FAIL("%s %s: prints nothing, and nothing is wrong", scenario->program,
			command->name);
	free(out);
	free(err);
	require_nothing();
}

/* ---- the tables */

static struct command ctl[] = {
	{.name = "status", .arguments = {"status"}, .varies = true},
	{.name = "status --json", .arguments = {"status", "--json"}, .varies = true},
	{.name = "devices", .arguments = {"devices"}},
	{.name = "clients", .arguments = {"clients", "--json"}},
	{.name = "buffers", .arguments = {"buffers", "--csv"}},
	{.name = "who", .arguments = {"who"}, .varies = true},
	{.name = "limit show", .arguments = {"limit", "show"}},
	{.name = "config check", .arguments = {"config", "check"}, .varies = true},
	{.name = "config show", .arguments = {"config", "show"}},
	{.name = "place", .arguments = {"place", "1M"}, .varies = true},
	{.name = "trim", .arguments = {"trim"}, .varies = true},
	{.name = "doctor", .arguments = {"doctor"}, .varies = true, .judges = true},
};

static struct command run[] = {
	{.name = "a program", .arguments = {"--", "/bin/echo", "ran"}},
	{.name = "with options",
		.arguments = {"--limit", "64M", "--name", "x", "--", "/bin/echo", "ran"}},
};

static struct command client[USES];

static const char config[] =
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 256M\n[device 0]\nsize = 1G\n";

static void set_up(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	weights_write(folder, 3);
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

static void loop(const char *program, struct command *commands, size_t n)
{
	const char *only = getenv("GPUMEM_TEST_FAULT_OF");
	gm_fault_open(program);
	for (size_t i = 0; i < n; i++) {
		char name[64];
		snprintf(name, sizeof(name), "%s: %s", program, commands[i].name);
		struct gm_fault_scenario scenario = {
			.name = name,
			.program = program,
			.run = run_command,
			.after = require_told,
			.data = &commands[i],
		};
		if (!only || strcmp(only, commands[i].name) == 0)
			gm_fault_loop(&scenario);
	}
	gm_fault_close();
}

/* All that a build with sanitizers can do. */
static void once(const char *program, struct command *commands, size_t n)
{
	gm_fault_open(program);
	for (size_t i = 0; i < n; i++) {
		struct gm_fault_scenario scenario = {.program = program, .data = &commands[i]};
		run_command(&scenario);
		require_told(&scenario);
	}
	gm_fault_close();
}

static void name_uses(void)
{
	for (size_t i = 0; i < USES; i++)
		client[i] = (struct command){.name = uses[i].name, .arguments = {uses[i].name}};
}

START_TEST(without_faults_all_goes_well)
{
	name_uses();
	once("gpumemctl", ctl, sizeof(ctl) / sizeof(ctl[0]));
	once("gpumem-run", run, sizeof(run) / sizeof(run[0]));
	once(WORKER, client, USES);
}
END_TEST

START_TEST(gpumemctl_says_why_it_failed)
{
	loop("gpumemctl", ctl, sizeof(ctl) / sizeof(ctl[0]));
}
END_TEST

START_TEST(gpumem_run_says_why_it_failed)
{
	loop("gpumem-run", run, sizeof(run) / sizeof(run[0]));
}
END_TEST

START_TEST(the_client_library_says_why_it_failed_and_leaves_nothing)
{
	name_uses();
	loop(WORKER, client, USES);
}
END_TEST

int main(int argc, char **argv)
{
	if (strcmp(argv[0], WORKER) == 0)
		return work(argv[1]);

	ssize_t n = readlink("/proc/self/exe", own_program, sizeof(own_program) - 1);
	own_program[n > 0 ? n : 0] = '\0';
	Suite *suite = suite_create("fault_programs");
	TCase *tests = tcase_create("programs");
	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_set_timeout(tests, 3600);
	tcase_add_test(tests, without_faults_all_goes_well);
	if (!gm_sanitized()) {
		tcase_add_test(tests, gpumemctl_says_why_it_failed);
		tcase_add_test(tests, gpumem_run_says_why_it_failed);
		tcase_add_test(tests, the_client_library_says_why_it_failed_and_leaves_nothing);
	}
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
