/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Evictable buffers against a real daemon: they go to host memory and come back to their address with
 * their content, when the program says so and when the daemon asks; what is refused changes nothing; and
 * the daemon's books are those of the client.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "gpumem/gpumem_copy.h"
#include "gpumem/gpumem_ring.h"
#include "tests/integration/evict_fixture.h"
#include "tests/integration/refused.h"
#include "tests/tap.h"

static void set_up_none(void)
{
	set_up_with(CONFIG_WITH("0"));
}

static void set_up_full(void)
{
	set_up_with(CONFIG_WITH("16M"));
}

/* Clients may take as long as they like to make room. */
static void set_up_slow(void)
{
	set_up_with(CONFIG_WITH("256M\nreclaim_deadline = 10m"));
}

static void require_leased(uint64_t device, uint64_t host)
{
	GM_REQUIRE_EQ(leased_on(0), device);
	GM_REQUIRE_EQ(leased_on(1), host);
}

/* ---- by the program */

START_TEST(an_evicted_buffer_comes_back_to_its_address_with_its_content)
{
	gpumem_buffer *buffer = filled(6 * MIB, 7);
	const void *place = gpumem_buffer_ptr(buffer);
	require_leased(6 * MIB, 0);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_DEVICE);

	for (int i = 0; i < 3; i++) {
		evict(buffer);
		GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
		require_leased(0, 6 * MIB);
		GM_REQUIRE_EQ(stats_of(0).allocated, 0);
		GM_REQUIRE_EQ(stats_of(0).in_use, 0);
		GM_REQUIRE_EQ(stats_of(GPUMEM_DEVICE_HOST).in_use, 6 * MIB);
		OK(gpumem_buffer_evict(buffer));

		pin(buffer);
		GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
		require_leased(6 * MIB, 0);
		GM_REQUIRE_EQ(stats_of(0).in_use, 6 * MIB);
		GM_REQUIRE_EQ(stats_of(GPUMEM_DEVICE_HOST).allocated, 0);
		require(buffer, (uint8_t)(7 + i));
		fill(buffer, (uint8_t)(8 + i));
		unpin(buffer);
	}
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(an_evicted_buffer_that_is_destroyed_gives_its_host_memory_back)
{
	gpumem_buffer *buffer = filled(4 * MIB, 1);
	evict(buffer);
	require_leased(0, 4 * MIB);
	gpumem_buffer_destroy(buffer);
	GM_UNTIL(leased_on(1) == 0);
	buffer = filled(4 * MIB, 1);
	evict(buffer);
	/* The session's end gives back the next one. */
}
END_TEST

START_TEST(wrong_calls_are_refused_and_change_nothing)
{
	gpumem_buffer *buffer = create(4 * MIB), *plain = NULL;
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_token token;
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &plain));
	REFUSED(gpumem_buffer_unpin(buffer, NULL), GPUMEM_E_INVALID, "not pinned");
	pin(buffer);
	pin(buffer);
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "pinned");
	unpin(buffer);
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "pinned");
	unpin(buffer);
	REFUSED(gpumem_buffer_unpin(buffer, NULL), GPUMEM_E_INVALID, "not pinned");

	REFUSED(gpumem_buffer_pin(plain, NULL, NULL), GPUMEM_E_UNSUPPORTED, "not evictable");
	REFUSED(gpumem_buffer_unpin(plain, NULL), GPUMEM_E_UNSUPPORTED, "not evictable");
	REFUSED(gpumem_buffer_evict(plain), GPUMEM_E_UNSUPPORTED, "not evictable");
	REFUSED(gpumem_buffer_pin(NULL, NULL, NULL), GPUMEM_E_INVALID, "buffer");
	REFUSED(gpumem_buffer_unpin(NULL, NULL), GPUMEM_E_INVALID, "buffer");
	options.flags = 8;
	REFUSED(gpumem_buffer_pin(buffer, &options, NULL), GPUMEM_E_INVALID, "flags 0x8");
	options.size = 0;
	REFUSED(gpumem_buffer_pin(buffer, &options, NULL), GPUMEM_E_INVALID, "size");

	/* What needs the lease needs a pin. */
	REFUSED(gpumem_buffer_resize(buffer, 8 * MIB, NULL, NULL), GPUMEM_E_BUSY, "pin");
	REFUSED(gpumem_share(buffer, NULL, &token), GPUMEM_E_BUSY, "pin");
	REFUSED(gpumem_publish(buffer, "x", NULL, NULL, NULL), GPUMEM_E_BUSY, "pin");
	evict(buffer);
	REFUSED(gpumem_buffer_resize(buffer, 8 * MIB, NULL, NULL), GPUMEM_E_BUSY, "pin");
	pin(buffer);
	OK(gpumem_buffer_resize(buffer, 8 * MIB, NULL, NULL));
	fill(buffer, 3);
	unpin(buffer);
	evict(buffer);
	pin(buffer);
	require(buffer, 3);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(plain);
}
END_TEST

START_TEST(a_buffer_is_evictable_only_where_it_can_be)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.flags = GPUMEM_BUFFER_EVICTABLE | GPUMEM_BUFFER_SIGNALS;
	REFUSED(gpumem_buffer_create(session, 0, MIB, &options, &buffer), GPUMEM_E_INVALID,
		"signals");
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	options.transport = GPUMEM_TRANSPORT_IPC;
	REFUSED(gpumem_buffer_create(session, 0, MIB, &options, &buffer), GPUMEM_E_INVALID, "ipc");
	options.transport = GPUMEM_TRANSPORT_AUTO;
	REFUSED(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, MIB, &options, &buffer),
		GPUMEM_E_UNSUPPORTED, "host memory already");
}
END_TEST

START_TEST(without_host_memory_nothing_is_evictable)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	REFUSED(gpumem_buffer_create(session, 0, MIB, &options, &buffer), GPUMEM_E_UNSUPPORTED,
		"host_limit");
}
END_TEST

START_TEST(a_shared_buffer_stays_until_nobody_can_have_it)
{
	gpumem_buffer *buffer = filled(4 * MIB, 5), *view = NULL;
	gpumem_session *other = join("other");
	gpumem_token token;
	pin(buffer);
	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(other, &token, &view));
	unpin(buffer);
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "");
	pin(buffer);
	OK(gpumem_unshare(buffer));
	unpin(buffer);
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "");
	gpumem_buffer_destroy(view);
	gpumem_disconnect(other);
	evict(buffer);
	pin(buffer);
	require(buffer, 5);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- by several threads */

enum { THREADS = 4, SHARED = 3, ROUNDS = 60 };
static gpumem_buffer *shared[SHARED];

static void *pin_and_evict(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	for (int i = 0; i < ROUNDS; i++) {
		unsigned which = (unsigned)rand_r(&seed) % SHARED;
		gpumem_buffer *buffer = shared[which];
		if (rand_r(&seed) % 3 == 0) {
			gpumem_status status = gpumem_buffer_evict(buffer);
			GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY ||
				   status == GPUMEM_E_CANCELLED);
			continue;
		}
		pin(buffer);
		require(buffer, (uint8_t)(which + 1));
		OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	}
	return NULL;
}

START_TEST(a_pin_wins_over_an_eviction_or_waits_for_it)
{
	pthread_t threads[THREADS];
	for (unsigned i = 0; i < SHARED; i++)
		shared[i] = filled(2 * MIB, (uint8_t)(i + 1));
	for (uintptr_t i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, pin_and_evict, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < SHARED; i++) {
		REFUSED(gpumem_buffer_unpin(shared[i], NULL), GPUMEM_E_INVALID, "not pinned");
		gpumem_buffer_destroy(shared[i]);
	}
}
END_TEST

/* ---- in host memory */

/* Bytes go to the end of a pinned buffer and back, wherever it is. */
static void copy_both_ways(gpumem_buffer *buffer)
{
	static uint8_t from[3 * MIB], to[3 * MIB];
	size_t at = gpumem_buffer_size(buffer) - sizeof(to);
	OK(gpumem_copy_out(buffer, at, to, sizeof(to), NULL, NULL, NULL));
	memset(from, 0x77, sizeof(from));
	OK(gpumem_copy_in(buffer, at, from, sizeof(from), NULL, NULL, NULL));
	memcpy(from, to, sizeof(to));
	OK(gpumem_copy_out(buffer, at, to, sizeof(to), NULL, NULL, NULL));
	GM_REQUIRE(to[0] == 0x77 && memcmp(to, to + 1, sizeof(to) - 1) == 0);
	OK(gpumem_copy_in(buffer, at, from, sizeof(from), NULL, NULL, NULL));
}

START_TEST(bytes_are_copied_only_to_a_buffer_that_is_pinned)
{
	uint8_t byte = 1;
	gpumem_buffer *buffer = filled(8 * MIB, 1);
	REFUSED(gpumem_copy_in(buffer, 0, &byte, 1, NULL, NULL, NULL), GPUMEM_E_BUSY, "pinned");
	evict(buffer);
	REFUSED(gpumem_copy_out(buffer, 0, &byte, 1, NULL, NULL, NULL), GPUMEM_E_BUSY, "pinned");
	REFUSED(gpumem_ring_open(buffer, NULL, &(gpumem_ring *){NULL}), GPUMEM_E_UNSUPPORTED, "");
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	copy_both_ways(buffer);
	require(buffer, 1);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_pin_that_allows_it_finds_the_buffer_in_host_memory)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where = GPUMEM_LOCATION_DEVICE;
	gpumem_buffer *buffer = filled(32 * MIB, 9), *large = NULL;
	const void *place = gpumem_buffer_ptr(buffer);
	evict(buffer);
	OK(gpumem_buffer_create(session, 0, 60 * MIB, NULL, &large));

	options.wait_ms = 1;
	GM_REQUIRE_EQ(gpumem_buffer_pin(buffer, &options, NULL), GPUMEM_E_TIMEOUT);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	options.wait_ms = 0;
	options.flags = GPUMEM_PIN_HOST_OK;
	for (int i = 0; i < 2; i++) {
		OK(gpumem_buffer_pin(buffer, &options, &where));
		GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
		GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
		require(buffer, (uint8_t)(9 + i));
		fill(buffer, (uint8_t)(10 + i));
		copy_both_ways(buffer);
		/* Another thread's pin must not move it. */
		OK(gpumem_buffer_pin(buffer, &options, &where));
		REFUSED(gpumem_buffer_pin(buffer, NULL, NULL), GPUMEM_E_BUSY, "host memory");
		REFUSED(gpumem_buffer_resize(buffer, MIB, NULL, NULL), GPUMEM_E_BUSY,
			"host memory");
		unpin(buffer);
		unpin(buffer);
		OK(gpumem_buffer_evict(buffer));
		require_leased(60 * MIB, 32 * MIB);
	}

	/* Where there is room, it is brought back although it need not be. */
	gpumem_buffer_destroy(large);
	GM_UNTIL(leased_on(0) == 0);
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "back")) {
		OK(gpumem_buffer_pin(buffer, &options, &where));
		require(buffer, 11);
		if (where == GPUMEM_LOCATION_DEVICE)
			break;
		unpin(buffer);
	}
	require_leased(32 * MIB, 0);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- how long a pin takes */

/* A pin by another thread. */
struct pinner {
	gpumem_buffer *buffer;
	gpumem_pin_options options;
	gpumem_status status;
	gpumem_location where;
	pthread_t thread;
	atomic_bool done;
};

static void *pin_there(void *argument)
{
	struct pinner *pinner = argument;
	pinner->status = gpumem_buffer_pin(pinner->buffer, &pinner->options, &pinner->where);
	pinner->done = true;
	return NULL;
}

static void start_pin(
	struct pinner *pinner, gpumem_buffer *buffer, uint32_t flags, uint32_t wait_ms)
{
	*pinner = (struct pinner){.buffer = buffer, .options = GPUMEM_PIN_OPTIONS_INIT};
	pinner->options.flags = flags;
	pinner->options.wait_ms = wait_ms;
	GM_REQUIRE_EQ(pthread_create(&pinner->thread, NULL, pin_there, pinner), 0);
}

static gpumem_status end_pin(struct pinner *pinner)
{
	GM_UNTIL(pinner->done);
	pthread_join(pinner->thread, NULL);
	return pinner->status;
}

START_TEST(a_pin_waits_behind_another_no_longer_than_it_may)
{
	gpumem_buffer *buffer = filled(8 * MIB, 5), *large = NULL;
	struct pinner patient, other;
	evict(buffer);
	OK(gpumem_buffer_create(session, 0, 60 * MIB, NULL, &large));
	start_pin(&patient, buffer, 0, 10 * GM_PATIENCE_MS);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);

	start_pin(&other, buffer, 0, 1);
	GM_REQUIRE_EQ(end_pin(&other), GPUMEM_E_TIMEOUT);
	start_pin(&other, buffer, GPUMEM_PIN_HOST_OK, 0);
	GM_REQUIRE_EQ(end_pin(&other), GPUMEM_E_BUSY);
	/* One that waits long enough shares what the first gets. */
	start_pin(&other, buffer, 0, GM_PATIENCE_MS);
	GM_REQUIRE(!patient.done);

	gpumem_buffer_destroy(large);
	OK(end_pin(&patient));
	OK(end_pin(&other));
	require(buffer, 5);
	unpin(buffer);
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_BUSY, "pinned");
	unpin(buffer);
	gpumem_buffer_destroy(buffer);
}
END_TEST

static void hold_evictable(int channel, void *argument)
{
	gpumem_session *s = join("holds all");
	gm_hear_word(channel, 'g');
	gpumem_buffer *buffer = create_in(s, 60 * MIB);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(s);
}

/* The daemon would ask another client to make room, which does not answer; and then there is no daemon. */
START_TEST(a_pin_that_may_not_wait_asks_nobody_to_make_room)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	struct gm_worker worker;
	struct pinner pinner;
	start_worker(&worker, hold_evictable);
	gpumem_disconnect(session);
	options.away_ms = options.timeout_ms = 10 * GM_PATIENCE_MS;
	session = join_as(options, "the test");
	gpumem_buffer *buffer = filled(8 * MIB, 6);
	evict(buffer);
	gm_text_say_word(worker.channel, 'g');
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE_EQ(kill(worker.pid, SIGSTOP), 0);

	for (int i = 0; i < 2; i++) {
		start_pin(&pinner, buffer, GPUMEM_PIN_HOST_OK, 0);
		OK(end_pin(&pinner));
		GM_REQUIRE_EQ(pinner.where, GPUMEM_LOCATION_HOST);
		require(buffer, (uint8_t)(6 + i));
		fill(buffer, (uint8_t)(7 + i));
		unpin(buffer);
		if (i == 0)
			gm_daemon_kill(&daemon_);
	}
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(kill(worker.pid, SIGCONT), 0);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	pin(buffer);
	require(buffer, 8);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- without the daemon */

START_TEST(an_evicted_buffer_survives_restarts_of_the_daemon)
{
	gpumem_buffer *buffer = filled(30 * MIB, 3), *under = filled(8 * MIB, 4), *large = NULL;
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	evict(buffer);
	evict(under);
	OK(gpumem_buffer_create(session, 0, 60 * MIB, NULL, &large));
	options.flags = GPUMEM_PIN_HOST_OK;
	OK(gpumem_buffer_pin(under, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
	for (int i = 0; i < 2; i++) {
		gm_daemon_kill(&daemon_);
		require(under, (uint8_t)(4 + i));
		fill(under, (uint8_t)(5 + i));
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		/* What the client held is its own again as soon as it has come back. */
		GM_UNTIL(leased_on(0) == 60 * MIB && leased_on(1) == 38 * MIB);
		GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	}
	gpumem_buffer_destroy(large);
	unpin(under);
	pin(buffer);
	pin(under);
	require(buffer, 3);
	require(under, 6);
	require_leased(38 * MIB, 0);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(under);
}
END_TEST

/* ---- by the daemon */

START_TEST(what_was_not_used_for_longest_makes_room)
{
	gpumem_buffer *buffers[4], *large = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	for (int i = 0; i < 4; i++)
		buffers[i] = filled(16 * MIB, (uint8_t)i);
	/* 1 is pinned, and 0 was used last. */
	pin(buffers[1]);
	pin(buffers[0]);
	unpin(buffers[0]);
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_create(session, 0, 16 * MIB, &options, &large));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffers[0]), GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffers[1]), GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffers[2]), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffers[3]), GPUMEM_LOCATION_DEVICE);
	unpin(buffers[1]);
	for (int i = 0; i < 4; i++) {
		pin(buffers[i]);
		require(buffers[i], (uint8_t)i);
		unpin(buffers[i]);
		gpumem_buffer_destroy(buffers[i]);
	}
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(three_times_the_memory_works_in_turn)
{
	gpumem_buffer *buffers[24];
	for (int i = 0; i < 24; i++)
		buffers[i] = filled(8 * MIB, (uint8_t)i);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 24; i++) {
			pin(buffers[i]);
			require(buffers[i], (uint8_t)(i + round));
			fill(buffers[i], (uint8_t)(i + round + 1));
			unpin(buffers[i]);
		}
	for (int i = 0; i < 24; i++)
		gpumem_buffer_destroy(buffers[i]);
}
END_TEST

START_TEST(when_the_host_is_full_nothing_moves_and_nothing_is_lost)
{
	gpumem_buffer *a = filled(32 * MIB, 1), *b = filled(32 * MIB, 2), *large = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	REFUSED(gpumem_buffer_evict(a), GPUMEM_E_NO_MEMORY, "");
	options.wait_ms = 1;
	GM_REQUIRE_EQ(
		gpumem_buffer_create(session, 0, 4 * MIB, &options, &large), GPUMEM_E_TIMEOUT);
	GM_REQUIRE_EQ(gpumem_buffer_location(a), GPUMEM_LOCATION_DEVICE);
	pin(a);
	pin(b);
	require(a, 1);
	require(b, 2);
	gpumem_buffer_destroy(a);
	gpumem_buffer_destroy(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_evict");
	TCase *tc = tcase_create("evict");
	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, set_up_small, tear_down);
	tcase_add_test(tc, an_evicted_buffer_comes_back_to_its_address_with_its_content);
	tcase_add_test(tc, an_evicted_buffer_that_is_destroyed_gives_its_host_memory_back);
	tcase_add_test(tc, wrong_calls_are_refused_and_change_nothing);
	tcase_add_test(tc, a_buffer_is_evictable_only_where_it_can_be);
	tcase_add_test(tc, a_shared_buffer_stays_until_nobody_can_have_it);
	tcase_add_test(tc, a_pin_wins_over_an_eviction_or_waits_for_it);
	tcase_add_test(tc, a_pin_that_allows_it_finds_the_buffer_in_host_memory);
	tcase_add_test(tc, bytes_are_copied_only_to_a_buffer_that_is_pinned);
	tcase_add_test(tc, a_pin_waits_behind_another_no_longer_than_it_may);
	tcase_add_test(tc, an_evicted_buffer_survives_restarts_of_the_daemon);
	tcase_add_test(tc, what_was_not_used_for_longest_makes_room);
	tcase_add_test(tc, three_times_the_memory_works_in_turn);
	suite_add_tcase(suite, tc);

	TCase *none = tcase_create("none");
	tcase_set_timeout(none, 0);
	tcase_add_checked_fixture(none, set_up_none, tear_down);
	tcase_add_test(none, without_host_memory_nothing_is_evictable);
	suite_add_tcase(suite, none);

	TCase *slow = tcase_create("slow");
	tcase_set_timeout(slow, 0);
	tcase_add_checked_fixture(slow, set_up_slow, tear_down);
	tcase_add_test(slow, a_pin_that_may_not_wait_asks_nobody_to_make_room);
	suite_add_tcase(suite, slow);

	TCase *full = tcase_create("full");
	tcase_set_timeout(full, 0);
	tcase_add_checked_fixture(full, set_up_full, tear_down);
	tcase_add_test(full, when_the_host_is_full_nothing_moves_and_nothing_is_lost);
	suite_add_tcase(suite, full);
	return gm_tap_run(suite);
}
