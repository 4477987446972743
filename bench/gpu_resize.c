/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A buffer on a GPU that grows from 1 to 16 GiB at its address, in milliseconds per added GiB:
 *   - by chunks that the daemon's pool has;
 *   - by chunks that have to be made;
 *   - and the way back, as far as the caller waits for it.
 * The peer grows by the driver's own calls in the same run: cuMemAlloc, a copy, cuMemFree.
 * Needs a GPU. On a smaller one, such as the fake, all sizes are divided by 128.
 */

#include "bench/gpu.h"
#include "tests/integration/raw.h"

#define ROUNDS 11
#define CONFIG(max_pool) \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = " max_pool \
	"\ntrack = off\nhost_limit = 0\n"

static double added; /* how many GiB it grows by */

static double ms_per_gib(uint64_t start)
{
	return ms_since(start) / added;
}

/* The content of a buffer of 1 GiB moves to one of 16. */
static double driver_grows(void)
{
	gm_cu_ptr small, large;
	CU(cuda->cuMemAlloc(&small, unit));
	CU(cuda->cuMemsetD8Async(small, 1, unit, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemAlloc(&large, 16 * unit));
	CU(cuda->cuMemcpyAsync(large, small, unit, NULL));
	CU(cuda->cuMemFree(small));
	double ms = ms_per_gib(start);
	CU(cuda->cuMemFree(large));
	return ms;
}

static void measure(gpumem_buffer *buffer, bool pooled, double asked_ms)
{
	double grow[ROUNDS], shrink[ROUNDS], peer[ROUNDS], most = 0;
	void *place = gpumem_buffer_ptr(buffer);
	uint64_t before = pooled ? 0 : free_on_device();

	for (int i = -1; i < ROUNDS; i++) {
		/* The daemon may still destroy chunks: wait, or the next round would be slower. */
		GM_UNTIL(gm_figures_now(&daemon_).leased == unit &&
			 free_on_device() + unit / 4 >= before);
		double c = driver_grows();
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_buffer_resize(buffer, 16 * unit, NULL, NULL));
		double a = ms_per_gib(start);
		CU(cuda->cuMemsetD8Async((gm_cu_ptr)(uintptr_t)place + unit, 2, 15 * unit, NULL));
		CU(cuda->cuStreamSynchronize(NULL));
		uint64_t chunks = gm_figures_now(&daemon_).chunks;
		start = gm_monotonic_ns();
		OK(gpumem_buffer_resize(buffer, unit, NULL, NULL));
		double b = ms_per_gib(start);
		GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
		OK(gpumem_trim(session, NULL));
		if (i < 0) {
			/* The first one fills the pool, or finds it filled by the driver's own. */
			printf("    (%llu chunks)\n", (unsigned long long)chunks);
			continue;
		}
		grow[i] = a, shrink[i] = b, peer[i] = c;
		most = a > most ? a : most;
	}

	gm_print_ratio(pooled ? "1 to 16 GiB from the pool, per GiB; peer cuMemAlloc and a copy"
			      : "1 to 16 GiB made anew, per GiB; peer cuMemAlloc and a copy",
		gm_median(grow, ROUNDS), gm_median(peer, ROUNDS), "ms", -1);
	printf("    (asked: at most %.0f ms per GiB; the slowest round %.3f)\n", asked_ms, most);
	printf("%-58s %10.3f ms\n", "  16 to 1 GiB, per GiB", gm_median(shrink, ROUNDS));
}

int main(void)
{
	gpumem_buffer_options growing = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;

	if (!gpu_begin("A buffer that grows at its address, against the driver's own way",
		    CONFIG("50%"), 48 * 1024 * MIB))
		return 0;

	added = 15.0 * (double)unit / (double)(1024 * MIB);
	growing.max_size = 16 * unit;
	OK(gpumem_buffer_create(session, 0, unit, &growing, &buffer));
	measure(buffer, true, 1);
	gm_daemon_reload(&daemon_, CONFIG("0"));
	GM_UNTIL(gm_figures_now(&daemon_).pooled == 0);
	measure(buffer, false, 3);

	gpumem_buffer_destroy(buffer);
	gpu_end();
	return 0;
}
