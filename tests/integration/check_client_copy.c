/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Transfers between host memory and buffers against a real daemon: byte for byte by every strategy,
 * without pinned memory, and without the daemon. Files are in check_client_copy_file.c, and what a
 * program does while a transfer runs is in check_client_copy_meanwhile.c.
 */

#include <stdio.h>
#include <unistd.h>

#include "tests/integration/copy_fixture.h"
#include "tests/tap.h"

static gpumem_copy_options by(gpumem_copy_strategy strategy)
{
	return by_threads(strategy, 0, 0, 0);
}

/* Copies there and back; both must be right, and what lies around must be as it was. */
static void round_trip(
	size_t offset, size_t n, const gpumem_copy_options *options, gpumem_copy_result *ret_result)
{
	static uint8_t seed;
	uint8_t *from = pattern(n, ++seed), *to = calloc(1, n + 2);
	gpumem_copy_result back = GPUMEM_COPY_RESULT_INIT;
	GM_REQUIRE(to);
	gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);

	OK(gpumem_copy_in(buffer, offset, from, n, GPUMEM_STREAM_DONE, options, ret_result));
	GM_REQUIRE_EQ(ret_result->bytes, n);
	require_in_buffer(offset, from, n, 0xee);

	OK(gpumem_copy_out(buffer, offset, to + 1, n, GPUMEM_STREAM_DONE, options, &back));
	GM_REQUIRE_EQ(back.bytes, n);
	GM_REQUIRE_EQ(back.strategy, ret_result->strategy);
	GM_REQUIRE(memcmp(from, to + 1, n) == 0);
	GM_REQUIRE_EQ(to[0] + to[n + 1], 0);
	free(from);
	free(to);
}

/* ---- byte for byte */

START_TEST(staged_copies_are_right_around_the_borders_of_slots)
{
	static const size_t lengths[] = {0, 1, 2, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT, 3 * SLOT - 1,
		4 * SLOT + 1, 7 * SLOT, 17 * SLOT + 13};
	static const size_t offsets[] = {0, 1, 4097};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		for (size_t k = 0; k < 3; k++) {
			gpumem_copy_options options =
				staged(1 + (uint32_t)(i + k) % 4, 2 + (uint32_t)(i * 3 + k) % 5);
			gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
			round_trip(offsets[k], lengths[i], &options, &result);
			GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
			if (lengths[i] && gm_on_gpu()) {
				GM_REQUIRE(result.slots >= 2 && result.slots <= options.slots);
				GM_REQUIRE_EQ(result.slot_bytes, SLOT);
			} else {
				GM_REQUIRE_EQ(result.slots, 0);
			}
			GM_REQUIRE_EQ(result.ring_status, GPUMEM_OK);
		}
}
END_TEST

START_TEST(random_copies_by_all_strategies_are_right)
{
	unsigned seed = 17;
	for (int i = 0; i < 60; i++) {
		gpumem_copy_options options = staged(rand_r(&seed) % 5, 2 + rand_r(&seed) % 9);
		options.slot_bytes = SLOT + (size_t)(rand_r(&seed) % 4) * 4099;
		options.strategy = (gpumem_copy_strategy[]){
			GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC, GPUMEM_COPY_STAGED}[rand_r(&seed) % 3];
		size_t n = (size_t)rand_r(&seed) % (3 * MIB);
		size_t offset = (size_t)rand_r(&seed) % (ROOM - n + 1);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		round_trip(offset, n, &options, &result);
	}
}
END_TEST

START_TEST(the_library_chooses_by_size)
{
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	round_trip(3, 5000, NULL, &result);
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_SYNC);
	GM_REQUIRE_EQ(result.threads, 0);
	round_trip(0, ROOM, NULL, &result);
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	GM_REQUIRE(result.threads > 0);
}
END_TEST

START_TEST(an_asynchronous_copy_is_done_when_the_stream_is)
{
	gpumem_copy_options options = by(GPUMEM_COPY_ASYNC);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	void *host;
	OK(gpumem_host_alloc(session, 2 * MIB, NULL, &host));
	uint8_t *bytes = pattern(2 * MIB, 5);
	memcpy(host, bytes, 2 * MIB);
	OK(gpumem_copy_in(buffer, 7, host, 2 * MIB - 7, NULL, &options, &result));
	GM_REQUIRE_EQ(result.bytes, 2 * MIB - 7);
	GM_REQUIRE_EQ(result.strategy, gm_on_gpu() ? GPUMEM_COPY_ASYNC : GPUMEM_COPY_SYNC);
	require_in_buffer(7, bytes, 2 * MIB - 7, 0xee);

	memset(host, 0, 2 * MIB);
	OK(gpumem_copy_out(buffer, 7, host, 2 * MIB - 7, NULL, &options, &result));
	/* A copy that waits for the stream comes after it. */
	uint8_t byte;
	OK(gpumem_copy_out(buffer, 0, &byte, 1, NULL, NULL, NULL));
	GM_REQUIRE_EQ(byte, 0xee);
	GM_REQUIRE(memcmp(host, bytes, 2 * MIB - 7) == 0);
	OK(gpumem_host_free(session, host));
	free(bytes);
}
END_TEST

/* Pinned memory needs no ring, whatever is asked for. */
START_TEST(memory_that_the_driver_knows_is_copied_directly)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(ROOM, 9);
	void *host;
	OK(gpumem_host_alloc(session, ROOM, NULL, &host));
	memcpy(host, bytes, ROOM);
	OK(gpumem_copy_in(buffer, 0, host, ROOM, NULL, &options, &result));
	require_in_buffer(0, bytes, ROOM, 0);
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE_EQ(result.strategy, gm_on_gpu() ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED);
	OK(gpumem_host_free(session, host));
	free(bytes);
}
END_TEST

START_TEST(a_buffer_of_pinned_memory_is_copied_by_the_cpu)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(3 * MIB, 1);
	gpumem_buffer *host;
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 4 * MIB, NULL, &host));
	OK(gpumem_copy_in(host, 5, bytes, 3 * MIB, NULL, &options, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE(memcmp((uint8_t *)gpumem_buffer_ptr(host) + 5, bytes, 3 * MIB) == 0);
	memset(bytes, 0, 3 * MIB);
	OK(gpumem_copy_out(host, 5, bytes, 3 * MIB, GPUMEM_STREAM_ANY, NULL, NULL));
	GM_REQUIRE(memcmp((uint8_t *)gpumem_buffer_ptr(host) + 5, bytes, 3 * MIB) == 0);
	gpumem_buffer_destroy(host);
	free(bytes);
}
END_TEST

/* ---- no copy */

START_TEST(managed_copies_move_nothing_and_are_refused_elsewhere)
{
	gpumem_copy_options options = by(GPUMEM_COPY_MANAGED);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *host;
	char other[16] = "";
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 4 * MIB, NULL, &host));
	uint8_t *own = gpumem_buffer_ptr(host);
	own[100] = 7;
	OK(gpumem_copy_in(host, 100, own + 100, 50, NULL, &options, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_MANAGED);
	GM_REQUIRE_EQ(result.bytes, 50);
	GM_REQUIRE_EQ(own[100], 7);
	/* So does a copy of the memory to itself by any other strategy. */
	OK(gpumem_copy_out(host, 100, own + 100, 50, NULL, NULL, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_MANAGED);
	REFUSED(gpumem_copy_in(host, 100, other, 16, NULL, &options, NULL), GPUMEM_E_INVALID,
		"from is not the buffer's memory");
	REFUSED(gpumem_copy_in(host, 100, own + 101, 50, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"from overlaps");
	gpumem_buffer_destroy(host);
	REFUSED(gpumem_copy_out(buffer, 0, other, 16, NULL, &options, NULL),
		gm_on_gpu() ? GPUMEM_E_UNSUPPORTED : GPUMEM_E_INVALID, "strategy auto");
}
END_TEST

/* ---- wrong arguments */

START_TEST(wrong_arguments_are_named)
{
	gpumem_copy_options options = GPUMEM_COPY_OPTIONS_INIT;
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT, none = {0};
	/* Not known to the compiler, which would warn of these calls. */
	volatile size_t huge = SIZE_MAX;
	uint8_t bytes[64] = {0};
	result.bytes = 77;
	REFUSED(gpumem_copy_in(NULL, 0, bytes, 1, NULL, NULL, NULL), GPUMEM_E_INVALID, "buffer");
	REFUSED(gpumem_copy_in(buffer, 0, NULL, 1, NULL, NULL, &result), GPUMEM_E_INVALID, "from");
	REFUSED(gpumem_copy_out(buffer, 0, NULL, 1, NULL, NULL, NULL), GPUMEM_E_INVALID, "to must");
	OK(gpumem_copy_in(buffer, ROOM, NULL, 0, NULL, NULL, NULL));
	REFUSED(gpumem_copy_in(buffer, ROOM, bytes, 1, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"1 bytes at offset 8388608 do not fit");
	REFUSED(gpumem_copy_in(buffer, ROOM + 1, bytes, 0, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"offset");
	REFUSED(gpumem_copy_out(buffer, 1, bytes, huge, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"offset 1");
	REFUSED(gpumem_copy_out(buffer, huge, bytes, huge, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"offset");
	REFUSED(gpumem_copy_in(buffer, 0, (void *)(huge - 9), 11, NULL, NULL, NULL),
		GPUMEM_E_INVALID, "from and bytes");
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, NULL, &none), GPUMEM_E_INVALID,
		"ret_result");

	options.strategy = (gpumem_copy_strategy)5;
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"strategy 5");
	options = staged(65, 2);
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"threads is 65");
	options = staged(1, 1);
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"slots is 1");
	options.slots = 65;
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"slots is 65");
	options = staged(1, 2);
	options.slot_bytes = GPUMEM_COPY_SLOT_LEAST - 1;
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"slot_bytes is 65535");
	options.slot_bytes = (size_t)GPUMEM_COPY_SLOT_MOST + 1;
	REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID,
		"slot_bytes");
	options.size = 0;
	GM_REQUIRE_EQ(gpumem_copy_in(buffer, 0, bytes, 1, NULL, &options, NULL), GPUMEM_E_INVALID);
	REFUSED(gpumem_copy_set_limit(NULL, 0), GPUMEM_E_INVALID, "session");
	GM_REQUIRE_EQ(result.bytes, 77);
	if (gm_on_gpu()) {
		REFUSED(gpumem_copy_in(buffer, 0, gpumem_buffer_ptr(buffer), 11, NULL, NULL, NULL),
			GPUMEM_E_INVALID, "from overlaps");
		options = by(GPUMEM_COPY_ASYNC);
		REFUSED(gpumem_copy_in(buffer, 0, bytes, 1, GPUMEM_STREAM_ANY, &options, NULL),
			GPUMEM_E_INVALID, "stream must be a stream");
	}
}
END_TEST

START_TEST(a_buffer_that_may_only_be_read_is_not_written)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_share_options share = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_session *reader = join("the reader");
	gpumem_buffer *shared, *view;
	gpumem_token token;
	uint8_t byte = 7;
	options.flags = GPUMEM_BUFFER_FOR_OTHERS;
	OK(gpumem_buffer_create(session, 0, 2 * MIB, &options, &shared));
	OK(gpumem_copy_in(shared, 3, &byte, 1, NULL, NULL, NULL));
	/* By uid: clients of one user are not always in one trust domain. */
	share.audience = GPUMEM_AUDIENCE_UID;
	share.id = geteuid();
	share.mode = GPUMEM_SHARE_READ_ONLY;
	share.flags = gm_on_gpu() ? GPUMEM_READERS_CAN_WRITE : 0;
	OK(gpumem_share(shared, &share, &token));
	OK(gpumem_open(reader, &token, &view));
	REFUSED(gpumem_copy_in(view, 0, &byte, 1, NULL, NULL, NULL), GPUMEM_E_DENIED,
		"opened for reading only");
	byte = 0;
	OK(gpumem_copy_out(view, 3, &byte, 1, NULL, NULL, NULL));
	GM_REQUIRE_EQ(byte, 7);
	gpumem_buffer_destroy(view);
	gpumem_disconnect(reader);
	gpumem_buffer_destroy(shared);
}
END_TEST

/* ---- little pinned memory, and none */

START_TEST(a_limit_makes_the_ring_smaller)
{
	gpumem_copy_options options = staged(2, 16);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	options.slot_bytes = 512 * KIB;
	OK(gpumem_copy_set_limit(session, 5 * 512 * KIB));
	round_trip(1, ROOM - 1, &options, &result);
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	if (gm_on_gpu()) {
		GM_REQUIRE_EQ(result.slots, 4);
		GM_REQUIRE_EQ(result.ring_status, GPUMEM_E_LIMIT);
	}

	OK(gpumem_copy_set_limit(session, 600 * KIB));
	round_trip(1, ROOM - 1, &options, &result);
	if (gm_on_gpu()) {
		GM_REQUIRE_EQ(result.slots, 2);
		GM_REQUIRE_EQ(result.slot_bytes, 256 * KIB);
		GM_REQUIRE_EQ(result.ring_status, GPUMEM_E_LIMIT);
	}

	/* What was refused in between is not the failure of a call. */
	REFUSED(gpumem_copy_in(NULL, 0, "", 1, NULL, NULL, NULL), GPUMEM_E_INVALID, "buffer");
	OK(gpumem_copy_set_limit(session, 0));
	round_trip(1, ROOM - 1, &options, &result);
	GM_REQUIRE(strstr(gpumem_error_detail(), "buffer must not be NULL"));
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE_EQ(result.strategy, gm_on_gpu() ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED);
	GM_REQUIRE_EQ(result.ring_status, gm_on_gpu() ? GPUMEM_E_LIMIT : GPUMEM_OK);
}
END_TEST

START_TEST(used_up_pinned_memory_makes_the_ring_smaller)
{
	gpumem_copy_options options = staged(2, 16);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *most;
	options.slot_bytes = MIB;
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 92 * MIB, NULL, &most));
	round_trip(1, ROOM - 1, &options, &result);
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	if (gm_on_gpu()) {
		GM_REQUIRE(result.slots >= 2 && result.slots <= 4);
		GM_REQUIRE(result.ring_status == GPUMEM_E_NO_MEMORY ||
			   result.ring_status == GPUMEM_E_TIMEOUT);
	}
	gpumem_buffer_destroy(most);
}
END_TEST

START_TEST(without_pinned_memory_copies_are_synchronous)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	copy_set_up_with(COPY_CONFIG("0"));
	round_trip(1, ROOM - 1, &options, &result);
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE_EQ(result.strategy, gm_on_gpu() ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED);
	GM_REQUIRE_EQ(result.ring_status, gm_on_gpu() ? GPUMEM_E_UNSUPPORTED : GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
	tear_down();
}
END_TEST

/* The slots of a transfer are cached for the next one, and go back when they are wanted. */
START_TEST(a_ring_goes_back_like_all_cached_memory)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	round_trip(0, ROOM, &options, &result);
	gpumem_stats_t stats = stats_of(GPUMEM_DEVICE_HOST);
	if (!gm_on_gpu())
		GM_REQUIRE_EQ(stats.allocated, 0);
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(stats_of(GPUMEM_DEVICE_HOST).allocated == 0);
}
END_TEST

/* ---- without the daemon */

static int kill_the_daemon(void *user, uint64_t done, uint64_t total)
{
	if (daemon_.pid)
		gm_daemon_kill(&daemon_);
	return 0;
}

START_TEST(a_transfer_does_not_need_the_daemon)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(ROOM, 3);
	options.progress = kill_the_daemon;
	OK(gpumem_copy_in(buffer, 0, bytes, ROOM, NULL, &options, &result));
	GM_REQUIRE_EQ(daemon_.pid, 0);
	require_in_buffer(0, bytes, ROOM, 0);

	/* The daemon is away. The ring is cached, or there is none. */
	round_trip(1, ROOM - 1, &options, &result);
	GM_REQUIRE(result.strategy == GPUMEM_COPY_STAGED ||
		   result.ring_status == GPUMEM_E_DISCONNECTED);
	free(bytes);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	/* The next request comes through again. */
	gpumem_buffer *more;
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &more));
	gpumem_buffer_destroy(more);
}
END_TEST

static void use_in_child(int channel, void *argument)
{
	uint8_t byte = 1;
	REFUSED(gpumem_copy_in(buffer, 0, &byte, 1, NULL, NULL, NULL), GPUMEM_E_FORKED, "");
}

START_TEST(a_child_cannot_use_its_parents_buffers)
{
	struct gm_worker worker;
	gm_worker_start(&worker, use_in_child, NULL);
	gm_worker_join(&worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_copy");
	TCase *tc = tcase_create("with pinned memory"), *none = tcase_create("without");
	tcase_add_checked_fixture(tc, copy_set_up, copy_tear_down);
	tcase_set_timeout(tc, 240);
	tcase_set_timeout(none, 240);

	tcase_add_test(tc, staged_copies_are_right_around_the_borders_of_slots);
	tcase_add_test(tc, random_copies_by_all_strategies_are_right);
	tcase_add_test(tc, the_library_chooses_by_size);
	tcase_add_test(tc, an_asynchronous_copy_is_done_when_the_stream_is);
	tcase_add_test(tc, memory_that_the_driver_knows_is_copied_directly);
	tcase_add_test(tc, a_buffer_of_pinned_memory_is_copied_by_the_cpu);
	tcase_add_test(tc, managed_copies_move_nothing_and_are_refused_elsewhere);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, a_buffer_that_may_only_be_read_is_not_written);
	tcase_add_test(tc, a_limit_makes_the_ring_smaller);
	tcase_add_test(tc, used_up_pinned_memory_makes_the_ring_smaller);
	tcase_add_test(tc, a_ring_goes_back_like_all_cached_memory);
	tcase_add_test(tc, a_transfer_does_not_need_the_daemon);
	tcase_add_test(tc, a_child_cannot_use_its_parents_buffers);
	tcase_add_test(none, without_pinned_memory_copies_are_synchronous);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, none);
	return gm_tap_run(suite);
}
