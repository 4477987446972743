/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_OPS_H
#define GM_BOOKS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/store_kind.h"
#include "common/types.h"
#include "daemon/books/chunk.h"
#include "daemon/books/usage_sample.h"
#include "daemon/books/event.h"
#include "daemon/books/text_say.h"

struct gm_request;

#define GM_DEPOSIT_WAITS 1

/*
 * What core asks of the daemon. Everything that core needs from above goes through this table: jobs
 * for the device threads, the clock, ids and random bytes, and whatever a client must be asked or
 * told.
 */
struct gm_core_ops {
	/* Number of chunks that one call releases, when there are more: gm_lease_return_more(),
	 * gm_core_work(), the end of a session, of a lease or of a name. 0: GM_LEASE_SLICE. */
	uint64_t slice;
	/*
	 * Starts the creation of chunk->bytes on chunk->device by chunk->transport. It must not
	 * complete before this returns. The daemon reports the end with gm_core_created(). Users
	 * (chunk->payer_uid) take turns, and so do the sessions (turn) of a user. If chunk->after_doomed is
	 * set, all destructions that were started before must end first.
	 */
	void (*create)(void *ctx, struct gm_chunk *chunk, uint64_t turn);
	/* Starts the destruction of what chunk->handle names, on the turn of chunk->payer_uid. The daemon
	 * reports the end with gm_core_destroyed(). */
	void (*destroy)(void *ctx, struct gm_chunk *chunk);
	/* The monotonic clock. */
	uint64_t (*now_ns)(void *ctx);
	/* An id that was never used before, not even before a restart. Larger than all that this core has got. Never 0. */
	uint64_t (*new_id)(void *ctx);
	/* Random bytes that nobody can guess: tokens are made of them. */
	void (*random)(void *ctx, void *bytes, size_t n);
	/* A device's figures, or what a session holds on it, changed: the shared pages must show
	 * it. Called often, so it must be cheap. */
	void (*device_changed)(void *ctx, uint32_t device);
	void (*session_changed)(void *ctx, struct gm_session *session, uint32_t device);
	/* The pressure on a device reached another level. */
	void (*level_changed)(void *ctx, uint32_t device, enum gm_pressure_level level);

	/* ---- the functions below may be NULL: then core does without */

	/*
	 * Nobody wants this chunk any more, and its creation was started. Returns true if the
	 * creation had not begun: it never will, and gm_core_created() is not called. Returns false
	 * if it has begun: its end is reported as usual. Without this function, a client that asks
	 * and cancels keeps the device busy with chunks that nobody wants.
	 */
	bool (*call_off)(void *ctx, struct gm_chunk *chunk);
	/*
	 * Reads what a client says on its page about its use of a device. Core calls this while it makes
	 * a plan. Core believes it as far as it can be true (no more than the client holds). A
	 * client that claims to have nothing cached may be asked all the same.
	 */
	void (*use)(
		void *ctx, struct gm_session *session, uint32_t device, struct gm_account_use *ret);
	/*
	 * Asks a connected client to give memory back. Core learns about the effect only from what
	 * the client returns, or from its end. A client that does not react by the deadline is left
	 * alone for a while. Must not return memory or end a session before it returns.
	 */
	void (*reclaim)(
		void *ctx, struct gm_session *session, const struct gm_reclaim_message *ask);
	/* This session opened a lease with signals, and the lease's maker has returned it or has ended: no signal
	 * will come any more. */
	void (*maker_left)(void *ctx, struct gm_session *session);
	/*
	 * Terminates a client's process: only with oom = terminate, and only at the end of the
	 * reclaim. Core then waits for gm_session_end_died(). A negative errno means that it cannot
	 * be done, for example because the daemon may not send signals. Core does not try again
	 * while the device stays critical.
	 */
	int (*terminate)(void *ctx, struct gm_session *session, uint32_t device);
	/*
	 * Starts a measurement of free memory that begins after this call. The daemon reports the
	 * result with gm_core_sample() or gm_core_sample_failed(), and then calls gm_core_probed():
	 * after this returned, and in order with the device's other jobs. Core has one probe of a
	 * device under way at most. See device_probe.h.
	 */
	void (*probe)(void *ctx, uint32_t device);
	/*
	 * Whether a process other than the daemon can still reach the chunk: it has the chunk's fd,
	 * or maps it. Must be quick. False where that cannot be known. Without this function, a
	 * chunk that is destroyed counts as gone, and a client that returns a chunk is believed.
	 */
	bool (*in_use)(void *ctx, const struct gm_chunk *chunk);
	/* Starts a count of what processes have of the device. gm_core_counted() reports it. */
	void (*count)(void *ctx, uint32_t device);
	/* Says what became of the process that had this number and began at that time (0: not known). Must
	 * be quick. Without this function, every process counts as alive. */
	enum gm_env_process (*fate)(void *ctx, pid_t pid, uint64_t began);
	/* A chunk is in the pool now. Must be quick. */
	void (*pooled)(void *ctx, const struct gm_chunk *chunk);
	/* What the device said when it failed to make a chunk just now. Returns false if it said
	 * nothing. */
	bool (*trouble)(void *ctx, uint32_t device, char text[GM_DETAIL_BYTES]);
	/* Names the process that has most foreign memory of the device, as last surveyed: "pid 7 of user
	 * ann has 1.0G". Returns false if none is known. Must be quick. */
	bool (*foreigner)(void *ctx, uint32_t device, char text[GM_DETAIL_BYTES]);
	/*
	 * The user has sessions or leases that end in slices. The daemon calls gm_core_work() on the
	 * turns of this user until that returns false. A negative errno: it cannot, and ticks do the
	 * work. Without this function, ticks do all of it.
	 */
	int (*work)(void *ctx, uid_t payer_uid);
	/* Asks the daemon to call gm_core_tick() at this time, which is earlier than the time that the last tick
	 * returned. Without this function, deadlines are only as exact as the ticks. */
	void (*wake_at)(void *ctx, uint64_t ns);
	/* An event for the journal and gpumemctl watch. Its pointers are valid during the call. */
	void (*event)(void *ctx, const struct gm_event *event);
	/*
	 * Writes a record (record.h) that outlives the daemon, or replaces it. *place is 0 for a new
	 * record, and names the record from then on. When this returns 0, the record is safe whatever
	 * happens to the daemon. A negative errno: there is no room for another record. Replacing a
	 * record never fails. Must be quick. Without this function, nothing outlives the daemon.
	 */
	int (*record)(void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes,
		size_t size);
	/* Forgets the record, and sets *place to 0. Does nothing if it is 0. Comes with record. */
	void (*erase)(void *ctx, uint32_t *place);
	/*
	 * Puts a copy of a memfd of core's (GM_STORE_METADATA, GM_STORE_CONTROL_BLOCK) where it outlives the daemon.
	 * The fd stays core's, and stays open
	 * until it is withdrawn. Returns 0 when the copy is safe whatever happens to the daemon. Otherwise
	 * nothing is kept: -EAGAIN (it may be possible soon; of metadata only), -ENOSPC, -ENOMEM; or
	 * GM_DEPOSIT_WAITS (of a control block only): gm_core_control_block_deposited() will be called with the request.
	 */
	int (*deposit)(void *ctx, enum gm_store_kind kind, uint64_t id, int fd,
		struct gm_request *request);
	/* Gives up that copy. Comes with deposit. */
	void (*withdraw)(void *ctx, enum gm_store_kind kind, uint64_t id);
	/* Closes a descriptor of this user that may be the last of a large file. That takes the kernel
	 * milliseconds, in which the loop could do nothing for others. */
	void (*close)(void *ctx, uid_t payer_uid, int fd);
};

#endif
