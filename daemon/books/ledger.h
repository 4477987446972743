/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_LEDGER_H
#define GM_BOOKS_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/backoff.h"

/*
 * This folder has the state that core counts, and the types that all of core shares. It promises that
 * every table balances after every call. It must never act: it knows no device thread, no request and
 * no lease.
 *
 * The ledger of one device. Every byte of every chunk is in exactly one column, and every way from
 * one column to another is one function here:
 *
 *   admitted      charged to a session, its chunk not yet created
 *   leased        created, charged to a session that is connected
 *   quarantined   created, charged to a session that is disconnected, or orphaned: no client has it
 *                 any more, but a process may still reach it
 *   declared      charged to a session, and made by its process itself: not by the daemon, and in no
 *                 chunk
 *   pooled        created, charged to nobody
 *   unclaimed     under creation for nobody: the reserve, and what a cancelled request asked for
 *   doomed        handed over for destruction; the device still has it until that is done
 *
 * At all times, charged = admitted + leased + quarantined + declared = the sum of held over all
 * accounts. An owner that has a limit has a tally: the sum of held over the accounts that count for it. unmet is
 * the sum over all tallies of guarantee - held, where positive.
 */
struct gm_ledger {
	uint64_t total;
	uint64_t foreign;
	bool measured; /* foreign comes from the last sample */
	uint64_t admitted, leased, quarantined;
	uint64_t orphaned; /* part of quarantined */
	uint64_t declared;
	uint64_t
		seen; /* part of declared: the driver counts it for the processes that declared it */
	uint64_t pooled, unclaimed, doomed;
	uint64_t held; /* of all accounts */
	uint64_t unmet;
	uint64_t peak_charged;
	/* The accounts that hold something, so that nobody pays for those that do not. The client that
	 * core has not looked at for longest is first (reclaim_plan.c). */
	struct gm_account *holders;
	uint32_t n_holders;
};

struct gm_reclaim_user;
struct gm_orphan_map;
struct gm_account_payer;
struct gm_limit;

/* Whether a group of accounts still moves: those of a device, or of one owner on it. Kept by
 * queue_deadlock.c. */
struct gm_queue_standing {
	uint64_t returned_ns; /* when one of them last returned memory while a request waited */
	/* As of the last look at all accounts: */
	bool held;         /* one of them holds memory */
	bool moves;        /* one that holds memory does not wait without a deadline */
	bool asked;        /* one that holds memory was asked for some, and still has time */
	uint64_t since_ns; /* when the last of them began to wait */
};

/* What an owner with a limit is charged on one device. */
struct gm_ledger_tally {
	struct gm_limit *limit;
	uint64_t held;
	uint64_t max; /* UINT64_MAX: none */
	uint64_t guarantee;
	uint64_t planned; /* while reclaim makes a plan: what the plan takes from this owner */
	struct gm_queue_standing still; /* of the accounts that count for this owner */
};

/* An account has one tally at most for each kind of owner. */
#define GM_TALLIES 7

/* The daemon's last request that a client give memory back, and how the client has answered so far. reclaim_run.c writes it. */
struct gm_reclaim_asked {
	bool owing : 1;    /* it still owes bytes, and the deadline has not passed */
	bool claimed : 1;  /* it had said that it has them */
	bool overdue : 1;  /* core does not count on it: gm_reclaim_run.owed leaves it out */
	uint8_t stage : 4; /* enum gm_stage */
	uint8_t trigger;   /* enum gm_reclaim_trigger */
	uint32_t step;     /* its step in the plan that is being made, plus 1; 0: none */
	struct gm_reclaim_user
		*user;        /* asked for a request: of its user; NULL: for another trigger */
	uint64_t wanted;      /* what it was asked for */
	uint64_t bytes;       /* what it still owes of that */
	uint64_t promised;    /* what it said it could give of that when it was asked */
	uint64_t broken;      /* what it must return on request before it is believed again */
	uint64_t deadline_ns; /* asked for a request: until when it has time */
	struct gm_backoff
		quiet; /* it is not asked; failures: deadlines in a row that it let pass, 0: its claims count */
	struct gm_backoff
		pressed; /* it is not asked to move buffers because of pressure, after it did */
};

/* What the client said about its use of the device when core last looked at its page. Kept by
 * reclaim_plan.c. */
struct gm_reclaim_claim {
	uint64_t until_ns; /* core does not look again before */
	uint64_t held;     /* what the client held then; when that changes, core looks again */
	uint64_t cached, evictable;
	bool rough;
};

/* What one session is charged on one device. */
struct gm_account {
	uint64_t held;     /* including admitted */
	uint64_t admitted; /* 0 while quarantined: pending requests have ended by then */
	uint64_t orphaned; /* part of held; quarantined in any case */
	uint64_t declared; /* part of held, whether quarantined or not */
	uint64_t seen;     /* part of declared */
	/* What the driver counted for the process before it declared anything (kept by declare.c).
	 * UINT64_MAX: nobody can tell. */
	uint64_t undeclared;
	bool quarantined;
	uint8_t n_tallies;
	struct gm_ledger_tally
		*tallies[GM_TALLIES];       /* the owners it counts for (kept by limit.c) */
	struct gm_ledger_tally *guaranteed; /* the one of them with a guarantee; NULL: none */
	int32_t priority;                   /* kept by limit.c */
	/* Requests in the queue that have no deadline, and when the last of them began to wait
	 * (kept by queue.c). */
	uint32_t endless;
	uint64_t endless_ns;
	struct gm_orphan_map *map; /* of its process (kept by orphan_map.c); NULL: none */
	struct gm_reclaim_asked asked;
	struct gm_reclaim_claim said;
	struct gm_account_payer *payer;             /* whose it is */
	struct gm_account *prev, *next;             /* of gm_ledger.holders */
	struct gm_account *owing_prev, *owing_next; /* of gm_reclaim.owing */
};

/* What the account has in chunks. */
static inline uint64_t gm_account_in_chunks(const struct gm_account *account)
{
	return account->held - account->admitted - account->declared;
}

/* Whether what the account is charged counts for this owner. */
static inline bool gm_account_counts_for(
	const struct gm_account *account, const struct gm_ledger_tally *tally)
{
	for (unsigned i = 0; i < account->n_tallies; i++)
		if (account->tallies[i] == tally)
			return true;
	return false;
}

void gm_ledger_init(struct gm_ledger *ledger, uint64_t total);
/* Asserts that nothing is left in any column. */
void gm_ledger_deinit(struct gm_ledger *ledger);

static inline uint64_t gm_ledger_charged(const struct gm_ledger *ledger)
{
	return ledger->admitted + ledger->leased + ledger->quarantined + ledger->declared;
}

static inline uint64_t gm_ledger_created(const struct gm_ledger *ledger)
{
	return ledger->leased + ledger->quarantined + ledger->pooled;
}

#define GM_LEDGER_E_NO_ROOM 1

static inline uint64_t gm_ledger_tally_unmet(const struct gm_ledger_tally *tally)
{
	return tally->guarantee > tally->held ? tally->guarantee - tally->held : 0;
}

/* What is kept free for other owners. */
static inline uint64_t gm_ledger_kept_from(
	const struct gm_ledger *ledger, const struct gm_account *account)
{
	return ledger->unmet -
	       (account->guaranteed ? gm_ledger_tally_unmet(account->guaranteed) : 0);
}

/* What the account may be charged now: below the ceiling, not kept for other owners, and within
 * each max of its own. */
uint64_t gm_ledger_room(
	const struct gm_ledger *ledger, const struct gm_account *account, uint64_t ceiling);
/* From now on, the account counts for this owner. */
void gm_ledger_join(
	struct gm_ledger *ledger, struct gm_account *account, struct gm_ledger_tally *tally);

/* Charges an account for what will be created. GM_LEDGER_E_NO_ROOM: it would pass
 * gm_ledger_room(), and nothing was charged. */
int gm_ledger_admit(
	struct gm_ledger *ledger, struct gm_account *account, uint64_t ceiling, uint64_t bytes);
/* Takes a charge back: nothing will be created for it. */
void gm_ledger_unadmit(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* Takes a charge back although the creation goes on: it becomes unclaimed. */
void gm_ledger_disown(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* What was admitted has been created. */
void gm_ledger_lease_created(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* What was admitted was found in the pool. */
void gm_ledger_lease_pooled(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);

/* A created chunk leaves its account, for the pool or to be destroyed. */
void gm_ledger_pool_leased(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
void gm_ledger_doom_leased(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
void gm_ledger_doom_pooled(struct gm_ledger *ledger, uint64_t bytes);

/* A creation for nobody begins; fails; ends in the pool; ends with a chunk to be destroyed. */
void gm_ledger_begin_unclaimed(struct gm_ledger *ledger, uint64_t bytes);
void gm_ledger_fail_unclaimed(struct gm_ledger *ledger, uint64_t bytes);
void gm_ledger_pool_unclaimed(struct gm_ledger *ledger, uint64_t bytes);
void gm_ledger_doom_unclaimed(struct gm_ledger *ledger, uint64_t bytes);

void gm_ledger_destroyed(struct gm_ledger *ledger, uint64_t bytes);

/* A created chunk that a process still reaches begins to be orphaned, and is charged to another account. Later it stops
 * orphaned and is handed over for destruction. */
void gm_ledger_orphan(
	struct gm_ledger *ledger, struct gm_account *from, struct gm_account *to, uint64_t bytes);
void gm_ledger_doom_orphaned(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);

/* Takes over what an earlier daemon created and charged, whatever room there is: leased or
 * quarantined, as the account is; or orphaned. */
void gm_ledger_adopt(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
void gm_ledger_adopt_orphaned(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);

/* An account begins to pay for memory that was destroyed and that a process still maps; it pays for it no longer.
 * Such memory is in no chunk, and counts as orphaned. */
void gm_ledger_owe(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
void gm_ledger_forgive(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);

/* What was admitted is memory that the account's process makes itself. */
void gm_ledger_declare(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* The process no longer has that memory. */
void gm_ledger_undeclare(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* Charges an account for what was declared to an earlier daemon. */
void gm_ledger_adopt_declared(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);
/* Sets how much of what the account declared is in the driver's figures. The part beyond what it declared does not
 * count. */
void gm_ledger_see(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes);

/* Moves the charge for something created to another account. */
void gm_ledger_move(
	struct gm_ledger *ledger, struct gm_account *from, struct gm_account *to, uint64_t bytes);
void gm_ledger_quarantine(struct gm_ledger *ledger, struct gm_account *account);
void gm_ledger_resume(struct gm_ledger *ledger, struct gm_account *account);

/* What nobody has: total - foreign - all that is ours, including doomed and seen. */
uint64_t gm_ledger_free(const struct gm_ledger *ledger);
/* Sets foreign = total - free - all that is ours, including doomed and seen. Returns whether it
 * changed. */
bool gm_ledger_sample(struct gm_ledger *ledger, uint64_t free_bytes);

#endif
