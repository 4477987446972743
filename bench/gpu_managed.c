/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Managed memory on a GPU, beside the driver's own calls in the same run:
 *   - making and destroying 64 MiB, as long as the caller waits, and until the charge has gone;
 *   - the first touch of 1 GiB by the device after the CPU wrote it, with a prefetch and without;
 *   - prefetching 1 GiB to the device and back, beside a pinned copy.
 * Needs a GPU. On a smaller one, such as the fake, sizes are divided by 128.
 */

#include "bench/gpu.h"
#include "gpumem/gpumem_managed.h"

#define ROUNDS 11
#define CONFIG \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\ntrack = off\nhost_limit = 4G\n"

static gpumem_managed *create(uint64_t bytes)
{
	gpumem_managed *managed;
	OK(gpumem_managed_create(session, 0, bytes, NULL, &managed));
	return managed;
}

static void until_uncharged(void)
{
	uint64_t bytes;
	do
		OK(gpumem_declared(session, 0, &bytes));
	while (bytes > 0);
}

static double driver_makes(uint64_t bytes)
{
	gm_cu_ptr ptr;
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemAllocManaged(&ptr, bytes, GM_CU_MEM_ATTACH_GLOBAL));
	CU(cuda->cuMemFree(ptr));
	return ms_since(start);
}

static void measure_make(uint64_t bytes)
{
	double made[ROUNDS], gone[ROUNDS], peer[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		double c = driver_makes(bytes);
		uint64_t start = gm_monotonic_ns();
		gpumem_managed_destroy(create(bytes));
		double a = ms_since(start);
		until_uncharged();
		double b = ms_since(start);
		if (i >= 0)
			made[i] = a, gone[i] = b, peer[i] = c;
	}
	double driver = gm_median(peer, ROUNDS);
	gm_print_ratio("make and destroy 64 MiB; peer cuMemAllocManaged, cuMemFree",
		gm_median(made, ROUNDS), driver, "ms", -1);
	gm_print_ratio(
		"the same, until the charge has gone", gm_median(gone, ROUNDS), driver, "ms", -1);
}

static gpumem_status prefetch(gpumem_managed *managed, gpumem_managed_place place)
{
	return gpumem_managed_prefetch(managed, 0, unit, place, NULL);
}

/* Measures how long the device takes to set memory that the CPU wrote last. */
static double device_touches(gpumem_managed *managed, bool prefetched)
{
	void *p = gpumem_managed_ptr(managed);
	memset(p, 1, unit);
	uint64_t start = gm_monotonic_ns();
	if (prefetched)
		OK(prefetch(managed, GPUMEM_MANAGED_ON_DEVICE));
	fill(p, unit, 2, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	return ms_since(start);
}

static void measure_touch(gpumem_managed *managed)
{
	double with[ROUNDS], without[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		double b = device_touches(managed, false), a = device_touches(managed, true);
		if (i >= 0)
			with[i] = a, without[i] = b;
	}
	gm_print_ratio("the device sets 1 GiB, prefetched; peer: not prefetched",
		gm_median(with, ROUNDS), gm_median(without, ROUNDS), "ms", -1);
}

static double moves(gpumem_managed *managed, gpumem_managed_place place)
{
	uint64_t start = gm_monotonic_ns();
	OK(prefetch(managed, place));
	CU(cuda->cuStreamSynchronize(NULL));
	return ms_since(start);
}

static double gb_per_s(double *ms)
{
	return (double)unit / 1e6 / gm_median(ms, ROUNDS);
}

static void measure_prefetch(gpumem_managed *managed)
{
	double to[ROUNDS], from[ROUNDS], in[ROUNDS], out[ROUNDS];
	gpumem_buffer *buffer;
	void *host;

	OK(gpumem_buffer_create(session, 0, unit, NULL, &buffer));
	OK(gpumem_host_alloc(session, unit, NULL, &host));
	memset(gpumem_managed_ptr(managed), 3, unit);
	for (int i = -1; i < ROUNDS; i++) {
		double c = driver_copies(gpumem_buffer_ptr(buffer), host, unit);
		double d = driver_copies(host, gpumem_buffer_ptr(buffer), unit);
		double a = moves(managed, GPUMEM_MANAGED_ON_DEVICE);
		double b = moves(managed, GPUMEM_MANAGED_ON_HOST);
		if (i >= 0)
			to[i] = a, from[i] = b, in[i] = c, out[i] = d;
	}
	gm_print_speed("prefetch 1 GiB to the device; peer: a pinned copy", gb_per_s(to),
		gb_per_s(in), "GB/s", -1);
	gm_print_speed("prefetch 1 GiB to the host; peer: a pinned copy", gb_per_s(from),
		gb_per_s(out), "GB/s", -1);
	OK(gpumem_host_free(session, host));
	gpumem_buffer_destroy(buffer);
}

int main(void)
{
	if (!gpu_begin("Managed memory, against the driver's own calls", CONFIG, 8 * 1024 * MIB))
		return 0;

	measure_make(64 * MIB);
	gpumem_managed *managed = create(unit);
	if (prefetch(managed, GPUMEM_MANAGED_ON_HOST) == GPUMEM_E_UNSUPPORTED) {
		printf("  this device cannot prefetch\n");
	} else {
		measure_touch(managed);
		measure_prefetch(managed);
	}
	gpumem_managed_destroy(managed);
	gpu_end();
	return 0;
}
