/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_SESSION_H
#define GM_LEASE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/bounds.h"
#include "daemon/books/chunk.h"
#include "common/text/limit_values.h"
#include "daemon/books/owner.h"
#include "daemon/books/record.h"
#include "daemon/books/token_hash.h"

/* Sessions and orphaned accounts. A session is a client process, whether it is connected or not. */

struct gm_core;
struct gm_session;
struct gm_orphan;

/* Identity of a client. Core copies the strings, and is the only one that keeps them. */
struct gm_session_info {
	pid_t pid;
	uint64_t began; /* when the process began, in ticks since the boot; 0: not known */
	uint8_t boot[GM_RECORD_BOOT_BYTES]; /* the boot during which it did */
	uid_t uid;        /* whose process it is: who may open a share, who sees it */
	uid_t payer_uid;  /* who pays: bounds, turns and limits of users. 0: the same, or root */
	bool subordinate; /* payer_uid pays even if it is 0 */
	gid_t gid;
	gm_domain domain;
	/* The name of the domain, which stays the same after a restart; core keeps its hash. NULL: it is a
	 * domain of one client. */
	const char *domain_key;
	bool pooling; /* false: what it returns is never pooled (trust = client, unmapped uid) */
	void *user;   /* the daemon's record of the client; NULL while quarantined */
	/* Further owners that limits can be given to; see gm_session_container(). NULL or "": none. The name
	 * is the client's own word and can only tighten its limits. A string that is longer than
	 * its field in struct gm_record_client counts as none. */
	const char *unit, *container, *name;
	/* The run of gpumem-run that the client says it is part of, and the limit of that run: max, and a priority
	 * that can only lower the session's. The limit holds for all sessions of the user's run together, and the
	 * first of them sets it. NULL or "": none. */
	const char *run;
	struct gm_limit_values run_limit;
	/* The rest of what struct gm_identity says about the process. */
	const char *scope, *command;
	bool loose; /* gm_cgroup.name_is_loose */
	bool confined, own_pid_namespace;
	uint64_t since_ns; /* when the client joined; core sets it */
};

/* The name of its container in limits: its own, or its path where the name proves nothing. NULL: none. */
static inline const char *gm_session_container(const struct gm_session_info *info)
{
	const char *name = info->loose ? info->scope : info->container;
	return name && strnlen(name, GM_OWNER_NAME_BYTES + 1) <= GM_OWNER_NAME_BYTES ? name : NULL;
}

/* The uid that bounds, turns and limits of users count by: uid, or the owner of the subordinate
 * uids that it is one of. It never changes. */
static inline uid_t gm_session_payer_uid(const struct gm_session_info *info)
{
	return info->payer_uid || info->subordinate ? info->payer_uid : info->uid;
}

/* The hash of a trust domain's key; 0 for NULL. */
struct gm_token_hash gm_core_domain(const struct gm_core *core, const char *key);

/* Makes a session and its resume token. Core keeps only the token's hash. The session does not outlive the daemon before
 * gm_session_keep(). -ENOMEM; -ESHUTDOWN;
 * -ENOSPC: the user has as many sessions as it leaves to others (GM_BOUND_SESSIONS); -EMLINK: its
 * sessions are in too many units, containers and groups (GM_BOUND_ORPHANS_PER_UID). */
int gm_session_new(struct gm_core *core, const struct gm_session_info *info,
	uint8_t ret_token[GM_TOKEN_BYTES], struct gm_session **ret_session);
/* Writes the session's record, with the version of the page that its client has, and whether that page may not outlive the
 * daemon. Call this when the keeper has what it is to hold for the client, and before the client hears of the session.
 * Only the first write can fail: -ENOSPC, -ENOMEM. */
int gm_session_keep(struct gm_session *session, uint32_t page_version, bool page_unsafe);
uint64_t gm_session_id(const struct gm_session *session);
const struct gm_session_info *gm_session_info(const struct gm_session *session);
void gm_session_set_user(struct gm_session *session, void *user);
/* What the session is charged on a device. */
uint64_t gm_session_held(const struct gm_session *session, uint32_t device);
/* The lowest max of all limits that apply to it, alone or with others; UINT64_MAX: none. */
uint64_t gm_session_max(const struct gm_session *session, uint32_t device);
/* What the session could be granted now, by all limits and guarantees. */
uint64_t gm_session_room(const struct gm_session *session, uint32_t device);
uint64_t gm_session_lease_count(const struct gm_session *session);
/* How many of its requests for memory were refused since this daemon knows it, and how many wait now. */
uint64_t gm_session_refusal_count(const struct gm_session *session);
uint64_t gm_session_waiting_count(const struct gm_session *session);

/* The connection ended, but the process lives. Its pending requests end as cancelled. Its chunks
 * are quarantined and stay charged. */
void gm_session_quarantine(struct gm_session *session);
/* The client is back with its token (compared in constant time), and its chunks are leased again. It
 * gets a new token; see gm_session_confirm().
 * -EACCES: wrong token. -EBUSY: not quarantined. */
int gm_session_resume(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], void *user,
	uint8_t ret_token[GM_TOKEN_BYTES]);
/* Names the run that the session is part of, for messages and lists. "" and any name but the first change nothing. The name is in
 * no record: clients repeat it when they come back. */
void gm_session_name_run(struct gm_session *session, const char *name);
/* Returns the first name that the session gave its run; "": none. */
const char *gm_session_run_name(const struct gm_session *session);
/* The client could not be told its new token: makes the old one valid again. */
void gm_session_keep_token(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES]);
/* The client has its new token. Until then, the token that it was resumed with is valid, too. */
void gm_session_confirm(struct gm_session *session);
/* Cancels pending requests while done() can still use the session. */
void gm_session_cancel(struct gm_session *session);
/*
 * Ends and frees the session. Its pending requests end as cancelled. With _unmapped, the client
 * said that it unmapped everything (goodbye), so its chunks may be pooled. With _died, the process
 * died and its chunks are destroyed.
 */
void gm_session_end_unmapped(struct gm_session *session);
void gm_session_end_died(struct gm_session *session);

/*
 * Orphaned accounts. an orphaned account is the account of what clients left behind: shared leases that others still hold, and orphaned
 * memory. There is one for all clients that agree in this.
 */
struct gm_orphan_info {
	uid_t uid;
	uid_t payer_uid;  /* who pays. 0: the same, or root */
	bool subordinate; /* payer_uid pays even if it is 0 */
	gid_t gid;
	const char *unit, *container; /* as in limits; NULL or "": none */
};
uint64_t gm_orphan_id(const struct gm_orphan *orphan);
const struct gm_orphan_info *gm_orphan_info(const struct gm_orphan *orphan);
/* What is charged to the orphaned account on a device, and the part of it that is orphaned. */
uint64_t gm_orphan_held(const struct gm_orphan *orphan, uint32_t device);
uint64_t gm_orphan_orphaned(const struct gm_orphan *orphan, uint32_t device);

#endif
