/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Evictable buffers on GPUs, with work on streams: a buffer moves only after the work that was launched
 * before it was unpinned, unpinning never waits for that work, and a pin waits for nothing but the copy.
 * See broker.h.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpumem/gpumem_evict.h"
#include "gpumem/gpumem_region.h"
#include "tests/gpu/broker.h"

#define PLAIN \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\n" \
	"host_limit = 256M\n"

static gpumem_buffer *evictable(uint64_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	OK(gpumem_buffer_create(session, 0, bytes, &options, &buffer));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	return buffer;
}

static void run(gm_worker_fn fn)
{
	start_with(PLAIN);
	one_worker(fn, NULL);
	tear_down();
}

static void wait_for(int channel, void *argument)
{
	join("waits for the work");
	use_gpu();
	gm_cu_stream busy = stream_new(), other = stream_new();
	gpumem_buffer *buffer = evictable(32 * MIB);
	void *ptr = gpumem_buffer_ptr(buffer);
	fill(ptr, 32 * MIB, 1, other);
	CU(cuda->cuStreamSynchronize(other));

	keep_busy(busy);
	fill(ptr, 32 * MIB, 2, busy);
	OK(gpumem_buffer_unpin(buffer, busy));
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "still uses");
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_DEVICE);
	/* To pin it again needs no waiting either, as often as the program likes. */
	for (int i = 0; i < 20; i++) {
		OK(gpumem_buffer_pin(buffer, NULL, NULL));
		OK(gpumem_buffer_unpin(buffer, i % 2 ? busy : other));
	}
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "still uses");

	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "idle")) {
		gpumem_status status = gpumem_buffer_evict(buffer);
		if (status == GPUMEM_OK)
			break;
		GM_REQUIRE_EQ(status, GPUMEM_E_BUSY);
	}
	GM_REQUIRE_EQ(leased_on(0), 0);
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == ptr);
	GM_REQUIRE(all(ptr, 32 * MIB, 2, other));
	gpumem_disconnect(session);
}

START_TEST(a_buffer_moves_only_after_the_work_on_the_stream)
{
	run(wait_for);
}
END_TEST

/* A program whose default stream is busy evicts and pins other buffers meanwhile. */
static void beside_work(int channel, void *argument)
{
	join("beside work");
	use_gpu();
	gm_cu_stream busy = stream_new(), other = stream_new();
	gpumem_buffer *buffer = evictable(8 * MIB);
	fill(gpumem_buffer_ptr(buffer), 8 * MIB, 3, other);
	CU(cuda->cuStreamSynchronize(other));
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));

	keep_busy(busy);
	OK(gpumem_buffer_evict(buffer));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), 8 * MIB, 3, other));
	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	gpumem_disconnect(session);
}

START_TEST(moving_a_buffer_does_not_wait_for_other_work)
{
	run(beside_work);
}
END_TEST

static void capturing(int channel, void *argument)
{
	join("capturing");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(4 * MIB);
	begin_capture(stream);
	fill(gpumem_buffer_ptr(buffer), 4 * MIB, 9, stream);
	REFUSED(gpumem_buffer_unpin(buffer, stream), GPUMEM_E_BUSY, "captured");
	(void)end_capture(stream);
	OK(gpumem_buffer_unpin(buffer, stream));
	REFUSED(gpumem_buffer_unpin(buffer, stream), GPUMEM_E_INVALID, "not pinned");
	gpumem_disconnect(session);
}

START_TEST(a_captured_stream_keeps_the_buffer_pinned)
{
	run(capturing);
}
END_TEST

/* The daemon asks while the work of the buffer that should go is still under way: the buffer goes when the
 * work is done. */
static void asked_early(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_request *request;
	gpumem_buffer *large;
	join("asked early");
	use_gpu();
	gm_cu_stream busy = stream_new();
	OK(gpumem_device_info(session, 0, &info));
	gpumem_buffer *buffer = evictable(32 * MIB);
	keep_busy(busy);
	fill(gpumem_buffer_ptr(buffer), 32 * MIB, 4, busy);
	OK(gpumem_buffer_unpin(buffer, busy));

	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_create_begin(session, 0, info.available - 16 * MIB, &options, &request));
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_DEVICE);
	open_gate();
	OK(gpumem_request_wait(request, GM_PATIENCE_MS));
	OK(gpumem_buffer_take(request, &large));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	gpumem_buffer_destroy(large);
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), 32 * MIB, 4, busy));
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_the_daemon_wants_goes_when_its_work_is_done)
{
	run(asked_early);
}
END_TEST

/* What gpumemctl says that could be evicted of this process. */
static uint64_t offered(void)
{
	char command[512], line[256] = "";
	unsigned long long bytes = 0;
	snprintf(command, sizeof(command),
		"%s/ctl/gpumemctl --socket %s clients --csv --no-header --columns evictable",
		getenv("top_builddir"), daemon_.socket);
	FILE *out = popen(command, "re");
	GM_REQUIRE(out);
	GM_REQUIRE(fgets(line, sizeof(line), out));
	while (fgetc(out) != EOF)
		;
	GM_REQUIRE_EQ(pclose(out), 0);
	GM_REQUIRE_EQ(sscanf(line, "%llu", &bytes), 1);
	return bytes;
}

/* What a resize cut off goes back after the buffer was unpinned. */
static void cut_off(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer, *other;
	join("cut off");
	use_gpu();
	gm_cu_stream busy = stream_new();
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	options.max_size = 64 * MIB;
	OK(gpumem_buffer_create(session, 0, 30 * MIB, &options, &buffer));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	keep_busy(busy);
	OK(gpumem_buffer_resize(buffer, 16 * MIB, busy, NULL));
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(leased_on(0), 30 * MIB);

	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	/* To make another looks after what the device has finished with. */
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &other));
	GM_UNTIL(leased_on(0) == 18 * MIB);
	GM_UNTIL(offered() == 16 * MIB);
	gpumem_disconnect(session);
}

START_TEST(a_part_that_was_cut_off_is_not_offered)
{
	run(cut_off);
}
END_TEST

/* Asks the daemon that the buffers with these sizes go, one after the other. */
static void ask_to_go(const uint64_t *sizes, size_t n)
{
	struct gm_raw raw;
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Evict evict[4];
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	for (size_t i = 0; i < n; i++) {
		gm__wire__evict__init(&evict[i]);
		for (size_t j = 0; j < raw.packet->buffers->n_buffers; j++) {
			const Gm__Wire__Buffer *row = raw.packet->buffers->buffers[j];
			if (row->bytes == sizes[i]) {
				evict[i].session = row->session;
				evict[i].row = row->row;
			}
		}
		GM_REQUIRE(evict[i].row);
	}
	for (size_t i = 0; i < n; i++) {
		gpumem_status status;
		/* The client may not have heard the last request yet. */
		GM_UNTIL((status = gm_raw_call(&raw, GM_RAW_PACKET(EVICT, evict, &evict[i]))) !=
			 GPUMEM_E_BUSY);
		OK(status);
	}
	gm_raw_close(&raw);
}

/* Buffers that somebody wants in host memory go when their work is done, all of them. */
static void asked_by_hand(int channel, void *argument)
{
	static const uint64_t sizes[] = {4 * MIB, 6 * MIB, 10 * MIB};
	gpumem_buffer *buffers[3];
	join("asked by hand");
	use_gpu();
	gm_cu_stream busy = stream_new();
	for (int i = 0; i < 3; i++)
		buffers[i] = evictable(sizes[i]);

	/* A request is forgotten after 10 seconds: on a slow machine, once more. */
	for (uint64_t ns = UINT64_MAX; ns > UINT64_C(5) * 1000 * 1000 * 1000;) {
		keep_busy(busy);
		for (int i = 0; i < 3; i++) {
			OK(gpumem_buffer_pin(buffers[i], NULL, NULL));
			fill(gpumem_buffer_ptr(buffers[i]), sizes[i], (unsigned char)(i + 1), busy);
			while (gpumem_buffer_unpin(buffers[i], busy) == GPUMEM_OK)
				;
		}
		ns = gm_monotonic_ns();
		ask_to_go(sizes, 3);
		for (int i = 0; i < 3; i++)
			GM_REQUIRE_EQ(gpumem_buffer_location(buffers[i]), GPUMEM_LOCATION_DEVICE);
		ns = gm_monotonic_ns() - ns;
		open_gate();
		CU(cuda->cuStreamSynchronize(busy));
	}
	for (int i = 0; i < 3; i++) {
		GM_UNTIL(gpumem_buffer_location(buffers[i]) == GPUMEM_LOCATION_HOST);
		OK(gpumem_buffer_pin(buffers[i], NULL, NULL));
		GM_REQUIRE(
			all(gpumem_buffer_ptr(buffers[i]), sizes[i], (unsigned char)(i + 1), busy));
	}
	gpumem_disconnect(session);
}

START_TEST(buffers_that_are_asked_for_by_hand_go_when_their_work_is_done)
{
	run(asked_by_hand);
}
END_TEST

/* The daemon restarts while buffers are in host memory, used there or not, and a region is paused. */
static void away_in_restarts(int channel, void *argument)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_buffer *buffers[8], *large = NULL;
	const char *lacking = getenv("GPUMEM_FAKE_WITHOUT");
	gpumem_region *region;
	gpumem_location where;
	void *kept;
	join("away");
	use_gpu();
	gm_cu_stream stream = stream_new();
	for (int i = 0; i < 8; i++) {
		buffers[i] = evictable((uint64_t)(i + 1) * MIB);
		fill(gpumem_buffer_ptr(buffers[i]), (uint64_t)(i + 1) * MIB, (unsigned char)(i + 1),
			stream);
		CU(cuda->cuStreamSynchronize(stream));
		OK(gpumem_buffer_unpin(buffers[i], GPUMEM_STREAM_DONE));
		OK(gpumem_buffer_evict(buffers[i]));
	}
	OK(gpumem_region_create(session, 0, "weights", 64 * MIB, NULL, &region));
	OK(gpumem_region_alloc(region, 20 * MIB, stream, NULL, &kept));
	fill(kept, 20 * MIB, 0x77, stream);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	GM_UNTIL(leased_on(0) == 0);

	/* One is used in host memory meanwhile, because the device is full. Where the device cannot use that, the
	 * buffer comes back. */
	if (!lacking || !strstr(lacking, "hostnuma")) {
		OK(gpumem_device_info(session, 0, &info));
		OK(gpumem_buffer_create(session, 0, info.available - 2 * MIB, NULL, &large));
		options.flags = GPUMEM_PIN_HOST_OK;
	}
	OK(gpumem_buffer_pin(buffers[7], &options, &where));
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'd');
	GM_REQUIRE(all(gpumem_buffer_ptr(buffers[7]), 8 * MIB, 8, stream));
	OK(gpumem_buffer_unpin(buffers[7], stream));
	if (large)
		gpumem_buffer_destroy(large);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'd');

	options = (gpumem_pin_options)GPUMEM_PIN_OPTIONS_INIT;
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_region_resume(session, "weights", GM_PATIENCE_MS));
	GM_REQUIRE(all(kept, 20 * MIB, 0x77, stream));
	for (int i = 0; i < 8; i++) {
		OK(gpumem_buffer_pin(buffers[i], &options, NULL));
		GM_REQUIRE(all(gpumem_buffer_ptr(buffers[i]), (uint64_t)(i + 1) * MIB,
			(unsigned char)(i + 1), stream));
	}
	GM_UNTIL(leased_on(1) == 0);
	gpumem_disconnect(session);
}

START_TEST(what_is_evicted_or_paused_survives_restarts_of_the_daemon)
{
	start_with(PLAIN);
	run_in_restarts(away_in_restarts);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("evict_gpu");
	TCase *tc = tcase_create("evict_gpu");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_buffer_moves_only_after_the_work_on_the_stream);
	tcase_add_test(tc, moving_a_buffer_does_not_wait_for_other_work);
	tcase_add_test(tc, a_captured_stream_keeps_the_buffer_pinned);
	tcase_add_test(tc, a_buffer_that_the_daemon_wants_goes_when_its_work_is_done);
	tcase_add_test(tc, a_part_that_was_cut_off_is_not_offered);
	tcase_add_test(tc, buffers_that_are_asked_for_by_hand_go_when_their_work_is_done);
	tcase_add_test(tc, what_is_evicted_or_paused_survives_restarts_of_the_daemon);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
