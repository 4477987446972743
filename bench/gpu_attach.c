/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Attaching to published weights: 16 GiB that another process made, from the name to a usable pointer.
 * The peer is what nobody can avoid: the driver's own calls for the same chunks. They are measured in
 * chunks of 1 GiB, which is how so much is created, and in chunks of 256 MiB, which are the smallest that
 * the pool gives to a buffer of this size.
 * Needs a GPU with 20 GiB free for the full size. The fake driver is enough to try it out.
 */

#include <stdio.h>

#include "bench/gpu_look.h"
#include "bench/measure.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define ROUNDS   21
#define NAME     "weights"
#define ASKED_MS 8

static struct gm_daemon daemon_;

struct making {
	uint64_t bytes;
	uint64_t
		pieces; /* the pool is filled with so many first, which the buffer is made of; 0: none */
};

static double since_ms(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1e6;
}

/* ---- the process that publishes */

static void fill_pool(const struct making *making)
{
	gpumem_buffer **piece = calloc(making->pieces + 1, sizeof(*piece));
	GM_REQUIRE(piece);
	for (uint64_t i = 0; i < making->pieces; i++)
		OK(gpumem_buffer_create(
			session, 0, making->bytes / making->pieces, NULL, &piece[i]));
	for (uint64_t i = 0; i < making->pieces; i++)
		gpumem_buffer_destroy(piece[i]);
	free(piece);
	/* So that they are in the pool, and no longer on their way. */
	OK(gpumem_trim(session, NULL));
}

static void maker(int channel, void *argument)
{
	const struct making *making = argument;
	gpumem_buffer *buffer;
	uint64_t bytes = making->bytes;

	join_at(daemon_.socket, "maker");
	use_gpu();
	fill_pool(making);
	OK(gpumem_buffer_create(session, 0, bytes, NULL, &buffer));
	fill(gpumem_buffer_ptr(buffer), bytes, 0x77, NULL);
	OK(gpumem_publish(buffer, NAME, NULL, NULL, NULL));
	gpumem_buffer_destroy(buffer);
	gm_text_say_word(channel, 'p');
	gm_hear_word(channel, 'e');
	OK(gpumem_unpublish(session, NAME));
	gpumem_disconnect(session);
}

/* ---- the process that attaches */

static double attach_ms(uint64_t bytes)
{
	gpumem_buffer *buffer;
	uint64_t start = gm_monotonic_ns();

	OK(gpumem_attach(session, NAME, &buffer));
	double ms = since_ms(start);
	GM_REQUIRE(all((uint8_t *)gpumem_buffer_ptr(buffer) + bytes - MIB, MIB, 0x77, NULL));
	gpumem_buffer_destroy(buffer);
	/* The library's thread unmaps it: not during the next round. */
	OK(gpumem_trim(session, NULL));
	return ms;
}

/* The driver's calls for the same chunks. */
static double driver_ms(const struct gm_raw_lease *lease)
{
	gm_cu_access access = {.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE},
		.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	gm_cu_ptr at, place;
	uint64_t start = gm_monotonic_ns();

	CU(cuda->cuMemAddressReserve(&at, lease->bytes, GM_CHUNK_MIN, 0, 0));
	place = at;
	for (size_t i = 0; i < lease->n; i++) {
		gm_cu_mem mem;
		CU(cuda->cuMemImportFromShareableHandle(&mem, (void *)(intptr_t)lease->chunks[i].fd,
			GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		CU(cuda->cuMemMap(place, lease->chunks[i].bytes, 0, mem, 0));
		CU(cuda->cuMemRelease(mem));
		place += lease->chunks[i].bytes;
	}
	CU(cuda->cuMemSetAccess(at, lease->bytes, &access, 1));
	double ms = since_ms(start);
	CU(cuda->cuMemUnmap(at, lease->bytes));
	CU(cuda->cuMemAddressFree(at, lease->bytes));
	return ms;
}

static void print_chunks(const struct gm_raw_lease *lease, bool full)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (size_t i = 0; i < lease->n; i++) {
		uint64_t bytes = lease->chunks[i].bytes;
		least = bytes < least ? bytes : least;
		most = bytes > most ? bytes : most;
	}
	printf("    (%zu chunks of %llu to %llu MiB", lease->n, (unsigned long long)(least / MIB),
		(unsigned long long)(most / MIB));
	if (full)
		printf("; asked: at most %d ms, in chunks of 256 MiB and more", ASKED_MS);
	printf(")\n");
	GM_REQUIRE(!full || least >= 256 * MIB);
}

static void attacher(int channel, void *argument)
{
	const struct making *making = argument;
	double ours[ROUNDS], theirs[ROUNDS];
	struct gm_raw_lease lease;
	struct gm_raw raw;
	char text[96];

	join_at(daemon_.socket, "attacher");
	use_gpu();
	gm_raw_join(&raw, &daemon_);
	OK(gm_raw_attach(&raw, (uid_t)-1, NAME, &lease));
	for (int i = -2; i < ROUNDS; i++) {
		double a = attach_ms(making->bytes), b = driver_ms(&lease);
		if (i < 0)
			continue; /* the first ones start the driver's parts */
		ours[i] = a, theirs[i] = b;
	}
	snprintf(text, sizeof(text), "attach to %.1f GiB; peer: the driver's calls",
		(double)making->bytes / (1024 * MIB));
	gm_print_ratio(text, gm_median(ours, ROUNDS), gm_median(theirs, ROUNDS), "ms", -1);
	print_chunks(&lease, making->bytes == 16384 * MIB);
	fflush(stdout);
	OK(gm_raw_give_back(&raw, &lease));
	gm_raw_close(&raw);
	gpumem_disconnect(session);
}

/* With a daemon of its own, whose pool is empty. */
static void measure(struct making making)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	static const char config[] =
		"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\ntrack = off\n";
	struct gm_worker worker;

	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .args = args});
	gm_worker_start(&worker, maker, &making);
	gm_hear_word(worker.channel, 'p');
	one_worker(attacher, &making);
	end_worker(&worker);
	gm_daemon_stop(&daemon_);
}

int main(void)
{
	gm_print_title("Attaching to published weights");
	fflush(stdout);
	size_t total = gpu_look();
	if (!total)
		return 0;
	uint64_t bytes = total > 20480 * MIB ? 16384 * MIB : 64 * MIB;
	if (bytes < 16384 * MIB)
		printf("  the device has less than 20 GiB, so this is only a trial\n");
	fflush(stdout);

	measure((struct making){.bytes = bytes});
	measure((struct making){.bytes = bytes, .pieces = 64});
	return 0;
}
