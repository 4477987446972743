/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_SESSION_PRIVATE_H
#define GM_LEASE_SESSION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "daemon/books/counted.h"
#include "daemon/books/token_hash.h"
#include "daemon/device/admit.h"
#include "daemon/device/quota_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/metadata.h"
#include "daemon/lease/name.h"
#include "daemon/lease/session.h"
#include "daemon/lease/share.h"
#include "daemon/queue/queue.h"
#include "daemon/queue/request.h"
#include "daemon/user/user.h"

/*
 * Sessions with all that hangs on them: leases, shares and names. They are one object in 16 files (session.c,
 * estate_work.c, estate.c, lease.c, hold.c, piece.c, linger.c, debt.c, declare.c, share.c, name.c, expiry.c, metadata.c,
 * word.c, request.c, grant.c and commit.c), because each of them can end the others. The modules below know nothing of it.
 */

/* The names that end by themselves, in a heap (expiry.c). */
struct gm_expiries {
	struct gm_name **names;
	size_t n, room;
};

/* All of core's state. core.c puts it together. */
struct gm_core {
	struct gm_env env;
	struct gm_device devices[GM_LIMIT_DEVICES]; /* env.devices points here */
	struct gm_quotas quotas;
	struct gm_token_hash_key token_key;
	uint32_t key_place;      /* of the key's record */
	struct gm_share *shares; /* by hash of token */
	struct gm_name *names;   /* by hash; oldest first */
	struct gm_expiries expiries;
	struct gm_metadata *metadata;  /* by id */
	struct gm_estate *estate_list; /* oldest first */
	struct gm_estate_work
		*working;   /* of users who have something that ends in slices (estate_work.c) */
	uint32_t n_ticking; /* of them: those whose slices come in ticks */
	uint64_t n_leases;
	uint64_t n_ending;   /* sessions that have ended and still have leases */
	uint64_t n_outgoing; /* leases that they made */
	struct gm_core_counters counters;
	struct gm_user_table users; /* env.users, unless gm_core_share_users() said otherwise */
};

/* ---- session.c */

/*
 * A client process: what it holds and what it is charged. It lives until the process is gone,
 * whatever becomes of the connection.
 */
struct gm_session {
	struct gm_core *core;
	struct gm_session_info info;
	struct gm_token_hash token;
	struct gm_token_hash former; /* the token that it was resumed with, if former_valid */
	bool former_valid;           /* the client may not have got the other one */
	struct gm_token_hash domain; /* of its domain's key; 0: it has none */
	bool indexed;                /* grants has all grants from before the last resume */
	bool died;                   /* it has ended with its process (estate_work.c) */
	uint32_t n_made;             /* of its leases: those that it made */
	uint64_t last_asked;         /* the highest gm_request.id of its chunks */
	struct gm_grant *grants;     /* by id of the request (grant.c) */
	size_t n_grants;
	uint32_t place;          /* of its record; 0: see gm_session_keep() */
	uint32_t declared_place; /* of the record of what it declared */
	uint32_t page_version;   /* gm_session_keep() */
	bool page_unsafe;
	char *names;                                /* what info's strings point to */
	char *run_name;                             /* NULL: none */
	struct gm_estate *estate;                   /* pays for what the session leaves behind */
	struct gm_user_charge charge, bare, shares; /* one session; see enum gm_user_slot */
	uint64_t n_refused;                         /* requests for memory that were refused */
	uint64_t n_views;      /* leases that it opened, as often as it did (hold.c) */
	uint64_t n_leaving;    /* leases it made that still have chunks which it returned */
	struct gm_hold *holds; /* by lease, in order of age */
	struct gm_session *prev, *next; /* of gm_estate_work.leaving */
	struct gm_payer payer;          /* last: its accounts follow */
};

static inline struct gm_account *gm_session_account(
	struct gm_session *session, const struct gm_device *device)
{
	return &session->payer.accounts[device->number];
}

/* Reports that what the session holds on a device changed, unless the session is about to end. */
static inline void gm_session_changed(
	const struct gm_session *session, const struct gm_device *device)
{
	gm_env_payer_changed(device->env, &session->payer, device->number);
}

/* Frees a session that has ended and holds no lease any more. */
void gm_session_finish(struct gm_session *session);
/* Makes a session without a token and an estate, and puts it among the payers. id 0: a new one. NULL: no memory. */
struct gm_session *gm_session_make(
	struct gm_core *core, uint64_t id, const struct gm_session_info *info);
/* Takes a session that holds nothing out of the payers and frees it. */
void gm_session_unmake(struct gm_session *session);
/* Whether the session holds as many leases as it may, with those it asked for. detail says which
 * bound that is. */
bool gm_session_full(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
/* Whether its user has as many opened and empty leases as it may. */
bool gm_session_full_of_bare(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
/* Puts a payer, of which uid, payer_uid, pid, session and run are set, among the others, and sets its user. id 0: a new one. -ENOMEM */
int gm_payer_begin(struct gm_core *core, struct gm_payer *payer, uint64_t id);
/* Takes out a payer that holds nothing. */
void gm_payer_end(struct gm_core *core, struct gm_payer *payer);
/* For gm_quotas.owner_of. */
bool gm_payer_owner(
	const struct gm_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner);

/* ---- estate_work.c */

/*
 * What ends may have very many parts: chunks, leases, shares, views. It is taken apart in slices, on
 * turns of the user that pays. A session that ends is charged to its estate and has no record from
 * the beginning, so nobody sees a part of it.
 */

/* Number of chunks that are released in one go: about a millisecond's work. gm_core_ops.slice may
 * set another. */
#define GM_LEASE_SLICE 512
uint64_t gm_estate_work_slice(const struct gm_env *env);
/* Put what has ended among the work of its user, or take it out. A lease may be in the list
 * already. After a session, gm_estate_work_do() must follow. */
void gm_estate_work_add_lease(struct gm_lease *lease);
void gm_estate_work_remove_lease(struct gm_lease *lease);
void gm_estate_work_add_session(struct gm_session *session);
/* Does a slice of a user's work and counts it off. Returns whether there is more. If not, the
 * work may be gone. */
bool gm_estate_work_do(struct gm_estate_work *work, uint64_t *slice);
/* Does a slice for each user whose work comes in ticks. */
void gm_estate_work_tick(struct gm_core *core);
/* Does all of it. */
void gm_estate_work_finish(struct gm_core *core);

/* ---- estate.c */

/*
 * What sessions leave behind is charged to their estate: lingering memory, and memory that they shared and that others
 * still hold after they have returned it or have ended. So it goes on counting for the same uid, gid,
 * unit and container, and charges never move to another owner. There is one estate for each such
 * combination. It lives as long as a session, a lease, a lingering chunk or a debt of more than 0
 * bytes refers to it.
 *
 * A client's own name is not part of the combination: it is the client's own word.
 */
struct gm_estate {
	struct gm_core *core;
	struct gm_estate_info info;
	uint64_t refs;
	uint32_t place; /* of its record */
	struct gm_estate_work *work;
	struct gm_user_charge charge;          /* one estate */
	char *names;                           /* what info's strings point to */
	struct gm_estate *prev, *next;         /* of its user */
	struct gm_estate *all_prev, *all_next; /* oldest first */
	struct gm_payer payer;                 /* last: its accounts follow */
};

/* The estates of one user, and what of theirs ends in slices. It exists while the user has an estate. */
struct gm_estate_work {
	struct gm_user *user;
	struct gm_estate *list;
	struct gm_lease *ending;            /* whose chunks go in slices: all, or some */
	struct gm_session *leaving;         /* whose leases go in slices */
	bool working, ticking;              /* in gm_core.working; and counted in n_ticking */
	struct gm_estate_work *prev, *next; /* of gm_core.working */
};

/* Finds or makes the estate of these clients. Copies the strings; those longer than GM_OWNER_NAME_BYTES count as none. The caller
 * owns a reference. -ENOMEM; -EMLINK: the user has GM_LIMIT_ESTATES_PER_UID of them, or as many as it leaves to others. */
int gm_estate_get(
	struct gm_core *core, const struct gm_estate_info *info, struct gm_estate **ret_estate);
/* The same for clients like this one. */
int gm_estate_get_for(
	struct gm_core *core, const struct gm_session_info *info, struct gm_estate **ret_estate);
/* Makes the estate of that id, which an earlier daemon had and whose record is there. The same
 * outcomes as gm_estate_get(); -EEXIST: there is one of these clients already. */
int gm_estate_adopt(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_estate_info *info, struct gm_estate **ret_estate);
struct gm_estate *gm_estate_ref(struct gm_estate *estate);
void gm_estate_unref(struct gm_estate *estate);
/* gm_payer_owner() for the payer of an estate. */
bool gm_estate_owner(
	const struct gm_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner);
/* See gm_core_estate_each(). */
bool gm_estate_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_estate *estate), void *ctx);

static inline struct gm_account *gm_estate_account(
	struct gm_estate *estate, const struct gm_device *device)
{
	return &estate->payer.accounts[device->number];
}

/* ---- lease.c */

/* A session's part in a lease: it made the lease, or opened it. */
struct gm_hold {
	uint64_t lease_id;
	struct gm_lease *lease;
	struct gm_session *session;
	uint32_t count;        /* how often the session made or opened it and did not return it */
	bool read_only;        /* it was opened for reading each time */
	bool loose;            /* one of several was returned without a name: the rest have none */
	struct gm_open *opens; /* oldest first; what the session made is not among them */
	struct gm_hold *prev, *next; /* of the lease, oldest first */
	UT_hash_handle hh;           /* of the session */
};

/*
 * A lease. Its maker pays for it as long as the maker holds it, and then the maker's estate, until
 * the last opener has left. reusable says whether the chunks may be pooled. It begins as the maker's session allows
 * pooling, and becomes false for good when a session of another domain opens the lease, or when a holder dies while
 * others hold it: then nobody can say that all mappings are gone.
 */
struct gm_lease {
	uint64_t id;
	struct gm_core *core;
	struct gm_device *device;
	gm_domain domain;
	enum gm_transport transport;
	bool reusable;
	bool across;              /* a session of another domain has opened it */
	bool for_others;          /* it may be shared outside its domain: its chunks were fresh */
	bool signals;             /* its openers are told when its maker leaves */
	struct gm_session *maker; /* NULL: it returned the lease or is gone */
	struct gm_estate *estate; /* the maker's */
	struct gm_debt *debt;     /* of the opener that left it last; NULL: see gm_chunk.debt */
	struct gm_hold *holds;
	struct gm_hold own; /* the maker's */
	uint32_t made;      /* of own.count: without what has a record of its own; 1 at first */
	uint32_t n_opens;   /* by all sessions, as often as they opened it */
	struct gm_share *shares;
	struct gm_name *name;  /* NULL: none */
	uint64_t version;      /* of the name that it has or had; 0: none */
	uint64_t published_by; /* the id of its maker's packet that published it; 0: not known */
	struct gm_metadata *metadata; /* of that version; NULL: none */
	struct gm_metadata *draft;    /* what it is to be published with; NULL: none */
	struct gm_chunk *chunks;      /* in order of index */
	/* Those of them that the maker has returned and that are to be released, in slices if there are
	 * many. */
	struct gm_chunk *leaving, *leaving_last;
	bool counted;                  /* in the maker's n_leaving */
	bool ending;                   /* in gm_estate_work.ending */
	uint32_t place;                /* of its record */
	bool word_kept;                /* the keeper has it, or will */
	struct gm_user_charge word_fd; /* its control block */
	int word; /* with signals: the fd of that; -1: none, or the daemon before lost it */
	uint64_t next_index;
	uint64_t origin; /* its one chunk was in this lease before (piece.c); 0: in none */
	uint64_t grants; /* how many requests brought it chunks */
	uint64_t bytes, user_bytes;
	uint64_t size_before; /* user_bytes before the last request that resized it; 0: not known */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct gm_lease *prev, *next; /* of gm_estate_work.ending */
};

/* The session that made the lease and still has it. NULL: it has returned the lease, or has ended. */
static inline struct gm_session *gm_lease_maker(const struct gm_lease *lease)
{
	return lease->maker && !lease->maker->payer.ending ? lease->maker : NULL;
}

/* Makes a lease that nobody holds yet. tag is NULL or fits. id 0: a new one. maker NULL: the maker is
 * gone. NULL: no memory. */
struct gm_lease *gm_lease_new(struct gm_core *core, uint64_t id, struct gm_session *maker,
	struct gm_estate *estate, struct gm_device *device, enum gm_transport transport,
	const char *tag);
/* Frees a lease that nobody holds and that has no chunks. */
void gm_lease_free(struct gm_lease *lease);
/* The maker holds the lease from now on. -ENOMEM */
int gm_lease_begin(struct gm_lease *lease);
/* Takes ownership of created chunks, in this order. They are charged to the payer already. Returns
 * the index of the first. */
uint64_t gm_lease_append(struct gm_lease *lease, struct gm_chunk *chunks, uint64_t user_bytes);
/* Whether the session made the lease, and nobody else has it or could get it. */
bool gm_lease_is_alone(const struct gm_lease *lease, const struct gm_session *session);
struct gm_hold *gm_lease_find_hold(const struct gm_lease *lease, const struct gm_session *session);
/* The session, which did not hold the lease, does from now on, with a count of 0. -ENOMEM */
int gm_lease_join(struct gm_lease *lease, struct gm_session *session, struct gm_hold *hold);
/* Count what memory does not bound: an open, or a lease without chunks. */
static inline void gm_lease_count_bare(struct gm_session *session)
{
	gm_user_charge_add(&session->bare, 1);
}
static inline void gm_lease_uncount_bare(struct gm_session *session)
{
	gm_user_charge_remove(&session->bare, 1);
}
/* Puts a chunk that an earlier daemon made behind those that the lease has, and charges it. */
void gm_lease_adopt_chunk(struct gm_lease *lease, struct gm_chunk *chunk);
/* Who is charged for the lease. */
struct gm_account *gm_lease_payer_account(const struct gm_lease *lease);
/* Ends a lease that nobody holds and that has no name. */
void gm_lease_end_unheld(struct gm_lease *lease);
/* The lease has lost its name: ends it, unless somebody holds it. Releases no more than *slice chunks
 * and counts them off; the rest is work of its user. */
void gm_lease_settle(struct gm_lease *lease, uint64_t *slice);
/*
 * Ends a session's part in the lease, however often it opened it. The lease ends with its last
 * hold. Releases no more than *slice chunks and counts them off. If there are more, the lease's
 * estate is charged for them, and they are work of its user.
 */
void gm_lease_drop(struct gm_lease *lease, struct gm_hold *hold, bool died, uint64_t *slice);
/* Releases some chunks of a lease that has ended, or that was handed over, and counts them off. Returns whether there are more. If
 * not, the lease may be gone. */
bool gm_lease_end_some(struct gm_lease *lease, uint64_t *slice);
/* Takes a slice off a lease of a session that has ended: tokens, views, and the chunks if nobody else has the lease. Then the
 * session's part in it ends. */
void gm_lease_drop_some(struct gm_hold *hold, bool died, uint64_t *slice);
/* Call when the session lost its connection: the chunks that it has returned and that are not
 * released yet become work of its user. */
void gm_lease_hand_over(struct gm_session *session);

/* ---- hold.c */

/* One Open of a lease by a session. A client names it by the id of its packet. */
struct gm_open {
	struct gm_hold *hold;
	uint64_t asked; /* the id of the packet; 0: not known */
	bool read_only;
	uint32_t place;              /* of its record */
	uint64_t id;                 /* of its record */
	struct gm_open *prev, *next; /* of the hold */
};

/* One more open, by the client's packet of this id. -ENOMEM, -ENOSPC */
int gm_hold_open(
	struct gm_lease *lease, struct gm_session *session, bool read_only, uint64_t asked);
/* The same after a start: the record is there. -ENOMEM */
int gm_hold_adopt(struct gm_lease *lease, struct gm_session *session, uint64_t id, uint32_t place,
	const struct gm_record_hold *record);
/* Whether the session has this view: see gm_lease_has_view(). */
bool gm_hold_has(const struct gm_hold *hold, uint64_t view);
/* Ends one of several views: this one, or (0) any. */
void gm_hold_end_one(struct gm_hold *hold, uint64_t view);
/* Ends some opens and counts them off. The caller takes care of the counts of the lease. */
void gm_hold_end_some(struct gm_hold *hold, uint64_t *slice);
/* Ends all opens. The same. */
void gm_hold_end_all(struct gm_hold *hold);

/* ---- linger.c */

/* Whether a process is known to have the chunk still. */
bool gm_linger_in_use(const struct gm_device *device, const struct gm_chunk *chunk);
/* Takes over a leased chunk that is in use, is charged to the account, and is in no list. From now
 * on it is charged to the estate. It is destroyed when it is no longer in use. */
void gm_linger_begin(struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account,
	struct gm_estate *estate);
/* Takes over a chunk that lingered when an earlier daemon ended. The estate is charged already. */
void gm_linger_adopt(struct gm_device *device, struct gm_chunk *chunk, struct gm_estate *estate);
/* Looks at the chunks that are due, or at some of them. */
void gm_linger_look(struct gm_device *device);
/* Destroys all of them, in use or not. */
void gm_linger_end_all(struct gm_device *device);

/* ---- debt.c */

/* What one process still maps of memory that was destroyed on a device, as an estimate. References:
 * the account of its session, chunks that the process had, and the list of the device. */
struct gm_debt {
	struct gm_device *device;
	/* Whose estate pays; and that estate, NULL while it owes nothing. */
	struct gm_estate_info payer;
	struct gm_estate *estate;
	pid_t pid;
	uint64_t began; /* when the process began; 0: not known */
	uint64_t refs;
	uint64_t bytes;               /* charged to the estate */
	uint64_t before;              /* what the driver counted for the process without them */
	uint64_t destroyed, smallest; /* since the last count: bytes, and the smallest chunk */
	uint64_t id;                  /* of its record */
	uint32_t place;               /* of its record */
	struct gm_debt *prev, *next;  /* of gm_debts.list */
	char names[];                 /* the unit and the container */
};

/* The debt of a session's process, which owns it. NULL: the device is not counted, or no memory. */
struct gm_debt *gm_debt_of(struct gm_session *session, struct gm_device *device);
/* The debt of a process that opened a lease which another process made: the maker's estate pays. The caller owns
 * a reference. */
struct gm_debt *gm_debt_of_opener(
	struct gm_device *device, const struct gm_session *session, struct gm_estate *estate);
void gm_debt_unref(struct gm_debt *debt);
/* Notes that the process of this debt has the chunk. debt may be NULL. */
void gm_debt_watch(struct gm_chunk *chunk, struct gm_debt *debt);
/* The chunk was destroyed after the last count, and before the next. */
void gm_debt_destroyed(struct gm_device *device, struct gm_chunk *chunk);
/* Works out all debts by a new count, and takes ownership of it. Returns whether something changed. */
bool gm_debt_count(struct gm_device *device, struct gm_counted *counted);
/* Asks for a count if one is due. */
void gm_debt_tick(struct gm_device *device);
/* Puts back the debt of a record that an earlier daemon wrote. -EOPNOTSUPP: nothing is counted on this
 * device, so there can be no debt. -ENOMEM. */
int gm_debt_adopt(struct gm_device *device, struct gm_estate *estate, uint64_t id, uint32_t place,
	const struct gm_record_debt *record);
/* No more counts will come: forgets what was not counted yet, so that only debts are left. */
void gm_debt_retire(struct gm_device *device);
/* Forgives all debts. */
void gm_debt_end_all(struct gm_device *device);

/* ---- declare.c */

/* The device has room for what a request declares: ends the request. */
void gm_declare_finish(struct gm_request *request);
/* The session ends, and with it all that it declared. */
void gm_declare_end(struct gm_session *session);
/* Puts back what was declared to an earlier daemon. Returns false if it cannot be. */
bool gm_declare_adopt(
	struct gm_session *session, uint32_t place, const struct gm_record_declared *record);
/* Notes in the last count how much of what each process declared is not in it yet, as far as core can tell. Without
 * declarations that is 0. */
void gm_declare_expect(struct gm_device *device);
/* Finds out how much of what was declared on the device the last count shows. The debts of that count must have been
 * worked out before. */
void gm_declare_count(struct gm_device *device);

/* ---- share.c */

/* One token for one lease. It ends with gm_lease_unshare(), or with its maker's part in the lease.
 */
struct gm_share {
	struct gm_token_hash hash;
	struct gm_lease *lease;
	struct gm_share_options options;
	uint64_t asked;               /* the id of the client's packet; 0: not known */
	uint64_t id;                  /* of its record */
	uint32_t place;               /* of its record */
	struct gm_share *prev, *next; /* of the lease */
	UT_hash_handle hh;            /* of all shares, by the first half of the hash */
};

/* Puts back a token that an earlier daemon made. -ENOMEM; -EEXIST: there is one with this hash. */
int gm_share_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_share *record);
/* Makes the token with this hash, by the client's packet of this id. GPUMEM_E_HOST_MEMORY */
gpumem_status gm_share_make(struct gm_lease *lease, const struct gm_token_hash *hash,
	const struct gm_share_options *options, uint64_t asked);
/* Whether the session may have so many more. */
bool gm_share_has_room(const struct gm_session *session, uint64_t more);
/* Finds the share of a token by its hash. NULL: there is none. */
struct gm_share *gm_share_find(const struct gm_core *core, const struct gm_token_hash *hash);
void gm_share_end(struct gm_share *share);
/* Ends what the client's packet of this id shared of the lease. */
void gm_share_forget(struct gm_lease *lease, uint64_t asked);
/* Ends some tokens of a lease and counts them off. Its maker must still be set. */
void gm_share_end_some(struct gm_lease *lease, uint64_t *slice);
/* Ends every token of a lease whose maker still holds it. */
void gm_share_end_all(struct gm_lease *lease);
/* Whether a lease may be shared like that. */
gpumem_status gm_share_check(const struct gm_lease *lease, const struct gm_share_options *options,
	char detail[GM_DETAIL_BYTES]);
/* Whether the session belongs to the audience. */
bool gm_share_is_for(const struct gm_share_options *options, const struct gm_lease *lease,
	const struct gm_session *session, const gid_t *groups, size_t n_groups);
/* Opens a lease for a session that may, by the client's packet of this id. */
gpumem_status gm_share_open(struct gm_session *session, struct gm_lease *lease, bool read_only,
	uint64_t asked, struct gm_lease **ret_lease);

/* ---- name.c */

/* One name. Its lease is kept while it has the name. */
struct gm_name {
	struct gm_core *core;
	struct gm_token_hash hash; /* of uid and text */
	struct gm_lease *lease;
	uint64_t id;
	struct gm_token_hash domain; /* of its maker; 0: a domain of one client */
	uint64_t version;
	uint64_t asked; /* the id of the packet that published this version; 0: not known */
	uint64_t since_ns;
	uid_t uid;
	uint32_t place; /* of its record */
	struct gm_user_charge charge;
	struct gm_share_options share;
	bool until_unread;
	uint64_t metadata;   /* the id of what it was published with; 0: none */
	uint64_t expires_ns; /* 0: never. expiry.c sets it, and the next one */
	size_t expiry_place; /* in the heap, from 1; 0: it is not there */
	char text[GM_LIMIT_NAME_BYTES + 1];
	UT_hash_handle hh;
};

/* Puts back a name that an earlier daemon had. -ENOMEM; -EEXIST: it cannot be, or is there. */
int gm_name_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_name *record);
/* Call when a session is about to leave a lease that it opened. If there is no other reader, the name may end. Its
 * record must go before the records which show that there was a reader. */
void gm_name_reader_left(struct gm_lease *lease, const struct gm_hold *leaving);
/* Ends the lease's name. The caller ends the lease if nobody holds it. */
void gm_name_drop(struct gm_lease *lease);
/* Ends names whose time has come, or some of them. */
void gm_name_expire_some(struct gm_core *core);
/* Ends all names. */
void gm_name_end_all(struct gm_core *core);

/* ---- expiry.c */

/* Room for one more name that ends by itself. -ENOMEM */
int gm_expiry_make_room(struct gm_core *core);
/* The name ends at that time; 0: never. There must be room. */
void gm_expiry_set(struct gm_name *name, uint64_t expires_ns);
/* When the next name ends; UINT64_MAX: none does. */
uint64_t gm_expiry_next(const struct gm_core *core);

/* ---- word.c */

/* Makes the control block of a new lease. If there is no descriptor for it yet, or the keeper cannot take it yet,
 * sets *ret_waits: gm_request_go_on() is called when the keeper has it, or gm_request_fail(). After
 * an error, gm_lease_free() undoes what was done. */
gpumem_status gm_word_make(struct gm_lease *lease, struct gm_request *request, bool *ret_waits,
	char detail[GM_DETAIL_BYTES]);
/* Call when a request no longer wants the control block for which it called gm_word_make(). */
void gm_word_stop_waiting(struct gm_env *env, struct gm_request *request);
/* Makes the control blocks that wait, as far as there are descriptors. */
void gm_word_make_waiting(struct gm_env *env);
/* Ends the control block of a lease, if there is one. */
void gm_word_drop(struct gm_lease *lease);
/* Takes the control block over from the daemon before. If it is not sound, the lease has no signals. Takes ownership
 * of fd. */
void gm_word_adopt(struct gm_lease *lease, int fd);

/* ---- metadata.c */

/* Whether the draft is there, with all of its bytes. */
bool gm_metadata_is_whole(const struct gm_lease *lease, uint64_t size);
/* Seals the draft and gives it to the keeper, as the metadata of this version. -EAGAIN: that may be possible soon;
 * -ENOSPC, -ENOMEM. */
int gm_metadata_commit(struct gm_lease *lease, uint64_t version, uint64_t *ret_id);
/* The draft, or nothing if there is none, is the lease's metadata from now on. */
void gm_metadata_publish(struct gm_lease *lease);
/* The maker leaves the lease. */
void gm_metadata_drop_draft(struct gm_lease *lease);
/* The lease ends. */
void gm_metadata_drop(struct gm_lease *lease);
/* Puts back what an earlier daemon had. Takes ownership of the fd. -ENOMEM; -EINVAL: it is not sound. */
int gm_metadata_adopt(struct gm_lease *lease, uint64_t id, uint32_t place,
	const struct gm_record_metadata *record, int fd);

/* ---- grant.c */

/* The session was resumed: its client may repeat requests. */
void gm_grant_forget(struct gm_session *session);

/* ---- commit.c */

/* Each writes the record of what it is given, as it stands. Only the first write of each can fail:
 * -ENOSPC, … */
int gm_commit_session(struct gm_session *session);
int gm_commit_estate(struct gm_estate *estate);
int gm_commit_lease(struct gm_lease *lease);
/* Writes the record of a new lease, and then that of the chunk that becomes its only one: it is still
 * in another lease. On error, the records are as before. */
int gm_commit_piece(struct gm_lease *lease, struct gm_chunk *chunk);
/* open->hold is not used. */
int gm_commit_open(
	struct gm_open *open, const struct gm_lease *lease, const struct gm_session *session);
int gm_commit_share(struct gm_share *share);
int gm_commit_name(struct gm_name *name);
/* The chunk lingers from now on. */
void gm_commit_lingering(struct gm_chunk *chunk);
/*
 * Commits a grant: the chunks, in this order, are about to be appended to the lease, and user_bytes
 * were asked for. If a record cannot be written, none of them stays.
 */
int gm_commit_grant(
	struct gm_lease *lease, struct gm_chunk *chunks, uint64_t asked, uint64_t user_bytes);
/* Takes back a grant that made the lease. */
void gm_commit_undo(struct gm_lease *lease, struct gm_chunk *chunks);
/* Writes the record of what the session declared. Only the first write can fail. */
int gm_commit_declared(struct gm_session *session);
/* The debt as it stands; one of 0 bytes has no record. */
void gm_commit_debt(struct gm_debt *debt);
/* Writes the counts of a device, if they have changed. Core writes them in each tick, and at a grant that raises
 * the peak or comes this many requests after the last write. So a daemon that is killed forgets fewer
 * requests than that, and never a peak. */
#define GM_COMMIT_LAG 64
void gm_commit_device(struct gm_device *device);

/* ---- request.c */

/* See gm_core_request(). */
void gm_request_submit(struct gm_core *core, struct gm_request *request);
/* Ends the pending requests of a session that grow one lease as cancelled. */
void gm_request_cancel_grows(struct gm_session *session, struct gm_lease *lease);
/* GPUMEM_E_INVALID: no request is for so many bytes. */
gpumem_status gm_request_check_bytes(uint64_t bytes, char detail[GM_DETAIL_BYTES]);
/* Chooses the transport of a new lease that asks for one, or for AUTO. GPUMEM_E_INVALID: there is no such
 * transport. GPUMEM_E_UNSUPPORTED: the device does not have it. */
gpumem_status gm_request_pick_transport(const struct gm_device *device, enum gm_transport asked,
	enum gm_transport *ret_transport, char detail[GM_DETAIL_BYTES]);
/*
 * Says how gm_core_request() would answer a request for a new lease, and changes nothing. Its transport is chosen. GPUMEM_OK: it
 * would be granted at once. Otherwise detail says why not, and so does *ret_refusal; if its block is
 * GM_BLOCK_NONE, no memory would help. Does not look at how many leases the session has.
 */
gpumem_status gm_request_foresee(const struct gm_request *request, struct gm_device *device,
	struct gm_refusal *ret_refusal, char detail[GM_DETAIL_BYTES]);
/* Ends a request that holds nothing and is in no list. */
void gm_request_refuse(struct gm_request *request, gpumem_status status, const char *detail);

#endif
