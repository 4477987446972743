/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_SESSION_PRIVATE_H
#define GM_LEASE_SESSION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "daemon/books/usage_sample.h"
#include "daemon/books/token_hash.h"
#include "daemon/device/device_admit.h"
#include "daemon/device/limit_private.h"
#include "daemon/lease/session.h"
#include "daemon/lease/name_audience.h"
#include "daemon/queue/request.h"
#include "daemon/user/user.h"

/*
 * What hangs on a session, as plain structs for the modules of this folder: leases, shares, names and what they owe. A
 * module's own header has its functions. From below: session, orphaned account, orphaned mapping and commit (one object); are orphaned, word, metadata,
 * expiry, share and name; lease, hold and estate_work (one object); grant, open and piece; name_publish, declare, request and
 * session_end.
 */

/* The names that end by themselves, in a heap (name_expiry.c). */
struct gm_name_expiries {
	struct gm_name **names;
	size_t n, room;
};

/* All of core's state. core.c puts it together. */
struct gm_core {
	struct gm_env env;
	struct gm_device devices[GM_BOUND_DEVICES]; /* env.devices points here */
	struct gm_limits limits;
	struct gm_token_hash_key token_key;
	uint32_t key_place;      /* of the key's record */
	struct gm_token *shares; /* by hash of token */
	struct gm_name *names;   /* by hash; oldest first */
	struct gm_name_expiries expiries;
	struct gm_metadata *metadata;  /* by id */
	struct gm_orphan *orphan_list; /* oldest first */
	struct gm_orphan_work
		*working;   /* of users who have something that ends in slices (orphan_work.c) */
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
	struct gm_token_hash former;   /* the token that it was resumed with, if former_valid */
	bool former_valid;             /* the client may not have got the other one */
	struct gm_token_hash domain;   /* of its domain's key; 0: it has none */
	bool indexed;                  /* grants has all grants from before the last resume */
	bool died;                     /* it has ended with its process (orphan_work.c) */
	uint32_t n_made;               /* of its leases: those that it made */
	uint64_t last_asked;           /* the highest gm_request.id of its chunks */
	struct gm_lease_grant *grants; /* by id of the request (grant.c) */
	size_t n_grants;
	uint32_t place;          /* of its record; 0: see gm_session_keep() */
	uint32_t declared_place; /* of the record of what it declared */
	uint32_t page_version;   /* gm_session_keep() */
	bool page_unsafe;
	char *names;                                /* what info's strings point to */
	char *run_name;                             /* NULL: none */
	struct gm_orphan *orphan;                   /* pays for what the session leaves behind */
	struct gm_user_charge charge, bare, shares; /* one session; see enum gm_user_slot */
	uint64_t n_refused;                         /* requests for memory that were refused */
	uint64_t n_views;    /* leases that it opened, as often as it did (ref.c) */
	uint64_t n_leaving;  /* leases it made that still have chunks which it returned */
	struct gm_ref *refs; /* by lease, in order of age */
	struct gm_session *prev, *next; /* of gm_orphan_work.leaving */
	struct gm_account_payer payer;  /* last: its accounts follow */
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

/* ---- orphan.c */

/*
 * What sessions leave behind is charged to their orphaned account: orphaned memory, and memory that they shared and that others
 * still hold after they have returned it or have ended. So it goes on counting for the same uid, gid,
 * unit and container, and charges never move to another owner. There is one orphaned account for each such
 * combination. It lives as long as a session, a lease, an orphaned chunk or an orphaned mapping of more than 0
 * bytes refers to it.
 *
 * A client's own name is not part of the combination: it is the client's own word.
 */
struct gm_orphan {
	struct gm_core *core;
	struct gm_orphan_info info;
	uint64_t refs;
	uint32_t place; /* of its record */
	struct gm_orphan_work *work;
	struct gm_user_charge charge;          /* one orphaned account */
	char *names;                           /* what info's strings point to */
	struct gm_orphan *prev, *next;         /* of its user */
	struct gm_orphan *all_prev, *all_next; /* oldest first */
	struct gm_account_payer payer;         /* last: its accounts follow */
};

/* The orphaned accounts of one user, and what of theirs ends in slices. It exists while the user has an orphaned account. */
struct gm_orphan_work {
	struct gm_user *user;
	struct gm_orphan *list;
	struct gm_lease *ending;            /* whose chunks go in slices: all, or some */
	struct gm_session *leaving;         /* whose leases go in slices */
	bool working, ticking;              /* in gm_core.working; and counted in n_ticking */
	struct gm_orphan_work *prev, *next; /* of gm_core.working */
};

static inline struct gm_account *gm_orphan_account(
	struct gm_orphan *orphan, const struct gm_device *device)
{
	return &orphan->payer.accounts[device->number];
}

/* ---- lease.c */

/* A session's part in a lease: it made the lease, or opened it. */
struct gm_ref {
	uint64_t lease_id;
	struct gm_lease *lease;
	struct gm_session *session;
	uint32_t count; /* how often the session made or opened it and did not return it */
	bool read_only; /* it was opened for reading each time */
	bool loose;     /* one of several was returned without a name: the rest have none */
	struct gm_ref_entry *opens; /* oldest first; what the session made is not among them */
	struct gm_ref *prev, *next; /* of the lease, oldest first */
	UT_hash_handle hh;          /* of the session */
};

/*
 * A lease. Its maker pays for it as long as the maker holds it, and then the maker's orphaned account, until
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
	struct gm_orphan *orphan; /* the maker's */
	struct gm_orphan_map
		*map; /* of the opener that left it last; NULL: see gm_chunk.orphaned mapping */
	struct gm_ref *refs;
	struct gm_ref own; /* the maker's */
	uint32_t made;     /* of own.count: without what has a record of its own; 1 at first */
	uint32_t n_opens;  /* by all sessions, as often as they opened it */
	struct gm_token *shares;
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
	bool ending;                   /* in gm_orphan_work.ending */
	uint32_t place;                /* of its record */
	bool word_kept;                /* the keeper has it, or will */
	struct gm_user_charge word_fd; /* its control block */
	int word; /* with signals: the fd of that; -1: none, or the daemon before lost it */
	uint64_t next_index;
	uint64_t origin; /* its one chunk was in this lease before (piece.c); 0: in none */
	uint64_t grants; /* how many requests brought it chunks */
	uint64_t bytes, user_bytes;
	uint64_t size_before; /* user_bytes before the last request that resized it; 0: not known */
	char tag[GM_BOUND_NAME_BYTES + 1];
	struct gm_lease *prev, *next; /* of gm_orphan_work.ending */
};

/* The session that made the lease and still has it. NULL: it has returned the lease, or has ended. */
static inline struct gm_session *gm_lease_maker(const struct gm_lease *lease)
{
	return lease->maker && !lease->maker->payer.ending ? lease->maker : NULL;
}

/* Count what memory does not bound: an open, or a lease without chunks. */
static inline void gm_lease_count_bare(struct gm_session *session)
{
	gm_user_charge_add(&session->bare, 1);
}
static inline void gm_lease_uncount_bare(struct gm_session *session)
{
	gm_user_charge_remove(&session->bare, 1);
}

/* ---- ref.c */

/* One Open of a lease by a session. A client names it by the id of its packet. */
struct gm_ref_entry {
	struct gm_ref *ref;
	uint64_t asked; /* the id of the packet; 0: not known */
	bool read_only;
	uint32_t place;                   /* of its record */
	uint64_t id;                      /* of its record */
	struct gm_ref_entry *prev, *next; /* of the hold */
};

/* ---- orphan_map.c */

/* What one process still maps of memory that was destroyed on a device, as an estimate. References:
 * the account of its session, chunks that the process had, and the list of the device. */
struct gm_orphan_map {
	struct gm_device *device;
	/* Whose orphaned account pays; and that orphaned account, NULL while it owes nothing. */
	struct gm_orphan_info payer;
	struct gm_orphan *orphan;
	pid_t pid;
	uint64_t began; /* when the process began; 0: not known */
	uint64_t refs;
	uint64_t bytes;               /* charged to the orphaned account */
	uint64_t before;              /* what the driver counted for the process without them */
	uint64_t destroyed, smallest; /* since the last count: bytes, and the smallest chunk */
	uint64_t id;                  /* of its record */
	uint32_t place;               /* of its record */
	struct gm_orphan_map *prev, *next; /* of gm_orphan_maps.list */
	char names[];                      /* the unit and the container */
};

/* ---- lease_token.c */

/* One token for one lease. It ends with gm_lease_unshare(), or with its maker's part in the lease.
 */
struct gm_token {
	struct gm_token_hash hash;
	struct gm_lease *lease;
	struct gm_token_options options;
	uint64_t asked;               /* the id of the client's packet; 0: not known */
	uint64_t id;                  /* of its record */
	uint32_t place;               /* of its record */
	struct gm_token *prev, *next; /* of the lease */
	UT_hash_handle hh;            /* of all shares, by the first half of the hash */
};

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
	struct gm_token_options share;
	bool until_unread;
	uint64_t metadata;   /* the id of what it was published with; 0: none */
	uint64_t expires_ns; /* 0: never. name_expiry.c sets it, and the next one */
	size_t expiry_place; /* in the heap, from 1; 0: it is not there */
	char text[GM_BOUND_NAME_BYTES + 1];
	UT_hash_handle hh;
};

/* ---- functions of session.c */

/* Frees a session that has ended and holds no lease any more. */
void gm_session_finish(struct gm_session *session);
/* Makes a session without a token and an orphaned account, and puts it among the payers. id 0: a new one. NULL: no memory. */
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
int gm_account_payer_begin(struct gm_core *core, struct gm_account_payer *payer, uint64_t id);
/* Takes out a payer that holds nothing. */
void gm_account_payer_end(struct gm_core *core, struct gm_account_payer *payer);
/* For gm_limits.owner_of. */
bool gm_account_payer_owner(
	const struct gm_account_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner);
/* Ends a request without success: counts it, and calls done(). */
void gm_session_refuse(struct gm_request *request, gpumem_status status, const char *detail);
/* Call when charges of a session have changed on any device. */
void gm_session_settle_all(struct gm_env *env);

/* ---- functions of orphan.c */

/* Finds or makes the orphaned account of these clients. Copies the strings; those longer than GM_OWNER_NAME_BYTES count as none. The caller
 * owns a reference. -ENOMEM; -EMLINK: the user has GM_BOUND_ORPHANS_PER_UID of them, or as many as it leaves to others. */
int gm_orphan_get(
	struct gm_core *core, const struct gm_orphan_info *info, struct gm_orphan **ret_orphan);
/* The same for clients like this one. */
int gm_orphan_get_for(
	struct gm_core *core, const struct gm_session_info *info, struct gm_orphan **ret_orphan);
/* Makes the orphaned account of that id, which an earlier daemon had and whose record is there. The same
 * outcomes as gm_orphan_get(); -EEXIST: there is one of these clients already. */
int gm_orphan_adopt(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_orphan_info *info, struct gm_orphan **ret_orphan);
struct gm_orphan *gm_orphan_ref(struct gm_orphan *orphan);
void gm_orphan_unref(struct gm_orphan *orphan);
/* gm_account_payer_owner() for the payer of an orphaned account. */
bool gm_orphan_owner(
	const struct gm_account_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner);
/* See gm_core_orphan_each(). */
bool gm_orphan_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_orphan *orphan), void *ctx);

/* ---- functions of orphan_map.c */

/* The orphaned mapping of a session's process, which owns it. NULL: the device is not counted, or no memory. */
struct gm_orphan_map *gm_orphan_map_of(struct gm_session *session, struct gm_device *device);
/* The orphaned mapping of a process that opened a lease which another process made: the maker's orphaned account pays. The caller owns
 * a reference. */
struct gm_orphan_map *gm_orphan_map_of_opener(
	struct gm_device *device, const struct gm_session *session, struct gm_orphan *orphan);
void gm_orphan_map_unref(struct gm_orphan_map *map);
/* Notes that the process of this orphaned mapping has the chunk. orphaned mapping may be NULL. */
void gm_orphan_map_watch(struct gm_chunk *chunk, struct gm_orphan_map *map);
/* The chunk was destroyed after the last count, and before the next. */
void gm_orphan_map_destroyed(struct gm_device *device, struct gm_chunk *chunk);
/* Works out all orphaned mappings by a new count, and takes ownership of it. Returns whether something changed. */
bool gm_orphan_map_count(struct gm_device *device, struct gm_usage_sample *counted);
/* Asks for a count if one is due. */
void gm_orphan_map_tick(struct gm_device *device);
/* Puts back the orphaned mapping of a record that an earlier daemon wrote. -EOPNOTSUPP: nothing is counted on this
 * device, so there can be no orphaned mapping. -ENOMEM. */
int gm_orphan_map_adopt(struct gm_device *device, struct gm_orphan *orphan, uint64_t id,
	uint32_t place, const struct gm_record_orphan_map *record);
/* No more counts will come: forgets what was not counted yet, so that only orphaned mappings are left. */
void gm_orphan_map_retire(struct gm_device *device);
/* Forgives all orphaned mappings. */
void gm_orphan_map_end_all(struct gm_device *device);

#endif
