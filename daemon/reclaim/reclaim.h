/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_H
#define GM_RECLAIM_RECLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/books/event.h"

/*
 * This folder gets memory back from clients and from the pool when a device is short of it, and promises that no
 * client loses more by that than the rules below allow. It must never know a session, a lease or a request, only
 * the account that is charged.
 *
 * Every reclaim is first a plan: which stage, whose memory, how many bytes. The
 * plan is what `gpumemctl cleanup --dry-run` shows, and it is what core carries out.
 *
 * What triggers a reclaim, and its stages:
 *
 *   request    CACHED for exactly what is missing, from the clients that say they have it, then
 *              SPILL for the rest. If that is not enough, also UNUSED for what is missing then, from
 *              every client that holds memory. Each later round begins with what clients say by
 *              then. (Pooled chunks are in nobody's way: a request takes their room by itself.)
 *   pressure   medium:   the reserve is not filled any more.
 *              high:     POOL, and CACHED for what takes the level back.
 *              critical: POOL, UNUSED from every client, nothing is pooled, HOLD. If that did not
 *                        help, SPILL. Where oom = terminate and too little came, SPILL from every
 *                        client that has not just failed to, then TERMINATE.
 *   min_free   POOL for what is missing.
 *   manual     POOL, CACHED and SPILL for the bytes that were asked for, or for all there is.
 *
 * SPILL asks clients to move evictable buffers to host memory. It asks nobody that has none. A client that
 * is asked on another stage as well gets one message for both, and returns what it does not use first.
 *
 *   request    asks nobody of a higher priority than its own. If clients of other users moved buffers for it,
 *              its user rests: meanwhile they move more for it only if it uses what they moved before (reclaim_backoff.c).
 *              A rest lasts settle_ns, or twice as long as the last one if by the end of that one the user had not
 *              kept the memory (64 times settle_ns at most).
 *   pressure   lets a client that has moved buffers rest for settle_ns, twice as long each time (64 times
 *              at most), unless oom = terminate. So nobody makes others move the same buffers over and over
 *              by taking memory and giving it back.
 *
 * Clients lose time, too, when they return what they do not use, and then need it. So a request asks other users'
 * clients only if its user still holds what it got from them the last time, or settle_ns later. Until then it
 * waits, even if it is one that may not wait (reclaim_ask.c).
 *
 * A stage asks clients of lower priority first, then those that have most, then the oldest. The
 * client that asks comes last. Memory that an owner holds within its guarantee cannot help another
 * owner, so a plan for a request of another owner leaves it out. Under pressure, SPILL leaves it out.
 *
 * A client that was asked for memory is not asked again before it has returned that much or the
 * deadline (reclaim_ns; for SPILL 2 s more) has passed. A client that had claimed the memory and
 * returned less than half of it in time is left alone for settle_ns, twice as long each time (64 times
 * at most). Until it has returned half of what it was asked for, its user's clients are overdue: its
 * clients are asked beside the others, and no plan counts on them. If it leaves instead, its user's other
 * clients have to, or ten minutes pass. So a client that claims what it does not return costs other users one
 * deadline, not their memory. After an action of reclaim under pressure, the next one waits for settle_ns. Only a
 * higher level acts at once.
 *
 * No stage but the last takes anything by force. There, the victim is of the lowest priority. Among
 * equals, it is of the user that holds most beyond its guarantee, and there the process that holds
 * most, by all its sessions. A client whose owner holds no more than its guarantee is spared. Nobody
 * is terminated if the device would be critical without any client.
 */

struct gm_account;
struct gm_reclaim_user;
struct gm_session;
struct gm_ledger_tally;

struct gm_reclaim_step {
	enum gm_stage stage;
	struct gm_session *session; /* NULL: the pool */
	struct gm_account *account; /* its account on the device */
	uint64_t bytes;             /* wanted from it */
	uint64_t spill;             /* so many of them by moving evictable buffers */
	uint64_t held;              /* by it, on the device */
	int32_t priority;
	bool claimed; /* the client says that it has them */
	bool overdue; /* its user's claims did not come true before, or its figures are rough in a later round */
};

/* Whom a plan for a request may ask. */
enum gm_reclaim_reach {
	GM_REACH_ALL,
	GM_REACH_OWN_BUFFERS, /* other users' clients move no buffers */
	GM_REACH_OWN,         /* other users' clients are left alone */
};

struct gm_reclaim_plan {
	uint32_t device;
	enum gm_reclaim_trigger trigger;
	uint64_t need;                /* bytes; UINT64_MAX: all there is */
	uint64_t planned;             /* by all steps */
	uint64_t overdue;             /* part of planned that may well not come */
	uint64_t stages[GM_STAGES];   /* by the steps of each stage */
	struct gm_reclaim_user *user; /* request: of its user */
	/* request: whose it is, the limit that it has reached (NULL: none), and the bytes that it lacks */
	const struct gm_account *self;
	const struct gm_ledger_tally *tally;
	uint64_t lacks;
	enum gm_reclaim_reach reach;
	bool gently; /* pressure: clients rest that moved buffers for it */
	bool each;   /* asks every client for what is needed, not all of them together */
	bool spares; /* request: clients have buffers that its reach leaves alone */
	bool later;  /* request: clients were asked for it before */
	bool begun;  /* it has looked at all clients once */
	struct gm_reclaim_step *steps;
	size_t n_steps;
};
/* The plan may be empty. */
void gm_reclaim_plan_deinit(struct gm_reclaim_plan *plan);

#endif
