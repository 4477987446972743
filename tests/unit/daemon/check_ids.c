/* SPDX-License-Identifier: Apache-2.0 */

/* Ids over several runs of a daemon: with the file, without it, and with a wrong one. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker_ids.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static char folder[64], file[96];
static struct gm_broker_ids ids;
static bool stored;
#define NOW (GM_BROKER_IDS_EPOCH + 1000)

static void setup(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	snprintf(file, sizeof(file), "%s/generation", folder);
}

static void teardown(void)
{
	chmod(folder, 0700);
}

static void write_file(const char *text)
{
	FILE *out = fopen(file, "w");
	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	fclose(out);
}

START_TEST(ids_grow_and_are_never_0)
{
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
	ck_assert(stored);
	ck_assert_uint_eq(ids.generation, 1000);
	uint64_t first = gm_broker_ids_next(&ids);
	ck_assert_uint_eq(first, (UINT64_C(1000) << GM_BROKER_IDS_BLOCK_BITS) + 1);
	ck_assert_uint_eq(gm_broker_ids_next(&ids), first + 1);
}
END_TEST

START_TEST(the_next_run_begins_behind_this_one_even_within_a_second)
{
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
	uint64_t before = gm_broker_ids_next(&ids);
	for (int run = 1; run < 5; run++) {
		ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
		ck_assert(stored);
		ck_assert_uint_eq(ids.generation, 1000 + (uint64_t)run);
		uint64_t now = gm_broker_ids_next(&ids);
		ck_assert_uint_gt(
			now >> GM_BROKER_IDS_BLOCK_BITS, before >> GM_BROKER_IDS_BLOCK_BITS);
		before = now;
	}
}
END_TEST

START_TEST(a_clock_that_went_back_does_not_matter_with_a_file)
{
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW + 500, &stored), 0);
	uint64_t generation = ids.generation;
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, GM_BROKER_IDS_EPOCH - 77, &stored), 0);
	ck_assert_uint_gt(ids.generation, generation);
}
END_TEST

START_TEST(a_lost_or_broken_file_falls_back_to_the_clock)
{
	static const char *const texts[] = {"", "x\n", "-5\n", "12 13\n",
		"99999999999999999999999\n", "18446744073709551615\n", "4294967296\n"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_file(texts[i]);
		ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
		ck_assert(stored);
		ck_assert_uint_eq(ids.generation, 1000);
	}
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_told)
{
	char missing[128];
	snprintf(missing, sizeof(missing), "%s/none/generation", folder);
	ck_assert_int_eq(gm_broker_ids_init(&ids, missing, NOW, &stored), 0);
	ck_assert(!stored);
	ck_assert_uint_eq(ids.generation, 1000);
	ck_assert_int_eq(gm_broker_ids_init(&ids, NULL, NOW, &stored), 0);
	ck_assert(!stored);
	ck_assert_uint_eq(ids.generation, 1000);
}
END_TEST

START_TEST(a_link_is_neither_followed_nor_believed)
{
	char target[128];
	snprintf(target, sizeof(target), "%s/target", folder);
	strcpy(file + strlen(folder), "/target");
	write_file("5000\n");
	strcpy(file + strlen(folder), "/generation");
	ck_assert_int_eq(symlink(target, file), 0);
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
	ck_assert_uint_eq(ids.generation, 1000);
	struct stat st;
	ck_assert_int_eq(lstat(file, &st), 0);
	ck_assert(S_ISREG(st.st_mode)); /* replaced by ours */
	FILE *in = fopen(target, "r");
	char text[16];
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), in));
	fclose(in);
	ck_assert_str_eq(text, "5000\n");
	unlink(target);
}
END_TEST

/* The last id of a block. */
#define MOST ((UINT64_C(1) << GM_BROKER_IDS_BLOCK_BITS) - 1)

START_TEST(ids_stay_exact_in_a_double)
{
	/* The last second whose ids fit. */
	int64_t last = GM_BROKER_IDS_EPOCH + (INT64_C(1) << (53 - GM_BROKER_IDS_BLOCK_BITS)) - 1;

	ck_assert_int_eq(gm_broker_ids_init(&ids, file, last, &stored), 0);
	ids.used = MOST - 1;
	uint64_t id = gm_broker_ids_next(&ids);
	ck_assert_uint_eq(id, (UINT64_C(1) << 53) - 1);
	ck_assert_uint_eq((uint64_t)(double)id, id);
}
END_TEST

START_TEST(a_block_that_is_used_up_gives_way_to_the_next)
{
	ck_assert_int_eq(gm_broker_ids_init(&ids, file, NOW, &stored), 0);
	ids.used = MOST - 1;
	uint64_t last = gm_broker_ids_next(&ids);
	ck_assert_uint_eq(last & MOST, MOST);
	uint64_t next = gm_broker_ids_next(&ids);
	ck_assert_uint_gt(next, last);
	ck_assert_uint_eq(next & MOST, 1);
	ck_assert_uint_eq(ids.generation, 1000);
	struct gm_broker_ids other;
	ck_assert_int_eq(gm_broker_ids_init(&other, file, NOW, &stored), 0);
	ck_assert_uint_gt(other.block, next >> GM_BROKER_IDS_BLOCK_BITS);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_refused)
{
	char path[GM_BROKER_IDS_FILE_BYTES + 1];
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(gm_broker_ids_init(&ids, path, NOW, &stored), -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ids");
	TCase *tests = tcase_create("ids");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, ids_grow_and_are_never_0);
	tcase_add_test(tests, the_next_run_begins_behind_this_one_even_within_a_second);
	tcase_add_test(tests, a_clock_that_went_back_does_not_matter_with_a_file);
	tcase_add_test(tests, a_lost_or_broken_file_falls_back_to_the_clock);
	tcase_add_test(tests, a_file_that_cannot_be_written_is_told);
	tcase_add_test(tests, a_link_is_neither_followed_nor_believed);
	tcase_add_test(tests, ids_stay_exact_in_a_double);
	tcase_add_test(tests, a_block_that_is_used_up_gives_way_to_the_next);
	tcase_add_test(tests, a_path_that_is_too_long_is_refused);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
