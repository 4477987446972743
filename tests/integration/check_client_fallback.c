/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Buffers that may be made in host memory, against a real daemon: they are made there when the device is
 * full and the configuration allows it, work there for the device and the CPU, and go to the device when it
 * has room, but never while they are pinned.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/gpumem_evict.h"
#include "tests/integration/location_fixture.h"
#include "tests/integration/refused.h"
#include "tests/tap.h"

/* Pressure is medium with the large buffer, and low without it. */
#define CONFIG_WITH(lines) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"pressure_medium = 0.5\npressure_high = 0.99\npressure_critical = 1.0\n" \
	"pressure_hysteresis = 0\npressure_dwell = 0s\n" lines "\n[device 0]\nsize = 66M\n"

#define LARGE (60 * MIB)
#define BYTES (8 * MIB)

static void set_up_small(void)
{
	set_up_with(CONFIG_WITH("host_limit = 64M"));
}

static void set_up_forbidden(void)
{
	set_up_with(CONFIG_WITH("host_limit = 64M\ncpu_fallback = no"));
}

static void set_up_full(void)
{
	set_up_with(CONFIG_WITH("host_limit = 4M"));
}

static void set_up_none(void)
{
	set_up_with(CONFIG_WITH("host_limit = 0"));
}

static gpumem_status create_in(gpumem_session *s, size_t size, gpumem_buffer **ret_buffer)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.tag = "fallback";
	options.flags = GPUMEM_BUFFER_CPU_OK;
	return gpumem_buffer_create(s, 0, size, &options, ret_buffer);
}

static gpumem_buffer *create(size_t size)
{
	gpumem_buffer *buffer = NULL;
	OK(create_in(session, size, &buffer));
	return buffer;
}

/* Leaves too little of the device for another buffer. */
static gpumem_buffer *fill_device(void)
{
	gpumem_buffer *large = NULL;
	OK(gpumem_buffer_create(session, 0, LARGE, NULL, &large));
	return large;
}

static gpumem_location pin(gpumem_buffer *buffer, uint32_t flags)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	options.flags = flags;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, gpumem_buffer_location(buffer));
	return where;
}

static void unpin(gpumem_buffer *buffer)
{
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
}

/* A buffer in host memory, full of a byte. */
static gpumem_buffer *create_in_host(uint8_t byte)
{
	gpumem_buffer *buffer = create(BYTES);
	GM_REQUIRE_EQ(pin(buffer, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
	fill(buffer, byte);
	unpin(buffer);
	return buffer;
}

/* ---- making one */

START_TEST(a_full_device_is_replaced_by_host_memory)
{
	gpumem_buffer *large = fill_device(), *buffer = create(BYTES);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(gpumem_buffer_device(buffer), 0);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), BYTES);
	GM_REQUIRE_EQ(leased_on(0), LARGE);
	GM_REQUIRE_EQ(leased_on(1), BYTES);
	GM_REQUIRE_EQ(stats_of(0).in_use, LARGE);
	GM_REQUIRE_EQ(stats_of(0).cpu_fallbacks, 1);
	GM_REQUIRE_EQ(stats_of(GPUMEM_DEVICE_HOST).in_use, BYTES);

	gpumem_buffer_destroy(buffer);
	GM_UNTIL(leased_on(1) == 0);
	GM_REQUIRE_EQ(stats_of(GPUMEM_DEVICE_HOST).allocated, 0);
	gpumem_buffer_destroy(large);
	GM_UNTIL(leased_on(0) == 0);
}
END_TEST

START_TEST(the_device_comes_first_if_it_has_room)
{
	gpumem_buffer *buffer = create(BYTES);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(stats_of(0).cpu_fallbacks, 0);
	/* It is evictable, too. */
	OK(gpumem_buffer_evict(buffer));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(the_device_and_the_cpu_use_it_in_host_memory)
{
	gpumem_buffer *large = fill_device(), *buffer = create_in_host(1);
	uint8_t *bytes = gpumem_buffer_ptr(buffer);

	for (int i = 0; i < 2; i++) {
		GM_REQUIRE_EQ(pin(buffer, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
		GM_REQUIRE(gpumem_buffer_ptr(buffer) == bytes);
		GM_REQUIRE_EQ(bytes[0], i ? 2 : 1);
		GM_REQUIRE_EQ(bytes[BYTES - 1], i ? 2 : 1);
		memset(bytes, 2, BYTES);
		require(buffer, 2);
		unpin(buffer);
	}
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(one_that_was_evicted_can_be_used_by_the_cpu_as_well)
{
	gpumem_buffer *buffer = create(BYTES);
	GM_REQUIRE_EQ(pin(buffer, 0), GPUMEM_LOCATION_DEVICE);
	fill(buffer, 3);
	unpin(buffer);
	OK(gpumem_buffer_evict(buffer));
	gpumem_buffer *large = fill_device();

	GM_REQUIRE_EQ(pin(buffer, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
	uint8_t *bytes = gpumem_buffer_ptr(buffer);
	GM_REQUIRE_EQ(bytes[BYTES - 1], 3);
	bytes[0] = 3;
	require(buffer, 3);
	unpin(buffer);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(wrong_requests_are_refused)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request = NULL;
	gpumem_buffer *buffer = NULL;
	options.flags = GPUMEM_BUFFER_CPU_OK | GPUMEM_BUFFER_SIGNALS;
	REFUSED(gpumem_buffer_create(session, 0, MIB, &options, &buffer), GPUMEM_E_INVALID,
		"signals");
	options.flags = GPUMEM_BUFFER_CPU_OK;
	REFUSED(gpumem_buffer_create(session, 0, 0, &options, &buffer), GPUMEM_E_INVALID, "1 to");
	REFUSED(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, MIB, &options, &buffer),
		GPUMEM_E_UNSUPPORTED, "host memory already");
	REFUSED(gpumem_buffer_create_begin(session, 0, MIB, &options, &request),
		GPUMEM_E_UNSUPPORTED, "create a buffer that may lie in host memory without one");
	options.transport = GPUMEM_TRANSPORT_IPC;
	REFUSED(gpumem_buffer_create(session, 0, MIB, &options, &buffer), GPUMEM_E_INVALID, "ipc");
}
END_TEST

START_TEST(what_needs_the_device_is_refused_in_host_memory)
{
	gpumem_buffer *large = fill_device(), *buffer = create_in_host(1);
	gpumem_token token;
	REFUSED(gpumem_buffer_pin(buffer, NULL, NULL), GPUMEM_E_NO_MEMORY, "");
	GM_REQUIRE_EQ(pin(buffer, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
	REFUSED(gpumem_share(buffer, NULL, &token), GPUMEM_E_BUSY, "unpin it, then pin it");
	REFUSED(gpumem_buffer_resize(buffer, 2 * BYTES, NULL, NULL), GPUMEM_E_BUSY, "host memory");
	REFUSED(gpumem_buffer_pin(buffer, NULL, NULL), GPUMEM_E_BUSY, "host memory");
	require(buffer, 1);
	unpin(buffer);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(the_configuration_can_forbid_it)
{
	gpumem_buffer *large = fill_device(), *buffer = NULL;
	REFUSED(create_in(session, BYTES, &buffer), GPUMEM_E_NO_MEMORY, "cpu_fallback = no");
	GM_REQUIRE_EQ(leased_on(1), 0);
	GM_REQUIRE_EQ(stats_of(0).cpu_fallbacks, 0);

	/* A reload decides anew. */
	gm_daemon_reload(&daemon_, CONFIG_WITH("host_limit = 64M\ncpu_fallback = yes"));
	buffer = create(BYTES);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(if_both_are_full_the_refusal_names_both)
{
	gpumem_buffer *large = fill_device(), *buffer = NULL;
	REFUSED(create_in(session, BYTES, &buffer), GPUMEM_E_NO_MEMORY,
		"nor can it be in host memory");
	GM_REQUIRE_EQ(leased_on(0), LARGE);
	GM_REQUIRE_EQ(leased_on(1), 0);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(without_host_memory_the_flag_is_refused)
{
	gpumem_buffer *buffer = NULL;
	REFUSED(create_in(session, BYTES, &buffer), GPUMEM_E_UNSUPPORTED, "host_limit");
}
END_TEST

/* ---- going to the device */

START_TEST(a_pin_brings_it_to_the_device_on_request)
{
	gpumem_buffer *large = fill_device(), *buffer = create_in_host(7);
	const void *place = gpumem_buffer_ptr(buffer);
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	gpumem_buffer_destroy(large);
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	GM_UNTIL(leased_on(0) == BYTES);
	GM_UNTIL(leased_on(1) == 0);
	require(buffer, 7);
	/* Now it is a buffer like any other. */
	OK(gpumem_buffer_resize(buffer, 2 * BYTES, GPUMEM_STREAM_DONE, NULL));
	unpin(buffer);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(it_returns_by_itself_when_pressure_falls)
{
	gpumem_buffer *large = fill_device(), *a = create_in_host(1), *b = create_in_host(2);
	gpumem_buffer_destroy(large);
	GM_UNTIL(gpumem_buffer_location(a) == GPUMEM_LOCATION_DEVICE);
	GM_UNTIL(gpumem_buffer_location(b) == GPUMEM_LOCATION_DEVICE);
	GM_UNTIL(leased_on(0) == 2 * BYTES);
	GM_UNTIL(leased_on(1) == 0);
	pin(a, 0);
	pin(b, 0);
	require(a, 1);
	require(b, 2);
	gpumem_buffer_destroy(a);
	gpumem_buffer_destroy(b);
}
END_TEST

/* Such a session has never heard how high pressure was. */
START_TEST(it_returns_by_itself_in_a_session_that_came_later)
{
	gpumem_buffer *large = fill_device(), *buffer = NULL;
	char said[1024];
	GM_UNTIL(ctl("pressure --device 0 --at-least medium", said) == 0);
	gpumem_session *late = join("late");
	OK(create_in(late, BYTES, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	gpumem_buffer_destroy(large);
	GM_UNTIL(gpumem_buffer_location(buffer) == GPUMEM_LOCATION_DEVICE);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(late);
}
END_TEST

START_TEST(it_stays_while_it_is_pinned)
{
	gpumem_buffer *large = fill_device(), *pinned = create_in_host(1);
	GM_REQUIRE_EQ(pin(pinned, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
	gpumem_buffer *idle = create_in_host(2);

	gpumem_buffer_destroy(large);
	/* When this one has moved, the library has looked at the other, too. */
	GM_UNTIL(gpumem_buffer_location(idle) == GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(gpumem_buffer_location(pinned), GPUMEM_LOCATION_HOST);
	require(pinned, 1);
	unpin(pinned);
	GM_UNTIL(gpumem_buffer_location(pinned) == GPUMEM_LOCATION_DEVICE);
	pin(pinned, 0);
	require(pinned, 1);
	gpumem_buffer_destroy(pinned);
	gpumem_buffer_destroy(idle);
}
END_TEST

START_TEST(gpumemctl_shows_it_and_moves_it)
{
	gpumem_buffer *large = fill_device(), *buffer = create_in_host(4);
	char line[64], said[1024];
	GM_REQUIRE_EQ(ctl("buffers --csv --no-header --columns tag,location", said), 0);
	GM_REQUIRE(strstr(said, "fallback,host\n"));
	(void)stats_of(0);
	GM_REQUIRE_EQ(
		ctl("clients --csv --no-header --columns device,in_host,cpu_fallbacks", said), 0);
	GM_REQUIRE(strstr(said, "0,8388608,1\n"));
	/* There is no room, so gpumemctl waits in vain, for as long as it may. */
	snprintf(line, sizeof(line), "--timeout 500ms restore %d", (int)getpid());
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	snprintf(line, sizeof(line), "restore %d", (int)getpid());

	gpumem_buffer_destroy(large);
	/* It may have returned by itself already. */
	(void)ctl(line, said);
	GM_UNTIL(gpumem_buffer_location(buffer) == GPUMEM_LOCATION_DEVICE);
	pin(buffer, 0);
	require(buffer, 4);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- who dies */

START_TEST(it_outlives_the_daemon)
{
	gpumem_buffer *large = fill_device(), *buffer = create_in_host(5);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(leased_on(1) == BYTES);
	GM_REQUIRE_EQ(pin(buffer, GPUMEM_PIN_HOST_OK), GPUMEM_LOCATION_HOST);
	require(buffer, 5);
	unpin(buffer);
	gpumem_buffer_destroy(large);
	GM_UNTIL(gpumem_buffer_location(buffer) == GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(pin(buffer, 0), GPUMEM_LOCATION_DEVICE);
	require(buffer, 5);
	GM_UNTIL(leased_on(1) == 0);
	gpumem_buffer_destroy(buffer);
}
END_TEST

static void hold(int channel, void *argument)
{
	gpumem_buffer *large = NULL, *buffer = NULL;
	(void)argument;
	session = join("a worker");
	OK(gpumem_buffer_create(session, 0, LARGE, NULL, &large));
	OK(create_in(session, BYTES, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(write(channel, "x", 1), 1);
	pause();
}

START_TEST(a_client_that_dies_leaves_no_host_memory_behind)
{
	struct gm_worker worker;
	char byte;
	start_worker(&worker, hold);
	GM_REQUIRE_EQ(read(worker.channel, &byte, 1), 1);
	GM_REQUIRE_EQ(leased_on(1), BYTES);
	gm_worker_kill(&worker);
	GM_UNTIL(leased_on(0) + leased_on(1) == 0);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name, void (*begin)(void))
{
	TCase *tc = tcase_create(name);
	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, begin, tear_down);
	suite_add_tcase(suite, tc);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("client_fallback");
	TCase *tc = add_case(suite, "fallback", set_up_small);
	tcase_add_test(tc, a_full_device_is_replaced_by_host_memory);
	tcase_add_test(tc, the_device_comes_first_if_it_has_room);
	tcase_add_test(tc, the_device_and_the_cpu_use_it_in_host_memory);
	tcase_add_test(tc, one_that_was_evicted_can_be_used_by_the_cpu_as_well);
	tcase_add_test(tc, wrong_requests_are_refused);
	tcase_add_test(tc, what_needs_the_device_is_refused_in_host_memory);
	tcase_add_test(tc, a_pin_brings_it_to_the_device_on_request);
	tcase_add_test(tc, it_returns_by_itself_when_pressure_falls);
	tcase_add_test(tc, it_returns_by_itself_in_a_session_that_came_later);
	tcase_add_test(tc, it_stays_while_it_is_pinned);
	tcase_add_test(tc, gpumemctl_shows_it_and_moves_it);
	tcase_add_test(tc, it_outlives_the_daemon);
	tcase_add_test(tc, a_client_that_dies_leaves_no_host_memory_behind);
	tcase_add_test(
		add_case(suite, "forbidden", set_up_forbidden), the_configuration_can_forbid_it);
	tcase_add_test(
		add_case(suite, "full", set_up_full), if_both_are_full_the_refusal_names_both);
	tcase_add_test(
		add_case(suite, "none", set_up_none), without_host_memory_the_flag_is_refused);
	return gm_tap_run(suite);
}
