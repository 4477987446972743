/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A region of 16 GiB on a GPU that is paused and resumed:
 *   - without content, while the chunks are in the daemon's pool, in milliseconds. The peer frees and
 *     allocates as much by the driver's own calls in the same run. At most 20 ms each way are asked.
 *   - with its content in pinned host memory, in milliseconds per GiB, beside a copy of the driver
 *     between the same kinds of memory in the same run: at most twice its time is asked.
 * Below that stands where the time goes: the same steps by themselves, each by its own call of the daemon or
 * the driver.
 * Needs a GPU. On a smaller one, such as the fake, all sizes are divided by 128.
 */

#include <stdlib.h>

#include "bench/gpu.h"
#include "gpumem/gpumem_region.h"
#include "tests/integration/raw.h"

#define ROUNDS 11
#define CONFIG \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\ntrack = off\n" \
	"host_limit = 24G\n"

static double per_gib(uint64_t bytes, double ms)
{
	return ms * (double)(1024 * MIB) / (double)bytes;
}

/* How long the driver takes to free and allocate as much. */
static void driver_allocates(uint64_t bytes, double *ret_free, double *ret_alloc)
{
	gm_cu_ptr ptr;
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemAlloc(&ptr, bytes));
	*ret_alloc = ms_since(start);
	start = gm_monotonic_ns();
	CU(cuda->cuMemFree(ptr));
	*ret_free = ms_since(start);
}

static void print_asked(const double sorted[ROUNDS])
{
	printf("    (asked: at most 20 ms for 16 GiB; the slowest round %.3f)\n",
		sorted[ROUNDS - 1]);
}

static void measure_drop(void)
{
	double pause[ROUNDS], resume[ROUNDS], frees[ROUNDS], allocs[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		double c, d;
		driver_allocates(16 * unit, &c, &d);
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
			pause[i] = a, resume[i] = b, frees[i] = c, allocs[i] = d;
	}
	gm_print_ratio("pause 16 GiB, content dropped; peer cuMemFree", gm_median(pause, ROUNDS),
		gm_median(frees, ROUNDS), "ms", -1);
	print_asked(pause);
	gm_print_ratio("resume 16 GiB, chunks in the pool; peer cuMemAlloc",
		gm_median(resume, ROUNDS), gm_median(allocs, ROUNDS), "ms", -1);
	print_asked(resume);
}

static void measure_keep(uint8_t *memory, uint64_t bytes)
{
	double pause[ROUNDS], resume[ROUNDS], out[ROUNDS], in[ROUNDS];
	void *host;

	/* The peer's host memory is the broker's, too, and large enough to be measured. */
	OK(gpumem_host_alloc(session, unit, NULL, &host));
	for (int i = -1; i < ROUNDS; i++) {
		double c = per_gib(unit, driver_copies(host, memory, unit));
		double d = per_gib(unit, driver_copies(memory, host, unit));
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
	printf("    (asked: at least half the bandwidth of the copy, so at most 2 times its time)\n");
	OK(gpumem_host_free(session, host));
}

/* ---- where the time goes */

enum part { LEASE, IMPORT, MAP, ACCESS, UNMAP, GIVE, PARTS };
static const char *const part_names[PARTS] = {
	"lease", "import", "map", "access", "unmap", "return"};

/* Does to so much memory of a device what a resume and a pause do, step by step. Returns false if its chunks
 * cannot be imported: then they are memfds. */
static bool measure_once(struct gm_raw *raw, uint32_t device, uint64_t bytes, double ms[PARTS])
{
	const gm_cu_access access = {.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE},
		.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	struct gm_raw_lease lease;
	gm_cu_ptr base;
	uint64_t at = 0, start = gm_monotonic_ns();
	bool imported = true;

	GM_REQUIRE_EQ(gm_raw_lease(raw, device, bytes, &lease), GPUMEM_OK);
	ms[LEASE] = ms_since(start);
	gm_cu_mem *handles = calloc(lease.n, sizeof(*handles));
	GM_REQUIRE(handles);

	start = gm_monotonic_ns();
	for (size_t i = 0; imported && i < lease.n; i++)
		imported = cuda->cuMemImportFromShareableHandle(&handles[i],
				   (void *)(intptr_t)lease.chunks[i].fd,
				   GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0;
	ms[IMPORT] = ms_since(start);
	if (imported) {
		CU(cuda->cuMemAddressReserve(&base, lease.bytes, 2 * MIB, 0, 0));
		start = gm_monotonic_ns();
		for (size_t i = 0; i < lease.n; at += lease.chunks[i++].bytes) {
			CU(cuda->cuMemMap(base + at, lease.chunks[i].bytes, 0, handles[i], 0));
			CU(cuda->cuMemRelease(handles[i]));
		}
		ms[MAP] = ms_since(start);
		start = gm_monotonic_ns();
		CU(cuda->cuMemSetAccess(base, at, &access, 1));
		ms[ACCESS] = ms_since(start);
		start = gm_monotonic_ns();
		CU(cuda->cuMemUnmap(base, at));
		ms[UNMAP] = ms_since(start);
		CU(cuda->cuMemAddressFree(base, lease.bytes));
	}
	free(handles);

	start = gm_monotonic_ns();
	GM_REQUIRE_EQ(gm_raw_give_back(raw, &lease), GPUMEM_OK);
	ms[GIVE] = ms_since(start);
	return imported;
}

static void measure_parts(const char *what, uint32_t device, uint64_t bytes)
{
	double rounds[PARTS][ROUNDS], ms[PARTS] = {0};
	struct gm_raw raw;
	bool imported = true;

	gm_raw_join(&raw, &daemon_);
	/* The first one fills the pool. */
	(void)measure_once(&raw, device, bytes, ms);
	for (int i = 0; i < ROUNDS; i++) {
		imported = measure_once(&raw, device, bytes, ms);
		for (int part = 0; part < PARTS; part++)
			rounds[part][i] = ms[part];
	}
	gm_raw_close(&raw);

	printf("    (%s, ms:", what);
	for (int part = 0; part < PARTS; part++)
		if (imported || part == LEASE || part == GIVE)
			printf(" %s %.3f", part_names[part], gm_median(rounds[part], ROUNDS));
	printf(")\n");
}

int main(void)
{
	gpumem_region *region;
	void *memory;

	if (!gpu_begin("A region that is paused and resumed", CONFIG, 48 * 1024 * MIB))
		return 0;

	OK(gpumem_region_create(session, 0, "work", 16 * unit, NULL, &region));
	OK(gpumem_region_alloc(region, 16 * unit, NULL, NULL, &memory));
	measure_drop();
	measure_keep(memory, 16 * unit);

	/* The pools have what the region needs while it has nothing. */
	OK(gpumem_region_pause(session, "work", GPUMEM_REGION_DROP));
	measure_parts("16 GiB of the device", 0, 16 * unit);
	measure_parts("16 GiB of pinned host memory", 1, 16 * unit);

	gpumem_region_destroy(region);
	gpu_end();
	return 0;
}
