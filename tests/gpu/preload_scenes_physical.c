/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: physical memory that the program maps itself. */
#include "tests/gpu/preload_scenes.h"

#include <unistd.h>

static gm_cu_prop physical_prop(void)
{
	return (gm_cu_prop){.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static void physical_map(gm_cu_ptr ptr, size_t bytes, gm_cu_mem handle)
{
	const gm_cu_access access = {
		{GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}, GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CU(cu.cuMemMap(ptr, bytes, 0, handle, 0));
	CU(cu.cuMemSetAccess(ptr, bytes, &access, 1));
}

/* A size that is no power of two, so the daemon shows that it gave exactly that. */
void scene_physical(void)
{
	gm_cu_prop prop = physical_prop(), found;
	gm_cu_mem a, b, again;
	gm_cu_ptr ptr;
	int fd = -1;

	use_gpu();
	CU(cu.cuMemCreate(&a, ACTOR_BYTES, &prop, 0));
	prop.requested_handle_types = 0;
	CU(cu.cuMemCreate(&b, ACTOR_PIECE, &prop, 0));
	CU(cu.cuMemAddressReserve(&ptr, ACTOR_BYTES + ACTOR_PIECE, 0, 0, 0));
	physical_map(ptr, ACTOR_BYTES, a);
	physical_map(ptr + ACTOR_BYTES, ACTOR_PIECE, b);
	use(ptr, ACTOR_BYTES, 0x31);
	use(ptr + ACTOR_BYTES, ACTOR_PIECE, 0x32);
	show('h');

	/* The program is told what it asked for, and can export what it wanted to. */
	CU(cu.cuMemGetAllocationPropertiesFromHandle(&found, a));
	GM_REQUIRE_EQ(found.requested_handle_types, 1);
	GM_REQUIRE(found.type == prop.type && found.location.id == 0);
	CU(cu.cuMemGetAllocationPropertiesFromHandle(&found, b));
	GM_REQUIRE_EQ(found.requested_handle_types, 0);
	CU(cu.cuMemExportToShareableHandle(&fd, a, 1, 0));
	GM_REQUIRE(cu.cuMemExportToShareableHandle(&fd, b, 1, 0) != GM_CUDA_SUCCESS);
	CU(cu.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
	close(fd);
	CU(cu.cuMemRelease(again));

	/* It is there until the last handle and the last mapping are gone. */
	CU(cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + 4096)));
	CU(cu.cuMemRelease(a));
	CU(cu.cuMemRelease(again));
	CU(cu.cuMemRelease(b));
	use(ptr, ACTOR_BYTES, 0x33);
	CU(cu.cuMemRetainAllocationHandle(&b, (void *)(uintptr_t)(ptr + ACTOR_BYTES)));
	/* What the driver refuses changes nothing. */
	GM_REQUIRE_EQ(cu.cuMemUnmap(ptr, ACTOR_BYTES / 2), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE(cu.cuMemMap(ptr, ACTOR_PIECE, 0, b, 0) != GM_CUDA_SUCCESS);
	use(ptr, ACTOR_BYTES, 0x34);
	show('m');
	CU(cu.cuMemUnmap(ptr, ACTOR_BYTES + ACTOR_PIECE));
	show('b');
	CU(cu.cuMemRelease(b));
	CU(cu.cuMemAddressFree(ptr, ACTOR_BYTES + ACTOR_PIECE));
	show('n');
}

/* The daemon restarts while the program maps its memory. */
void scene_physical_restart(void)
{
	gm_cu_prop prop = physical_prop();
	gm_cu_mem handle, other;
	gm_cu_ptr ptr;
	int fd = -1;

	use_gpu();
	CU(cu.cuMemCreate(&handle, ACTOR_BYTES, &prop, 0));
	CU(cu.cuMemAddressReserve(&ptr, ACTOR_BYTES, 0, 0, 0));
	physical_map(ptr, ACTOR_BYTES, handle);
	use(ptr, ACTOR_BYTES, 0x41);
	show('h');
	use(ptr, ACTOR_BYTES, 0x42);
	CU(cu.cuMemExportToShareableHandle(&fd, handle, 1, 0));
	close(fd);
	CU(cu.cuMemCreate(&other, ACTOR_PIECE, &prop, 0));
	show('m');
	CU(cu.cuMemUnmap(ptr, ACTOR_BYTES));
	CU(cu.cuMemRelease(handle));
	CU(cu.cuMemRelease(other));
	CU(cu.cuMemAddressFree(ptr, ACTOR_BYTES));
	show('n');
}

/* What cannot be made gets the driver's errors; what does not fit is out of memory. */
void scene_physical_wrong(void)
{
	gm_cu_prop prop = physical_prop();
	gm_cu_mem handles[64], none;
	gm_cu_result result = GM_CUDA_SUCCESS;
	size_t n = 0;

	use_gpu();
	GM_REQUIRE_EQ(cu.cuMemCreate(&none, 0, &prop, 0), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE_EQ(cu.cuMemCreate(&none, 4096, &prop, 0), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE_EQ(
		cu.cuMemCreate(&none, (size_t)1 << 63, &prop, 0), GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE_EQ(
		cu.cuMemCreate(&none, (size_t)1 << 46, &prop, 0), GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE(cu.cuMemCreate(&none, ACTOR_PIECE, &prop, 1) != GM_CUDA_SUCCESS);
	prop.location.id = 1000;
	GM_REQUIRE(cu.cuMemCreate(&none, ACTOR_PIECE, &prop, 0) != GM_CUDA_SUCCESS);
	prop.location.id = 0;

	while (n < 64 &&
		(result = cu.cuMemCreate(&handles[n], ACTOR_BYTES, &prop, 0)) == GM_CUDA_SUCCESS)
		n++;
	GM_REQUIRE(n > 0);
	GM_REQUIRE_EQ(result, GM_CUDA_ERROR_OUT_OF_MEMORY);
	show('h');
	CU(cu.cuMemRelease(handles[0]));
	CU(cu.cuMemCreate(&handles[0], ACTOR_BYTES, &prop, 0));
	while (n)
		CU(cu.cuMemRelease(handles[--n]));
}
