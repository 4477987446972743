/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_CORE_H
#define GM_TESTS_FAKE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/books/owner.h"
#include "daemon/core/core.h"

/*
 * What stands above core in its tests: a clock that moves when told, ids that count up, random
 * bytes that repeat from run to run, and a queue of jobs that the test completes, in any order,
 * well or badly. It keeps its own count of what the "backend" holds, to compare with.
 */

#define MiB (UINT64_C(1) << 20)
#define GiB (UINT64_C(1) << 30)

struct fake_job {
	struct gm_chunk *chunk;
	bool destroy;
	uint64_t turn;
};

/* What a client was asked for, and what it says of itself. */
struct fake_ask {
	uint64_t session;
	struct gm_reclaim_message ask;
};

/* One event, without its pointers. */
struct fake_event {
	struct gm_event event;
	uint64_t session;
	struct gm_owner owner;
	char text[GM_DETAIL_BYTES];
};

#define FAKE_LOG 4096

struct fake_ledger;

struct fake_core {
	struct gm_core *core;
	struct fake_ledger *ledger; /* NULL: nothing outlives the core */
	bool for_others, signals;   /* what fake_ask() asks for */
	bool one_chunk;             /* likewise */
	bool host_will_do;          /* likewise */
	uint64_t now;
	uint64_t last_id;
	uint64_t random;
	struct fake_job *jobs;
	size_t n_jobs, room;
	uint64_t backend_bytes[GM_BOUND_DEVICES];
	uint64_t backend_chunks[GM_BOUND_DEVICES];
	uint64_t device_changes, session_changes, level_changes;
	uint64_t closed_aside; /* descriptors that core does not close itself */
	uid_t closed_for;      /* the last of them */
	enum gm_pressure_level level;
	bool quiet;  /* no device_changed counted: for measuring */
	bool in_use; /* somebody has every chunk */
	/* Whether somebody has the chunk. NULL: in_use says so. */
	bool (*mapped)(void *ctx, const struct gm_chunk *chunk);
	void *mapped_ctx;
	uint64_t pooled;     /* how often a chunk went into the pool */
	uint64_t looks;      /* how often that was asked */
	uint64_t page_looks; /* how often core looked at what a client says */
	bool calls_off;      /* no creation has begun before the test completes it */

	/* What a client says it has, by the last digits of its session's id. */
	struct gm_account_use use[FAKE_LOG][GM_BOUND_DEVICES];
	/* The latest of each; older ones are forgotten. */
	struct fake_ask asks[FAKE_LOG];
	size_t n_asks;
	struct fake_event events[FAKE_LOG];
	size_t n_events;
	/* Reclaims by device and trigger, as they were told. */
	uint64_t started[GM_BOUND_DEVICES][GM_TRIGGERS], ended[GM_BOUND_DEVICES][GM_TRIGGERS];
	uint64_t victim;          /* session that was to be terminated last */
	uint64_t victims;         /* how many */
	uint64_t left;            /* how often a maker left */
	uint64_t left_to;         /* session that was told so last */
	int terminate;            /* what terminate() returns */
	uint64_t wake_ns;         /* of the last wake_at() */
	uint64_t probes;          /* that were wanted */
	bool probing;             /* one of them is under way */
	uint64_t counts;          /* of what processes have, that were wanted */
	enum gm_env_process fate; /* of every process */
};

/* total of one device, fraction 1, min_free 0, pooling, no reserve, no bounds on the pool */
struct gm_core_device_info fake_info(uint64_t total);
/* No pressure makes a level. */
void fake_no_levels(struct gm_policy *policy);
void fake_core_init(struct fake_core *fake);
/* The same with clients that can be asked, told and terminated. */
void fake_core_init_asking(struct fake_core *fake);
/* The same with devices that can be probed. */
void fake_core_init_probing(struct fake_core *fake);
/* Ends the probe, which must be under way: others have so much of the device. */
void fake_probed(struct fake_core *fake, uint32_t device, uint64_t foreign);
/* The same with records, and without devices: the core is about to adopt what the ledger has. */
void fake_core_init_keeping(struct fake_core *fake, struct fake_ledger *ledger);
/* What the client's page would say. Core has not looked at it for long enough to look again. */
void fake_says(struct fake_core *fake, struct gm_session *session, uint32_t device, uint64_t cached,
	uint64_t evictable);
/* What it says is cached, as far as it can be true. */
uint64_t fake_claims(
	const struct fake_core *fake, const struct gm_session *session, uint32_t device);
/* The client's page is of the version whose cached includes rounding. */
void fake_says_roughly(struct fake_core *fake, struct gm_session *session, uint32_t device);
/* The last ask of that client; NULL: it was not asked. */
const struct gm_reclaim_message *fake_asked(
	const struct fake_core *fake, const struct gm_session *session);
/* The last event of that kind; NULL: there was none. */
const struct fake_event *fake_told(const struct fake_core *fake, enum gm_event_kind kind);
/* A reclaim was told to have started, and not to have ended. */
bool fake_reclaims(const struct fake_core *fake, uint32_t device, enum gm_reclaim_trigger trigger);
uint64_t fake_count_told(const struct fake_core *fake, enum gm_event_kind kind);
/* Moves the clock, tick by tick as core wants them. */
void fake_pass(struct fake_core *fake, uint64_t ns);
uint32_t fake_core_add(struct fake_core *fake, const struct gm_core_device_info *info);
/* Shuts down, completes all jobs, frees; fails the test when something is left. */
void fake_core_deinit(struct fake_core *fake);

/* Completes job i. result is that of a creation; a destruction always succeeds. */
void fake_core_complete(struct fake_core *fake, size_t i, int result);
/* Completes everything, and what comes of it, destructions first. */
void fake_core_run(struct fake_core *fake);
size_t fake_core_count(const struct fake_core *fake, bool destroy);
/* Fails the test unless the figures of the device add up with what the backend holds. */
void fake_core_check(const struct fake_core *fake, uint32_t device);

struct gm_session *fake_session(struct fake_core *fake, gm_domain domain, uid_t uid);

/* A request and how it ended. */
struct fake_request {
	struct gm_request r;
	unsigned ended;
	gpumem_status status;
	char detail[GM_DETAIL_BYTES];
};
/* For gm_request.done of a fake_request. */
void fake_request_done(struct gm_request *request, gpumem_status status, const char *detail);
void fake_ask(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	uint32_t device, uint64_t bytes, enum gm_transport transport);
/* The same, and it may wait so long. */
void fake_wait(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	uint32_t device, uint64_t bytes, uint64_t wait_ns);
void fake_grow(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	struct gm_lease *lease, uint64_t bytes);
/* Asks, completes everything, fails the test unless it is granted. */
struct gm_lease *fake_lease(
	struct fake_core *fake, struct gm_session *session, uint32_t device, uint64_t bytes);
size_t fake_chunks(const struct gm_lease *lease);

/* What only core's own modules can see. */
struct gm_session *fake_next_session(const struct fake_core *fake, struct gm_session *after);
/* What ended sessions of a uid (-1: of all) left behind. */
uint64_t fake_left_by(const struct fake_core *fake, uid_t uid, uint32_t device);
bool fake_quarantined(const struct gm_session *session);
int32_t fake_priority(const struct gm_session *session, uint32_t device);
uint64_t fake_queue_length(const struct fake_core *fake, uint32_t device);
/* How often a request that waits, or a line of them, was looked at. */
uint64_t fake_queue_steps(const struct fake_core *fake, uint32_t device);
/* Ticks until nothing of the queue is due at once: every request has been looked at, and no deadlock
 * is left. */
void fake_finish_slices(struct fake_core *fake, uint32_t device);
/* The request that holds others back; NULL: none does. */
const struct gm_request *fake_queue_holder(const struct fake_core *fake, uint32_t device);

struct gm_device_figures fake_figures(const struct fake_core *fake, uint32_t device);
struct gm_pool_totals fake_pool(const struct fake_core *fake, uint32_t device);

/* Shares chunks, slice after slice. See gm_session_share_some(). */
static inline gpumem_status fake_share_chunks(struct gm_session *session,
	const struct gm_token_chunks *what, uint8_t token[GM_TOKEN_BYTES], uint64_t *ret_leases,
	char detail[GM_DETAIL_BYTES])
{
	struct gm_token_chunks rest = *what;
	gpumem_status status;

	while (gm_session_share_some(session, &rest, token, ret_leases, &status, detail))
		;
	return status;
}

static inline void fake_unshare_chunks(
	struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], uint32_t n)
{
	uint32_t at = 0;

	while (gm_session_unshare_some(session, token, &at, n))
		;
}

#endif
