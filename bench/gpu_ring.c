/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A question to a kernel that runs, and its answer, through a ring, compared with a kernel that is launched
 * for each question and reads and writes the same pinned memory: how long one takes there and back,
 * and how many pass with many under way. Needs a GPU. On the fake driver, which has no kernels, a thread
 * answers, and there is no peer: enough to try the program out.
 */

#include <pthread.h>
#include <stdio.h>

#include "bench/measure.h"
#include "examples/ring_kernel.h"
#include "examples/ring_kernel.ptx.h"
#include "gpumem/gpumem_ring.h"
#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define ROUNDS  11
#define TRIPS   5000
#define STREAM  200000
#define AT_ONCE 256

static struct gm_daemon daemon_;

/* One question, one answer, in place. */
static const char square_text[] = ".version 6.0\n"
				  ".target sm_70\n"
				  ".address_size 64\n"
				  ".visible .entry square(.param .u64 where)\n"
				  "{\n"
				  "	.reg .b64 %w;\n"
				  "	.reg .f64 %x;\n"
				  "	ld.param.u64 %w, [where];\n"
				  "	ld.global.f64 %x, [%w+8];\n"
				  "	mul.f64 %x, %x, %x;\n"
				  "	st.global.f64 [%w+8], %x;\n"
				  "	ret;\n"
				  "}\n";

struct kernels {
	gm_cu_result (*load)(void **module, const void *image);
	gm_cu_result (*find)(void **function, void *module, const char *name);
	gm_cu_result (*launch)(void *function, unsigned x, unsigned y, unsigned z, unsigned bx,
		unsigned by, unsigned bz, unsigned shared, gm_cu_stream stream, void **parameters,
		void **extra);
};

static struct kernels kernels;

static void *find_kernel(const char *text, const char *name)
{
	void *module, *function;

	CU(kernels.load(&module, text));
	CU(kernels.find(&function, module, name));
	return function;
}

static void *play_kernel(void *view)
{
	ring_answer(view);
	return NULL;
}

static double trips(gpumem_ring *ring)
{
	struct ring_message message = {0};
	uint64_t start = gm_monotonic_ns();

	for (int i = 0; i < TRIPS; i++) {
		OK(gpumem_ring_send(ring, &message));
		OK(gpumem_ring_receive(ring, &message, GPUMEM_WAIT_FOREVER));
	}
	return (double)(gm_monotonic_ns() - start) / 1000 / TRIPS;
}

static double many(gpumem_ring *ring)
{
	struct ring_message message = {0};
	uint64_t start = gm_monotonic_ns(), sent = 0;

	for (uint64_t got = 0; got < STREAM; got++) {
		for (; sent < STREAM && sent < got + AT_ONCE; sent++)
			OK(gpumem_ring_send(ring, &message));
		OK(gpumem_ring_receive(ring, &message, GPUMEM_WAIT_FOREVER));
	}
	return (double)(gm_monotonic_ns() - start) / 1000 / STREAM;
}

/* A launch, and a wait for its end, for each question. */
static double launches(void *function, gm_cu_stream stream, struct ring_message *where)
{
	void *arguments[] = {&where};
	uint64_t start = gm_monotonic_ns();

	for (int i = 0; i < TRIPS; i++) {
		where->number = i;
		CU(kernels.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
		CU(cuda->cuStreamSynchronize(stream));
	}
	return (double)(gm_monotonic_ns() - start) / 1000 / TRIPS;
}

static void measure(gpumem_ring *ring, gpumem_ring_view *view)
{
	double trip[ROUNDS], each[ROUNDS], peer[ROUNDS];
	gm_cu_stream answers = stream_new(), stream = stream_new();
	void *arguments[] = {view}, *square = NULL, *where;
	pthread_t thread = 0;

	OK(gpumem_host_alloc(session, sizeof(struct ring_message), NULL, &where));
	if (kernels.launch) {
		square = find_kernel(square_text, "square");
		CU(kernels.launch(find_kernel(ring_kernel_text, "ring_kernel"), 1, 1, 1, 1, 1, 1, 0,
			answers, arguments, NULL));
	} else {
		GM_REQUIRE(pthread_create(&thread, NULL, play_kernel, view) == 0);
	}

	for (int i = 0; i < ROUNDS; i++) {
		trip[i] = trips(ring);
		each[i] = many(ring);
		peer[i] = square ? launches(square, stream, where) : 0;
	}
	OK(gpumem_ring_hang_up(ring));
	if (thread)
		pthread_join(thread, NULL);
	else
		CU(cuda->cuStreamSynchronize(answers));
	if (square)
		gm_print_ratio("there and back; peer a launch for each question",
			gm_median(trip, ROUNDS), gm_median(peer, ROUNDS), "us", -1);
	else
		printf("  there and back: %.2f us (a thread, not a kernel)\n",
			gm_median(trip, ROUNDS));
	printf("  with %d under way: %.3f us for each\n", AT_ONCE, gm_median(each, ROUNDS));
	OK(gpumem_host_free(session, where));
}

int main(void)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT;
	gpumem_ring_view view;
	gpumem_ring *ring;

	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = "[gpumemd]\nreserve = 0\nmin_free = 16M\n", .args = args});
	join_at(daemon_.socket, "bench");
	use_gpu();
	*(void **)&kernels.load = driver_symbol("cuModuleLoadData");
	*(void **)&kernels.find = driver_symbol("cuModuleGetFunction");
	*(void **)&kernels.launch = driver_symbol("cuLaunchKernel");

	options.full = GPUMEM_RING_WAIT;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_ring_create(session, sizeof(struct ring_message), AT_ONCE, &options, &ring));
	OK(gpumem_ring_far_end(ring, NULL, &view));
	gm_print_title("A kernel that answers through a ring, in pinned host memory");
	measure(ring, &view);
	gpumem_ring_close(ring);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
	return 0;
}
