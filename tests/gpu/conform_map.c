/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: reserving, mapping, access, unmapping. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <unistd.h>

static void mapping_follows_the_rules(void)
{
	struct puppet p = conform_begin(true);
	uint64_t a = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	uint64_t b = OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1);
	uint64_t va = OK(&p, RESERVE, .a = 16 * MIB);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	GIVES(GM_CUDA_SUCCESS, &p, UNMAP, .a = va, .b = 2 * MIB); /* holds nothing: no error */
	OK(&p, MAP, .a = va, .b = 2 * MIB, .c = a);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, MAP, .a = va, .b = 4 * MIB, .c = b);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = va, .b = 2 * MIB, .c = 1);
	OK(&p, MAP, .a = va + 2 * MIB, .b = 4 * MIB, .c = b);
	OK(&p, ACCESS, .a = va, .b = 6 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 6 * MIB, .c = 9);
	conform_value("set over the border of two chunks",
		OK(&p, COUNT, .a = va, .b = 6 * MIB, .c = 9), 6 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 8 * MIB, .c = RW, .d = 0);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, UNRESERVE, .a = va, .b = 16 * MIB);
	OK(&p, MAP, .a = va + 8 * MIB, .b = 2 * MIB, .c = a); /* once more, elsewhere */
	OK(&p, ACCESS, .a = va + 8 * MIB, .b = 2 * MIB, .c = RW, .d = 0);
	conform_value("the same memory at both places",
		OK(&p, COUNT, .a = va + 8 * MIB, .b = 2 * MIB, .c = 9), 2 * MIB);
	OK(&p, UNMAP, .a = va, .b = 6 * MIB); /* two at once */
	OK(&p, UNMAP, .a = va + 8 * MIB, .b = 2 * MIB);
	OK(&p, UNRESERVE, .a = va, .b = 16 * MIB);
	puppet_stop(&p);
	conform_end("mapping, access and unmapping follow the rules");
}

static void a_mapped_chunk_can_be_moved(void)
{
	struct puppet p = conform_begin(true);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), again;
	uint64_t va = OK(&p, RESERVE, .a = 8 * MIB);

	OK(&p, MAP, .a = va, .b = 2 * MIB, .c = handle);
	OK(&p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 0x33);
	OK(&p, SYNC, .a = 0);
	OK(&p, RELEASE, .a = handle); /* the mapping keeps it */
	again = OK(&p, RETAIN, .a = va);
	OK(&p, UNMAP, .a = va, .b = 2 * MIB);
	OK(&p, MAP, .a = va + 4 * MIB, .b = 2 * MIB, .c = again);
	OK(&p, ACCESS, .a = va + 4 * MIB, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, RELEASE, .a = again);
	conform_value("the bytes moved along",
		OK(&p, COUNT, .a = va + 4 * MIB, .b = 2 * MIB, .c = 0x33), 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, RETAIN, .a = va);
	puppet_stop(&p);
	conform_end(
		"a chunk whose handle was released can be moved by retaining it from its address");
}

static void the_importer_chooses_its_access(void)
{
	struct puppet owner = conform_begin(false), user = conform_begin(true);
	int fd = conform_export(&owner, OK(&owner, CREATE, .a = 2 * MIB, .b = 0, .c = 1));
	uint64_t va = conform_place(&user, conform_import(&user, fd).value, 2 * MIB);

	OK(&user, ACCESS, .a = va, .b = 2 * MIB, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READ, .d = 0);
	OK(&user, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&user, SET, .a = va, .b = 2 * MIB, .c = 4);
	OK(&user, SYNC, .a = 0);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("the importer chooses its own access");
}

static void a_mapping_is_unmapped_as_a_whole(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = conform_place(&p, OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1), 4 * MIB);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNMAP, .a = va, .b = 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNMAP, .a = va + 2 * MIB, .b = 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNMAP, .a = va, .b = MIB);
	OK(&p, SET, .a = va, .b = 4 * MIB, .c = 6);
	conform_value(
		"all of it is there still", OK(&p, COUNT, .a = va, .b = 4 * MIB, .c = 6), 4 * MIB);
	OK(&p, UNMAP, .a = va, .b = 4 * MIB);
	OK(&p, UNRESERVE, .a = va, .b = 4 * MIB);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, UNMAP, .a = va, .b = 4 * MIB);
	puppet_stop(&p);
	conform_end("a mapping is unmapped as a whole or not at all");
}

static void a_mapping_lies_within_a_reservation_and_is_all_of_a_chunk(void)
{
	struct puppet p = conform_begin(true);
	uint64_t small = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	uint64_t large = OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1);
	uint64_t va = OK(&p, RESERVE, .a = 2 * MIB), wide = OK(&p, RESERVE, .a = 8 * MIB);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MAP, .a = va, .b = 4 * MIB, .c = large);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MAP, .a = wide + MIB, .b = 2 * MIB, .c = small);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &p, MAP, .a = wide, .b = MIB, .c = small);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &p, MAP, .a = wide, .b = 4 * MIB, .c = small);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &p, MAP, .a = wide, .b = 2 * MIB, .c = large,
		.d = 2 * MIB);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &p, MAP, .a = wide, .b = 2 * MIB, .c = large);
	OK(&p, UNRESERVE, .a = va, .b = 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MAP, .a = va, .b = 2 * MIB, .c = small);
	puppet_stop(&p);
	conform_end(
		"a mapping lies within one reservation, at its places, and from a chunk's start");
}

static void a_reservation_ends_as_it_was_made(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = OK(&p, RESERVE, .a = 8 * MIB);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNRESERVE, .a = va, .b = 4 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNRESERVE, .a = va + 4 * MIB, .b = 4 * MIB);
	OK(&p, UNRESERVE, .a = va, .b = 8 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, UNRESERVE, .a = va, .b = 8 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, RESERVE, .a = 2 * MIB + 1);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, RESERVE, .a = 4 * MIB, .b = 3 * MIB);
	va = OK(&p, RESERVE, .a = 4 * MIB, .b = 32 * MIB);
	conform_value("past the alignment asked for", va % (32 * MIB), 0);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, RESERVE, .a = 64 << 10);
	puppet_stop(&p);
	conform_end("a reservation is aligned as asked, and ends as it was made");
}

static void access_is_for_devices_that_there_are(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = conform_place(&p, OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1), 4 * MIB);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = 99);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 4 * MIB, .c = 77, .d = 0);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 4 * MIB, .c = 7);
	OK(&p, SYNC, .a = 0);
	OK(&p, UNMAP, .a = va, .b = 4 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = 0);
	puppet_stop(&p);
	conform_end("access is given to what is mapped, and to devices that there are");
}

static void access_does_not_outlast_a_mapping(void)
{
	struct puppet p = conform_begin(true);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	uint64_t va = conform_place(&p, handle, 2 * MIB);

	conform_value("the handle that it was mapped by", OK(&p, RETAIN, .a = va + MIB), handle);
	OK(&p, RELEASE, .a = handle);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 5);
	OK(&p, SYNC, .a = 0);
	OK(&p, UNMAP, .a = va, .b = 2 * MIB);
	OK(&p, MAP, .a = va, .b = 2 * MIB, .c = handle);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = va, .b = 2 * MIB, .c = 5);
	OK(&p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 5);
	puppet_stop(&p);
	conform_end("a new mapping at the same place begins without access");
}

void conform_map(void)
{
	mapping_follows_the_rules();
	a_mapped_chunk_can_be_moved();
	the_importer_chooses_its_access();
	a_mapping_is_unmapped_as_a_whole();
	a_mapping_lies_within_a_reservation_and_is_all_of_a_chunk();
	a_reservation_ends_as_it_was_made();
	access_is_for_devices_that_there_are();
	access_does_not_outlast_a_mapping();
}
