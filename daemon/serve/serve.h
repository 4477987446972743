/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_H
#define GM_DAEMON_SERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/backend/backend.h"
#include "daemon/config/config.h"
#include "daemon/net/peer.h"
#include "daemon/tenant/client.h"

/*
 * This folder answers requests: it carries a request out or refuses it with the cause and a remedy,
 * and a refused request changes nothing. It must never know how core decides, how a backend makes
 * memory, or how packets travel.
 *
 * This header holds what all handlers share. serve_dispatch.c, on top of them, has the table that leads
 * from a message to its handler.
 */

struct gm_admin_reclaim;
struct gm_admin_reloading;
struct gm_store;
struct gm_owner;
struct gm_admin_processes;
struct gm_watch;

/* What the handlers work on. The broker fills it and owns everything in it. */
struct gm_serve {
	struct gm_core *core;
	struct gm_clients *clients;
	const struct gm_config *config; /* a reload replaces it */
	const struct gm_backend_ops *ops;
	void *backend;
	const char *socket;
	const struct gm_store *store; /* NULL: nothing outlives the daemon */
	struct gm_admin_processes *processes;
	struct gm_watch *watch;
	struct gm_admin_reclaim *reclaims;  /* those that core works for: admin_reclaim.c's own */
	struct gm_admin_reloading *reloads; /* the same: admin_daemon.c's own */
	char backend_note[256];             /* why a preferred backend is not in use; "": it is */
	uint32_t n_devices;
	struct gm_backend_device devices[GM_BOUND_DEVICES];
	uint64_t start_ns;
	uid_t uid;                         /* the daemon's own */
	gid_t admin_group, observer_group; /* -1: there is none */
	/* Ends the daemon soon. forget: and everything that clients hold. */
	void (*stop)(void *ctx, bool forget);
	/* Reads the configuration again; gm_admin_reloaded() gets the result. Returns 1; 0: a reload is under way, and
	 * another one follows it; or -ESHUTDOWN: the daemon is stopping. */
	int (*reload)(void *ctx);
	void *ctx;
};

/* Handles one kind of request. packet lives until the handler returns. A header declares its
 * handlers by this type: "gm_serve_handler gm_serve_lease;". */
typedef void gm_serve_handler(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet);

bool gm_serve_is_admin(const struct gm_serve *serve, const struct gm_peer *peer);
/* Whether the peer is an administrator, or in the group of those who may see everything and change nothing. */
bool gm_serve_sees_all(const struct gm_serve *serve, const struct gm_peer *peer);
/* The peer, as an asker about names. */
struct gm_name_asker gm_serve_asker(const struct gm_serve *serve, const struct gm_peer *peer);
/* Whether the owner of a limit reveals what not everybody may know about a client: its name, its
 * unit or its container. owner may be NULL: then it reveals nothing. */
bool gm_serve_is_private(const struct gm_owner *owner);

/* The refusals below answer request id. */

/* Returns false, with the refusal sent, if the peer is no administrator. what: "a cleanup". */
bool gm_serve_require_admin(
	const struct gm_serve *serve, struct gm_peer *peer, uint64_t id, const char *what);
/* Returns false, with the refusal sent, if there is no such device. */
bool gm_serve_require_device(
	const struct gm_serve *serve, struct gm_peer *peer, uint64_t id, uint32_t device);
/* Returns false, with the refusal sent, if a list of the request has more than
 * GM_BOUND_LIST_ITEMS. */
bool gm_serve_require_list(struct gm_peer *peer, uint64_t id, size_t n);
/* Answers with Done, or with a Failure. */
void gm_serve_answer_status(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail);
/* To a client, a name that does not exist and one for somebody else look the same. */
#define GM_SERVE_NO_NAME \
	"there is no such name for this client: it may not be published yet, have ended, or " \
	"be meant for somebody else; see gpumemctl shares"
/* The daemon is out of memory. */
void gm_serve_fail_memory(struct gm_peer *peer, uint64_t id);

/* All devices as messages. Their strings live in here and in the struct gm_serve. */
struct gm_serve_devices {
	Gm__Wire__Device devices[GM_BOUND_DEVICES];
	Gm__Wire__Device *list[GM_BOUND_DEVICES];
	Gm__Wire__Drainer drainers[GM_BOUND_DEVICES];
	char troubles[GM_BOUND_DEVICES][GM_BACKEND_TROUBLE];
};
void gm_serve_list_devices(const struct gm_serve *serve, struct gm_serve_devices *ret);

#endif
