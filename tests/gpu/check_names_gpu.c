/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Buffers under names, on GPUs: a maker publishes while its stream is still at work, is killed, and
 * readers find all of what it wrote. See broker.h.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "tests/gpu/broker.h"

#define BYTES (40 * MIB)
#define NAME  "weights"
#define META  200003 /* bytes of metadata: several packets */

static gpumem_status attach_status(const char *name)
{
	gpumem_buffer *buffer = NULL;
	gpumem_status status = gpumem_attach(session, name, &buffer);
	gpumem_buffer_destroy(buffer);
	return status;
}

/* ---- the stream is at work */

static atomic_bool published;

static void *publish_now(void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	void **of = argument;
	uint64_t version = 0;
	void *metadata = malloc(META);
	GM_REQUIRE(metadata);
	options.metadata = memset(metadata, 0x33, META);
	options.metadata_size = META;
	OK(gpumem_publish(of[0], NAME, &options, of[1], &version));
	GM_REQUIRE_EQ(version, 1);
	free(metadata);
	atomic_store(&published, true);
	return NULL;
}

/* Fills in two halves, the second behind a gate. The name is not there while the gate is closed. */
static void at_work(int channel, void *argument)
{
	gpumem_buffer *buffer;
	pthread_t thread;
	join("maker");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	uint8_t *ptr = gpumem_buffer_ptr(buffer);
	fill(ptr, BYTES, 0xee, stream);
	CU(cuda->cuStreamSynchronize(stream));
	fill(ptr, BYTES / 2, 0x77, stream);
	keep_busy(stream);
	fill(ptr + BYTES / 2, BYTES / 2, 0x77, stream);

	void *what[] = {buffer, stream};
	GM_REQUIRE(pthread_create(&thread, NULL, publish_now, what) == 0);
	for (int i = 0; i < 50; i++) {
		GM_REQUIRE_EQ(attach_status(NAME), GPUMEM_E_NOT_FOUND);
		GM_REQUIRE(!atomic_load(&published));
	}
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'g');
	open_gate();
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	gm_text_say_word(channel, 'p');
	gm_hear_word(channel, 'e');
}

static void reader(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("reader");
	use_gpu();
	OK(gpumem_attach(session, NAME, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), BYTES);
	GM_REQUIRE_EQ(gpumem_buffer_version(buffer), 1);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 0x77, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* Reads the metadata without a context, and without any memory of the GPU. */
static void describer(int channel, void *argument)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	uint64_t version = 0;
	uint8_t *data = NULL;
	size_t size = 0;
	join("describer");
	OK(gpumem_metadata_read(session, NAME, (void **)&data, &size, &version));
	GM_REQUIRE_EQ(version, 1);
	GM_REQUIRE_EQ(size, META);
	GM_REQUIRE(data[0] == 0x33 && memcmp(data, data + 1, META - 1) == 0);
	gpumem_metadata_free(data);
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.active_buffers, 0);
	gpumem_disconnect(session);
}

static void remover(int channel, void *argument)
{
	join("remover");
	OK(gpumem_unpublish(session, NAME));
	gpumem_disconnect(session);
}

START_TEST(readers_find_all_that_the_stream_of_a_dead_maker_wrote)
{
	struct gm_worker maker_;
	start_with(CONFIG(""));
	gm_worker_start(&maker_, at_work, NULL);
	gm_hear_word(maker_.channel, 'w');
	gm_text_say_word(maker_.channel, 'g');
	gm_hear_word(maker_.channel, 'p');
	gm_worker_kill(&maker_);
	one_worker(reader, NULL);
	one_worker(describer, NULL);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	one_worker(reader, NULL);
	one_worker(describer, NULL);
	one_worker(remover, NULL);
	tear_down();
}
END_TEST

static void looks_for_nothing(int channel, void *argument)
{
	join("reader");
	GM_REQUIRE_EQ(attach_status(NAME), GPUMEM_E_NOT_FOUND);
	gpumem_disconnect(session);
}

START_TEST(a_maker_that_is_killed_while_its_stream_works_leaves_no_name)
{
	struct gm_worker maker_;
	start_with(CONFIG(""));
	gm_worker_start(&maker_, at_work, NULL);
	gm_hear_word(maker_.channel, 'w');
	gm_worker_kill(&maker_);
	one_worker(looks_for_nothing, NULL);
	tear_down();
}
END_TEST

/* Another stream of the process works for good. Only the stream that the program names counts. */
static void beside_a_busy_stream(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("maker");
	use_gpu();
	gm_cu_stream busy = stream_new(), stream = stream_new();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	keep_busy(busy);
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x77, stream);
	OK(gpumem_publish(buffer, NAME, NULL, stream, NULL));
	GM_REQUIRE_EQ(cuda->cuStreamQuery(busy), GM_CUDA_ERROR_NOT_READY);
	gm_text_say_word(channel, 'p');
	gm_hear_word(channel, 'g');
	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_publish_waits_for_its_stream_and_for_no_other)
{
	struct gm_worker maker_;
	start_with(CONFIG(""));
	gm_worker_start(&maker_, beside_a_busy_stream, NULL);
	gm_hear_word(maker_.channel, 'p');
	one_worker(reader, NULL);
	gm_text_say_word(maker_.channel, 'g');
	gm_worker_join(&maker_);
	one_worker(remover, NULL);
	tear_down();
}
END_TEST

/* ---- names that end by themselves */

/* Publishes for a second, and looks at the memory after the name has ended. */
static void short_lived(int channel, void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer, *view;
	join("maker");
	use_gpu();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x77, NULL);
	options.expires_s = 1;
	OK(gpumem_publish(buffer, NAME, &options, NULL, NULL));
	OK(gpumem_attach(session, NAME, &view));
	gpumem_buffer_destroy(buffer);
	while (attach_status(NAME) == GPUMEM_OK)
		continue;
	GM_REQUIRE(all(gpumem_buffer_ptr(view), BYTES, 0x77, NULL));
	gpumem_buffer_destroy(view);
	gpumem_disconnect(session);
}

START_TEST(an_expired_name_leaves_readers_what_they_have)
{
	start_with(CONFIG(""));
	one_worker(short_lived, NULL);
	tear_down();
}
END_TEST

/* ---- captures */

static void capturer(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("capturer");
	use_gpu();
	gm_cu_stream stream = stream_new(), other = stream_new();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x77, other);
	CU(cuda->cuStreamSynchronize(other));

	begin_capture(stream);
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x5c, stream);
	REFUSED(gpumem_publish(buffer, NAME, NULL, stream, NULL), GPUMEM_E_BUSY, "captured");
	REFUSED(gpumem_publish(buffer, NAME, NULL, GPUMEM_STREAM_ANY, NULL), GPUMEM_E_BUSY,
		"captured");
	GM_REQUIRE_EQ(attach_status(NAME), GPUMEM_E_NOT_FOUND);
	(void)end_capture(stream); /* nothing of ours broke it */

	OK(gpumem_publish(buffer, NAME, NULL, stream, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_capture_is_refused_and_not_broken)
{
	start_with(CONFIG(""));
	one_worker(capturer, NULL);
	one_worker(reader, NULL);
	one_worker(remover, NULL);
	tear_down();
}
END_TEST

/* ---- other memory */

static void on_ipc(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("ipc");
	use_gpu();
	OK(create(BYTES, GPUMEM_TRANSPORT_IPC, &buffer));
	REFUSED(gpumem_publish(buffer, NAME, NULL, NULL, NULL), GPUMEM_E_UNSUPPORTED, "ipc");
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(memory_that_ends_with_the_daemon_is_not_published)
{
	start_with(IPC_CONFIG);
	one_worker(on_ipc, NULL);
	tear_down();
}
END_TEST

static void pinned_maker(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("pinned maker");
	use_gpu();
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, BYTES, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 0x77, BYTES);
	OK(gpumem_publish(buffer, NAME, NULL, NULL, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(pinned_memory_outlives_its_maker)
{
	start_with(_i ? CONFIG("host_limit = 128M\nhost_memory = memfd\n")
		      : CONFIG("host_limit = 128M\n"));
	one_worker(pinned_maker, NULL);
	one_worker(reader, NULL);
	one_worker(remover, NULL);
	tear_down();
}
END_TEST

/* ---- another user */

static void maker_for_a(int channel, void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer;
	join("maker");
	use_gpu();
	options.audience = GPUMEM_AUDIENCE_UID;
	options.id = UID_A;
	OK(create_for_others(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x77, NULL);
	REFUSED(gpumem_publish(buffer, NAME, &options, NULL, NULL), GPUMEM_E_UNSUPPORTED,
		"say that readers can write");
	options.flags = GPUMEM_READERS_CAN_WRITE;
	OK(gpumem_publish(buffer, NAME, &options, NULL, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

static void reader_a(int channel, void *argument)
{
	gpumem_buffer *buffer;
	char name[64];
	snprintf(name, sizeof(name), "uid:%u/" NAME, (unsigned)getuid());
	become(UID_A);
	join("reader");
	use_gpu();
	GM_REQUIRE_EQ(attach_status(NAME), GPUMEM_E_NOT_FOUND);
	OK(gpumem_attach(session, name, &buffer));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 0x77, NULL));
	GM_REQUIRE_EQ(gpumem_unpublish(session, name), GPUMEM_E_DENIED);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(another_user_attaches_to_what_is_for_it)
{
	start_with(CONFIG(""));
	one_worker(maker_for_a, NULL);
	one_worker(reader_a, NULL);
	one_worker(remover, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("names gpu");
	TCase *tc = tcase_create("names gpu");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, readers_find_all_that_the_stream_of_a_dead_maker_wrote);
	tcase_add_test(tc, a_maker_that_is_killed_while_its_stream_works_leaves_no_name);
	tcase_add_test(tc, a_publish_waits_for_its_stream_and_for_no_other);
	tcase_add_test(tc, an_expired_name_leaves_readers_what_they_have);
	tcase_add_test(tc, a_capture_is_refused_and_not_broken);
	tcase_add_test(tc, memory_that_ends_with_the_daemon_is_not_published);
	tcase_add_loop_test(tc, pinned_memory_outlives_its_maker, 0, 2);
	if (GM_TAP_WITH_USERS(another_user_attaches_to_what_is_for_it))
		tcase_add_test(tc, another_user_attaches_to_what_is_for_it);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
