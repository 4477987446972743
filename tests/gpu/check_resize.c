/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Buffers that are resized on GPUs: their content through growing and moving, and the part that is
 * cut off while the GPU is at work in it. See broker.h.
 */

#include <pthread.h>

#include "tests/gpu/broker.h"

/* Without a reserve, it is known which chunks a buffer gets. */
#define PLAIN "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\n"

static uint64_t leased(void)
{
	return gm_figures_now(&daemon_).leased;
}

static gpumem_buffer *create_growing(
	uint32_t device, uint64_t bytes, uint64_t max, gpumem_transport transport)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.transport = transport;
	options.max_size = max;
	OK(gpumem_buffer_create(session, device, bytes, &options, &buffer));
	return buffer;
}

static void fill_part(
	gpumem_buffer *buffer, uint64_t from, uint64_t to, unsigned char value, gm_cu_stream stream)
{
	fill((uint8_t *)gpumem_buffer_ptr(buffer) + from, to - from, value, stream);
}

static bool part_is(
	gpumem_buffer *buffer, uint64_t from, uint64_t to, unsigned char value, gm_cu_stream stream)
{
	return all((uint8_t *)gpumem_buffer_ptr(buffer) + from, to - from, value, stream);
}

static void resize_to(
	gpumem_buffer *buffer, uint64_t size, gpumem_stream stream, int expected_moved)
{
	const void *before = gpumem_buffer_ptr(buffer);
	int moved = 7;
	OK(gpumem_buffer_resize(buffer, size, stream, &moved));
	GM_REQUIRE_EQ(moved, expected_moved);
	GM_REQUIRE_EQ(gpumem_buffer_ptr(buffer) != before, moved);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), size);
}

static void run(const char *config, gm_worker_fn fn, void *argument)
{
	start_with(config);
	one_worker(fn, argument);
	tear_down();
}

/* ---- in place */

static void grower(int channel, void *argument)
{
	join("grower");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 160 * MIB, GPUMEM_TRANSPORT_FD);
	fill_part(buffer, 0, 16 * MIB, 1, stream);
	resize_to(buffer, 48 * MIB, stream, 0);
	fill_part(buffer, 16 * MIB, 48 * MIB, 2, stream);
	resize_to(buffer, 160 * MIB, stream, 0);
	fill_part(buffer, 48 * MIB, 160 * MIB, 3, stream);
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 1, stream));
	GM_REQUIRE(part_is(buffer, 16 * MIB, 48 * MIB, 2, stream));
	GM_REQUIRE(part_is(buffer, 48 * MIB, 160 * MIB, 3, stream));
	/* One call reaches over all that was added. */
	fill_part(buffer, 0, 160 * MIB, 4, stream);
	GM_REQUIRE(part_is(buffer, 0, 160 * MIB, 4, stream));

	resize_to(buffer, 16 * MIB, GPUMEM_STREAM_DONE, 0);
	GM_REQUIRE_EQ(leased(), 16 * MIB);
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 4, stream));
	resize_to(buffer, 100 * MIB, stream, 0);
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 4, stream));
	fill_part(buffer, 16 * MIB, 100 * MIB, 5, stream);
	GM_REQUIRE(part_is(buffer, 16 * MIB, 100 * MIB, 5, stream));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_keeps_its_content_when_it_grows_and_shrinks)
{
	run(CONFIG(""), grower, NULL);
}
END_TEST

static void grower_at_work(int channel, void *argument)
{
	join("at work");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 96 * MIB, GPUMEM_TRANSPORT_FD);
	keep_busy(stream);
	fill_part(buffer, 0, 16 * MIB, 1, stream);
	/* It does not wait for the gate. */
	resize_to(buffer, 96 * MIB, stream, 0);
	fill_part(buffer, 16 * MIB, 96 * MIB, 2, stream);
	open_gate();
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 1, stream));
	GM_REQUIRE(part_is(buffer, 16 * MIB, 96 * MIB, 2, stream));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_grows_under_the_gpus_work)
{
	run(CONFIG(""), grower_at_work, NULL);
}
END_TEST

enum then { IT_STAYS, IT_GROWS_A_BIT, IT_GROWS, IT_SHRINKS_MORE, IT_ENDS, ALL_ENDS, THENS };

static void cut_at_work(int channel, void *argument)
{
	const enum then then = *(const int *)argument;
	gpumem_token token;
	join("cut at work");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 160 * MIB, GPUMEM_TRANSPORT_FD);
	resize_to(buffer, 48 * MIB, stream, 0);
	resize_to(buffer, 96 * MIB, stream, 0);
	uint64_t before = leased(), rest = 16 * MIB;
	keep_busy(stream);
	fill_part(buffer, 0, 96 * MIB, 1, stream);

	/* Nothing of this waits for the gate. The GPU goes on writing to what is cut off. */
	resize_to(buffer, 16 * MIB, then % 2 ? GPUMEM_STREAM_ANY : stream, 0);
	OK(gpumem_trim(session, NULL));
	GM_REQUIRE_EQ(leased(), before);
	REFUSED(gpumem_share(buffer, NULL, &token), GPUMEM_E_BUSY, "cut off");
	if (then == IT_GROWS_A_BIT) {
		resize_to(buffer, rest = 40 * MIB, stream, 0);
		GM_REQUIRE_EQ(leased(), before);
		rest = 48 * MIB;
	} else if (then == IT_GROWS) {
		resize_to(buffer, rest = 128 * MIB, stream, 0);
		fill_part(buffer, 96 * MIB, 128 * MIB, 1, stream);
	} else if (then == IT_SHRINKS_MORE) {
		resize_to(buffer, 3 * MIB, stream, 0);
		GM_REQUIRE_EQ(leased(), before);
	}

	open_gate();
	if (then == ALL_ENDS) {
		gpumem_disconnect(session);
		CU(cuda->cuStreamSynchronize(stream));
		return;
	}
	CU(cuda->cuStreamSynchronize(stream)); /* it had its memory to the end */
	GM_REQUIRE(part_is(buffer, 0, gpumem_buffer_size(buffer), 1, stream));
	if (then == IT_ENDS) {
		gpumem_buffer_destroy(buffer);
		GM_UNTIL(leased() == 0);
	} else {
		GM_UNTIL(leased() == rest);
		OK(gpumem_share(buffer, NULL, &token));
		gpumem_buffer_destroy(buffer);
	}
	gpumem_disconnect(session);
}

START_TEST(what_is_cut_off_under_the_gpus_work_goes_back_after_it)
{
	int then = _i;
	run(PLAIN, cut_at_work, &then);
}
END_TEST

static void publisher(int channel, void *argument)
{
	join("publisher");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 96 * MIB, GPUMEM_TRANSPORT_FD),
		      *attached;
	resize_to(buffer, 96 * MIB, stream, 0);
	fill_part(buffer, 0, 96 * MIB, 6, stream);
	resize_to(buffer, 16 * MIB, stream, 0);
	/* It waits for the work by itself, and with that for what was cut off. */
	OK(gpumem_publish(buffer, "cut", NULL, stream, NULL));
	OK(gpumem_attach(session, "cut", &attached));
	GM_REQUIRE_EQ(gpumem_buffer_size(attached), 16 * MIB);
	GM_REQUIRE(part_is(attached, 0, 16 * MIB, 6, stream));
	GM_REQUIRE_EQ(leased(), 16 * MIB);
	OK(gpumem_unpublish(session, "cut"));
	gpumem_buffer_destroy(attached);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_was_cut_is_published_without_what_was_cut_off)
{
	run(CONFIG(""), publisher, NULL);
}
END_TEST

static void capturer(int channel, void *argument)
{
	join("capturer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 96 * MIB, GPUMEM_TRANSPORT_FD);
	begin_capture(stream);
	fill_part(buffer, 0, 16 * MIB, 7, stream);
	REFUSED(gpumem_buffer_resize(buffer, 2 * MIB, stream, NULL), GPUMEM_E_BUSY, "captured");
	REFUSED(gpumem_buffer_resize(buffer, 32 * MIB, stream, NULL), GPUMEM_E_BUSY, "captured");
	REFUSED(gpumem_buffer_resize(buffer, 128 * MIB, stream, NULL), GPUMEM_E_BUSY, "captured");
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 16 * MIB);
	(void)end_capture(stream); /* nothing of ours broke it */
	resize_to(buffer, 32 * MIB, stream, 0);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_stream_that_is_captured_keeps_the_buffer_as_it_is)
{
	run(CONFIG(""), capturer, NULL);
}
END_TEST

/* ---- moving */

static void mover(int channel, void *argument)
{
	const gpumem_transport transport = *(const int *)argument;
	join("mover");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 0, transport);
	uint64_t old = leased();
	keep_busy(stream);
	fill_part(buffer, 0, 16 * MIB, 1, stream);

	/* The copy waits for the gate, and the call does not. Both memories stay until then. */
	resize_to(buffer, 64 * MIB, stream, 1);
	GM_REQUIRE_EQ(gpumem_buffer_transport(buffer), transport);
	fill_part(buffer, 16 * MIB, 64 * MIB, 2, stream);
	OK(gpumem_trim(session, NULL));
	uint64_t both = leased();
	GM_REQUIRE(both >= old + 64 * MIB);
	open_gate();
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 1, stream));
	GM_REQUIRE(part_is(buffer, 16 * MIB, 64 * MIB, 2, stream));
	GM_UNTIL(leased() == both - old);

	/* Without a stream, the call waits for the copy. */
	fill_part(buffer, 0, 64 * MIB, 3, stream);
	resize_to(buffer, 160 * MIB, GPUMEM_STREAM_ANY, 1);
	GM_REQUIRE(part_is(buffer, 0, 64 * MIB, 3, stream));
	GM_UNTIL(leased() < 200 * MIB);
	resize_to(buffer, 16 * MIB, GPUMEM_STREAM_DONE, transport == GPUMEM_TRANSPORT_IPC);
	GM_REQUIRE(part_is(buffer, 0, 16 * MIB, 3, stream));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_has_to_move_is_copied_on_the_stream)
{
	int transport = _i ? GPUMEM_TRANSPORT_IPC : GPUMEM_TRANSPORT_FD;
	run(_i ? IPC_CONFIG : CONFIG(""), mover, &transport);
}
END_TEST

/* ---- pinned host memory */

struct captor {
	gm_cu_stream stream;
	gm_cu_ctx context;
	sem_t begun, enough;
};

/* Captures a stream that waits for the default stream, and never names it to the library. */
static void *capture_meanwhile(void *ctx)
{
	struct captor *captor = ctx;
	CU(cuda->cuCtxSetCurrent(captor->context));
	begin_capture(captor->stream);
	sem_post(&captor->begun);
	sem_wait(&captor->enough);
	(void)end_capture(captor->stream); /* nobody broke it */
	return NULL;
}

static void mover_beside_a_capture(int channel, void *argument)
{
	static const gpumem_stream streams[] = {NULL, GPUMEM_STREAM_DONE, GPUMEM_STREAM_ANY};
	struct captor captor;
	pthread_t thread;
	join("mover");
	use_gpu();
	gpumem_buffer *buffer = create_growing(0, 4 * MIB, 0, GPUMEM_TRANSPORT_IPC);
	fill_part(buffer, 0, 4 * MIB, 9, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	for (size_t i = 0; i < 3; i++) {
		GM_REQUIRE(sem_init(&captor.begun, 0, 0) == 0);
		GM_REQUIRE(sem_init(&captor.enough, 0, 0) == 0);
		CU(cuda->cuStreamCreate(&captor.stream, 0));
		CU(cuda->cuCtxGetCurrent(&captor.context));
		GM_REQUIRE(pthread_create(&thread, NULL, capture_meanwhile, &captor) == 0);
		while (sem_wait(&captor.begun) < 0 && errno == EINTR)
			;
		REFUSED(gpumem_buffer_resize(buffer, (8 + 4 * i) * MIB, streams[i], NULL),
			GPUMEM_E_BUSY, "captured");
		GM_REQUIRE_EQ(gpumem_buffer_size(buffer), (4 + 4 * i) * MIB);
		sem_post(&captor.enough);
		pthread_join(thread, NULL);
		resize_to(buffer, (8 + 4 * i) * MIB, streams[i], 1);
		GM_REQUIRE(part_is(buffer, 0, 4 * MIB, 9, NULL));
	}
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_has_to_move_breaks_no_capture_of_another_thread)
{
	run(CONFIG(""), mover_beside_a_capture, NULL);
}
END_TEST

static void pinned(int channel, void *argument)
{
	const int moves = *(const int *)argument;
	join("pinned");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer =
		create_growing(GPUMEM_DEVICE_HOST, 4 * MIB, 24 * MIB, GPUMEM_TRANSPORT_AUTO);
	memset(gpumem_buffer_ptr(buffer), 8, 4 * MIB);
	resize_to(buffer, 24 * MIB, stream, moves);
	CU(cuda->cuStreamSynchronize(stream));
	memset((uint8_t *)gpumem_buffer_ptr(buffer) + 4 * MIB, 8, 20 * MIB);
	/* One copy of the GPU reaches all of it. */
	GM_REQUIRE(part_is(buffer, 0, 24 * MIB, 8, stream));
	resize_to(buffer, 2 * MIB, GPUMEM_STREAM_DONE, moves);
	GM_REQUIRE(part_is(buffer, 0, 2 * MIB, 8, stream));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(pinned_host_memory_grows_too)
{
	int moves = _i;
	run(_i ? CONFIG("host_limit = 64M\nhost_memory = memfd\n") : CONFIG("host_limit = 64M\n"),
		pinned, &moves);
}
END_TEST

/* ---- the daemon is away */

static void survivor(int channel, void *argument)
{
	join("survivor");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = create_growing(0, 16 * MIB, 160 * MIB, GPUMEM_TRANSPORT_FD);
	fill_part(buffer, 0, 16 * MIB, 1, stream);
	gm_text_say_word(channel, 'm');
	gm_hear_word(channel, 'k');
	/* It waits until the daemon is back. */
	gm_text_say_word(channel, 'r');
	resize_to(buffer, 96 * MIB, stream, 0);
	fill_part(buffer, 16 * MIB, 96 * MIB, 1, stream);
	GM_REQUIRE(part_is(buffer, 0, 96 * MIB, 1, stream));
	GM_REQUIRE_EQ(leased(), 96 * MIB);
	resize_to(buffer, 16 * MIB, stream, 0);
	GM_UNTIL(leased() == 16 * MIB);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_grows_when_the_daemon_is_back)
{
	struct gm_worker worker;
	start_with(CONFIG(""));
	gm_worker_start(&worker, survivor, NULL);
	gm_hear_word(worker.channel, 'm');
	gm_daemon_kill(&daemon_);
	gm_text_say_word(worker.channel, 'k');
	gm_hear_word(worker.channel, 'r');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("resize");
	TCase *tc = tcase_create("resize");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_buffer_keeps_its_content_when_it_grows_and_shrinks);
	tcase_add_test(tc, a_buffer_grows_under_the_gpus_work);
	tcase_add_loop_test(tc, what_is_cut_off_under_the_gpus_work_goes_back_after_it, 0, THENS);
	tcase_add_test(tc, a_buffer_that_was_cut_is_published_without_what_was_cut_off);
	tcase_add_test(tc, a_stream_that_is_captured_keeps_the_buffer_as_it_is);
	tcase_add_loop_test(tc, a_buffer_that_has_to_move_is_copied_on_the_stream, 0, 2);
	tcase_add_test(tc, a_buffer_that_has_to_move_breaks_no_capture_of_another_thread);
	tcase_add_loop_test(tc, pinned_host_memory_grows_too, 0, 2);
	tcase_add_test(tc, a_buffer_grows_when_the_daemon_is_back);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
