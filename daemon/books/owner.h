/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_OWNER_H
#define GM_BOOKS_OWNER_H

#include <stdint.h>

/* Owners: whom a charge counts for. A charge counts for the session, and for the uid, gid, unit, container, name
 * and run (of gpumem-run) of its process. */

enum gm_owner_kind {
	GM_OWNER_UID,
	GM_OWNER_GID, /* the process's own group, not its supplementary ones */
	GM_OWNER_UNIT,
	GM_OWNER_CONTAINER,
	GM_OWNER_NAME,    /* the name that a client gave itself */
	GM_OWNER_SESSION, /* one client; its limits are set at run time, and end with it */
	/* All processes of one gpumem-run. Each user has its own runs, in each container: runs of two users may have the
	 * same name. The limit of a run comes with its first client, and ends with the last. */
	GM_OWNER_RUN,
	GM_OWNER_KINDS,
};

#define GM_OWNER_NAME_BYTES 255

/* Must be made by the functions below. They fill every byte, because the struct is hashed as it is.
 */
struct gm_owner {
	uint64_t kind; /* enum gm_owner_kind */
	uint64_t id;   /* of a uid, gid or session; of a run, gm_owner_run_id() */
	char name[GM_OWNER_NAME_BYTES + 1];
};
void gm_owner_by_id(enum gm_owner_kind kind, uint64_t id, struct gm_owner *ret_owner);
/* A run gets its id from gm_session_owner(). -EINVAL: the name is NULL, empty, too long or not printable UTF-8, or
 * the kind has no names. */
int gm_owner_by_name(enum gm_owner_kind kind, const char *name, struct gm_owner *ret_owner);

struct gm_token_hash_key;
/* For a table of owners. Clients choose the names of their runs, but cannot choose names that collide
 * under a key that they do not know. */
uint32_t gm_owner_hash(const struct gm_token_hash_key *key, const struct gm_owner *owner);

/* What tells runs of the same name apart. The container may be NULL or empty: there is none. */
uint64_t gm_owner_run_id(uint32_t uid, const char *container);

#define GM_OWNER_TEXT (GM_OWNER_NAME_BYTES + 16)
/* For a person: "user ann", "uid 1002" if the name is not known, "unit training.service". The other
 * kinds have the configuration's names. */
const char *gm_owner_format(const struct gm_owner *owner, char text[GM_OWNER_TEXT]);
/* "uid:1002", as gm_owner_parse() reads it. */
const char *gm_owner_name(const struct gm_owner *owner, char text[GM_OWNER_TEXT]);
/* Reads "uid:1002", "gid:100", "unit:NAME", "container:NAME", "client:NAME", "run:NAME" or "session:17".
 * A uid or gid must be a number. A run belongs to no user yet. Returns 0 or -EINVAL. */
int gm_owner_parse(const char *text, struct gm_owner *ret_owner);

#endif
