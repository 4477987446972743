/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The arena heap alone, without a session. Measures a warm pair of alloc and free in nanoseconds,
 * compared with malloc() and free() of the same size, in one thread and beside others. Then measures
 * packing: the most memory that was held, compared with the most that was in use, in made-up traces
 * that resemble training and serving.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure.h"
#include "client/heap/arena.h"
#include "tests/unit/heap/heap_world.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)
#define GIB    (KIB * MIB)
#define GROUP  64
#define GROUPS 2000
#define ROUNDS 7

static struct world *world;
static struct gm_arena *arena;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "bench/heap: %s\n", what);
	exit(1);
}

static void begin(bool streams, uint64_t capacity)
{
	world = malloc(sizeof(*world));
	if (!world)
		die("out of memory");
	world_init(world, streams, capacity);
	world->reserve_max = UINT64_C(1) << 40;
	arena = world_arena(world, 1000000000);
}

static void end(void)
{
	gm_arena_free(arena);
	world_deinit(world);
	free(world);
}

/* ---- time */

static gpumem_stream alloc_stream, free_stream;

static void ours(size_t size)
{
	void *p;
	if (gm_arena_alloc(arena, size, 0, alloc_stream, 0, NULL, &p, NULL) ||
		gm_arena_dealloc(arena, p, free_stream, NULL))
		die("alloc or free failed");
}

static void theirs(size_t size)
{
	/* volatile, so that the compiler does not remove the pair. */
	void *volatile p = malloc(size);
	if (!p)
		die("malloc failed");
	free(p);
}

static double p50_ns(void (*pair)(size_t size), size_t size)
{
	double samples[GROUPS];
	for (size_t i = 0; i < GROUPS; i++) {
		uint64_t start = now_ns();
		for (size_t k = 0; k < GROUP; k++)
			pair(size);
		samples[i] = (double)(now_ns() - start) / GROUP;
	}
	return gm_percentile(samples, GROUPS, 50);
}

static void compare(const char *name, size_t size)
{
	double a[ROUNDS], b[ROUNDS];
	p50_ns(ours, size);
	for (size_t r = 0; r < ROUNDS; r++) {
		a[r] = p50_ns(ours, size);
		b[r] = p50_ns(theirs, size);
	}
	gm_print_ratio(name, gm_median(a, ROUNDS), gm_median(b, ROUNDS), "ns", -1);
}

static _Atomic bool stop;

static void *churn(void *size)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		ours(*(size_t *)size);
	return NULL;
}

/* The same while other threads do it, too. malloc() has no company. */
static void compare_beside(const char *name, size_t size, size_t others)
{
	pthread_t *threads = calloc(others, sizeof(*threads));

	if (!threads)
		die("out of memory");
	atomic_store(&stop, false);
	for (size_t i = 0; i < others; i++)
		if (pthread_create(&threads[i], NULL, churn, &size))
			die("pthread_create failed");
	compare(name, size);
	atomic_store(&stop, true);
	for (size_t i = 0; i < others; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

static void time_pairs(void)
{
	static const size_t sizes[] = {512, 4096, 32768, 65536, 1 << 20, 64 << 20};
	static const char *const names[] = {
		"512 B", "4 KiB", "32 KiB", "64 KiB", "1 MiB", "64 MiB"};

	begin(false, 4 * GIB);
	alloc_stream = free_stream = GPUMEM_STREAM_ANY;
	gm_print_title("the heap alone: alloc and free, warm, one thread, against malloc and free");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		compare(names[s], sizes[s]);
	for (size_t others = 1; others < (size_t)sysconf(_SC_NPROCESSORS_ONLN);
		others = 2 * others + 1) {
		char title[100];
		snprintf(title, sizeof(title), "the same while %zu other thread%s %s it too",
			others, others == 1 ? "" : "s", others == 1 ? "does" : "do");
		gm_print_title(title);
		for (size_t s = 1; s < sizeof(sizes) / sizeof(sizes[0]); s += 2)
			compare_beside(names[s], sizes[s], others);
	}
	end();

	begin(true, 4 * GIB);
	gm_print_title("on a backend with streams, reused on the default stream");
	alloc_stream = free_stream = NULL;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s += 2)
		compare(names[s], sizes[s]);
	gm_print_title("the same, freed and asked for on any stream: events are recorded");
	alloc_stream = free_stream = GPUMEM_STREAM_ANY;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s += 2)
		compare(names[s], sizes[s]);
	end();
}

/* ---- packing */

struct trace {
	unsigned seed;
	uint64_t in_use, peak, held, allocs;
};

static struct trace t;

static uint64_t below(uint64_t n)
{
	return (((uint64_t)rand_r(&t.seed) << 31) ^ (uint64_t)rand_r(&t.seed)) % n;
}

static void *get(uint64_t size)
{
	void *p = NULL;
	if (gm_arena_alloc(arena, size, 0, NULL, 0, NULL, &p, NULL))
		die("the trace ran out of memory");
	t.in_use += size;
	t.allocs++;
	if (t.in_use > t.peak)
		t.peak = t.in_use;
	if (world->granted > t.held)
		t.held = world->granted;
	return p;
}

static void put(void *p, uint64_t size)
{
	if (gm_arena_dealloc(arena, p, NULL, NULL))
		die("a free failed");
	t.in_use -= size;
}

struct piece {
	void *p;
	uint64_t size;
};

static struct piece piece(uint64_t size)
{
	/* PyTorch asks for multiples of 512. */
	size = (size + 511) & ~UINT64_C(511);
	return (struct piece){get(size), size};
}

static void drop(struct piece *piece_)
{
	put(piece_->p, piece_->size);
	piece_->p = NULL;
}

/*
 * Training a transformer. Parameters and optimizer state live for good, activations from the
 * forward to the backward pass, workspaces for one operation, gradients until the end of the step.
 * If vary is true, every step has another sequence length.
 */
static void train(unsigned layers, uint64_t hidden, uint64_t batch, uint64_t length, bool vary,
	unsigned steps)
{
	enum { PER_LAYER = 8, WEIGHTS = 6 };
	struct piece *weights = calloc(layers * WEIGHTS * 3, sizeof(*weights));
	struct piece *grads = calloc(layers * WEIGHTS, sizeof(*grads));
	struct piece *acts = calloc(layers * PER_LAYER, sizeof(*acts));
	static const unsigned width[PER_LAYER] = {1, 3, 1, 1, 4, 4, 1, 1};
	static const unsigned square[WEIGHTS] = {3, 1, 4, 4, 0, 0};

	if (!weights || !grads || !acts)
		die("out of memory");
	for (unsigned i = 0; i < layers * WEIGHTS; i++) {
		uint64_t n = square[i % WEIGHTS] ? square[i % WEIGHTS] * hidden * hidden : hidden;
		weights[i] = piece(2 * n);
	}
	for (unsigned step = 0; step < steps; step++) {
		uint64_t tokens = batch * (vary ? length / 4 + below(length * 3 / 4) : length);
		struct piece inputs = piece(tokens * 8), logits;
		for (unsigned l = 0; l < layers; l++) {
			for (unsigned i = 0; i < PER_LAYER; i++) {
				struct piece work = piece(tokens * 4 * (1 + below(hidden)));
				acts[l * PER_LAYER + i] = piece(tokens * hidden * 2 * width[i]);
				struct piece scalar = piece(4 + below(2000));
				drop(&work);
				drop(&scalar);
			}
		}
		logits = piece(tokens * 32000 * 2);
		for (unsigned l = layers; l-- > 0;) {
			struct piece flow = piece(tokens * hidden * 2);
			for (unsigned i = PER_LAYER; i-- > 0;) {
				struct piece grad = piece(tokens * hidden * 2 * width[i]);
				struct piece work = piece(tokens * (1 + below(hidden)));
				if (i < WEIGHTS && !grads[l * WEIGHTS + i].p)
					grads[l * WEIGHTS + i] =
						piece(weights[l * WEIGHTS + i].size);
				drop(&acts[l * PER_LAYER + i]);
				drop(&work);
				drop(&grad);
			}
			drop(&flow);
		}
		drop(&logits);
		for (unsigned i = 0; i < layers * WEIGHTS; i++) {
			/* The optimizer's two moments of each weight are made in the first step. */
			if (step == 0) {
				weights[layers * WEIGHTS + i] = piece(weights[i].size * 2);
				weights[layers * WEIGHTS * 2 + i] = piece(weights[i].size * 2);
			}
			struct piece work = piece(weights[i].size * 2);
			drop(&work);
			drop(&grads[i]);
		}
		drop(&inputs);
	}
	for (unsigned i = 0; i < layers * WEIGHTS * 3; i++)
		drop(&weights[i]);
	free(weights);
	free(grads);
	free(acts);
}

static void train_even(void)
{
	train(24, 2048, 8, 1024, false, 6);
}

static void train_uneven(void)
{
	train(24, 2048, 8, 1024, true, 20);
}

static void train_small(void)
{
	train(6, 512, 8, 256, true, 30);
}

/* Serving. Requests come and go; each has a cache that grows with its text. All of them share the
 * workspaces of a step. */
static void serve(void)
{
	enum { REQUESTS = 48, BLOCKS = 64 };
	static struct piece caches[REQUESTS][BLOCKS];
	static unsigned used[REQUESTS], wanted[REQUESTS];
	struct piece weights[200];

	memset(caches, 0, sizeof(caches));
	memset(used, 0, sizeof(used));
	memset(wanted, 0, sizeof(wanted));
	for (unsigned i = 0; i < 200; i++)
		weights[i] = piece(i % 2 ? 32 * MIB : 8 * MIB + below(MIB));
	for (unsigned step = 0; step < 3000; step++) {
		uint64_t tokens = 0;
		for (unsigned r = 0; r < REQUESTS; r++) {
			if (!wanted[r]) {
				if (below(8))
					continue;
				/* Prefill: the first part of the cache comes at once. */
				wanted[r] = 4 + (unsigned)below(BLOCKS - 4);
				caches[r][0] = piece(2 * MIB + below(30 * MIB));
				used[r] = 1;
				tokens += caches[r][0].size / (64 * KIB);
			} else if (used[r] < wanted[r]) {
				tokens++;
				if (below(4) == 0)
					caches[r][used[r]++] = piece(MIB + below(64) * 32 * KIB);
			} else {
				while (used[r])
					drop(&caches[r][--used[r]]);
				wanted[r] = 0;
			}
		}
		for (unsigned l = 0; l < 8; l++) {
			struct piece a = piece((tokens + 1) * 64 * KIB), b = piece(tokens + 100);
			struct piece c = piece((tokens + 1) * (16 * KIB + below(16 * KIB)));
			drop(&a);
			drop(&b);
			drop(&c);
		}
	}
	for (unsigned r = 0; r < REQUESTS; r++) {
		while (used[r])
			drop(&caches[r][--used[r]]);
	}
	for (unsigned i = 0; i < 200; i++)
		drop(&weights[i]);
}

/* Sizes over six orders of magnitude. Most are freed in the reverse order of allocation. */
static void nested(void)
{
	enum { MAX = 20000 };
	static struct piece stack[MAX];
	unsigned n = 0;

	for (unsigned step = 0; step < 60000; step++) {
		bool up = step / 3000 % 2 == 0;
		if (n < MAX && below(100) < (up ? 60u : 40u)) {
			uint64_t size = UINT64_C(512) << below(17);
			stack[n++] = piece(size + below(size));
		} else if (n) {
			unsigned i = below(10) ? n - 1 : (unsigned)below(n);
			drop(&stack[i]);
			stack[i] = stack[--n];
		}
	}
	while (n)
		drop(&stack[--n]);
}

static void pack(const char *name, void (*trace)(void))
{
	char line[128];
	struct gm_arena_stats stats;

	begin(false, 512 * GIB);
	memset(&t, 0, sizeof(t));
	t.seed = 1;
	trace();
	gm_arena_stats(arena, &stats);
	snprintf(line, sizeof(line), "%s (%llu allocs, %.0f%% hits, %llu chunks moved)", name,
		(unsigned long long)t.allocs,
		100.0 * (double)stats.hits / (double)(stats.hits + stats.misses),
		(unsigned long long)stats.moves);
	gm_print_ratio(line, (double)t.held / (double)MIB, (double)t.peak / (double)MIB, "MiB",
		t.peak >= GIB ? 1.05 : -1);
	end();
}

int main(int argc, char **argv)
{
	/* Only the packing is independent of the machine. */
	if (argc < 2 || strcmp(argv[1], "pack"))
		time_pairs();
	gm_print_title("packing: the most that was held, against the most that was asked for");
	pack("training, even steps", train_even);
	pack("training, sequences of any length", train_uneven);
	pack("training, a small model", train_small);
	pack("serving", serve);
	pack("nested, sizes of all kinds", nested);
	return 0;
}
