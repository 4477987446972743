/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Rings over plain memory: borders, strategies, counters that wrap around, and another end that writes
 * nonsense. check_ring_shape.c has the geometry, and check_ring_wait.c what waits.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/system/random.h"
#include "tests/unit/ring/ring_fixture.h"

#define FAIL ring_options(GPUMEM_RING_FAIL, 0, 1)
#define DROP ring_options(GPUMEM_RING_DROP, 0, 1)

static gpumem_status send_number(gpumem_ring *ring, uint64_t number)
{
	return gpumem_ring_send(ring, &number);
}

static void send_numbers(gpumem_ring *ring, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		ck_assert_int_eq(send_number(ring, i), GPUMEM_OK);
}

static void receive_numbers(gpumem_ring *ring, uint64_t from, uint64_t to)
{
	uint64_t number = 0;

	for (uint64_t i = from; i < to; i++) {
		ck_assert_int_eq(gpumem_ring_receive(ring, &number, 0), GPUMEM_OK);
		ck_assert_uint_eq(number, i);
	}
}

static void nothing_comes(gpumem_ring *ring)
{
	uint64_t number = 77;

	ck_assert_int_eq(gpumem_ring_receive(ring, &number, 0), GPUMEM_E_TIMEOUT);
	ck_assert_int_eq(gpumem_ring_receive(ring, &number, GPUMEM_NO_WAIT), GPUMEM_E_TIMEOUT);
	ck_assert_uint_eq(number, 77);
}

/* ---- borders */

START_TEST(messages_arrive_in_order_in_both_directions)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 4, 0);
	gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, FAIL);

	for (uint64_t i = 0; i < 1000; i += 3) {
		nothing_comes(near);
		nothing_comes(far);
		send_numbers(near, i, i + 3);
		send_numbers(far, i + 100, i + 103);
		receive_numbers(far, i, i + 3);
		receive_numbers(near, i + 100, i + 103);
	}
	gpumem_ring_close(far);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

/* Every byte of a message of any size, and none beside it. */
START_TEST(messages_of_any_size_arrive_whole)
{
	for (size_t bytes = 1; bytes < 70; bytes++) {
		struct ring_memory memory = ring_memory_new(bytes, 3, 0);
		gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, FAIL);
		unsigned char in[72], out[72];

		for (int i = 0; i < 9; i++) {
			ck_assert_int_eq(gm_random(out, sizeof(out)), 0);
			memset(in, 0x5a, sizeof(in));
			ck_assert_int_eq(gpumem_ring_send(near, out), GPUMEM_OK);
			ck_assert_int_eq(gpumem_ring_receive(far, in, 0), GPUMEM_OK);
			ck_assert_mem_eq(in, out, bytes);
			for (size_t j = bytes; j < sizeof(in); j++)
				ck_assert_uint_eq(in[j], 0x5a);
		}
		gpumem_ring_close(far);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

START_TEST(a_full_ring_fails_or_drops_as_it_was_told)
{
	for (size_t messages = 1; messages <= 16; messages *= 2) {
		struct ring_memory memory = ring_memory_new(sizeof(uint64_t), messages, 0);
		gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, DROP);

		send_numbers(near, 0, messages);
		ck_assert_int_eq(send_number(near, 99), GPUMEM_E_BUSY);
		ck_assert(strstr(gpumem_error_detail(), "full"));
		receive_numbers(far, 0, 1);
		send_numbers(near, messages, messages + 1);
		ck_assert_int_eq(send_number(near, 99), GPUMEM_E_BUSY);
		receive_numbers(far, 1, messages + 1);
		nothing_comes(far);

		send_numbers(far, 0, messages + 5);
		receive_numbers(near, 0, messages);
		nothing_comes(near);

		gpumem_ring_stats_t stats = ring_stats(near), other = ring_stats(far);
		ck_assert_mem_eq(&stats.out, &other.in, sizeof(stats.out));
		ck_assert_mem_eq(&stats.in, &other.out, sizeof(stats.in));
		ck_assert_uint_eq(stats.out.sent, messages + 1);
		ck_assert_uint_eq(stats.out.received, messages + 1);
		ck_assert_uint_eq(stats.out.dropped, 0);
		ck_assert_uint_eq(stats.out.high_water, messages);
		ck_assert_uint_eq(stats.in.sent, messages);
		ck_assert_uint_eq(stats.in.dropped, 5);
		ck_assert_uint_eq(stats.in.high_water, messages);
		gpumem_ring_close(far);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

START_TEST(the_high_water_mark_is_exact)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 64, 0);
	gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, FAIL);
	uint64_t sent = 0, received = 0, most = 0;

	ck_assert_uint_eq(ring_stats(near).out.high_water, 0);
	for (int i = 0; i < 5000; i++) {
		uint8_t draw;
		ck_assert_int_eq(gm_random(&draw, 1), 0);
		uint64_t n = draw % 8;
		if (draw & 64 && sent + n - received <= 64) {
			send_numbers(near, sent, sent + n);
			sent += n;
		} else if (received + n <= sent) {
			receive_numbers(far, received, received + n);
			received += n;
		}
		most = sent - received > most ? sent - received : most;
		ck_assert_uint_eq(ring_stats(near).out.high_water, most);
	}
	gpumem_ring_close(far);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

START_TEST(a_batch_is_seen_when_it_is_complete_or_flushed)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
	gpumem_ring *near = ring_near(&memory, ring_options(GPUMEM_RING_FAIL, 0, 3));
	gpumem_ring *far = ring_far(&memory, ring_options(GPUMEM_RING_FAIL, 0, 0));

	send_numbers(near, 0, 2);
	nothing_comes(far);
	send_numbers(near, 2, 3);
	receive_numbers(far, 0, 3);
	send_numbers(near, 3, 4);
	nothing_comes(far);
	ck_assert_int_eq(gpumem_ring_flush(near), GPUMEM_OK);
	receive_numbers(far, 3, 4);
	nothing_comes(far);

	/* Only a flush, or a ring that is full. */
	send_numbers(far, 0, 7);
	nothing_comes(near);
	ck_assert_uint_eq(ring_stats(far).out.sent, 0);
	send_numbers(far, 7, 8);
	nothing_comes(near);
	ck_assert_int_eq(send_number(far, 8), GPUMEM_E_BUSY);
	receive_numbers(near, 0, 8);
	gpumem_ring_close(far);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

/* ---- counters that wrap around */

START_TEST(counters_wrap_around)
{
	static const uint64_t firsts[] = {UINT64_MAX, UINT64_MAX - 5, UINT64_MAX - 100, UINT32_MAX,
		UINT32_MAX - 5, (UINT64_C(1) << 63) - 3};

	for (size_t i = 0; i < sizeof(firsts) / sizeof(*firsts); i++) {
		struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, firsts[i]);
		gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, DROP);

		for (uint64_t n = 0; n < 200; n += 5) {
			nothing_comes(far);
			send_numbers(near, n, n + 5);
			receive_numbers(far, n, n + 5);
		}
		send_numbers(near, 200, 208);
		ck_assert_int_eq(send_number(near, 208), GPUMEM_E_BUSY);
		receive_numbers(far, 200, 208);
		ck_assert_uint_eq(ring_stats(near).out.sent, 208);
		ck_assert_uint_eq(ring_stats(near).out.received, 208);
		ck_assert_uint_eq(ring_stats(near).out.high_water, 8);
		gpumem_ring_close(far);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

/* ---- ends */

START_TEST(what_was_sent_before_the_end_still_arrives)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
	gpumem_ring *near = ring_near(&memory, ring_options(GPUMEM_RING_FAIL, 0, 0));
	gpumem_ring *far = ring_far(&memory, FAIL);
	uint64_t number = 0;

	send_numbers(near, 0, 3);
	ck_assert_int_eq(gpumem_ring_hang_up(near), GPUMEM_OK);
	ck_assert_int_eq(send_number(near, 3), GPUMEM_E_CANCELLED);
	receive_numbers(far, 0, 3);
	ck_assert_int_eq(gpumem_ring_receive(far, &number, 0), GPUMEM_E_CANCELLED);
	ck_assert_int_eq(
		gpumem_ring_receive(far, &number, GPUMEM_WAIT_FOREVER), GPUMEM_E_CANCELLED);

	/* The one that hung up still listens. */
	send_numbers(far, 7, 9);
	receive_numbers(near, 7, 9);
	send_numbers(far, 9, 11);
	gpumem_ring_close(far);
	receive_numbers(near, 9, 11);
	ck_assert_int_eq(gpumem_ring_receive(near, &number, 0), GPUMEM_E_CANCELLED);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

START_TEST(the_next_owner_of_an_end_goes_on_where_the_last_one_stopped)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, UINT64_MAX - 2);
	gpumem_ring *near = ring_near(&memory, FAIL), *far;

	send_numbers(near, 0, 6);
	far = ring_far(&memory, FAIL);
	receive_numbers(far, 0, 4);
	send_numbers(far, 50, 52);
	gpumem_ring_close(far);
	far = ring_far(&memory, FAIL);
	receive_numbers(far, 4, 6);
	nothing_comes(far);
	send_numbers(far, 52, 53);
	receive_numbers(near, 50, 53);
	nothing_comes(near);
	gpumem_ring_close(far);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

START_TEST(an_end_belongs_to_one_owner)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
	gpumem_ring *near = ring_near(&memory, FAIL), *far = ring_far(&memory, FAIL);
	uint64_t *word = &ring_control(&memory, true)->sender, number = 0;
	gpumem_ring_view view;

	ck_assert_int_eq(gm_ring_owner_claim(word, GPUMEM_RING_PROCESS, false), GPUMEM_E_BUSY);
	ck_assert(strstr(gpumem_error_detail(), "has the far end"));
	ck_assert_int_eq(gpumem_ring_far_end(near, NULL, &view), GPUMEM_E_BUSY);

	/* Its owner hands it over to a kernel, and once more to the next one. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpumem_ring_far_end(far, NULL, &view), GPUMEM_OK);
		ck_assert_ptr_eq(view.out, ring_control(&memory, true));
		ck_assert_int_eq(send_number(far, 1), GPUMEM_E_BUSY);
		ck_assert_int_eq(gpumem_ring_receive(far, &number, 0), GPUMEM_E_BUSY);
		ck_assert_int_eq(gpumem_ring_flush(far), GPUMEM_E_BUSY);
	}
	gpumem_ring_close(far);

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gpumem_ring_far_end(near, NULL, &view), GPUMEM_OK);
	send_numbers(near, 0, 1);
	ck_assert_int_eq(gm_ring_owner_claim(word, GPUMEM_RING_PROCESS, false), GPUMEM_E_BUSY);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
	gpumem_ring *near = ring_near(&memory, FAIL);
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT, given;
	gpumem_ring_stats_t stats = {0};
	uint64_t number = 0;

	ck_assert_int_eq(gpumem_ring_send(near, NULL), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "message"));
	ck_assert_int_eq(gpumem_ring_receive(near, NULL, 0), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_ring_send(NULL, &number), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "ring"));
	ck_assert_int_eq(gpumem_ring_stats(near, NULL), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "ret_stats"));
	ck_assert_int_eq(gpumem_ring_stats(near, &stats), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_ring_far_end(near, NULL, NULL), GPUMEM_E_INVALID);
	options.full = (gpumem_ring_full)3;
	ck_assert_int_eq(gm_ring_options_check(&options, &given), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "full"));
	options.full = GPUMEM_RING_DROP;
	options.flags = GPUMEM_BUFFER_SIGNALS;
	ck_assert_int_eq(gm_ring_options_check(&options, &given), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "flags"));
	ck_assert_int_eq(gm_ring_options_check(NULL, &given), GPUMEM_OK);
	ck_assert_uint_eq(given.flush_every, 1);
	gpumem_ring_close(near);
	gpumem_ring_close(NULL);
	ring_memory_free(&memory);
}
END_TEST

/* ---- another end that writes nonsense */

START_TEST(a_head_that_makes_no_sense_is_refused)
{
	static const uint64_t heads[] = {9, 1000, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
		gpumem_ring *near = ring_near(&memory, FAIL);
		uint64_t number = 77;

		ring_control(&memory, true)->head = heads[i];
		for (uint32_t wait_ms = 0; wait_ms < 2; wait_ms++)
			ck_assert_int_eq(
				gpumem_ring_receive(near, &number, wait_ms), GPUMEM_E_PROTOCOL);
		ck_assert(strstr(gpumem_error_detail(), "make no sense"));
		ck_assert_uint_eq(number, 77);
		/* What it sends is another matter. */
		send_numbers(near, 0, 8);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

START_TEST(a_tail_that_makes_no_sense_is_refused)
{
	static const uint64_t tails[] = {9, 1000, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};

	for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
		struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 8, 0);
		gpumem_ring *near = ring_near(&memory, ring_options(GPUMEM_RING_WAIT, 1000, 1));

		send_numbers(near, 0, 8);
		ring_control(&memory, false)->tail = tails[i];
		ck_assert_int_eq(send_number(near, 8), GPUMEM_E_PROTOCOL);
		ring_control(&memory, false)->tail = 8;
		ck_assert_int_eq(send_number(near, 8), GPUMEM_E_PROTOCOL);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

struct vandal {
	const struct ring_memory *memory;
	atomic_bool end;
};

/* Writes into the control blocks, sometimes what is nearly right. */
static void *write_nonsense(void *argument)
{
	struct vandal *vandal = argument;
	uint64_t state = 88172645463325252u;

	while (!atomic_load(&vandal->end)) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		uint64_t *words = vandal->memory->at, value = state;
		size_t word = (state >> 8) % (2 * GPUMEM_RING_CONTROL / sizeof(*words));
		switch (state & 3) {
		case 0:
			value = __atomic_load_n(&words[word], __ATOMIC_RELAXED) +
				(state >> 32) % 16;
			break;
		case 1:
			value = state >> (state >> 56) % 64;
			break;
		case 2:
			value = __atomic_load_n(&words[(state >> 16) % 32], __ATOMIC_RELAXED);
			break;
		}
		__atomic_store_n(&words[word], value, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The pages beside the ring would end the test. */
START_TEST(whatever_the_other_end_writes_nothing_outside_is_touched_and_no_call_hangs)
{
	static const gpumem_ring_full kinds[] = {
		GPUMEM_RING_FAIL, GPUMEM_RING_WAIT, GPUMEM_RING_DROP};
	unsigned char message[48] = {0};

	for (int round = 0; round < 30; round++) {
		struct ring_memory memory = ring_memory_new(sizeof(message), 1u << round % 6, 0);
		struct vandal vandal = {.memory = &memory};
		gpumem_ring *near =
			ring_near(&memory, ring_options(kinds[round % 3], 1, (uint32_t)round % 4));
		gpumem_ring *far = ring_far(&memory, ring_options(kinds[round % 3], 1, 1));
		gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
		gpumem_ring_view view;
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, write_nonsense, &vandal), 0);
		for (int i = 0; i < 300; i++) {
			(void)gpumem_ring_send(near, message);
			(void)gpumem_ring_receive(far, message, 0);
			(void)gpumem_ring_send(far, message);
			(void)gpumem_ring_receive(near, message, i % 50 == 0);
			(void)gpumem_ring_flush(near);
			(void)gpumem_ring_stats(near, &stats);
		}
		for (int i = 0; i < 50; i++)
			(void)gpumem_ring_far_end(near, NULL, &view);
		atomic_store(&vandal.end, true);
		pthread_join(thread, NULL);
		gpumem_ring_close(far);
		gpumem_ring_close(near);

		/* Who opens it now gets an error, or a ring that is inside of the memory. */
		struct gm_ring_shape shape;
		if (gm_ring_shape_read(memory.at, memory.shape.bytes, &shape) == GPUMEM_OK)
			ck_assert_uint_le(shape.bytes, memory.shape.bytes);
		ring_memory_free(&memory);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring");
	TCase *tc = tcase_create("ring");

	tcase_add_test(tc, messages_arrive_in_order_in_both_directions);
	tcase_add_test(tc, messages_of_any_size_arrive_whole);
	tcase_add_test(tc, a_full_ring_fails_or_drops_as_it_was_told);
	tcase_add_test(tc, the_high_water_mark_is_exact);
	tcase_add_test(tc, a_batch_is_seen_when_it_is_complete_or_flushed);
	tcase_add_test(tc, counters_wrap_around);
	tcase_add_test(tc, what_was_sent_before_the_end_still_arrives);
	tcase_add_test(tc, the_next_owner_of_an_end_goes_on_where_the_last_one_stopped);
	tcase_add_test(tc, an_end_belongs_to_one_owner);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, a_head_that_makes_no_sense_is_refused);
	tcase_add_test(tc, a_tail_that_makes_no_sense_is_refused);
	tcase_add_test(
		tc, whatever_the_other_end_writes_nothing_outside_is_touched_and_no_call_hangs);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
