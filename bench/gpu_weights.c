/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Weights that stay:
 *   - loading a model from a file in the page cache, from its path to its name. The peer is the staged copy of as many
 *     bytes from memory into a buffer that is there already;
 *   - attaching to a model of 300 tensors in another process, from the name to all pointers.
 *
 * gpu_weights [LOAD_MIB [ATTACH_MIB]]: the sizes of the models, 2048 and 16384 on a large GPU. The second one is a file
 * with a hole, which needs no disk. The fake driver is enough to try it out, with less memory and other figures.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu_look.h"
#include "bench/measure.h"
#include "gpumem/gpumem_weights.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"
#include "tests/scratch.h"
#include "tests/unit/weights/model_writer.h"

#define ROUNDS  7
#define TENSORS 300
#define NAME    "weights"
/* The goal for gpumem_weights_attach(): so much, and so much for each tensor. */
#define ASKED_MS         8
#define ASKED_US_EACH    20
#define ASKED_LOAD_SHARE 0.9

static struct gm_daemon daemon_;

struct weighing {
	uint64_t load_bytes, attach_bytes; /* of one tensor */
	char path[256];
};

static double since_s(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1e9;
}

/* Writes a model of equal tensors. hole: its data is not written. */
static void write_model(const char *path, uint64_t each, bool hole)
{
	char *header = model_header("model.layers.mlp.weight.", TENSORS, each);
	int fd = model_create(path);
	size_t n = strlen(header);
	uint8_t *piece = malloc(4 * MIB);

	GM_REQUIRE(piece);
	memset(piece, 0x5a, 4 * MIB);
	model_put(fd, n, header, n, 0, 0);
	GM_REQUIRE(ftruncate(fd, (off_t)(8 + n + TENSORS * each)) == 0);
	for (uint64_t at = 0; !hole && at < TENSORS * each;) {
		uint64_t left = TENSORS * each - at;
		ssize_t r = pwrite(fd, piece, left < 4 * MIB ? left : 4 * MIB, (off_t)(8 + n + at));

		GM_REQUIRE(r > 0);
		at += (uint64_t)r;
	}
	free(piece);
	free(header);
	close(fd);
}

/* ---- loading */

static void loader(int channel, void *argument)
{
	const struct weighing *weighing = argument;
	uint64_t bytes = TENSORS * weighing->load_bytes;
	double ours[ROUNDS], theirs[ROUNDS];
	gpumem_buffer *buffer;
	uint8_t *memory = malloc(bytes);

	GM_REQUIRE(memory);
	memset(memory, 1, bytes);
	join_at(daemon_.socket, "loader");
	use_gpu();
	OK(gpumem_buffer_create(session, 0, bytes, NULL, &buffer));
	for (int i = -1; i < ROUNDS; i++) {
		uint64_t start = gm_monotonic_ns();
		OK(gpumem_copy_in(buffer, 0, memory, bytes, GPUMEM_STREAM_DONE, NULL, NULL));
		double copy = since_s(start);

		start = gm_monotonic_ns();
		OK(gpumem_weights_load(session, 0, weighing->path, NAME, NULL, NULL));
		double load = since_s(start);
		OK(gpumem_weights_remove(session, NAME));
		OK(gpumem_trim(session, NULL));
		if (i < 0)
			continue; /* the first round reads the file into the cache */
		ours[i] = (double)bytes / load / 1e9;
		theirs[i] = (double)bytes / copy / 1e9;
	}
	char text[96];
	snprintf(text, sizeof(text), "load %.2f GiB from the page cache; peer: the staged copy",
		(double)bytes / (1024 * MIB));
	gm_print_speed(
		text, gm_median(ours, ROUNDS), gm_median(theirs, ROUNDS), "GB/s", ASKED_LOAD_SHARE);
	fflush(stdout);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	free(memory);
}

/* ---- attaching */

static void publisher(int channel, void *argument)
{
	const struct weighing *weighing = argument;

	join_at(daemon_.socket, "publisher");
	OK(gpumem_weights_load(session, 0, weighing->path, NAME, NULL, NULL));
	gpumem_disconnect(session);
}

static void attacher(int channel, void *argument)
{
	const struct weighing *weighing = argument;
	double ours[ROUNDS], theirs[ROUNDS];
	char text[96];

	join_at(daemon_.socket, "attacher");
	use_gpu();
	for (int i = -2; i < ROUNDS; i++) {
		gpumem_weights *weights;
		gpumem_buffer *buffer;
		uint64_t start = gm_monotonic_ns();

		OK(gpumem_weights_attach(session, NAME, 0, &weights));
		double a = since_s(start);
		GM_REQUIRE_EQ(gpumem_weights_count(weights), TENSORS);
		gpumem_weights_detach(weights);
		OK(gpumem_trim(session, NULL));

		start = gm_monotonic_ns();
		OK(gpumem_attach(session, NAME, &buffer));
		double b = since_s(start);
		gpumem_buffer_destroy(buffer);
		OK(gpumem_trim(session, NULL));
		if (i < 0)
			continue;
		ours[i] = a * 1e3, theirs[i] = b * 1e3;
	}
	snprintf(text, sizeof(text), "attach to %.1f GiB in %d tensors; peer: the buffer alone",
		(double)(TENSORS * weighing->attach_bytes) / (1024 * MIB), TENSORS);
	gm_print_ratio(text, gm_median(ours, ROUNDS), gm_median(theirs, ROUNDS), "ms", -1);
	printf("    (asked for 16 GiB: at most %.1f ms)\n",
		ASKED_MS + TENSORS * ASKED_US_EACH / 1e3);
	fflush(stdout);
	OK(gpumem_weights_remove(session, NAME));
	gpumem_disconnect(session);
}

/* So many MiB in all, as bytes of one tensor that keep all of them aligned. */
static uint64_t each_of(uint64_t mib)
{
	return mib * MIB / TENSORS & ~(uint64_t)(GPUMEM_WEIGHTS_ALIGNMENT - 1);
}

int main(int argc, char **argv)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	static const char config[] = "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\n"
				     "host_limit = 512M\nmax_pool = 100%\ntrack = off\n";
	struct weighing weighing;

	gm_print_title("Weights that stay: loading them, and attaching to them");
	fflush(stdout);
	size_t total = gpu_look();
	if (!total)
		return 0;
	bool real = total > 24576 * MIB;
	weighing.load_bytes = each_of(argc > 1 ? strtoull(argv[1], NULL, 10) : real ? 2048 : 32);
	weighing.attach_bytes = each_of(argc > 2 ? strtoull(argv[2], NULL, 10) : real ? 16384 : 64);

	gm_scratch_path("model", weighing.path, sizeof(weighing.path));
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .args = args});
	write_model(weighing.path, weighing.load_bytes, false);
	one_worker(loader, &weighing);
	write_model(weighing.path, weighing.attach_bytes, true);
	one_worker(publisher, &weighing);
	one_worker(attacher, &weighing);
	gm_daemon_stop(&daemon_);
	return 0;
}
