/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl's command line: ctl/options.c. */

#include <errno.h>
#include <string.h>

#include "common/text/units.h"
#include "ctl/io/model_file.h"
#include "ctl/options.h"
#include "ctl/verbs.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_options options;
static char error[GM_OPTIONS_ERROR];

/* The words after "gpumemctl". */
#define PARSE(...) parse((char *[]){(char *)"gpumemctl", __VA_ARGS__ __VA_OPT__(, ) NULL})

static int parse(char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	memset(&options, 0, sizeof(options));
	*error = '\0';
	return gm_options_parse(argc, argv, &options, error);
}

START_TEST(no_verb_means_status)
{
	ck_assert_int_eq(PARSE(), 0);
	ck_assert_str_eq(options.verb->name, "status");
	ck_assert(!options.verb_given);
	ck_assert(!options.json);
	ck_assert_ptr_null(options.socket);
	ck_assert_uint_eq(options.timeout_ms, GM_OPTIONS_TIMEOUT_MS);
}
END_TEST

START_TEST(options_may_stand_on_both_sides_of_the_verb)
{
	ck_assert_int_eq(PARSE("--json", "--socket", "/x", "buffers", "--older-than=90s",
				 "--no-legend", "--timeout", "500ms"),
		0);
	ck_assert_str_eq(options.verb->name, "buffers");
	ck_assert(options.json && options.no_header && options.verb_given);
	ck_assert_str_eq(options.socket, "/x");
	ck_assert_uint_eq(options.older_than_ms, 90000);
	ck_assert_uint_eq(options.timeout_ms, 500);
	ck_assert_uint_eq(options.given, GM_OPTION_OLDER_THAN);

	ck_assert_int_eq(PARSE("buffers", "--older-than", "10m"), 0);
	ck_assert_uint_eq(options.older_than_ms, 600000);
}
END_TEST

START_TEST(every_verb_is_found_and_takes_the_options_of_all)
{
	for (size_t i = 0; gm_verbs[i]; i++) {
		ck_assert_int_eq(PARSE((char *)gm_verbs[i]->name, "--json", "--help"), 0);
		ck_assert_ptr_eq(options.verb, gm_verbs[i]);
		ck_assert(options.help && options.json);
	}
}
END_TEST

START_TEST(a_misspelt_verb_is_told_what_it_may_have_meant)
{
	static const char *const pairs[][2] = {{"stauts", "'status'"}, {"client", "'clients'"},
		{"buffer", "'buffers'"}, {"dev", "'devices'"}, {"pool", "'pools'"},
		{"tirm", "'trim'"}, {"hlep", "'help'"}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		ck_assert_int_eq(PARSE((char *)pairs[i][0]), -EINVAL);
		ck_assert_ptr_nonnull(strstr(error, "did you mean"));
		ck_assert_ptr_nonnull(strstr(error, pairs[i][1]));
	}
	ck_assert_int_eq(PARSE("xyzzy"), -EINVAL);
	ck_assert_ptr_null(strstr(error, "did you mean"));
	ck_assert_int_eq(PARSE(""), -EINVAL);
}
END_TEST

START_TEST(a_verb_of_another_program_is_told_what_does_that_here)
{
	ck_assert_int_eq(PARSE("top"), -EINVAL);
	ck_assert_str_eq(error,
		"unknown verb 'top'; use 'gpumemctl clients', or 'gpumemctl watch' for events");
	ck_assert_int_eq(PARSE("names"), -EINVAL);
	ck_assert_str_eq(error, "unknown verb 'names'; use 'gpumemctl shares'");
	/* This is neither 'status' nor 'restore'. */
	ck_assert_int_eq(PARSE("start"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "starts the daemon"));
	ck_assert_int_eq(PARSE("restart"), -EINVAL);
	ck_assert_ptr_null(strstr(error, "did you mean"));
}
END_TEST

START_TEST(an_option_of_another_verb_is_not_suggested)
{
	/* --need is of cleanup, --undo of drain. */
	ck_assert_int_eq(PARSE("clients", "--neet", "1G"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '--neet'; see 'gpumemctl clients --help'");
	ck_assert_int_eq(PARSE("cleanup", "--neet", "1G"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '--neet'; did you mean '--need'?");
	ck_assert_int_eq(PARSE("--devise", "0"), -EINVAL);
	ck_assert_ptr_null(strstr(error, "'--device'"));
	ck_assert_int_eq(PARSE("shares", "--undu"), -EINVAL);
	ck_assert_ptr_null(strstr(error, "'--undo'"));
	ck_assert_int_eq(PARSE("trim", "-q"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '-q'; see 'gpumemctl trim --help'");
	ck_assert_int_eq(PARSE("pressure", "-q"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '-q'; did you mean '--quiet'?");
	ck_assert_int_eq(PARSE("status", "--measure=1"), -EINVAL);
	ck_assert_str_eq(error, "option '--measure' takes no value");
}
END_TEST

START_TEST(a_misspelt_option_is_told_what_it_may_have_meant)
{
	ck_assert_int_eq(PARSE("--jsn"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '--jsn'; did you mean '--json'?");
	ck_assert_int_eq(PARSE("status", "--scoket=/x"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "'--socket'"));
	ck_assert_int_eq(PARSE("-z"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '-z'; see 'gpumemctl help'");
	ck_assert_int_eq(PARSE("-hz"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "'-hz'"));
	ck_assert_int_eq(PARSE("shares", "remove", "-zx", "y"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '-zx'; see 'gpumemctl shares --help'");
	/* Only -h is short. */
	ck_assert_int_eq(PARSE("-s", "mine", "status"), -EINVAL);
	ck_assert_str_eq(error, "unknown option '-s'; did you mean '--socket'?");
	ck_assert_int_eq(PARSE("status", "-z", "y"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "'-z'"));
	ck_assert_int_eq(PARSE("shares", "remove", "--jsn", "y"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "'--jsn'"));
	ck_assert_int_eq(PARSE("shares", "remove", "--json=x", "y"), -EINVAL);
	ck_assert_str_eq(error, "option '--json' takes no value");
}
END_TEST

START_TEST(a_negative_value_is_named_as_such)
{
	ck_assert_int_eq(PARSE("place", "-1G"), -EINVAL);
	ck_assert_str_eq(error, "'-1G' is negative; sizes and times are 0 or more");
	ck_assert_int_eq(PARSE("shares", "expire", "x", "-5s"), -EINVAL);
	ck_assert_str_eq(error, "'-5s' is negative; sizes and times are 0 or more");
	ck_assert_int_eq(PARSE("shares", "expire", "x", "-5"), -EINVAL);
	ck_assert_str_eq(error, "'-5' is negative; sizes and times are 0 or more");
	/* Behind --, it is an argument. */
	ck_assert_int_eq(PARSE("place", "--", "-1G"), 0);
	ck_assert_str_eq(options.args[0], "-1G");
}
END_TEST

START_TEST(the_dimensions_of_a_model_have_an_option_each)
{
	for (size_t i = 0; i < GM_MODEL_N_DIMENSIONS; i++) {
		char word[64];
		snprintf(word, sizeof(word), "--%s=%zu", gm_model_dimensions[i].option, i + 7);
		ck_assert_int_eq(PARSE("estimate", word), 0);
		for (size_t k = 0; k < GM_MODEL_N_DIMENSIONS; k++)
			ck_assert_uint_eq(
				*gm_model_dimension(&options.model, k), k == i ? i + 7 : 0);
	}
	ck_assert_int_eq(PARSE("estimate", "--context=128K"), 0);
	ck_assert_uint_eq(options.model.context, 131072);
	ck_assert_int_eq(PARSE("estimate", "--kv-bytes=1", "--no-tied"), 0);
	ck_assert_uint_eq(options.model.bytes_per_value, 1);
	ck_assert(options.untied);
	ck_assert_int_eq(PARSE("estimate", "--no-tied", "--tied"), 0);
	ck_assert(!options.untied && options.model.tied);
	ck_assert_int_eq(PARSE("estimate", "--kv-bytes=17"), -EINVAL);
	ck_assert_str_eq(error, "--kv-bytes '17' is not a whole number from 1 to 16");
	ck_assert_int_eq(PARSE("estimate", "--layers=0"), -EINVAL);
	ck_assert_str_eq(error, "--layers '0' is not a whole number of 1 or more");
}
END_TEST

START_TEST(a_word_of_any_length_is_safe)
{
	static char word[100000];

	memset(word, 'a', sizeof(word) - 1);
	ck_assert_int_eq(PARSE(word), -EINVAL);
	word[0] = word[1] = '-';
	ck_assert_int_eq(PARSE(word), -EINVAL);
	word[33] = '\0';
	ck_assert_int_eq(PARSE(word), -EINVAL);
	ck_assert_int_eq(PARSE(word + 2), -EINVAL);
}
END_TEST

START_TEST(a_value_that_is_missing_or_not_wanted_is_named)
{
	ck_assert_int_eq(PARSE("--socket"), -EINVAL);
	ck_assert_str_eq(error, "option '--socket' needs a value");
	ck_assert_int_eq(PARSE("--json=1"), -EINVAL);
	ck_assert_str_eq(error, "option '--json' takes no value");
	ck_assert_int_eq(PARSE("--socket="), -EINVAL);
	ck_assert_int_eq(PARSE("who", "--columns"), -EINVAL);
	ck_assert_str_eq(error,
		"the columns of 'who' are device, uid, user, name, pid, bytes, in_host, kind, run, what, run_name");
	ck_assert_int_eq(PARSE("buffers", "--sort"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "the columns of 'buffers' are age_ms, idle_ms, "));
	ck_assert_int_eq(PARSE("clients", "--columns"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ", declared"));
}
END_TEST

START_TEST(nonsense_values_are_refused)
{
	static char *const words[] = {(char *)"--older-than=", (char *)"--older-than=abc",
		(char *)"--older-than=-5s", (char *)"--older-than=5parsecs"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		ck_assert_int_eq(PARSE("buffers", words[i]), -EINVAL);
	ck_assert_int_eq(PARSE("trim", "--device=-1"), -EINVAL);
	ck_assert_int_eq(PARSE("trim", "--device=x"), -EINVAL);
	ck_assert_int_eq(PARSE("trim", "--device=18446744073709551616"), -EINVAL);
	ck_assert_int_eq(PARSE("--timeout=0"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "--timeout '0' is too short a time; use "));
	ck_assert_int_eq(PARSE("--timeout=1ns"), -EINVAL);
}
END_TEST

START_TEST(levels_and_sizes_are_read_or_refused)
{
	static const char *const levels[] = {"low", "medium", "high", "critical"};

	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_int_eq(PARSE("pressure", "--at-least", (char *)levels[i]), 0);
		ck_assert_uint_eq(options.at_least, i);
		ck_assert(options.given & GM_OPTION_AT_LEAST);
	}
	ck_assert_int_eq(PARSE("pressure", "--at-least=High"), -EINVAL);
	ck_assert_str_eq(
		error, "--at-least 'High' is not a level; use low, medium, high or critical");
	ck_assert_int_eq(PARSE("pressure", "--at-least=2"), -EINVAL);
	ck_assert_int_eq(PARSE("pressure", "--at-least="), -EINVAL);
	ck_assert_int_eq(PARSE("cleanup", "--need=1.5G", "--dry-run", "--device", "2"), 0);
	ck_assert_uint_eq(options.need, UINT64_C(3) << 29);
	ck_assert_uint_eq(options.given, GM_OPTION_NEED | GM_OPTION_DRY_RUN | GM_OPTION_DEVICE);
	ck_assert_int_eq(PARSE("cleanup", "--need=0"), -EINVAL);
	ck_assert_str_eq(error, "--need '0' is not a size; use 512M or 16G");
	ck_assert_int_eq(PARSE("cleanup", "--need=20"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "--need '20' is a number of bytes"));
	ck_assert_ptr_nonnull(strstr(error, "did you mean 20G?"));
	ck_assert_int_eq(PARSE("cleanup", "--need=20B"), 0);
	/* A long word is cut between two characters. */
	char word[GM_OPTIONS_ERROR * 2] = "--need=";
	for (size_t i = 0; i < GM_OPTIONS_ERROR / 2; i++)
		strcat(word, "\xe2\x82\xac");
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(PARSE("cleanup", word), -EINVAL);
		ck_assert_uint_ge(strlen(error), GM_OPTIONS_ERROR - 3);
		ck_assert(gm_text_ok(error));
		memmove(word + 8, word + 7, strlen(word + 7) + 1);
		word[7] = 'x';
	}
	ck_assert_int_eq(PARSE("cleanup", "--need=all"), -EINVAL);
	ck_assert_int_eq(PARSE("cleanup", "--need=-1G"), -EINVAL);
	ck_assert_int_eq(PARSE("cleanup", "--need=99999999999T"), -EINVAL);
	ck_assert_int_eq(PARSE("cleanup", "--dry-run=yes"), -EINVAL);
	ck_assert_int_eq(PARSE("cleanup", "16G"), -EINVAL);
	ck_assert_int_eq(PARSE("limit", "set", "uid:0", "max=1", "guarantee=1", "priority=1"), 0);
	ck_assert_uint_eq(options.n_args, 5);
	ck_assert_int_eq(
		PARSE("limit", "set", "uid:0", "max=1", "guarantee=1", "priority=1", "max=2"),
		-EINVAL);
	/* Each has its own. */
	ck_assert_int_eq(PARSE("queue", "--device=0"), -EINVAL);
	ck_assert_str_eq(
		error, "'gpumemctl queue' does not take --device; see 'gpumemctl queue --help'");
	ck_assert_int_eq(PARSE("watch", "--at-least=high"), -EINVAL);
	ck_assert_int_eq(PARSE("pressure", "--need=1G"), -EINVAL);
	ck_assert_int_eq(PARSE("trim", "--dry-run"), -EINVAL);
	ck_assert_int_eq(PARSE("limit", "--dry-run"), -EINVAL);
}
END_TEST

START_TEST(devices_are_numbered_up_to_the_limit)
{
	char number[32];

	snprintf(number, sizeof(number), "--device=%d", GM_BOUND_DEVICES - 1);
	ck_assert_int_eq(PARSE("trim", number), 0);
	ck_assert_uint_eq(options.device, GM_BOUND_DEVICES - 1);
	snprintf(number, sizeof(number), "--device=%d", GM_BOUND_DEVICES);
	ck_assert_int_eq(PARSE("trim", number), -EINVAL);
}
END_TEST

START_TEST(an_option_of_another_verb_is_refused)
{
	ck_assert_int_eq(PARSE("pools", "--device", "1"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "does not take --device"));
	ck_assert_int_eq(PARSE("--older-than", "1s", "trim"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "does not take --older-than"));
}
END_TEST

START_TEST(too_many_arguments_are_refused)
{
	ck_assert_int_eq(PARSE("status", "now"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "'now'"));
	ck_assert_int_eq(PARSE("config", "check", "file"), 0);
	ck_assert_uint_eq(options.n_args, 2);
	ck_assert_str_eq(options.args[1], "file");
	ck_assert_int_eq(PARSE("config", "check", "file", "more"), -EINVAL);
	ck_assert_int_eq(PARSE("config", "check", "--", "--odd-name"), 0);
	ck_assert_str_eq(options.args[1], "--odd-name");
}
END_TEST

START_TEST(lists_are_sorted_and_cut_by_columns_that_exist)
{
	ck_assert_int_eq(PARSE("clients", "--sort", "-held,name", "--columns=pid,held", "--csv",
				 "--no-header", "--bytes"),
		0);
	ck_assert(options.csv && options.no_header && options.bytes);
	ck_assert_uint_eq(options.view.n_sorted, 2);
	ck_assert(options.view.sorted[0].down && !options.view.sorted[1].down);
	ck_assert_uint_eq(options.view.n_shown, 2);

	/* Buffers have an order of their own. */
	ck_assert_int_eq(PARSE("buffers"), 0);
	ck_assert_uint_eq(options.view.n_sorted, 2);
	ck_assert_int_eq(PARSE("buffers", "--sort=bytes"), 0);
	ck_assert_uint_eq(options.view.n_sorted, 1);

	ck_assert_int_eq(PARSE("clients", "--sort=hold"), -EINVAL);
	ck_assert_str_eq(error, "--sort: there is no column 'hold'; did you mean 'held'?");
	ck_assert_int_eq(PARSE("buffers", "--columns=held"), -EINVAL);
	ck_assert_int_eq(PARSE("queue", "--sort=pid"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "does not take --sort"));
	ck_assert_int_eq(PARSE("clients", "--json", "--csv"), -EINVAL);
	ck_assert_int_eq(PARSE("clients", "--json", "--columns=pid"), -EINVAL);
	ck_assert_int_eq(PARSE("clients", "--json", "--sort=pid"), 0);
	ck_assert_int_eq(PARSE("watch", "--csv"), -EINVAL);
	ck_assert_str_eq(error, "'gpumemctl watch' shows no table; use --json");
}
END_TEST

START_TEST(a_user_is_a_name_or_a_number)
{
	ck_assert_int_eq(PARSE("clients", "--user", "root", "--name", "a*"), 0);
	ck_assert_uint_eq(options.user, 0);
	ck_assert_str_eq(options.name, "a*");
	ck_assert_uint_eq(options.given, GM_OPTION_USER | GM_OPTION_NAME);
	ck_assert_int_eq(PARSE("buffers", "--user=4294967294"), 0);
	ck_assert_uint_eq(options.user, UINT32_MAX - 1);

	static const char *const wrong[] = {"--user=", "--user=nobody-has-this-name", "--user=-1",
		"--user=4294967295", "--user=1x"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		ck_assert_int_eq(PARSE("clients", (char *)wrong[i]), -EINVAL);
	ck_assert_int_eq(PARSE("status", "--user=root"), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = tcase_create("options");

	tcase_add_test(tcase, no_verb_means_status);
	tcase_add_test(tcase, options_may_stand_on_both_sides_of_the_verb);
	tcase_add_test(tcase, every_verb_is_found_and_takes_the_options_of_all);
	tcase_add_test(tcase, a_misspelt_verb_is_told_what_it_may_have_meant);
	tcase_add_test(tcase, a_verb_of_another_program_is_told_what_does_that_here);
	tcase_add_test(tcase, a_misspelt_option_is_told_what_it_may_have_meant);
	tcase_add_test(tcase, an_option_of_another_verb_is_not_suggested);
	tcase_add_test(tcase, a_negative_value_is_named_as_such);
	tcase_add_test(tcase, the_dimensions_of_a_model_have_an_option_each);
	tcase_add_test(tcase, a_word_of_any_length_is_safe);
	tcase_add_test(tcase, a_value_that_is_missing_or_not_wanted_is_named);
	tcase_add_test(tcase, nonsense_values_are_refused);
	tcase_add_test(tcase, levels_and_sizes_are_read_or_refused);
	tcase_add_test(tcase, devices_are_numbered_up_to_the_limit);
	tcase_add_test(tcase, an_option_of_another_verb_is_refused);
	tcase_add_test(tcase, too_many_arguments_are_refused);
	tcase_add_test(tcase, lists_are_sorted_and_cut_by_columns_that_exist);
	tcase_add_test(tcase, a_user_is_a_name_or_a_number);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
