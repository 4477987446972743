/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A region of 16 GiB on a GPU that is paused and resumed:
 *   - without content, while the chunks are in the daemon's pool, in milliseconds;
 *   - with its content in pinned host memory, in milliseconds per GiB, beside a copy of the driver
 *     between the same kinds of memory in the same run: at most twice its time is asked.
 * Needs a GPU. On a smaller one, such as the fake, all sizes are divided by 128.
 */

#include <stdio.h>

#include "bench/measure.h"
#include "gpumem/gpumem_region.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define ROUNDS 11
#define CONFIG \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\ntrack = off\n" \
	"host_limit = 24G\n"

static struct gm_daemon daemon_;
static uint64_t unit; /* 1 GiB, or less on a small device */

static double ms_since(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1e6;
}

static double per_gib(uint64_t bytes, double ms)
{
	return ms * (double)(1024 * MIB) / (double)bytes;
}

/* The driver copies so many bytes between pinned host memory and the device, in one direction. */
static double driver_copies(void *to, const void *from, uint64_t bytes)
{
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	return per_gib(bytes, ms_since(start));
}

static void measure_drop(void)
{
	double pause[ROUNDS], resume[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_region_pause(session, "work", GPUMEM_REGION_DROP));
		double a = ms_since(start);
		GM_REQUIRE(gm_figures_now(&daemon_).pooled >= 16 * unit);
		start = gm_monotonic_ns();
		OK(gpumem_region_resume(session, "work", 0));
		double b = ms_since(start);
		/* The first one shows how many chunks there are. */
		if (i < 0)
			printf("    (%llu chunks)\n",
				(unsigned long long)gm_figures_now(&daemon_).chunks);
		else
			pause[i] = a, resume[i] = b;
	}
	gm_print_ratio("pause 16 GiB, content dropped; asked: 20 ms", gm_median(pause, ROUNDS), 20,
		"ms", 1);
	gm_print_ratio("resume 16 GiB, chunks in the pool; asked: 20 ms", gm_median(resume, ROUNDS),
		20, "ms", 1);
}

static void measure_keep(uint8_t *memory, uint64_t bytes)
{
	double pause[ROUNDS], resume[ROUNDS], out[ROUNDS], in[ROUNDS];
	void *host;

	/* The peer's host memory is the broker's, too, and large enough to be measured. */
	OK(gpumem_host_alloc(session, unit, NULL, &host));
	for (int i = -1; i < ROUNDS; i++) {
		double c = driver_copies(host, memory, unit), d = driver_copies(memory, host, unit);
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_region_pause(session, "work", GPUMEM_REGION_KEEP));
		double a = per_gib(bytes, ms_since(start));
		start = gm_monotonic_ns();
		OK(gpumem_region_resume(session, "work", 0));
		double b = per_gib(bytes, ms_since(start));
		/* The first one makes the host's chunks, which are pooled from then on. */
		if (i < 0) {
			printf("    (the first time, with host memory made for it: %.1f ms per GiB out, %.1f in)\n",
				a, b);
			continue;
		}
		pause[i] = a, resume[i] = b, out[i] = c, in[i] = d;
	}
	gm_print_ratio("pause with content, per GiB; peer: a pinned copy", gm_median(pause, ROUNDS),
		gm_median(out, ROUNDS), "ms", 2);
	gm_print_ratio("resume with content, per GiB; peer: a pinned copy",
		gm_median(resume, ROUNDS), gm_median(in, ROUNDS), "ms", 2);
	OK(gpumem_host_free(session, host));
}

int main(void)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	struct gm_daemon_options options = {.config = CONFIG, .args = args};
	gpumem_region *region;
	char why[GM_CUDA_WHY_BYTES];
	size_t total = 0;
	void *memory;

	gm_print_title("A region that is paused and resumed");
	gm_daemon_prepare(&daemon_, &options);
	if (!try_gpu(0, why)) {
		printf("  no GPU: %s\n", why);
		return 0;
	}
	if (gm_daemon_spawn(&daemon_) != -1)
		GM_FAIL("the daemon does not start");
	join_at(daemon_.socket, "bench");

	CU(cuda->cuDeviceTotalMem(&total, 0));
	unit = total > 48 * 1024 * MIB ? 1024 * MIB : 8 * MIB;
	OK(gpumem_region_create(session, 0, "work", 16 * unit, NULL, &region));
	OK(gpumem_region_alloc(region, 16 * unit, NULL, NULL, &memory));
	measure_drop();
	measure_keep(memory, 16 * unit);

	gpumem_region_destroy(region);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
	return 0;
}
