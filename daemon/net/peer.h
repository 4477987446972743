/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PEER_H
#define GM_DAEMON_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "gpumem/status.h"
#include "common/log.h"
#include "common/wire/wire.h"
#include "daemon/net/closer.h"
#include "daemon/net/identity.h"
#include "daemon/net/hub_flow.h"
#include "daemon/net/log_limit.h"
#include "common/system/subuid.h"

/*
 * This folder promises connections from identified processes: packets in, packets out, and bounds
 * on everything that the other end can make the daemon keep. It must never know what a request
 * means, nor devices, sessions or memory.
 */

/* What all peers of a loop share. */
struct gm_hub {
	uv_loop_t *loop;
	struct gm_user_table users;
	struct gm_hub_flows flows;
	struct gm_log_limit quiet;
	struct gm_closer *closer;
	struct gm_subuids subuids; /* who pays for whom; whoever knows reads them */
	uint64_t generation;
	uint64_t sequence; /* of the last packet that was packed */
	struct gm_wire_arena arena;
	uint8_t *in, *out;       /* one packet each */
	struct gm_peer *waiting; /* to try again to send fds, on the retry timer */
	uv_timer_t retry;
	bool timer_open;
};
int gm_hub_init(struct gm_hub *hub, uv_loop_t *loop, uint64_t generation);
/* Closes the hub's handle. The loop must turn once more before gm_hub_deinit(). */
void gm_hub_close(struct gm_hub *hub);
void gm_hub_deinit(struct gm_hub *hub);
/* Numbers a packet and packs it into hub->out. */
int gm_hub_pack(struct gm_hub *hub, Gm__Wire__Packet *packet, size_t n_fds, size_t *ret_n);
/* Tells a client that has no peer why it is refused. The caller then closes the socket with
 * gm_closer_close(). */
void gm_hub_refuse(struct gm_hub *hub, int socket, gpumem_status status, const char *detail);

/*
 * A connection. No function here waits, and only gm_peer_close() calls an op before it returns.
 *
 * If the other end breaks the protocol, it gets one Failure and the connection ends. These break
 * it: a packet that is empty, too long, malformed or carries fds; an id of 0; acknowledging more
 * fds than were sent.
 */
struct gm_peer;

struct gm_peer_ops {
	/* A request arrived. The answer is packets with its id, the last one without `more`. packet
	 * is valid until this returns. */
	void (*packet)(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet);
	/* The connection has ended. Called once. The peer takes no further packets, and the loop
	 * frees it on its next turn. */
	void (*closed)(void *ctx, struct gm_peer *peer);
};

/*
 * An answer of several packets, or with fds. Each packet is made when the other end has room for
 * it. Embedded in a struct of whoever answers.
 */
struct gm_stream {
	uint64_t id;  /* of the request */
	size_t bytes; /* memory that the stream holds; it counts as answers not read */
	bool parted;  /* the stream is not the whole answer: gm_peer_send() sends the last packet */
	/*
	 * Makes one packet and passes it to gm_peer_emit(). If that fails, returns its result; it
	 * is called again later and must make the same packet, or a newer one. Otherwise returns 1
	 * if more packets follow, 0 if this was the last.
	 *
	 * Each call is a turn of the peer's user. Work that may take longer stops when
	 * gm_peer_time_is_up(): the packet then has what is done so far, or next() makes no packet
	 * and returns 1.
	 */
	int (*next)(struct gm_stream *stream, struct gm_peer *peer);
	void (*free)(struct gm_stream *stream);
	struct gm_stream *list_prev, *list_next;
};

/* On success, takes ownership of the socket, and takes a reference to the identity. The client must
 * send its hello within hello_ms. flow is the key of its flow. */
int gm_peer_new(struct gm_hub *hub, int socket, struct gm_identity *identity, uint64_t flow,
	uint64_t hello_ms, const struct gm_peer_ops *ops, void *ctx, struct gm_peer **ret_peer);
/* Ends the connection on a turn of its user. May be called at any time, any number of times. */
void gm_peer_drop(struct gm_peer *peer);
/* Ends the connection now. Must not be called from packet() or from a stream. */
void gm_peer_close(struct gm_peer *peer);

struct gm_identity *gm_peer_identity(const struct gm_peer *peer);
/* The flow of the peer's user. It lives at least as long as the peer. */
struct gm_hub_flow *gm_peer_flow(const struct gm_peer *peer);
void *gm_peer_user(const struct gm_peer *peer);
void gm_peer_set_user(struct gm_peer *peer, void *user);
/* The hello has come and takes several turns: the deadline no longer counts, and no further packet is
 * read until it is accepted. */
void gm_peer_set_greeting(struct gm_peer *peer);
/* The hello was accepted, so the deadline no longer counts. */
void gm_peer_set_greeted(struct gm_peer *peer);
bool gm_peer_greeted(const struct gm_peer *peer);

/* Sends a packet without fds, or keeps it while the other end does not read. Drops the peer if more
 * than GM_BOUND_SEND_QUEUE_BYTES of its answers are unread. */
void gm_peer_send(struct gm_peer *peer, Gm__Wire__Packet *packet);
void gm_peer_send_failure(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail);
void gm_peer_send_done(struct gm_peer *peer, uint64_t id);
/* Sends a failure, logs it and ends the connection. */
void gm_peer_refuse(struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail);
/* Whether the turn has used up its time: see gm_hub_flow_time_is_up(). */
bool gm_peer_time_is_up(const struct gm_peer *peer);
/* Starts an answer. Takes ownership of the stream. */
void gm_peer_start(struct gm_peer *peer, struct gm_stream *stream);
/* For a stream's next(), before it opens fds for a packet: 0 or -EAGAIN, as gm_peer_emit() would say
 * it of so many. */
int gm_peer_may_emit(struct gm_peer *peer, size_t n_fds);
/* For a stream's next(). Returns 0; -EAGAIN: there is no room now; or another negative errno: the
 * connection is broken. The caller keeps the fds. */
int gm_peer_emit(struct gm_peer *peer, Gm__Wire__Packet *packet, const int *fds, size_t n_fds);

/* Logs a line with the fields GPUMEM_PID and GPUMEM_UID, unless the user has caused too many. */
void gm_peer_log(struct gm_peer *peer, enum gm_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
