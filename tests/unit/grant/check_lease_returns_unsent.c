/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that has no memory to send a packet with: the request of this thread fails as what it
 * is, and what was to go back goes back later.
 */
#include "autoconf.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "client/grant/session_ask.h"
#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/session/session_fixture.h"

static __thread int passing; /* how many packets of this thread go before that */
static __thread int failing; /* how many packets of this thread do not go */
static const int errors[] = {ENOBUFS, ENOMEM};
static int error;

/* The library's thread: how many of its packets do not go, and how many of those it sent without having waited after
 * the one before. */
static atomic_int library_failing, library_hasty;
static __thread bool tried, waited;

static bool in_library_thread(void)
{
	char name[16] = "";

	(void)pthread_getname_np(pthread_self(), name, sizeof(name));
	return !strcmp(name, "gpumem");
}

/* In place of the C library's, as the next one. */
int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct timespec most = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
	int r = ppoll(fds, n, timeout < 0 ? NULL : &most, NULL);

	waited |= r == 0 && timeout > 0;
	return r;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (library_failing > 0 && in_library_thread()) {
		library_hasty += tried && !waited;
		tried = true;
		waited = false;
		library_failing--;
		errno = error;
		return -1;
	}
	if (failing > 0 && passing > 0) {
		passing--;
	} else if (failing > 0) {
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
	/* The connection still works. */
	gpumem_buffer_destroy(make_buffer(MIB));
	fake_wait_leases(fake, 0);
}
END_TEST

static struct gm_session_lease *take_lease(uint64_t bytes, struct gm_session_chunk **ret_chunks)
{
	struct gm_session_lease *lease;

	ck_assert_int_eq(
		gm_session_lease_take(session,
			&(struct gm_lease_what){.bytes = bytes, .transport = GM_TRANSPORT_FD},
			&(struct gm_wait){.mode = GM_WAIT_FOR_DAEMON}, &lease, ret_chunks),
		GPUMEM_OK);
	ck_assert_uint_eq(fake_leases(fake), 1);
	return lease;
}

START_TEST(what_could_not_be_given_back_goes_back_later)
{
	struct gm_session_chunk *chunks;
	struct gm_session_lease *lease = take_lease(4 * MIB, &chunks);

	error = errors[_i];
	gm_session_chunks_free(chunks);
	failing = 1;
	gm_session_lease_give(session, lease);
	ck_assert_int_eq(failing, 0);
	fake_wait_leases(fake, 0);
}
END_TEST

/* The daemon refuses the chunks together, so the library sends them one by one, and one of those cannot be sent. */
START_TEST(a_chunk_that_could_not_be_given_back_by_itself_goes_back_later)
{
	enum { RETURN = GM__WIRE__PACKET__BODY_RETURN_CHUNKS };
	struct gm_session_chunk *chunks, *chunk;
	struct gm_session_lease *lease = take_lease(42 * MIB, &chunks);
	unsigned n = 0;

	LL_FOREACH (chunks, chunk)
		n++;
	ck_assert_uint_gt(n, 2);
	fake_will(fake, &(struct fake_will){.fail_once = RETURN});
	error = errors[_i];
	passing = 2; /* all together, and the first one */
	failing = 1;
	gm_session_chunks_give(session, chunks);
	ck_assert_int_eq(failing, 0);

	/* Nobody asks for anything meanwhile. */
	for (unsigned seen; seen = fake_seen(fake, RETURN), fake_chunks(fake) > 0;)
		fake_wait_seen(fake, RETURN, seen + 1);
	gm_session_lease_give(session, lease);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(the_library_waits_before_it_tries_again)
{
	struct gm_session_chunk *chunks;
	struct gm_session_lease *lease = take_lease(4 * MIB, &chunks);

	error = errors[_i];
	gm_session_chunks_free(chunks);
	library_failing = 2;
	failing = 1;
	gm_session_lease_give(session, lease);
	fake_wait_leases(fake, 0);
	ck_assert_int_eq(library_failing, 0);
	ck_assert_int_eq(library_hasty, 0);
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
	tcase_add_loop_test(
		tc, a_chunk_that_could_not_be_given_back_by_itself_goes_back_later, 0, n);
	tcase_add_loop_test(tc, the_library_waits_before_it_tries_again, 0, n);
	tcase_add_loop_test(tc, a_hello_that_could_not_be_sent_says_so, 0, n);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
