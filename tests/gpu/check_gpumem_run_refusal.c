/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumem-run: what the user of a program reads on stderr: the first refusal, and the report. See
 * gpumem_run_fixture.h.
 */

#include "tests/gpu/gpumem_run_fixture.h"

/* Runs the actor until it shows itself with that word, and then to its end: what it printed. */
static void run_heard(const char *const *arguments, char word, char text[4096])
{
	char output[128];
	struct gm_worker worker;
	struct command command = {.arguments = arguments, .output = output};

	gm_scratch_path("run-heard", output, sizeof output);
	unlink(output);
	gm_worker_start(&worker, run, &command);
	gm_hear_word(worker.channel, word);
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	read_file(output, text, 4096);
	unlink(output);
}

START_TEST(the_first_refusal_is_told_with_its_cause_and_remedy)
{
	char text[4096];

	start_with(CONFIG(""));
	run_heard(ARGUMENTS("--limit", LIMIT, "--wait", "0s", "--name", "trainer", "--", "sh", "-c",
			  "exec \"$ACTOR\" dlsym fill"),
		'h', text);
	if (strstr(text, "gpumem-run: trainer (") != text || !strstr(text, "): refused: run ") ||
		!strstr(text, " may hold 64.0M, holds 48.0M, asked for ") ||
		!strstr(text, "; see gpumemctl limit\n") ||
		strchr(text, '\n') != text + strlen(text) - 1)
		GM_FAIL("it said: %s", text);
	tear_down();
}
END_TEST

START_TEST(no_refusal_is_told_if_the_user_wants_none_or_stderr_is_another_file)
{
	char text[4096];

	start_with(CONFIG(""));
	run_heard(ARGUMENTS("--limit", LIMIT, "--wait", "0s", "--quiet", "--", "sh", "-c",
			  "exec \"$ACTOR\" dlsym fill"),
		'h', text);
	ck_assert_str_eq(text, "");
	run_heard(ARGUMENTS("--limit", LIMIT, "--wait", "0s", "--", "sh", "-c",
			  "\"$ACTOR\" dlsym fill 2>&1 | cat"),
		'h', text);
	ck_assert_str_eq(text, "");
	tear_down();
}
END_TEST

START_TEST(the_report_says_also_that_no_memory_was_asked_for)
{
	char text[4096];

	start_with(CONFIG(""));
	run_heard(ARGUMENTS("--report", "--name", "idle", "--", "sh", "-c",
			  "exec \"$ACTOR\" dlsym idle"),
		'i', text);
	if (strstr(text, "gpumem-run: idle (") != text ||
		!strstr(text, "): no CUDA call asked for device memory\n") ||
		strchr(text, '\n') != text + strlen(text) - 1)
		GM_FAIL("it said: %s", text);
	/* This one closes stderr itself when it exits. */
	struct command closes = {.arguments = ARGUMENTS("--report", "cat", "/dev/null")};
	GM_REQUIRE_EQ(outcome(&closes, text), 0);
	GM_REQUIRE(strstr(text, "gpumem-run: cat (") == text);
	/* Only the process that gpumem-run became says so. */
	run_heard(ARGUMENTS("--report", "--", "sh", "-c", "\"$ACTOR\" dlsym idle; exit $?"), 'i',
		text);
	ck_assert_str_eq(text, "");
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpumem-run, refusals");
	TCase *tc = tcase_create("gpumem-run, refusals");
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, the_first_refusal_is_told_with_its_cause_and_remedy);
	tcase_add_test(tc, no_refusal_is_told_if_the_user_wants_none_or_stderr_is_another_file);
	tcase_add_test(tc, the_report_says_also_that_no_memory_was_asked_for);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
