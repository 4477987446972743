/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Messages between two processes through a ring, compared with a pipe and with a socket of packets
 * (SOCK_SEQPACKET) in the same run: how many pass in one direction, and how long one takes there and
 * back. Rounds alternate. Needs no GPU.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/measure.h"
#include "gpumem/gpumem_ring.h"
#include "tests/integration/ok.h"
#include "tests/integration/raw.h"

#define ROUNDS   5
#define MESSAGES 200000
#define TRIPS    20000
#define MOST     1024

static struct gm_daemon daemon_;
static gpumem_session *session;
static size_t message_bytes;
static uint32_t flush_every;

/* How a message travels. Both processes have both directions. */
struct way {
	gpumem_ring *ring;
	int in, out; /* of descriptors, if there is no ring */
};

static void send_one(struct way *way, const void *message)
{
	if (way->ring)
		OK(gpumem_ring_send(way->ring, message));
	else
		GM_REQUIRE(write(way->out, message, message_bytes) == (ssize_t)message_bytes);
}

static void receive_one(struct way *way, void *message)
{
	size_t got = 0;

	if (way->ring) {
		OK(gpumem_ring_receive(way->ring, message, GPUMEM_WAIT_FOREVER));
		return;
	}
	while (got < message_bytes) { /* a pipe may be read in pieces */
		ssize_t n = read(way->in, (char *)message + got, message_bytes - got);
		GM_REQUIRE(n > 0);
		got += (size_t)n;
	}
}

/* The other process: receives all messages and answers once; then answers each. */
static void follow(struct way *way)
{
	unsigned char message[MOST] = {0};

	for (int i = 0; i < MESSAGES; i++)
		receive_one(way, message);
	send_one(way, message);
	if (way->ring)
		OK(gpumem_ring_flush(way->ring));
	for (int i = 0; i < TRIPS; i++) {
		receive_one(way, message);
		send_one(way, message);
		if (way->ring)
			OK(gpumem_ring_flush(way->ring));
	}
}

struct times {
	double per_message_ns, trip_us;
};

static struct times lead(struct way *way)
{
	unsigned char message[MOST] = {0};
	struct times times;

	uint64_t start = gm_monotonic_ns();
	for (int i = 0; i < MESSAGES; i++)
		send_one(way, message);
	if (way->ring)
		OK(gpumem_ring_flush(way->ring));
	receive_one(way, message);
	times.per_message_ns = (double)(gm_monotonic_ns() - start) / MESSAGES;

	start = gm_monotonic_ns();
	for (int i = 0; i < TRIPS; i++) {
		send_one(way, message);
		if (way->ring)
			OK(gpumem_ring_flush(way->ring));
		receive_one(way, message);
	}
	times.trip_us = (double)(gm_monotonic_ns() - start) / 1000 / TRIPS;
	return times;
}

static void join_daemon(const char *name)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;

	options.socket = daemon_.socket;
	options.name = name;
	OK(gpumem_connect(&options, &session));
}

static gpumem_ring_options ring_options(void)
{
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT;

	options.full = GPUMEM_RING_WAIT;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	options.flush_every = flush_every;
	return options;
}

static void far_process(int channel, void *argument)
{
	gpumem_ring_options options = ring_options();
	gpumem_buffer *buffer;
	gpumem_token token;
	struct way way = {0};

	join_daemon("far");
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &buffer));
	OK(gpumem_ring_open(buffer, &options, &way.ring));
	follow(&way);
	gpumem_ring_close(way.ring);
	gpumem_disconnect(session);
}

static struct times by_ring(void)
{
	gpumem_ring_options options = ring_options();
	struct gm_worker worker;
	gpumem_token token;
	struct way way = {0};

	/* Before there is a session. */
	gm_worker_start(&worker, far_process, NULL);
	join_daemon("near");
	OK(gpumem_ring_create(session, message_bytes, 1024, &options, &way.ring));
	OK(gpumem_share(gpumem_ring_buffer(way.ring), NULL, &token));
	gm_text_say(worker.channel, &token, sizeof(token));
	struct times times = lead(&way);
	gm_worker_join(&worker);
	gpumem_ring_close(way.ring);
	gpumem_disconnect(session);
	return times;
}

static void follow_descriptors(int channel, void *argument)
{
	follow(argument);
}

static struct times by_descriptors(struct way mine, struct way theirs)
{
	struct gm_worker worker;

	gm_worker_start(&worker, follow_descriptors, &theirs);
	struct times times = lead(&mine);
	gm_worker_join(&worker);
	close(mine.in);
	close(mine.out);
	close(theirs.in);
	close(theirs.out);
	return times;
}

static struct times by_pipe(void)
{
	int there[2], back[2];

	GM_REQUIRE(pipe(there) == 0 && pipe(back) == 0);
	return by_descriptors((struct way){.in = back[0], .out = there[1]},
		(struct way){.in = there[0], .out = back[1]});
}

static struct times by_socket(void)
{
	int there[2], back[2];

	GM_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, there) == 0 &&
		   socketpair(AF_UNIX, SOCK_SEQPACKET, 0, back) == 0);
	return by_descriptors((struct way){.in = back[0], .out = there[1]},
		(struct way){.in = there[0], .out = back[1]});
}

static void compare(size_t bytes, uint32_t every)
{
	static struct times (*const peers[])(void) = {by_pipe, by_socket};
	static const char *const names[] = {"a pipe", "SOCK_SEQPACKET"};
	double ring_ns[ROUNDS], ring_us[ROUNDS], peer_ns[2][ROUNDS], peer_us[2][ROUNDS];
	char what[96];

	message_bytes = bytes;
	flush_every = every;
	for (int r = 0; r < ROUNDS; r++) {
		struct times times = by_ring();
		ring_ns[r] = times.per_message_ns;
		ring_us[r] = times.trip_us;
		for (int p = 0; p < 2; p++) {
			times = peers[p]();
			peer_ns[p][r] = times.per_message_ns;
			peer_us[p][r] = times.trip_us;
		}
	}
	for (int p = 0; p < 2; p++) {
		snprintf(what, sizeof(what), "%zu bytes, flushed every %u; peer %s", bytes, every,
			names[p]);
		gm_print_ratio(
			what, gm_median(ring_ns, ROUNDS), gm_median(peer_ns[p], ROUNDS), "ns", -1);
	}
	for (int p = 0; p < 2; p++) {
		snprintf(what, sizeof(what), "  there and back; peer %s", names[p]);
		gm_print_ratio(
			what, gm_median(ring_us, ROUNDS), gm_median(peer_us[p], ROUNDS), "us", -1);
	}
}

int main(void)
{
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){.config = "[gpumemd]\nmin_free = 0\nhost_limit = 64M\n"
						      "[device 0]\nsize = 64M\n"});
	gm_print_title("Messages between two processes through a ring: time for each");
	compare(64, 1);
	compare(64, 32);
	compare(1024, 1);
	compare(1024, 32);
	gm_daemon_stop(&daemon_);
	return 0;
}
