/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/keeper_store.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/wire/seqpacket.h"

/* Maximum time to wait until systemd has stored everything, in µs. */
#define KEEPER_STORE_WAIT_US 1500000
/* Room of a queue, if the kernel grants as much. */
#define KEEPER_STORE_QUEUE_BYTES (1 << 20)
/* Maximum time to wait while too many descriptors of this user are in flight, and how often to look, in ms. */
#define KEEPER_STORE_FLIGHT_MS      500
#define KEEPER_STORE_FLIGHT_LOOK_MS 5

/* ---- leaving */

/* Stores the reading end of the queue, and closes both. Nothing may poll it: the other end is closed. */
static int keeper_store_queue(struct gm_keeper_store *store)
{
	int r = 0;
	if (store->out >= 0)
		r = sd_pid_notify_with_fds(
			0, 0, "FDSTORE=1\nFDPOLL=0\nFDNAME=" GM_KEEPER_STORE_NAME, &store->out, 1);
	store->in = gm_close(store->in);
	store->out = gm_close(store->out);
	return r < 0 ? r : 0;
}

static int keeper_store_new_queue(struct gm_keeper_store *store)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	store->in = ends[0];
	store->out = ends[1];
	gm_seqpacket_set_room(store->in, KEEPER_STORE_QUEUE_BYTES);
	return 0;
}

/* Sends the packet into the queue. */
static int keeper_store_try(const struct gm_keeper_store *store)
{
	uint64_t until_ns = gm_clock_ns() + KEEPER_STORE_FLIGHT_MS * GM_NS_PER_MS;
	for (;;) {
		int r = gm_seqpacket_send(store->in, store->messages,
			store->n * sizeof(store->messages[0]), store->fds, store->n);
		if (r != -ETOOMANYREFS || gm_clock_ns() >= until_ns)
			return r;
		poll(NULL, 0, KEEPER_STORE_FLIGHT_LOOK_MS);
	}
}

/* Sends the packet, into a new queue if the one before is full, and begins another packet. */
static int keeper_store_send(struct gm_keeper_store *store)
{
	int r = store->in >= 0 ? keeper_store_try(store) : -EAGAIN;
	if (r == -EAGAIN) {
		r = keeper_store_queue(store);
		if (r == 0)
			r = keeper_store_new_queue(store);
		if (r == 0)
			r = keeper_store_try(store);
	}
	store->n = 0;
	return r;
}

int gm_keeper_store_begin(struct gm_keeper_store *store)
{
	store->n = 0;
	store->in = store->out = -1;
	store->any = false;
	store->result = 0;
	return getenv("NOTIFY_SOCKET") ? 0 : -ENOTCONN;
}

void gm_keeper_store_add(struct gm_keeper_store *store, uint64_t kind, uint64_t id, int fd)
{
	store->messages[store->n] = (struct gm_keeper_message){
		.verb = GM_KEEPER_ITEM,
		.kind = (uint32_t)kind,
		.id = id,
	};
	store->fds[store->n++] = fd;
	store->any = true;
	if (store->n == GM_BOUND_PACKET_FDS && store->result == 0)
		store->result = keeper_store_send(store);
	if (store->result < 0)
		store->n = 0;
}

int gm_keeper_store_end(struct gm_keeper_store *store)
{
	int r = store->result;
	if (r == 0 && store->n)
		r = keeper_store_send(store);
	int stored = keeper_store_queue(store);
	if (r == 0)
		r = stored;

	/* systemd must know whose the messages are, so this process waits until they were read. */
	if (r == 0 && store->any)
		r = sd_notify_barrier(0, KEEPER_STORE_WAIT_US);
	return r < 0 ? r : 0;
}

/* ---- taking */

static int keeper_store_take_packet(const struct gm_keeper_message *messages,
	struct gm_conn_packet *packet, gm_keeper_store_put put, void *ctx)
{
	int result = packet->fds_cut ? -EMFILE : 0;
	if (packet->n < packet->fds.n * sizeof(messages[0]))
		return -EBADMSG;
	for (size_t i = 0; i < packet->fds.n; i++) {
		int r = put(
			ctx, messages[i].kind, messages[i].id, gm_fdlist_steal(&packet->fds, i));
		if (r < 0)
			result = r;
	}
	return result;
}

/* Whether this is an end of a socket pair that a process of this user made. */
static bool keeper_store_is_ours(int stored)
{
	struct ucred who;
	socklen_t n = sizeof(who);

	return sd_is_socket(stored, AF_UNIX, SOCK_SEQPACKET, 0) > 0 &&
	       getsockopt(stored, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
	       (who.uid == geteuid() || who.uid == 0);
}

int gm_keeper_store_take(int stored, gm_keeper_store_put put, void *ctx)
{
	int result = 0;
	if (!keeper_store_is_ours(stored))
		return -EPERM;
	for (;;) {
		struct gm_keeper_message messages[GM_BOUND_PACKET_FDS];
		struct gm_conn_packet packet;
		int r = gm_seqpacket_receive(stored, messages, sizeof(messages), &packet);
		if (r == -EPIPE || r == -EAGAIN)
			return result;
		if (r < 0)
			return r;
		r = keeper_store_take_packet(messages, &packet, put, ctx);
		gm_fdlist_deinit(&packet.fds);
		if (r < 0)
			result = r;
	}
}

void gm_keeper_store_forget(void)
{
	/* systemd has copies of the sockets, which are empty now. */
	(void)sd_notify(0, "FDSTOREREMOVE=1\nFDNAME=" GM_KEEPER_STORE_NAME);
}
