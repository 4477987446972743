/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_STORE_STORE_H
#define GM_DAEMON_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/wire/keeper_wire.h"
#include "daemon/store/store_records.h"

/*
 * This folder keeps what must outlive the daemon: descriptors in the keeper (gpumem-keeper), and
 * records in the store, a memfd that the keeper holds as well. It must never know what a record
 * says, nor a rule about memory.
 *
 * All of it runs on the loop's thread. In this order:
 *   at the start   gm_store_open() takes everything back, from the keeper and from the service manager. gm_store_each_record() and gm_store_claim()
 *                  adopt it. gm_store_settle() closes what nobody claimed.
 *   a new chunk    gm_store_deposit(), then gm_store_record(), then the answer to the client
 *   its end        gm_store_erase(), then gm_store_withdraw(). The daemon destroys the chunk when the keeper
 *                  has closed its copy
 *
 * If the keeper dies, this module connects to the next one (and starts it, where no service manager does),
 * and deposits everything again. Meanwhile gm_store_is_ready() is false, and deposits wait.
 */
struct gm_store;

struct gm_store_events {
	/* A deposit that had to wait is in the keeper's socket now. */
	void (*deposited)(void *ctx, enum gm_store_kind kind, uint64_t id, void *user);
	/* The keeper has closed the item, or is gone; one that a service manager runs, for 2 s. Not called before gm_store_withdraw() has
	 * returned. */
	void (*withdrawn)(void *ctx, enum gm_store_kind kind, uint64_t id, void *user);
	/* The keeper died (false), or has everything again (true). */
	void (*changed)(void *ctx, bool ready);
};

struct gm_store_options {
	const char *path;     /* of the keeper's socket */
	const char *program;  /* to start if nobody listens; NULL: somebody else starts it */
	uint64_t ledger_most; /* bytes; 0: as many as it ever takes */
	uint64_t wait_ms;     /* how long to wait for the keeper */
	int *left; /* descriptors stored by gm_store_leave(), terminated by -1; NULL: none. Closed once read */
};

/*
 * Connects to the keeper, or starts one, and takes back everything that the keeper holds. Deposits the items that the previous
 * daemon left with the service manager. If the keeper dies before it has all of these items, they are stored with the service
 * manager again. Opens the store found among the items, or creates one; a store whose header is damaged is replaced, which the log
 * says. Blocks, for wait_ms at most. On error, returns a negative errno, and why names the cause and the
 * remedy:
 *   -EPERM             the socket, or the process behind it, belongs to somebody else
 *   -EBUSY             the keeper has a daemon that lives
 *   -EPROTONOSUPPORT   a newer version wrote the store
 *   -ETIMEDOUT         nobody listens, or the keeper does not answer
 *   -ENOSPC, …         there is no memory for the store, the program cannot be started, …
 */
#define GM_STORE_WHY 768
int gm_store_open(uv_loop_t *loop, const struct gm_store_options *options,
	const struct gm_store_events *events, void *ctx, struct gm_store **ret_keep,
	char why[GM_STORE_WHY]);
/*
 * Ends the connection. The keeper goes on holding everything, unless empty says that nothing is
 * worth it: then it closes all, and ends if it was started here. The loop frees the memory when
 * it has closed the handles. keep may be NULL.
 */
void gm_store_close(struct gm_store *store, bool empty);

/*
 * Leaves everything that the keeper should have with the service manager, for the next daemon. Meant for the end of a daemon that
 * has no such keeper. On error, returns a negative errno, and some is lost; -ENOTCONN: no service manager runs this process.
 */
int gm_store_leave(struct gm_store *store);

/* ---- the store. See gm_store_records_write() and its neighbours */

int gm_store_record(struct gm_store *store, uint32_t kind, uint64_t id, uint32_t *place,
	const void *bytes, size_t size);
void gm_store_erase(struct gm_store *store, uint32_t *place);
void gm_store_each_record(
	struct gm_store *store, uint32_t kind, gm_store_records_visit visit, void *ctx);

/*
 * Says what a keeper without a daemon must keep: child is needed as long as parent is (GM_KEEPER_ALWAYS: always). place is that of
 * the record which says so; it has one such reference, and gm_store_erase() ends it. parent 0: the record has none. Call this
 * before the client hears of what the record says. Without memory for the reference, the keeper keeps everything.
 */
void gm_store_refer(struct gm_store *store, uint32_t place, uint64_t child, uint64_t parent);
/* Begins all references anew. Until gm_store_refer_end(), a keeper without a daemon keeps everything. */
void gm_store_refer_begin(struct gm_store *store);
void gm_store_refer_end(struct gm_store *store);

/* ---- descriptors */

/*
 * Takes back a descriptor that the daemon before had deposited. The caller owns the fd. The item
 * stays in the keeper, as if the caller had just deposited this fd. -ENOENT: the keeper has no such
 * item.
 */
int gm_store_claim(struct gm_store *store, enum gm_store_kind kind, uint64_t id, int *ret_fd);
/* Visits the ids of what was not claimed yet, of a kind. visit() may claim the one it is shown. */
void gm_store_each_unclaimed(struct gm_store *store, enum gm_store_kind kind,
	void (*visit)(void *ctx, uint64_t id), void *ctx);
/* Closes what nobody claimed, here and in the keeper. Returns how many items that were. */
uint64_t gm_store_settle(struct gm_store *store);

/* user is the caller's own, and handed to deposited() and withdrawn(). */

/*
 * Puts a copy of fd into the keeper. The fd stays the caller's, and must stay open until the item is
 * withdrawn: the next keeper gets it, too. Replaces an item of the same name, also one that is being
 * withdrawn: then withdrawn() is not called. Returns 0 when the copy is safe whatever happens to this process. Otherwise:
 *   GM_STORE_E_WAIT   it is queued, and deposited() will tell
 *   -ENOSPC          the keeper is full
 *   -ENOMEM
 */
#define GM_STORE_E_WAIT 1
int gm_store_deposit(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id, int fd, void *user);
/* Has the keeper close its copy. Returns 0 if it has none. GM_STORE_E_WAIT: withdrawn() will tell,
 * and the fd must stay open until then. */
int gm_store_withdraw(struct gm_store *store, enum gm_store_kind kind, uint64_t id, void *user);

/* Asks the keeper for a sign of life. Until it has given one, or another keeper has everything, gm_store_is_ready() is false. Then
 * changed() is called. A keeper that was killed before this call gives none, even if it still looks connected. */
void gm_store_ask(struct gm_store *store);
/* Whether the keeper has all that was deposited. */
bool gm_store_is_ready(const struct gm_store *store);

struct gm_store_state {
	bool ready;
	pid_t pid;                /* of the keeper; 0: there is none now */
	uint64_t items, capacity; /* items: without the references */
	uint64_t waiting;         /* items that are not in the keeper yet */
	uint64_t restarts;        /* how often the keeper was lost */
	uint64_t lost;            /* items that it could not take */
	uint64_t ready_ns,
		lost_ns; /* when it had everything last, and when it died last; 0: never */
	struct gm_store_records_state ledger;
	const char *path;
};
void gm_store_get_state(const struct gm_store *store, struct gm_store_state *ret);

#endif
