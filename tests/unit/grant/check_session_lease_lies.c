/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that grants what cannot be: the call says so, nothing of it is used, and the session
 * goes on.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/control.h"
#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

static void tell(bool twice)
{
	/* In one packet, or in several. */
	struct fake_will will = {.twice = twice, .per_packet = twice ? 2 : 0};
	fake_will(fake, &will);
}

START_TEST(a_chunk_granted_twice_makes_no_buffer)
{
	size_t size = (_i ? 14 : 2) * MIB;
	unsigned before = open_fds();
	gpumem_buffer *buffer = NULL;
	tell(true);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, size, NULL, &buffer), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(buffer);
	fake_wait_leases(fake, 0);
	tell(false);
	buffer = make_buffer(size);
	memset(gpumem_buffer_ptr(buffer), 5, size);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_chunk_granted_twice_is_not_opened)
{
	gpumem_buffer *made = make_buffer(14 * MIB), *opened = NULL;
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(made, NULL, &token), GPUMEM_OK);
	tell(true);
	ck_assert_int_eq(gpumem_open(session, &token, &opened), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(opened);
	tell(false);
	ck_assert_int_eq(gpumem_open(session, &token, &opened), GPUMEM_OK);
	gpumem_buffer_destroy(opened);
	gpumem_buffer_destroy(made);
	fake_wait_leases(fake, 0);
}
END_TEST

static void *allocate(size_t size)
{
	void *ptr = NULL;
	gpumem_status status = gpumem_alloc(session, 0, size, NULL, NULL, &ptr);
	if (status)
		ck_abort_msg("%s", gpumem_error_detail());
	memset(ptr, 6, size);
	return ptr;
}

static void refused(size_t size)
{
	void *ptr = NULL;
	tell(true);
	ck_assert_int_eq(gpumem_alloc(session, 0, size, NULL, NULL, &ptr), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(ptr);
	tell(false);
}

START_TEST(a_chunk_granted_twice_is_no_part_of_a_heap)
{
	/* As the first of it, and when it grows. */
	refused(6 * MIB);
	void *first = allocate(6 * MIB);
	refused(64 * MIB);
	void *second = allocate(64 * MIB);
	ck_assert_int_eq(gpumem_free(session, second, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

/* ---- signals */

static gpumem_status make_signals(gpumem_buffer **ret_buffer)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.flags = GPUMEM_BUFFER_SIGNALS;
	*ret_buffer = NULL;
	return gpumem_buffer_create(session, 0, 14 * MIB, &options, ret_buffer);
}

static int block(off_t size, int seals)
{
	int fd = memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* One that is missing, that is short, or that somebody could cut while a stream waits for it. */
START_TEST(signals_without_a_sound_control_block_make_no_buffer)
{
	static const struct {
		off_t size;
		int seals;
		const char *says;
	} lies[] = {
		{0, 0, "signals without the memory for them"},
		{64, GM_CONTROL_SEALS, "without a sealed memfd"},
		{GM_CONTROL_BYTES, 0, "without a sealed memfd"},
		{GM_CONTROL_BYTES, F_SEAL_GROW, "without a sealed memfd"},
	};
	int fd = lies[_i].size ? block(lies[_i].size, lies[_i].seals) : 0;
	struct fake_will will = {.signals = true, .control = fd};
	unsigned before = open_fds();
	gpumem_buffer *buffer;

	fake_will(fake, &will);
	ck_assert_int_eq(make_signals(&buffer), GPUMEM_E_PROTOCOL);
	says(lies[_i].says);
	ck_assert_ptr_null(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	if (fd)
		close(fd);
}
END_TEST

/* In an answer of several packets, and after the kernel dropped some handles, or all of them. */
START_TEST(a_control_block_comes_through_what_may_be_lost)
{
	int fd = block(GM_CONTROL_BYTES, GM_CONTROL_SEALS);
	struct fake_will will = {.signals = true, .control = fd, .per_packet = 1 + _i % 2};
	unsigned before = open_fds();
	gpumem_buffer *buffer;

	will.cut = _i >= 2;
	will.loses = _i >= 4;
	fake_will(fake, &will);
	ck_assert_int_eq(make_signals(&buffer), GPUMEM_OK);
	ck_assert_int_eq(gpumem_buffer_signal(buffer, NULL, 3), GPUMEM_OK);
	ck_assert_int_eq(gpumem_buffer_wait(buffer, NULL, 3, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	uint64_t value = 0;
	ck_assert_int_eq(pread(fd, &value, sizeof(value), 0), sizeof(value));
	ck_assert_uint_eq(value, 3);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	close(fd);
}
END_TEST

/* A lease of a heap has none. It is not used, and not leaked. */
START_TEST(a_control_block_that_nobody_wants_is_closed)
{
	int fd = block(GM_CONTROL_BYTES, GM_CONTROL_SEALS);
	struct fake_will will = {.control = fd};
	unsigned before = open_fds();
	gpumem_buffer *buffer = NULL;

	fake_will(fake, &will);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer), GPUMEM_OK);
	ck_assert_int_eq(gpumem_buffer_signal(buffer, NULL, 1), GPUMEM_E_UNSUPPORTED);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client lies");
	TCase *tc = tcase_create("grants that cannot be");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, a_chunk_granted_twice_makes_no_buffer, 0, 2);
	tcase_add_test(tc, a_chunk_granted_twice_is_not_opened);
	tcase_add_test(tc, a_chunk_granted_twice_is_no_part_of_a_heap);
	tcase_add_loop_test(tc, signals_without_a_sound_control_block_make_no_buffer, 0, 4);
	tcase_add_loop_test(tc, a_control_block_comes_through_what_may_be_lost, 0, 6);
	tcase_add_test(tc, a_control_block_that_nobody_wants_is_closed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
