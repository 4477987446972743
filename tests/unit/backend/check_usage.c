/* SPDX-License-Identifier: Apache-2.0 */

/* Who uses a device: order, bounds and names, with a backend that lists what a test tells it to. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/bounds.h"
#include "daemon/backend/usage.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_backend_process given[GM_BOUND_PROCESSES + 1];
static size_t n_given;
static int result;

static int list(void *backend, uint32_t device, struct gm_backend_process **ret, size_t *ret_n)
{
	if (result < 0)
		return result;
	*ret = malloc(sizeof(given));
	memcpy(*ret, given, sizeof(given));
	*ret_n = n_given;
	return 0;
}

static const struct gm_backend_ops ops = {.name = "test", .processes = list};
static const struct gm_backend_ops alone = {.name = "test"};

static struct gm_usage *survey(const struct gm_backend_ops *from)
{
	struct gm_usage *usage = gm_usage_read(from, NULL, 0);
	ck_assert_ptr_nonnull(usage);
	return usage;
}

START_TEST(one_process_too_many_is_counted_and_not_listed)
{
	GM_BOUND_TEST(PROCESSES);
	n_given = GM_BOUND_PROCESSES + 1;
	for (size_t i = 0; i < n_given; i++)
		given[i] = (struct gm_backend_process){(pid_t)(1000000000 + i), 100 + i};
	struct gm_usage *usage = survey(&ops);
	ck_assert(usage->known);
	ck_assert_uint_eq(usage->n, GM_BOUND_PROCESSES);
	ck_assert_uint_eq(usage->unlisted, 1);
	/* The smallest is the one that is left out. */
	ck_assert_uint_eq(usage->list[0].bytes, 100 + GM_BOUND_PROCESSES);
	ck_assert_uint_eq(usage->list[GM_BOUND_PROCESSES - 1].bytes, 101);
	gm_usage_free(usage);
}
END_TEST

START_TEST(a_process_is_named_whatever_it_calls_itself)
{
	ck_assert_int_eq(prctl(PR_SET_NAME, "a\033[31m\xff b"), 0);
	n_given = 1;
	given[0] = (struct gm_backend_process){getpid(), 1};
	struct gm_usage *usage = survey(&ops);
	ck_assert_str_eq(usage->list[0].command, "a?[31m? b");
	ck_assert(usage->list[0].uid_known);
	ck_assert_uint_eq(usage->list[0].uid, geteuid());
	gm_usage_free(usage);
}
END_TEST

START_TEST(a_process_that_is_gone_is_a_number)
{
	n_given = 2;
	given[0] = (struct gm_backend_process){1999999999, GM_BACKEND_UNKNOWN};
	given[1] = (struct gm_backend_process){1999999998, 3};
	struct gm_usage *usage = survey(&ops);
	ck_assert_uint_eq(usage->n, 2);
	/* What is not known does not pass for the most. */
	ck_assert_int_eq(usage->list[0].pid, 1999999998);
	ck_assert_int_eq(usage->list[1].pid, 1999999999);
	ck_assert_uint_eq(usage->list[1].bytes, GM_BACKEND_UNKNOWN);
	ck_assert(!usage->list[1].uid_known);
	ck_assert_str_eq(usage->list[1].command, "");
	gm_usage_free(usage);
}
END_TEST

START_TEST(nobody_and_not_known_are_told_apart)
{
	struct gm_usage *usage = survey(&alone);
	ck_assert(usage->known);
	ck_assert_uint_eq(usage->n, 0);
	gm_usage_free(usage);
	result = -EOPNOTSUPP;
	usage = survey(&ops);
	ck_assert(!usage->known);
	ck_assert_uint_eq(usage->n, 0);
	gm_usage_free(usage);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("usage");
	TCase *tests = tcase_create("usage");
	tcase_add_test(tests, one_process_too_many_is_counted_and_not_listed);
	tcase_add_test(tests, a_process_is_named_whatever_it_calls_itself);
	tcase_add_test(tests, a_process_that_is_gone_is_a_number);
	tcase_add_test(tests, nobody_and_not_known_are_told_apart);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
