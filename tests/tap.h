/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_TAP_H
#define GM_TESTS_TAP_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check's own 4 seconds are too few on a busy machine: a deadline is there to end what hangs, and
 * is no measure of anything. A test that takes a second by itself sets its own, and says why. Each
 * gets four times as long: with sanitizers, and other work beside it, a test of 11 seconds took 60. */
__attribute__((constructor)) static void gm_tap_patience(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	setenv("CK_TIMEOUT_MULTIPLIER", "4", 0);
}

/*
 * Whether this process can become other users: it is root, and of more than a user namespace with
 * root alone in it (which is how an ordinary user runs a test on fake GPUs).
 */
static inline bool gm_tap_has_users(void)
{
	FILE *map = fopen("/proc/self/uid_map", "re");
	unsigned long inside, outside, count, users = 0;

	if (!map)
		return geteuid() == 0;
	while (fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3)
		users += count;
	fclose(map);
	return geteuid() == 0 && users > 65535;
}

static struct {
	const char *names[32];
	size_t n;
} gm_tap_skipped;

/*
 * For a case that needs processes of several users:
 *
 *	if (GM_TAP_WITH_USERS(the_case))
 *		tcase_add_test(tc, the_case);
 *
 * Where there can be none, gm_tap_run() reports the case as skipped, and why.
 */
#define GM_TAP_WITH_USERS(test) gm_tap_with_users(#test)
static inline bool gm_tap_with_users(const char *name)
{
	if (gm_tap_has_users())
		return true;
	if (gm_tap_skipped.n < sizeof(gm_tap_skipped.names) / sizeof(*gm_tap_skipped.names))
		gm_tap_skipped.names[gm_tap_skipped.n++] = name;
	return false;
}

/* Check knows no skipped cases, and prints the plan last: copies the lines that it wrote, and adds
 * those cases before the plan. */
static inline void gm_tap_print_skipped(int written)
{
	char line[4096];
	size_t cases = 0;
	FILE *in = fdopen(written, "r");

	rewind(in);
	while (fgets(line, sizeof(line), in)) {
		if (!strncmp(line, "1..", 3))
			continue;
		cases += !strncmp(line, "ok ", 3) || !strncmp(line, "not ok ", 7);
		fputs(line, stdout);
	}
	for (size_t i = 0; i < gm_tap_skipped.n; i++)
		printf("ok %zu - %s # SKIP needs root, for processes of several users\n", ++cases,
			gm_tap_skipped.names[i]);
	printf("1..%zu\n", cases);
	fclose(in);
}

/* The main() of a Check program that speaks TAP on stdout: automake's driver counts each case.
 * Sets the umask, because other users look into folders that tests make. */
static inline int gm_tap_run(Suite *suite)
{
	char tap[32] = "-";
	int written = gm_tap_skipped.n ? memfd_create("tap", MFD_CLOEXEC) : -1;

	umask(022);
	if (written >= 0)
		snprintf(tap, sizeof(tap), "/proc/self/fd/%d", written);

	SRunner *runner = srunner_create(suite);
	srunner_set_tap(runner, tap);
	srunner_run_all(runner, CK_SILENT);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);

	if (written >= 0)
		gm_tap_print_skipped(written);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
