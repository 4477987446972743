/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_CORE_MODEL_H
#define GM_TESTS_CORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/core/fake_core.h"
#include "tests/unit/core/model_run.h"

/*
 * A model of the core: who holds which chunk, and what became of those that were returned. It knows
 * nothing of how core finds that out. Places of a session, lease or request in the arrays below are
 * their names; a free place has no s, no l, or is not used.
 */

#define SESSIONS 10
#define LEASES   160
#define HOLDERS  SESSIONS
#define REQUESTS 24
#define TOKENS   40
#define DEVICES  2

enum fate { UNKNOWN, LEASED, RETURNED, BANNED, ORPHANED };

struct m_chunk {
	uint64_t bytes;
	enum fate fate;
	gm_domain domain;
	int lease, request;
	bool doomed;
	bool mapped; /* a process has it, whatever its client says */
	uint32_t device;
	uid_t uid; /* of the maker of its last lease: who pays while it is orphaned */
};

struct m_session {
	struct gm_session *s;
	bool quarantined, pooling;
	gm_domain domain;
	uid_t uid;
	uint8_t token[GM_TOKEN_BYTES];
};

struct m_lease {
	struct gm_lease *l;
	uint64_t id, next_index, bytes;
	uint32_t device;
	int maker;
	uid_t uid; /* of the maker, who may have left */
	struct {
		int session;
		unsigned count;
	} holders[HOLDERS];
	size_t n_holders;
	bool reusable;
	bool for_others;
	uint64_t *chunks; /* ids, in order */
	size_t n_chunks;
};

struct m_request {
	struct fake_request q;
	bool used, grow, created_failed;
	int session, lease;
	uint32_t device;
	uint64_t exact, missing;
	enum gm_transport transport;
};

struct m_token {
	bool used;
	uint8_t token[GM_TOKEN_BYTES];
	int lease;
	enum gm_name_audience audience;
	uint32_t id;
};

struct model {
	struct fake_core fake;
	struct model_run run;
	struct m_chunk *chunks; /* by id */
	uint64_t n_chunks;
	struct m_session sessions[SESSIONS];
	struct m_lease leases[LEASES];
	struct m_request requests[REQUESTS];
	struct m_token tokens[TOKENS];
	struct gm_core_device_info info[DEVICES];
	uint64_t foreign[DEVICES];
	uint64_t granted, refused, hits, orphaned;
};

struct m_chunk *model_chunk(struct model *m, uint64_t id);

uint64_t model_ceiling(const struct model *m, uint32_t d, uint64_t foreign);
uint64_t model_charged(const struct model *m, uint32_t d);

/* What a lease loses. reusable: everybody who had the chunk said that it unmapped it. */
void model_unlease(struct model *m, struct m_lease *l, uint64_t id, bool reusable);
void model_drop(struct model *m, int lease, int session, bool died);
/* Takes note of requests that ended since the last time. */
void model_sweep(struct model *m);
/* The invariants. */
void model_check(struct model *m);

#endif
