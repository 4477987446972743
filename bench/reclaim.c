/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * How fast memory comes back. Measures, in one daemon:
 *   - 100 client processes hold unused caches, and one more lease makes the pressure critical: the
 *     time from the answer of that lease until everything the clients had cached is available;
 *   - the time from memory coming back to the answer of a request that waits for it;
 *   - while processes ask for memory as fast as they can: how late a request that waits in vain
 *     learns that its time is over.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "gpumem/gpumem.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"

#define CLIENTS   100
#define ROUNDS    100
#define CACHE     (UINT64_C(4) << 20)
#define LOAD      32 /* processes */
#define WAIT_MS   50
#define CAPACITY  "512M"
#define CAPACITY_ (UINT64_C(512) << 20)

static struct gm_daemon daemon_;

/* Fills its cache when told to, and leaves the rest to the library. */
static void client(int channel, void *argument)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;
	options.socket = daemon_.socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	for (;;) {
		char word;
		void *ptr;
		gm_hear(channel, &word, 1);
		if (word == 'e')
			break;
		GM_REQUIRE_EQ(
			gpumem_alloc(session, 0, CACHE, GPUMEM_STREAM_ANY, NULL, &ptr), GPUMEM_OK);
		gm_device_set(ptr, CACHE, 'c');
		GM_REQUIRE_EQ(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
		gm_text_say_word(channel, 'c');
	}
	gpumem_disconnect(session);
}

/* Takes and gives back until it is told to stop. */
static void load(int channel, void *argument)
{
	struct gm_raw raw;
	gm_raw_join(&raw, &daemon_);
	gm_text_say_word(channel, 'r');
	while (!gm_raw_readable(channel)) {
		struct gm_raw_lease got;
		if (gm_raw_lease(&raw, 0, UINT64_C(2) << 20, &got) != GPUMEM_OK)
			continue;
		uint64_t id = got.id;
		gm_raw_lease_clear(&got);
		GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
	}
	gm_raw_close(&raw);
}

static uint64_t leased(struct gm_raw *ctl)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(ctl, GM_RAW_PACKET(GET_DEVICES, get_devices, &body)), GPUMEM_OK);
	const Gm__Wire__Device *d = ctl->packet->devices->devices[0];
	return d->leased + d->quarantined;
}

static uint64_t lease(struct gm_raw *raw, uint64_t bytes)
{
	struct gm_raw_lease got;
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, bytes, &got), GPUMEM_OK);
	uint64_t id = got.id;
	gm_raw_lease_clear(&got);
	return id;
}

static int by_size(const void *a, const void *b)
{
	double p = *(const double *)a, q = *(const double *)b;
	return p < q ? -1 : p > q;
}

static void print(const char *what, double *ms, size_t n, const char *asked)
{
	qsort(ms, n, sizeof(*ms), by_size);
	printf("  %-44s p50 %8.2f ms   p99 %8.2f ms   (asked: %s)\n", what, ms[n / 2],
		ms[n * 99 / 100], asked);
}

int main(void)
{
	static struct gm_worker workers[CLIENTS];
	static double ms[ROUNDS];
	struct gm_raw ctl, last, waiter;
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH(
					  "decay = 1h\nafter_action = 1ms\npressure_dwell = 0s\n"
					  "pressure_medium = 0.85\npressure_high = 0.90\n",
					  CAPACITY)});
	gm_raw_observe(&ctl, &daemon_);
	gm_raw_join(&last, &daemon_);
	gm_raw_join(&waiter, &daemon_);
	for (size_t i = 0; i < CLIENTS; i++)
		gm_worker_start(&workers[i], client, NULL);
	gm_print_title("Critical pressure with 100 clients that hold idle caches of 4 MiB");
	for (size_t round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < CLIENTS; i++) {
			gm_text_say_word(workers[i].channel, 'f');
			gm_hear_word(workers[i].channel, 'c');
		}
		/* On a busy machine, clients may still return memory late, for the last round. */
		if (leased(&ctl) < CLIENTS * CACHE) {
			round--;
			continue;
		}
		/* 400 MiB are cached. With this lease the device is 98 % full. */
		uint64_t id = lease(&last, CAPACITY_ - CLIENTS * CACHE - (UINT64_C(8) << 20));
		uint64_t start = gm_monotonic_ns();
		while (leased(&ctl) > CAPACITY_ - CLIENTS * CACHE)
			usleep(200);
		ms[round] = (double)(gm_monotonic_ns() - start) / 1e6;
		GM_REQUIRE_EQ(gm_raw_return(&last, id, NULL, 0), GPUMEM_OK);
	}
	print("critical to all of it available", ms, ROUNDS, "p99 at most 100 ms");
	for (size_t round = 0; round < ROUNDS; round++) {
		uint64_t id = lease(&last, CAPACITY_ - (UINT64_C(4) << 20));
		Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
		body.bytes = UINT64_C(64) << 20;
		body.wait_ms = 3600000;
		(void)gm_raw_send(&waiter, GM_RAW_PACKET(LEASE, lease, &body));
		Gm__Wire__GetQueue get = GM__WIRE__GET_QUEUE__INIT;
		do
			GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_QUEUE, get_queue, &get)),
				GPUMEM_OK);
		while (!ctl.packet->queue->n_requests);
		uint64_t start = gm_monotonic_ns();
		GM_REQUIRE_EQ(gm_raw_return(&last, id, NULL, 0), GPUMEM_OK);
		GM_REQUIRE(gm_raw_receive(&waiter));
		ms[round] = (double)(gm_monotonic_ns() - start) / 1e6;
		struct gm_raw_lease got = {0};
		uint64_t granted = waiter.packet->lease_reply->lease;
		GM_REQUIRE_EQ(gm_raw_collect(&waiter, &got), GPUMEM_OK);
		gm_raw_lease_clear(&got);
		GM_REQUIRE_EQ(gm_raw_return(&waiter, granted, NULL, 0), GPUMEM_OK);
	}
	print("memory comes back to a waiting one's answer", ms, ROUNDS, "at most 50 ms");
	for (size_t i = 0; i < CLIENTS; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
	/* All but 16 MiB stay taken, and 32 processes compete for those. */
	lease(&last, CAPACITY_ - (UINT64_C(16) << 20));
	for (size_t i = 0; i < LOAD; i++) {
		gm_worker_start(&workers[i], load, NULL);
		gm_hear_word(workers[i].channel, 'r');
	}
	for (size_t round = 0; round < ROUNDS; round++) {
		Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
		body.bytes = UINT64_C(64) << 20;
		body.wait_ms = WAIT_MS;
		uint64_t start = gm_monotonic_ns();
		GM_REQUIRE_EQ(
			gm_raw_call(&waiter, GM_RAW_PACKET(LEASE, lease, &body)), GPUMEM_E_TIMEOUT);
		ms[round] = (double)(gm_monotonic_ns() - start) / 1e6 - WAIT_MS;
	}
	print("a deadline of 50 ms under load, late by", ms, ROUNDS, "kept");
	for (size_t i = 0; i < LOAD; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
	gm_raw_close(&ctl);
	gm_raw_close(&last);
	gm_raw_close(&waiter);
	gm_daemon_stop(&daemon_);
	return 0;
}
