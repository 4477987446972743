/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_WIRE_H
#define GM_WIRE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "proto/gpumem.pb-c.h"

/*
 * This folder is how processes speak to one another: packets with descriptors, and shared pages. It must never know what
 * a message is for.
 *
 * Here, packets become bytes, and bytes packets. Unpacking uses only the memory of an arena of
 * GM_BOUND_ARENA_BYTES, so a hostile packet cannot cost more than that.
 */

#define GM_WIRE_MAJOR 1
#define GM_WIRE_MINOR 4
/* From this minor on, a client never uses the id of a packet twice in a session. */
#define GM_WIRE_MINOR_UNIQUE_IDS 3

/*
 * The arena is address space that is mapped on first use and filled from its start, so only the
 * pages that packets touch cost memory. The next unpack gives the pages that a large packet touched
 * past the first GM_WIRE_ARENA_KEEP_BYTES back to the kernel, so an arena stays small for ever.
 * Only one thread may use it at a time.
 */
#define GM_WIRE_ARENA_KEEP_BYTES 65536
struct gm_wire_arena {
	uint8_t *base; /* NULL until the first use */
	size_t used;   /* by the packet unpacked last */
	size_t peak;   /* the most that any one packet used */
};
void gm_wire_arena_init(struct gm_wire_arena *arena);
void gm_wire_arena_deinit(struct gm_wire_arena *arena);

/* Checks a packet from a client before it is unpacked, which takes some 10 ns for each field.
 * Returns 0 or -E2BIG: it has more than GM_BOUND_REQUEST_FIELDS. */
int gm_wire_check_request(const void *bytes, size_t n);

/* A positive outcome of gm_wire_unpack(). */
#define GM_WIRE_E_UNKNOWN 1

/*
 * Unpacks a packet. *ret_packet is valid until the arena's next unpack or deinit; protobuf-c must
 * not free it. Enums and lengths in it are what the sender wrote: check them. Returns 0 or:
 *   GM_WIRE_E_UNKNOWN   This version does not know the packet's body: the sender's minor version is
 *                       newer. *ret_packet is set, but has only the envelope, and its body_case is
 *                       NOT_SET. A request can be answered with GPUMEM_E_UNSUPPORTED, an event
 *                       ignored.
 *   -EBADMSG            The bytes are not a Packet, or the packet has no body.
 *   -E2BIG              The packet needs more memory than the arena has.
 *   -ENOMEM             The arena could not be mapped.
 */
int gm_wire_unpack(
	struct gm_wire_arena *arena, const void *bytes, size_t n, Gm__Wire__Packet **ret_packet);

/* A packet around a body: Gm__Wire__Packet packet = GM_WIRE_PACKET(GROW, grow, &body). */
#define GM_WIRE_PACKET(NAME, name, body_ptr) \
	((Gm__Wire__Packet){ \
		.base = PROTOBUF_C_MESSAGE_INIT(&gm__wire__packet__descriptor), \
		.body_case = GM__WIRE__PACKET__BODY_##NAME, \
		.name = (body_ptr), \
	})

/* Packs a packet; *ret_n is the number of bytes written. Returns -E2BIG if the packet is longer
 * than GM_BOUND_PACKET_BYTES or than the room. */
int gm_wire_pack(const Gm__Wire__Packet *packet, void *bytes, size_t room, size_t *ret_n);

#endif
