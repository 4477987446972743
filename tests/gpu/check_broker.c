/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The whole broker on GPUs: a private daemon on the cuda backend, real worker processes that
 * compute in what they get. One source for the fake driver (make check) and a real GPU (make
 * check-gpu).
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/gpu/broker.h"

static void set_up(void)
{
	start_with(CONFIG(""));
}

/* ---- memory that another process sees */

START_TEST(what_one_process_computes_another_finds_and_changes)
{
	pass_a_buffer(GPUMEM_TRANSPORT_FD, false);
}
END_TEST

START_TEST(a_buffer_goes_to_another_uid)
{
	pass_a_buffer(GPUMEM_TRANSPORT_FD, true);
}
END_TEST

/* ---- life and death */

START_TEST(a_killed_workers_memory_is_free_on_the_device)
{
	kill_a_holder(8 * MIB); /* the reserve may have grown meanwhile */
}
END_TEST

/* Takes all there is, and finds not one byte that somebody left. */
static void taker(int channel, void *argument)
{
	uint64_t taken = 0;
	join("taker");
	use_gpu();
	for (;;) {
		gpumem_buffer *buffer;
		if (gpumem_buffer_create(session, 0, 16 * MIB, NULL, &buffer) != GPUMEM_OK)
			break;
		GM_REQUIRE(all(gpumem_buffer_ptr(buffer), 16 * MIB, 0, NULL));
		taken += 16 * MIB;
		/* A real device has far more than this test needs to see. */
		if (taken >= 1024 * MIB)
			break;
	}
	gm_text_say(channel, &taken, sizeof(taken));
	gpumem_disconnect(session);
}

START_TEST(nobody_gets_what_a_dead_workers_child_still_maps)
{
	struct gm_worker watch, hold, take;
	pid_t child;
	uint64_t taken;
	gm_worker_start(&watch, watcher, NULL);
	child = start_holder(&hold, "with a child");
	uint64_t held = ask_free(&watch);
	gm_worker_kill(&hold);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	/* Its context went with it, its memory did not. */
	GM_REQUIRE(ask_free(&watch) < held + HELD);
	gm_worker_start(&take, taker, NULL);
	gm_hear(take.channel, &taken, sizeof(taken));
	gm_worker_join(&take);
	GM_REQUIRE(taken > 0);
	uint64_t before = ask_free(&watch);
	kill(child, SIGKILL);
	GM_UNTIL(ask_free(&watch) + 16 * MIB >= before + HELD);
	end_worker(&watch);
}
END_TEST

START_TEST(workers_compute_on_while_the_daemon_is_dead)
{
	outlive_the_daemon();
}
END_TEST

/* ---- streams */

static void freer(int channel, void *argument)
{
	void *ptr, *other;
	join("freer");
	use_gpu();
	gm_cu_stream busy = stream_new(), idle = stream_new();
	OK(gpumem_alloc(session, 0, 8 * MIB, busy, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 8 * MIB, 0xaa, busy); /* comes when the gate is open */
	/* Would hang here if it waited. */
	OK(gpumem_free(session, ptr, argument ? GPUMEM_STREAM_ANY : busy));
	/* Whatever this is, what is written to it now must stand in the end. */
	OK(gpumem_alloc(session, 0, 8 * MIB, idle, NULL, &other));
	fill(other, 8 * MIB, 0xbb, idle);
	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	GM_REQUIRE(all(other, 8 * MIB, 0xbb, idle));
	OK(gpumem_free(session, other, idle));
	gpumem_disconnect(session);
}

START_TEST(freeing_does_not_wait_and_reuse_on_another_stream_does)
{
	one_worker(freer, _i ? "any" : NULL);
}
END_TEST

static void reuser(int channel, void *argument)
{
	void *ptr, *again;
	join("reuser");
	use_gpu();
	gm_cu_stream busy = stream_new();
	OK(gpumem_alloc(session, 0, 8 * MIB, busy, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 8 * MIB, 0xaa, busy);
	OK(gpumem_free(session, ptr, busy));
	OK(gpumem_alloc(session, 0, 8 * MIB, busy, NULL, &again));
	GM_REQUIRE(again == ptr); /* the stream orders it */
	fill(again, 8 * MIB, 0xbb, busy);
	open_gate();
	GM_REQUIRE(all(again, 8 * MIB, 0xbb, busy));
	OK(gpumem_free(session, again, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

START_TEST(a_block_freed_on_a_stream_is_reused_on_it_at_once)
{
	one_worker(reuser, NULL);
}
END_TEST

static void leaver(int channel, void *argument)
{
	void *ptr;
	uint64_t bytes;
	gpumem_stats_t stats = {.size = sizeof(stats)};
	join("leaver");
	use_gpu();
	gm_cu_stream busy = stream_new();
	OK(gpumem_alloc(session, 0, 64 * MIB, busy, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 64 * MIB, 0xaa, busy);
	OK(gpumem_free(session, ptr, busy));
	OK(gpumem_trim(session, &bytes)); /* the device still writes there: it must stay */
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE(stats.allocated >= 64 * MIB);
	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	give_all_back();
	gpumem_disconnect(session);
}

START_TEST(chunks_go_back_only_after_their_last_use)
{
	one_worker(leaver, NULL);
}
END_TEST

/* A thread that waits for memory, on no stream in particular. */
struct patient {
	gpumem_status status;
	void *ptr;
};

static void *wait_patiently(void *ctx)
{
	struct patient *patient = ctx;
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.wait_ms = 60000;
	patient->status =
		gpumem_alloc(session, 0, 20 * MIB, GPUMEM_STREAM_ANY, &options, &patient->ptr);
	return NULL;
}

/* May hold 64 MiB. */
static void sharer(int channel, void *argument)
{
	struct patient patient = {.ptr = NULL};
	pthread_t thread;
	void *ptr;
	join("sharer");
	use_gpu();
	gm_cu_stream busy = stream_new();
	OK(gpumem_alloc(session, 0, 60 * MIB, busy, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 60 * MIB, 0xaa, busy);
	GM_REQUIRE(pthread_create(&thread, NULL, wait_patiently, &patient) == 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	OK(gpumem_free(session, ptr, busy));
	/* The GPU still writes there: not yet. */
	GM_REQUIRE_EQ(gm_queue_wait(&daemon_), 1);
	open_gate();
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	OK(patient.status);
	fill(patient.ptr, 20 * MIB, 0xbb, NULL);
	CU(cuda->cuStreamSynchronize(busy));
	GM_REQUIRE(all(patient.ptr, 20 * MIB, 0xbb, NULL));
	gpumem_disconnect(session);
}

START_TEST(who_waits_gets_what_another_thread_freed_when_the_gpu_is_done_with_it)
{
	tear_down();
	start_with(CONFIG("decay = 1h\nafter_action = 1h\n[limit client:sharer]\nmax = 64M\n"));
	one_worker(sharer, NULL);
}
END_TEST

/* ---- contexts of the program's own */

/* Current from here on. */
static gm_cu_ctx own_context(void)
{
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx context;
	if (gm_cuda_load(&cuda, why) < 0)
		GM_FAIL("%s", why);
	CU(cuda->cuCtxCreate(&context, 0, 0));
	return context;
}

static bool primary_active(void)
{
	unsigned int flags;
	int active;
	CU(cuda->cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

static void until_all_is_given_back(void)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	uint64_t bytes;
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "given back")) {
		OK(gpumem_trim(session, &bytes));
		OK(gpumem_stats(session, 0, &stats));
		if (stats.allocated == 0)
			return;
	}
}

static void own_leaver(int channel, void *argument)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	void *ptr, *other;
	uint64_t bytes;
	bool destroy = argument != NULL;
	join("own");
	/* The library is at home in this one. */
	gm_cu_ctx second = own_context();
	OK(gpumem_alloc(session, 0, 8 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr));
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	CU(cuda->cuCtxPopCurrent(NULL));
	gm_cu_ctx first = own_context();
	gm_cu_stream busy = stream_new();
	OK(gpumem_alloc(session, 0, 64 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 64 * MIB, 0xaa, busy);
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
	CU(cuda->cuCtxPopCurrent(NULL));
	/* Without a context, as the library's own thread is: the device still writes there. */
	OK(gpumem_trim(session, &bytes));
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE(stats.allocated >= 64 * MIB);
	/* In another context, what is written must stand in the end. */
	CU(cuda->cuCtxPushCurrent(second));
	gm_cu_stream idle = stream_new();
	OK(gpumem_alloc(session, 0, 64 * MIB, GPUMEM_STREAM_ANY, NULL, &other));
	fill(other, 64 * MIB, 0xbb, idle);
	CU(cuda->cuStreamSynchronize(idle));
	open_gate();
	if (destroy)
		CU(cuda->cuCtxDestroy(first)); /* which waits for its work */
	else
		CU(cuda->cuStreamSynchronize(busy));
	GM_REQUIRE(all(other, 64 * MIB, 0xbb, idle));
	OK(gpumem_free(session, other, GPUMEM_STREAM_ANY));
	until_all_is_given_back();
	/* The library needed no context beside those. */
	GM_REQUIRE(!primary_active());
	CU(cuda->cuCtxDestroy(second));
	gpumem_disconnect(session);
}

START_TEST(what_runs_in_contexts_of_ones_own_is_waited_for)
{
	struct gm_worker worker;
	gm_worker_start(&worker, own_leaver, _i ? "destroy" : NULL);
	gm_worker_join(&worker);
}
END_TEST

#define COMERS 4
#define ROUNDS 6

static _Atomic int comers;

/* Its work may be under way, and others may be asking for it, when the context goes. */
static void *come_and_go(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		void *ptr;
		gm_cu_ctx context = own_context();
		gm_cu_stream stream = stream_new();
		OK(gpumem_alloc(session, 0, 4 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr));
		fill(ptr, 4 * MIB, 0xaa, stream);
		OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
		CU(cuda->cuCtxDestroy(context));
	}
	comers--;
	return NULL;
}

static void crowd(int channel, void *argument)
{
	pthread_t threads[COMERS];
	uint64_t bytes;
	join("crowd");
	use_gpu();
	gm_cu_stream stream = stream_new();
	comers = COMERS;
	for (int i = 0; i < COMERS; i++)
		GM_REQUIRE(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
	/* What is got here is nobody else's any more. */
	do {
		void *ptr;
		OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &ptr));
		fill(ptr, 4 * MIB, 0xbb, stream);
		CU(cuda->cuStreamSynchronize(stream));
		GM_REQUIRE(all(ptr, 4 * MIB, 0xbb, stream));
		OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
		OK(gpumem_trim(session, &bytes));
	} while (comers);
	for (int i = 0; i < COMERS; i++)
		GM_REQUIRE(pthread_join(threads[i], NULL) == 0);
	until_all_is_given_back();
	gpumem_disconnect(session);
}

START_TEST(contexts_may_be_destroyed_while_other_threads_use_the_library)
{
	one_worker(crowd, NULL);
}
END_TEST

static void own_defaults(int channel, void *argument)
{
	void *ptr, *other;
	join("defaults");
	own_context();
	OK(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr));
	keep_busy(NULL);
	fill(ptr, 8 * MIB, 0xaa, NULL);
	OK(gpumem_free(session, ptr, NULL));
	/* This one's default stream is another: nothing orders it behind the first. */
	own_context();
	OK(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &other));
	fill(other, 8 * MIB, 0xbb, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	open_gate();
	CU(cuda->cuCtxPopCurrent(NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	GM_REQUIRE(all(other, 8 * MIB, 0xbb, NULL));
	OK(gpumem_free(session, other, GPUMEM_STREAM_ANY));
	gpumem_disconnect(session);
}

START_TEST(the_default_streams_of_two_contexts_are_told_apart)
{
	struct gm_worker worker;
	gm_worker_start(&worker, own_defaults, NULL);
	gm_worker_join(&worker);
}
END_TEST

/* ---- graphs */

static void capturer(int channel, void *argument)
{
	enum { N = 24 };
	void *before, *during, *late, *others[N];
	uint64_t graph, none, trimmed;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	join("capturer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gm_cu_result (*launch)(void *, gm_cu_stream) =
		(gm_cu_result(*)(void *, gm_cu_stream))driver_symbol("cuGraphLaunch");
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &before));
	OK(gpumem_graph_of(session, 0, stream, &none));
	GM_REQUIRE_EQ(none, 0);

	begin_capture(stream);
	OK(gpumem_graph_of(session, 0, stream, &graph));
	GM_REQUIRE(graph != 0);
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &during)); /* grows the heap, too */
	OK(gpumem_alloc(session, 0, 4096, stream, NULL, &late));
	fill(during, 4 * MIB, 0x55, stream);
	fill(before, 4 * MIB, 0x56, stream);
	OK(gpumem_free(session, during, stream));
	OK(gpumem_free(session, before, stream));
	GM_REQUIRE_EQ(gpumem_free(session, during, stream), GPUMEM_E_INVALID);
	void *runnable = end_capture(stream); /* nothing of ours broke it */

	OK(gpumem_free(session, late, stream)); /* freed afterwards, and still the graph's */
	for (int i = 0; i < N; i++) {
		OK(gpumem_alloc(session, 0, i % 2 ? 4 * MIB : 4096,
			i % 3 ? stream : GPUMEM_STREAM_ANY, NULL, &others[i]));
		GM_REQUIRE(others[i] != during && others[i] != before && others[i] != late);
		fill(others[i], i % 2 ? 4 * MIB : 4096, 0x66, stream);
	}
	OK(gpumem_trim(session, &trimmed));
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 8 * MIB + 4096 + N / 2 * (4 * MIB + 4096));
	if (runnable) {
		CU(launch(runnable, stream));
		GM_REQUIRE(all(during, 4 * MIB, 0x55, stream));
		GM_REQUIRE(all(before, 4 * MIB, 0x56, stream));
	}
	for (int i = 0; i < N; i++) {
		GM_REQUIRE(all(others[i], i % 2 ? 4 * MIB : 4096, 0x66, stream));
		OK(gpumem_free(session, others[i], stream));
	}
	OK(gpumem_graph_gone(session, graph));
	GM_REQUIRE_EQ(gpumem_graph_gone(session, graph), GPUMEM_E_NOT_FOUND);
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 0);
	CU(cuda->cuStreamSynchronize(stream));
	give_all_back();
	gpumem_disconnect(session);
}

START_TEST(what_a_captured_graph_uses_stays_until_the_graph_is_gone)
{
	one_worker(capturer, NULL);
}
END_TEST

/* Frees in a capture and does nothing else of ours in it. */
static void capturing_freer(int channel, void *argument)
{
	void *mine, *others, *again;
	uint64_t graph;
	join("capturing freer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &mine));
	OK(gpumem_alloc(session, 0, 4 * MIB, GPUMEM_STREAM_ANY, NULL, &others));
	begin_capture(stream);
	fill(mine, 4 * MIB, 0x57, stream);
	OK(gpumem_free(session, mine, stream));
	/* An event for all streams would break the capture: none is recorded for this. */
	OK(gpumem_free(session, others, GPUMEM_STREAM_ANY));
	OK(gpumem_trim(session, NULL));
	OK(gpumem_graph_of(session, 0, stream, &graph));
	end_capture(stream);
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &again));
	GM_REQUIRE(again != mine);
	OK(gpumem_free(session, again, stream));
	OK(gpumem_graph_gone(session, graph));
	CU(cuda->cuStreamSynchronize(stream));
	give_all_back();
	gpumem_disconnect(session);
}

START_TEST(a_capture_in_which_memory_is_only_freed_is_not_broken)
{
	one_worker(capturing_freer, NULL);
}
END_TEST

/* ---- the budget */

static void filler(int channel, void *argument)
{
	uint64_t taken = 0, bytes = 256 * MIB;
	gpumem_device_info_t info = {.size = sizeof(info)};
	join("filler");
	use_gpu();
	while (bytes >= 2 * MIB) {
		gpumem_buffer *buffer;
		gpumem_status status = gpumem_buffer_create(session, 0, bytes, NULL, &buffer);
		if (status == GPUMEM_OK) {
			fill(gpumem_buffer_ptr(buffer), bytes, 0x44, NULL);
			taken += bytes;
		} else {
			GM_REQUIRE_EQ(status, GPUMEM_E_NO_MEMORY);
			bytes /= 2;
		}
	}
	CU(cuda->cuStreamSynchronize(NULL));
	/* The figures on the page follow a moment later. */
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "all taken")) {
		OK(gpumem_device_info(session, 0, &info));
		if (info.available < 2 * MIB)
			break;
	}
	GM_REQUIRE(taken <= info.capacity);
	GM_REQUIRE(free_on_device() >= 16 * MIB); /* min_free */
	gpumem_disconnect(session);
}

START_TEST(the_budget_is_used_to_the_last_chunk_and_no_further)
{
	one_worker(filler, NULL);
}
END_TEST

static TCase *tcase(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, set_up, tear_down);
	suite_add_tcase(s, t);
	return t;
}

static Suite *suite(void)
{
	Suite *s = suite_create("broker on GPUs");
	TCase *t = tcase(s, "cuda");
	tcase_add_test(t, what_one_process_computes_another_finds_and_changes);
	if (GM_TAP_WITH_USERS(a_buffer_goes_to_another_uid))
		tcase_add_test(t, a_buffer_goes_to_another_uid);
	tcase_add_test(t, a_killed_workers_memory_is_free_on_the_device);
	tcase_add_test(t, nobody_gets_what_a_dead_workers_child_still_maps);
	tcase_add_test(t, workers_compute_on_while_the_daemon_is_dead);
	tcase_add_loop_test(t, freeing_does_not_wait_and_reuse_on_another_stream_does, 0, 2);
	tcase_add_test(t, a_block_freed_on_a_stream_is_reused_on_it_at_once);
	tcase_add_test(t, chunks_go_back_only_after_their_last_use);
	tcase_add_test(t, who_waits_gets_what_another_thread_freed_when_the_gpu_is_done_with_it);
	tcase_add_test(t, what_a_captured_graph_uses_stays_until_the_graph_is_gone);
	tcase_add_test(t, a_capture_in_which_memory_is_only_freed_is_not_broken);
	tcase_add_test(t, the_budget_is_used_to_the_last_chunk_and_no_further);
	t = tcase(s, "contexts");
	tcase_add_loop_test(t, what_runs_in_contexts_of_ones_own_is_waited_for, 0, 2);
	tcase_add_test(t, contexts_may_be_destroyed_while_other_threads_use_the_library);
	tcase_add_test(t, the_default_streams_of_two_contexts_are_told_apart);
	return s;
}

int main(void)
{
	return gm_tap_run(suite());
}
