/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_NAME_H
#define GM_LEASE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/status.h"
#include "common/bounds.h"
#include "daemon/books/text_say.h"
#include "daemon/books/token_hash.h"
#include "daemon/lease/lease_token.h"

/*
 * Names for leases. A name keeps its lease, so that memory outlives its maker: the weights of a model
 * stay on the device while processes come and go. The maker publishes the lease under a name when it
 * has filled it; nobody else can see it before. Clients of the name's audience may attach.
 *
 * A name belongs to a uid: other uids have names of their own. Publishing under a name that exists
 * replaces it in one step. Clients that attached before keep the lease that they have. The maker's uid
 * pays until the name is gone and the last client that attached has left. A name can end by itself, at a
 * time on core's clock, which goes on while the daemon restarts.
 */

struct gm_core;
struct gm_lease;
struct gm_session;

struct gm_name_publish {
	const char *text; /* 1 to 63 bytes of printable UTF-8 without "/" */
	struct gm_token_options share;
	bool until_unread;       /* the name ends when the last session that attached has left */
	bool replace;            /* the name may exist: it gets this lease instead of its own */
	uint64_t metadata_bytes; /* of the lease's draft (metadata.h); 0: it has no metadata */
	uint64_t lifetime_ns;    /* the name ends after this time; 0: never */
	uint64_t asked;          /* the id of the client's packet; 0: none */
	bool again;              /* the packet may have been here before */
};

/*
 * Publishes a lease under a name of the session's uid. To publish it again under the name that it has
 * changes nothing and succeeds. So does a packet that published the lease when it was here before,
 * whatever became of the name since. Returns GPUMEM_OK and the version: how often the name was published.
 *   GPUMEM_E_DENIED       the session did not make the lease
 *   GPUMEM_E_INVALID      the name, or the audience
 *   GPUMEM_E_BUSY         the name exists, and may not be replaced or is of another trust domain of
 *                         the uid; or the lease has another name
 *   GPUMEM_E_LIMIT        the uid has as many names as it leaves to others (GM_BOUND_NAMES)
 *   GPUMEM_E_UNSUPPORTED  the lease was not made for this audience, or ends with the daemon (ipc)
 *   GPUMEM_E_NOT_FOUND    the metadata is not there, or cannot be kept right now: it must be sent again
 *   GPUMEM_E_HOST_MEMORY
 * detail says cause and remedy. However it ends, the lease has no draft of metadata any more.
 */
gpumem_status gm_lease_publish(struct gm_session *session, struct gm_lease *lease,
	const struct gm_name_publish *what, uint64_t *ret_version, char detail[GM_DETAIL_BYTES]);

/* Opens the lease of a uid's name, as gm_session_open_by() does. A name that does not exist and one
 * for another audience look the same: GPUMEM_E_NOT_FOUND. */
gpumem_status gm_session_attach(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease);

/* Who asks about names. An asker does not see names of its uid that were published in another trust domain, for
 * example in another container. */
struct gm_name_asker {
	bool admin;                       /* may do everything */
	const struct gm_session *session; /* NULL: none */
	struct gm_token_hash domain;      /* gm_core_domain(); 0: a domain of one client */
};

/* Ends a name. Those who attached keep the lease. GPUMEM_E_NOT_FOUND: there is no such name, or it is of
 * another trust domain. */
gpumem_status gm_core_unpublish(
	struct gm_core *core, const struct gm_name_asker *asker, uid_t uid, const char *text);

/* Tells one publication under a name from all others: no two names have the same id, and replacing the lease
 * changes the version. */
struct gm_name_which {
	uint64_t id, version;
};
/* Which publication the name stands for now. GPUMEM_E_NOT_FOUND: as with gm_core_unpublish() */
gpumem_status gm_core_which_name(struct gm_core *core, const struct gm_name_asker *asker, uid_t uid,
	const char *text, struct gm_name_which *ret_which);
/* Ends the name only if it still stands for this publication, so that a repeated request ends no newer one.
 * GPUMEM_E_NOT_FOUND: as with gm_core_unpublish(), or the publication has ended */
gpumem_status gm_core_unpublish_which(struct gm_core *core, const struct gm_name_asker *asker,
	uid_t uid, const char *text, const struct gm_name_which *which);

/* Sets when the name ends: after this time, counted from now; 0: it does not end by itself. GPUMEM_E_NOT_FOUND: as
 * with gm_core_unpublish(). GPUMEM_E_HOST_MEMORY */
gpumem_status gm_core_expire(struct gm_core *core, const struct gm_name_asker *asker, uid_t uid,
	const char *text, uint64_t lifetime_ns);

struct gm_name_info {
	uint64_t id; /* of the name; it grows with time */
	uid_t uid;
	const char *text;
	uint64_t version;
	struct gm_token_options share;
	bool until_unread;
	bool own;         /* it is of the asker's trust domain, or the asker may do everything */
	bool made;        /* the process that made the lease still has it */
	uint64_t payer;   /* the session or the orphaned account that is charged for it */
	uint32_t readers; /* how often sessions attached and have not left */
	uint64_t lease, bytes, user_bytes;
	const char *tag;
	uint32_t device;
	uint64_t since_ns;   /* when this version was published */
	uint64_t expires_ns; /* when it ends; 0: never */
	uint64_t metadata_bytes;
};
/* Visits the names in order of their ids, those above after, until visit returns false. */
void gm_core_name_each(const struct gm_core *core, const struct gm_name_asker *asker,
	uint64_t after, bool (*visit)(void *ctx, const struct gm_name_info *name), void *ctx);

#endif
