/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Tracking on GPUs: pointers, buffers and entries on both transports and in pinned host memory are known
 * until they are freed, and no longer, even if the GPU still works on them. See broker.h.
 */

#include <stdlib.h>

#include "tests/gpu/broker.h"

#define BYTES (3 * MIB)

static uint64_t leaks(void)
{
	uint64_t count;
	OK(gpumem_leaks(session, 0, NULL, NULL, &count));
	return count;
}

struct place {
	const char *config;
	gpumem_transport transport;
	bool pinned;
};

/* Checks that what is told has a place in this program. */
static void tell(void *user, const gpumem_leak *leak)
{
	uint32_t *device = user;
	GM_REQUIRE(strstr(leak->stack, "check_leaks_gpu+0x"));
	GM_REQUIRE_EQ(leak->bytes, BYTES);
	GM_REQUIRE_EQ(leak->device, *device);
}

static void tracker(int channel, void *argument)
{
	const struct place *place = argument;
	uint32_t device = place->pinned ? GPUMEM_DEVICE_HOST : 0;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_batch_entry entry = {BYTES, 0, "entry"};
	gpumem_buffer *buffer;
	gpumem_batch *batch;
	void *ptr;

	(void)channel;
	setenv("GPUMEM_TRACK", "stacks", 1);
	join("tracker");
	use_gpu();
	gm_cu_stream stream = stream_new();
	GM_REQUIRE_EQ(leaks(), 0);

	options.transport = place->transport;
	OK(gpumem_buffer_create(session, device, BYTES, &options, &buffer));
	OK(gpumem_batch_create(session, device, &entry, 1, NULL, &batch));
	if (place->pinned)
		OK(gpumem_host_alloc(session, BYTES, NULL, &ptr));
	else
		OK(gpumem_alloc(session, 0, BYTES, stream, NULL, &ptr));
	GM_REQUIRE_EQ(leaks(), 3);
	OK(gpumem_leaks(session, 0, tell, &device, NULL));

	/* The GPU is at work when they are freed. */
	if (!place->pinned)
		fill(ptr, BYTES, 1, stream);
	OK(gpumem_free(session, ptr, place->pinned ? GPUMEM_STREAM_ANY : (gpumem_stream)stream));
	GM_REQUIRE_EQ(leaks(), 2);
	OK(gpumem_batch_free_entry(batch, 0, stream));
	GM_REQUIRE_EQ(leaks(), 1);
	gpumem_batch_destroy(batch);
	gpumem_buffer_destroy(buffer);
	GM_REQUIRE_EQ(leaks(), 0);
	gpumem_disconnect(session);
}

START_TEST(memory_is_known_until_it_is_freed)
{
	static const struct place places[] = {
		{CONFIG(""), GPUMEM_TRANSPORT_FD, false},
		{IPC_CONFIG, GPUMEM_TRANSPORT_IPC, false},
		{CONFIG("host_limit = 64M\n"), GPUMEM_TRANSPORT_AUTO, true},
		{CONFIG("host_limit = 64M\nhost_memory = memfd\n"), GPUMEM_TRANSPORT_AUTO, true},
	};
	struct gm_worker worker;

	start_with(places[_i].config);
	gm_worker_start(&worker, tracker, (void *)&places[_i]);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leaks gpu");
	TCase *tc = tcase_create("leaks gpu");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, memory_is_known_until_it_is_freed, 0, 4);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
