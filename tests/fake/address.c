/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's addresses: where it puts memory, and ranges that a program reserves. As in a
 * real one they are the process's, whichever context or device asks, and the driver keeps those it
 * once used: what was freed is the first place that is given out again for its size, and the only
 * one for which a program's wish is heard. Nothing else in the process is ever put there.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <utlist.h>

/* How much is taken from the system at a time. */
#define AREA ((size_t)1 << 30)

/* Where memory was, latest first. Mapped without access, like what is still to be used. Lock. */
struct place {
	uintptr_t va;
	size_t size;
	struct place *prev, *next;
};
static struct place *vacant;
static uintptr_t area, area_end; /* what was never used */

static bool whole(size_t n)
{
	return n && n % FAKE_GRANULARITY == 0;
}

/* Addresses of the system's, without memory. NULL: none. */
static char *take_range(size_t size, size_t alignment)
{
	size_t room;
	char *base, *at;

	if (__builtin_add_overflow(size, alignment, &room))
		return NULL;
	base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	at = (char *)(((uintptr_t)base + alignment - 1) & ~(alignment - 1));
	if (at > base)
		munmap(base, (size_t)(at - base));
	if (base + room > at + size)
		munmap(at + size, (size_t)(base + room - (at + size)));
	return at;
}

/* ---- where the driver puts memory */

uintptr_t fake_place_take(size_t size)
{
	struct place *place;
	uintptr_t va;

	DL_FOREACH (vacant, place)
		if (place->size == size)
			break;
	if (place) {
		va = place->va;
		DL_DELETE(vacant, place);
		free(place);
		return va;
	}
	if (area_end - area < size) {
		size_t taken = size > AREA ? size : AREA;
		area = (uintptr_t)take_range(taken, FAKE_GRANULARITY);
		area_end = area ? area + taken : 0;
		if (!area)
			return 0;
	}
	va = area;
	area += size;
	return va;
}

void fake_place_leave(uintptr_t va, size_t size)
{
	struct place *place = calloc(1, sizeof *place);

	if (!place)
		return; /* never used again, then */
	place->va = va;
	place->size = size;
	DL_PREPEND(vacant, place);
}

static struct place *vacant_at(uintptr_t va)
{
	struct place *place;

	DL_FOREACH (vacant, place)
		if (place->va == va)
			break;
	return place;
}

/* One place where memory was, or several side by side, and no part of one. */
static bool take_again(uintptr_t va, size_t size)
{
	uintptr_t at = va;
	struct place *place;

	while (at < va + size && (place = vacant_at(at)))
		at += place->size;
	if (at != va + size)
		return false;
	for (at = va; at < va + size;) {
		place = vacant_at(at);
		at += place->size;
		DL_DELETE(vacant, place);
		free(place);
	}
	return true;
}

/* ---- what programs reserve */

bool fake_reserved(uintptr_t va, size_t size)
{
	struct fake_reservation *reservation;

	DL_FOREACH (fake.reservations, reservation)
		if (va >= reservation->va && va + size <= reservation->va + reservation->size)
			return true;
	return false;
}

FAKE_API gm_cu_result cuMemAddressReserve(
	gm_cu_ptr *ptr, size_t size, size_t alignment, gm_cu_ptr hint, unsigned long long flags);
FAKE_API gm_cu_result cuMemAddressReserve(
	gm_cu_ptr *ptr, size_t size, size_t alignment, gm_cu_ptr hint, unsigned long long flags)
{
	struct fake_reservation *reservation;

	FAKE_ENTER("cuMemAddressReserve");
	if (!ptr || flags || !whole(size) || (alignment & (alignment - 1)))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (alignment < FAKE_GRANULARITY)
		alignment = FAKE_GRANULARITY;
	reservation = calloc(1, sizeof *reservation);
	if (!reservation)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	reservation->size = size;
	pthread_mutex_lock(&fake.lock);
	reservation->again = hint && hint % alignment == 0 && hint + size > hint &&
			     take_again((uintptr_t)hint, size);
	reservation->va =
		reservation->again ? (uintptr_t)hint : (uintptr_t)take_range(size, alignment);
	if (reservation->va)
		DL_APPEND(fake.reservations, reservation);
	pthread_mutex_unlock(&fake.lock);
	if (!reservation->va) {
		free(reservation);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = (gm_cu_ptr)reservation->va;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuMemAddressFree(gm_cu_ptr ptr, size_t size);
FAKE_API gm_cu_result cuMemAddressFree(gm_cu_ptr ptr, size_t size)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_reservation *reservation;
	struct fake_map *map;

	FAKE_ENTER("cuMemAddressFree");
	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (fake.reservations, reservation)
		if (reservation->va == ptr && reservation->size == size)
			break;
	if (reservation) {
		result = GM_CUDA_SUCCESS;
		DL_FOREACH (fake.maps, map)
			if (fake_map_overlaps(map, (uintptr_t)ptr, size))
				result = GM_CUDA_ERROR_INVALID_VALUE;
	}
	if (!result) {
		if (reservation->again)
			fake_place_leave((uintptr_t)ptr, size);
		else
			munmap((void *)(uintptr_t)ptr, size);
		DL_DELETE(fake.reservations, reservation);
		free(reservation);
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}
