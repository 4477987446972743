/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts connections. The backlog is one line for all users, so it must be short: several
 * connections are accepted in a turn of the loop, and as little as possible is done with each. The
 * kernel says whose it is, which is enough to refuse it. To find out more costs far more, and waits
 * for the turn of its user. So users take turns in connecting, as in everything else. Those who
 * have a connection come before those who want one.
 *
 * A daemon without free file descriptors can neither accept a waiting connection nor get rid of it,
 * and a level-triggered loop would spin on it. So some descriptors are kept in reserve. One is given
 * up to accept such a connection, tell the client why it is refused, and close it. The
 * administrators' listener gives up as many as a connection needs and serves it at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/wire/seqpacket.h"
#include "common/text/uid_name.h"
#include "daemon/net/listener.h"

/* Descriptors that a connection without a session needs: its socket, its pidfd, its flow, and two
 * while the daemon reads in /proc who it is. */
#define GM_LISTENER_CONNECTION_FDS 5
/* So many administrators get in when there are no descriptors left. */
#define GM_LISTENER_ADMINS  4
#define GM_LISTENER_RESERVE (GM_LISTENER_ADMINS * GM_LISTENER_CONNECTION_FDS)
/* How long to stop accepting when not even the reserve helps. */
#define GM_LISTENER_PAUSE_MS 100

/* How long to leave connections in the backlog while pooled chunks give up their descriptors. */
#define GM_LISTENER_FDS_MS 5

/* So many connections are accepted in one turn of the loop: as long as the backlog is full, those who
 * have a connection wait for that. */
#define GM_LISTENER_ACCEPTS 4

/* Longest reason for a refusal. */
#define GM_LISTENER_DETAIL 320

struct connection {
	struct gm_listener *listener;
	struct gm_peer *peer; /* NULL: it waits for the turn of its user */
	struct connection *prev, *next;
	/* while it waits */
	struct gm_hub_flow_task turn;
	struct gm_hub_flow *flow;
	struct gm_user_charge charge;
	struct gm_identity *identity; /* as far as it is known; NULL: not at all */
	struct ucred who;
	uid_t payer_uid;
	int socket;
};

struct gm_listener {
	struct gm_hub *hub;
	int socket;
	const struct gm_peer_ops *ops;
	void *ctx;
	bool (*admits)(void *ctx, const struct gm_identity *identity); /* NULL: everybody */
	uint64_t flow_bits;     /* of the keys of its peers' flows */
	enum gm_user_slot slot; /* of its connections */
	uint32_t most;
	uint64_t hello_ms;
	uint32_t n;
	struct connection *connections;
	int reserve[GM_LISTENER_RESERVE];
	size_t n_reserve, want_reserve; /* how many are open, and should be */
	bool paused_logged;
	bool made_room; /* in this turn of the loop */
	uv_poll_t poll;
	uv_timer_t pause;
	int open_handles;
};

static void listener_on_poll(uv_poll_t *poll, int status, int events);
static void listener_on_pause_over(uv_timer_t *timer);

/* ---- connections */

static void listener_on_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct connection *connection = ctx;
	connection->listener->ops->packet(connection->listener->ctx, peer, packet);
}

static void listener_on_closed(void *ctx, struct gm_peer *peer)
{
	struct connection *connection = ctx;
	struct gm_listener *listener = connection->listener;
	listener->ops->closed(listener->ctx, peer);
	listener->n--;
	DL_DELETE(listener->connections, connection);
	free(connection);
	/* The peer closes its descriptors next. On the loop's next turn the reserve takes them, before
	 * anybody else can. */
	if (listener->admits && listener->n_reserve < listener->want_reserve)
		uv_timer_start(&listener->pause, listener_on_pause_over, 0, 0);
}

static const struct gm_peer_ops peer_ops = {
	.packet = listener_on_packet, .closed = listener_on_closed};

/* Says why, and closes the socket. who: NULL if that is not known; then payer_uid is -1. */
static void listener_refuse(struct gm_listener *listener, int socket, uid_t payer_uid,
	const struct ucred *who, gpumem_status status, const char *detail)
{
	if (who && gm_log_limit_allows(&listener->hub->quiet, payer_uid, GM_LOG_NOTICE,
			   GM_LOG_LIMIT_CONNECTION)) {
		char pid[32], uid[32], user[GM_UID_NAME_TEXT];
		const char *const fields[] = {pid, uid, NULL};
		snprintf(pid, sizeof(pid), "GPUMEM_PID=%d", (int)who->pid);
		snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", who->uid);
		gm_log_fields(GM_LOG_NOTICE, fields, "pid %d, %s refused: %s", (int)who->pid,
			gm_uid_name_say(who->uid, user), detail);
	}
	gm_hub_refuse(listener->hub, socket, status, detail);
	gm_closer_close(
		listener->hub->closer, payer_uid, socket, gm_seqpacket_may_have_fds(socket));
}

/* A shortage of the daemon's own is not the client's fault. */
static gpumem_status listener_status_of(int error, gpumem_status otherwise)
{
	if (error == -ENOMEM)
		return GPUMEM_E_HOST_MEMORY;
	return error == -EMFILE || error == -ENFILE ? GPUMEM_E_LIMIT : otherwise;
}

/* Whether the other end has closed the connection, so that nobody can read an answer. */
static bool listener_is_gone(int socket)
{
	struct pollfd poll_one = {.fd = socket};
	return poll(&poll_one, 1, 0) == 1 && (poll_one.revents & (POLLHUP | POLLERR));
}

/* Forgets a connection that waits. The caller closes its socket. */
static void listener_forget(struct connection *connection)
{
	connection->listener->n--;
	DL_DELETE(connection->listener->connections, connection);
	gm_hub_flow_withdraw(&connection->turn);
	gm_identity_unref(connection->identity);
	gm_user_charge_deinit(&connection->charge);
	gm_hub_flow_unref(connection->flow);
	free(connection);
}

/* Ends a connection that waits. detail: NULL if there is nobody to tell. */
static void listener_end(struct connection *connection, gpumem_status status, const char *detail)
{
	struct gm_listener *listener = connection->listener;
	struct ucred who = connection->who;
	int socket = connection->socket;

	uid_t payer_uid = connection->payer_uid;
	listener_forget(connection);
	if (detail)
		listener_refuse(listener, socket, payer_uid, &who, status, detail);
	else
		gm_closer_close(listener->hub->closer, payer_uid, socket,
			gm_seqpacket_may_have_fds(socket));
}

/* The youngest connection without a session, of the user that has most connections. NULL: no user
 * has such a one beside another. */
static struct connection *listener_find_spare(const struct gm_listener *listener)
{
	struct connection *connection, *spare = NULL;
	uint64_t most = 2;

	DL_FOREACH (listener->connections, connection) {
		const struct gm_peer *peer = connection->peer;
		const struct gm_hub_flow *flow = peer ? gm_peer_flow(peer) : connection->flow;
		uint64_t n = flow->user->has[listener->slot];

		if (n < most || (peer && gm_peer_user(peer)))
			continue;
		most = n;
		spare = connection;
	}
	return spare;
}

/* All connections are taken. Ends one for a user that has none, or that has clients without a connection,
 * so that a few users cannot keep the others out. Returns whether it did. */
static bool listener_make_room(struct gm_listener *listener, const struct gm_user *user)
{
	static const char detail[] =
		"the daemon has as many connections as it accepts, and needs this one for another user";
	struct connection *spare = NULL;

	if (!listener->admits && (!user->has[listener->slot] || gm_user_awaits_clients(user)))
		spare = listener_find_spare(listener);
	if (!spare)
		return false;

	/* To look through all connections takes a while. */
	listener->made_room = true;
	if (spare->peer) {
		struct gm_peer *peer = spare->peer;
		gm_peer_refuse(peer, 0, GPUMEM_E_LIMIT, detail);
		gm_peer_close(peer);
	} else {
		listener_end(spare, GPUMEM_E_LIMIT, detail);
	}
	return true;
}

/* Whether a user must not get a connection: then detail says why. */
static bool listener_refuses(struct gm_listener *listener, const struct gm_user *user, uid_t uid,
	char detail[GM_LISTENER_DETAIL])
{
	char name[GM_UID_NAME_PAYER_TEXT];

	if (listener->n >= listener->most && !listener_make_room(listener, user)) {
		snprintf(detail, GM_LISTENER_DETAIL,
			"the daemon has %u connections%s, the most it accepts", listener->n,
			listener->admits ? " of administrators" : "");
		return true;
	}
	/* Those that are about to be closed count as well. */
	uint64_t closing = gm_closer_waiting(listener->hub->closer, user->uid);
	if (gm_user_check(user, listener->slot, closing + 1) == GM_USER_E_OWN) {
		snprintf(detail, GM_LISTENER_DETAIL,
			"%s has %llu connections, the most it may have; close some or raise connections_per_uid",
			gm_uid_name_say_payer(user->uid, uid, name),
			(unsigned long long)(user->has[listener->slot] + closing));
		return true;
	}
	if (gm_user_check(user, listener->slot, 1)) {
		snprintf(detail, GM_LISTENER_DETAIL,
			"%s has as many connections and sessions as the daemon's file descriptors allow one user; close some, or raise LimitNOFILE= of the daemon",
			gm_uid_name_say_payer(user->uid, uid, name));
		return true;
	}
	return false;
}

/* Makes a peer of a connection that waited. */
static int listener_admit(struct connection *connection)
{
	struct gm_listener *listener = connection->listener;
	struct gm_hub_flow *flow = connection->flow;
	int r = gm_peer_new(listener->hub, connection->socket, connection->identity, flow->key,
		listener->hello_ms, &peer_ops, connection, &connection->peer);
	if (r < 0)
		return r;

	/* The peer has counted itself, and has its own reference. */
	gm_user_charge_deinit(&connection->charge);
	gm_hub_flow_unref(flow);
	connection->flow = NULL;
	gm_identity_unref(connection->identity);
	connection->identity = NULL;
	return 0;
}

/* Finds out who is at the other end, or some of it. Returns 1 if there is more to find out, but the turn
 * is over; administrators do not wait. */
static int listener_look(struct connection *connection, char why[256])
{
	bool all = connection->listener->admits;
	int r = 1;

	if (!connection->identity)
		r = gm_identity_begin(connection->socket, &connection->identity, why);
	if (r < 0)
		return r;
	do
		r = gm_identity_go_on(connection->identity, why);
	while (r > 0 && (all || !gm_hub_flow_time_is_up(connection->flow)));
	return r;
}

/* Admits the client or refuses it, if it is known who it is. */
static void listener_identify(struct connection *connection)
{
	const struct gm_listener *listener = connection->listener;
	char why[256], detail[GM_LISTENER_DETAIL];
	int r = listener_look(connection, why);
	if (r > 0) {
		gm_hub_flow_post(connection->flow, &connection->turn);
		return;
	}
	if (r < 0) {
		snprintf(detail, sizeof(detail), "the client is refused: %s", why);
		listener_end(connection, listener_status_of(r, GPUMEM_E_DENIED), detail);
		return;
	}
	/* As when it was put in its flow: the subordinate uids may have been read anew since. */
	connection->identity->payer_uid = connection->payer_uid;

	if (listener->admits && !listener->admits(listener->ctx, connection->identity)) {
		listener_end(connection, GPUMEM_E_DENIED,
			"this socket is for administrators; use the one beside it");
	} else if ((r = listener_admit(connection)) < 0) {
		snprintf(detail, sizeof(detail), "the daemon cannot accept the connection: %s",
			strerror(-r));
		listener_end(connection, listener_status_of(r, GPUMEM_E_SYSTEM), detail);
	}
}

static void listener_on_turn(struct gm_hub_flow_task *turn)
{
	struct connection *connection =
		(struct connection *)((char *)turn - offsetof(struct connection, turn));

	if (listener_is_gone(connection->socket))
		listener_end(connection, GPUMEM_OK, NULL);
	else
		listener_identify(connection);
}

static int listener_remember(struct gm_listener *listener, int socket, uid_t payer_uid,
	const struct ucred *who, struct connection **ret_connection)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		return -ENOMEM;

	int r = gm_hub_flow_get(
		&listener->hub->flows, payer_uid | listener->flow_bits, &connection->flow);
	if (r < 0) {
		free(connection);
		return r;
	}

	connection->listener = listener;
	connection->socket = socket;
	connection->who = *who;
	connection->payer_uid = payer_uid;
	connection->turn.run = listener_on_turn;
	gm_user_charge_init(&connection->charge, connection->flow->user, listener->slot);
	gm_user_charge_add(&connection->charge, 1);
	listener->n++;
	DL_APPEND(listener->connections, connection);
	*ret_connection = connection;
	return 0;
}

/* Takes a connection of this user. An administrator's does not wait: it may need descriptors that
 * were just given up for it. */
static void listener_take_of(
	struct gm_listener *listener, int socket, uid_t payer_uid, const struct ucred *who)
{
	char detail[GM_LISTENER_DETAIL];
	struct connection *connection;
	if (listener_is_gone(socket)) {
		gm_closer_close(listener->hub->closer, payer_uid, socket,
			gm_seqpacket_may_have_fds(socket));
		return;
	}

	struct gm_user *user = gm_user_get(&listener->hub->users, payer_uid);
	bool refuses = user && listener_refuses(listener, user, who->uid, detail);
	int r = -ENOMEM;
	if (user && !refuses)
		r = listener_remember(listener, socket, payer_uid, who, &connection);
	gm_user_unref(user);
	if (refuses) {
		listener_refuse(listener, socket, payer_uid, who, GPUMEM_E_LIMIT, detail);
	} else if (r < 0) {
		snprintf(detail, sizeof(detail), "the daemon cannot accept the connection: %s",
			strerror(-r));
		listener_refuse(listener, socket, payer_uid, who,
			listener_status_of(r, GPUMEM_E_SYSTEM), detail);
	} else if (listener->admits) {
		listener_identify(connection);
	} else {
		gm_hub_flow_post(connection->flow, &connection->turn);
	}
}

/* Takes a connection that was accepted. Its user pays for the time. */
static void listener_take(struct gm_listener *listener, int socket)
{
	struct gm_hub_flows *flows = &listener->hub->flows;
	uint64_t began_ns = gm_hub_flow_begin_work(flows);
	char detail[GM_LISTENER_DETAIL];
	struct ucred who;
	socklen_t n = sizeof(who);
	uid_t payer_uid = (uid_t)-1;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0) {
		snprintf(detail, sizeof(detail),
			"the client is refused: its credentials cannot be read: %s",
			strerror(errno));
		listener_refuse(listener, socket, payer_uid, NULL, GPUMEM_E_DENIED, detail);
	} else {
		payer_uid = gm_subuids_payer(&listener->hub->subuids, who.uid);
		listener_take_of(listener, socket, payer_uid, &who);
	}
	gm_hub_flow_end_work_of(flows, payer_uid | listener->flow_bits, began_ns);
}

/* ---- accepting */

static void listener_fill_reserve(struct gm_listener *listener)
{
	while (listener->n_reserve < listener->want_reserve) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return;
		listener->reserve[listener->n_reserve++] = fd;
	}
}

static void listener_give_up_reserve(struct gm_listener *listener, size_t n)
{
	while (n-- && listener->n_reserve > 0)
		close(listener->reserve[--listener->n_reserve]);
}

static void listener_on_pause_over(uv_timer_t *timer)
{
	struct gm_listener *listener = timer->data;
	listener_fill_reserve(listener);
	if (uv_poll_start(&listener->poll, UV_READABLE, listener_on_poll) < 0)
		uv_timer_start(&listener->pause, listener_on_pause_over, GM_LISTENER_PAUSE_MS, 0);
}

static void listener_take_pause(struct gm_listener *listener, int error)
{
	if (!listener->paused_logged)
		gm_log(GM_LOG_ERROR, "cannot accept connections for now: %s", strerror(error));
	listener->paused_logged = true;
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->pause, listener_on_pause_over, GM_LISTENER_PAUSE_MS, 0);
}

/* Pooled chunks give up descriptors, which takes the device's thread a moment. The connection waits
 * in the backlog until then. */
static void listener_wait_for_fds(struct gm_listener *listener)
{
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->pause, listener_on_pause_over, GM_LISTENER_FDS_MS, 0);
}

/* No descriptors are left. Gives up some of the reserve, and accepts one waiting connection: to
 * refuse it, or to serve it if it is an administrator's. */
static void listener_use_reserve(struct gm_listener *listener, int error)
{
	if (listener->n_reserve == 0) {
		listener_take_pause(listener, error);
		return;
	}
	if (!listener->paused_logged)
		gm_log(GM_LOG_ERROR, "no file descriptors are left, so %s; raise LimitNOFILE=",
			listener->admits ? "administrators are served from a reserve"
					 : "connections are refused");
	listener->paused_logged = true;
	listener_give_up_reserve(listener, listener->admits ? GM_LISTENER_CONNECTION_FDS : 1);
	int socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (socket >= 0 && listener->admits)
		listener_take(listener, socket);
	else if (socket >= 0)
		listener_refuse(listener, socket, (uid_t)-1, NULL, GPUMEM_E_LIMIT,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
	if (!listener->admits)
		listener_fill_reserve(listener);
}

static void listener_accept_failed(struct gm_listener *listener, int error)
{
	switch (error) {
	case EAGAIN:
	case EINTR:
	case ECONNABORTED:
		return;
	case EMFILE:
	case ENFILE:
		if (!listener->admits && gm_fd_budget_exhausted(&listener->hub->users.fds))
			listener_wait_for_fds(listener);
		else
			listener_use_reserve(listener, EMFILE);
		return;
	default:
		listener_take_pause(listener, error);
	}
}

/* Accepts a connection that waits in the backlog. Returns whether there may be more. */
static bool listener_accept(struct gm_listener *listener)
{
	struct gm_fd_budget *budget = &listener->hub->users.fds;
	if (!listener->admits && !gm_fd_budget_ready(budget, GM_LISTENER_CONNECTION_FDS)) {
		listener_wait_for_fds(listener);
		return false;
	}

	int socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (socket < 0) {
		listener_accept_failed(listener, errno);
		return false;
	}

	listener->paused_logged = false;
	listener_fill_reserve(listener);
	listener_take(listener, socket);
	return true;
}

static void listener_on_poll(uv_poll_t *poll, int status, int events)
{
	struct gm_listener *listener = poll->data;
	if (status < 0) {
		listener_take_pause(listener, -status);
		return;
	}

	/* Administrators are identified here and now, which takes longer. */
	int most = listener->admits ? 1 : GM_LISTENER_ACCEPTS;
	listener->made_room = false;
	while (most-- > 0 && !listener->made_room && listener_accept(listener))
		;
}

static void listener_on_handle_closed(uv_handle_t *handle)
{
	struct gm_listener *listener = handle->data;
	if (--listener->open_handles > 0)
		return;
	listener_give_up_reserve(listener, GM_LISTENER_RESERVE);
	free(listener);
}

/* Starts a listener that is filled in. On error, frees it. */
static int listener_start(struct gm_listener *listener, struct gm_listener **ret_listener)
{
	int r = uv_poll_init(listener->hub->loop, &listener->poll, listener->socket);
	if (r < 0) {
		free(listener);
		return r;
	}

	uv_timer_init(listener->hub->loop, &listener->pause); /* cannot fail */
	listener->poll.data = listener;
	listener->pause.data = listener;
	listener->open_handles = 2;
	listener_fill_reserve(listener);
	r = uv_poll_start(&listener->poll, UV_READABLE, listener_on_poll);
	if (r < 0) {
		gm_listener_close(listener);
		return r;
	}

	*ret_listener = listener;
	return 0;
}

static struct gm_listener *listener_alloc(
	struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx)
{
	struct gm_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return NULL;

	listener->hub = hub;
	listener->socket = socket;
	listener->ops = ops;
	listener->ctx = ctx;
	listener->slot = GM_USER_CONNECTIONS;
	listener->most = GM_BOUND_CONNECTIONS;
	listener->hello_ms = 5000;
	listener->want_reserve = 1;
	return listener;
}

int gm_listener_new(struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx,
	struct gm_listener **ret_listener)
{
	struct gm_listener *listener = listener_alloc(hub, socket, ops, ctx);

	return listener ? listener_start(listener, ret_listener) : -ENOMEM;
}

int gm_listener_new_admin(struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx,
	bool (*admits)(void *ctx, const struct gm_identity *identity),
	struct gm_listener **ret_listener)
{
	struct gm_listener *listener = listener_alloc(hub, socket, ops, ctx);
	if (!listener)
		return -ENOMEM;

	listener->admits = admits;
	listener->flow_bits = GM_HUB_FLOW_ADMIN;
	listener->slot = GM_USER_ADMIN_CONNECTIONS;
	listener->most = GM_BOUND_ADMIN_CONNECTIONS;
	listener->want_reserve = GM_LISTENER_RESERVE;
	return listener_start(listener, ret_listener);
}

void gm_listener_set_bounds(
	struct gm_listener *listener, uint32_t most, uint32_t per_uid, uint64_t hello_ms)
{
	if (!listener)
		return;
	if (!listener->admits) {
		listener->most = most;
		listener->hub->users.bounds[GM_USER_CONNECTIONS].own = per_uid;
	}
	listener->hello_ms = hello_ms;
}

void gm_listener_close(struct gm_listener *listener)
{
	if (!listener)
		return;
	uv_poll_stop(&listener->poll);
	uv_timer_stop(&listener->pause);
	while (listener->connections) { /* both ways remove it from the list */
		if (listener->connections->peer)
			gm_peer_close(listener->connections->peer);
		else
			listener_end(listener->connections, GPUMEM_OK, NULL);
	}
	uv_close((uv_handle_t *)&listener->poll, listener_on_handle_closed);
	uv_close((uv_handle_t *)&listener->pause, listener_on_handle_closed);
}
