/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program whose tests fail, each in its own way, beside a running daemon: for tidy.sh, which
 * looks at what is left. untidy HOW.
 */
#include "autoconf.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/tap.h"

static const char *how;
static struct gm_daemon daemon_;

START_TEST(fails)
{
	gm_daemon_start(&daemon_, NULL);
	fprintf(stderr, "folder %s\n", daemon_.folder);
	if (strcmp(how, "pass") == 0) {
		gm_daemon_stop(&daemon_);
		return;
	}
	if (strcmp(how, "require") == 0)
		GM_FAIL("as told");
	if (strcmp(how, "kill") == 0)
		kill(getpid(), SIGKILL);
	ck_abort_msg("as told");
}
END_TEST

int main(int argc, char **argv)
{
	how = argc > 1 ? argv[1] : "";
	Suite *suite = suite_create("untidy");
	TCase *tests = tcase_create("untidy");
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, fails);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
