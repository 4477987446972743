/* SPDX-License-Identifier: Apache-2.0 */
/* The two sockets. */
#include "daemon/listeners.h"

#include <errno.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/system/program.h"
#include "daemon/serve/serve_dispatch.h"

static void listeners_open_admin(struct gm_listeners *front, int passed, gid_t admin_group)
{
	char why[GM_LISTENER_SOCKET_WHY] = "";
	int r;

	if (passed >= 0)
		r = gm_listener_socket_adopt(&front->admin_endpoint, passed, why);
	else if (front->endpoint.own)
		r = gm_listener_socket_open_admin(
			&front->admin_endpoint, &front->endpoint, admin_group, why);
	else
		return; /* the service manager makes the sockets, and was not told of this one */
	front->admin_open = r == 0;
	if (r < 0)
		gm_log(GM_LOG_WARNING,
			"administrators have no socket of their own, and share the one for all: %s",
			why);
}

int gm_listeners_open(struct gm_listeners *front, const struct gm_service_passed *passed,
	const char *path, const struct gm_config *config, gid_t admin_group)
{
	char why[GM_LISTENER_SOCKET_WHY] = "";
	int r;

	if (passed->unclear) {
		gm_log(GM_LOG_ERROR,
			"socket activation: the service manager must pass exactly one listening SOCK_SEQPACKET socket, and at most one for administrators");
		return -EINVAL;
	}

	if (passed->socket >= 0)
		r = gm_listener_socket_adopt(&front->endpoint, passed->socket, why);
	else
		r = gm_listener_socket_open(
			&front->endpoint, path, config->socket_mode, config->socket_group, why);
	if (r < 0) {
		char mended[GM_LISTENER_SOCKET_WHY + 2 * GM_PROGRAM_BYTES];
		gm_log(GM_LOG_ERROR, "%s", gm_program_mend(why, mended, sizeof(mended)));
		return r;
	}

	front->open = true;
	listeners_open_admin(front, passed->admin_socket, admin_group);
	return 0;
}

static bool listeners_is_admin(void *ctx, const struct gm_identity *identity)
{
	const struct gm_serve *serve = ctx;

	return gm_identity_has_role(identity, serve->uid, serve->admin_group);
}

int gm_listeners_listen(struct gm_listeners *front, struct gm_hub *hub, struct gm_serve *serve)
{
	static const struct gm_peer_ops ops = {
		.packet = gm_serve_dispatch_packet,
		.closed = gm_serve_dispatch_closed,
	};
	int r = gm_listener_new(hub, front->endpoint.socket, &ops, serve, &front->listener);

	if (r == 0 && front->admin_open)
		r = gm_listener_new_admin(hub, front->admin_endpoint.socket, &ops, serve,
			listeners_is_admin, &front->admin_listener);
	return r;
}

void gm_listeners_set_bounds(struct gm_listeners *front, const struct gm_config *config)
{
	uint64_t hello_ms = config->hello_deadline_ns / GM_NS_PER_MS;

	gm_listener_set_bounds(
		front->listener, GM_BOUND_CONNECTIONS, config->connections_per_uid, hello_ms);
	gm_listener_set_bounds(
		front->admin_listener, GM_BOUND_CONNECTIONS, config->connections_per_uid, hello_ms);
}

void gm_listeners_hang_up(struct gm_listeners *front)
{
	gm_listener_close(front->listener);
	gm_listener_close(front->admin_listener);
	front->listener = front->admin_listener = NULL;
}

void gm_listeners_close(struct gm_listeners *front)
{
	if (front->admin_open)
		gm_listener_socket_close(&front->admin_endpoint);
	if (front->open)
		gm_listener_socket_close(&front->endpoint);
	front->admin_open = front->open = false;
}
