/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * GPU memory from the broker, compared with the driver's own calls in the same run:
 *   - the device memory that the daemon itself needs;
 *   - a buffer from the pool, from the request to a usable pointer, and giving it back;
 *   - a pair of alloc and free from the client's own cache;
 *   - freeing while a stream is busy;
 *   - a pool hit while another client's miss keeps the driver busy.
 * Needs a GPU. The fake driver is enough to try it out.
 */

#include <stdio.h>

#include "bench/measure.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define ROUNDS 51
#define PAIRS  2000

static struct gm_daemon daemon_;
static const struct gm_nvml *nvml;
static gm_nvml_device nvml_device;

static double since_us(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1000;
}

/* ---- what the daemon costs */

static uint64_t used_bytes(void)
{
	gm_nvml_memory memory;
	if (nvml->nvmlDeviceGetMemoryInfo(nvml_device, &memory))
		GM_FAIL("nvmlDeviceGetMemoryInfo");
	return memory.total - memory.free;
}

/* ---- from the pool */

static void from_the_pool(uint64_t bytes, const char *name, double asked_us)
{
	double get[ROUNDS], give[ROUNDS], peer_get[ROUNDS], peer_give[ROUNDS];
	char text[96];
	for (int i = -2; i < ROUNDS; i++) {
		gpumem_buffer *buffer;
		gm_cu_ptr ptr;
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_buffer_create(session, 0, bytes, NULL, &buffer));
		double a = since_us(start);
		CU(cuda->cuMemsetD8Async(
			(gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(buffer), 1, bytes, NULL));
		CU(cuda->cuStreamSynchronize(NULL));
		start = gm_monotonic_ns();
		gpumem_buffer_destroy(buffer);
		double b = since_us(start);
		start = gm_monotonic_ns();
		CU(cuda->cuMemAlloc(&ptr, bytes));
		double c = since_us(start);
		start = gm_monotonic_ns();
		CU(cuda->cuMemFree(ptr));
		double d = since_us(start);
		if (i < 0)
			continue; /* the first ones fill the pool */
		get[i] = a, give[i] = b, peer_get[i] = c, peer_give[i] = d;
	}
	snprintf(text, sizeof(text), "%s from the pool, mapped anew; peer cuMemAlloc", name);
	gm_print_ratio(text, gm_median(get, ROUNDS), gm_median(peer_get, ROUNDS), "us", -1);
	printf("    (asked: at most %.0f us)\n", asked_us);
	snprintf(text, sizeof(text), "%s given back; peer cuMemFree", name);
	gm_print_ratio(text, gm_median(give, ROUNDS), gm_median(peer_give, ROUNDS), "us", -1);
	printf("    (asked: at most 100 us)\n");
}

/* ---- from the client's cache, and under a busy stream */

static void from_the_cache(void)
{
	static double pair[PAIRS];
	static const uint64_t sizes[] = {4096, 1 << 20, 64 * MIB};
	gm_cu_stream stream;
	CU(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	for (size_t s = 0; s < 3; s++)
		for (int on_stream = 0; on_stream < 2; on_stream++) {
			char text[96];
			void *ptr;
			for (int i = -10; i < PAIRS; i++) {
				uint64_t start = gm_monotonic_ns();
				OK(gpumem_alloc(session, 0, sizes[s], on_stream ? stream : NULL,
					NULL, &ptr));
				OK(gpumem_free(session, ptr, on_stream ? stream : NULL));
				if (i >= 0)
					pair[i] = since_us(start);
			}
			snprintf(text, sizeof(text), "  %8llu KiB, alloc and free, %s",
				(unsigned long long)(sizes[s] / 1024),
				on_stream ? "on a stream" : "on the default stream");
			printf("%-58s %10.3f us  (asked: at most 1)\n", text,
				gm_median(pair, PAIRS));
		}
}

static void free_while_busy(void)
{
	enum { N = 64 };
	void *blocks[N];
	double ours[N], theirs;
	gm_cu_stream stream;
	gm_cu_ptr plain;
	CU(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cuda->cuMemAlloc(&plain, 64 * MIB));
	for (int i = 0; i < N; i++)
		OK(gpumem_alloc(session, 0, 2 * MIB, stream, NULL, &blocks[i]));
	keep_busy(stream);
	for (int i = 0; i < N; i++) {
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_free(session, blocks[i], i % 2 ? GPUMEM_STREAM_ANY : stream));
		ours[i] = since_us(start);
	}
	open_gate();
	CU(cuda->cuStreamSynchronize(stream));
	/* The driver's own free waits for the GPU: give it 20 ms of work to wait for. */
	for (int i = 0; i < 40; i++)
		CU(cuda->cuMemsetD8Async(plain, (unsigned char)i, 64 * MIB, stream));
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemFree(plain));
	theirs = since_us(start);
	gm_print_ratio("gpumem_free under a busy stream; peer cuMemFree (which waits)",
		gm_median(ours, N), theirs, "us", -1);
	printf("    (asked: at most 2 us)\n");
}

/* ---- a hit while another one misses */

static void misser(int channel, void *argument)
{
	gm_hear_word(channel, 'b'); /* the first measurement must not include this context */
	use_gpu();
	join_at(daemon_.socket, "misser");
	gm_text_say_word(channel, 'b');
	for (;;) {
		char word;
		gm_hear(channel, &word, 1);
		if (word == 'e')
			break;
		/* Sizes that change all the time, so that the driver must always create chunks. */
		gpumem_buffer *held[16];
		for (int i = 0; i < 16; i++)
			OK(gpumem_buffer_create(
				session, 0, (uint64_t)(i % 4 + 1) * 34 * MIB, NULL, &held[i]));
		for (int i = 0; i < 16; i++)
			gpumem_buffer_destroy(held[i]);
		uint64_t trimmed;
		OK(gpumem_trim(session, &trimmed));
		gm_text_say_word(channel, 'd');
	}
	gpumem_disconnect(session);
}

/* From the request to a usable pointer. */
static double hit_us(void)
{
	gpumem_buffer *buffer;
	uint64_t start = gm_monotonic_ns();
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	double us = since_us(start);
	gpumem_buffer_destroy(buffer);
	return us;
}

/* From the request to the answer, which brings the chunk's fd. The chunk is not mapped. */
static double answer_us(struct gm_raw *raw)
{
	struct gm_raw_lease lease;
	uint64_t start = gm_monotonic_ns();
	OK(gm_raw_lease(raw, 0, 2 * MIB, &lease));
	double us = since_us(start);
	OK(gm_raw_return(raw, lease.id, NULL, 0));
	gm_raw_lease_clear(&lease);
	return us;
}

/* Measures alone and beside the other client in turns, so that a slower machine affects both. */
static void hit_beside_misses(struct gm_worker *other)
{
	enum { TURNS = 16, EACH = 25, N = TURNS * EACH, ALONE = 0, BESIDE = 1 };
	static double hit[2][N], answer[2][N];
	struct gm_raw raw;

	gm_text_say_word(other->channel, 'b');
	gm_hear_word(other->channel, 'b');
	gm_raw_join(&raw, &daemon_);
	hit_us();
	answer_us(&raw);
	for (int i = 0; i < 2 * TURNS; i++) {
		int which = i % 2 ? BESIDE : ALONE;
		if (which == BESIDE)
			gm_text_say_word(other->channel, 'm');
		for (int k = i / 2 * EACH; k < (i / 2 + 1) * EACH; k++) {
			hit[which][k] = hit_us();
			answer[which][k] = answer_us(&raw);
		}
		if (which == BESIDE)
			gm_hear_word(other->channel, 'd');
	}
	gm_raw_close(&raw);
	gm_print_ratio("2 MiB pool hit, answered, beside another's misses; peer alone",
		gm_median(answer[BESIDE], N), gm_median(answer[ALONE], N), "us", 1.5);
	gm_print_ratio("2 MiB pool hit, mapped, beside another's misses; peer alone",
		gm_median(hit[BESIDE], N), gm_median(hit[ALONE], N), "us", 1.5);
}

int main(void)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	static const char config[] =
		"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 50%\ntrack = off\n";
	struct gm_daemon_options options = {.config = config, .args = args};
	struct gm_worker other;
	char why[GM_CUDA_WHY_BYTES];

	gm_print_title("Memory of a GPU from the broker, against the driver's own");
	/* The second worker is forked before this process uses CUDA. */
	gm_daemon_prepare(&daemon_, &options);
	gm_worker_start(&other, misser, NULL);
	if (!try_gpu(0, why)) {
		printf("  no GPU: %s\n", why);
		gm_worker_kill(&other);
		return 0;
	}
	nvml_device = find_in_nvml(&nvml);
	uint64_t before = used_bytes();
	if (gm_daemon_spawn(&daemon_) != -1)
		GM_FAIL("the daemon does not start");
	printf("%-58s %10.1f MiB  (asked: at most 8)\n",
		"  the daemon's device memory on the fd path",
		(double)(used_bytes() - before) / MIB);
	join_at(daemon_.socket, "bench");
	size_t total = 0;
	CU(cuda->cuDeviceTotalMem(&total, 0));
	bool large = total > 8192 * MIB;
	if (large)
		from_the_pool(1024 * MIB, "1 GiB", 800);
	from_the_pool(64 * MIB, "64 MiB", 300);
	if (large) {
		/* The only chunk of that size is in use, so the pooled 64 MiB are used for a
		 * part. */
		gpumem_buffer *held;
		OK(gpumem_buffer_create(session, 0, 1024 * MIB, NULL, &held));
		from_the_pool(1024 * MIB, "1 GiB in five chunks", 800);
		gpumem_buffer_destroy(held);
	}
	from_the_cache();
	free_while_busy();
	hit_beside_misses(&other);
	gpumem_disconnect(session);
	gm_text_say_word(other.channel, 'e');
	gm_worker_join(&other);
	gm_daemon_stop(&daemon_);
	return 0;
}
