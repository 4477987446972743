/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BROKER_PRIVATE_H
#define GM_DAEMON_BROKER_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <pthread.h>
#include <uv.h>

#include "common/log.h"
#include "daemon/backend/backend.h"
#include "daemon/backend/backend_copies.h"
#include "daemon/backend/worker.h"
#include "daemon/broker.h"
#include "daemon/listeners.h"
#include "daemon/broker_ids.h"
#include "daemon/store/store.h"
#include "daemon/net/peer.h"
#include "daemon/serve/serve_dispatch.h"
#include "daemon/tenant/client.h"
#include "daemon/tenant/client_terminator.h"

/* For broker.c, broker_config.c, broker_core.c and broker_store.c only. */

/* Chunks of a device that the keeper is to close, by their number, and creations that wait for that. */
struct gm_broker_closing {
	uint64_t asked, done;
	struct gm_chunk *first, *last; /* by job.next */
};

/*
 * A reload in progress. A thread reads the configuration, the names of users and the subordinate uids, because the loop
 * must not wait for the disk. Private to broker_config.c.
 */
enum gm_broker_restart {
	GM_BROKER_RESTART_SAME,  /* a start says what the reload says, or that is not known */
	GM_BROKER_RESTART_FAILS, /* only a start refuses what was read */
	GM_BROKER_RESTART_HELPS, /* only the devices in use contradict it */
};

struct gm_broker_reading {
	bool under_way;
	bool again; /* asked for in the meantime */
	bool threaded;
	pthread_t thread;
	uv_async_t done;
	int result; /* 0, or a negative errno; then error says why, or is NULL */
	struct gm_config *config;
	char *error;
	enum gm_broker_restart restart;
	gid_t admin_group, observer_group;
	bool subuids_known;
	struct gm_subuids subuids;
};

struct gm_broker {
	const struct gm_broker_options *options;
	struct gm_config *config;
	struct gm_config *started; /* the one whose socket, backend and devices are in use */
	uv_loop_t loop;
	bool loop_open;
	uv_signal_t signals[3];
	uv_timer_t tick, sample, watchdog, stop, ready;
	struct gm_broker_reading reading;
	uint64_t tick_ns;    /* when core wants to be called again */
	uv_prepare_t turn;   /* begins each turn of the loop */
	uint32_t to_prepare; /* so many pooled chunks may still be prepared in this turn */
	struct gm_client_terminator *terminator;

	struct gm_listeners front;
	struct gm_broker_ids ids;
	const struct gm_backend_ops *ops;
	void *backend;
	struct gm_worker *workers[GM_BOUND_DEVICES];
	struct gm_core *core;
	struct gm_hub hub;
	bool hub_open;
	struct gm_clients clients;
	bool clients_open;
	struct gm_serve serve;
	struct gm_store *store; /* NULL: nothing outlives this daemon */
	bool keeper_is_ours;    /* no service manager runs it */
	struct gm_broker_closing closing[GM_BOUND_DEVICES];
	uint32_t undeposited[GM_BOUND_DEVICES]; /* chunks that wait for the keeper */
	struct gm_broker_work *works;           /* of users: core has something to end in slices */
	uint32_t resample;                      /* a bit per device whose sample was dropped */
	uint32_t failing; /* a bit per device whose last creation failed for an odd reason */
	bool stopping;
	bool forget;        /* when it stops, all that clients hold ends */
	bool asked_to_stop; /* by an administrator, not by a signal from outside */
	bool stuck;         /* a backend call did not return in time */
	bool late;          /* no job is under way, but the keeper lacks something */
	bool abandons;      /* no keeper came in time */
};

/* broker_config.c: the configuration, at the start and when it is reloaded. */

void gm_broker_config_use(struct gm_broker *broker, struct gm_config *config);
/* Reads the configuration when the devices are known, so that it can name them by UUID or PCI address, and so that
 * its limits are checked against them. The socket is open already. */
int gm_broker_config_load(const struct gm_broker *broker, uint32_t n, struct gm_config **ret_config,
	char **ret_error);
/* Logs each line of the text, which is changed. */
void gm_broker_config_log(enum gm_log_level level, const char *text);
/* Returns the group of administrators, or -1 if the configuration names none. */
gid_t gm_broker_config_group(const char *name);
/* At the start: reads who pays for whom, and applies that and the other settings about users: who administers, and how many
 * connections a user may have. */
void gm_broker_config_apply_users(struct gm_broker *broker);
/* Reads the names of users, for messages. */
void gm_broker_config_read_names(void);
/* The policy of a device, as the configuration in use has it. */
void gm_broker_config_policy(
	const struct gm_broker *broker, uint32_t device, struct gm_policy *ret_policy);
/* Warns about settings that have no effect here. */
void gm_broker_config_check(const struct gm_broker *broker);
/* Writes a line for the service manager that says which devices the daemon serves. */
void gm_broker_config_status(const struct gm_broker *broker, char text[256]);
/* Tells the service manager that the daemon serves, now or as soon as the manager reads. */
void gm_broker_config_say_ready(struct gm_broker *broker);
int gm_broker_config_init_reload(struct gm_broker *broker);
/* Reads the configuration again and applies it, in a while. On error, logs why and changes nothing. gm_admin_reloaded()
 * gets the result. Returns false if a reload is under way: then another one follows it. */
bool gm_broker_config_reload(struct gm_broker *broker);
/* Waits for a reload that is under way, and drops what it has read. */
void gm_broker_config_end_reload(struct gm_broker *broker);

/* broker_core.c: what core needs from the other parts, and what the device threads tell core. */
extern const struct gm_core_ops gm_broker_core_ops;
extern const struct gm_worker_events gm_broker_device_events;
/* Whether no job is under way and the keeper has what the next daemon needs, or both have had their time. */
bool gm_broker_may_end(struct gm_broker *broker);
/* Ends the loop if the broker is stopping and may end. */
void gm_broker_check_idle(struct gm_broker *broker);
/* Runs core's timed work after the clients' pages were flushed. ctx is the broker. */
void gm_broker_on_flushed(void *ctx);
/* Forgets which users core has something to end for. Core has ended it, or is to be left as it is. */
void gm_broker_drop_works(struct gm_broker *broker);
/* A turn of the loop begins. */
void gm_broker_on_iteration(uv_prepare_t *turn);
/* Samples every device that can be measured. */
void gm_broker_on_sample(uv_timer_t *timer);

/* broker_store.c: what outlives this daemon. */

extern const struct gm_clients_store gm_broker_clients_keep;
/* Connects to the keeper. On error, logs why. A daemon whose socket has no path goes on without. */
int gm_broker_store_open(struct gm_broker *broker);
/* Takes over what the daemon before had. Core is between gm_core_begin_adoption() and
 * gm_core_end_adoption(). On error, logs why. */
int gm_broker_store_adopt(struct gm_broker *broker);
/* Whether somebody holds something that the next daemon must know of. */
bool gm_broker_store_is_worth(struct gm_broker *broker);
/* Whether the keeper has everything that somebody holds. */
bool gm_broker_store_is_safe(struct gm_broker *broker);
/* Whether jobs wait for a keeper: chunks that it is to take or to close. */
bool gm_broker_store_delays(const struct gm_broker *broker);
/* Leaves what clients hold with the service manager, unless the keeper has it. Logs that. */
void gm_broker_store_leave(struct gm_broker *broker);
/* Ends the connection, and a keeper of ours that has nothing to keep. The loop must turn once more. */
void gm_broker_store_close(struct gm_broker *broker);
/* For gm_core_ops. */
int gm_broker_store_record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes, size_t size);
void gm_broker_store_erase(void *ctx, uint32_t *place);
int gm_broker_store_deposit(
	void *ctx, enum gm_store_kind kind, uint64_t id, int fd, struct gm_request *request);
void gm_broker_store_withdraw(void *ctx, enum gm_store_kind kind, uint64_t id);
void gm_broker_store_create(struct gm_broker *broker, struct gm_chunk *chunk, uint64_t turn);
bool gm_broker_store_call_off(struct gm_broker *broker, struct gm_chunk *chunk);
void gm_broker_store_destroy(struct gm_broker *broker, struct gm_chunk *chunk);
/* Called when a device's thread has made a chunk, or could not. Tells core of it when the keeper has the chunk. */
void gm_broker_store_created(struct gm_broker *broker, struct gm_chunk *chunk, int result);
/* Returns whether a destroyed chunk is one that the keeper did not take. If so, tells core that the chunk could not
 * be made. */
bool gm_broker_store_failed(struct gm_broker *broker, struct gm_chunk *chunk);
/* Whether a sample must not reach core, because it counts chunks that core has not heard of yet. If it
 * was the latest, another one follows. */
bool gm_broker_store_hides(struct gm_broker *broker, uint32_t device, bool latest);

#endif
