/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items that outlive the keeper: a keeper that systemd runs leaves its items there when it ends, and the next keeper takes
 * them. systemd keeps stored descriptors over a restart of the unit, and closes them when the unit stops.
 *
 * systemd compares each stored descriptor with all others, so one for each item would be too slow. The items lie in the
 * queues of a few sockets instead, and systemd stores only the sockets' reading ends. A packet has an array of messages
 * (GM_KEEPER_ITEM) and as many descriptors.
 */
#include "keeper/keeper_private.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/wire/seqpacket.h"

#define KEEPER_STORE_NAME "items"
/* Maximum time to wait until systemd has stored everything, in µs. */
#define KEEPER_STORE_WAIT_US 1500000
/* Room of a queue, if the kernel grants as much. */
#define KEEPER_QUEUE_BYTES (1 << 20)
/* Maximum time to wait while too many descriptors of this user are in flight, and how often to look, in ms. */
#define KEEPER_FLIGHT_MS      500
#define KEEPER_FLIGHT_LOOK_MS 5

/* One packet to be. */
struct keeper_batch {
	struct gm_keeper_message messages[GM_LIMIT_PACKET_FDS];
	int fds[GM_LIMIT_PACKET_FDS];
	size_t n;
};

/* The socket that is being filled. */
struct keeper_queue {
	int in, out;
};

/* ---- leaving */

/* Stores the reading end, and closes both. Nothing may poll it: the other end is closed. */
static int keeper_queue_store(struct keeper_queue *queue)
{
	int r = 0;
	if (queue->out >= 0)
		r = sd_pid_notify_with_fds(
			0, 0, "FDSTORE=1\nFDPOLL=0\nFDNAME=" KEEPER_STORE_NAME, &queue->out, 1);
	queue->in = gm_close(queue->in);
	queue->out = gm_close(queue->out);
	return r < 0 ? r : 0;
}

static int keeper_queue_new(struct keeper_queue *queue)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	queue->in = ends[0];
	queue->out = ends[1];
	gm_seqpacket_set_room(queue->in, KEEPER_QUEUE_BYTES);
	return 0;
}

/* Sends the batch into the queue. */
static int keeper_queue_send(const struct keeper_queue *queue, const struct keeper_batch *batch)
{
	uint64_t until_ns = gm_clock_ns() + KEEPER_FLIGHT_MS * GM_NS_PER_MS;
	for (;;) {
		int r = gm_seqpacket_send(queue->in, batch->messages,
			batch->n * sizeof(batch->messages[0]), batch->fds, batch->n);
		if (r != -ETOOMANYREFS || gm_clock_ns() >= until_ns)
			return r;
		poll(NULL, 0, KEEPER_FLIGHT_LOOK_MS);
	}
}

/* Sends the batch, into a new queue if the one before is full, and empties it. */
static int keeper_batch_send(struct keeper_batch *batch, struct keeper_queue *queue)
{
	int r = queue->in >= 0 ? keeper_queue_send(queue, batch) : -EAGAIN;
	if (r == -EAGAIN) {
		r = keeper_queue_store(queue);
		if (r == 0)
			r = keeper_queue_new(queue);
		if (r == 0)
			r = keeper_queue_send(queue, batch);
	}
	batch->n = 0;
	return r;
}

static void keeper_batch_add(struct keeper_batch *batch, const struct keeper_item *item)
{
	batch->messages[batch->n] = (struct gm_keeper_message){
		.verb = GM_KEEPER_ITEM,
		.kind = (uint32_t)item->key.kind,
		.id = item->key.id,
	};
	batch->fds[batch->n++] = item->fd;
}

int gm_keeper_leave(struct gm_keeper *keeper)
{
	struct keeper_queue queue = {-1, -1};
	struct keeper_batch batch = {.n = 0};
	const struct keeper_item *item;
	int r = 0;

	if (!getenv("NOTIFY_SOCKET"))
		return -ENOTCONN;
	gm_keeper_drain(keeper);
	for (item = keeper->items; item && r == 0; item = item->hh.next) {
		keeper_batch_add(&batch, item);
		if (batch.n == GM_LIMIT_PACKET_FDS || !item->hh.next)
			r = keeper_batch_send(&batch, &queue);
	}
	int stored = keeper_queue_store(&queue);
	if (r == 0)
		r = stored;

	/* systemd must know whose the messages are, so this process waits until they were read. */
	if (r == 0 && keeper->items)
		r = sd_notify_barrier(0, KEEPER_STORE_WAIT_US);
	return r < 0 ? r : 0;
}

/* ---- taking */

static int keeper_take_packet(
	struct gm_keeper *keeper, const struct keeper_batch *batch, struct gm_packet_in *packet)
{
	int result = packet->fds_cut ? -EMFILE : 0;
	if (packet->n < packet->fds.n * sizeof(batch->messages[0]))
		return -EBADMSG;
	for (size_t i = 0; i < packet->fds.n; i++) {
		int r = gm_keeper_put(keeper, batch->messages[i].kind, batch->messages[i].id,
			gm_fdlist_steal(&packet->fds, i));
		if (r < 0)
			result = r;
	}
	return result;
}

/* Takes what lies in a queue. */
static int keeper_take_queue(struct gm_keeper *keeper, int out)
{
	int result = 0;
	for (;;) {
		struct keeper_batch batch;
		struct gm_packet_in packet;
		int r = gm_seqpacket_receive(out, batch.messages, sizeof(batch.messages), &packet);
		if (r == -EPIPE || r == -EAGAIN)
			return result;
		if (r < 0)
			return r;
		r = keeper_take_packet(keeper, &batch, &packet);
		gm_fdlist_deinit(&packet.fds);
		if (r < 0)
			result = r;
	}
}

int gm_keeper_take_left(struct gm_keeper *keeper)
{
	char **names = NULL;
	int result = 0;
	int n = sd_listen_fds_with_names(1, &names);

	for (int i = 0; i < n; i++) {
		GM_AUTO_FD int fd = SD_LISTEN_FDS_START + i;
		int r = strcmp(names[i], KEEPER_STORE_NAME) == 0 ? keeper_take_queue(keeper, fd)
								 : 0;
		if (r < 0)
			result = r;
		free(names[i]);
	}
	free(names);

	/* systemd has copies of the sockets, which are empty now. */
	if (n > 0)
		(void)sd_notify(0, "FDSTOREREMOVE=1\nFDNAME=" KEEPER_STORE_NAME);
	return n < 0 ? n : result;
}

void gm_keeper_tell_ready(void)
{
	(void)sd_notify(0, "READY=1");
}
