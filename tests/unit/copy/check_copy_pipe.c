/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Transfers over a device that does as the test says: what becomes of them if a capture begins between two
 * calls of the driver, or the driver fails there. Whatever happens, no transfer returns while the device may
 * use the program's memory, unless the driver does not say when it has finished.
 */

#include "client/copy/copy_pipe.h"

#include <errno.h>
#include <string.h>

#include "client/map/map.h"
#include "tests/tap.h"

#define PIECE  4096
#define PIECES 5

/* What the device does. */
static struct {
	unsigned copied; /* pieces that were launched */
	unsigned ended;  /* pieces whose event has passed */
	unsigned asked;  /* events that were asked for */
	unsigned events; /* that are there */

	unsigned copy_fails_at; /* this piece, counted from 1; 0: none */
	int copy_fails_with;
	unsigned record_fails_at;
	unsigned record_fails_for; /* so many times */
	int record_fails_with;

	bool pageable;      /* the memory that the driver is given */
	unsigned busy_asks; /* how often the stream's earlier work is still not done */
} device_;

static int device_copy(
	void *backend, void *to, const void *from, uint64_t bytes, gpumem_stream stream)
{
	if (device_.copied + 1 == device_.copy_fails_at)
		return device_.copy_fails_with;
	memcpy(to, from, bytes);
	device_.copied++;
	return 0;
}

/* An event stands for the pieces that were launched before it. */
static int device_record_on(void *backend, gpumem_stream stream, struct gm_map_event **ret_event)
{
	if (device_.copied == device_.record_fails_at && device_.asked++ < device_.record_fails_for)
		return device_.record_fails_with;
	device_.events++;
	*ret_event = (struct gm_map_event *)(uintptr_t)(device_.copied + 1);
	return 0;
}

/* Each event has to be asked for twice. */
static int device_passed(void *backend, struct gm_map_event *event)
{
	static unsigned n;
	if ((uintptr_t)event == 1 && device_.busy_asks > 0) {
		ck_assert_uint_eq(device_.copied, 0);
		device_.busy_asks--;
		return 0;
	}
	if (++n % 2)
		return 0;
	if (device_.ended + 1 < (uintptr_t)event)
		device_.ended = (unsigned)(uintptr_t)event - 1;
	return 1;
}

static void device_forget(void *backend, struct gm_map_event *event)
{
	ck_assert_uint_gt(device_.events, 0);
	device_.events--;
}

static const struct gm_map_ops ops = {.copy = device_copy,
	.record_on = device_record_on,
	.passed = device_passed,
	.forget = device_forget};

static uint8_t there[PIECE * PIECES], here[PIECE * PIECES];

static int pipe_move_bytes(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n)
{
	memcpy(place, here + at, n);
	*ret_n = n;
	return 0;
}

/* Copies by that way. */
static gpumem_status run(enum gm_copy_way way, uint64_t *ret_bytes, bool *ret_done)
{
	static uint8_t memory[2 * PIECE];
	struct gm_copy_slots slots = {
		.memory = memory, .n = 2, .slot_bytes = PIECE, .pinned = !device_.pageable};
	struct gm_session_device device = {.map = &ops};
	struct gm_copy_transfer copy = {.device = &device,
		.at = there,
		.total = sizeof(here),
		.memory = here,
		.pageable = device_.pageable,
		.move = pipe_move_bytes,
		.ctx = &copy};

	memset(here, 7, sizeof(here));
	memset(there, 0, sizeof(there));
	gpumem_status status = gm_copy_pipe(&copy, way, way == GM_COPY_WAY_IN ? &slots : NULL,
		PIECE, way == GM_COPY_WAY_IN ? 2 : 0, ret_done);
	*ret_bytes = copy.result.bytes;
	ck_assert_uint_eq(device_.events, 0);
	ck_assert(!memcmp(there, here, *ret_bytes));
	return status;
}

static const enum gm_copy_way ways[] = {GM_COPY_WAY_DRIVER, GM_COPY_WAY_IN};

static void set_up(void)
{
	memset(&device_, 0, sizeof(device_));
}

START_TEST(all_pieces_arrive)
{
	uint64_t bytes;
	bool done = false;

	ck_assert_int_eq(run(ways[_i], &bytes, &done), GPUMEM_OK);
	ck_assert_uint_eq(bytes, sizeof(here));
	ck_assert_uint_eq(device_.ended, PIECES);
	ck_assert(done);
}
END_TEST

/* While the driver waits for a stream with pageable memory, other threads wait for the driver. */
START_TEST(pageable_memory_is_sent_when_the_streams_work_is_done)
{
	uint64_t bytes;
	bool done = false;

	device_.pageable = true;
	device_.busy_asks = 5;
	ck_assert_int_eq(run(ways[_i], &bytes, &done), GPUMEM_OK);
	ck_assert_uint_eq(bytes, sizeof(here));
	ck_assert_uint_eq(device_.busy_asks, 0);
	ck_assert(done);
}
END_TEST

START_TEST(a_capture_that_begins_after_a_piece_was_launched_is_waited_for)
{
	uint64_t bytes;
	bool done = false;

	device_.record_fails_at = 3;
	device_.record_fails_for = 9;
	device_.record_fails_with = -EAGAIN;
	ck_assert_int_eq(run(ways[_i], &bytes, &done), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(gpumem_error_detail(), "captured"));
	ck_assert_ptr_nonnull(strstr(gpumem_error_detail(), "12288 of 20480 bytes"));
	ck_assert_uint_eq(device_.copied, 3);
	ck_assert_uint_eq(device_.ended, 3);
	ck_assert_uint_eq(bytes, 3 * PIECE);
	ck_assert(done);
}
END_TEST

START_TEST(a_capture_that_begins_before_a_piece_is_launched_ends_the_transfer)
{
	uint64_t bytes;
	bool done = false;

	device_.copy_fails_at = 3;
	device_.copy_fails_with = -EAGAIN;
	ck_assert_int_eq(run(ways[_i], &bytes, &done), GPUMEM_E_BUSY);
	ck_assert_uint_eq(device_.ended, 2);
	ck_assert_uint_eq(bytes, 2 * PIECE);
	ck_assert(done);
}
END_TEST

/* Then nobody can know, and the caller is told: the slots may not be used again. */
START_TEST(a_driver_that_records_no_event_leaves_the_slots_in_doubt)
{
	uint64_t bytes;
	bool done = true;

	device_.record_fails_at = 2;
	device_.record_fails_for = 1000;
	device_.record_fails_with = -EIO;
	ck_assert_int_eq(run(ways[_i], &bytes, &done), GPUMEM_E_SYSTEM);
	ck_assert_uint_eq(bytes, PIECE);
	ck_assert(!done);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy_pipe");
	TCase *tc = tcase_create("pipe");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_loop_test(tc, all_pieces_arrive, 0, 2);
	tcase_add_loop_test(tc, pageable_memory_is_sent_when_the_streams_work_is_done, 0, 2);
	tcase_add_loop_test(
		tc, a_capture_that_begins_after_a_piece_was_launched_is_waited_for, 0, 2);
	tcase_add_loop_test(
		tc, a_capture_that_begins_before_a_piece_is_launched_ends_the_transfer, 0, 2);
	tcase_add_loop_test(tc, a_driver_that_records_no_event_leaves_the_slots_in_doubt, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
