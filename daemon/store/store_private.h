/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_STORE_STORE_PRIVATE_H
#define GM_DAEMON_STORE_STORE_PRIVATE_H

/* For the files of daemon/store that are one object: store.c, store_item.c, store_link.c and store_refs.c. */

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "daemon/store/store.h"
#include "daemon/store/store_find.h"

/* How soon to look again for a keeper that is starting. */
#define GM_STORE_STARTING_MS 5

struct gm_store_key {
	uint64_t id;
	uint64_t kind;
};

struct gm_store_item {
	struct gm_store_key key;
	int fd;
	void *user;
	uint32_t unconfirmed; /* how often the keeper was asked to close it, and has not answered */
	bool owned;           /* the fd is ours: nobody has claimed it */
	bool held;            /* the keeper has a copy, or has it in its socket */
	bool queued;          /* something is to be sent */
	bool closing;         /* the keeper is to close it; otherwise it is to be deposited */
	bool silent;          /* nobody wants to know when it is closed */
	bool awaited;         /* somebody was told to wait for the deposit */
	struct gm_store_item *prev, *next; /* of the queue */
	UT_hash_handle hh;
};

/* One connection. It is freed when the loop has closed its handle. */
struct gm_store_link {
	uv_poll_t poll;
	struct gm_store *store;
	int socket;
};

enum gm_store_phase { KEEP_AWAY, KEEP_GREETING, KEEP_CONNECTED };

struct gm_store {
	uv_loop_t *loop;
	char *path, *program;
	const struct gm_store_events *events;
	void *ctx;
	uv_timer_t retry;
	struct gm_store_link *link;
	enum gm_store_phase phase;
	pid_t pid;     /* the keeper's */
	pid_t starter; /* the process that starts one; 0: none */
	bool opening;  /* gm_store_open() is under way: items are new to us */
	pid_t other;   /* the daemon that the keeper said it has; 0: it did not */
	bool ready;
	bool asking, asked;           /* it is to give a sign of life; it was told so */
	bool said_away, said_trouble; /* the log says so */
	bool copies_gone;             /* no keeper has items of the one before */

	struct gm_store_item *items, *queue;
	struct gm_store_records *records;
	int refs_fd;                /* of the references; -1: there are none yet */
	struct gm_keeper_ref *refs; /* by place; NULL: there are none yet */
	uint32_t n_refs;            /* number of references with memory */
	bool refs_building;         /* some are still to come */
	bool refs_failed;           /* there was no memory for one */
	uint64_t closing;           /* of items */
	uint64_t capacity, waiting, restarts, lost, ready_ns, lost_ns;
};

/* ---- store_item.c: what is, or is to be, in the keeper */

struct gm_store_item *gm_store_item_find(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id);
/* Returns NULL if there is no memory. */
struct gm_store_item *gm_store_item_add(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id, int fd);
/* Something is to be sent about the item, or nothing any more. */
void gm_store_item_enqueue(struct gm_store *store, struct gm_store_item *item);
void gm_store_item_dequeue(struct gm_store *store, struct gm_store_item *item);
/* The keeper is to close the item, or is to have it after all. It must not be in the queue. */
void gm_store_item_set_closing(struct gm_store *store, struct gm_store_item *item, bool closing);
void gm_store_item_drop(struct gm_store *store, struct gm_store_item *item);

/* ---- store_refs.c: what is needed while there is no daemon */

/* Takes over the references that the keeper has, if it has any. */
void gm_store_refs_open(struct gm_store *store);
void gm_store_refs_close(struct gm_store *store);
/* Ends the reference of a record that is erased. */
void gm_store_refs_erase(struct gm_store *store, uint32_t place);

/* ---- store_link.c: the connection */

/* Connects and says hello. Errors are those of gm_store_find(). */
int gm_store_link_open(struct gm_store *store, char why[GM_STORE_FIND_WHY]);
/* Whether the error says that nobody listens, so that a keeper should be started. */
bool gm_store_link_is_missing(int error);
/* Starts a keeper, or looks whether the one that was started listens now. Returns 0, or a negative
 * errno if it could not be started. */
int gm_store_link_start_keeper(struct gm_store *store, bool wait, char why[GM_STORE_WHY]);
/* Ends the connection. The caller says what becomes of the items. */
void gm_store_link_close(struct gm_store *store);
/* Reads what is there. Returns a negative errno if the connection is of no use any more. */
int gm_store_link_receive(struct gm_store *store);
/* Sends what the item needs now, or puts it into the queue. Returns 0 or GM_STORE_E_WAIT. */
int gm_store_link_send(struct gm_store *store, struct gm_store_item *item);
/* Sends what is queued. Blocks, until then at most. Returns a negative errno if the connection is of no use any more. */
int gm_store_link_flush(struct gm_store *store, uint64_t until_ns);
/* From now on the loop reads from the connection; writable: and sends what is queued. */
void gm_store_link_poll(struct gm_store *store, bool writable);
/* Tells that the keeper has everything, if that is so and was not before. */
void gm_store_link_check_ready(struct gm_store *store);

#endif
