/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A program under gpumem-run, beside the same program on the plain driver, by turns:
 *   - a call that the preloaded library hands on to the driver;
 *   - a pair of cuMemAlloc and cuMemFree of 2 MiB, with nothing to wait for, in a context without a stream of its own and
 *     in one with a stream; and how much of it is the wait for the context, which the driver's own pair has as well;
 *   - a pair of cuMemAllocAsync and cuMemFreeAsync of 2 MiB on a stream;
 *   - the start of a program that does not use CUDA, and of gpumem-run itself.
 * A core may be half as fast for seconds, because its sibling is busy or its clock is low. The driver's pair, which the kernel takes
 * part in, slows down less than ours. So each turn also measures the pace of its core by a loop of its own. The ratios are of the
 * turns at full pace, and the line below them is of all others.
 * Needs a GPU. The fake driver is enough to try it out; it frees memory on a stream more slowly than a real one.
 */

#include <stdio.h>

#include "bench/measure.h"
#include "tests/gpu/preload_fixture.h"

#define TURNS  15
#define PAIRS  2000
#define IN_ONE 10 /* that are timed together, since to read the clock takes 27 ns */
#define STARTS 31

enum figure {
	HANDED_ON,
	PAIR,
	PAIR_STREAM, /* with a stream in the context */
	WAIT,        /* as a pair of ours waits */
	WAIT_STREAM,
	ASYNC,
	PACE, /* of the core: the slower one of before and after, in ns */
	FIGURES
};

/* ---- the program that is measured */

struct calls {
	gm_cu_result (*init)(unsigned int);
	gm_cu_result (*retain)(gm_cu_ctx *, gm_cu_device);
	gm_cu_result (*set_current)(gm_cu_ctx);
	gm_cu_result (*alloc)(gm_cu_ptr *, size_t);
	gm_cu_result (*release)(gm_cu_ptr);
	gm_cu_result (*alloc_async)(gm_cu_ptr *, size_t, gm_cu_stream);
	gm_cu_result (*free_async)(gm_cu_ptr, gm_cu_stream);
	gm_cu_result (*stream_create)(gm_cu_stream *, unsigned int);
	gm_cu_result (*synchronize)(gm_cu_stream);
	gm_cu_result (*wait)(void);
	gm_cu_result (*wait_for)(gm_cu_ctx); /* NULL: a driver before CUDA 13 */
};

static void *find(const char *symbol)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *fn;
	if (!library)
		GM_FAIL("no driver: %s", dlerror());
	fn = dlsym(library, symbol);
	if (!fn)
		GM_FAIL("the driver has no %s", symbol);
	return fn;
}

static struct calls find_calls(void)
{
	struct calls c;
	*(void **)&c.init = find("cuInit");
	*(void **)&c.retain = find("cuDevicePrimaryCtxRetain");
	*(void **)&c.set_current = find("cuCtxSetCurrent");
	*(void **)&c.alloc = find("cuMemAlloc_v2");
	*(void **)&c.release = find("cuMemFree_v2");
	*(void **)&c.alloc_async = find("cuMemAllocAsync");
	*(void **)&c.free_async = find("cuMemFreeAsync");
	*(void **)&c.stream_create = find("cuStreamCreate");
	*(void **)&c.synchronize = find("cuStreamSynchronize");
	*(void **)&c.wait = find("cuCtxSynchronize");
	*(void **)&c.wait_for = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSynchronize_v2");
	return c;
}

#define DO(call) GM_REQUIRE_EQ(call, GM_CUDA_SUCCESS)

/* The median time of one of many, in ns. */
#define MEASURE(n, inner, code) \
	({ \
		static double samples_[n]; \
		for (int i_ = -10; i_ < (n); i_++) { \
			uint64_t start_ = gm_monotonic_ns(); \
			for (int j_ = 0; j_ < (inner); j_++) \
				code; \
			if (i_ >= 0) \
				samples_[i_] = (double)(gm_monotonic_ns() - start_) / (inner); \
		} \
		gm_median(samples_, n); \
	})

/* Measures a pair, and apart from it how long cuCtxSynchronize() takes, which cuMemFree() calls. */
static void measure_pair(const struct calls *c, gm_cu_ctx ctx, double *ret_pair, double *ret_wait)
{
	gm_cu_ptr ptr;

	*ret_pair = MEASURE(PAIRS / IN_ONE, IN_ONE, {
		DO(c->alloc(&ptr, 2 * MIB));
		DO(c->release(ptr));
	});
	*ret_wait = MEASURE(PAIRS / IN_ONE, IN_ONE, DO(c->wait_for ? c->wait_for(ctx) : c->wait()));
}

/* Work for all of a core, which a sibling would get its part of. */
static double measure_pace(void)
{
	uint64_t words[1024], a = 1, b = 2, c = 3, d = 4;

	memset(words, 5, sizeof words);
	return MEASURE(200, 1, {
		for (size_t i = 0; i < 1024; i += 4) {
			a = (a ^ words[i]) * 3;
			b = (b ^ words[i + 1]) * 5;
			c = (c ^ words[i + 2]) * 7;
			d = (d ^ words[i + 3]) * 9;
		}
		__asm__ volatile("" : : "r"(a + b + c + d));
	});
}

static int measured(void)
{
	struct calls c = find_calls();
	double figures[FIGURES];
	gm_cu_stream stream;
	gm_cu_ctx ctx;
	gm_cu_ptr ptr;

	DO(c.init(0));
	DO(c.retain(&ctx, 0));
	DO(c.set_current(ctx));
	DO(c.alloc(&ptr, 2 * MIB));
	DO(c.release(ptr));

	double before = measure_pace();
	/* Freeing nothing: the library looks at the pointer and hands the call on. */
	figures[HANDED_ON] = MEASURE(PAIRS, 100, DO(c.release(0)));
	measure_pair(&c, ctx, &figures[PAIR], &figures[WAIT]);
	DO(c.stream_create(&stream, GM_CU_STREAM_NON_BLOCKING));
	measure_pair(&c, ctx, &figures[PAIR_STREAM], &figures[WAIT_STREAM]);
	figures[ASYNC] = MEASURE(PAIRS / IN_ONE, IN_ONE, {
		DO(c.alloc_async(&ptr, 2 * MIB, stream));
		DO(c.free_async(ptr, stream));
	});
	DO(c.synchronize(stream));
	double after = measure_pace();
	figures[PACE] = before > after ? before : after;
	gm_text_say(ACTOR_CHANNEL, figures, sizeof figures);
	return 0;
}

/* ---- the turns */

struct turn {
	bool under;          /* gpumem-run */
	const char *program; /* NULL: this one */
};

static void take_turn(int channel, void *argument)
{
	const struct turn *turn = argument;
	char run[512], preload[512], self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	GM_REQUIRE(n > 0);
	self[n] = 0;

	built(run, "run", "gpumem-run");
	built(preload, "preload", "libgpumem-preload.so");
	prepare_program(channel);
	setenv("GPUMEM_PRELOAD", preload, 1);
	setenv("GPUMEM_SOCKET", daemon_.socket, 1);
	const char *program = turn->program ? turn->program : self;
	if (turn->under)
		execl(run, run, "--", program, "measured", (char *)NULL);
	else
		execl(program, program, "measured", (char *)NULL);
	GM_FAIL("cannot run %s: %s", program, strerror(errno));
}

/* Prints how much of a pair the driver waits, and how much the library takes itself. */
static void print_wait(double pair, double wait)
{
	printf("    (%.0f ns of it wait for the context; without that %.0f ns)\n", wait,
		pair - wait);
}

/* The figures of all turns of a kind. */
struct turns {
	double of[TURNS][FIGURES];
};

static void take_turns(struct turns *plain, struct turns *under)
{
	for (int i = 0; i < TURNS; i++)
		for (int k = 0; k < 2; k++) {
			struct turn turn = {.under = k};
			struct turns *turns = k ? under : plain;
			struct gm_worker worker;
			gm_worker_start(&worker, take_turn, &turn);
			gm_hear(worker.channel, turns->of[i], sizeof turns->of[i]);
			gm_worker_join(&worker);
		}
}

static double best_pace(const struct turns *turns)
{
	double best = turns->of[0][PACE];
	for (int i = 1; i < TURNS; i++)
		if (turns->of[i][PACE] < best)
			best = turns->of[i][PACE];
	return best;
}

/* The median of a figure in the turns whose pace is at least as quick as that, or, if not wanted, in the others; 0: there are none. */
static double median_at(const struct turns *turns, double pace, bool quick, enum figure figure)
{
	double values[TURNS];
	size_t n = 0;

	for (int i = 0; i < TURNS; i++)
		if ((turns->of[i][PACE] <= pace) == quick)
			values[n++] = turns->of[i][figure];
	return n ? gm_median(values, n) : 0;
}

static int count_at(const struct turns *turns, double pace)
{
	int n = 0;
	for (int i = 0; i < TURNS; i++)
		n += turns->of[i][PACE] <= pace;
	return n;
}

/* The pair without the wait for the context, and what came of it on slow cores. */
static void print_pair(const struct turns *plain, const struct turns *under, double pace,
	enum figure pair, enum figure wait)
{
	double slow = median_at(under, pace, false, pair),
	       peer = median_at(plain, pace, false, pair);

	gm_print_ratio(pair == PAIR ? "cuMemAlloc + cuMemFree, 2 MiB; peer: the plain driver"
				    : "the same with a stream in the context",
		median_at(under, pace, true, pair), median_at(plain, pace, true, pair), "ns", 0.01);
	print_wait(median_at(under, pace, true, pair), median_at(under, pace, true, wait));
	printf("    (%.2f%%",
		100 * median_at(under, pace, true, pair) / median_at(plain, pace, true, pair));
	if (slow > 0 && peer > 0)
		printf("; on slower cores %.0f of %.0f ns, %.2f%%", slow, peer, 100 * slow / peer);
	printf(")\n");
}

static void compare_calls(void)
{
	struct turns plain, under;
	take_turns(&plain, &under);
	double a = best_pace(&plain), b = best_pace(&under), pace = 1.15 * (a > b ? a : b);

	printf("  at full pace: %d of %d turns, and %d of %d of the peer\n", count_at(&under, pace),
		TURNS, count_at(&plain, pace), TURNS);
	double p = median_at(&plain, pace, true, HANDED_ON),
	       u = median_at(&under, pace, true, HANDED_ON);
	gm_print_ratio("cuMemFree(0), handed on; peer: the plain driver", u, p, "ns", -1);
	printf("    (%.1f ns more; asked: at most 20)\n", u - p);
	print_pair(&plain, &under, pace, PAIR, WAIT);
	print_pair(&plain, &under, pace, PAIR_STREAM, WAIT_STREAM);
	gm_print_ratio("cuMemAllocAsync + cuMemFreeAsync, 2 MiB; peer: the plain driver",
		median_at(&under, pace, true, ASYNC), median_at(&plain, pace, true, ASYNC), "ns",
		1);
}

static void compare_starts(void)
{
	double plain[STARTS], under[STARTS];

	for (int i = -1; i < STARTS; i++)
		for (int k = 0; k < 2; k++) {
			struct turn turn = {.under = k, .program = "/bin/true"};
			uint64_t start = gm_monotonic_ns();
			one_worker(take_turn, &turn);
			if (i >= 0)
				(k ? under : plain)[i] = (double)(gm_monotonic_ns() - start) / 1e6;
		}
	double p = gm_median(plain, STARTS), u = gm_median(under, STARTS);
	gm_print_ratio("start and end of true; peer: without gpumem-run", u, p, "ms", -1);
	printf("    (%.2f ms more; asked: at most 5)\n", u - p);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "measured") == 0)
		return measured();

	gm_print_title("gpumem-run");
	start_with(CONFIG(""));
	compare_calls();
	compare_starts();
	tear_down();
	return 0;
}
