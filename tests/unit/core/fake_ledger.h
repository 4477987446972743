/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_LEDGER_H
#define GM_TESTS_FAKE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "tests/unit/core/fake_core.h"

/*
 * A ledger in plain memory, and the keeper's half of the story: which chunks exist. The death of a
 * daemon is a ledger that stops: from that write on it takes no more notice of the core, which can then
 * be taken down at leisure.
 */
#define FAKE_RECORD_BYTES 2016

struct fake_record {
	uint32_t kind; /* 0: free */
	uint64_t id;
	size_t size, room;
	uint64_t bytes[FAKE_RECORD_BYTES / 8];
};

struct fake_kept {
	uint64_t id, bytes;
	uint32_t device;
	bool gone;
};

/* A copy of a memfd of core's. */
struct fake_deposit {
	enum gm_store_kind kind;
	uint64_t id;
	int fd;
	bool claimed; /* a control block: this daemon made or adopted it */
};

struct fake_ledger {
	struct fake_record *records; /* by place - 1 */
	size_t n, room;
	size_t used;      /* so many from the first one on are not free */
	uint64_t writes;  /* and erasures */
	uint64_t stop_at; /* the daemon dies before this write; 0: never */
	uint64_t
		dies_at_start; /* the next daemon dies before this write, counted from its start; 0: it does not */
	bool stopped;
	bool full; /* there is no room for a new record */
	uint64_t last_id;
	struct fake_kept *kept;
	size_t n_kept;
	struct fake_deposit *deposits;
	size_t n_deposits;
	int refuses_deposits; /* 0, or the negative errno with which it does; or GM_DEPOSIT_WAITS */
	unsigned refusals;    /* how often it refuses from now on; 0: always */
	struct gm_request *awaited; /* the last one whose control block had to wait */
	/* Of this the next daemon has too little to adopt a client: a negative errno. It ends at once, and
	 * the one after it has enough. 0: there is enough */
	int short_of;
	/* NULL, or called before and after the next daemon adopts: lets it lack memory in between. That one
	 * ends at once, whether it could adopt or not, and the one after it has enough. */
	void (*shortage)(bool begins);
	int shortage_result; /* what came of its adoption */
	/* What the next daemon is configured with before it adopts. */
	const struct gm_limit_rule *rules;
	size_t n_rules;
	/* How many values of limits contradicted that, and why the last one did. */
	unsigned contradictions;
	char why[GM_DETAIL_BYTES];
};

void fake_ledger_deinit(struct fake_ledger *ledger);
/* Above all ids in the ledger. */
uint64_t fake_ledger_last_id(const struct fake_ledger *ledger);
int fake_ledger_record(struct fake_ledger *ledger, uint32_t kind, uint64_t id, uint32_t *place,
	const void *bytes, size_t size);
void fake_ledger_erase(struct fake_ledger *ledger, uint32_t *place);
void fake_ledger_created(struct fake_ledger *ledger, const struct gm_chunk *chunk);
void fake_ledger_destroyed(struct fake_ledger *ledger, const struct gm_chunk *chunk);
int fake_ledger_deposit(struct fake_ledger *ledger, enum gm_store_kind kind, uint64_t id, int fd,
	struct gm_request *request);
void fake_ledger_withdraw(struct fake_ledger *ledger, uint64_t id);
/* The nth record of a kind, from 0; NULL: there are fewer. */
struct fake_record *fake_ledger_find(struct fake_ledger *ledger, uint32_t kind, size_t n);
size_t fake_ledger_count(const struct fake_ledger *ledger, uint32_t kind);

/* A session with its record. */
struct gm_session *fake_ledger_join(
	struct fake_core *fake, uid_t uid, const char *unit, uint8_t ret_token[GM_TOKEN_BYTES]);
/* The same, of a run. */
struct gm_session *fake_ledger_join_run(struct fake_core *fake, uid_t uid, const char *unit,
	const char *run, uint64_t max, uint8_t ret_token[GM_TOKEN_BYTES]);
/* Makes of the record of the nth client, from 0, the two that a daemon wrote before GM_RECORD_FORMAT_ONE_CLIENT. */
void fake_ledger_split_client(struct fake_ledger *ledger, size_t n);
void fake_ledger_leave(struct fake_core *fake, struct gm_session *session, bool died);

/*
 * The daemon dies, and another one takes over: takes down the core of fake, makes another one with the
 * same devices, and adopts. strict: a chunk that was adopted must exist.
 */
void fake_ledger_restart(struct fake_core *fake, const struct gm_core_device_info *devices,
	uint32_t n_devices, bool strict, struct gm_adopt_result *ret_result);
/* The same without a core before: the ledger is fake's. Of the rest of fake, only the clock, the random bytes and in_use count. */
void fake_ledger_start(struct fake_core *fake, const struct gm_core_device_info *devices,
	uint32_t n_devices, bool strict, struct gm_adopt_result *ret_result);

/* The books: a line for each session, lease, chunk, opened lease, share, name, limit and declaration, in order. */
struct fake_books {
	char (*lines)[256];
	size_t n;
};
void fake_books_read(const struct fake_core *fake, struct fake_books *ret_books);
void fake_books_deinit(struct fake_books *books);
bool fake_books_has(const struct fake_books *books, const char *line);
/* Fails the test unless they are equal. */
void fake_books_equal(const struct fake_books *a, const struct fake_books *b);

#endif
