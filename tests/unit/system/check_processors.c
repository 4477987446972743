/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* How many processors there are, also on a machine with very many: this test stands in for its kernel. */

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "common/system/processors.h"
#include "tests/tap.h"

static size_t known; /* processors that the kernel is built for */
static size_t used;  /* the last ones of them */
static int refusal;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	if (refusal || bytes * 8 < known) {
		errno = refusal ? refusal : EINVAL;
		return -1;
	}
	memset(set, 0, bytes);
	for (size_t i = known - used; i < known; i++)
		CPU_SET_S(i, bytes, set);
	return 0;
}

START_TEST(processors_are_counted_on_machines_of_all_sizes)
{
	static const size_t sizes[] = {1, 64, 1024, 1025, 4096, 8192};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		known = (sizes[i] + 63) / 64 * 64;
		used = sizes[i] < 7 ? sizes[i] : 7;
		ck_assert_uint_eq(gm_processors(), used);
	}
}
END_TEST

START_TEST(without_an_answer_there_is_one)
{
	refusal = EPERM;
	ck_assert_uint_eq(gm_processors(), 1);
	refusal = EINVAL;
	ck_assert_uint_eq(gm_processors(), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("processors");
	TCase *tc = tcase_create("processors");

	tcase_add_test(tc, processors_are_counted_on_machines_of_all_sizes);
	tcase_add_test(tc, without_an_answer_there_is_one);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
