/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors opened in advance. The loop's thread puts and takes them, and a device's thread drops
 * those of a chunk that it destroys. So a slot is one number, and whoever swaps it out owns the copy.
 */
#include "daemon/backend/backend_copies.h"

#include "common/cleanup.h"

static _Atomic uint64_t *copies_slot(struct gm_backend_copies *copies, int fd)
{
	return &copies->slots[(unsigned)fd % GM_BACKEND_COPIES];
}

/* The upper half names the chunk, the lower half the copy. 0 is for an empty slot. */
static uint64_t backend_copies_pack(int fd, int copy)
{
	return ((uint64_t)fd + 1) << 32 | (uint32_t)copy;
}

static void backend_copies_close(uint64_t packed)
{
	if (packed)
		gm_close((int)(uint32_t)packed);
}

void gm_backend_copies_put(struct gm_backend_copies *copies, int fd, int copy)
{
	backend_copies_close(
		atomic_exchange(copies_slot(copies, fd), backend_copies_pack(fd, copy)));
}

int gm_backend_copies_take(struct gm_backend_copies *copies, int fd)
{
	_Atomic uint64_t *slot = copies_slot(copies, fd);
	uint64_t packed = atomic_load(slot);
	if (packed >> 32 != (uint64_t)fd + 1 || !atomic_compare_exchange_strong(slot, &packed, 0))
		return -1;
	return (int)(uint32_t)packed;
}

void gm_backend_copies_drop(struct gm_backend_copies *copies, int fd)
{
	int copy = gm_backend_copies_take(copies, fd);
	if (copy >= 0)
		gm_close(copy);
}

void gm_backend_copies_clear(struct gm_backend_copies *copies)
{
	for (unsigned i = 0; i < GM_BACKEND_COPIES; i++)
		backend_copies_close(atomic_exchange(&copies->slots[i], 0));
}
