/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_SIM_H
#define GM_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/core/core.h"

/*
 * A simulation of the daemon and its clients. One seed decides everything that happens, so every run can be had again.
 *
 * Real: all of core (daemon/books, device, wait, lease, core), and the store (daemon/store/store_records.c, in a real memfd).
 * Metadata and control blocks are real memfds, too.
 * Simulated: the clock, the devices and their threads, the keeper, the connections, and the processes of several
 * users. A process asks, waits, cancels, grows, resizes, returns, shares leases and chunks, opens, publishes with and
 * without metadata, attaches, reads metadata, declares memory, moves buffers to host memory and back, loses its
 * connection, resumes, lies about what it unmapped, ignores what it is asked for, and dies. Administrators set and
 * reset maxima, guarantees and priorities of users. The daemon dies between two steps or at any call that core makes
 * during a step; the next daemon adopts what the store and the keeper have, and clients resume and repeat what was not
 * answered. Creations fail, the store and the keeper are full, foreign memory comes and goes, the keeper dies and is filled again.
 * Messages come late: core hears later of what a device's thread did and of what the keeper has, and a process of what
 * it was granted. Messages come twice: if a connection is lost before the answer comes, the process sends the packet
 * again, and a return may come once more long after it was answered.
 *
 * Not simulated, although core has it: ipc handles; the driver's counts, and with them orphaned mappings and what core sees of
 * declared memory; bounds on descriptors and lack of host memory; limits of other owners than users; names that end
 * by themselves; the reserve; the end of processes by force.
 * Not in core, so it cannot be driven from here: sockets, packets and turns of users; evicting by hand and regions
 * that are paused, which core sees as returns and requests; what control blocks say; how clients map memory.
 * A device's thread reports each job once and in order, because core requires that.
 *
 * A run is a list of steps. A step has a kind and three numbers, which are read modulo what there is at that moment:
 * any part of a list is a valid list. That is how a failing run is made short.
 *
 *   sim.c      runs, failures, and making them short
 *   daemon.c   everything around core: clock, store, death and adoption
 *   thread.c   the threads of the devices
 *   step.c     the table of steps
 *   client.c   what processes do
 *   reclaim_ask.c      the part of it that is about requests
 *   resize.c   likewise about resizing and evicting
 *   declare.c  likewise about declared memory
 *   lease_token.c    likewise about tokens, names and metadata
 *   piece.c    likewise about chunks that become leases of their own
 *   items.c    what the keeper has beside chunks: metadata and control blocks
 *   world.c    what administrators, the device, the keeper and others do
 *   model.c    the books that core is held against. It shares no code with core, and asks core only for figures to
 *              compare
 *   check.c    the invariants
 */

#define SIM_DEVICES 2
#define SIM_UIDS    5
#define SIM_PROCS   160
#define SIM_LEASES  1024
#define SIM_ASKS    256
#define SIM_TOKENS  64
#define SIM_NAMES   4 /* of each uid */
#define SIM_IDS     32
#define SIM_ITEMS   1024

struct step {
	uint32_t kind, a, b, c;
};

/* ---- the model: who has which memory. Only model.c and the steps change it. */

/* A chunk, by its id. Leases have ids of the same kind. */
struct sim_chunk {
	uint64_t bytes;
	uint32_t device;
	bool daemon, keeper; /* which of them has its descriptor */
	bool doomed;         /* core has given it up */
	bool banned;         /* a process died with it, or somebody outside the domain saw it */
	bool left;           /* no lease has it any more, and a process may map it */
	bool adopted;        /* an earlier daemon made it */
	bool older;          /* the daemon before this one had adopted it as well */
	bool unreported;     /* core has not heard that it was made */
	bool single;         /* made to measure, for one lease */
	uint16_t maps;       /* number of processes that map it */
	uint32_t domain;     /* whose bytes are in it; 0: none */
	uint32_t uid;        /* who was charged for it last */
	int lease;           /* in the model; -1: none */
	uint64_t index;      /* in the lease */
	uint64_t asked;      /* the request that brought it there */
	int number;          /* of a lease: its place in the model */
	bool wordless;       /* of a lease: daemon and keeper have lost its control block */
};

struct sim_hold {
	int proc;
	uint64_t views[4]; /* the requests that opened it; 0: its maker's own */
	size_t n_views;
};

/* Metadata of a lease; size 0: it has none. */
struct sim_meta {
	uint64_t id, size, seed, version;
};

struct sim_lease {
	uint64_t id; /* 0: free */
	uint32_t device, uid, domain;
	uint64_t bytes;
	/* What was asked for, and what it was before the last resize; 0: not known. size_least: the daemon died while
	 * chunks went back, and a size from here on is right. 0: no other size than this one is. */
	uint64_t size, size_before, size_least;
	uint64_t size_old; /* size_before, when the daemon died in this step */
	int maker;         /* a process; -1: it has left */
	uint64_t origin;   /* the lease that its chunk was in before; 0: none */
	bool signals;
	bool word; /* it has a control block, and did not lose it */
	uint64_t word_inode;
	struct sim_meta meta;
	bool evictable;
	bool unheard; /* its maker does not know of it yet */
	bool for_others;
	bool reusable; /* all that had it said that they unmapped it */
	int name;      /* the place of its name; -1: none */
	struct sim_hold *holds;
	size_t n_holds;
	uint64_t *chunks;
	size_t n_chunks;
};

struct sim_name {
	int lease; /* -1: there is no such name */
	uint64_t version;
	bool outside; /* as in sim_token */
	uint32_t uid;
};

struct sim_proc {
	bool alive, connected;
	bool liar;    /* returns what it goes on mapping */
	bool stopped; /* does nothing of what it is asked for */
	uint32_t uid, domain;
	int pid;
	uint64_t session; /* 0: it has none */
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t asked[SIM_DEVICES]; /* bytes that it was asked to return */
	uint64_t spill[SIM_DEVICES]; /* part of them that it was asked to move to host memory */
	uint64_t away[SIM_DEVICES];  /* bytes that it moved there */
	uint64_t declared[SIM_DEVICES];
	/* How often it heard that the maker of a lease with signals has left, in this step, and how often it must. */
	unsigned told_left, must_hear_left;
	/* What it could move, and what it said when core last looked, and the time before. */
	uint64_t evictable[SIM_DEVICES], said[SIM_DEVICES], said_before[SIM_DEVICES];
	/* Chunks that it maps. */
	uint64_t *maps;
	size_t n_maps;
};

/* A request of a process that was not answered. */
struct sim_ask {
	struct gm_request r;
	struct sim *sim;
	bool used, pending; /* pending: this daemon has it */
	bool ended;
	bool granted; /* by a daemon that died before the process heard of it */
	bool found;   /* likewise, and this daemon knows of it */
	bool booked;  /* granted, and the process hears of it late steps from now */
	bool evictable, restores;
	bool unaware; /* a declaration: core did not know of all foreign memory while it waited */
	int proc, lease; /* lease: to grow; -1: a new one */
	int got;         /* booked: the lease, its id, and how many chunks */
	uint64_t got_id, n_got;
	uint64_t order; /* of their ends */
	uint32_t late;
	uint64_t id, bytes, until_ns;
	uint64_t size; /* of the lease then; 0: as much more as bytes */
	gpumem_status status;
};

struct sim_token {
	bool used;
	int lease;
	uint32_t index; /* of the chunk, if the token is for several */
	bool outside;   /* other users may open it */
	uint32_t uid;   /* which */
	uint8_t token[GM_TOKEN_BYTES];
};

/* ---- everything */

/* A memfd of core's of which the keeper has a copy, or will have one. */
struct sim_item {
	enum gm_store_kind kind;
	uint64_t id;
	int fd; /* -1: there is none */
	bool keeper, claimed;
	struct gm_request *request; /* it waits for that */
};

struct sim_job {
	enum { JOB_CREATE, JOB_DESTROY, JOB_SAMPLE } kind;
	struct gm_chunk *chunk;
	bool probe;
	/* It is done, and not reported. */
	int result;
	uint64_t left; /* what the device had free then */
};

/* What was set for a user on a device. */
struct sim_limit {
	unsigned set;
	uint64_t max, guarantee;
	int32_t priority;
};

struct sim {
	uint64_t seed;
	const struct step *steps;
	size_t n_steps, at;
	bool trace, trace_records;

	/* daemon.c */
	struct gm_core *core;
	struct gm_store_records *records;
	uint64_t now, next_tick, last_id, random;
	struct sim_job *jobs[SIM_DEVICES];
	size_t n_jobs[SIM_DEVICES], n_done[SIM_DEVICES], room[SIM_DEVICES];
	struct gm_core_device_info info[SIM_DEVICES];
	uint64_t foreign[SIM_DEVICES];
	bool frozen;        /* the daemon has died: nothing that core does counts any more */
	uint64_t die_after; /* so many calls of core into the daemon; 0: it lives */
	/* This step was begun before: with the daemon before, or over a connection that was lost before the answer came. */
	bool again;
	bool deaf;   /* the connection will be lost before the answer to this step comes */
	int parting; /* the process that loses its connection right now; -1: none */
	/* Clients whose process has ended when the daemon adopts. */
	uint64_t gone[SIM_PROCS];
	size_t n_gone;
	int proc;       /* that the step is about */
	uint64_t lease; /* likewise */
	uint64_t frees; /* the id of a lease that the step ends, or takes chunks from */
	uint64_t ids[SIM_IDS], indexes[SIM_IDS]; /* of the chunks that it returns */
	size_t n_ids;
	/* The chunks that were returned last. */
	struct {
		int proc;
		uint64_t session, lease, ids[SIM_IDS], indexes[SIM_IDS];
		size_t n;
	} returned;
	int doubt;    /* a lease of the model of which the keeper lacks something; -1: none */
	bool settled; /* the step need not be repeated, although the daemon died in it */
	int store;    /* the store as it was then */
	struct sim_item items[SIM_ITEMS];
	int n_items;
	bool keeper_full;     /* the keeper refused something in this step */
	bool store_full;      /* and so did the store */
	uint64_t full_after;  /* so many new records; 0: the store takes all of them */
	bool offered;         /* sim_proc.evictable is as it is in this step */
	bool restarted;       /* a daemon has adopted what there is, in this step */
	bool keeper_refills;  /* the keeper is new, and does not have everything yet */
	bool works[SIM_UIDS]; /* something of this user ends in slices */
	bool drained[SIM_DEVICES];
	bool worked[SIM_DEVICES];        /* in this step */
	uint64_t denied_ns[SIM_DEVICES]; /* when it was out of memory last; 0: never */
	uint64_t busy_ns[SIM_DEVICES];   /* when the device's thread had something to do last */

	/* the model */
	struct sim_chunk *chunks; /* by id */
	size_t n_chunks;
	uint64_t *live; /* the ids of those that exist */
	size_t n_live, live_room;
	/* No place from these on was ever used. */
	int n_procs, n_leases, n_asks;
	struct sim_proc procs[SIM_PROCS];
	struct sim_lease leases[SIM_LEASES];
	struct sim_ask asks[SIM_ASKS];
	struct sim_token tokens[SIM_TOKENS];
	struct sim_name names[SIM_UIDS][SIM_NAMES];
	struct sim_limit limits[SIM_DEVICES][SIM_UIDS];
	/* What core said the last time: what the user is charged, what all are, and what they may be. */
	uint64_t held[SIM_DEVICES][SIM_UIDS];
	uint64_t charged[SIM_DEVICES], ceiling[SIM_DEVICES];
	uint64_t last_request, n_ended;
	uint64_t
		op; /* the id of what the step asks for; a step that is repeated asks with the same id */
	int last_pid;

	uint64_t grants, refusals, deaths, adopted, given_up;
};

/* Reports a violation and ends the process with status 1. */
#define SIM_FAIL(sim, ...) sim_fail((sim), __FILE__, __LINE__, __VA_ARGS__)
#define SIM_MUST(sim, condition, ...) \
	do { \
		if (!(condition)) \
			SIM_FAIL(sim, __VA_ARGS__); \
	} while (0)
void sim_fail(const struct sim *sim, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5), noreturn));
/* A line of the trace. */
void sim_say(const struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- daemon.c */

void sim_daemon_start(struct sim *sim);
/* Ends everything; what core leaves behind then is a violation. */
void sim_daemon_end(struct sim *sim);
/* The daemon dies, if it has not yet, and another one takes over. */
void sim_daemon_restart(struct sim *sim);
void sim_daemon_pass(struct sim *sim, uint64_t ns);
/* Does all slices of what ends. */
void sim_daemon_settle(struct sim *sim);
/* Called by everything that core calls. Returns whether the daemon lives. */
bool sim_lives(struct sim *sim);
uint64_t sim_roll(struct sim *sim);

/* ---- thread.c */

void sim_thread_create(void *ctx, struct gm_chunk *chunk, uint64_t turn);
void sim_thread_destroy(void *ctx, struct gm_chunk *chunk);
bool sim_thread_call_off(void *ctx, struct gm_chunk *chunk);
void sim_thread_probe(void *ctx, uint32_t device);
void sim_thread_sample(struct sim *sim, uint32_t device);
/* Lets the device's thread do so many jobs. luck decides whether creations fail. Core hears of all that are done, except for
 * the last ones: late of them. */
void sim_thread_work(struct sim *sim, uint32_t device, uint32_t most, uint32_t luck, uint32_t late);
/* Returns the number of bytes that nobody uses on the device. */
uint64_t sim_device_free(const struct sim *sim, uint32_t device);

/* ---- items.c */

int sim_item_deposit(
	void *ctx, enum gm_store_kind kind, uint64_t id, int fd, struct gm_request *request);
void sim_item_withdraw(void *ctx, enum gm_store_kind kind, uint64_t id);
int sim_item_adopt_metadata(void *ctx, uint64_t id, int *ret_fd);
int sim_item_adopt_word(void *ctx, uint64_t id, int *ret_fd);
/* The keeper dies; the next one has everything; the daemon dies, and what the keeper lacks is lost. */
void sim_items_forget(struct sim *sim);
void sim_items_fill(struct sim *sim);
void sim_items_lose(struct sim *sim);
/* Closes what adoption did not claim. */
void sim_items_close_unclaimed(struct sim *sim);
/* Checks that nothing is left. */
void sim_items_end(struct sim *sim);

/* ---- client.c */

/* Whether the process does not hear the answer to this step, and does it again. */
bool sim_unheard(const struct sim *sim);
/* Whether core rightly refused something because it could not be recorded. */
bool sim_unrecorded(const struct sim *sim, gpumem_status status);
/* The process loses its connection. */
void sim_client_part(struct sim *sim, int proc);
/* The process is back. unheard: it loses its connection again before it hears its new token. */
void sim_client_resume(struct sim *sim, int proc, bool unheard);
void sim_client_give_back(struct sim *sim, int proc, int lease, uint64_t view);
/* Clients resume with a new daemon, and repeat what was not answered. */
void sim_clients_resume(struct sim *sim);
/* Gives up the lease that the step is about, if core has given it up. */
void sim_client_doubt(struct sim *sim);
void sim_clients_leave(struct sim *sim);
struct gm_session *sim_session(const struct sim *sim, const struct sim_proc *proc);

/* They choose by a number what the step is about; -1: there is nothing to choose. A step that is repeated is about the same as
 * before. */
int sim_pick_proc(struct sim *sim, uint32_t a, bool connected);
int sim_pick_lease(struct sim *sim, int proc, uint32_t b, bool made);
struct sim_hold *sim_hold_of(struct sim *sim, int lease, int proc);
/* The lease in core; NULL: the process does not have it. */
struct gm_lease *sim_lease_of(struct sim *sim, int proc, int lease);

void sim_step_connect(struct sim *sim, const struct step *s);
void sim_step_goodbye(struct sim *sim, const struct step *s);
void sim_step_die(struct sim *sim, const struct step *s);
void sim_step_let_go(struct sim *sim, const struct step *s);
void sim_step_disconnect(struct sim *sim, const struct step *s);
void sim_step_resume(struct sim *sim, const struct step *s);
void sim_step_stop(struct sim *sim, const struct step *s);
void sim_step_return(struct sim *sim, const struct step *s);
void sim_step_obey(struct sim *sim, const struct step *s);
void sim_step_return_chunks(struct sim *sim, const struct step *s);
void sim_step_return_twice(struct sim *sim, const struct step *s);

/* ---- reclaim_ask.c */

/* Makes a request of the process, for a new lease or to grow one. It does not wait. NULL: there are too many. */
struct sim_ask *sim_ask_new(struct sim *sim, int proc, int lease, uint64_t bytes);
/* Decides by a number how long it waits. */
void sim_ask_wait(struct sim *sim, struct sim_ask *ask, uint32_t how);
void sim_ask_send(struct sim *sim, struct sim_ask *ask);
/* Whether there is a request to grow the lease. */
bool sim_ask_grows(const struct sim *sim, int lease);
/* The process repeats what was not answered. */
void sim_asks_repeat(struct sim *sim, int proc);
/* Answers that core gave since the last time reach their clients, some of them late. */
void sim_clients_hear(struct sim *sim);
void sim_step_ask(struct sim *sim, const struct step *s);
void sim_step_grow(struct sim *sim, const struct step *s);
void sim_step_cancel(struct sim *sim, const struct step *s);

/* ---- declare.c */

void sim_step_declare(struct sim *sim, const struct step *s);
void sim_step_declare_less(struct sim *sim, const struct step *s);
/* Whether core knows of all memory of the device that it does not have itself. */
bool sim_declare_knows(const struct sim *sim, uint32_t d);
/* Checks that the process can make the memory now. */
void sim_declare_done(struct sim *sim, const struct sim_ask *ask);
/* A process that resumes says how much it has declared. */
void sim_declare_again(struct sim *sim, int proc);
void sim_declare_check(struct sim *sim, const struct sim_proc *p, const struct gm_session *session);

/* ---- piece.c */

void sim_step_share_chunks(struct sim *sim, const struct step *s);
void sim_step_unshare_chunks(struct sim *sim, const struct step *s);
void sim_step_return_piece(struct sim *sim, const struct step *s);

/* ---- resize.c */

/* Whether nobody but the process has the lease, or could get it. */
bool sim_alone(const struct sim *sim, int lease, int proc);
void sim_step_resize(struct sim *sim, const struct step *s);
void sim_step_evict(struct sim *sim, const struct step *s);
void sim_step_restore(struct sim *sim, const struct step *s);

/* ---- world.c */

void sim_step_limit(struct sim *sim, const struct step *s);
void sim_step_policy(struct sim *sim, const struct step *s);
void sim_step_drain(struct sim *sim, const struct step *s);
void sim_step_reclaim(struct sim *sim, const struct step *s);
void sim_step_foreign(struct sim *sim, const struct step *s);
void sim_step_work(struct sim *sim, const struct step *s);
void sim_step_pass(struct sim *sim, const struct step *s);
void sim_step_keeper_dies(struct sim *sim, const struct step *s);
void sim_step_refill(struct sim *sim, const struct step *s);
void sim_step_daemon_dies(struct sim *sim, const struct step *s);
void sim_step_store_full(struct sim *sim, const struct step *s);

/* ---- step.c */

void sim_step_run(struct sim *sim, const struct step *step);
/* Whether the answer to such a step can be lost with the connection. */
bool sim_step_repeats(const struct step *step);
const char *sim_step_name(uint32_t kind);
uint32_t sim_step_draw(uint32_t number);

/* ---- lease_token.c */

void sim_step_share(struct sim *sim, const struct step *s);
void sim_step_unshare(struct sim *sim, const struct step *s);
void sim_step_open(struct sim *sim, const struct step *s);
void sim_step_publish(struct sim *sim, const struct step *s);
void sim_step_unpublish(struct sim *sim, const struct step *s);
void sim_step_read_metadata(struct sim *sim, const struct step *s);
void sim_step_attach(struct sim *sim, const struct step *s);

/* ---- model.c */

struct sim_chunk *sim_chunk(struct sim *sim, uint64_t id);
/* Adds a chunk to the list of those that exist. */
void sim_chunk_live(struct sim *sim, uint64_t id);
/* Removes those from the list that no longer do. */
void sim_chunks_sweep(struct sim *sim);
/* Notes that the lease has got chunks, and that the process maps them. */
void sim_model_granted(struct sim *sim, struct sim_ask *ask);
void sim_model_open(struct sim *sim, int lease, int proc, uint64_t view);
/* A process has returned a view of the lease. */
void sim_model_return(struct sim *sim, int lease, int proc, uint64_t view);
void sim_model_return_chunk(struct sim *sim, int lease, uint64_t id);
/* Chunks of the lease went back: it may be smaller than what was asked for. exact: no daemon died meanwhile. */
void sim_model_clamp(struct sim *sim, int lease, bool exact);
/* A process ends, with a word or without. */
void sim_model_end(struct sim *sim, int proc, bool died);
void sim_model_publish(struct sim *sim, int lease, uint32_t uid, unsigned name, uint64_t version);
void sim_model_unpublish(struct sim *sim, uint32_t uid, unsigned name);
/* The daemon died, and so did the keeper: gives up what neither of them has as a whole. */
void sim_model_lose(struct sim *sim);
void sim_model_give_up(struct sim *sim, int lease);
/* The keeper and the daemon have lost metadata or a control block. */
void sim_model_lose_item(struct sim *sim, enum gm_store_kind kind, uint64_t id);
/* A chunk of the lease becomes a lease of its own. Returns its place. */
int sim_model_split(struct sim *sim, int lease, int proc, uint64_t chunk, uint64_t id);
/* Returns the place of the lease with this id; -1: there is none. */
int sim_model_find(struct sim *sim, uint64_t id);
/* Returns what tells the file from all others. */
uint64_t sim_inode(const struct sim *sim, int fd);
void sim_map(struct sim *sim, int proc, uint64_t id);
void sim_unmap(struct sim *sim, int proc, uint64_t id);
void sim_model_free(struct sim *sim);

/* ---- check.c */

/* Checks the invariants. */
void sim_check(struct sim *sim);
/* Checks the part about what core charges since the last check. Must be called after everything that may change the ceiling
 * of the device or the limits there. */
void sim_check_admission(struct sim *sim, uint32_t d);

#endif
