/* SPDX-License-Identifier: Apache-2.0 */

/* The codec against packets that were made to break it. */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/wire/wire.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/wire/wire_reply.h"

static struct gm_wire_arena arena;
static uint8_t bytes[2 * GM_BOUND_PACKET_BYTES];
static size_t n_bytes;

static void setup(void)
{
	gm_wire_arena_init(&arena);
	n_bytes = 0;
}

static void teardown(void)
{
	gm_wire_arena_deinit(&arena);
}

/* Protobuf by hand. */
static void put_varint(uint64_t v)
{
	do {
		bytes[n_bytes++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
}

static void put_tag(uint32_t field, uint32_t kind)
{
	put_varint(field << 3 | kind);
}

static int unpack(Gm__Wire__Packet **packet)
{
	return gm_wire_unpack(&arena, bytes, n_bytes, packet);
}

/* A Return with k ids of one byte each. */
static void put_return(size_t k)
{
	size_t list, inner;

	n_bytes = 0;
	for (list = 1; k >> (7 * list); list++)
		;
	inner = 1 + list + k;
	put_tag(14, 2);
	put_varint(inner);
	put_tag(2, 2);
	put_varint(k);
	memset(bytes + n_bytes, 7, k);
	n_bytes += k;
}

START_TEST(a_packet_comes_back_as_it_went)
{
	Gm__Wire__Packet packet, *back;
	Gm__Wire__LeaseReply reply;
	Gm__Wire__Chunk chunks[3], *pointers[3];

	make_reply(&packet, &reply, chunks, pointers);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n_bytes), 0);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_uint_eq(back->id, 99);
	ck_assert_uint_eq(back->sequence, UINT64_MAX);
	ck_assert_uint_eq(back->generation, 5);
	ck_assert_int_eq(back->more, 1);
	ck_assert_uint_eq(back->fds, 3);
	ck_assert_int_eq(back->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	ck_assert_uint_eq(back->lease_reply->lease, UINT64_C(1) << 63);
	ck_assert_uint_eq(back->lease_reply->n_chunks, 3);
	ck_assert_uint_eq(back->lease_reply->chunks[2]->id, UINT64_MAX - 2);
	ck_assert_uint_eq(back->lease_reply->chunks[1]->ipc_handle.len, GM_IPC_HANDLE_BYTES);
	ck_assert_int_eq(memcmp(back->lease_reply->chunks[1]->ipc_handle.data,
				 chunks[1].ipc_handle.data, GM_IPC_HANDLE_BYTES),
		0);
	ck_assert_uint_eq(back->lease_reply->chunks[0]->ipc_handle.len, 0);
	ck_assert_str_eq(back->lease_reply->tag, reply.tag);
	/* What was left out is empty, never NULL. */
	ck_assert_int_eq(back->lease_reply->user_bytes, 0);
}
END_TEST

START_TEST(strings_that_were_not_sent_are_empty_and_never_null)
{
	Gm__Wire__Packet *back;

	put_tag(10, 2); /* Hello */
	put_varint(0);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_ptr_nonnull(back->hello->name);
	ck_assert_str_eq(back->hello->name, "");
	ck_assert_uint_eq(back->hello->token.len, 0);
}
END_TEST

START_TEST(a_packet_cut_anywhere_is_refused_or_whole_and_never_more)
{
	Gm__Wire__Packet packet, *back;
	Gm__Wire__LeaseReply reply;
	Gm__Wire__Chunk chunks[3], *pointers[3];
	size_t whole, refused = 0;

	make_reply(&packet, &reply, chunks, pointers);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &whole), 0);
	for (size_t n = 0; n < whole; n++) {
		/* Memory of exactly that length, so that a sanitizer sees a read past it. */
		uint8_t *cut = malloc(n ? n : 1);
		ck_assert_ptr_nonnull(cut);
		memcpy(cut, bytes, n);
		refused += gm_wire_unpack(&arena, cut, n, &back) == -EBADMSG;
		free(cut);
	}
	/* The envelope has no body yet, and the body is cut: all of them. */
	ck_assert_uint_eq(refused, whole);
}
END_TEST

START_TEST(a_packet_with_any_bit_turned_does_no_harm)
{
	Gm__Wire__Packet packet, *back;
	Gm__Wire__LeaseReply reply;
	Gm__Wire__Chunk chunks[3], *pointers[3];
	static uint8_t again[GM_BOUND_PACKET_BYTES];

	make_reply(&packet, &reply, chunks, pointers);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n_bytes), 0);
	for (size_t bit = 0; bit < 8 * n_bytes; bit++) {
		size_t n;
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		int r = unpack(&back);
		ck_assert(r == 0 || r == -EBADMSG || r == GM_WIRE_E_UNKNOWN);
		if (r == 0)
			ck_assert_int_eq(gm_wire_pack(back, again, sizeof(again), &n), 0);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}
END_TEST

START_TEST(random_bytes_do_no_harm)
{
	Gm__Wire__Packet *back;
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

	for (int round = 0; round < 50000; round++) {
		n_bytes = (size_t)round % 97;
		for (size_t i = 0; i < n_bytes; i++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			bytes[i] = (uint8_t)state;
		}
		int r = unpack(&back);
		ck_assert(r == 0 || r == -EBADMSG || r == -E2BIG || r == GM_WIRE_E_UNKNOWN);
	}
}
END_TEST

START_TEST(a_packet_without_a_body_is_none)
{
	Gm__Wire__Packet *back = NULL;

	ck_assert_int_eq(unpack(&back), -EBADMSG); /* no bytes at all */
	put_tag(1, 0);
	put_varint(5);
	ck_assert_int_eq(unpack(&back), -EBADMSG); /* an id and nothing else */
	put_tag(9, 0);                             /* a field of an envelope to come */
	put_varint(5);
	ck_assert_int_eq(unpack(&back), -EBADMSG);
	ck_assert_ptr_null(back);
}
END_TEST

/* The number of a request that nobody has thought of yet. */
static unsigned unknown_body(void)
{
	unsigned id = 10;

	while (protobuf_c_message_descriptor_get_field(&gm__wire__packet__descriptor, id))
		id++;
	return id;
}

START_TEST(a_body_of_a_newer_minor_keeps_its_envelope)
{
	Gm__Wire__Packet *back;

	put_tag(1, 0);
	put_varint(77);
	put_tag(unknown_body(), 2);
	put_varint(3);
	memcpy(bytes + n_bytes, "\x08\x01\xff", 3);
	n_bytes += 3;
	ck_assert_int_eq(unpack(&back), GM_WIRE_E_UNKNOWN);
	ck_assert_uint_eq(back->id, 77);
	ck_assert_int_eq(back->body_case, GM__WIRE__PACKET__BODY__NOT_SET);
}
END_TEST

START_TEST(a_field_of_a_newer_minor_is_passed_over)
{
	Gm__Wire__Packet *back;

	put_tag(1, 0);
	put_varint(77);
	put_tag(12, 2); /* Lease */
	put_varint(7);
	put_tag(1, 0);
	put_varint(1);
	put_tag(100, 0);
	put_varint(1);
	put_tag(2, 0);
	put_varint(9);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_uint_eq(back->lease->device, 1);
	ck_assert_uint_eq(back->lease->bytes, 9);
}
END_TEST

START_TEST(of_two_bodies_the_last_one_counts)
{
	Gm__Wire__Packet *back;

	put_tag(10, 2); /* Hello with a name */
	put_varint(5);
	put_tag(3, 2);
	put_varint(3);
	memcpy(bytes + n_bytes, "abc", 3);
	n_bytes += 3;
	put_tag(15, 2); /* GetHandles */
	put_varint(2);
	put_tag(1, 0);
	put_varint(8);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_int_eq(back->body_case, GM__WIRE__PACKET__BODY_GET_HANDLES);
	ck_assert_uint_eq(back->get_handles->lease, 8);
}
END_TEST

START_TEST(a_length_that_reaches_past_the_packet_is_refused)
{
	static const uint64_t lengths[] = {1, 127, 65536, UINT32_MAX, UINT64_C(1) << 32,
		(UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
	Gm__Wire__Packet *back;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		n_bytes = 0;
		put_tag(10, 2);
		put_varint(lengths[i]);
		ck_assert_int_eq(unpack(&back), -EBADMSG);
		n_bytes = 0;
		put_tag(14, 2);
		put_varint(11); /* as long as the longest varint and a tag */
		put_tag(2, 2);  /* the ids of a Return */
		put_varint(lengths[i]);
		while (n_bytes < 13)
			bytes[n_bytes++] = 0x80;
		ck_assert_int_eq(unpack(&back), -EBADMSG);
	}
	/* A varint without end, a kind that does not exist, a group. */
	n_bytes = 12;
	memset(bytes, 0xff, n_bytes);
	ck_assert_int_eq(unpack(&back), -EBADMSG);
	for (uint32_t kind = 3; kind < 8; kind++) {
		if (kind == 5)
			continue; /* 32 bits, which is one */
		n_bytes = 0;
		put_tag(1, kind);
		put_varint(1);
		ck_assert_int_eq(unpack(&back), -EBADMSG);
	}
}
END_TEST

START_TEST(a_packet_that_fills_the_arena_fits_and_one_id_more_does_not)
{
	GM_BOUND_TEST(ARENA_BYTES);
	Gm__Wire__Packet *back;

	put_return(2);
	ck_assert_int_eq(unpack(&back), 0);
	size_t most = (GM_BOUND_ARENA_BYTES - (arena.used - 2 * sizeof(uint64_t))) / 8;

	put_return(most);
	ck_assert_uint_le(n_bytes, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_uint_eq(arena.used, GM_BOUND_ARENA_BYTES);
	ck_assert_uint_eq(back->return_chunks->n_chunks, most);
	for (size_t i = 0; i < most; i++)
		ck_assert(back->return_chunks->chunks[i] == 7);

	put_return(most + 1);
	ck_assert_uint_le(n_bytes, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(unpack(&back), -E2BIG);
	ck_assert_uint_le(arena.used, GM_BOUND_ARENA_BYTES);

	/* And the next packet has the whole arena again. */
	put_return(most);
	ck_assert_int_eq(unpack(&back), 0);
}
END_TEST

START_TEST(the_packets_that_ask_for_most_memory_are_refused)
{
	Gm__Wire__Packet *back;

	/* 32,000 empty sub-messages. */
	put_tag(68, 2);
	size_t rows = (GM_BOUND_PACKET_BYTES - 8) / 2;
	put_varint(rows * 2);
	for (size_t i = 0; i < rows; i++) {
		put_tag(1, 2);
		put_varint(0);
	}
	ck_assert_uint_le(n_bytes, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(unpack(&back), -E2BIG);
	/* 32,000 unknown fields in the envelope. */
	n_bytes = 0;
	while (n_bytes < GM_BOUND_PACKET_BYTES - 2) {
		put_tag(9, 0);
		put_varint(1);
	}
	ck_assert_int_eq(unpack(&back), -E2BIG);
	/* 32,000 times the same known field: memory for the list of them. */
	n_bytes = 0;
	while (n_bytes < GM_BOUND_PACKET_BYTES - 2) {
		put_tag(1, 0);
		put_varint(1);
	}
	ck_assert_int_eq(unpack(&back), -E2BIG);
	ck_assert_uint_le(arena.peak, GM_BOUND_ARENA_BYTES);
	/* The same body over and over: each one is merged into the next. */
	n_bytes = 0;
	while (n_bytes < GM_BOUND_PACKET_BYTES - 8) {
		put_tag(10, 2);
		put_varint(3);
		put_tag(3, 2);
		put_varint(1);
		bytes[n_bytes++] = 'x';
	}
	int r = unpack(&back);
	ck_assert(r == 0 || r == -E2BIG);
}
END_TEST

START_TEST(a_packet_past_the_limit_is_neither_packed_nor_unpacked)
{
	GM_BOUND_TEST(PACKET_BYTES);
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT, *back;
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	static char text[GM_BOUND_PACKET_BYTES + 1];
	size_t n = 0, length = GM_BOUND_PACKET_BYTES - 64;

	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	failure.detail = text;
	memset(text, 'x', length);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	length += GM_BOUND_PACKET_BYTES - n;
	memset(text, 'x', length);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_uint_eq(n, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(gm_wire_unpack(&arena, bytes, n, &back), 0);
	ck_assert_uint_eq(strlen(back->failure->detail), length);

	text[length] = 'x';
	n = 12345;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), -E2BIG);
	ck_assert_uint_eq(n, 12345);
	n = gm__wire__packet__pack(&packet, bytes);
	ck_assert_uint_eq(n, GM_BOUND_PACKET_BYTES + 1);
	ck_assert_int_eq(gm_wire_unpack(&arena, bytes, n, &back), -EBADMSG);
}
END_TEST

START_TEST(a_packet_without_room_is_not_packed_at_all)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	size_t n, more;

	packet.id = 3;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_HANDLES;
	packet.get_handles = &get;
	get.lease = 12;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	memset(bytes, 0x5a, n);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, n - 1, &more), -E2BIG);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(bytes[i], 0x5a);
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, n, &more), 0);
	ck_assert_uint_eq(more, n);
}
END_TEST

static size_t resident_past_what_is_kept(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
	unsigned char pages[GM_BOUND_ARENA_BYTES / 4096];
	size_t length = GM_BOUND_ARENA_BYTES - GM_WIRE_ARENA_KEEP_BYTES;

	ck_assert_int_eq(mincore(arena.base + GM_WIRE_ARENA_KEEP_BYTES, length, pages), 0);
	for (size_t i = 0; i < length / page; i++)
		n += pages[i] & 1;
	return n;
}

START_TEST(an_idle_arena_costs_nothing_and_a_large_packet_only_until_the_next)
{
	Gm__Wire__Packet *back;

	ck_assert_ptr_null(arena.base);
	put_return(60000);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_uint_gt(resident_past_what_is_kept(), 0);
	put_return(1);
	ck_assert_int_eq(unpack(&back), 0);
	ck_assert_uint_eq(resident_past_what_is_kept(), 0);
	gm_wire_arena_deinit(&arena);
	gm_wire_arena_deinit(&arena);
	ck_assert_ptr_null(arena.base);
}
END_TEST

START_TEST(no_memory_for_the_arena_is_told_and_passes)
{
	Gm__Wire__Packet *back = NULL;
	struct rlimit limit, none;

	put_return(1);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	none = limit;
	none.rlim_cur = 4096;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	int r = unpack(&back);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_ptr_null(back);
	ck_assert_int_eq(unpack(&back), 0);
}
END_TEST

/* Depth of the deepest message; fails when one contains itself. */
static unsigned depth(const ProtobufCMessageDescriptor *message,
	const ProtobufCMessageDescriptor **path, unsigned n)
{
	unsigned deepest = n + 1;

	for (unsigned i = 0; i < n; i++)
		ck_assert_msg(path[i] != message, "%s contains itself", message->name);
	ck_assert_uint_lt(n, 16);
	path[n] = message;
	for (unsigned i = 0; i < message->n_fields; i++) {
		if (message->fields[i].type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		unsigned d = depth(message->fields[i].descriptor, path, n + 1);
		if (d > deepest)
			deepest = d;
	}
	return deepest;
}

START_TEST(no_message_contains_itself)
{
	const ProtobufCMessageDescriptor *path[16];

	ck_assert_uint_le(depth(&gm__wire__packet__descriptor, path, 0), 4);
}
END_TEST

/* Bytes that cost the daemon most for their number: each field and each item counts, wherever it
 * is. */
START_TEST(a_request_is_checked_for_its_fields_however_they_are_written)
{
	enum { MOST = GM_BOUND_REQUEST_FIELDS };

	/* One byte each cannot be too many, whatever it says. */
	memset(bytes, 0x08, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(gm_wire_check_request(bytes, MOST), 0);
	/* field 1, a number, again and again */
	for (size_t i = 0; i < GM_BOUND_PACKET_BYTES; i += 2) {
		bytes[i] = 0x08;
		bytes[i + 1] = 1;
	}
	ck_assert_int_eq(gm_wire_check_request(bytes, 2 * MOST), 0);
	ck_assert_int_eq(gm_wire_check_request(bytes, 2 * MOST + 2), -E2BIG);
	/* the same in a body, which is one field, with a length of three bytes */
	bytes[0] = GM__WIRE__PACKET__BODY_RETURN_CHUNKS << 3 | 2;
	for (int more = 0; more < 2; more++) {
		size_t n = 2 * (size_t)(MOST - 1 + more);
		bytes[1] = (uint8_t)(n | 0x80);
		bytes[2] = (uint8_t)(n >> 7);
		for (size_t i = 3; i < 3 + n; i += 2) {
			bytes[i] = 0x08;
			bytes[i + 1] = 1;
		}
		ck_assert_int_eq(gm_wire_check_request(bytes, 3 + n), more ? -E2BIG : 0);
	}
	/* Text and bytes are one field, however long. */
	Gm__Wire__PutMetadata put = GM__WIRE__PUT_METADATA__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(PUT_METADATA, put_metadata, &put);
	size_t n;
	put.data.data = calloc(1, GM_METADATA_PIECE);
	put.data.len = GM_METADATA_PIECE;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, GM_BOUND_PACKET_BYTES, &n), 0);
	ck_assert_int_eq(gm_wire_check_request(bytes, n), 0);
	free(put.data.data);
	/* What is no message is for gm_wire_unpack() to refuse. */
	memset(bytes, 0xff, GM_BOUND_PACKET_BYTES);
	ck_assert_int_eq(gm_wire_check_request(bytes, GM_BOUND_PACKET_BYTES), 0);
}
END_TEST

START_TEST(envelope_fields_stay_below_the_bodies)
{
	const ProtobufCMessageDescriptor *packet = &gm__wire__packet__descriptor;

	for (unsigned i = 0; i < packet->n_fields; i++) {
		bool body = packet->fields[i].flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
		ck_assert_int_eq(body, packet->fields[i].id >= 10);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *tc = tcase_create("wire");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_packet_comes_back_as_it_went);
	tcase_add_test(tc, strings_that_were_not_sent_are_empty_and_never_null);
	tcase_add_test(tc, a_packet_cut_anywhere_is_refused_or_whole_and_never_more);
	tcase_add_test(tc, a_packet_with_any_bit_turned_does_no_harm);
	tcase_add_test(tc, random_bytes_do_no_harm);
	tcase_add_test(tc, a_packet_without_a_body_is_none);
	tcase_add_test(tc, a_body_of_a_newer_minor_keeps_its_envelope);
	tcase_add_test(tc, a_field_of_a_newer_minor_is_passed_over);
	tcase_add_test(tc, of_two_bodies_the_last_one_counts);
	tcase_add_test(tc, a_length_that_reaches_past_the_packet_is_refused);
	tcase_add_test(tc, a_packet_that_fills_the_arena_fits_and_one_id_more_does_not);
	tcase_add_test(tc, the_packets_that_ask_for_most_memory_are_refused);
	tcase_add_test(tc, a_packet_past_the_limit_is_neither_packed_nor_unpacked);
	tcase_add_test(tc, a_packet_without_room_is_not_packed_at_all);
	tcase_add_test(tc, an_idle_arena_costs_nothing_and_a_large_packet_only_until_the_next);
	tcase_add_test(tc, no_memory_for_the_arena_is_told_and_passes);
	tcase_add_test(tc, no_message_contains_itself);
	tcase_add_test(tc, a_request_is_checked_for_its_fields_however_they_are_written);
	tcase_add_test(tc, envelope_fields_stay_below_the_bodies);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
