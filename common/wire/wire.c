/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Turns packets into bytes and back, with protobuf-c. By default protobuf-c would allocate on the
 * heap whatever a packet asks for: up to 60 times the length of a packet made for that. Here it
 * gets a bump allocator over an arena of GM_BOUND_ARENA_BYTES. Freeing a piece does nothing; the
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

_Static_assert(GM_WIRE_ARENA_KEEP_BYTES < GM_BOUND_ARENA_BYTES, "only a part of the arena is kept");

void gm_wire_arena_init(struct gm_wire_arena *arena)
{
	*arena = (struct gm_wire_arena){0};
}

void gm_wire_arena_deinit(struct gm_wire_arena *arena)
{
	if (arena->base)
		munmap(arena->base, GM_BOUND_ARENA_BYTES);
	*arena = (struct gm_wire_arena){0};
}

/* Forgets the packet unpacked last, and gives the pages it used past those kept back. */
static int wire_arena_reset(struct gm_wire_arena *arena)
{
	if (!arena->base) {
		void *base = mmap(NULL, GM_BOUND_ARENA_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			return -ENOMEM;
		arena->base = base;
	}

	/* If the kernel refuses, the arena only keeps more memory than it needs. */
	if (arena->used > GM_WIRE_ARENA_KEEP_BYTES)
		madvise(arena->base + GM_WIRE_ARENA_KEEP_BYTES,
			GM_BOUND_ARENA_BYTES - GM_WIRE_ARENA_KEEP_BYTES, MADV_DONTNEED);
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
	size_t room = GM_BOUND_ARENA_BYTES - arena->used;
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

	if (n > GM_BOUND_PACKET_BYTES)
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
	size_t left = GM_BOUND_REQUEST_FIELDS;

	/* Each of them takes a byte at least. */
	if (n <= left)
		return 0;
	return wire_count_fields(
		       &gm__wire__packet__descriptor, bytes, (const uint8_t *)bytes + n, &left)
		       ? 0
		       : -E2BIG;
}

/* ---- packing */

/* The most that a field packs to, besides the text, bytes or message that it has: its number, and a
 * number or a length. */
#define WIRE_FIELD_BYTES (5 + 10)

static uint8_t *wire_put_varint(uint8_t *to, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*to++ = (uint8_t)(value | 0x80);
	*to++ = (uint8_t)value;
	return to;
}

/* A value of 0 is left out. */
static uint8_t *wire_put_value(uint8_t *to, uint32_t number, uint64_t value)
{
	if (value == 0)
		return to;
	to = wire_put_varint(to, (uint64_t)number << 3);
	return wire_put_varint(to, value);
}

static uint8_t *wire_put_bytes(
	uint8_t *to, const uint8_t *end, uint32_t number, const void *bytes, size_t n)
{
	if (n == 0)
		return to;
	if (n > (size_t)(end - to) - WIRE_FIELD_BYTES)
		return NULL;
	to = wire_put_varint(to, (uint64_t)number << 3 | 2);
	to = wire_put_varint(to, n);
	memcpy(to, bytes, n);
	return to + n;
}

static uint8_t *wire_put_message(
	uint8_t *to, const uint8_t *end, uint32_t number, const ProtobufCMessage *message);

/* Puts a list of messages. */
static uint8_t *wire_put_list(uint8_t *to, const uint8_t *end,
	const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
	const void *member = (const char *)message + field->offset;
	const ProtobufCMessage *const *list = *(void *const *)member;
	size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);

	if (field->label != PROTOBUF_C_LABEL_REPEATED ||
		(n > 0 && field->type != PROTOBUF_C_TYPE_MESSAGE))
		return NULL;
	for (size_t i = 0; to && i < n; i++)
		to = wire_put_message(to, end, field->id, list[i]);
	return to;
}

/* Puts a field for which WIRE_FIELD_BYTES are left. */
static inline uint8_t *wire_put_field(uint8_t *to, const uint8_t *end,
	const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
	const void *member = (const char *)message + field->offset;
	const char *text;
	const ProtobufCBinaryData *bytes;
	const ProtobufCMessage *inner;

	if (field->label != PROTOBUF_C_LABEL_NONE)
		return wire_put_list(to, end, field, message);
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return NULL;
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
		return wire_put_value(to, field->id, *(const uint64_t *)member);
	case PROTOBUF_C_TYPE_UINT32:
		return wire_put_value(to, field->id, *(const uint32_t *)member);
	case PROTOBUF_C_TYPE_BOOL:
		return wire_put_value(to, field->id, *(const protobuf_c_boolean *)member != 0);
	case PROTOBUF_C_TYPE_ENUM:
		return wire_put_value(to, field->id, (uint64_t)(int64_t)(*(const int32_t *)member));
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)member;
		return text ? wire_put_bytes(to, end, field->id, text, strlen(text)) : to;
	case PROTOBUF_C_TYPE_BYTES:
		bytes = member;
		return wire_put_bytes(to, end, field->id, bytes->data, bytes->len);
	case PROTOBUF_C_TYPE_MESSAGE:
		inner = *(const ProtobufCMessage *const *)member;
		return inner ? wire_put_message(to, end, field->id, inner) : to;
	default:
		return NULL;
	}
}

/*
 * Puts a message behind its number and length, without a look at its size first. Returns NULL if a field of it is a list of
 * numbers, or of a rare type, or if there might be no room. Most lengths have one byte, otherwise the message is moved.
 */
static uint8_t *wire_put_message(
	uint8_t *to, const uint8_t *end, uint32_t number, const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	uint8_t length[10], *start, *at;

	if (end - to < 2 * WIRE_FIELD_BYTES || message->n_unknown_fields > 0)
		return NULL;
	end -= WIRE_FIELD_BYTES; /* for the number and the length */
	to = wire_put_varint(to, (uint64_t)number << 3 | 2);
	at = start = to + 1;
	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		if (end - at < WIRE_FIELD_BYTES)
			return NULL;
		at = wire_put_field(at, end, &descriptor->fields[i], message);
		if (!at)
			return NULL;
	}

	size_t n = (size_t)(at - start);
	if (n < 0x80) {
		*to = (uint8_t)n;
		return at;
	}
	size_t n_length = (size_t)(wire_put_varint(length, n) - length);
	memmove(to + n_length, start, n);
	memcpy(to, length, n_length);
	return to + n_length + n;
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

/* Puts a body of any kind. Returns NULL if there is no room for it. */
static uint8_t *wire_put_any_body(
	uint8_t *to, const uint8_t *end, uint32_t number, const ProtobufCMessage *body)
{
	uint8_t head[WIRE_FIELD_BYTES], *at;
	size_t n = protobuf_c_message_get_packed_size(body), room = (size_t)(end - to);

	at = wire_put_varint(head, (uint64_t)number << 3 | 2);
	at = wire_put_varint(at, n);
	size_t n_head = (size_t)(at - head);
	if (n > room || n_head > room - n)
		return NULL;
	memcpy(to, head, n_head);
	return to + n_head + protobuf_c_message_pack(body, to + n_head);
}

/*
 * protobuf-c would go through all the bodies that a packet could have, twice. That was a third of
 * the cost of a request in the daemon. So this function packs the envelope itself, and bodies of
 * plain fields as well; protobuf-c packs the others. The bytes are the same.
 */
int gm_wire_pack(const Gm__Wire__Packet *packet, void *bytes, size_t room, size_t *ret_n)
{
	const ProtobufCMessage *body = wire_plain_body(packet);
	uint8_t head[6 * 11], *at = head, *to = bytes;

	if (room > GM_BOUND_PACKET_BYTES)
		room = GM_BOUND_PACKET_BYTES;
	if (!body) {
		if (gm__wire__packet__get_packed_size(packet) > room)
			return -E2BIG;
		*ret_n = gm__wire__packet__pack(packet, bytes);
		return 0;
	}

	at = wire_put_value(at, 1, packet->id);
	at = wire_put_value(at, 2, packet->sequence);
	at = wire_put_value(at, 3, packet->generation);
	at = wire_put_value(at, 4, packet->more ? 1 : 0);
	at = wire_put_value(at, 5, packet->fds);
	at = wire_put_value(at, 6, packet->fds_seen);
	size_t n = (size_t)(at - head);
	if (n > room)
		return -E2BIG;
	at = wire_put_message(to + n, to + room, (uint32_t)packet->body_case, body);
	if (!at)
		at = wire_put_any_body(to + n, to + room, (uint32_t)packet->body_case, body);
	if (!at)
		return -E2BIG;
	memcpy(to, head, n);
	*ret_n = (size_t)(at - to);
	return 0;
}
