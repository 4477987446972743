/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_CORE_H
#define GM_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/status.h"
#include "common/types.h"
#include "daemon/core/chunk.h"
#include "daemon/core/event.h"

/*
 * The core: who holds what, who may have more, and what becomes of a chunk. It is plain C: it knows
 * no socket, no protobuf, no libuv, no libsystemd and no CUDA, reads no clock and makes no id by
 * itself. All of it runs on one thread (the daemon's loop, or a test).
 *
 * What it needs from above comes as a table of functions; what it promises:
 *   - at every return: created = leased + quarantined + pooled, nothing admitted past the ceiling,
 * and pooled + charged <= ceiling unless memory that is foreign took the room (then the pool is
 * empty);
 *   - a request ends exactly once, by its done() function, which may run before gm_core_request()
 * returns;
 *   - no owner's limit is passed by a byte at admission, and what is guaranteed to an owner is not
 * given to another (quota.h);
 *   - a request that waits is granted in the very call that brings back what it waits for, in the
 * order that queue.h promises;
 *   - a chunk whose client did not say that it unmapped it is never given to anyone else;
 *   - no call costs more as the number of leases or clients grows, but for those that must look at
 * every client: a new limit, a cleanup, and a request that does not fit.
 */

struct gm_core;
struct gm_session;
struct gm_lease;
struct gm_request;
struct gm_tally;

#define GM_DETAIL_BYTES 256

/* What core asks of the one above it. */
struct gm_core_ops {
	/*
	 * Start the creation of chunk->bytes on chunk->device by chunk->transport. Must not
	 * complete before it returns; the end is told by gm_core_created(). Jobs of different turns
	 * (sessions) take turns.
	 */
	void (*create)(void *ctx, struct gm_chunk *chunk, uint64_t turn);
	/* Start the destruction of what chunk->handle names; goes before creations. The end:
	 * gm_core_destroyed(). */
	void (*destroy)(void *ctx, struct gm_chunk *chunk);
	uint64_t (*now_ns)(void *ctx); /* monotonic */
	uint64_t (*new_id)(void *ctx); /* never the same twice, not even after a restart; never 0 */
	void (*random)(void *ctx, void *bytes, size_t n); /* for tokens */
	/* A device's figures, or what a session holds on it, changed: for the shared pages. Cheap;
	 * may come often. */
	void (*device_changed)(void *ctx, uint32_t device);
	void (*session_changed)(void *ctx, struct gm_session *session, uint32_t device);
	/* A device's pressure went to another level. */
	void (*level_changed)(void *ctx, uint32_t device, enum gm_level level);

	/* ---- from here on a function may be NULL: then there is nobody to ask or to tell */

	/*
	 * Nobody wants the chunk any more whose creation was started. true: it had not begun, never
	 * will, and gm_core_created() is not called; false: it has, and its end is told. Without
	 * this, whoever asks and cancels keeps the device busy with what nobody wants.
	 */
	bool (*call_off)(void *ctx, struct gm_chunk *chunk);
	/*
	 * What a client says of its use of a device, from its page: called while a plan is made.
	 * Believed as far as it can be true (no more than the client holds), and no further: a
	 * client that says it has nothing cached may still be asked.
	 */
	void (*use)(void *ctx, struct gm_session *session, uint32_t device, struct gm_use *ret);
	/*
	 * Asks a connected client to give memory back. Core hears of the effect by what is returned
	 * (or by the client's end), and of nothing else; whoever says nothing by the deadline is
	 * left alone for a while. Must not return memory or end a session before it returns.
	 */
	void (*reclaim)(void *ctx, struct gm_session *session, const struct gm_reclaim *ask);
	/*
	 * End this client's process: only with oom = terminate, and only at the end of the ladder.
	 * Core waits for gm_session_end_died(). A negative errno: it cannot be done (no right to
	 * send signals); core does not ask for it again while the device stays critical.
	 */
	int (*terminate)(void *ctx, struct gm_session *session, uint32_t device);
	/*
	 * Look how much of a device is free, from now on: what is seen is told by gm_core_sample()
	 * or gm_core_sample_failed(), then gm_core_looked(), after this returned and in their place
	 * among the device's jobs. Core has one under way at most. See look.h.
	 */
	void (*look)(void *ctx, uint32_t device);
	/* What the device said when it could not make a chunk just now, for who asked for it.
	 * false: nothing. */
	bool (*trouble)(void *ctx, uint32_t device, char text[GM_DETAIL_BYTES]);
	/* gm_core_tick() is wanted at that time, earlier than it said when it last returned.
	 * Without this, deadlines are kept only as well as ticks come. */
	void (*wake_at)(void *ctx, uint64_t ns);
	/* For the journal and gpumemctl watch. What it points to is good during the call. */
	void (*event)(void *ctx, const struct gm_event *event);
};

/* What a device's memory shortage means for a request that does not say so itself. */
enum gm_oom {
	GM_OOM_REFUSE,    /* refused, after reclaim */
	GM_OOM_WAIT,      /* it waits, wait_ns at most */
	GM_OOM_TERMINATE, /* the same, and at critical pressure the ladder has its last rung */
};

/* Per device, from the configuration; may change on reload. */
struct gm_policy {
	double fraction;
	uint64_t min_free;
	uint64_t max_pool;       /* bytes; UINT64_MAX: a quarter of the capacity */
	uint32_t max_per_bucket; /* chunks; 0: no bound */
	uint64_t reserve;        /* bytes of fresh chunks kept ready: pooled, within max_pool */
	bool pooling;            /* false: trust = client, nothing is pooled after use */
	uint32_t level_ppm[GM_LEVELS - 1];
	uint32_t hysteresis_ppm;
	uint64_t dwell_ns;
	enum gm_oom oom;
	uint64_t wait_ns;    /* how long a request waits that does not say; 0: GM_WAIT_NS */
	uint64_t reclaim_ns; /* what a client has to answer a reclaim; 0: GM_RECLAIM_NS */
	uint64_t settle_ns;  /* from an action of the ladder to the next; 0: GM_SETTLE_NS */
};
#define GM_WAIT_NS    UINT64_C(30000000000)
#define GM_RECLAIM_NS UINT64_C(100000000)
#define GM_SETTLE_NS  UINT64_C(1000000000)

struct gm_core_device_info {
	uint64_t total;
	bool transport_fd;
	bool transport_ipc;
	bool measured; /* free_bytes says what the device has free before anything is made on it */
	uint64_t free_bytes;
	struct gm_policy policy;
};

int gm_core_new(const struct gm_core_ops *ops, void *ctx, struct gm_core **ret_core);
/* Everything must be gone before: no session, no chunk. gm_core_shutdown() gets it there. */
void gm_core_free(struct gm_core *core);
/* Ends every session, empties the pools. Idle (true) once no creation or destruction is under way.
 */
void gm_core_shutdown(struct gm_core *core);
bool gm_core_idle(const struct gm_core *core);

/* Devices are numbered in the order they are added. Starts to fill the reserve. */
int gm_core_add_device(
	struct gm_core *core, const struct gm_core_device_info *info, uint32_t *ret_device);
uint32_t gm_core_device_count(const struct gm_core *core);
/* A new policy; what is pooled past it is released, what is leased past it stays. */
void gm_core_set_policy(struct gm_core *core, uint32_t device, const struct gm_policy *policy);
/*
 * What the device thread saw: how much of the device is free. Corrects foreign, and so the ceiling.
 * Samples, created() and destroyed() of one device must be told in the order in which the thread
 * did them, so that a sample never counts what core does not know of. A sample before -ENOMEM is
 * told makes the refusal name what is foreign now.
 */
void gm_core_sample(struct gm_core *core, uint32_t device, uint64_t free_bytes);
/* The device could not say: foreign stays what it was, and is not measured any more. */
void gm_core_sample_failed(struct gm_core *core, uint32_t device);
/* The last sample told, or the failure of one, began after look() was called. Nothing if it was
 * not. */
void gm_core_looked(struct gm_core *core, uint32_t device);
/* Timed work (dwell of the pressure level, another try at the reserve, deadlines of waiting
 * requests and of clients that were asked for memory, the ladder's next step). Returns when it
 * wants to be called next, ns, or UINT64_MAX; that may become earlier: see wake_at(). */
uint64_t gm_core_tick(struct gm_core *core);

/* The arithmetic of the design, as it stands now. */
struct gm_device_figures {
	uint64_t total, foreign, capacity, ceiling, available;
	uint64_t leased, quarantined, admitted, pooled, created;
	uint64_t free; /* total - foreign - created - what is being destroyed */
	bool measured; /* by a sample; false: nothing is known of what is foreign */
	uint64_t peak_charged;
	uint64_t chunks;
	uint32_t pressure_ppm;
	enum gm_level level;
	uint64_t reclaim_epoch;
	struct gm_policy policy;
};
void gm_core_device_figures(
	const struct gm_core *core, uint32_t device, struct gm_device_figures *ret);

/* ---- sessions: a client process, connected or not */

struct gm_session_info {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	gm_domain domain;
	bool pooling; /* false: what it returns is never pooled (trust = client, unmapped uid) */
	void *user;   /* the peer it belongs to; NULL while quarantined */
	/* Owners that limits can be given to. Copied; NULL or "": none. The name is the client's
	 * own word and can only tighten its limits. One that is too long is none
	 * (GM_OWNER_NAME_BYTES). */
	const char *unit, *container, *name;
};

/* Makes the session and its resume token (only its hash is kept). */
int gm_session_new(struct gm_core *core, const struct gm_session_info *info,
	uint8_t ret_token[GM_TOKEN_BYTES], struct gm_session **ret_session);
uint64_t gm_session_id(const struct gm_session *session);
const struct gm_session_info *gm_session_info(const struct gm_session *session);
void gm_session_set_user(struct gm_session *session, void *user);
uint64_t gm_session_held(
	const struct gm_session *session, uint32_t device); /* what it is charged */
/* The lowest max of all limits that apply to it, on its own or with others; UINT64_MAX: none. */
uint64_t gm_session_max(const struct gm_session *session, uint32_t device);
int32_t gm_session_priority(const struct gm_session *session, uint32_t device);
uint64_t gm_session_lease_count(const struct gm_session *session);
bool gm_session_quarantined(const struct gm_session *session);
struct gm_session *gm_core_find_session(struct gm_core *core, uint64_t id);
/* In order of age. NULL ends. */
struct gm_session *gm_core_next_session(struct gm_core *core, struct gm_session *after);
uint64_t gm_core_session_count(const struct gm_core *core);
uint64_t gm_core_lease_count(const struct gm_core *core);

/* The connection ended, the process lives: its pending requests end as cancelled, its chunks are
 * quarantined and stay charged. */
void gm_session_quarantine(struct gm_session *session);
/* It is back with its token (compared in constant time): its chunks are leased again. -EACCES:
 * wrong token. -EBUSY: not quarantined. */
int gm_session_resume(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], void *user,
	uint8_t ret_token[GM_TOKEN_BYTES]);
/* The new token could not be told: the one that was shown is good once more. */
void gm_session_keep_token(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES]);
/* Its pending requests end as cancelled: for who has something to say of them that is gone when the
 * session is. */
void gm_session_cancel(struct gm_session *session);
/*
 * The end. unmapped: the client said that it unmapped everything (goodbye), so chunks may be
 * pooled; otherwise the process died and its chunks are released. Pending requests end as
 * cancelled. The session is freed.
 */
void gm_session_end_unmapped(struct gm_session *session);
void gm_session_end_died(struct gm_session *session);

/* ---- requests */

/*
 * A waiting request's place: core's own. A request is in the queue of its device from the moment it
 * did not fit until it is granted or refused; parked ones are those that may not wait and are there
 * only while the device is looked at, and clients are asked, for what it lacks.
 */
struct gm_waiting {
	bool queued;
	bool parked;
	bool begun;         /* it was found not to fit: clients were asked, and it was told */
	bool told;          /* QUEUED was told, so its end will be */
	bool last_look;     /* of one that is parked: wanted already */
	uint8_t rounds;     /* how often clients were asked on its behalf */
	uint32_t overtaken; /* by requests behind it that were granted what it waits for */
	int32_t priority;
	enum gm_block block;
	const struct gm_tally *tally; /* GM_BLOCK_QUOTA: of which owner */
	uint64_t order;               /* of arrival */
	uint64_t exact;               /* bytes it needs at least */
	uint32_t device;
	uint64_t since_ns;
	uint64_t until_ns; /* it ends then; UINT64_MAX: never by itself */
	uint64_t again_ns; /* clients are asked again then */
	uint64_t look;     /* nothing is decided before this look of the device; 0: none */
	/* It fitted, but the device could not make so many bytes of it; 0: that is not so. It
	 * is tried again when more than this has come back since. */
	uint64_t denied, freed, returns;
	struct gm_request *prev, *next;
};

/*
 * A request for memory, embedded in the caller's own. Fill the first part; core uses the rest until
 * done() is called, once. On success done() has status GPUMEM_OK and request->lease, whose chunks
 * from first_index on are the new ones (detail is NULL). Otherwise detail says cause and remedy,
 * and nothing is held. done() may free the request and call anything but what ends its session
 * (gm_session_quarantine() is fine).
 */
struct gm_request {
	struct gm_session *session;
	struct gm_lease *lease; /* in: the lease to grow, or NULL for a new one; out: the lease */
	uint32_t device;        /* of a new lease */
	uint64_t bytes;
	enum gm_transport transport; /* of a new lease */
	const char *tag;             /* of a new lease; may be NULL; copied */
	/* How long it may wait for room, ns, or GM_WAIT_FOREVER. 0: as the device's policy says
	 * (oom). GM_WAIT_NEVER: refused if it does not fit, once clients had their time to return
	 * what is missing. */
	uint64_t wait_ns;
	void (*done)(struct gm_request *request, gpumem_status status, const char *detail);

	/* core's own; core sets it up */
	uint64_t first_index;
	uint64_t charged; /* admitted for it, bytes */
	uint32_t missing; /* creations under way */
	struct gm_lease
		*target; /* the lease to be: not found by anyone before the request is done */
	struct gm_chunk *chunks;        /* all of it, created or not, in the order of the lease */
	struct gm_request *prev, *next; /* of the session's pending ones */
	struct gm_waiting waiting;      /* while it is in the queue */
};
#define GM_WAIT_NEVER   UINT64_MAX
#define GM_WAIT_FOREVER (UINT64_MAX - 1)

/*
 * Asks for memory. A request that does not fit is refused at once when it never could be granted
 * (GPUMEM_E_LIMIT, GPUMEM_E_NO_MEMORY); otherwise clients are asked for what is missing, and it is
 * queued, for the time of the reclaim or as long as it may wait: see queue.h. So is one that fits
 * when the backend turns out to have less than that. Its tag must stay until it is done. Outcomes
 * of waiting: GPUMEM_E_TIMEOUT, GPUMEM_E_DEADLOCK, GPUMEM_E_CANCELLED.
 */
void gm_core_request(struct gm_core *core, struct gm_request *request);
/* Ends a request that is not done: it waits, or its chunks are being made. done() is called with
 * GPUMEM_E_CANCELLED before this returns. */
void gm_core_cancel(struct gm_core *core, struct gm_request *request);

/* ---- leases */

/* A lease that the session made or opened; NULL: none of its. */
struct gm_lease *gm_session_find_lease(struct gm_session *session, uint64_t lease);
/* In order of age; NULL ends. */
struct gm_lease *gm_session_next_lease(struct gm_session *session, struct gm_lease *after);

struct gm_lease_info {
	uint64_t id;
	uint32_t device;
	enum gm_transport transport;
	uint64_t bytes;      /* whole chunks */
	uint64_t user_bytes; /* what was asked for */
	bool read_only;      /* for the session asking */
	const char *tag;
};
void gm_lease_info(
	const struct gm_lease *lease, const struct gm_session *session, struct gm_lease_info *ret);
/* The chunk with the lowest index >= from; NULL: no more. Following chunk->next from there goes in
 * order of index. */
const struct gm_chunk *gm_lease_chunk(const struct gm_lease *lease, uint64_t from);

/*
 * Gives back some chunks of a lease the session made, all or nothing. GPUMEM_E_NOT_FOUND: one of
 * the ids is not (or no longer) in the lease, or is named twice. GPUMEM_E_BUSY: the lease is
 * shared, so it goes back as a whole.
 */
gpumem_status gm_lease_return_chunks(
	struct gm_session *session, struct gm_lease *lease, const uint64_t *ids, size_t n);
/* Gives back the whole lease, or the session's view of it if it opened it. The lease ends with its
 * last holder. */
void gm_lease_return(struct gm_session *session, struct gm_lease *lease);

/* ---- sharing */

enum gm_audience { GM_AUDIENCE_DOMAIN, GM_AUDIENCE_UID, GM_AUDIENCE_GID };

struct gm_share_options {
	enum gm_audience audience;
	uint32_t id; /* uid or gid */
	bool read_only;
};
gpumem_status gm_lease_share(struct gm_session *session, struct gm_lease *lease,
	const struct gm_share_options *options, uint8_t ret_token[GM_TOKEN_BYTES]);
/* Unknown token and wrong audience look the same: GPUMEM_E_NOT_FOUND. Opening twice counts twice.
 */
gpumem_status gm_session_open(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	const gid_t *groups, size_t n_groups, struct gm_lease **ret_lease);
gpumem_status gm_lease_unshare(struct gm_session *session, struct gm_lease *lease);

/* ---- pool */

struct gm_pool_totals {
	uint64_t pooled, peak, max_pool, reserve; /* bytes */
	/* In chunks: taken from the pool for a request; created for one; put in after use;
	 * destroyed to make room, by a trim or by a new bound. */
	uint64_t hits, misses, returns, released;
};
void gm_core_pool_totals(const struct gm_core *core, uint32_t device, struct gm_pool_totals *ret);
struct gm_pool_bucket_info {
	enum gm_transport transport;
	uint64_t chunk_bytes;
	gm_domain domain;
	uint64_t chunks;
	uint64_t oldest_ns; /* age of the one longest there */
};
void gm_core_pool_each(const struct gm_core *core, uint32_t device,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx);
/* Empties a device's pool (the reserve too, which then fills again while pressure is low) and
 * raises the reclaim epoch. Bytes released. */
uint64_t gm_core_trim(struct gm_core *core, uint32_t device);

/* ---- what the one above tells core about its jobs */

/* result: 0 and chunk->handle filled, or a negative errno (-ENOMEM: the backend is out of memory).
 */
void gm_core_created(struct gm_core *core, struct gm_chunk *chunk, int result);
void gm_core_destroyed(struct gm_core *core, struct gm_chunk *chunk);

/* Counts since the start. */
struct gm_core_counters {
	uint64_t requests, refusals;
};
void gm_core_counters(const struct gm_core *core, struct gm_core_counters *ret);

#endif
