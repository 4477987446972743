/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session tells of its memory in the page that the daemon reads: which buffer or block has a
 * row, since when, and how long.
 */
#include <sched.h>

#include "common/bounds.h"
#include "tests/tap.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(a_buffer_is_listed_in_the_clients_page)
{
	struct gm_page_row row;
	struct gm_page_use use;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *small, *large;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE - 1, NULL, &small), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, 0);
	options.tag = "large";
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE, &options, &large), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_uint_eq(row.device, 0);
	ck_assert_str_eq(row.tag, "large");
	ck_assert_uint_ne(row.born_ns, 0);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.active_buffers, 2);
	ck_assert_uint_eq(use.in_use, 2 * LARGE - 1);
	ck_assert_int_eq(gpumem_buffer_set_tag(large, "renamed"), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_str_eq(row.tag, "renamed");
	ck_assert_str_eq(gpumem_buffer_tag(large), "renamed");
	gpumem_buffer_destroy(large);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, 0);
	gpumem_buffer_destroy(small);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.active_buffers, 0);
}
END_TEST

/* How many rows there are; of those with that many bytes the last one. */
static unsigned rows(uint64_t bytes, struct gm_page_row *ret)
{
	struct gm_page_row row;
	unsigned n = 0;
	for (uint32_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
		fake_read_row(fake, i, &row);
		n += row.bytes != 0;
		if (ret && row.bytes == bytes)
			*ret = row;
	}
	return n;
}

START_TEST(a_block_is_listed_when_somebody_looks_and_no_longer_than_it_lives)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	struct gm_page_row row;
	void *small, *plain, *tagged, *brief;
	ck_assert_int_eq(
		gpumem_alloc(session, 1, LARGE - 1, GPUMEM_STREAM_ANY, NULL, &small), GPUMEM_OK);
	ck_assert_int_eq(
		gpumem_alloc(session, 1, LARGE, GPUMEM_STREAM_ANY, NULL, &plain), GPUMEM_OK);
	options.tag = "weights";
	ck_assert_int_eq(gpumem_alloc(session, 1, LARGE + 1, GPUMEM_STREAM_ANY, &options, &tagged),
		GPUMEM_OK);
	options.tag = "brief";
	ck_assert_int_eq(gpumem_alloc(session, 1, LARGE + 2, GPUMEM_STREAM_ANY, &options, &brief),
		GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, brief, GPUMEM_STREAM_DONE), GPUMEM_OK);

	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE, &row), 2);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_uint_eq(row.device, 1);
	ck_assert_str_eq(row.tag, "");
	ck_assert_uint_ne(row.born_ns, 0);
	rows(LARGE + 1, &row);
	ck_assert_uint_eq(row.bytes, LARGE + 1);
	ck_assert_str_eq(row.tag, "weights");
	uint64_t born_ns = row.born_ns;

	/* It is told once, and keeps its age. */
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE + 1, &row), 2);
	ck_assert_uint_eq(row.born_ns, born_ns);
	/* Of another device nothing is. */
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 2);

	/* With the free it is gone, though nobody looks. */
	ck_assert_int_eq(gpumem_free(session, tagged, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE, &row), 1);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_int_eq(gpumem_free(session, plain, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, small, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 0);
}
END_TEST

START_TEST(a_block_is_listed_by_the_librarys_thread_too)
{
	void *ptr;
	ck_assert_int_eq(gpumem_alloc(session, 0, LARGE, GPUMEM_STREAM_ANY, NULL, &ptr), GPUMEM_OK);
	while (rows(0, NULL) != 1)
		sched_yield();
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 0);
}
END_TEST

START_TEST(blocks_past_the_table_get_the_rows_that_come_free)
{
	enum { N = GM_BOUND_TRACKED_BUFFERS + 2 };
	static void *ptr[N];
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	struct gm_page_use use;
	gpumem_buffer *buffer;
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(gpumem_alloc(session, 0, LARGE, GPUMEM_STREAM_ANY, NULL, &ptr[i]),
			GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), GM_BOUND_TRACKED_BUFFERS);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.untracked, 2);
	/* A buffer that finds no row is counted with them. */
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE, NULL, &buffer), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.untracked, 3);
	gpumem_buffer_destroy(buffer);
	/* Whichever goes: all that are alive are told. */
	ck_assert_int_eq(gpumem_free(session, ptr[0], GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(rows(0, NULL), GM_BOUND_TRACKED_BUFFERS);
	ck_assert_uint_eq(use.untracked, 1);
	for (int i = 1; i < N; i++)
		ck_assert_int_eq(gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(rows(0, NULL), 0);
	ck_assert_uint_eq(use.untracked, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client listing");
	TCase *tc = tcase_create("listing");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_buffer_is_listed_in_the_clients_page);
	tcase_add_test(tc, a_block_is_listed_when_somebody_looks_and_no_longer_than_it_lives);
	tcase_add_test(tc, a_block_is_listed_by_the_librarys_thread_too);
	tcase_add_test(tc, blocks_past_the_table_get_the_rows_that_come_free);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
