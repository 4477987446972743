/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See preload_actor.h: calls may fail (tests/integration/check_fault_preload.c). The program goes on
 * without what it did not get. It prints each call with its result, and ends with status 98 at a wrong
 * content, or at an error that a program does not expect of the call.
 */
#include "tests/gpu/preload_scenes.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILING_MIB  ((size_t)1 << 20)
#define FAILING_MOST 16

static __attribute__((noreturn, format(printf, 1, 2))) void failing_wrong(const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_exit(98);
}

/* Returns whether a call succeeded. */
static bool failing_went(gm_cu_result result, const char *call)
{
	printf("%.*s: %d\n", (int)strcspn(call, "("), call, (int)result);
	if (result != GM_CUDA_SUCCESS && result != GM_CUDA_ERROR_OUT_OF_MEMORY &&
		result != GM_CUDA_ERROR_OPERATING_SYSTEM &&
		result != GM_CUDA_ERROR_SYSTEM_NOT_READY && result != GM_CUDA_ERROR_NOT_SUPPORTED)
		failing_wrong("%s: result %d", call, (int)result);
	return result == GM_CUDA_SUCCESS;
}
#define WENT(call) failing_went(cu.call, #call)

/* ---- contents: of each piece of memory, its last bytes */

static struct failing_piece {
	gm_cu_ptr ptr; /* 0: it was not had */
	size_t bytes;
	bool filled;
} failing_pieces[FAILING_MOST];
static size_t failing_n;

static size_t failing_part(const struct failing_piece *piece)
{
	return piece->bytes < FAILING_MIB ? piece->bytes : FAILING_MIB;
}

/* Waits for a stream. A call that fails is made again. */
static bool failing_await(gm_cu_stream stream)
{
	return WENT(cuStreamSynchronize(stream)) || WENT(cuStreamSynchronize(stream));
}

/* Takes note of a piece, and fills it. */
static void failing_add(gm_cu_ptr ptr, size_t bytes)
{
	GM_REQUIRE(failing_n < FAILING_MOST);
	struct failing_piece *piece = &failing_pieces[failing_n++];
	size_t part = bytes < FAILING_MIB ? bytes : FAILING_MIB;

	*piece = (struct failing_piece){.ptr = ptr, .bytes = bytes};
	piece->filled = WENT(
		cuMemsetD8Async(ptr + bytes - part, (unsigned char)(0x40 + failing_n), part, NULL));
}

/* Looks at all of them. */
static void failing_look(void)
{
	static unsigned char copy[FAILING_MIB];

	for (size_t i = 0; i < failing_n; i++) {
		const struct failing_piece *piece = &failing_pieces[i];
		size_t part = failing_part(piece);
		gm_cu_ptr from = piece->ptr + piece->bytes - part;
		if (!piece->filled ||
			!WENT(cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, from, part, NULL)) ||
			!WENT(cuStreamSynchronize(NULL)))
			continue;
		for (size_t j = 0; j < part; j++)
			if (copy[j] != 0x41 + i)
				failing_wrong("piece %zu of %zu bytes has %#x at %zu", i,
					piece->bytes, copy[j], j);
	}
}

/* ---- what all scenes begin and end with */

static bool failing_begin(void)
{
	gm_cu_ctx ctx;

	alarm(50);
	return WENT(cuInit(0)) && WENT(cuDevicePrimaryCtxRetain(&ctx, 0)) &&
	       WENT(cuCtxSetCurrent(ctx));
}

/* Returns whether a descriptor is of the fake driver's memory. */
static bool failing_is_memory(int fd)
{
	const char *fake = getenv("GPUMEM_FAKE_DIR");
	char link[64], path[4096] = "";

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof path - 1) > 0 &&
	       ((fake && strncmp(path, fake, strlen(fake)) == 0) ||
		       strstr(path, "memfd:fake-host"));
}

/* Returns what is cached, and says how many descriptors are open. A call that fails is made again. */
static void failing_end(void)
{
	size_t memory = 0, others = 0;
	void *pool;

	for (int i = 0; i < 2; i++) {
		(void)cu.cuCtxSynchronize();
		if (cu.cuDeviceGetDefaultMemPool(&pool, 0) == GM_CUDA_SUCCESS)
			(void)cu.cuMemPoolTrimTo(pool, 0);
	}
	for (int fd = 0; fd < 256; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			(failing_is_memory(fd) ? &memory : &others)[0]++;
	printf("descriptors %zu %zu\n", others, memory);
	fflush(stdout);
}

/* ---- memory of the device, and what it has no room for */

void scene_failing_memory(void)
{
	static const size_t sizes[] = {
		1, 4096, 3 * FAILING_MIB, ACTOR_BYTES, ACTOR_BYTES, ACTOR_BYTES, ACTOR_BYTES};
	gm_cu_ptr ptr, base;
	gm_cu_stream stream = NULL;
	size_t free_bytes, total, bytes;
	void *pool;

	if (!failing_begin())
		return;
	if (WENT(cuMemGetInfo(&free_bytes, &total)) && (free_bytes > total || !total))
		failing_wrong("%zu of %zu bytes are free", free_bytes, total);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (WENT(cuMemAlloc(&ptr, sizes[i])))
			failing_add(ptr, sizes[i]);
	if (!WENT(cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING)))
		stream = NULL;
	size_t plain = failing_n;
	if (WENT(cuMemAllocAsync(&ptr, 5 * FAILING_MIB, stream)) && failing_await(stream))
		failing_add(ptr, 5 * FAILING_MIB);
	if (WENT(cuDeviceGetDefaultMemPool(&pool, 0)) &&
		WENT(cuMemAllocFromPoolAsync(&ptr, 4096, pool, NULL)))
		failing_add(ptr, 4096);

	failing_look();
	for (size_t i = 0; i < failing_n; i++) {
		const struct failing_piece *piece = &failing_pieces[i];
		if (WENT(cuMemGetAddressRange(&base, &bytes, piece->ptr + piece->bytes - 1)) &&
			(base != piece->ptr || bytes < piece->bytes))
			failing_wrong("%zu bytes are %zu", piece->bytes, bytes);
	}
	(void)WENT(cuMemGetInfo(&free_bytes, &total));
	for (size_t i = 0; i < failing_n; i++)
		(void)(i < plain ? WENT(cuMemFree(failing_pieces[i].ptr))
				 : WENT(cuMemFreeAsync(failing_pieces[i].ptr, stream)));
	failing_n = 0;
	if (WENT(cuMemAlloc(&ptr, ACTOR_BYTES))) {
		failing_add(ptr, ACTOR_BYTES);
		failing_look();
		(void)WENT(cuMemFree(ptr));
	}
	if (stream)
		(void)WENT(cuStreamDestroy(stream));
	failing_end();
}

/* ---- memory that the program maps itself, host memory, and what the driver makes */

static void failing_physical(void)
{
	const gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const gm_cu_access access = {
		{GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}, GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	gm_cu_mem handle, other;
	gm_cu_ptr ptr = 0;
	int fd = -1;

	if (!WENT(cuMemCreate(&handle, ACTOR_PIECE, &prop, 0)))
		return;
	if (WENT(cuMemExportToShareableHandle(&fd, handle, 1, 0))) {
		if (WENT(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, 1)))
			(void)WENT(cuMemRelease(other));
		close(fd);
	}
	if (WENT(cuMemAddressReserve(&ptr, ACTOR_PIECE, 0, 0, 0)) &&
		WENT(cuMemMap(ptr, ACTOR_PIECE, 0, handle, 0))) {
		if (WENT(cuMemSetAccess(ptr, ACTOR_PIECE, &access, 1)))
			failing_add(ptr, ACTOR_PIECE);
		if (WENT(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)(ptr + 4096))))
			(void)WENT(cuMemRelease(other));
		failing_look();
		failing_n = 0;
		/* Memory that the device may still use must stay. */
		if (!WENT(cuCtxSynchronize()) && !WENT(cuCtxSynchronize()))
			return;
		(void)WENT(cuMemUnmap(ptr, ACTOR_PIECE));
	}
	if (ptr)
		(void)WENT(cuMemAddressFree(ptr, ACTOR_PIECE));
	(void)WENT(cuMemRelease(handle));
}

/* The device copies what the CPU wrote, and the CPU reads what the device set. */
static void failing_pinned(void *ptr, size_t bytes)
{
	gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)ptr;
	static unsigned char copy[4096];
	unsigned int flags;

	memset(ptr, 0x61, bytes);
	if (WENT(cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, at + bytes - 1000, 1000, NULL)) &&
		WENT(cuStreamSynchronize(NULL)) &&
		(copy[0] != 0x61 || memcmp(copy, copy + 1, 999) != 0))
		failing_wrong("the device does not see what the CPU wrote");
	if (WENT(cuMemsetD8Async(at, 0x62, bytes, NULL)) && WENT(cuStreamSynchronize(NULL)) &&
		(*(char *)ptr != 0x62 || memcmp(ptr, (char *)ptr + 1, bytes - 1) != 0))
		failing_wrong("the CPU does not see what the device set");
	(void)WENT(cuMemHostGetFlags(&flags, ptr));
	(void)WENT(cuMemFreeHost(ptr));
}

static void failing_pool(void)
{
	const gm_cu_pool_props props = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	unsigned long long used = 0;
	void *pool;
	gm_cu_ptr ptr;

	if (!WENT(cuMemPoolCreate(&pool, &props)))
		return;
	if (WENT(cuMemAllocFromPoolAsync(&ptr, ACTOR_PIECE, pool, NULL))) {
		failing_add(ptr, ACTOR_PIECE);
		failing_look();
		if (WENT(cuMemPoolGetAttribute(pool, 7, &used)) && used < ACTOR_PIECE)
			failing_wrong("the pool says that %llu bytes are used", used);
		(void)WENT(cuMemFreeAsync(ptr, NULL));
		failing_n = 0;
	}
	(void)WENT(cuMemPoolTrimTo(pool, 0));
	(void)WENT(cuMemPoolDestroy(pool));
}

/* A graph of a memset, and of memory that it has for itself. */
static void failing_capture(void)
{
	gm_cu_stream stream;
	void *graph = NULL, *exec;
	gm_cu_ptr ptr;

	if (!WENT(cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING)))
		return;
	if (WENT(cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED))) {
		if (WENT(cuMemAllocAsync(&ptr, ACTOR_PIECE, stream)))
			(void)WENT(cuMemFreeAsync(ptr, stream));
		if (!WENT(cuStreamEndCapture(stream, &graph)))
			graph = NULL;
	}
	if (graph && WENT(cuGraphInstantiateWithFlags(&exec, graph, 0)))
		(void)WENT(cuGraphExecDestroy(exec));
	if (graph)
		(void)WENT(cuGraphDestroy(graph));
	(void)WENT(cuStreamDestroy(stream));
}

void scene_failing_others(void)
{
	static const gm_cu_array_2d flat = {1024, ACTOR_PIECE / 4096, 0x20, 1};
	void *host, *array;
	gm_cu_ptr ptr;

	if (!failing_begin())
		return;
	failing_physical();
	if (WENT(cuMemHostAlloc(&host, ACTOR_PIECE, 1)))
		failing_pinned(host, ACTOR_PIECE);
	if (WENT(cuMemAllocHost(&host, 1000)))
		failing_pinned(host, 1000);
	if (WENT(cuMemAllocManaged(&ptr, ACTOR_PIECE, GM_CU_MEM_ATTACH_GLOBAL))) {
		failing_add(ptr, ACTOR_PIECE);
		failing_look();
		(void)WENT(cuMemFree(ptr));
		failing_n = 0;
	}
	if (WENT(cuArrayCreate(&array, &flat)))
		(void)WENT(cuArrayDestroy(array));
	failing_pool();
	failing_capture();
	failing_end();
}
