/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_PRIVATE_H
#define GM_DEVICE_DEVICE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/books/env.h"
#include "daemon/books/ledger.h"
#include "daemon/books/pool.h"
#include "daemon/books/record.h"
#include "daemon/device/device.h"

/*
 * A device as core's modules see it: all of its state, and the ways that a chunk can go.
 *
 * The state of the modules above (reserve, decay, probe, drain, reclaim and queue) is plain data here, so that
 * they can be stored together. Each part is written only by the files that keep it, except these
 * fields:
 *
 *   reserve.short_of   set by device.c and request.c, too, when a fresh chunk leaves the pool or
 *                      does not get there
 *   queue.woken, news  set by gm_device_wake_queue(), which any module may call
 *   pool.misses        counted by request.c
 *   pool.returns       counted by lease.c
 */

struct gm_reclaim_user;
struct gm_usage_sample;
struct gm_orphan_map;
struct gm_queue_user;
struct gm_request;

/* Kept by reserve.c. */
struct gm_reserve {
	uint32_t wanted[GM_CHUNK_CLASSES];
	uint32_t coming[GM_CHUNK_CLASSES]; /* under creation */
	bool short_of;                     /* something may be missing */
	struct gm_backoff retry;
};

/* Kept by device_decay.c. */
struct gm_device_decay {
	uint64_t jobs; /* destructions of decayed chunks under way */
	bool running;  /* the pool releases chunks because they decayed */
};

/* Kept by orphan_chunk.c: chunks that somebody still reaches. Those of a level wait equally long from one
 * look to the next, so each list is in order of time. */
#define GM_ORPHAN_CHUNK_LEVELS 7
struct gm_orphan_chunk {
	struct gm_chunk *levels[GM_ORPHAN_CHUNK_LEVELS];
	uint64_t due_ns; /* the next look; UINT64_MAX: none */
};

/* Kept by orphan_map.c: what processes still map of memory that was destroyed, as an estimate. */
struct gm_orphan_maps {
	struct gm_orphan_map
		*list; /* those that owe something, or of which something was destroyed */
	struct gm_usage_sample *last; /* the last count; NULL: it is not known */
	uint64_t due_ns;              /* the next count; UINT64_MAX: none */
};

/* Kept by device_probe.c. */
struct gm_device_probe {
	uint64_t begun;   /* the number of the last probe that began; the first one is 1 */
	uint64_t told;    /* the last one whose end was reported: begun, or the one before */
	uint64_t wanted;  /* the last one that a request waits for */
	uint64_t told_ns; /* when that was reported */
};

/* One reclaim by one trigger, from its first ask to the last answer or the deadline. Kept by
 * reclaim_run.c. */
struct gm_reclaim_run {
	bool active;
	bool spills;                  /* somebody was asked to move buffers */
	uid_t payer_uid;              /* request: of the user that made them, or GM_EVENT_NOBODY */
	uint64_t deadline_ns;         /* of requests: of the client whose time is over first */
	uint64_t need;                /* of all plans that joined the run */
	uint64_t first_need;          /* of the plan that began it */
	enum gm_pressure_level level; /* pressure: the level to get below */
	uint64_t owing;               /* accounts that were asked and have not returned all of it */
	uint64_t owed;                /* the bytes that they still owe */
	uint64_t stages[GM_STAGES];   /* bytes that each stage gave */
};

/* A user that had a client which left without returning what it had promised. Kept by reclaim_overdue.c. */
struct gm_reclaim_overdue {
	uint64_t broken;   /* what its other clients must return before it is believed; 0: it is */
	uint64_t until_ns; /* when it is believed again in any case */
	struct gm_user *user; /* a reference; NULL: nobody has the place */
};
#define GM_RECLAIM_OVERDUE    256
#define GM_RECLAIM_OVERDUE_NS UINT64_C(600000000000)

/* Kept by reclaim_run.c and reclaim_pressure.c, and by others where it says so. */
struct gm_reclaim {
	struct gm_reclaim_run runs[GM_TRIGGERS];
	enum gm_pressure_level level; /* the level that was acted on last */
	unsigned stage;               /* at critical: the next stage to run */
	uint64_t next_ns;             /* reclaim under pressure's next action; UINT64_MAX: none */
	uint64_t victim;              /* id of the payer that is being terminated; 0: none */
	bool powerless;               /* terminate() has failed since the level became critical */
	uint64_t steps;               /* since the start: how often a plan considered a client */
	uint32_t settled;         /* since the start: how often a client came to owe nothing more */
	struct gm_account *owing; /* of all runs: accounts that were asked and owe something */
	struct gm_reclaim_overdue overdues[GM_RECLAIM_OVERDUE];
	/* Kept by reclaim_backoff.c: the users for which clients may be asked, and when the first user's back-off is over; 0: none
	 * runs. */
	struct gm_reclaim_user *users;
	uint64_t judge_ns;
};

/* Kept by queue.c. */
struct gm_queue {
	struct gm_queue_user *user_queues; /* the user whose turn it is first */
	uint64_t length;                   /* of all lines */
	uint64_t last_order;
	uint64_t denied;  /* requests that the backend had no memory for */
	uint64_t endless; /* requests without a deadline */
	uint64_t granted; /* requests, since the start */
	uint64_t steps;   /* since the start: how often a request or a line was looked at */
	bool woken;       /* it will be gone through */
	bool news;        /* something may have come back: every request is to be looked at */
	bool running;     /* it is being gone through */
	uint64_t due_ns;  /* when the first request is due; valid while the queue is not woken */
	/* Kept by queue_head.c. */
	struct gm_request *holder; /* holds others back; NULL: none does */
	bool holds_own;            /* only those of its own user */
	uint64_t hold_ns;          /* since when */
	uint64_t rest_ns;          /* no request may begin before this time */
	/* Kept by queue_deadlock.c. */
	struct gm_queue_standing still; /* of all accounts */
	uint64_t look_ns; /* when to look for a deadlock, if there are endless requests */
};

struct gm_device {
	struct gm_env *env;
	uint32_t number;
	struct gm_core_device_info info;
	/* Worked out once per policy: fraction x total, and total - min_free. */
	uint64_t share, beyond_min_free;
	struct gm_ledger ledger;
	struct gm_pool pool;
	struct gm_reserve reserve;
	struct gm_device_decay decay;
	struct gm_pressure pressure;
	struct gm_queue queue;
	struct gm_reclaim reclaim;
	struct gm_device_probe probe;
	struct gm_orphan_chunk linger;
	struct gm_orphan_maps maps;
	struct gm_device_draining drain; /* kept by device_drain.c */
	uint32_t drain_place;            /* of its record */
	uint64_t freed;               /* bytes since the start: destroyed, or no longer foreign */
	uint64_t destroyed;           /* bytes since the start */
	struct gm_request *declaring; /* until so much is destroyed; in that order (declare.c) */
	uint64_t guaranteed;          /* the sum of all guarantees (limit.c) */
	int32_t top_priority;         /* of all payers, unless top_stale (limit.c) */
	int32_t top_most;             /* no payer has a higher one */
	bool top_stale;
	uint64_t key;                 /* its name in records; no other device has the same */
	struct gm_record_device kept; /* its record, as it was written last */
	uint32_t place;               /* of that record */
	uint64_t chunks;              /* all but the doomed ones */
	uint64_t jobs;                /* creations and destructions under way */
	uint64_t reclaim_epoch;
};

void gm_device_init(struct gm_device *device, struct gm_env *env, uint32_t number,
	const struct gm_core_device_info *info);
void gm_device_deinit(struct gm_device *device);
/* NULL: there is no device of this key. */
struct gm_device *gm_device_by_key(const struct gm_env *env, uint64_t key);
/* GPUMEM_E_NOT_FOUND, and detail says which devices there are. */
gpumem_status gm_device_check_number(
	const struct gm_env *env, uint32_t number, char detail[GM_DETAIL_BYTES]);

static inline uint64_t gm_device_now(const struct gm_device *device)
{
	return gm_env_now(device->env);
}

/* Something may have come back. The queue will be gone through before the call into core returns; a
 * long line in it is gone through in slices, and the rest of it follows in ticks. */
static inline void gm_device_wake_queue(struct gm_device *device)
{
	device->env->woken = device->queue.woken = device->queue.news = true;
}

uint64_t gm_device_capacity(const struct gm_device *device);
uint64_t gm_device_ceiling(const struct gm_device *device);
uint64_t gm_device_available(const struct gm_device *device);
uint32_t gm_device_pressure(const struct gm_device *device);
/* The level of that pressure. Here a fall does not wait for its dwell, so level and pressure always agree. In
 * device->pressure.level, whose changes core reports, it does. */
enum gm_pressure_level gm_device_level_now(const struct gm_device *device);
void gm_device_set_policy(struct gm_device *device, const struct gm_policy *policy);

/* Makes the struct of a chunk: it is counted and has an id, but is not in the ledger yet. NULL: no
 * memory. */
struct gm_chunk *gm_device_new_chunk(
	struct gm_device *device, enum gm_transport transport, uint64_t bytes);
/* Frees a chunk for which the backend holds nothing. */
void gm_device_free_chunk(struct gm_device *device, struct gm_chunk *chunk);
/* Submits the creation of a chunk. */
void gm_device_create(struct gm_device *device, struct gm_chunk *chunk, uint64_t turn);
/* The same once more after the backend had no descriptor for it: all pooled chunks give up theirs
 * first. Returns false if that does not help. */
bool gm_device_retry_create(struct gm_device *device, struct gm_chunk *chunk);
/* Takes back the creation if it has not begun. Then the caller must free the chunk. */
bool gm_device_call_off(struct gm_device *device, struct gm_chunk *chunk);

/*
 * Takes a created chunk out of the account that is charged for it. The chunk must be in no list. If
 * it is reusable (the client has unmapped it, or has never seen it) and there is room, it is pooled
 * for chunk->domain, otherwise it is destroyed. Returns whether it was pooled.
 */
bool gm_device_release(struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account,
	bool reusable);
/* Destroys an orphaned chunk that is charged to the account. The chunk must be in no list. */
void gm_device_doom_orphaned(
	struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account);
/*
 * Makes the struct of a leased chunk that an earlier daemon made. The backend has it already. The
 * caller charges it. NULL: no memory.
 */
struct gm_chunk *gm_device_adopt_chunk(struct gm_device *device, uint64_t id, uint64_t bytes,
	const struct gm_backend_handle *handle);
/* A creation that no request waits for ended: pools the chunk, destroys it, or frees it if the creation failed. */
void gm_device_created_unclaimed(struct gm_device *device, struct gm_chunk *chunk, int result);

/* Shrinks the pool until what is charged fits below the ceiling, sparing one domain. */
void gm_device_make_room(struct gm_device *device, gm_domain spare);
/* Releases pooled chunks whose descriptors are needed (all: every one), and starts creations that
 * waited for a descriptor. */
void gm_device_settle_fds(struct gm_env *env, bool all);
/* Must be called after any change: keeps the pool within the ceiling, updates the level, and
 * reports both. */
void gm_device_settle(struct gm_device *device);

#endif
