/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_PROCESSES_H
#define GM_DAEMON_ADMIN_PROCESSES_H

#include "daemon/backend/worker.h"
#include "daemon/serve/serve.h"

/*
 * Answers which processes use the devices. The device threads find that out between two jobs, on request
 * and if the foreign memory of a device changed much. A request that arrives during such a round waits for the next one, so an answer is never older than its
 * request. Rounds begin at least 100 ms apart, however many clients ask.
 */
struct gm_admin_processes;

/* workers: one per device. The caller keeps them until gm_admin_processes_free(). */
int gm_admin_processes_new(uv_loop_t *loop, const struct gm_backend_ops *ops,
	struct gm_worker *const *workers, uint32_t devices,
	struct gm_admin_processes **ret_processes);
/* All peers must be closed. Frees the memory in the loop's next turn. processes may be NULL. */
void gm_admin_processes_free(struct gm_admin_processes *processes);
/* Takes what a device thread found out. Takes ownership of usage, which may be NULL. */
void gm_admin_processes_update(struct gm_serve *serve, uint32_t device, struct gm_usage *usage);
/* Takes how much of a device is foreign now. If that changed much, looks for the processes. processes may be
 * NULL. */
void gm_admin_processes_watch(
	struct gm_admin_processes *processes, uint32_t device, uint64_t foreign);
/* Names the process that has most foreign memory, a client or not, as it was last seen: "pid 7 of user ann has 1.0G".
 * Everybody may know that. Returns false if none is known. processes may be NULL. */
bool gm_admin_processes_foreigner(
	const struct gm_admin_processes *processes, uint32_t device, char text[GM_DETAIL_BYTES]);
/* Drops the peer's questions. processes may be NULL. */
void gm_admin_processes_peer_closed(struct gm_admin_processes *processes, struct gm_peer *peer);

#endif
