/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a ring in memory. What another process has written there is read once, checked, and not
 * read again. */
#include "client/ring/ring_shape.h"

#include <string.h>

#include "client/ring/ring_owner.h"
#include "client/session/error.h"
#include "common/arith.h"
#include "gpumem/gpumem_ring.h"

/* A place begins at a multiple of this, an array of places at a multiple of the next. */
#define SHAPE_PLACE_ALIGN 16
#define SHAPE_ARRAY_ALIGN 256

static uint64_t shape_next_power(uint64_t value)
{
	return value > 1 ? UINT64_C(1) << (64 - __builtin_clzll(value - 1)) : 1;
}

gpumem_status gm_ring_shape_of(size_t message_bytes, size_t messages, struct gm_ring_shape *ret)
{
	if (!message_bytes || message_bytes > GPUMEM_RING_MESSAGE_MOST)
		return gm_error(GPUMEM_E_INVALID,
			"message_bytes must be from 1 to %llu; %llu was given",
			(unsigned long long)GPUMEM_RING_MESSAGE_MOST,
			(unsigned long long)message_bytes);
	if (!messages || messages > GPUMEM_RING_MESSAGES_MOST)
		return gm_error(GPUMEM_E_INVALID, "messages must be from 1 to %llu; %llu was given",
			(unsigned long long)GPUMEM_RING_MESSAGES_MOST,
			(unsigned long long)messages);

	/* Nothing overflows: both are at most 2^30. */
	ret->message_bytes = (uint32_t)message_bytes;
	ret->place_bytes = (uint32_t)gm_round_up(message_bytes, SHAPE_PLACE_ALIGN);
	ret->messages = (uint32_t)shape_next_power(messages);
	ret->apart = gm_round_up((uint64_t)ret->place_bytes * ret->messages, SHAPE_ARRAY_ALIGN);
	ret->bytes = GPUMEM_RING_PLACES + 2 * ret->apart;
	return GPUMEM_OK;
}

static gpumem_status shape_is_none(const char *why)
{
	return gm_error(GPUMEM_E_INVALID,
		"there is no ring in this buffer (%s): open one that came from gpumem_ring_buffer()",
		why);
}

gpumem_status gm_ring_shape_read(const void *memory, size_t bytes, struct gm_ring_shape *ret)
{
	const gpumem_ring_control *control = memory;
	struct gm_ring_shape shape;

	if (bytes < GPUMEM_RING_PLACES)
		return shape_is_none("it is too small");
	if (__atomic_load_n(&control->magic, __ATOMIC_ACQUIRE) != GPUMEM_RING_MAGIC)
		return shape_is_none("it does not begin with one");

	/* Each word is read once, so that what was checked is what is used. */
	uint32_t messages = __atomic_load_n(&control->messages, __ATOMIC_RELAXED);
	uint32_t message_bytes = __atomic_load_n(&control->message_bytes, __ATOMIC_RELAXED);
	gpumem_status status = gm_ring_shape_of(message_bytes, messages, &shape);
	if (status)
		return status;
	if (shape.messages != messages)
		return shape_is_none("its number of messages is no power of two");
	if (shape.bytes > bytes)
		return shape_is_none("it would not fit");
	*ret = shape;
	return GPUMEM_OK;
}

void gm_ring_format(void *memory, const struct gm_ring_shape *shape, uint64_t first)
{
	gpumem_ring_control *control = memory;

	memset(control, 0, 2 * sizeof(*control));
	for (int i = 0; i < 2; i++) {
		control[i].message_bytes = shape->message_bytes;
		control[i].messages = shape->messages;
		control[i].first = first;
		control[i].head = first;
		control[i].tail = first;
	}
	__atomic_store_n(&control[0].sender, gm_ring_owner(GPUMEM_RING_PROCESS), __ATOMIC_RELAXED);
	__atomic_store_n(&control[1].magic, GPUMEM_RING_MAGIC, __ATOMIC_RELEASE);
	__atomic_store_n(&control[0].magic, GPUMEM_RING_MAGIC, __ATOMIC_RELEASE);
}

gpumem_ring_view gm_ring_end_of(
	void *memory, const struct gm_ring_shape *shape, bool far, uint32_t flush_every)
{
	gpumem_ring_control *control = memory;
	unsigned char *places = (unsigned char *)memory + GPUMEM_RING_PLACES;

	return (gpumem_ring_view){
		.out = &control[far],
		.in = &control[!far],
		.out_places = places + (far ? shape->apart : 0),
		.in_places = places + (far ? 0 : shape->apart),
		.message_bytes = shape->message_bytes,
		.place_bytes = shape->place_bytes,
		.messages = shape->messages,
		.flush_every = flush_every,
	};
}
