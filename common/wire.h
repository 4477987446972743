/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_WIRE_H
#define GM_COMMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "proto/gpumem.pb-c.h"

/*
 * Packets to bytes and back. Unpacking takes its memory from an arena of GM_LIMIT_ARENA_BYTES and
 * nothing else: a hostile packet costs no more than that, and everything a packet needed is given
 * back by one reset.
 */

#define GM_WIRE_MAJOR 1
#define GM_WIRE_MINOR 1

/*
 * The arena is address space, mapped on first use and filled from its start: it costs memory only
 * for the pages that packets touched. What a large packet touched past the first
 * GM_WIRE_ARENA_KEEP_BYTES goes back to the kernel at the next unpack (or gm_wire_arena_trim()), so
 * one arena per loop or session stays small for ever. One thread at a time.
 */
#define GM_WIRE_ARENA_KEEP_BYTES 65536
struct gm_wire_arena {
	uint8_t *base; /* made on first use */
	size_t used;   /* by the packet unpacked last */
	size_t peak;   /* the most that any one packet used */
};
void gm_wire_arena_init(struct gm_wire_arena *arena);
void gm_wire_arena_deinit(struct gm_wire_arena *arena);
/* Forgets the packet unpacked last and gives back what it used past GM_WIRE_ARENA_KEEP_BYTES. */
void gm_wire_arena_trim(struct gm_wire_arena *arena);

/* A positive outcome of gm_wire_unpack(). */
#define GM_WIRE_E_UNKNOWN 1

/*
 * 0; GM_WIRE_E_UNKNOWN: a Packet whose body this version has no name for (its sender's minor is
 * newer): *ret_packet is set, with the envelope alone and body_case NOT_SET, so that a request can
 * be answered with GPUMEM_E_UNSUPPORTED and an event left alone; -EBADMSG: not a Packet, or one
 * without a body; -E2BIG: needs more than the arena holds; -ENOMEM: the arena itself could not be
 * made. *ret_packet lives until the arena's next unpack, trim or deinit, and is never freed by
 * protobuf-c's own means. Enums and lengths in it are what the sender wrote: check them.
 */
int gm_wire_unpack(
	struct gm_wire_arena *arena, const void *bytes, size_t n, Gm__Wire__Packet **ret_packet);

/* 0 and the number of bytes written; -E2BIG: longer than GM_LIMIT_PACKET_BYTES (or than the room).
 */
int gm_wire_pack(const Gm__Wire__Packet *packet, void *bytes, size_t room, size_t *ret_n);

#endif
