/* SPDX-License-Identifier: Apache-2.0 */
/* The control blocks of leases with signals: what a client can do to one, whom it counts for, when it
 * ends, and what a later daemon has. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/control.h"
#include "daemon/books/fds.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info info;
static struct gm_adopt_result result;
static struct gm_session *maker;

static void setup(void)
{
	memset(&ledger, 0, sizeof(ledger));
	info = fake_info(4 * GiB);
	fake_no_levels(&info.policy);
	memset(info.uuid, 1, sizeof(info.uuid));
	fake_core_init_keeping(&fake, &ledger);
	fake_core_add(&fake, &info);
	gm_core_end_adoption(fake.core);
	fake.signals = true;
	maker = fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
}

static void teardown(void)
{
	for (struct gm_session *each; (each = fake_next_session(&fake, NULL));)
		fake_ledger_leave(&fake, each, true);
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

static struct gm_lease *some(void)
{
	return fake_lease(&fake, maker, 0, 2 * MiB);
}

static struct gm_lease_info about(const struct gm_lease *lease)
{
	struct gm_lease_info ret;
	gm_lease_info(lease, maker, &ret);
	return ret;
}

static ino_t inode(int fd)
{
	struct stat st;
	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static void nothing_is_left(void)
{
	fake_core_run(&fake);
	ck_assert_uint_eq(ledger.n_deposits, 0);
	ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_LEASE), 0);
}

START_TEST(nobody_can_cut_or_seal_a_block_or_reach_another)
{
	struct gm_lease *one = some(), *two = some();
	int fd = about(one).word;
	struct stat st;

	ck_assert(about(one).signals && about(two).signals);
	ck_assert_uint_eq(about(one).user_bytes, 2 * MiB);
	ck_assert_uint_eq(about(one).bytes, 2 * MiB); /* it takes no device memory */
	ck_assert_uint_ne(inode(fd), inode(about(two).word));
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(st.st_size, GM_CONTROL_BYTES);
	ck_assert(ftruncate(fd, 0) < 0 && errno == EPERM);
	ck_assert(ftruncate(fd, 2 * GM_CONTROL_BYTES) < 0 && errno == EPERM);
	ck_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 && errno == EPERM);

	void *page = mmap(NULL, GM_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(page != MAP_FAILED);
	static const struct gm_control fresh;
	ck_assert_int_eq(memcmp(page, &fresh, sizeof(fresh)), 0);
	munmap(page, GM_CONTROL_BYTES);

	fake.signals = false;
	ck_assert(!about(some()).signals);
	fake_ledger_leave(&fake, maker, true);
	fake_core_run(&fake);
	ck_assert_uint_eq(ledger.n_deposits, 0);
}
END_TEST

START_TEST(a_block_counts_as_a_descriptor_of_its_user)
{
	struct gm_fd_budget *fds = fake.core->env.fds;
	struct gm_lease *lease = some();
	struct fake_request q;

	ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], 2); /* a chunk and a block */
	ck_assert_uint_eq(fds->chunks, 2);
	gm_lease_return(maker, lease);
	nothing_is_left();

	/* There is room for the chunk, but not for the block. */
	fds->total = 8;
	while (gm_fd_budget_allows_chunks(fds, maker->payer.user->has[GM_USER_CHUNK_FDS], 1)) {
		fake.signals = false;
		lease = some();
	}
	gm_lease_return(maker, lease);
	fake_core_run(&fake);
	ck_assert(gm_fd_budget_allows_chunks(fds, maker->payer.user->has[GM_USER_CHUNK_FDS], 1));
	fake.signals = true;
	uint64_t held = maker->payer.user->has[GM_USER_CHUNK_FDS];
	fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "asked for 2 more"));
	ck_assert_ptr_nonnull(strstr(q.detail, "signals and metadata"));
	ck_assert_ptr_nonnull(strstr(q.detail, "LimitNOFILE="));
	ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], held);
	ck_assert_uint_eq(ledger.n_deposits, 0);
	fds->total = UINT64_MAX / 8;
}
END_TEST

/* The maker has left, and its user pays for the block as long as an opener has it. */
START_TEST(a_block_lasts_as_long_as_its_lease)
{
	struct gm_session *reader =
		fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
	struct gm_token_options share = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_lease *lease = some(), *opened;
	struct gm_user *payer = maker->payer.user;

	ck_assert_int_eq(gm_lease_share(maker, lease, &share, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(reader, token, NULL, 0, &opened), GPUMEM_OK);
	ino_t before = inode(about(lease).word);
	gm_lease_return(maker, lease);
	fake_core_run(&fake);
	ck_assert_uint_eq(inode(about(opened).word), before);
	ck_assert_uint_eq(payer->has[GM_USER_CHUNK_FDS], 2);
	gm_lease_return(reader, opened);
	nothing_is_left();
}
END_TEST

/* ---- the keeper */

START_TEST(a_lease_is_granted_when_the_keeper_has_its_block)
{
	struct fake_request q;

	ledger.refuses_deposits = GM_DEPOSIT_WAITS;
	for (int pooled = 0; pooled < 2; pooled++) {
		fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
		fake_core_run(&fake);
		ck_assert_uint_eq(q.ended, 0);
		ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_LEASE), 0);
		gm_core_control_block_deposited(fake.core, ledger.awaited);
		ck_assert_uint_eq(q.ended, 1);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		ck_assert(about(q.r.lease).signals);
		gm_lease_return(maker, q.r.lease);
		nothing_is_left();
	}

	/* The other way round: the block comes before the chunk. */
	fake_ask(&fake, &q, maker, 0, 512 * MiB, GM_TRANSPORT_FD);
	gm_core_control_block_deposited(fake.core, ledger.awaited);
	ck_assert_uint_eq(q.ended, 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	gm_lease_return(maker, q.r.lease);
	nothing_is_left();
}
END_TEST

START_TEST(a_request_that_waits_for_the_keeper_can_be_cancelled)
{
	struct fake_request q;

	ledger.refuses_deposits = GM_DEPOSIT_WAITS;
	fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
	if (_i)
		fake_core_run(&fake);
	gm_core_cancel(fake.core, &q.r);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	nothing_is_left();
}
END_TEST

START_TEST(a_keeper_that_is_full_refuses_the_lease)
{
	struct fake_request q;

	ledger.refuses_deposits = -ENOSPC;
	fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "gpumemd-keeper.service"));
	nothing_is_left();
}
END_TEST

START_TEST(a_daemon_without_memory_does_not_blame_the_keeper)
{
	struct fake_request q;

	ledger.refuses_deposits = -ENOMEM;
	fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_HOST_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "the daemon has no memory for signals"));
	nothing_is_left();
}
END_TEST

static unsigned open_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A descriptor was short only while the keeper was told: the next try makes a new block. */
START_TEST(a_block_that_is_made_again_leaves_no_descriptor_behind)
{
	struct fake_request q;
	unsigned before = open_descriptors();

	ledger.refuses_deposits = -EMFILE;
	ledger.refusals = 1;
	fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	gm_lease_return(maker, q.r.lease);
	nothing_is_left();
	ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* ---- the next daemon */

static void restart(void)
{
	uint64_t id = gm_session_id(maker);
	fake_ledger_restart(&fake, &info, 1, false, &result);
	fake.signals = true;
	maker = gm_core_find_session(fake.core, id);
}

START_TEST(a_later_daemon_has_the_block)
{
	ino_t before = inode(about(some()).word);

	for (int i = 0; i < 2; i++) {
		restart();
		ck_assert_ptr_nonnull(maker);
		struct gm_lease_info found = about(gm_session_next_lease(maker, NULL));
		ck_assert(found.signals);
		ck_assert_uint_eq(inode(found.word), before);
		ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], 2);
		ck_assert_uint_eq(ledger.n_deposits, 1);
	}
	fake_ledger_leave(&fake, maker, true);
	fake_core_run(&fake);
	ck_assert_uint_eq(ledger.n_deposits, 0);
}
END_TEST

/* The memory stays. Who opens it gets no signals, and who has it open is told when its maker leaves. */
START_TEST(a_lease_whose_block_is_damaged_or_gone_is_kept_without_signals)
{
	some();
	int fd = -1;
	if (_i < 2)
		fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	switch (_i) {
	case 0: /* not sealed */
		ck_assert_int_eq(ftruncate(fd, GM_CONTROL_BYTES), 0);
		ck_assert_int_ge(dup2(fd, ledger.deposits[0].fd), 0);
		break;
	case 1: /* too short */
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, GM_CONTROL_SEALS), 0);
		ck_assert_int_ge(dup2(fd, ledger.deposits[0].fd), 0);
		break;
	default: /* there is none, as with a daemon that had it in device memory */
		close(ledger.deposits[0].fd);
		ledger.n_deposits = 0;
	}
	if (fd >= 0)
		close(fd);

	for (int again = 0; again < 2; again++) {
		restart();
		ck_assert_uint_eq(result.adopted[GM_RECORD_LEASE], 1);
		ck_assert_uint_eq(result.adopted[GM_RECORD_CHUNK], 1);
		struct gm_lease *lease = gm_session_next_lease(maker, NULL);
		ck_assert(lease->signals && !about(lease).signals);
		ck_assert_uint_eq(about(lease).bytes, 2 * MiB);
		ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], 1);
		ck_assert_uint_eq(ledger.n_deposits, 0);
	}
	fake_ledger_leave(&fake, maker, true);
	fake_core_run(&fake);
}
END_TEST

/* Every write is the last in turn: a lease that is there has its block, and no block is left over. */
START_TEST(a_daemon_that_dies_at_any_step_has_the_lease_with_its_block_or_neither)
{
	unsigned with = 0, without = 0;

	for (uint64_t step = 1;; step++) {
		struct fake_request q;

		ledger.stop_at = ledger.writes + step;
		fake_ask(&fake, &q, maker, 0, 2 * MiB, GM_TRANSPORT_FD);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		gm_lease_return(maker, q.r.lease);
		fake_core_run(&fake);
		bool complete = !ledger.stopped;

		restart();
		struct gm_lease *lease = gm_session_next_lease(maker, NULL);
		if (lease) {
			ck_assert(about(lease).signals);
			with++;
			gm_lease_return(maker, lease);
		} else {
			without++;
		}
		/* The session cannot be resumed here, so it begins anew. */
		fake_ledger_leave(&fake, maker, true);
		fake_core_run(&fake);
		ck_assert_uint_eq(ledger.n_deposits, 0);
		if (complete)
			break;
		maker = fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
	}
	ck_assert(with > 0 && without > 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("word");
	TCase *tc = tcase_create("word");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, nobody_can_cut_or_seal_a_block_or_reach_another);
	tcase_add_test(tc, a_block_counts_as_a_descriptor_of_its_user);
	tcase_add_test(tc, a_block_lasts_as_long_as_its_lease);
	tcase_add_test(tc, a_lease_is_granted_when_the_keeper_has_its_block);
	tcase_add_loop_test(tc, a_request_that_waits_for_the_keeper_can_be_cancelled, 0, 2);
	tcase_add_test(tc, a_keeper_that_is_full_refuses_the_lease);
	tcase_add_test(tc, a_daemon_without_memory_does_not_blame_the_keeper);
	tcase_add_test(tc, a_block_that_is_made_again_leaves_no_descriptor_behind);
	tcase_add_test(tc, a_later_daemon_has_the_block);
	tcase_add_loop_test(
		tc, a_lease_whose_block_is_damaged_or_gone_is_kept_without_signals, 0, 3);
	tcase_add_test(tc, a_daemon_that_dies_at_any_step_has_the_lease_with_its_block_or_neither);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
