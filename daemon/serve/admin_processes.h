/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_PROCESSES_H
#define GM_DAEMON_ADMIN_PROCESSES_H

#include "daemon/serve/dispatch.h"
#include "daemon/backend/worker.h"

/*
 * Who uses the devices, for those who ask. The devices' threads look, between two jobs, when
 * somebody asked; everybody who asks while they look hears of the next look, so that what is told
 * is never older than the question. A look is begun every 100 ms at most, however many ask.
 */
struct gm_processes;

/* workers: one per device, kept by the caller for as long. */
int gm_processes_new(uv_loop_t *loop, const struct gm_backend_ops *ops,
	struct gm_worker *const *workers, uint32_t devices, struct gm_processes **ret_processes);
/* Nobody asks any more: all peers are closed. The memory goes in the loop's next turn. NULL is
 * fine. */
void gm_processes_free(struct gm_processes *processes);
/* What a device's thread saw; takes usage, which may be NULL. */
void gm_processes_looked(struct gm_processes *processes, uint32_t device, struct gm_usage *usage);
/* It waits for nothing any more. */
void gm_processes_peer_closed(struct gm_processes *processes, struct gm_peer *peer);

void gm_admin_get_processes(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

#endif
