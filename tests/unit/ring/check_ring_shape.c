/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The geometry of rings, also of those that somebody made up. */

#include "common/system/random.h"
#include "tests/unit/ring/ring_fixture.h"

static void refused(size_t message_bytes, size_t messages, const char *says)
{
	struct gm_ring_shape shape;

	ck_assert_int_eq(gm_ring_shape_of(message_bytes, messages, &shape), GPUMEM_E_INVALID);
	ck_assert_msg(strstr(gpumem_error_detail(), says) == gpumem_error_detail(), "%s",
		gpumem_error_detail());
}

START_TEST(a_refused_size_names_the_argument)
{
	refused(0, 8, "message_bytes must be from 1");
	refused((size_t)GPUMEM_RING_MESSAGE_MOST + 1, 8, "message_bytes must be from 1");
	refused(SIZE_MAX, 8, "message_bytes must be from 1");
	refused(8, 0, "messages must be from 1");
	refused(8, (size_t)GPUMEM_RING_MESSAGES_MOST + 1, "messages must be from 1");
	refused(8, SIZE_MAX, "messages must be from 1");
	refused(8, SIZE_MAX / 2 + 2, "messages must be from 1");
}
END_TEST

START_TEST(the_largest_ring_does_not_overflow)
{
	struct gm_ring_shape shape;

	ck_assert_int_eq(
		gm_ring_shape_of(GPUMEM_RING_MESSAGE_MOST, GPUMEM_RING_MESSAGES_MOST, &shape),
		GPUMEM_OK);
	ck_assert_uint_eq(shape.messages, GPUMEM_RING_MESSAGES_MOST);
	ck_assert_uint_eq(shape.apart, UINT64_C(1) << 60);
	ck_assert_uint_eq(shape.bytes, 256 + (UINT64_C(1) << 61));
}
END_TEST

START_TEST(the_number_of_messages_is_the_next_power_of_two)
{
	static const struct {
		size_t wanted, got;
	} cases[] = {
		{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1000, 1024}, {(1 << 29) + 1, 1 << 30}};
	struct gm_ring_shape shape;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ck_assert_int_eq(gm_ring_shape_of(1, cases[i].wanted, &shape), GPUMEM_OK);
		ck_assert_uint_eq(shape.messages, cases[i].got);
		ck_assert_uint_eq(shape.place_bytes, 16);
	}
}
END_TEST

START_TEST(a_ring_is_read_as_it_was_written)
{
	struct ring_memory memory = ring_memory_new(24, 5, 0);
	struct gm_ring_shape shape;

	ck_assert_int_eq(gm_ring_shape_read(memory.at, memory.shape.bytes, &shape), GPUMEM_OK);
	ck_assert_uint_eq(shape.message_bytes, 24);
	ck_assert_uint_eq(shape.place_bytes, 32);
	ck_assert_uint_eq(shape.messages, 8);
	ck_assert_uint_eq(shape.apart, 256);
	ck_assert_uint_eq(shape.bytes, 256 + 2 * 256);

	/* The arrays of the two directions lie side by side, behind the control blocks. */
	gpumem_ring_view near = gm_ring_end_of(memory.at, &shape, false, 1);
	gpumem_ring_view far = gm_ring_end_of(memory.at, &shape, true, 1);
	ck_assert_ptr_eq(near.out, memory.at);
	ck_assert_ptr_eq(near.in, (char *)memory.at + 128);
	ck_assert_ptr_eq(near.out_places, (char *)memory.at + 256);
	ck_assert_ptr_eq(near.in_places, (char *)memory.at + 512);
	ck_assert(far.out == near.in && far.in == near.out);
	ck_assert(far.out_places == near.in_places && far.in_places == near.out_places);
	ring_memory_free(&memory);
}
END_TEST

START_TEST(memory_without_a_ring_is_refused)
{
	struct ring_memory memory = ring_memory_new(64, 8, 0);
	gpumem_ring_control *control = ring_control(&memory, false);
	struct gm_ring_shape shape;

	for (size_t bytes = 0; bytes < memory.shape.bytes; bytes++)
		ck_assert_int_eq(gm_ring_shape_read(memory.at, bytes, &shape), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "it would not fit"));
	control->messages = 7;
	ck_assert_int_eq(
		gm_ring_shape_read(memory.at, memory.shape.bytes, &shape), GPUMEM_E_INVALID);
	control->messages = 8;
	control->magic++;
	ck_assert_int_eq(
		gm_ring_shape_read(memory.at, memory.shape.bytes, &shape), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "there is no ring in this buffer"));
	ring_memory_free(&memory);
}
END_TEST

/* Whatever the control block says: if it is taken for a ring, the ring fits into the memory. */
START_TEST(a_geometry_that_was_made_up_never_passes_the_end)
{
	union {
		gpumem_ring_control control;
		uint8_t bytes[GPUMEM_RING_PLACES];
	} made_up = {0};
	struct gm_ring_shape shape;

	for (int i = 0; i < 200000; i++) {
		uint8_t draw[8];
		ck_assert_int_eq(gm_random(draw, sizeof(draw)), 0);
		made_up.control.magic = GPUMEM_RING_MAGIC;
		made_up.control.message_bytes =
			(uint32_t)(draw[0] | draw[1] << 8) >> draw[2] % 16 << draw[3] % 16;
		made_up.control.messages = draw[4] & 1 ? 1u << draw[5] % 32 : draw[6];
		size_t bytes = (size_t)1 << draw[7] % 40;
		if (bytes < sizeof(made_up) ||
			gm_ring_shape_read(&made_up, bytes, &shape) != GPUMEM_OK)
			continue;
		gpumem_ring_view end = gm_ring_end_of(&made_up, &shape, true, 1);
		size_t array = (size_t)shape.place_bytes * shape.messages;
		ck_assert_uint_le(
			(size_t)(end.out_places - (unsigned char *)&made_up) + array, bytes);
		ck_assert_uint_le(shape.message_bytes, shape.place_bytes);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring_shape");
	TCase *tc = tcase_create("ring_shape");

	tcase_add_test(tc, a_refused_size_names_the_argument);
	tcase_add_test(tc, the_largest_ring_does_not_overflow);
	tcase_add_test(tc, the_number_of_messages_is_the_next_power_of_two);
	tcase_add_test(tc, a_ring_is_read_as_it_was_written);
	tcase_add_test(tc, memory_without_a_ring_is_refused);
	tcase_add_test(tc, a_geometry_that_was_made_up_never_passes_the_end);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
