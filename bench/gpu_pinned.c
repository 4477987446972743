/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Both kinds of pinned host memory from the broker, compared with the driver's own in the same run:
 *   - a buffer from the pool, from the request to a usable pointer, compared with cuMemHostAlloc()
 *     and with the fewest driver calls that are possible;
 *   - a pair of alloc and free from the client's own cache;
 *   - copies to the GPU.
 * Needs a GPU. The fake driver is enough to try it out, with less memory and other figures.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define ROUNDS 11
#define PAIRS  2000

static struct gm_daemon daemon_;
static uint32_t pinned; /* the device's number on the wire, after the GPUs */

static double since_ms(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1e6;
}

static uint64_t pooled(void)
{
	struct gm_figures figures;
	gm_figures_of(&daemon_, pinned, &figures);
	return figures.pooled;
}

/* The same kind of memory, allocated once with the driver itself. */
static int make_chunk(uint64_t bytes)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = GM_CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	gm_cu_mem mem;
	int fd;
	CU(cuda->cuMemCreate(&mem, bytes, &prop, 0));
	CU(cuda->cuMemExportToShareableHandle(
		&fd, mem, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuda->cuMemRelease(mem));
	return fd;
}

/* The fewest calls, in milliseconds: import the chunk, map it, set access for CPU and GPU. */
static double least(int fd, uint64_t bytes)
{
	gm_cu_access access[2] = {
		{.location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE,
			.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{.location.type = GM_CU_MEM_LOCATION_TYPE_HOST,
			.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};
	gm_cu_mem mem;
	gm_cu_ptr at;
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CU(cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuda->cuMemMap(at, bytes, 0, mem, 0));
	CU(cuda->cuMemSetAccess(at, bytes, access, 2));
	double ms = since_ms(start);
	memset((void *)(uintptr_t)at, 1, bytes);
	CU(cuda->cuMemUnmap(at, bytes));
	CU(cuda->cuMemRelease(mem));
	CU(cuda->cuMemAddressFree(at, bytes));
	return ms;
}

static void from_the_pool(uint64_t bytes, const char *name, double asked_ms)
{
	double get[ROUNDS], peer[ROUNDS], calls[ROUNDS];
	int chunk = make_chunk(bytes);
	char text[96];
	uint64_t start;
	for (int i = -1; i < ROUNDS; i++) {
		gpumem_buffer *buffer;
		void *ptr;
		start = gm_monotonic_ns();
		OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, bytes, NULL, &buffer));
		double a = since_ms(start);
		memset(gpumem_buffer_ptr(buffer), 1, bytes);
		gpumem_buffer_destroy(buffer);
		/* A destroyed buffer is unmapped a moment later. */
		GM_UNTIL(pooled() >= bytes);
		start = gm_monotonic_ns();
		CU(cuda->cuMemHostAlloc(&ptr, bytes, 0));
		double b = since_ms(start);
		CU(cuda->cuMemFreeHost(ptr));
		if (i < 0) {
			snprintf(text, sizeof(text), "  %s, made anew by the daemon", name);
			printf("%-58s %10.3f ms\n", text, a);
		} else {
			get[i] = a, peer[i] = b, calls[i] = least(chunk, bytes);
		}
	}
	close(chunk);
	snprintf(text, sizeof(text), "%s from the pool, mapped anew; peer cuMemHostAlloc", name);
	gm_print_ratio(text, gm_median(get, ROUNDS), gm_median(peer, ROUNDS), "ms", -1);
	if (asked_ms > 0)
		printf("    (asked: at most %.0f ms; the slowest of %d rounds took %.1f)\n",
			asked_ms, ROUNDS, gm_percentile(get, ROUNDS, 100));
	gm_print_ratio("  beside the driver's calls for one chunk of its own",
		gm_median(get, ROUNDS), gm_median(calls, ROUNDS), "ms", -1);
}

static void from_the_cache(void)
{
	static double pair[PAIRS], peer[PAIRS / 20];
	static const uint64_t sizes[] = {4096, MIB, 32 * MIB};
	for (size_t s = 0; s < 3; s++) {
		size_t n = sizes[s] > MIB ? PAIRS / 100 : PAIRS / 20;
		char text[96];
		void *ptr;
		for (int i = -10; i < PAIRS; i++) {
			uint64_t start = gm_monotonic_ns();
			OK(gpumem_host_alloc(session, sizes[s], NULL, &ptr));
			OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
			if (i >= 0)
				pair[i] = since_ms(start) * 1000;
		}
		for (size_t i = 0; i < n; i++) {
			uint64_t start = gm_monotonic_ns();
			CU(cuda->cuMemHostAlloc(&ptr, sizes[s], 0));
			CU(cuda->cuMemFreeHost(ptr));
			peer[i] = since_ms(start) * 1000;
		}
		snprintf(text, sizeof(text), "%llu KiB from the cache and back; peer the driver's",
			(unsigned long long)(sizes[s] / 1024));
		gm_print_ratio(text, gm_median(pair, PAIRS), gm_median(peer, n), "us", -1);
	}
}

/* GB/s */
static double speed(gm_cu_ptr to, void *from, uint64_t bytes)
{
	CU(cuda->cuStreamSynchronize(NULL));
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemcpyAsync(to, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	return (double)bytes / (double)(gm_monotonic_ns() - start);
}

static void copies(uint64_t bytes)
{
	double ours[ROUNDS], theirs[ROUNDS], pageable[ROUNDS];
	void *host, *peer, *plain = malloc(bytes);
	gm_cu_ptr device;
	GM_REQUIRE(plain);
	OK(gpumem_host_alloc(session, bytes, NULL, &host));
	CU(cuda->cuMemHostAlloc(&peer, bytes, 0));
	CU(cuda->cuMemAlloc(&device, bytes));
	memset(plain, 1, bytes);
	memset(host, 2, bytes);
	memset(peer, 3, bytes);
	for (int i = 0; i < ROUNDS; i++) {
		ours[i] = speed(device, host, bytes);
		theirs[i] = speed(device, peer, bytes);
		pageable[i] = speed(device, plain, bytes);
	}
	gm_print_ratio("copy to the GPU; peer from cuMemHostAlloc", gm_median(ours, ROUNDS),
		gm_median(theirs, ROUNDS), "GB/s", -1);
	gm_print_ratio("copy to the GPU; peer from malloc", gm_median(ours, ROUNDS),
		gm_median(pageable, ROUNDS), "GB/s", -1);
	CU(cuda->cuMemFree(device));
	CU(cuda->cuMemFreeHost(peer));
	OK(gpumem_host_free(session, host));
	free(plain);
}

/* Starts a new daemon for each kind. */
static void measure(const char *kind, bool real, bool heap)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	char config[256];
	struct gm_daemon_options options = {.config = config, .args = args};

	printf("  host_memory = %s\n", kind);
	snprintf(config, sizeof(config),
		"[gpumemd]\nreserve = 0\nmin_free = 16M\nhost_limit = 4G\nhost_memory = %s\n"
		"max_pool = 100%%\ntrack = off\n",
		kind);
	gm_daemon_start(&daemon_, &options);
	join_at(daemon_.socket, "bench");
	OK(gpumem_device_count(session, &pinned));
	if (real)
		from_the_pool(1024 * MIB, "1 GiB", 40);
	from_the_pool(32 * MIB, "32 MiB", -1);
	if (heap)
		from_the_cache();
	copies(real ? 1024 * MIB : 32 * MIB);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
}

int main(void)
{
	char why[GM_CUDA_WHY_BYTES];
	size_t total = 0;

	gm_print_title("Pinned host memory from the broker, against the driver's own");
	if (!try_gpu(0, why)) {
		printf("  no GPU: %s\n", why);
		return 0;
	}
	CU(cuda->cuDeviceTotalMem(&total, 0));
	bool real = total > 8192 * MIB;
	measure("auto", real, true);
	measure("memfd", real, false);
	return 0;
}
