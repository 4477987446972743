/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No memory for the client library itself: each allocation of a whole life of a session fails once.
 * The call that met it says so, and nothing that the daemon granted is lost.
 */
#include <string.h>

#include "gpumem/gpumem.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/session/fake_daemon.h"
#include "tests/unit/open_fds.h"

#define MIB (UINT64_C(1) << 20)

static struct fake *fake;

static void set_up(void)
{
	fake = fake_start();
}

static void tear_down(void)
{
	fake_stop(fake);
}

/* Check allocates at every assertion that holds. */
static void expect(bool holds, const char *what)
{
	if (holds)
		return;
	failing_malloc_pause(true);
	ck_abort_msg("%s (%s)", what, gpumem_error_detail());
}

/* Whether to go on: a call went well, or met the missing memory and said so. */
static bool fine(gpumem_status status, unsigned *failures)
{
	if (status == GPUMEM_OK)
		return true;
	expect(status == GPUMEM_E_HOST_MEMORY, "a call fails for want of memory only");
	expect(*gpumem_error_detail(), "a call that fails says why");
	++*failures;
	return false;
}

/* How many calls failed. */
static unsigned live(void)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;
	gpumem_buffer *made, *opened;
	gpumem_token token;
	void *ptr, *more;
	unsigned failures = 0;
	options.socket = fake_path(fake);
	if (!fine(gpumem_connect(&options, &session), &failures))
		return failures;
	if (fine(gpumem_buffer_create(session, 0, 14 * MIB, NULL, &made), &failures)) {
		memset(gpumem_buffer_ptr(made), 1, 14 * MIB);
		if (fine(gpumem_share(made, NULL, &token), &failures) &&
			fine(gpumem_open(session, &token, &opened), &failures)) {
			expect(((char *)gpumem_buffer_ptr(opened))[14 * MIB - 1] == 1, "shared");
			gpumem_buffer_destroy(opened);
		}
		gpumem_buffer_destroy(made);
	}
	const gpumem_batch_entry entries[] = {{5 * MIB, 0, "first"}, {9 * MIB, 0, NULL}};
	gpumem_batch *batch;
	if (fine(gpumem_batch_create(session, 0, entries, 2, NULL, &batch), &failures)) {
		memset(gpumem_batch_ptr(batch, 1), 4, 9 * MIB);
		expect(!gpumem_batch_free_entry(batch, 0, NULL), "free an entry");
		gpumem_batch_destroy(batch);
	}
	gpumem_alloc_options tagged = GPUMEM_ALLOC_OPTIONS_INIT;
	tagged.tag = "tagged";
	if (fine(gpumem_alloc(session, 0, 3 * MIB, NULL, &tagged, &ptr), &failures)) {
		memset(ptr, 2, 3 * MIB);
		if (fine(gpumem_alloc(session, 0, 40 * MIB, NULL, NULL, &more), &failures)) {
			memset(more, 3, 40 * MIB);
			expect(!gpumem_free(session, more, GPUMEM_STREAM_DONE), "free");
		}
		expect(!gpumem_free(session, ptr, GPUMEM_STREAM_DONE), "free");
	}
	expect(!gpumem_trim(session, NULL), "trim");
	gpumem_disconnect(session);
	return failures;
}

START_TEST(every_allocation_may_fail_once)
{
	ck_assert_uint_eq(live(), 0);
	unsigned fds = 0, n;
	for (n = 1;; n++) {
		failing_malloc_arm(n);
		unsigned failures = live();
		if (!failing_malloc_fired()) {
			ck_assert_uint_eq(failures, 0);
			break;
		}
		/* What goes back without a word, because a return found no memory, goes at the
		 * latest with the session. */
		fake_wait_leases(fake, 0);
		fake_wait_idle(fake);
		if (n == 1)
			fds = open_fds();
		else
			ck_assert_uint_eq(open_fds(), fds);
	}
	/* The session, its connection, calls, leases, chunks, buffers and heap: far more than a
	 * few. */
	ck_assert_uint_gt(n, 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client memory");
	TCase *tc = tcase_create("memory");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, every_allocation_may_fail_once);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
