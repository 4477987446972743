/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_NAME_PRIVATE_H
#define GM_LEASE_NAME_PRIVATE_H

#include "daemon/lease/name.h"
#include "daemon/lease/session_private.h"

/* Puts back a name that an earlier daemon had. -ENOMEM; -EEXIST: it cannot be, or is there. */
int gm_name_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_name *record);
/* Call when a session is about to leave a lease that it opened. If there is no other reader, the name may end. Its
 * record must go before the records which show that there was a reader. */
void gm_name_reader_left(struct gm_lease *lease, const struct gm_ref *leaving);
/* Ends the lease's name. The caller ends the lease if nobody holds it. */
void gm_name_drop(struct gm_lease *lease);
/* Returns NULL if there is no such name. */
struct gm_name *gm_name_find(const struct gm_core *core, uid_t uid, const char *text);
bool gm_name_is_sound(const char *text);
/* Makes a name with no lease yet. NULL: no memory. */
struct gm_name *gm_name_make(struct gm_session *session, const char *text);
/* The name means this lease from now on. Writes the record first: that is the step that counts. On failure nothing has
 * changed. ret_old: the lease that it meant before, which the caller must settle; NULL: none. */
int gm_name_give(struct gm_name *name, struct gm_lease *lease, const struct gm_name_publish *what,
	struct gm_lease **ret_old);

#endif
