/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * An evictable buffer of 1 GiB on a GPU that is evicted and brought back, beside a copy of the driver
 * between the same kinds of memory in the same run: at most twice its time is asked. And the same buffer
 * made in host memory because the device is full, and moved to the device.
 * Needs a GPU. On a smaller one, such as the fake, sizes are divided by 128.
 */

#include "bench/gpu.h"
#include "gpumem/gpumem_evict.h"
#include "tests/integration/raw.h"

#define ROUNDS 11
#define FILL   32 /* buffers at most that fill the device */
#define CONFIG \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\ntrack = off\n" \
	"host_limit = 8G\n"

static gpumem_buffer *create(uint64_t bytes, uint32_t flags)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.flags = flags;
	OK(gpumem_buffer_create(session, 0, bytes, &options, &buffer));
	return buffer;
}

static void measure_evict(void)
{
	double out[ROUNDS], in[ROUNDS], peer_out[ROUNDS], peer_in[ROUNDS];
	gpumem_buffer *buffer = create(unit, GPUMEM_BUFFER_EVICTABLE);
	void *host;

	/* The peer's host memory is the broker's, too. */
	OK(gpumem_host_alloc(session, unit, NULL, &host));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	for (int i = -1; i < ROUNDS; i++) {
		double c = driver_copies(host, gpumem_buffer_ptr(buffer), unit);
		double d = driver_copies(gpumem_buffer_ptr(buffer), host, unit);
		OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_buffer_evict(buffer));
		double a = ms_since(start);
		start = gm_monotonic_ns();
		OK(gpumem_buffer_pin(buffer, NULL, NULL));
		double b = ms_since(start);
		/* The first one makes the host's chunks, which are pooled from then on. */
		if (i < 0) {
			printf("    (the first time, with host memory made for it: %.1f ms out, %.1f in)\n",
				a, b);
			continue;
		}
		out[i] = a, in[i] = b, peer_out[i] = c, peer_in[i] = d;
	}
	gm_print_ratio("evict 1 GiB; peer: a pinned copy; asked: 2 times", gm_median(out, ROUNDS),
		gm_median(peer_out, ROUNDS), "ms", 2);
	gm_print_ratio("bring 1 GiB back; peer: a pinned copy; asked: 2 times",
		gm_median(in, ROUNDS), gm_median(peer_in, ROUNDS), "ms", 2);
	OK(gpumem_host_free(session, host));
	gpumem_buffer_destroy(buffer);
}

/* Takes memory of the device until there is not enough left for one more buffer. Returns how many. */
static int fill_device(gpumem_buffer *large[FILL])
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	int n = 0;

	OK(gpumem_trim(session, NULL));
	OK(gpumem_device_info(session, 0, &info));
	for (uint64_t size = info.total / 2; size >= unit && n < FILL;)
		if (gpumem_buffer_create(session, 0, size, NULL, &large[n]) == GPUMEM_OK)
			n++;
		else
			size /= 2;
	return n;
}

static void measure_fallback(void)
{
	double made[ROUNDS], moved[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		gpumem_buffer *large[FILL];
		int n = fill_device(large);
		uint64_t start = gm_monotonic_ns();
		gpumem_buffer *buffer = create(unit, GPUMEM_BUFFER_CPU_OK);
		double a = ms_since(start);
		GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
		/* So that it does not move by itself. */
		gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
		options.flags = GPUMEM_PIN_HOST_OK;
		OK(gpumem_buffer_pin(buffer, &options, NULL));
		while (n)
			gpumem_buffer_destroy(large[--n]);
		OK(gpumem_trim(session, NULL));
		GM_UNTIL(gm_figures_now(&daemon_).available >= unit);
		OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
		start = gm_monotonic_ns();
		OK(gpumem_buffer_pin(buffer, NULL, NULL));
		double b = ms_since(start);
		gpumem_buffer_destroy(buffer);
		if (i >= 0)
			made[i] = a, moved[i] = b;
	}
	printf("    a buffer of 1 GiB in host memory: made in %.1f ms, moved to the device in %.1f ms\n",
		gm_median(made, ROUNDS), gm_median(moved, ROUNDS));
}

int main(void)
{
	if (!gpu_begin("A buffer that is evicted and comes back", CONFIG, 8 * 1024 * MIB))
		return 0;

	measure_evict();
	measure_fallback();
	gpu_end();
	return 0;
}
