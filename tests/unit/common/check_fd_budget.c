/* SPDX-License-Identifier: Apache-2.0 */
/* The account of descriptors: who may have how many, and what is kept for whom. */
#include "common/fd_budget.h"

#include "tests/tap.h"

static struct gm_fd_budget budget;
static unsigned settled, settled_all;

/* Spare chunks begin to be destroyed. */
static void settle(void *ctx, bool all)
{
	ck_assert_ptr_eq(ctx, &budget);
	settled++;
	settled_all += all;
	while (budget.spare > 0 && (all || gm_fd_budget_short(&budget))) {
		budget.spare--;
		budget.dying++;
	}
}

static void set_up(void)
{
	gm_fd_budget_init(&budget, 1024, 60);
	budget.settle = settle;
	budget.ctx = &budget;
	settled = settled_all = 0;
}

START_TEST(what_is_open_for_a_moment_has_room_beside_it)
{
	gm_fd_budget_init(&budget, 4096, 60);
	ck_assert_uint_eq(budget.total, 4096 - 60 - 80);
	/* Of a few, a sixteenth. */
	gm_fd_budget_init(&budget, 128, 48);
	ck_assert_uint_eq(budget.total, 128 - 48 - 8);
	gm_fd_budget_init(&budget, 32, 48);
	ck_assert_uint_eq(budget.total, 0);
	ck_assert(!gm_fd_budget_allows_chunks(&budget, 0, 1));
	ck_assert(!gm_fd_budget_allows_connection(&budget, 0, 1));
	/* No limit at all is no reason to overflow. */
	gm_fd_budget_init(&budget, UINT64_MAX, 48);
	ck_assert(gm_fd_budget_allows_chunks(&budget, 1 << 20, 1 << 20));
	ck_assert(gm_fd_budget_allows_connection(&budget, 1 << 20, 1 << 20));
}
END_TEST

START_TEST(chunks_leave_a_quarter_to_connections)
{
	uint64_t most = gm_fd_budget_for_chunks(&budget);
	ck_assert_uint_eq(most, 675);
	budget.chunks = most;
	ck_assert(!gm_fd_budget_allows_chunks(&budget, 0, 1));
	ck_assert(gm_fd_budget_allows_connection(&budget, 0, 98));
	ck_assert(!gm_fd_budget_allows_connection(&budget, 0, 99));
	/* Connections that take more than the quarter take it from what chunks may have, and a
	 * reserve stays. */
	budget.chunks = 0;
	budget.connections = 600;
	ck_assert_uint_eq(gm_fd_budget_for_chunks(&budget), 900 - 600 - 112);
	budget.connections = 900;
	ck_assert_uint_eq(gm_fd_budget_for_chunks(&budget), 0);
}
END_TEST

/* Some users, each of which takes all that it gets. */
START_TEST(each_user_leaves_something_to_the_next)
{
	for (int user = 0; user < 5; user++) {
		uint64_t own = 0;
		while (gm_fd_budget_allows_chunks(&budget, own, 1)) {
			own++;
			budget.chunks++;
		}
		ck_assert_uint_gt(own, 0);
	}
	ck_assert_uint_le(budget.chunks, gm_fd_budget_for_chunks(&budget));

	for (int user = 0; user < 3; user++) {
		uint64_t own = 0;
		while (gm_fd_budget_allows_connection(&budget, own, 2)) {
			own += 2;
			budget.connections += 2;
		}
		ck_assert_uint_gt(own, 0);
	}
	ck_assert_uint_le(budget.connections + budget.chunks, budget.total);
}
END_TEST

/* A user with one connection, one session and a few chunks. */
static bool little_is_left(void)
{
	if (!gm_fd_budget_allows_connection(&budget, 0, 3))
		return false;
	budget.connections += 3;
	if (!gm_fd_budget_allows_connection(&budget, 3, 3))
		return false;
	budget.connections += 3;
	for (uint64_t own = 0; own < 4; own++) {
		if (!gm_fd_budget_allows_chunks(&budget, own, 1))
			return false;
		budget.chunks++;
	}
	return true;
}

/* Some users take all that they get, of the one or of the other; then others come who want little. */
START_TEST(however_many_take_what_they_get_a_further_one_gets_a_little)
{
	for (int connections = 0; connections < 2; connections++) {
		set_up();
		for (int user = 0; user < 6; user++) {
			uint64_t own = 0;
			while (connections ? gm_fd_budget_allows_connection(&budget, own, 1)
					   : gm_fd_budget_allows_chunks(&budget, own, 1)) {
				own++;
				*(connections ? &budget.connections : &budget.chunks) += 1;
			}
			ck_assert_uint_ge(own, 4);
		}
		for (int user = 0; user < 5; user++)
			ck_assert_msg(little_is_left(), "not to user %d", user);
		ck_assert_uint_le(budget.connections + budget.chunks, budget.total);
	}
}
END_TEST

START_TEST(spare_ones_are_released_when_connections_need_theirs)
{
	budget.spare = 580;
	gm_fd_budget_connect(&budget, 200);
	ck_assert_uint_eq(settled, 0);
	gm_fd_budget_connect(&budget, 200);
	ck_assert_uint_eq(settled, 1);
	ck_assert_uint_eq(budget.spare, 900 - 400 - 112);
	/* Those that are being destroyed are still open. */
	ck_assert_uint_eq(budget.dying, 192);
	ck_assert(!gm_fd_budget_ready(&budget, 5));
	budget.dying = 0;
	ck_assert(gm_fd_budget_ready(&budget, 5));
	ck_assert_uint_eq(budget.spare, 900 - 400 - 112);
}
END_TEST

START_TEST(all_spare_ones_go_when_the_kernel_has_none)
{
	ck_assert(!gm_fd_budget_exhausted(&budget));
	budget.spare = 3;
	ck_assert(gm_fd_budget_exhausted(&budget));
	ck_assert_uint_eq(budget.spare, 0);
	ck_assert(gm_fd_budget_exhausted(&budget));
	budget.dying = 0;
	ck_assert(!gm_fd_budget_exhausted(&budget));
	ck_assert_uint_eq(settled_all, 4);
}
END_TEST

START_TEST(an_end_of_a_connection_lets_those_that_wait_go_on)
{
	gm_fd_budget_connect(&budget, 4);
	gm_fd_budget_disconnect(&budget, 2);
	ck_assert_uint_eq(settled, 0);
	budget.waiting = budget.chunks = 1;
	gm_fd_budget_disconnect(&budget, 2);
	ck_assert_uint_eq(settled, 1);
	ck_assert_uint_eq(budget.connections, 0);
}
END_TEST

START_TEST(spare_ones_have_half_of_what_is_for_chunks)
{
	budget.spare = 675 / 2 - 1;
	ck_assert(!gm_fd_budget_spare_full(&budget));
	budget.spare++;
	ck_assert(gm_fd_budget_spare_full(&budget));
	ck_assert(!gm_fd_budget_too_many_spare(&budget));
	budget.spare++;
	ck_assert(gm_fd_budget_too_many_spare(&budget));
	budget.spare = 1;
	budget.chunks = 675;
	ck_assert(gm_fd_budget_spare_full(&budget));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fd_budget");
	TCase *tc = tcase_create("fd_budget");
	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, what_is_open_for_a_moment_has_room_beside_it);
	tcase_add_test(tc, chunks_leave_a_quarter_to_connections);
	tcase_add_test(tc, each_user_leaves_something_to_the_next);
	tcase_add_test(tc, however_many_take_what_they_get_a_further_one_gets_a_little);
	tcase_add_test(tc, spare_ones_are_released_when_connections_need_theirs);
	tcase_add_test(tc, all_spare_ones_go_when_the_kernel_has_none);
	tcase_add_test(tc, an_end_of_a_connection_lets_those_that_wait_go_on);
	tcase_add_test(tc, spare_ones_have_half_of_what_is_for_chunks);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
