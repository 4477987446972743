/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_LADDER_H
#define GM_CORE_LADDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpumem/status.h"
#include "daemon/core/core.h"

/*
 * Getting memory back. Every reclaim is a plan first: which rung, whose memory, how many bytes. The
 * plan is what `gpumemctl cleanup --dry-run` shows and what is carried out.
 *
 * Triggers and what they climb:
 *   request    CACHED for exactly what is missing, from those who say they have it; when that is
 * not enough, or did not come, UNUSED from everybody who holds memory. (Pooled chunks are in
 * nobody's way: a request takes their room by itself.) pressure   medium: the reserve is not filled
 * any more. high: POOL, and CACHED for what takes the level back. critical: POOL, UNUSED from
 * everybody, nothing is pooled, HOLD; if that did not help, SPILL, then TERMINATE where oom =
 * terminate. min_free   POOL for what is missing. manual     POOL, CACHED, SPILL for what was asked
 * for, or for all there is.
 *
 * Victims of a rung: lower priority first, then who has most, then who came first; the one who asks
 * comes last. What a client keeps within its guarantee helps nobody else, so for a request of
 * another owner it is not planned.
 *
 * A client that was asked for memory is not asked again before it returned that much or the
 * deadline (reclaim_ns) passed. One that let a deadline pass is left alone for settle_ns, twice as
 * long each time (64 times at most), until it returns something. After an action of the pressure
 * ladder the next one waits for settle_ns; only a higher level acts at once.
 *
 * No rung takes anything by force but the last. There, the victim is the client of the lowest
 * priority, of those the one that holds most, of those whose owner holds more than its guarantee;
 * nobody, when even without any client the device would be critical.
 */

struct gm_ladder_step {
	enum gm_rung rung;
	struct gm_session *session; /* NULL: the pool */
	uint64_t bytes;             /* wanted of it */
	uint64_t held;              /* by it, there */
	int32_t priority;
	bool claimed; /* it says that it has them */
};

struct gm_ladder_plan {
	uint32_t device;
	enum gm_trigger trigger;
	uint64_t need;            /* bytes; UINT64_MAX: all there is */
	uint64_t planned;         /* of all steps */
	uint64_t rungs[GM_RUNGS]; /* of the steps of each */
	struct gm_ladder_step *steps;
	size_t n_steps;
};
/* Empty is fine. */
void gm_ladder_plan_deinit(struct gm_ladder_plan *plan);

/*
 * What a cleanup by hand would do so that free bytes are free on the device for anybody (what the
 * device itself calls free: total - foreign - created - being destroyed); 0: all there is to be
 * had. Nothing to do is a plan without steps. Changes nothing. GPUMEM_E_NO_MEMORY: not even all of
 * it would do; the plan is that of all of it, and detail says how much there is.
 * GPUMEM_E_NOT_FOUND: no such device. GPUMEM_E_HOST_MEMORY.
 */
gpumem_status gm_core_cleanup_plan(struct gm_core *core, uint32_t device, uint64_t free,
	struct gm_ladder_plan *ret_plan, char detail[GM_DETAIL_BYTES]);
/*
 * Does it: the plan that gm_core_cleanup_plan() gives at this moment, which is handed out (ret_plan
 * may be NULL). With GPUMEM_E_NO_MEMORY nothing was done. What clients return for it is destroyed,
 * not pooled. Its end is told by GM_EVENT_RECLAIM_ENDED, at the deadline or earlier.
 */
gpumem_status gm_core_cleanup(struct gm_core *core, uint32_t device, uint64_t free,
	struct gm_ladder_plan *ret_plan, char detail[GM_DETAIL_BYTES]);

/* ---- core's own */

struct gm_device;
struct gm_account;
struct gm_tally;

/* One reclaim by one trigger, from its first ask to the last answer or the deadline. */
struct gm_ladder_run {
	bool active;
	uint64_t deadline_ns;
	uint64_t need;
	enum gm_level level;      /* of pressure: the one that is to be left */
	uint64_t owing;           /* accounts that were asked and did not return all of it */
	uint64_t owed;            /* bytes, of them */
	uint64_t rungs[GM_RUNGS]; /* given */
};

struct gm_ladder {
	struct gm_ladder_run runs[GM_TRIGGERS];
	enum gm_level level; /* that was acted on */
	unsigned stage;      /* at critical: the next rung to climb */
	uint64_t next_ns;    /* the pressure ladder's next action; UINT64_MAX: none */
	uint64_t victim;     /* session that is being terminated; 0: none */
	bool powerless;      /* terminate() failed since critical began */
};

void gm_ladder_init(struct gm_ladder *ladder);
uint64_t gm_ladder_settle_ns(const struct gm_device *device);

/* Building a plan, rung by rung; -ENOMEM leaves it to be deinited. */
void gm_ladder_plan_init(struct gm_device *device, enum gm_trigger trigger, uint64_t need,
	struct gm_ladder_plan *plan);
int gm_ladder_plan_pool(struct gm_device *device, struct gm_ladder_plan *plan, uint64_t bytes);
/* self: who wants the memory; NULL: nobody in particular. tally: only its clients. */
int gm_ladder_plan_clients(struct gm_device *device, const struct gm_session *self,
	const struct gm_tally *tally, enum gm_rung rung, uint64_t bytes,
	struct gm_ladder_plan *plan);
/* Does what the plan says, and tells of it; a run of the same trigger that goes on takes it in. */
void gm_ladder_carry_out(struct gm_device *device, const struct gm_ladder_plan *plan);
/* Those where nobody owes anything any more, or whose deadline has come. */
void gm_ladder_end_runs(struct gm_device *device);

/*
 * Asks clients for bytes on behalf of a request of self: the accounts of one limit (tally), or all
 * of the device. First those who say they have them; if that is not enough, or widely, everybody
 * who holds something. fully: nobody, unless all of it could come. How many bytes were asked for.
 */
uint64_t gm_ladder_ask(struct gm_device *device, const struct gm_session *self,
	const struct gm_tally *tally, uint64_t bytes, bool widely, bool fully);
/* What was asked for by that trigger and is still to come. */
uint64_t gm_ladder_owed(const struct gm_device *device, enum gm_trigger trigger);
/* Whether clients still have time to return what they were asked for. */
bool gm_ladder_asking(const struct gm_device *device, enum gm_trigger trigger);
/* An account that was asked for memory returned a chunk. Whether the chunk is to be destroyed. */
bool gm_ladder_returned(struct gm_device *device, struct gm_account *account, uint64_t bytes);
/* It returns nothing any more. */
void gm_ladder_gone(struct gm_device *device, struct gm_session *session);
/* The pool gave that much because the device is short of min_free. */
void gm_ladder_min_free(struct gm_device *device, uint64_t need, uint64_t bytes);
/* Acts on the level, when it is time, and ends what is over. */
void gm_ladder_act(struct gm_device *device);
uint64_t gm_ladder_due(const struct gm_device *device);

#endif
