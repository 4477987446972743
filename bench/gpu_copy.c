/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Transfers between pageable memory and a GPU, compared with the driver's own copies of the same memory in
 * the same run:
 *   - gpumem_copy_in() as the library chooses, and through rings of many shapes;
 *   - gpumem_copy_out() and gpumem_copy_file_in() as the library chooses;
 *   - a copy from pinned memory, which is the most that the bus can do.
 *
 * gpu_copy [MIB [THREADS SLOTS SLOT_KIB]]: the size of a transfer (1024), and one shape in place of all. Needs a
 * GPU. The fake driver is enough to try it out, with less memory and other figures.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"
#include "tests/integration/transfer.h"
#include "tests/scratch.h"

#define ROUNDS 5

static struct gm_daemon daemon_;
static gpumem_buffer *buffer;
static uint8_t *memory;
static uint64_t bytes;

static gm_cu_result (*copy_to_device)(gm_cu_ptr to, const void *from, size_t n);
static gm_cu_result (*copy_to_host)(void *to, gm_cu_ptr from, size_t n);

static double rate(uint64_t start)
{
	return (double)bytes / (double)(gm_monotonic_ns() - start);
}

/* ---- what is measured, each in GB/s */

static double driver_in(const gpumem_copy_options *options)
{
	uint64_t start = gm_monotonic_ns();
	CU(copy_to_device((gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(buffer), memory, bytes));
	return rate(start);
}

static double driver_out(const gpumem_copy_options *options)
{
	uint64_t start = gm_monotonic_ns();
	CU(copy_to_host(memory, (gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(buffer), bytes));
	return rate(start);
}

static double ours_in(const gpumem_copy_options *options)
{
	uint64_t start = gm_monotonic_ns();
	OK(gpumem_copy_in(buffer, 0, memory, bytes, GPUMEM_STREAM_DONE, options, NULL));
	return rate(start);
}

static double ours_out(const gpumem_copy_options *options)
{
	uint64_t start = gm_monotonic_ns();
	OK(gpumem_copy_out(buffer, 0, memory, bytes, GPUMEM_STREAM_DONE, options, NULL));
	return rate(start);
}

static gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;

static double ours_file(const gpumem_copy_options *options)
{
	uint64_t start = gm_monotonic_ns();
	OK(gpumem_copy_file_in(buffer, 0, &file, GPUMEM_STREAM_DONE, options, NULL));
	return rate(start);
}

/* The median, after a round that only warms up. */
static double measure(
	double (*fn)(const gpumem_copy_options *options), const gpumem_copy_options *options)
{
	double rates[ROUNDS];
	(void)fn(options);
	for (int i = 0; i < ROUNDS; i++)
		rates[i] = fn(options);
	return gm_median(rates, ROUNDS);
}

/* ---- shapes of the ring */

static double try_shape(uint32_t threads, uint32_t slots, uint32_t slot_kib, double peer)
{
	gpumem_copy_options options =
		by_threads(GPUMEM_COPY_STAGED, threads, slots, (size_t)slot_kib * 1024);
	char text[96];
	double figure = measure(ours_in, &options);
	snprintf(text, sizeof(text), "  %u threads, %u slots of %u KiB", threads, slots, slot_kib);
	gm_print_speed(text, figure, peer, "GB/s", -1);
	return figure;
}

static void try_shapes(double peer)
{
	static const uint32_t threads[] = {1, 2, 4, 6, 8, 12, 16}, slots[] = {4, 8, 16, 32},
			      kib[] = {1024, 2048, 4096, 8192, 16384};
	double best = 0;
	uint32_t shape[3] = {0};
	for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++)
		for (size_t s = 0; s < sizeof(slots) / sizeof(*slots); s++)
			for (size_t k = 0; k < sizeof(kib) / sizeof(*kib); k++) {
				double figure = try_shape(threads[t], slots[s], kib[k], peer);
				if (figure > best) {
					best = figure;
					shape[0] = threads[t];
					shape[1] = slots[s];
					shape[2] = kib[k];
				}
			}
	printf("  best: %u threads, %u slots of %u KiB: %.1f GB/s\n", shape[0], shape[1], shape[2],
		best);
}

/* ---- the whole */

static void prepare(void)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	static char path[256];
	struct gm_daemon_options options = {
		.config = "[gpumemd]\nreserve = 0\nmin_free = 16M\nhost_limit = 2G\n"
			  "max_pool = 100%\ntrack = off\n",
		.args = args};
	gm_daemon_start(&daemon_, &options);
	join_at(daemon_.socket, "bench");
	OK(gpumem_copy_set_limit(session, 1024 * MIB));
	OK(gpumem_buffer_create(session, 0, bytes, NULL, &buffer));
	memory = malloc(bytes);
	GM_REQUIRE(memory);
	memset(memory, 1, bytes);

	gm_scratch_path("bench", path, sizeof(path));
	file.path = path;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0);
	for (uint64_t done = 0; done < bytes;) {
		ssize_t r = write(fd, memory + done, bytes - done);
		GM_REQUIRE(r > 0);
		done += (uint64_t)r;
	}
	close(fd);
}

static void compare(void)
{
	gpumem_copy_options automatic = GPUMEM_COPY_OPTIONS_INIT;
	void *pageable = memory, *pinned;
	double in = measure(driver_in, NULL);
	gm_print_speed("pageable memory to the GPU; peer cuMemcpyHtoD",
		measure(ours_in, &automatic), in, "GB/s", 3);
	gm_print_speed("a file in the page cache; peer cuMemcpyHtoD",
		measure(ours_file, &automatic), in, "GB/s", -1);
	if (copy_to_host)
		gm_print_speed("the GPU to pageable memory; peer cuMemcpyDtoH",
			measure(ours_out, &automatic), measure(driver_out, NULL), "GB/s", -1);
	if (gpumem_host_alloc(session, bytes, NULL, &pinned))
		return;
	memset(pinned, 2, bytes);
	memory = pinned;
	gm_print_speed("pinned memory to the GPU; peer cuMemcpyHtoD", measure(ours_in, &automatic),
		measure(driver_in, NULL), "GB/s", -1);
	memory = pageable;
	OK(gpumem_host_free(session, pinned));
}

int main(int argc, char **argv)
{
	char why[GM_CUDA_WHY_BYTES];
	size_t total = 0;

	gm_print_title("Transfers of pageable memory, against the driver's own");
	if (!try_gpu(0, why)) {
		printf("  no GPU: %s\n", why);
		return 0;
	}
	CU(cuda->cuDeviceTotalMem(&total, 0));
	bool real = total > 8192 * MIB;
	bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : real ? 1024 : 32) * MIB;
	copy_to_device =
		(gm_cu_result(*)(gm_cu_ptr, const void *, size_t))driver_symbol("cuMemcpyHtoD_v2");
	copy_to_host = (gm_cu_result(*)(void *, gm_cu_ptr, size_t))driver_symbol("cuMemcpyDtoH_v2");
	GM_REQUIRE(copy_to_device);

	prepare();
	if (argc > 4) {
		try_shape((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]),
			measure(driver_in, NULL));
	} else {
		compare();
		if (real)
			try_shapes(measure(driver_in, NULL));
	}
	free(memory);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
	return 0;
}
