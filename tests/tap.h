/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_TAP_H
#define GM_TESTS_TAP_H

#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Check's own 4 seconds are too few on a busy machine: a deadline is there to end what hangs, and
 * is no measure of anything. What takes a second by itself sets its own, and says why. */
__attribute__((constructor)) static void gm_tap_patience(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "20", 0);
}

/* The main() of a Check program that speaks TAP on stdout: automake's driver counts each case.
 * Whatever the umask of who runs it: other users look into folders that tests make. */
static inline int gm_tap_run(Suite *suite)
{
	umask(022);
	SRunner *runner = srunner_create(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
