/* SPDX-License-Identifier: Apache-2.0 */
/* Administrators stop the daemon, or make it reload. These functions check who asks, let the broker do it, and answer. */
#include "daemon/serve/admin_daemon.h"

#include <stdlib.h>

#include <utlist.h>

#include "common/log.h"
#include "daemon/serve/answer.h"

void gm_admin_stop(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	bool forget = packet->stop->forget;

	if (!gm_serve_require_admin(serve, peer, packet->id, "stopping the daemon"))
		return;
	gm_peer_log(peer, GM_LOG_NOTICE,
		forget ? "stops the daemon, and all memory ends with it" : "stops the daemon");
	/* Before the daemon ends. */
	gm_peer_send_done(peer, packet->id);
	serve->stop(serve->ctx, forget);
}

/* ---- reloads */

/* A request that waits for the end of a reload. */
struct gm_admin_reloading {
	struct gm_peer *peer;
	uint64_t id;
	bool begun; /* the reload that is under way began after the request came */
	struct gm_admin_reloading *prev, *next;
};

static void daemon_reload_free(struct gm_serve *serve, struct gm_admin_reloading *reload)
{
	DL_DELETE(serve->reloads, reload);
	free(reload);
}

void gm_admin_reload_peer_closed(struct gm_serve *serve, const struct gm_peer *peer)
{
	struct gm_admin_reloading *reload, *next;

	DL_FOREACH_SAFE (serve->reloads, reload, next)
		if (reload->peer == peer)
			daemon_reload_free(serve, reload);
}

static void daemon_reload_answer(
	struct gm_admin_reloading *reload, bool changed, const char *detail)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	done.after_restart = (char *)detail;
	if (changed)
		gm_answer_send(reload->peer, reload->id, GM__WIRE__PACKET__BODY_DONE, &done);
	else
		gm_peer_send_failure(reload->peer, reload->id, GPUMEM_E_INVALID, detail);
}

void gm_admin_reloaded(struct gm_serve *serve, bool changed, const char *detail)
{
	struct gm_admin_reloading *reload, *next;

	DL_FOREACH_SAFE (serve->reloads, reload, next) {
		if (reload->begun) {
			daemon_reload_answer(reload, changed, detail);
			daemon_reload_free(serve, reload);
		} else {
			reload->begun = true; /* the next one */
		}
	}
}

void gm_admin_reload(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	if (!gm_serve_require_admin(serve, peer, packet->id, "a reload"))
		return;
	struct gm_admin_reloading *reload = calloc(1, sizeof(*reload));
	if (!reload) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}

	gm_peer_log(peer, GM_LOG_INFO, "reloads the configuration");
	int r = serve->reload(serve->ctx);
	if (r < 0) {
		free(reload);
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, "the daemon is stopping");
		return;
	}
	reload->peer = peer;
	reload->id = packet->id;
	reload->begun = r > 0;
	DL_APPEND(serve->reloads, reload);
}
