/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BROKER_PRIVATE_H
#define GM_DAEMON_BROKER_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/backend/backend.h"
#include "daemon/backend/copies.h"
#include "daemon/backend/worker.h"
#include "daemon/broker.h"
#include "daemon/front.h"
#include "daemon/ids.h"
#include "daemon/net/peer.h"
#include "daemon/serve/dispatch.h"
#include "daemon/tenant/client.h"
#include "daemon/tenant/terminate.h"

/* For broker.c and broker_core.c only. */

struct gm_broker {
	const struct gm_broker_options *options;
	struct gm_config *config;
	struct gm_config *started; /* the one whose socket, backend and devices are in use */
	uv_loop_t loop;
	bool loop_open;
	uv_signal_t signals[3];
	uv_timer_t tick, sample, watchdog, stop;
	uint64_t tick_ns;    /* when core wants to be called again */
	uv_prepare_t turn;   /* begins each turn of the loop */
	uint32_t to_prepare; /* so many pooled chunks may still be prepared in this turn */
	struct gm_terminator *terminator;

	struct gm_front front;
	struct gm_ids ids;
	const struct gm_backend_ops *ops;
	void *backend;
	struct gm_worker *workers[GM_LIMIT_DEVICES];
	uint64_t whose_ns[GM_LIMIT_DEVICES]; /* when memory that stayed was last asked about */
	struct gm_core *core;
	struct gm_fd_budget fds;
	struct gm_hub hub;
	bool hub_open;
	struct gm_clients clients;
	bool clients_open;
	struct gm_serve serve;
	uint32_t failing; /* a bit per device whose last creation failed for an odd reason */
	bool stopping;
	bool stuck; /* a backend call did not return in time */
};

/* broker_core.c: what core needs from the other parts, and what the device threads tell core. */
extern const struct gm_core_ops gm_broker_core_ops;
extern const struct gm_worker_events gm_broker_device_events;
/* Ends the loop if the broker is stopping and no job is under way. */
void gm_broker_check_idle(struct gm_broker *broker);
/* Runs core's timed work after the clients' pages were flushed. ctx is the broker. */
void gm_broker_on_flushed(void *ctx);
/* A turn of the loop begins. */
void gm_broker_on_turn(uv_prepare_t *turn);
/* Samples every device that can be measured. */
void gm_broker_on_sample(uv_timer_t *timer);

#endif
