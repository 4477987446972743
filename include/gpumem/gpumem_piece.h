/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_PIECE_H
#define GPUMEM_PIECE_H

/*
 * Pieces: allocations of gpumem_alloc() that other processes open, without a copy. For programs that
 * must share what they have allocated; a program that knows before shares a buffer (gpumem_share()).
 *
 * What a program may rely on:
 *
 *   - Allocating and freeing cost what they cost otherwise: the first share of an allocation needs a
 *     message, or several if it is very large.
 *   - The audience is the trust domain. An opener maps whole chunks of memory, so it also sees what lies
 *     beside the allocation. Nobody outside of the trust domain can open a piece.
 *   - An allocation is the same piece each time that it is shared, and the pieces of one chunk have one
 *     token, so sharing often costs the daemon nothing.
 *   - Memory that a process has opened is kept until that process destroys the buffer, whatever becomes
 *     of the process that shared it. That one is charged while it has the memory, and after that its user.
 *   - After the allocation was freed, the heap may use its memory for another one, which openers then see.
 *     So every opener should have destroyed its buffer before.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an allocation lies in the memory that a token opens. Both parts are worth nothing by themselves. */
typedef struct gpumem_piece {
	gpumem_token token; /* a secret, as every token */
	uint64_t offset;
	uint64_t bytes; /* of the allocation, as asked for */
} gpumem_piece;

/*
 * Shares an allocation, which begins at ptr, with the trust domain. Nobody may free it meanwhile.
 *
 *   GPUMEM_E_INVALID       No allocation of gpumem_alloc() begins there.
 *   GPUMEM_E_LIMIT         The client, or its user, has too many shares.
 *   GPUMEM_E_DISCONNECTED  gpumemd was restarted and does not know this memory any more.
 */
GPUMEM_API gpumem_status gpumem_share_ptr(
	gpumem_session *session, const void *ptr, gpumem_piece *ret_piece);
/*
 * Maps the memory of a piece. The allocation begins piece->offset bytes behind gpumem_buffer_ptr().
 *
 *   GPUMEM_E_NOT_FOUND  The piece is not for this process, or its memory is gone.
 */
GPUMEM_API gpumem_status gpumem_open_piece(
	gpumem_session *session, const gpumem_piece *piece, gpumem_buffer **ret_buffer);

#ifdef __cplusplus
}
#endif

#endif
