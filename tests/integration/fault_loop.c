/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "tests/integration/fault_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Number of n of each kind and mode, unless GPUMEM_TEST_CALLS says it. */
#define FAULTS_SHORT 4
/* A call that comes only now and then may be missed: so many runs without a failure are the end. */
#define MISSES_MOST 3
/* Time after which a program that waits gets its calls back, in ms. It decides no outcome. */
#define RELENT_MS 300

struct gm_fault *gm_fault_page;
static char fault_file[64];

static const char *const kind_names[] = {
#define FAULT_NAME(name, error) #name,
	GM_FAULT_KINDS(FAULT_NAME)
#undef FAULT_NAME
};

/* A test that fails ends its process: it says which call had failed. */
static void fault_blame(void)
{
	if (!gm_fault_page)
		return;
	fprintf(stderr, "# the call that had failed: %s\n", gm_fault_page->where);
	unlink(fault_file);
}

void gm_fault_open(const char *program)
{
	snprintf(fault_file, sizeof(fault_file), "/tmp/gpumem-fault-%d", (int)getpid());
	int fd = open(fault_file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0 && ftruncate(fd, sizeof(*gm_fault_page)) == 0);
	GM_REQUIRE(fchmod(fd, 0666) == 0); /* for processes of other users */
	gm_fault_page =
		mmap(NULL, sizeof(*gm_fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	GM_REQUIRE(gm_fault_page != MAP_FAILED);
	close(fd);
	snprintf(gm_fault_page->program, sizeof(gm_fault_page->program), "%s", program);
	atexit(fault_blame);
}

void gm_fault_close(void)
{
	GM_REQUIRE(unlink(fault_file) == 0);
	munmap(gm_fault_page, sizeof(*gm_fault_page));
	gm_fault_page = NULL;
}

const char *const *gm_fault_env(void)
{
	static char preload[4352], set[128];
	static const char *env[3];
	const char *build = getenv("top_builddir");
	char *path = realpath(build ? build : ".", NULL);
	GM_REQUIRE(path);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/tests/integration/.libs/libfault.so",
		path);
	free(path);
	GM_REQUIRE(access(preload + strlen("LD_PRELOAD="), R_OK) == 0);
	snprintf(set, sizeof(set), GM_FAULT_FILE "=%s", fault_file);
	env[0] = set;
	/* A sanitizer's own malloc() cannot be replaced. */
	env[1] = gm_sanitized() ? NULL : preload;
	env[2] = NULL;
	return env;
}

void gm_fault_arm(enum gm_fault_kind kind, uint64_t n, bool once)
{
	atomic_store(&gm_fault_page->fail, 0);
	atomic_store(&gm_fault_page->failed, 0);
	gm_fault_page->where[0] = '\0';
	atomic_store(&gm_fault_page->libuv, false);
	atomic_store(&gm_fault_page->kind, kind);
	atomic_store(&gm_fault_page->skip, n);
	atomic_store(&gm_fault_page->fail, once ? 1 : UINT64_MAX);
}

bool gm_fault_disarm(void)
{
	atomic_store(&gm_fault_page->fail, 0);
	return atomic_load(&gm_fault_page->failed) > 0;
}

int gm_fault_reap(pid_t pid)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	int status;
	GM_REQUIRE(end.fd >= 0);
	if (poll(&end, 1, GM_PATIENCE_MS) != 1)
		GM_FAIL("a process does not end");
	close(end.fd);
	GM_REQUIRE(waitpid(pid, &status, 0) == pid);
	return status;
}

/* ---- the loop */

/* Starts a process that ends the failures after a while: a call that goes on failing may make others
 * wait for ever. */
static pid_t loop_relent(void)
{
	pid_t parent = getpid(), pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent) {
		poll(NULL, 0, RELENT_MS);
		atomic_store(&gm_fault_page->fail, 0);
	}
	_exit(0);
}

/* One run. Returns whether a call failed in it. */
static bool loop_run(const struct gm_fault_scenario *scenario, unsigned kind, uint64_t n, bool once)
{
	fprintf(stderr, "# %s: %s:%llu:%s\n", scenario->name, kind_names[kind],
		(unsigned long long)n, once ? "once" : "on");
	gm_fault_arm(kind, n, once);
	pid_t relent = once ? 0 : loop_relent();
	scenario->run(scenario);
	if (relent) {
		kill(relent, SIGKILL);
		GM_REQUIRE(waitpid(relent, NULL, 0) == relent);
	}
	bool failed = gm_fault_disarm();
	scenario->after(scenario);
	return failed;
}

/* Returns how many calls of each kind a run makes in which nothing fails. */
static void loop_count(const struct gm_fault_scenario *scenario, uint64_t ret_calls[GM_FAULT_MOST])
{
	/* The first run fills caches. */
	for (int i = 0; i < 2; i++) {
		for (unsigned kind = 0; kind < GM_FAULT_MOST; kind++)
			atomic_store(&gm_fault_page->calls[kind], 0);
		atomic_store(&gm_fault_page->counts, 1);
		scenario->run(scenario);
		atomic_store(&gm_fault_page->counts, 0);
		scenario->after(scenario);
	}
	for (unsigned kind = 0; kind < GM_FAULT_MOST; kind++)
		ret_calls[kind] = atomic_load(&gm_fault_page->calls[kind]);
}

/* Returns the kinds of calls that fail in a scenario. */
static uint32_t loop_kinds(const struct gm_fault_scenario *scenario)
{
	if (scenario->kinds)
		return scenario->kinds;
	return gm_on_gpu() && !getenv("GPUMEM_TEST_FAULT") ? GM_FAULT_BIT(driver) : GM_FAULT_ALL;
}

static void loop_kind(
	const struct gm_fault_scenario *scenario, unsigned kind, uint64_t calls, bool once)
{
	const char *faults = getenv("GPUMEM_TEST_CALLS");
	uint64_t most = faults ? strtoull(faults, NULL, 10) : FAULTS_SHORT;
	uint64_t stride = most && calls > most ? calls / most : 1;
	unsigned failed = 0;

	for (uint64_t n = 0, misses = 0; misses < (stride > 1 ? 1 : MISSES_MOST); n += stride) {
		bool noticed = loop_run(scenario, kind, n, once);
		failed += noticed;
		misses = noticed ? 0 : misses + 1;
	}
	fprintf(stderr, "# %s: %u failures tried of %s, %s\n", scenario->name, failed,
		kind_names[kind], once ? "once each" : "each with all that follow");
}

void gm_fault_loop(const struct gm_fault_scenario *scenario)
{
	const char *only = getenv("GPUMEM_TEST_FAULT");
	const char *colon = only ? strchr(only, ':') : NULL;
	uint64_t calls[GM_FAULT_MOST];

	loop_count(scenario, calls);
	for (unsigned kind = 0; kind < GM_FAULT_MOST; kind++) {
		if (!(loop_kinds(scenario) & UINT32_C(1) << kind) || calls[kind] == 0)
			continue;
		size_t n = strlen(kind_names[kind]);
		if (only &&
			(strncmp(only, kind_names[kind], n) != 0 || (only[n] && only[n] != ':')))
			continue;
		if (colon) {
			loop_run(scenario, kind, strtoull(colon + 1, NULL, 10),
				strstr(colon + 1, "once") != NULL);
			continue;
		}
		loop_kind(scenario, kind, calls[kind], true);
		loop_kind(scenario, kind, calls[kind], false);
	}
}
