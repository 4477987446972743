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
#define GM_WIRE_MINOR 0

struct gm_arena {
	uint8_t *base; /* made on first use */
	size_t used;
	size_t peak;
};
void gm_arena_init(struct gm_arena *arena);
void gm_arena_deinit(struct gm_arena *arena);

/*
 * 0; -EBADMSG: not a Packet, or one without a body; -E2BIG: needs more than the arena holds;
 * -ENOMEM: the arena itself could not be made. *ret_packet lives until the arena's next unpack.
 */
int gm_wire_unpack(
	struct gm_arena *arena, const void *bytes, size_t n, Gm__Wire__Packet **ret_packet);

/* 0 and the number of bytes written; -E2BIG: longer than GM_LIMIT_PACKET_BYTES (or than the room).
 */
int gm_wire_pack(const Gm__Wire__Packet *packet, void *bytes, size_t room, size_t *ret_n);

#endif
