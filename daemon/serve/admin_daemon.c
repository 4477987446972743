/* SPDX-License-Identifier: Apache-2.0 */
/* Administrators stop the daemon, or make it reload. These functions check who asks, let the broker do it, and answer. */
#include "daemon/serve/admin_daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/log.h"
#include "daemon/config/config.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/handlers.h"

/* Size of the warnings in the answer to a reload, with the NUL at their end. */
#define GM_RELOAD_WARNINGS 8192

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

/* Copies as many of the first lines as fit. The last line says how many more there are. */
static void daemon_copy_warnings(const char *from, char text[GM_RELOAD_WARNINGS])
{
	/* The room for that last line. */
	size_t room = GM_RELOAD_WARNINGS - 64, n = 0, more = 0;

	for (const char *end; *from; from = *end ? end + 1 : end) {
		end = from + strcspn(from, "\n");
		size_t bytes = (size_t)(end - from);
		if (more || n + bytes + 1 > room) {
			more += bytes > 0;
			continue;
		}
		memcpy(text + n, from, bytes);
		n += bytes;
		text[n++] = '\n';
	}
	text[n] = '\0';
	if (more)
		snprintf(text + n, GM_RELOAD_WARNINGS - n, "and %zu more: see the daemon's log",
			more);
}

static void daemon_reload_answer(const struct gm_serve *serve, struct gm_admin_reloading *reload,
	bool changed, const char *detail)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	char warnings[GM_RELOAD_WARNINGS];

	daemon_copy_warnings(serve->config->warnings, warnings);
	done.after_restart = (char *)detail;
	done.warnings = warnings;
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
			daemon_reload_answer(serve, reload, changed, detail);
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
