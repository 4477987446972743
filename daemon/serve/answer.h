/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ANSWER_H
#define GM_DAEMON_ANSWER_H

#include "daemon/serve/serve.h"

/*
 * Answers: the packets that handlers send. A long answer is a stream (daemon/net/peer.h): it makes
 * one packet at a time, when the peer has room for it, from a cursor that stays valid whatever
 * comes and goes between two packets.
 */
struct gm_answer {
	struct gm_stream stream;
	struct gm_serve *serve;
	bool sees_all; /* the peer is an administrator or an observer */
};

/*
 * Returns a long answer to request id, of `bytes` bytes: a struct gm_answer, followed by zeros for
 * the caller's cursor. next() makes its packets: see struct gm_stream. Hand the answer to
 * gm_peer_start(), which takes ownership, or free() it. Returns NULL if the daemon is out of
 * memory.
 */
void *gm_answer_new(struct gm_serve *serve, const struct gm_peer *peer, uint64_t id,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer), size_t bytes);
/* Whether the peer may see the details of this client: its own, or all for an administrator or an observer. */
bool gm_answer_may_see(
	const struct gm_answer *answer, const struct gm_peer *peer, const struct gm_client *client);
/*
 * Whether the peer may know of this owner. Users, groups and sessions are no secret; a unit, a
 * container or a client's name is, unless the peer may see the details of a client that it owns.
 * Goes through all clients, so a packet must not ask more than GM_ANSWER_OWNERS times.
 */
#define GM_ANSWER_OWNERS 16
bool gm_answer_may_see_owner(
	const struct gm_answer *answer, const struct gm_peer *peer, const struct gm_owner *owner);
/* Minimum number of entries of a packet: so many are made however long the turn takes. */
#define GM_ANSWER_LEAST 8
/*
 * Sends one packet of a long answer. message is the one that body names. Returns what next() has to
 * return: 1 if more packets follow, 0 if not, or a negative errno. Then nothing was sent, and the
 * cursor must stay where it is. The caller keeps the fds.
 */
int gm_answer_emit(const struct gm_stream *stream, struct gm_peer *peer, bool more,
	Gm__Wire__Packet__BodyCase body, void *message);
int gm_answer_emit_fds(const struct gm_stream *stream, struct gm_peer *peer, bool more,
	Gm__Wire__Packet__BodyCase body, void *message, const int *fds, size_t n_fds);

/* Ends a long answer that cannot be completed. Returns what next() has to return. */
int gm_answer_emit_failure(const struct gm_stream *stream, struct gm_peer *peer,
	gpumem_status status, const char *detail);

/* Sends an answer of one packet, or (id 0) an event. */
void gm_answer_send(
	struct gm_peer *peer, uint64_t id, Gm__Wire__Packet__BodyCase body, void *message);

#endif
