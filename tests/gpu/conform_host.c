/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that a device reaches: the driver's own chunks, allocations, the program's own,
 * registered. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <unistd.h>

static void host_chunks_serve_cpu_and_gpu(void)
{
	struct puppet owner = conform_begin(false), user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = 4 * MIB, .b = HOST, .c = 1);
	int fd = conform_export(&owner, handle);
	uint64_t imported = conform_import(&user, fd).value;
	uint64_t va = OK(&user, RESERVE, .a = 8 * MIB);
	uint64_t device = OK(&user, CREATE, .a = 4 * MIB, .b = 0, .c = 1);

	close(fd);
	OK(&user, MAP, .a = va, .b = 4 * MIB, .c = imported);
	OK(&user, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = 0);
	OK(&user, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = HOST);
	OK(&user, SET, .a = va, .b = 4 * MIB, .c = 0x44);
	OK(&user, SYNC, .a = 0);
	conform_value("what the GPU wrote, read by the CPU",
		OK(&user, CPU_COUNT, .a = va, .b = 4 * MIB, .c = 0x44), 4 * MIB);
	OK(&user, MAP, .a = va + 4 * MIB, .b = 4 * MIB, .c = device);
	OK(&user, ACCESS, .a = va + 4 * MIB, .b = 4 * MIB, .c = RW, .d = 0);
	/* One set may cross the border. One copy may not: the driver takes the whole for host
	 * memory, and the process dies. */
	OK(&user, SET, .a = va, .b = 8 * MIB, .c = 0x45);
	conform_value(
		"the host's half", OK(&user, COUNT, .a = va, .b = 4 * MIB, .c = 0x45), 4 * MIB);
	conform_value("the device's half",
		OK(&user, COUNT, .a = va + 4 * MIB, .b = 4 * MIB, .c = 0x45), 4 * MIB);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &user, ACCESS, .a = va + 4 * MIB, .b = 4 * MIB, .c = RW,
		.d = HOST);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end(
		"host chunks serve CPU and GPU, side by side with device chunks; the CPU cannot have those");
}

/* Two host chunks of 2 MiB, mapped side by side. */
static uint64_t two_host_chunks(struct puppet *p)
{
	uint64_t va = OK(p, RESERVE, .a = 4 * MIB);

	for (int i = 0; i < 2; i++) {
		uint64_t handle = OK(p, CREATE, .a = 2 * MIB, .b = HOST, .c = 1);
		OK(p, MAP, .a = va + 2 * i * MIB, .b = 2 * MIB, .c = handle);
	}
	OK(p, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = 0);
	OK(p, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = HOST);
	return va;
}

static void a_set_stays_within_one_host_chunk(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = two_host_chunks(&p), plain = OK(&p, ALLOC, .a = 4 * MIB);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = va, .b = 4 * MIB, .c = 1);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = va + MIB, .b = 2 * MIB, .c = 1);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 2);
	OK(&p, SET, .a = va + 2 * MIB, .b = 2 * MIB, .c = 2);
	conform_value("set one by one", OK(&p, COUNT, .a = va, .b = 4 * MIB, .c = 2), 4 * MIB);
	OK(&p, SET, .a = plain, .b = 4 * MIB, .c = 3);
	OK(&p, COPY, .a = va, .b = plain, .c = 4 * MIB);
	OK(&p, SYNC, .a = 0);
	conform_value("copied over the border", OK(&p, CPU_COUNT, .a = va, .b = 4 * MIB, .c = 3),
		4 * MIB);
	puppet_stop(&p);
	conform_end("a set across two host chunks is refused; a copy is done");
}

static void a_copy_stays_within_one_registration(void)
{
	struct puppet p = conform_begin(true);
	uint64_t host = OK(&p, PAGES, .a = 4 * MIB), device = OK(&p, ALLOC, .a = 4 * MIB);

	OK(&p, REGISTER, .a = host, .b = 2 * MIB);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, COPY, .a = device, .b = host, .c = 4 * MIB);
	OK(&p, REGISTER, .a = host + 2 * MIB, .b = 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, COPY, .a = device, .b = host, .c = 4 * MIB);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, COPY, .a = host, .b = device, .c = 4 * MIB);
	OK(&p, SET, .a = device, .b = 4 * MIB, .c = 8);
	OK(&p, COPY, .a = host, .b = device, .c = 2 * MIB);
	OK(&p, COPY, .a = host + 2 * MIB, .b = device, .c = 2 * MIB);
	OK(&p, SYNC, .a = 0);
	conform_value(
		"copied one by one", OK(&p, CPU_COUNT, .a = host, .b = 4 * MIB, .c = 8), 4 * MIB);
	puppet_stop(&p);
	conform_end("a copy across two registrations is refused");
}

static void host_memory_is_registered_once(void)
{
	struct puppet p = conform_begin(true);
	uint64_t host = OK(&p, PAGES, .a = 4 * MIB);

	GIVES(GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, &p, UNREGISTER, .a = host);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, REGISTER, .a = host, .b = 0);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, REGISTER, .a = 0, .b = 2 * MIB);
	OK(&p, REGISTER, .a = host, .b = 2 * MIB);
	GIVES(GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, &p, REGISTER, .a = host, .b = 2 * MIB);
	FAILS(GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, &p, REGISTER, .a = host + MIB,
		.b = 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, UNREGISTER, .a = host + MIB);
	OK(&p, UNREGISTER, .a = host);
	GIVES(GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, &p, UNREGISTER, .a = host);
	OK(&p, REGISTER, .a = host, .b = 4 * MIB);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, HOST_FREE, .a = host);
	puppet_stop(&p);
	conform_end("host memory is registered once, and let go by its own address");
}

static void what_is_not_there_cannot_be_registered(void)
{
	struct puppet p = conform_begin(true);
	uint64_t nowhere = OK(&p, RESERVE, .a = 4 * MIB);

	OK(&p, UNRESERVE, .a = nowhere, .b = 4 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, REGISTER, .a = nowhere, .b = 4 * MIB);
	puppet_stop(&p);
	conform_end("addresses with nothing behind them cannot be registered");
}

static void host_allocations_are_freed_once(void)
{
	struct puppet p = conform_begin(true);
	uint64_t host = OK(&p, HOST_ALLOC, .a = 2 * MIB), other = OK(&p, HOST_ALLOC, .a = 2 * MIB);
	uint64_t pages = OK(&p, PAGES, .a = 2 * MIB);

	BELIEVED(GM_CUDA_SUCCESS, &p, SET, .a = host, .b = 2 * MIB, .c = 4);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, REGISTER, .a = host, .b = 2 * MIB);
	OK(&p, SYNC, .a = 0);
	OK(&p, HOST_FREE, .a = host);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, HOST_FREE, .a = host);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, HOST_FREE, .a = other + MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, UNREGISTER, .a = other);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = pages, .b = 2 * MIB, .c = 4);
	puppet_stop(&p);
	conform_end("host memory of the driver's is freed once, by its own address");
}

/* Where a platform cannot be told to move pages, it refuses the device. */
static void managed_memory_serves_cpu_and_gpu(void)
{
	struct puppet p = conform_begin(true);
	uint64_t ptr = OK(&p, MANAGED, .a = 4 * MIB, .b = GM_CU_MEM_ATTACH_GLOBAL);

	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, MANAGED, .a = 2 * MIB, .b = 0);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, MANAGED, .a = 0, .b = GM_CU_MEM_ATTACH_GLOBAL);
	BELIEVED(GM_CUDA_ERROR_OUT_OF_MEMORY, &p, MANAGED, .a = UINT64_MAX,
		.b = GM_CU_MEM_ATTACH_GLOBAL);
	OK(&p, SET, .a = ptr, .b = 4 * MIB, .c = 0x51);
	OK(&p, SYNC, .a = 0);
	conform_value("what the GPU wrote, read by the CPU",
		OK(&p, CPU_COUNT, .a = ptr, .b = 4 * MIB, .c = 0x51), 4 * MIB);
	BELIEVED(GM_CUDA_SUCCESS, &p, PREFETCH, .a = ptr, .b = 4 * MIB, .c = 0, .d = 0);
	BELIEVED(GM_CUDA_SUCCESS, &p, ADVISE, .a = ptr, .b = MIB,
		.c = GM_CU_MEM_ADVISE_SET_READ_MOSTLY, .d = 0);
	BELIEVED(GM_CUDA_SUCCESS, &p, ADVISE, .a = ptr, .b = MIB,
		.c = GM_CU_MEM_ADVISE_SET_PREFERRED_LOCATION, .d = (uint64_t)-1);
	OK(&p, SYNC, .a = 0);
	conform_value("what was moved, read by the CPU",
		OK(&p, CPU_COUNT, .a = ptr, .b = 4 * MIB, .c = 0x51), 4 * MIB);
	BELIEVED(GM_CUDA_SUCCESS, &p, PREFETCH, .a = ptr, .b = 4 * MIB, .c = (uint64_t)-1, .d = 0);
	OK(&p, SYNC, .a = 0);
	OK(&p, FREE, .a = ptr);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, FREE, .a = ptr);
	puppet_stop(&p);
	conform_end("managed memory has the same bytes for the CPU and the GPU, and is freed once");
}

void conform_host(void)
{
	host_chunks_serve_cpu_and_gpu();
	a_set_stays_within_one_host_chunk();
	a_copy_stays_within_one_registration();
	host_memory_is_registered_once();
	what_is_not_there_cannot_be_registered();
	host_allocations_are_freed_once();
	managed_memory_serves_cpu_and_gpu();
}
