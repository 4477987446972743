/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LISTENERS_H
#define GM_DAEMON_LISTENERS_H

#include <stdbool.h>

#include "daemon/config/config.h"
#include "daemon/net/listener_socket.h"
#include "daemon/net/listener.h"
#include "daemon/serve/serve.h"
#include "daemon/service.h"

/*
 * Where the daemon can be reached: the socket for everybody, and beside it the administrators' own,
 * which no other user can fill up. Either comes from the service manager, or is made here. A daemon
 * that cannot have the second one goes on without it and says so.
 */
struct gm_listeners {
	struct gm_listener_socket endpoint, admin_endpoint;
	bool open, admin_open;
	struct gm_listener *listener, *admin_listener;
};

/* Opens the sockets, or takes those that the service manager passed. path "": the default. admin_group -1: there is none. On
 * error, logs why and returns a negative errno. */
int gm_listeners_open(struct gm_listeners *front, const struct gm_service_passed *passed,
	const char *path, const struct gm_config *config, gid_t admin_group);
/* Accepts connections from now on. serve must outlive the front. */
int gm_listeners_listen(struct gm_listeners *front, struct gm_hub *hub, struct gm_serve *serve);
void gm_listeners_set_bounds(struct gm_listeners *front, const struct gm_config *config);
/* Closes all connections. */
void gm_listeners_hang_up(struct gm_listeners *front);
/* Closes the sockets, and removes those that were made here. */
void gm_listeners_close(struct gm_listeners *front);

#endif
