/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_CHUNK_H
#define GM_BOOKS_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "common/types.h"
#include "daemon/user/user.h"

/*
 * A chunk: one physical allocation that the daemon owns. Core decides what becomes of it. The
 * backend fills its handle, and core never looks inside.
 *
 * The states of a chunk:
 *
 *   creating -> leased -> pooled -> leased ...   (its client said that it unmapped it)
 *      |          |         `-----> doomed       (trimmed, decayed, or room is needed)
 *      |          |---------------> doomed       (its client died, or others may still map it)
 *      |          `-> orphaned --> doomed       (the same, and a process was seen to have it)
 *      |-> pooled                                (reserve, or nobody waits for it any more)
 *      `-> doomed, or freed when it failed or was called off
 *
 * A request may have some of its chunks while others are still being created. The chunks that it
 * has are leased without a lease: they are charged, and no client has seen them yet.
 *
 * A doomed chunk belongs to the device thread. Core frees the struct when gm_core_destroyed()
 * reports that the chunk is gone.
 */

/* The largest size class (a power of two; 0: GM_CHUNK_MIN) that is not larger than this. */
static inline unsigned gm_chunk_class(uint64_t bytes)
{
	return (unsigned)(63 - __builtin_clzll(bytes)) - GM_CHUNK_MIN_SHIFT;
}

/* daemon/tenant/domain.c numbers trust domains: equal numbers mean the same domain. No number is
 * used twice. That is why it has 64 bits: a client can make as many domains as it can make
 * connections. */
typedef uint64_t gm_domain;
/* The domain of a chunk that was never leased: the driver zeroed it, and any domain may have it. */
#define GM_DOMAIN_FRESH ((gm_domain)0)
/* The domain of a lease whose maker ended before this daemon began. Nobody is in it. */
#define GM_DOMAIN_NOBODY UINT64_MAX

/* Who may have seen a chunk's handle. It matters for ipc blocks, because a client can keep a copy of the
 * handle. */
struct gm_backend_seen {
	gm_domain domain; /* GM_DOMAIN_FRESH: nobody */
	uid_t payer_uid;  /* the user that pays for that domain */
	bool several;     /* other domains may have seen it, too */
};

enum gm_chunk_state {
	GM_CHUNK_CREATING,
	GM_CHUNK_POOLED,
	GM_CHUNK_LEASED,
	GM_CHUNK_ORPHANED,
	GM_CHUNK_DOOMED,
};

/* Where a chunk's file descriptor is counted (fds.h). */
enum gm_fds_column {
	GM_FDS_NONE,
	GM_FDS_LEASED, /* leased, or admitted for a lease */
	GM_FDS_SPARE,  /* pooled, or under creation for nobody */
	GM_FDS_DYING,  /* doomed */
};

/* How the backend names what it made. */
struct gm_backend_handle {
	int fd;                           /* fd transport; -1 when empty */
	uint64_t native;                  /* the backend's own name for it */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
};

struct gm_orphan_map;
struct gm_lease;
struct gm_request;
struct gm_worker_queue_session;
struct gm_worker_queue_user;

struct gm_chunk {
	uint64_t id;
	uint64_t bytes;
	uint32_t device;
	/* The domain that may have seen it. Leasing the chunk sets it. An ipc block belongs to its
	 * domain from the start: the backend may have put it where that domain had one before. */
	gm_domain domain;
	uid_t payer_uid; /* who pays, or paid last; (uid_t)-1: nobody did */
	bool several;    /* other domains may have seen it, too */
	/* It is never pooled: it is ipc and its domain has only one client, or it was made to measure. */
	bool single;
	enum gm_transport transport; /* FD or IPC, never AUTO */
	enum gm_chunk_state state;
	bool retried;      /* the backend was out of memory once */
	bool marked;       /* its client has returned it: it is in gm_lease.leaving */
	bool reserve;      /* under creation for the reserve */
	bool after_doomed; /* there is room for it only when what is doomed by then is gone */
	bool last;         /* doomed because the daemon ends */
	bool decayed;      /* doomed because nobody took it from the pool in time */
	bool adopted;      /* an earlier daemon made it, so it is never pooled */
	bool watched;      /* doomed: counts before and after its destruction are wanted */
	bool unseen;       /* watched, but the last count does not have its process: another count
			    * must come before its destruction */
	uint32_t place;    /* of its record; 0: none */
	struct gm_backend_handle handle;

	struct gm_request *request; /* the request that waits for it; NULL: nobody does */
	struct gm_lease *lease;     /* the lease that holds it */
	uint64_t index;             /* its place in the lease; never used twice there */
	uint64_t asked;             /* gm_request.id of the request that brought it to the lease */
	uint64_t pooled_at;         /* ns */
	struct gm_orphan *orphan;   /* orphaned: who is charged for it */
	uint64_t orphan_ns;         /* when to look again whether it is gone */
	uint8_t orphan_level;
	pid_t debtor; /* the process that had it last; 0: nobody looks */
	struct gm_orphan_map
		*map; /* of the process that had it last; NULL: nobody looks (orphan_map.c) */

	/* Of one list at a time (utlist): a request's, a lease's or a bucket's. */
	struct gm_chunk *prev, *next;
	struct gm_chunk *leaving_next;            /* if marked */
	struct gm_chunk *age_prev, *age_next;     /* of its domain's pooled chunks, oldest first */
	struct gm_chunk *decay_prev, *decay_next; /* of the pooled chunks that decay; else NULL */
	UT_hash_handle hh; /* of all chunks, by id; doomed ones are not in it */

	/* Kept by fds.c. */
	enum gm_fds_column fds_column;
	struct gm_user_charge fds;            /* GM_FDS_LEASED: of the user that it counts for */
	struct gm_chunk *fds_prev, *fds_next; /* of those that wait for a descriptor; else NULL */
	uint64_t turn;                        /* of its creation */

	int unkept; /* the broker's own: the keeper did not take it, for this errno */

	/* The device thread's own, from the submission of a job to the call that reports its end. The
	 * lists are those of daemon/backend/worker_queue.c. */
	struct {
		uint64_t turn; /* of the session that wants it */
		int result;
		uint64_t discarded; /* bytes that were freed already, from the start */
		uint64_t queued;    /* how many counts the thread had begun by then */
		bool destroy;
		bool waits; /* a creation that has not begun */
		uint64_t
			number; /* of a destruction; or of the last one that a creation waits for */
		struct gm_worker_queue_user *user;
		struct gm_worker_queue_session *session;
		struct gm_chunk *prev, *next;         /* of a user's or a session's jobs */
		struct gm_chunk *all_prev, *all_next; /* of all destructions */
	} job;
};

#endif
