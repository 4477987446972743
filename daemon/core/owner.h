/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_OWNER_H
#define GM_CORE_OWNER_H

#include <stdint.h>

/* Whom a charge counts for: the process, and through it its uid, gid, unit or container. */

enum gm_owner_kind {
	GM_OWNER_UID,
	GM_OWNER_GID, /* a process's own group, not its supplementary ones */
	GM_OWNER_UNIT,
	GM_OWNER_CONTAINER,
	GM_OWNER_NAME,    /* what a client calls itself */
	GM_OWNER_SESSION, /* one client; run time only, and gone with it */
	GM_OWNER_KINDS,
};

#define GM_OWNER_NAME_BYTES 255

/* Made by the functions below, which fill all of it: it is hashed as it is. */
struct gm_owner {
	uint64_t kind; /* enum gm_owner_kind */
	uint64_t id;   /* uid, gid, session */
	char name[GM_OWNER_NAME_BYTES + 1];
};
void gm_owner_by_id(enum gm_owner_kind kind, uint64_t id, struct gm_owner *ret_owner);
/* -EINVAL: empty, too long, or a kind that has no names. */
int gm_owner_by_name(enum gm_owner_kind kind, const char *name, struct gm_owner *ret_owner);

#define GM_OWNER_TEXT (GM_OWNER_NAME_BYTES + 16)
/* "uid 1002", "unit training.service", "client 17 " …; the configuration's names of the kinds. */
const char *gm_owner_format(const struct gm_owner *owner, char text[GM_OWNER_TEXT]);
/* "uid:1002", as gm_owner_parse() reads it. */
const char *gm_owner_name(const struct gm_owner *owner, char text[GM_OWNER_TEXT]);
/* "uid:1002", "gid:", "unit:", "container:", "client:NAME", "session:17". Ids are numbers here. 0
 * or -EINVAL. */
int gm_owner_parse(const char *text, struct gm_owner *ret_owner);

#endif
