/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of chunks: whom they count for, and requests that wait for one. */
#include "daemon/books/hash_table.h"
#include "tests/unit/core/fake_core.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "common/fd_budget.h"
#include "tests/tap.h"

static struct fake_core fake;
static struct gm_user_table users;
#define fds users.fds
static struct gm_session *s, *other;
static struct fake_request q;
static uint32_t d;

/* There are 64 for clients, and 48 of them for chunks. */
static void set_up(void)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	fake_core_init_asking(&fake);
	fake.calls_off = true;
	gm_user_table_init(&users);
	fds.total = 64;
	gm_core_share_users(fake.core, &users);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 1, 1000);
	other = fake_session(&fake, 2, 2000);
}

static void tear_down(void)
{
	fake_core_deinit(&fake);
	ck_assert_uint_eq(fds.chunks + fds.spare + fds.dying + fds.waiting, 0);
	ck_assert_ptr_null(fds.settle);
	gm_user_table_deinit(&users);
}

START_TEST(a_user_leaves_a_quarter_of_the_descriptors_to_others)
{
	struct gm_lease *lease = fake_lease(&fake, s, d, 2 * MiB);
	for (int i = 1; i < 36; i++)
		fake_lease(&fake, s, d, 2 * MiB);
	ck_assert_uint_eq(fds.chunks, 36);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(
		strstr(q.detail, "user 1000 holds 36 file descriptors of the daemon and "
				 "asked for 1 more"));
	ck_assert_ptr_nonnull(strstr(q.detail, "12 of 48 are left"));
	ck_assert_ptr_nonnull(strstr(q.detail, "LimitNOFILE="));
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 1);
	ck_assert_ptr_nonnull(strstr(fake_told(&fake, GM_EVENT_REFUSED)->text,
		"refused: user 1000 holds 36 file descriptors of the daemon"));
	/* Another session of the uid has no share of its own. */
	fake_ask(&fake, &q, fake_session(&fake, 3, 1000), d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	/* A large chunk costs no more than a small one, and one returned can be had again. */
	gm_lease_return(s, lease);
	fake_lease(&fake, s, d, GiB);
	/* Another user has a share. */
	fake_lease(&fake, other, d, 2 * MiB);
	ck_assert_uint_eq(fds.chunks, 37);
}
END_TEST

START_TEST(whoever_asked_for_a_chunk_pays_as_long_as_it_is_leased)
{
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 2000};
	uint8_t token[GM_TOKEN_BYTES];
	fake.for_others = true;
	struct gm_lease *lease = fake_lease(&fake, s, d, 2 * MiB), *opened;
	ck_assert_int_eq(gm_lease_share(s, lease, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(other, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_return(s, lease);
	gm_session_end_died(s);
	ck_assert_uint_eq(fds.chunks, 1);
	/* So the uid can have one less, in a session that has begun since. */
	s = fake_session(&fake, 1, 1000);
	for (int i = 1; i < 36; i++)
		fake_lease(&fake, s, d, 2 * MiB);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	gm_lease_return(other, opened);
	ck_assert_uint_eq(fds.dying, 1);
	fake_core_run(&fake);
	ck_assert_uint_eq(fds.chunks, 35);
	fake_lease(&fake, s, d, 2 * MiB);
}
END_TEST

/* Fills the pool with as many chunks as may be there. */
static void fill_pool(void)
{
	struct gm_lease *leases[24];
	for (int i = 0; i < 24; i++)
		leases[i] = fake_lease(&fake, s, d, 4 * MiB);
	for (int i = 0; i < 24; i++)
		gm_lease_return(s, leases[i]);
	ck_assert_uint_eq(fds.spare, 24);
}

START_TEST(pooled_chunks_hold_half_at_most)
{
	struct gm_lease *lease = fake_lease(&fake, other, d, 2 * MiB);
	fill_pool();
	gm_lease_return(other, lease);
	/* The oldest went for it. */
	ck_assert_uint_eq(fds.spare, 24);
	ck_assert_uint_eq(fds.dying, 1);
	fake_core_run(&fake);
	ck_assert_uint_eq(fds.dying, 0);
	fake_core_check(&fake, d);
}
END_TEST

static void fill_pool_and_connect(void)
{
	fill_pool();
	fds.connections = 40; /* the pool has all the others */
}

/* Makes a request that needs a descriptor which the pool has to give up first. */
static void ask_and_wait(void)
{
	fill_pool_and_connect();
	fake_ask(&fake, &q, other, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fds.waiting, 1);
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	/* As many were released as leave some free for connections. */
	ck_assert_uint_eq(fake_core_count(&fake, true), 9);
	ck_assert_uint_eq(fds.spare, 15);
}

START_TEST(a_request_waits_until_a_pooled_chunk_is_destroyed)
{
	ask_and_wait();
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fds.waiting, 0);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_connection_that_ends_lets_a_request_go_on)
{
	ask_and_wait();
	gm_fd_budget_disconnect(&fds, 2);
	ck_assert_uint_eq(fds.waiting, 0);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_that_waits_can_be_cancelled)
{
	ask_and_wait();
	gm_core_cancel(fake.core, &q.r);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(fds.waiting, 0);
	ck_assert_uint_eq(fds.chunks, 0);
	fake_core_run(&fake);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(the_reserve_takes_none_that_others_need)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	policy.reserve = GiB;
	fds.connections = 40;
	for (int i = 0; i < 7; i++)
		fake_lease(&fake, s, d, 2 * MiB);
	gm_core_set_policy(fake.core, d, &policy);
	fake_core_run(&fake);
	/* Half of 16 at most. */
	ck_assert_uint_eq(fds.spare, 8);
	fds.connections = 48;
	fake_lease(&fake, other, d, 2 * MiB);
	fake_core_run(&fake);
	ck_assert_uint_le(fds.chunks + fds.spare, 8);
}
END_TEST

START_TEST(the_pool_gives_up_all_when_the_backend_has_no_descriptor)
{
	fill_pool();
	fake_ask(&fake, &q, other, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_jobs, 1);
	fake_core_complete(&fake, 0, -EMFILE);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 24);
	/* The first that is gone lets it try again. */
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(without_a_pool_there_is_nothing_to_wait_for)
{
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, -ENFILE);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_uint_eq(fds.chunks, 0);
}
END_TEST

/* ---- control blocks */

static void destroy_one(void)
{
	size_t i = 0;

	while (i < fake.n_jobs && !fake.jobs[i].destroy)
		i++;
	fake_core_complete(&fake, i, 0);
}

/* The same as ask_and_wait(), for a lease with signals. */
static void ask_for_signals_and_wait(void)
{
	fill_pool_and_connect();
	fake.signals = true;
	fake_ask(&fake, &q, other, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fds.waiting, 2); /* the chunk and the block */
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
}

START_TEST(a_control_block_waits_as_a_chunk_does)
{
	ask_for_signals_and_wait();
	size_t dying = fds.dying;
	for (int i = 2; i-- > 0;) {
		destroy_one();
		ck_assert_uint_eq(fds.waiting, i);
		ck_assert_uint_eq(fds.dying, --dying);
	}
	ck_assert_uint_eq(q.ended, 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

/* A request that the pool can serve lacks nothing but its block. */
START_TEST(a_request_from_the_pool_waits_for_its_control_block_alone)
{
	fill_pool();
	fds.dying = 48; /* somebody else's */
	fake.signals = true;
	fake_ask(&fake, &q, s, d, 4 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fds.waiting, 1);
	fds.dying = 0;
	gm_fd_budget_disconnect(&fds, 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
}
END_TEST

START_TEST(a_connection_that_ends_lets_a_control_block_go_on)
{
	ask_for_signals_and_wait();
	gm_fd_budget_disconnect(&fds, 40);
	/* Nobody hears of it while a connection ends. */
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake.wake_ns, fake.now);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(fds.waiting, 0);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_whose_control_block_waits_can_be_cancelled)
{
	ask_for_signals_and_wait();
	gm_core_cancel(fake.core, &q.r);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(fds.waiting + fds.chunks, 0);
	fake_core_run(&fake);
	fake_core_check(&fake, d);
}
END_TEST

/* Each user's requests wait for a chunk and a block. Neither kind lets the other wait for long. */
START_TEST(control_blocks_and_chunks_take_turns)
{
	static struct fake_request many[6];

	ask_for_signals_and_wait();
	for (int i = 0; i < 6; i++)
		fake_ask(&fake, &many[i], fake_session(&fake, 10 + i, 3000 + i), d, 2 * MiB,
			GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fds.waiting, 14);
	while (fds.waiting > 0) {
		size_t before = fake_core_count(&fake, false);
		uint64_t waiting = fds.waiting;
		destroy_one();
		destroy_one();
		ck_assert_uint_eq(fds.waiting, waiting - 2);
		ck_assert_uint_eq(fake_core_count(&fake, false), before + 1);
	}
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(many[i].status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

static rlim_t limit_descriptors(rlim_t n)
{
	struct rlimit limit;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	rlim_t before = limit.rlim_cur;
	limit.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return before;
}

START_TEST(the_pool_gives_up_all_when_there_is_no_descriptor_for_a_control_block)
{
	fill_pool();
	fake.signals = true;
	rlim_t before = limit_descriptors(0);
	fake_ask(&fake, &q, other, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	size_t dying = fake_core_count(&fake, true);
	ck_assert_uint_eq(dying, 24);

	/* It tries again with each one that is gone. */
	for (size_t i = 0; i + 1 < dying; i++) {
		destroy_one();
		ck_assert_uint_eq(q.ended, 0);
		ck_assert_uint_eq(fds.waiting, 1);
	}
	limit_descriptors(before);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(without_a_pool_a_lease_with_signals_is_refused)
{
	fake.signals = true;
	rlim_t before = limit_descriptors(0);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	limit_descriptors(before);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "LimitNOFILE="));
	ck_assert_uint_eq(fds.chunks + fds.waiting, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fds");
	TCase *tc = tcase_create("fds");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_user_leaves_a_quarter_of_the_descriptors_to_others);
	tcase_add_test(tc, whoever_asked_for_a_chunk_pays_as_long_as_it_is_leased);
	tcase_add_test(tc, pooled_chunks_hold_half_at_most);
	tcase_add_test(tc, a_request_waits_until_a_pooled_chunk_is_destroyed);
	tcase_add_test(tc, a_connection_that_ends_lets_a_request_go_on);
	tcase_add_test(tc, a_request_that_waits_can_be_cancelled);
	tcase_add_test(tc, the_reserve_takes_none_that_others_need);
	tcase_add_test(tc, the_pool_gives_up_all_when_the_backend_has_no_descriptor);
	tcase_add_test(tc, without_a_pool_there_is_nothing_to_wait_for);
	tcase_add_test(tc, a_control_block_waits_as_a_chunk_does);
	tcase_add_test(tc, a_request_from_the_pool_waits_for_its_control_block_alone);
	tcase_add_test(tc, a_connection_that_ends_lets_a_control_block_go_on);
	tcase_add_test(tc, a_request_whose_control_block_waits_can_be_cancelled);
	tcase_add_test(tc, control_blocks_and_chunks_take_turns);
	tcase_add_test(tc, the_pool_gives_up_all_when_there_is_no_descriptor_for_a_control_block);
	tcase_add_test(tc, without_a_pool_a_lease_with_signals_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
