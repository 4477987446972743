/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes into gm_wire_unpack(). What it takes for a packet must pack again, unpack again, and
 * then pack to the same bytes; what the packet points to must lie in the arena; and whatever
 * happens stays within the bounds of common/bounds.h.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/wire.h"
#include "tests/fuzz/fuzz.h"

/* abort() whatever NDEBUG says. */
#define MUST(what) \
	do { \
		if (!(what)) \
			abort(); \
	} while (0)

/*
 * protobuf-c itself is not instrumented. So that the fuzzer sees progress all the same, every kind
 * of message, field and order of magnitude met counts as something new.
 */
#ifdef GM_FUZZING
__attribute__((section("__libfuzzer_extra_counters")))
#endif
static uint8_t met[4096];

static void meet(const ProtobufCFieldDescriptor *field, uint64_t magnitude)
{
	uint64_t h = (uint64_t)(uintptr_t)field * UINT64_C(0x9e3779b97f4a7c15);
	unsigned bits = magnitude ? 64 - (unsigned)__builtin_clzll(magnitude) : 0;

	met[(h >> 40 ^ bits) % sizeof(met)] = 1;
}

static struct gm_wire_arena arena, second;

static bool in_arena(const void *pointer, size_t n)
{
	const uint8_t *at = pointer;

	return at >= arena.base && n <= arena.used && at <= arena.base + arena.used - n;
}

/*
 * A field numbered 0 does not exist; protobuf-c refuses it when its tag is one byte and takes it
 * when that is written in more. It packs as one byte, so such a packet does not unpack again.
 */
static bool met_field_0;
static volatile uint64_t looked_at; /* so that no read is left out */

/* Reads every byte that the message says it has. */
static void look_at(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *type = message->descriptor;
	uint64_t sum = 0;

	MUST(in_arena(message, type->sizeof_message));
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &type->fields[i];
		const uint8_t *member = (const uint8_t *)message + field->offset;

		if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
			uint32_t which;
			memcpy(&which, (const uint8_t *)message + field->quantifier_offset,
				sizeof(which));
			if (which != field->id)
				continue;
		}
		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			size_t n;
			void *items;
			memcpy(&n, (const uint8_t *)message + field->quantifier_offset, sizeof(n));
			memcpy(&items, member, sizeof(items));
			meet(field, n);
			for (size_t k = 0; k < n; k++) {
				if (field->type == PROTOBUF_C_TYPE_MESSAGE)
					look_at(((ProtobufCMessage **)items)[k]);
				else if (field->type == PROTOBUF_C_TYPE_UINT64)
					sum += ((uint64_t *)items)[k];
				else
					abort(); /* the schema has no other; teach this about it */
			}
			continue;
		}
		switch (field->type) {
		case PROTOBUF_C_TYPE_MESSAGE: {
			ProtobufCMessage *inner;
			memcpy(&inner, member, sizeof(inner));
			if (inner)
				look_at(inner);
			meet(field, inner != NULL);
			break;
		}
		case PROTOBUF_C_TYPE_STRING: {
			const char *text;
			memcpy(&text, member, sizeof(text));
			MUST(text);
			MUST(text == protobuf_c_empty_string || in_arena(text, strlen(text) + 1));
			meet(field, strlen(text));
			break;
		}
		case PROTOBUF_C_TYPE_BYTES: {
			ProtobufCBinaryData data;
			memcpy(&data, member, sizeof(data));
			MUST(data.len == 0 || in_arena(data.data, data.len));
			for (size_t k = 0; k < data.len; k++)
				sum += data.data[k];
			meet(field, data.len);
			break;
		}
		default: {
			uint32_t low;
			memcpy(&low, member, sizeof(low));
			meet(field, low);
			sum += low;
		}
		}
	}
	for (unsigned i = 0; i < message->n_unknown_fields; i++) {
		met_field_0 |= message->unknown_fields[i].tag == 0;
		for (size_t k = 0; k < message->unknown_fields[i].len; k++)
			sum += message->unknown_fields[i].data[k];
	}
	looked_at = looked_at + sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t once[GM_BOUND_PACKET_BYTES], twice[GM_BOUND_PACKET_BYTES];
	Gm__Wire__Packet *packet = NULL, *again = NULL;
	size_t n_once, n_twice;
	int r = gm_wire_unpack(&arena, bytes, n, &packet);

	MUST(arena.peak <= GM_BOUND_ARENA_BYTES);
	if (r == 0 || r == GM_WIRE_E_UNKNOWN) {
		MUST(n <= GM_BOUND_PACKET_BYTES);
		MUST((packet->body_case == GM__WIRE__PACKET__BODY__NOT_SET) ==
			(r == GM_WIRE_E_UNKNOWN));
		met_field_0 = false;
		look_at(&packet->base);
		int packed = gm_wire_pack(packet, once, sizeof(once), &n_once);
		/* A negative enum of five bytes takes ten when packed: it may not fit any more. */
		MUST(packed == 0 || packed == -E2BIG);
		if (packed == 0 && !met_field_0) {
			int unpacked = gm_wire_unpack(&second, once, n_once, &again);
			MUST(unpacked == r);
			MUST(gm_wire_pack(again, twice, sizeof(twice), &n_twice) == 0);
			MUST(n_once == n_twice && memcmp(once, twice, n_once) == 0);
		}
	} else {
		MUST(r == -EBADMSG || r == -E2BIG);
		MUST(!packet);
	}
	return 0;
}
