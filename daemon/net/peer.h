/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PEER_H
#define GM_DAEMON_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "gpumem/status.h"
#include "common/log.h"
#include "common/wire.h"
#include "daemon/net/identity.h"

/* What all peers of a loop share: one buffer each way, one arena, one count of what was sent. */
struct gm_hub {
	uv_loop_t *loop;
	uint64_t generation;
	uint64_t sequence;
	struct gm_wire_arena arena;
	uint8_t *in, *out;
	struct gm_peer *doomed; /* to be closed in the loop's next turn */
	uv_timer_t reaper;
	bool reaper_open;
};
int gm_hub_init(struct gm_hub *hub, uv_loop_t *loop, uint64_t generation);
void gm_hub_close(struct gm_hub *hub); /* its handle; the loop must turn once more, then: */
void gm_hub_deinit(struct gm_hub *hub);
/* Stamps a packet and packs it into hub->out. */
int gm_hub_pack(struct gm_hub *hub, Gm__Wire__Packet *packet, size_t n_fds, size_t *ret_n);
/* One packet to a socket that is to be closed: who is refused is told why. */
void gm_hub_refuse(struct gm_hub *hub, int socket, gpumem_status status, const char *detail);

/*
 * A connection: packets in, packets out, and the bounds on both. It never waits, and never calls
 * back while it is being called but for packet().
 *
 * What the other end does wrong (a packet of length 0, too long, no packet at all, with fds; an id
 * of 0; more fds acknowledged than were sent) is answered with one Failure, and the connection
 * ends.
 */
struct gm_peer;

struct gm_peer_ops {
	/* A request. It is answered by packets with its id, the last one without `more`. packet
	 * lives until this returns. */
	void (*packet)(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet);
	/* The connection has ended, for whatever reason; called once. The peer takes no further
	 * packets and is gone in the loop's next turn. */
	void (*closed)(void *ctx, struct gm_peer *peer);
};

/*
 * An answer of several packets, or with fds: made packet by packet, when the other end has room for
 * the next. Embedded in the maker's own.
 */
struct gm_stream {
	uint64_t id;  /* of the request */
	size_t bytes; /* that it keeps for the other end: they count as an answer not read */
	bool parted;  /* its end is not the answer's: the last packet comes by gm_peer_send() */
	/*
	 * Makes one packet and gives it to gm_peer_emit(), whose result it returns if that is
	 * negative; then it is called again later and must make the same packet, or a newer one.
	 * Otherwise: 1 if more packets follow, 0 if this was the last.
	 */
	int (*next)(struct gm_stream *stream, struct gm_peer *peer);
	void (*free)(struct gm_stream *stream);
	struct gm_stream *list_prev, *list_next;
};

/* Takes the socket and a reference to the identity, on success only. hello_ms: how long until it
 * must have been greeted. */
int gm_peer_new(struct gm_hub *hub, int socket, struct gm_identity *identity, uint64_t hello_ms,
	const struct gm_peer_ops *ops, void *ctx, struct gm_peer **ret_peer);
/* Ends the connection in the loop's next turn. Safe at any time, any number of times. */
void gm_peer_drop(struct gm_peer *peer);
/* Ends it now. Not from within packet() or a stream. */
void gm_peer_close(struct gm_peer *peer);

struct gm_identity *gm_peer_identity(const struct gm_peer *peer);
void *gm_peer_user(const struct gm_peer *peer);
void gm_peer_set_user(struct gm_peer *peer, void *user);
/* The hello was accepted: the deadline is over. */
void gm_peer_set_greeted(struct gm_peer *peer);
bool gm_peer_greeted(const struct gm_peer *peer);

/* An answer without fds. Kept if the other end does not read; too much of that and it is dropped.
 */
void gm_peer_send(struct gm_peer *peer, Gm__Wire__Packet *packet);
void gm_peer_send_failure(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail);
void gm_peer_send_done(struct gm_peer *peer, uint64_t id);
/* The same, and the connection ends. */
void gm_peer_refuse(struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail);
/* Takes the stream. */
void gm_peer_start(struct gm_peer *peer, struct gm_stream *stream);
/* For a stream's next(). 0: sent; -EAGAIN: no room now; others: the connection is broken. fds stay
 * the caller's. */
int gm_peer_emit(struct gm_peer *peer, Gm__Wire__Packet *packet, const int *fds, size_t n_fds);

/* A log line with GPUMEM_PID and GPUMEM_UID. */
void gm_peer_log(struct gm_peer *peer, enum gm_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
