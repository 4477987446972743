/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Turns packets into bytes and back, with protobuf-c. By default protobuf-c would allocate on the
 * heap whatever a packet asks for: up to 60 times the length of a packet made for that. Here it
 * gets a bump allocator over an arena of GM_LIMIT_ARENA_BYTES. Freeing a piece does nothing; the
 * next unpack starts over. No message of the schema contains itself, which bounds the stack depth.
 */

#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "common/wire/wire.h"

/* The first field number of the Packet's oneof: lower numbers belong to the envelope. */
#define WIRE_FIRST_BODY 10

_Static_assert(GM_WIRE_ARENA_KEEP_BYTES < GM_LIMIT_ARENA_BYTES, "only a part of the arena is kept");

void gm_wire_arena_init(struct gm_wire_arena *arena)
{
	*arena = (struct gm_wire_arena){0};
}

void gm_wire_arena_deinit(struct gm_wire_arena *arena)
{
	if (arena->base)
		munmap(arena->base, GM_LIMIT_ARENA_BYTES);
	*arena = (struct gm_wire_arena){0};
}

/* Forgets the packet unpacked last, and gives the pages it used past those kept back. */
static int wire_arena_reset(struct gm_wire_arena *arena)
{
	if (!arena->base) {
		void *base = mmap(NULL, GM_LIMIT_ARENA_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			return -ENOMEM;
		arena->base = base;
	}

	/* If the kernel refuses, the arena only keeps more memory than it needs. */
	if (arena->used > GM_WIRE_ARENA_KEEP_BYTES)
		madvise(arena->base + GM_WIRE_ARENA_KEEP_BYTES,
			GM_LIMIT_ARENA_BYTES - GM_WIRE_ARENA_KEEP_BYTES, MADV_DONTNEED);
	arena->used = 0;
	return 0;
}

struct wire_unpacking {
	struct gm_wire_arena *arena;
	bool full;
};

static void *wire_unpacking_alloc(void *data, size_t size)
{
	struct wire_unpacking *unpacking = data;
	struct gm_wire_arena *arena = unpacking->arena;
	size_t room = GM_LIMIT_ARENA_BYTES - arena->used;
	size_t rounded;

	if (size > room) {
		unpacking->full = true;
		return NULL;
	}

	rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	if (rounded > room)
		rounded = room;
	void *piece = arena->base + arena->used;
	arena->used += rounded;
	if (arena->used > arena->peak)
		arena->peak = arena->used;
	return piece;
}

static void wire_unpacking_free(void *data, void *piece)
{
	(void)data;
	(void)piece;
}

static bool wire_has_unknown_body(const ProtobufCMessage *message)
{
	for (unsigned i = 0; i < message->n_unknown_fields; i++)
		if (message->unknown_fields[i].tag >= WIRE_FIRST_BODY)
			return true;
	return false;
}

int gm_wire_unpack(
	struct gm_wire_arena *arena, const void *bytes, size_t n, Gm__Wire__Packet **ret_packet)
{
	struct wire_unpacking unpacking = {.arena = arena};

	ProtobufCAllocator allocator = {
		.alloc = wire_unpacking_alloc,
		.free = wire_unpacking_free,
		.allocator_data = &unpacking,
	};
	Gm__Wire__Packet *packet;
	int r;

	if (n > GM_LIMIT_PACKET_BYTES)
		return -EBADMSG;
	r = wire_arena_reset(arena);
	if (r < 0)
		return r;
	packet = gm__wire__packet__unpack(&allocator, n, bytes);
	if (!packet)
		return unpacking.full ? -E2BIG : -EBADMSG;
	if (packet->body_case == GM__WIRE__PACKET__BODY__NOT_SET) {
		if (!wire_has_unknown_body(&packet->base))
			return -EBADMSG;
		*ret_packet = packet;
		return GM_WIRE_E_UNKNOWN;
	}

	*ret_packet = packet;
	return 0;
}

/* ---- checking */

static bool wire_take_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret_value)
{
	*ret_value = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		uint8_t byte = *(*at)++;
		*ret_value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* Counts the items of a list of numbers off *left. Returns false if there are more. */
static bool wire_count_items(const uint8_t *at, const uint8_t *end, size_t *left)
{
	for (; at < end; at++) {
		if (*at & 0x80)
			continue;
		if (*left == 0)
			return false;
		--*left;
	}
	return true;
}

static bool wire_is_list_of_numbers(const ProtobufCFieldDescriptor *field)
{
	return field->label == PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_STRING &&
	       field->type != PROTOBUF_C_TYPE_BYTES;
}

/* Counts the fields of a message off *left. Returns false if there are more. Stops at bytes that
 * are no field: protobuf-c refuses them. */
static bool wire_count_fields(const ProtobufCMessageDescriptor *message, const uint8_t *at,
	const uint8_t *end, size_t *left)
{
	const ProtobufCFieldDescriptor *field;
	uint64_t tag, n;

	while (at < end && wire_take_varint(&at, end, &tag)) {
		if (*left == 0)
			return false;
		--*left;
		switch (tag & 7) {
		case 0:
			if (!wire_take_varint(&at, end, &n))
				return true;
			continue;
		case 1:
			n = 8;
			break;
		case 2:
			if (!wire_take_varint(&at, end, &n))
				return true;
			break;
		case 5:
			n = 4;
			break;
		default:
			return true;
		}
		if (n > (size_t)(end - at))
			return true;
		field = (tag & 7) == 2 && tag >> 3 <= UINT32_MAX
				? protobuf_c_message_descriptor_get_field(
					  message, (unsigned)(tag >> 3))
				: NULL;
		if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
			if (!wire_count_fields(field->descriptor, at, at + n, left))
				return false;
		} else if (field && wire_is_list_of_numbers(field)) {
			if (!wire_count_items(at, at + n, left))
				return false;
		}
		at += n;
	}
	return true;
}

int gm_wire_check_request(const void *bytes, size_t n)
{
	size_t left = GM_LIMIT_REQUEST_FIELDS;

	/* Each of them takes a byte at least. */
	if (n <= left)
		return 0;
	return wire_count_fields(
		       &gm__wire__packet__descriptor, bytes, (const uint8_t *)bytes + n, &left)
		       ? 0
		       : -E2BIG;
}

/* ---- packing */

static size_t wire_put_varint(uint8_t *to, uint64_t value)
{
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		to[n++] = (uint8_t)(value | 0x80);
	to[n++] = (uint8_t)value;
	return n;
}

/* A field of the envelope: its number is below 16, and a value of 0 is left out. */
static size_t wire_put_field(uint8_t *to, unsigned number, uint64_t value)
{
	if (value == 0)
		return 0;
	to[0] = (uint8_t)(number << 3);
	return 1 + wire_put_varint(to + 1, value);
}

/* The packet's body, if it is a known one and the packet has no unknown fields. Packets that our
 * own programs make are like that. */
static const ProtobufCMessage *wire_plain_body(const Gm__Wire__Packet *packet)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
		&gm__wire__packet__descriptor, (unsigned)packet->body_case);

	if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE || packet->base.n_unknown_fields > 0)
		return NULL;
	return *(const ProtobufCMessage *const *)((const char *)packet + field->offset);
}

/* The most that a field packs to, besides the text, bytes or message that it has: its number, and a
 * number or a length. */
#define WIRE_FIELD_BYTES (5 + 10)

/*
 * A bound on the size of a message: never less than protobuf_c_message_get_packed_size(), and much
 * quicker, because it does not look at numbers.
 */
static size_t wire_bound(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	size_t bound = descriptor->n_fields * WIRE_FIELD_BYTES;

	if (message->n_unknown_fields > 0)
		return protobuf_c_message_get_packed_size(message);
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const void *member = (const char *)message + field->offset;

		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			size_t n =
				*(const size_t *)((const char *)message + field->quantifier_offset);
			const ProtobufCMessage *const *list = *(void *const *)member;
			if (n > 0 && field->type != PROTOBUF_C_TYPE_MESSAGE)
				return protobuf_c_message_get_packed_size(message);
			for (size_t j = 0; j < n; j++)
				bound += WIRE_FIELD_BYTES + wire_bound(list[j]);
		} else if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
			return protobuf_c_message_get_packed_size(message);
		} else if (field->type == PROTOBUF_C_TYPE_STRING) {
			const char *text = *(const char *const *)member;
			bound += text ? strlen(text) : 0;
		} else if (field->type == PROTOBUF_C_TYPE_BYTES) {
			bound += ((const ProtobufCBinaryData *)member)->len;
		} else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
			const ProtobufCMessage *inner = *(const ProtobufCMessage *const *)member;
			bound += inner ? wire_bound(inner) : 0;
		}
	}
	return bound;
}

/* Packs a body that is sure to fit, behind its length. Returns how many bytes both are. */
static size_t wire_put_body(uint8_t *to, const ProtobufCMessage *body)
{
	uint8_t length[10];
	size_t n_body = protobuf_c_message_pack(body, to + 1);
	size_t n = wire_put_varint(length, n_body);

	if (n > 1)
		memmove(to + n, to + 1, n_body);
	memcpy(to, length, n);
	return n + n_body;
}

/*
 * protobuf-c would go through all the bodies that a packet could have, twice. That was a third of
 * the cost of a request in the daemon. So this function packs the envelope itself, and protobuf-c
 * packs only the body. It need not learn the body's size first if there is room in any case. The
 * bytes are the same.
 */
int gm_wire_pack(const Gm__Wire__Packet *packet, void *bytes, size_t room, size_t *ret_n)
{
	const ProtobufCMessage *body = wire_plain_body(packet);
	uint8_t head[6 * 11 + 10];
	uint8_t length[10];
	size_t n = 0;

	if (room > GM_LIMIT_PACKET_BYTES)
		room = GM_LIMIT_PACKET_BYTES;
	if (!body) {
		n = gm__wire__packet__get_packed_size(packet);
		if (n > room)
			return -E2BIG;
		*ret_n = gm__wire__packet__pack(packet, bytes);
		return 0;
	}

	n += wire_put_field(head + n, 1, packet->id);
	n += wire_put_field(head + n, 2, packet->sequence);
	n += wire_put_field(head + n, 3, packet->generation);
	n += wire_put_field(head + n, 4, packet->more ? 1 : 0);
	n += wire_put_field(head + n, 5, packet->fds);
	n += wire_put_field(head + n, 6, packet->fds_seen);
	n += wire_put_varint(head + n, (uint64_t)packet->body_case << 3 | 2); /* 2: with a length */
	if (n + sizeof(length) + wire_bound(body) > room) {
		size_t n_body = protobuf_c_message_get_packed_size(body);
		if (n_body > room || n + wire_put_varint(length, n_body) + n_body > room)
			return -E2BIG;
	}
	memcpy(bytes, head, n);
	*ret_n = n + wire_put_body((uint8_t *)bytes + n, body);
	return 0;
}
