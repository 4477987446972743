/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_POLICY_MODEL_H
#define GM_TESTS_POLICY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/reclaim/reclaim.h"
#include "daemon/device/limit.h"
#include "daemon/queue/queue.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/core/model_run.h"

/* A model of limits, queue and reclaim on one device: who asked for what, who was asked, and what
 * each may have by the rules alone. What must be true of it is in policy_model.c. */

#define SECOND    UINT64_C(1000000000)
#define SESSIONS  12
#define REQUESTS  40
#define OWNERS    9
#define UIDS      4
#define MAPPED_OF 5

struct m_session {
	struct gm_session *s;
	uid_t uid;
	gid_t gid;
	const char *unit, *container, *name;
	bool away;
	uint64_t held; /* at the last check */
	uint64_t asked_until, asked, returned;
};

struct m_request {
	struct fake_request q;
	bool used, waits, endless, seen, counted;
	int session;
	uint64_t exact, arrival;
	uint64_t wait,
		until; /* it may wait so long: from its arrival, or if it is to be refused, from when it
			       * did not fit; 0: it did so far */
	uint64_t asked_ns;
	int32_t priority; /* when it was last looked at */
};

struct model {
	struct fake_core fake;
	struct model_run run;
	uint64_t arrivals;
	struct gm_policy policy;
	uint64_t total;
	/* Somebody has every chunk whose id leaves this rest, by MAPPED_OF; a rest above it: nobody has
	 * any. */
	uint64_t mapped;
	bool dry; /* the backend is out of memory every other time */
	struct m_session sessions[SESSIONS];
	struct m_request requests[REQUESTS];
	enum gm_pressure_level level, fell_from;
	uint64_t fell_ns;
	bool moved; /* since the last check: a client gave something back, or a rule changed */
	uint64_t orphaned; /* at the last check */
	uint64_t moved_ns; /* when that was, or when a client last could */
	uint64_t asks;
	uid_t holder_uid; /* of the request that holds others back, or did so last */
	uint64_t hold_ns, rest_ns, uid_rest_ns[UIDS + 1];
	struct {
		uint64_t granted, late, refused, limit, timeout, deadlock, never, refs, turned;
		uint64_t asked, ignored, victims, probed, denied, orphaned;
	} n;
};

bool model_mapped(void *m, const struct gm_chunk *chunk);
/* A client asks for memory. Returns NULL if too many other requests are under way. */
struct m_request *model_ask(
	struct model *m, struct m_session *s, uint64_t bytes, bool waits, bool endless);
/* A client ends. The model forgets it first: its checks run while core ends the session. */
void model_end(struct model *m, struct m_session *s, bool died);
/* Takes note of requests that ended since the last time. */
void model_sweep(struct model *m);
/* The invariants. */
void model_check(struct model *m);

#endif
