/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RING_RING_OWNER_H
#define GM_CLIENT_RING_RING_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "gpumem/gpumem_ring_device.h"
#include "gpumem/status.h"

/* In struct gpumem_ring_control, the word sender says which process has that end of a ring. */

/* The word for this process, with one of GPUMEM_RING_PROCESS and so on. */
uint64_t gm_ring_owner(unsigned state);
/* Whether the process that wrote this word has ended. False if that cannot be known. */
bool gm_ring_owner_gone(uint64_t owner);
/* Whether the word is of this process. */
bool gm_ring_owner_here(uint64_t owner);
static inline unsigned gm_ring_owner_state(uint64_t owner)
{
	return owner & 0xff;
}
/* Takes the end of a ring that has this word. GPUMEM_E_BUSY: another process has it, or this one, unless kept is
 * set: then this process may keep it. */
gpumem_status gm_ring_owner_claim(uint64_t *word, unsigned state, bool kept);

#endif
