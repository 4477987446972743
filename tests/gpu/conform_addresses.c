/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where memory lies, and how an address that memory has had is kept from other memory
 * (daemon/ipc_ranges.c rests on it). See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <string.h>

static bool apart(uint64_t a, uint64_t b, uint64_t bytes)
{
	return a + bytes <= b || b + bytes <= a;
}

/* Memory of some size that was freed, its place reserved. */
static uint64_t retire(struct puppet *p, uint64_t va, uint64_t bytes)
{
	uint64_t place;

	OK(p, FREE, .a = va);
	place = OK(p, RESERVE, .a = bytes, .c = va);
	conform_value("reserved where it was", place, va);
	return place;
}

static void a_freed_place_can_be_kept_from_other_memory(void)
{
	static const uint64_t sizes[] = {2 * MIB, 10 * MIB, FULL};
	struct puppet p = conform_begin(true);

	for (unsigned i = 0; i < 3; i++) {
		uint64_t bytes = sizes[i], before = OK(&p, ALLOC, .a = bytes), other;

		for (unsigned round = 0; round < 20; round++) {
			retire(&p, before, bytes);
			other = OK(&p, ALLOC, .a = bytes);
			conform_true("other memory lies elsewhere", apart(before, other, bytes));
			OK(&p, UNRESERVE, .a = before, .b = bytes);
			conform_value("given back, it is the next place of that size",
				OK(&p, ALLOC, .a = bytes), before);
			OK(&p, FREE, .a = other);
		}
		OK(&p, FREE, .a = before);
	}
	puppet_stop(&p);
	conform_end("the place of freed memory is reserved as it was, keeps other memory away, and "
		    "is used again when it is given back");
}

#define SIDE_BY_SIDE 8

static void places_side_by_side_are_reserved_as_one(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va[SIDE_BY_SIDE], first = 0, other;

	for (unsigned i = 0; i < SIDE_BY_SIDE; i++)
		va[i] = OK(&p, ALLOC, .a = 2 * MIB);
	for (unsigned i = 0; i < SIDE_BY_SIDE && !first; i++)
		for (unsigned j = 0; j < SIDE_BY_SIDE && !first; j++)
			if (va[j] == va[i] + 2 * MIB)
				first = va[i];
	conform_true("two of eight lie side by side", first != 0);
	if (first) {
		retire(&p, first, 2 * MIB);
		retire(&p, first + 2 * MIB, 2 * MIB);
		OK(&p, UNRESERVE, .a = first, .b = 2 * MIB);
		OK(&p, UNRESERVE, .a = first + 2 * MIB, .b = 2 * MIB);
		conform_value("one reservation over both",
			OK(&p, RESERVE, .a = 4 * MIB, .c = first), first);
		for (unsigned i = 0; i < SIDE_BY_SIDE; i++) {
			other = OK(&p, ALLOC, .a = 2 * MIB);
			conform_true("other memory lies elsewhere",
				other + 2 * MIB <= first || other >= first + 4 * MIB);
		}
		OK(&p, UNRESERVE, .a = first, .b = 4 * MIB);
	}
	puppet_stop(&p);
	conform_end("two places of freed memory that lie side by side are reserved as one");
}

static void a_reservation_outlives_the_context(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = OK(&p, ALLOC, .a = FULL);

	retire(&p, va, FULL);
	OK(&p, CONTEXT_END, .a = 0);
	OK(&p, CONTEXT, .a = 0);
	conform_true("other memory lies elsewhere", apart(va, OK(&p, ALLOC, .a = FULL), FULL));
	OK(&p, UNRESERVE, .a = va, .b = FULL);
	puppet_stop(&p);
	conform_end("a reserved place outlives the context that had memory there");
}

static void an_old_handle_of_a_reserved_place_opens_nothing(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t va = OK(&owner, ALLOC, .a = FULL), other;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = va).blob, sizeof open.blob);
	retire(&owner, va, FULL);
	conform_fails("IPC_OPEN of a reserved place", puppet_do(&user, &open, -1, NULL).result,
		GM_CUDA_ERROR_INVALID_VALUE);
	other = OK(&owner, ALLOC, .a = FULL);
	OK(&owner, IPC_GET, .a = other);
	conform_fails("IPC_OPEN when other memory is shared elsewhere",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_INVALID_VALUE);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("an old IPC handle opens nothing while its place is reserved");
}

void conform_addresses(void)
{
	a_freed_place_can_be_kept_from_other_memory();
	places_side_by_side_are_reserved_as_one();
	a_reservation_outlives_the_context();
	an_old_handle_of_a_reserved_place_opens_nothing();
}
