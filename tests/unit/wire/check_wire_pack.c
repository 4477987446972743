/* SPDX-License-Identifier: Apache-2.0 */

/* Packets are packed to the bytes that protobuf-c would make. */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/wire/wire_reply.h"

static uint8_t bytes[2 * GM_BOUND_PACKET_BYTES];
static size_t n_bytes;

static void require_packed_as_protobuf_does(const Gm__Wire__Packet *packet)
{
	static uint8_t theirs[2 * GM_BOUND_PACKET_BYTES];
	size_t n = gm__wire__packet__pack(packet, theirs);

	ck_assert_uint_eq(gm__wire__packet__get_packed_size(packet), n);
	ck_assert_int_eq(gm_wire_pack(packet, bytes, n, &n_bytes), 0);
	ck_assert_uint_eq(n_bytes, n);
	ck_assert_int_eq(memcmp(bytes, theirs, n), 0);
	ck_assert_int_eq(gm_wire_pack(packet, bytes, n - 1, &n_bytes), -E2BIG);

	/* The same with room to spare, of which nothing is used. */
	memset(bytes, 0x5a, n + 64);
	ck_assert_int_eq(gm_wire_pack(packet, bytes, sizeof(bytes), &n_bytes), 0);
	ck_assert_uint_eq(n_bytes, n);
	ck_assert_int_eq(memcmp(bytes, theirs, n), 0);
	for (size_t i = n; i < n + 64; i++)
		ck_assert_uint_eq(bytes[i], 0x5a);
}

START_TEST(packets_are_packed_to_the_bytes_that_protobuf_would_make)
{
	static const uint64_t values[] = {0, 1, 127, 128, 1 << 21, UINT32_MAX, UINT64_MAX};
	const ProtobufCMessageDescriptor *descriptor = &gm__wire__packet__descriptor;
	Gm__Wire__Packet packet;
	Gm__Wire__LeaseReply reply;
	Gm__Wire__Chunk chunks[3], *pointers[3];

	make_reply(&packet, &reply, chunks, pointers);
	require_packed_as_protobuf_does(&packet);
	/* Every body there is, empty, and every field of the envelope with every length. */
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
			continue;
		const ProtobufCMessageDescriptor *of = field->descriptor;
		ProtobufCMessage *body = malloc(of->sizeof_message);
		ck_assert_ptr_nonnull(body);
		protobuf_c_message_init(of, body);
		for (size_t k = 0; k < 7 * 6; k++) {
			uint64_t v = values[k % 7];
			packet = (Gm__Wire__Packet)GM__WIRE__PACKET__INIT;
			packet.id = k / 7 == 0 ? v : 1;
			packet.sequence = k / 7 == 1 ? v : 2;
			packet.generation = k / 7 == 2 ? v : 0;
			packet.more = k / 7 == 3;
			packet.fds = k / 7 == 4 ? (uint32_t)v : 0;
			packet.fds_seen = k / 7 == 5 ? v : 0;
			packet.body_case = (Gm__Wire__Packet__BodyCase)field->id;
			*(ProtobufCMessage **)((char *)&packet + field->offset) = body;
			require_packed_as_protobuf_does(&packet);
		}
		free(body);
	}
}
END_TEST

static _Alignas(max_align_t) uint8_t bodies[65536];
static size_t n_bodies;

/* Takes zeroed memory for one body. */
static void *take(size_t n)
{
	void *taken = bodies + n_bodies;

	n_bodies += (n + 15) / 16 * 16;
	ck_assert_uint_le(n_bodies, sizeof(bodies));
	memset(taken, 0, n);
	return taken;
}

/* Fills all fields of a message with the value, and the messages in it, too. */
static void fill(ProtobufCMessage *message, uint64_t value)
{
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
		bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
		void *member = (char *)message + field->offset;
		ProtobufCMessage **inner = member;
		uint64_t *numbers = member;

		if (list) {
			*(size_t *)((char *)message + field->quantifier_offset) = value % 3;
			*(void **)member = numbers = take(2 * sizeof(uint64_t));
			inner = *(void **)member;
		}
		for (int k = 0; k < (list ? 2 : 1); k++) {
			switch (field->type) {
			case PROTOBUF_C_TYPE_STRING:
				((char **)inner)[k] = value % 2 ? "text" : "";
				break;
			case PROTOBUF_C_TYPE_BYTES:
				ck_assert(!list);
				*(ProtobufCBinaryData *)member = (ProtobufCBinaryData){
					.len = value % 5, .data = (uint8_t *)"bytes"};
				break;
			case PROTOBUF_C_TYPE_MESSAGE: {
				const ProtobufCMessageDescriptor *of = field->descriptor;
				inner[k] = take(of->sizeof_message);
				protobuf_c_message_init(of, inner[k]);
				fill(inner[k], value);
				break;
			}
			case PROTOBUF_C_TYPE_UINT64:
			case PROTOBUF_C_TYPE_INT64:
			case PROTOBUF_C_TYPE_DOUBLE:
				numbers[k] = value;
				break;
			default:
				ck_assert(!list);
				*(uint32_t *)member = (uint32_t)value;
				break;
			}
		}
	}
}

START_TEST(every_field_of_every_body_is_packed_like_that)
{
	static const uint64_t values[] = {0, 1, 127, 128, UINT32_MAX, INT64_MAX, UINT64_MAX};
	const ProtobufCMessageDescriptor *descriptor = &gm__wire__packet__descriptor;

	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
			continue;
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			const ProtobufCMessageDescriptor *of = field->descriptor;
			Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
			n_bodies = 0;
			ProtobufCMessage *body = take(of->sizeof_message);
			protobuf_c_message_init(of, body);
			fill(body, values[k]);
			packet.id = 1;
			packet.body_case = (Gm__Wire__Packet__BodyCase)field->id;
			*(ProtobufCMessage **)((char *)&packet + field->offset) = body;
			require_packed_as_protobuf_does(&packet);
		}
	}
}
END_TEST

START_TEST(bodies_of_every_length_are_packed_like_that)
{
	static const size_t near[] = {0, 128, 16384, 60000};
	static char text[60000 + 17];
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;

	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	failure.status = 3;
	failure.detail = text;
	for (size_t k = 0; k < sizeof(near) / sizeof(near[0]); k++) {
		size_t from = near[k] > 16 ? near[k] - 16 : 0;
		for (size_t n = from; n <= near[k] + 16; n++) {
			memset(text, 'x', n);
			text[n] = '\0';
			require_packed_as_protobuf_does(&packet);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire_pack");
	TCase *tc = tcase_create("wire_pack");

	tcase_add_test(tc, packets_are_packed_to_the_bytes_that_protobuf_would_make);
	tcase_add_test(tc, every_field_of_every_body_is_packed_like_that);
	tcase_add_test(tc, bodies_of_every_length_are_packed_like_that);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
