/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_DISPATCH_H
#define GM_DAEMON_DISPATCH_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/backend/backend.h"
#include "daemon/tenant/client.h"
#include "daemon/config/config.h"
#include "daemon/net/peer.h"

struct gm_owner;
struct gm_processes;
struct gm_watch;

/* Requests, by a table: what each needs, what it does, and how it is answered. */
struct gm_dispatch {
	struct gm_core *core;
	struct gm_clients *clients;
	const struct gm_config *config; /* may be another one after a reload */
	const struct gm_backend_ops *ops;
	void *backend;
	const char *socket;
	struct gm_processes *processes; /* who waits to hear who uses the devices */
	struct gm_watch *watch;         /* who wants to hear what happens */
	char backend_note[256];         /* why not the backend before this one; "" */
	uint32_t n_devices;
	struct gm_backend_device devices[GM_LIMIT_DEVICES];
	uint64_t start_ns;
	uid_t uid;         /* the daemon's own */
	gid_t admin_group; /* -1: there is none */
};

/* A peer's request; ctx is the struct gm_dispatch: gm_peer_ops.packet and .closed. */
void gm_dispatch_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_dispatch_closed(void *ctx, struct gm_peer *peer);

/* ---- for the files of handlers */

typedef void (*gm_handler)(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

bool gm_dispatch_is_admin(const struct gm_dispatch *dispatch, const struct gm_peer *peer);
/* Whether this owner of a limit is told by what not everybody may know of a client: its name, unit
 * or container. NULL: no. */
bool gm_dispatch_is_private(const struct gm_owner *owner);
/* The transport of a lease that asks for none by name: FD or IPC, which the device may not have. */
enum gm_transport gm_dispatch_auto(const struct gm_dispatch *dispatch, uint32_t device);
/* False: the asker is none, and was told so. what: "a cleanup", "setting a limit". */
bool gm_dispatch_require_admin(
	const struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id, const char *what);
/* Answers that there is none of that number. */
void gm_dispatch_no_device(
	const struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id, uint32_t device);
/* Everything about a device but its strings' storage, which is the dispatch's, and the caller's for
 * the last trouble. */
void gm_dispatch_fill_device(const struct gm_dispatch *dispatch, uint32_t device,
	char trouble[GM_BACKEND_TROUBLE], Gm__Wire__Device *ret);

#endif
