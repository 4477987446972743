/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that has no memory to send a packet with: the request of this thread fails as what it
 * is, and what was to go back goes back later.
 */
#include "autoconf.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/grant/session_lease.h"
#include "tests/tap.h"
#include "tests/unit/session/session_fixture.h"

static __thread int failing; /* how many packets of this thread do not go */
static const int errors[] = {ENOBUFS, ENOMEM};
static int error;

/* In place of the C library's. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (failing > 0) {
		failing--;
		errno = error;
		return -1;
	}
	return syscall(SYS_sendmsg, fd, message, flags);
}

START_TEST(a_request_that_could_not_be_sent_is_short_of_host_memory)
{
	gpumem_buffer *buffer = NULL;
	void *ptr = NULL;
	error = errors[_i];
	failing = 1;
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_HOST_MEMORY);
	says("cannot send to gpumemd");
	ck_assert_int_eq(failing, 0);
	failing = 64; /* the heap asks more than once */
	ck_assert_int_eq(gpumem_alloc(session, 0, 2 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr),
		GPUMEM_E_HOST_MEMORY);
	failing = 0;
	/* The connection is none the worse for it. */
	gpumem_buffer_destroy(make_buffer(MIB));
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(what_could_not_be_given_back_goes_back_later)
{
	struct gm_session_chunk *chunks;
	struct gm_session_lease *lease;
	error = errors[_i];
	ck_assert_int_eq(
		gm_session_lease_take(session,
			&(struct gm_lease_what){.bytes = 4 * MIB, .transport = GM_TRANSPORT_FD},
			&(struct gm_lease_wait){.ms = GM_LEASE_NO_WAIT}, &lease, &chunks),
		GPUMEM_OK);
	gm_session_chunks_free(chunks);
	ck_assert_uint_eq(fake_leases(fake), 1);
	failing = 1;
	gm_session_lease_give(session, lease);
	ck_assert_int_eq(failing, 0);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_hello_that_could_not_be_sent_says_so)
{
	gpumem_session *none = NULL;
	error = errors[_i];
	failing = 1;
	ck_assert_int_eq(try_connect(20000, &none), GPUMEM_E_HOST_MEMORY);
	says("cannot send to gpumemd");
	ck_assert_ptr_null(none);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unsent");
	TCase *tc = tcase_create("unsent");
	int n = sizeof(errors) / sizeof(*errors);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, a_request_that_could_not_be_sent_is_short_of_host_memory, 0, n);
	tcase_add_loop_test(tc, what_could_not_be_given_back_goes_back_later, 0, n);
	tcase_add_loop_test(tc, a_hello_that_could_not_be_sent_says_so, 0, n);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
