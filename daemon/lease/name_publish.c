/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names as clients use them: publishing a lease, attaching to it, and the end of names. This file promises that only
 * the name's audience learns of a name, and that only its owner ends or replaces it. It must never move a charge: a named
 * lease is charged as any other.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/ref_entry.h"
#include "daemon/lease/name_private.h"
#include "daemon/lease/name_publish.h"
#include "daemon/lease/name_expiry.h"
#include "daemon/lease/metadata_private.h"
#include "daemon/lease/commit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/token.h"
#include "common/text/uid_name.h"

/* ---- the end of names */

/* Ends a name, and its lease if nobody holds it. */
static void publish_end(struct gm_name *name, uint64_t *slice)
{
	struct gm_lease *lease = name->lease;

	gm_name_drop(lease);
	gm_lease_settle(lease, slice);
}

void gm_name_end_all(struct gm_core *core)
{
	uint64_t all = UINT64_MAX;

	while (core->names)
		publish_end(core->names, &all);
}

/* So many end in one tick. The next tick comes at once if there are more. */
#define NAMES_AT_ONCE 8

void gm_name_expire_some(struct gm_core *core)
{
	uint64_t now = gm_env_now(&core->env), slice = gm_orphan_work_slice(&core->env);

	for (int n = 0; n < NAMES_AT_ONCE && gm_name_expiry_next(core) <= now; n++)
		publish_end(core->expiries.names[0], &slice);
}

/* ---- publishing */

/* Whether the name is the asker's to replace, to end and to see. */
static bool publish_is_own(const struct gm_name *name, const struct gm_name_asker *asker)
{
	static const struct gm_token_hash none;

	if (asker->admin || (asker->session && asker->session == name->lease->maker))
		return true;
	return !gm_secret_equal(&name->domain, &none, sizeof(none)) &&
	       gm_secret_equal(&name->domain, &asker->domain, sizeof(none));
}

static gpumem_status publish_check(const struct gm_session *session, const struct gm_lease *lease,
	const struct gm_name_publish *what, char detail[GM_DETAIL_BYTES])
{
	if (lease->maker != session)
		return gm_text_refuse(GPUMEM_E_DENIED, detail,
			"only the client that made a lease can publish it");
	if (!gm_name_is_sound(what->text))
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"a name has 1 to %d bytes of printable UTF-8, without \"/\"",
			GM_BOUND_NAME_BYTES);
	if (!lease->chunks)
		return gm_text_refuse(GPUMEM_E_INVALID, detail, "the lease has no memory");
	if (lease->leaving)
		return gm_text_refuse(
			GPUMEM_E_BUSY, detail, "a part of the lease is being returned; try again");
	if (lease->transport == GM_TRANSPORT_IPC)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"memory of the ipc transport ends with the daemon, so it cannot be "
			"published; create the buffer on the fd transport");
	if (lease->name && (lease->name->uid != session->info.uid ||
				   strcmp(lease->name->text, what->text) != 0))
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s already; a buffer has one name",
			lease->name->text);
	return gm_token_check(lease, &what->share, detail);
}

static gpumem_status publish_lacks_metadata(char detail[GM_DETAIL_BYTES])
{
	return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
		"the daemon does not have all of the metadata, or cannot keep it right now; send it "
		"again");
}

static gpumem_status publish_try(struct gm_session *session, struct gm_lease *lease,
	const struct gm_name_publish *what, uint64_t *ret_version, char detail[GM_DETAIL_BYTES])
{
	struct gm_core *core = session->core;
	const struct gm_user *user = session->payer.user;
	char owner[GM_UID_NAME_PAYER_TEXT];
	gpumem_status status = publish_check(session, lease, what, detail);
	if (status != GPUMEM_OK)
		return status;
	if (lease->name || (what->again && what->asked && lease->published_by == what->asked)) {
		*ret_version = lease->version;
		return GPUMEM_OK;
	}

	struct gm_name *name = gm_name_find(core, session->info.uid, what->text);
	bool fresh = !name;
	if (name && !what->replace)
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the name %s is taken; remove it first, or ask to replace it", what->text);
	const struct gm_name_asker self = {.session = session, .domain = session->domain};
	if (name && !publish_is_own(name, &self))
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the name %s is taken, in another container of this user; choose another",
			what->text);
	if (fresh && gm_user_check(user, GM_USER_NAMES, 1))
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"%s has %llu names, as many as it leaves to others; the most is %d for all; "
			"remove one first",
			gm_uid_name_say_payer(user->uid, session->info.uid, owner),
			(unsigned long long)user->has[GM_USER_NAMES], GM_BOUND_NAMES);
	if (what->metadata_bytes && !gm_metadata_is_whole(lease, what->metadata_bytes))
		return publish_lacks_metadata(detail);
	if (!what->metadata_bytes)
		gm_metadata_drop_draft(lease);
	if (fresh)
		name = gm_name_make(session, what->text);

	gm_env_enter(&core->env);
	uint64_t slice = gm_orphan_work_slice(&core->env);
	struct gm_lease *old = NULL;
	int r = -ENOMEM;
	if (name)
		r = gm_name_give(name, lease, what, &old);
	if (old)
		gm_lease_settle(old, &slice);
	if (r == 0) {
		gm_lease_cancel_grows(session, lease);
		*ret_version = name->version;
	} else if (fresh) {
		free(name);
	}
	gm_env_leave(&core->env);
	if (r == -EAGAIN)
		return publish_lacks_metadata(detail);
	if (r < 0)
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another name");
	return GPUMEM_OK;
}

gpumem_status gm_lease_publish(struct gm_session *session, struct gm_lease *lease,
	const struct gm_name_publish *what, uint64_t *ret_version, char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = publish_try(session, lease, what, ret_version, detail);

	if (lease->maker == session)
		gm_metadata_drop_draft(lease);
	return status;
}

/* Finds a name that the asker may end; NULL: there is none. */
static struct gm_name *publish_find_own(
	struct gm_core *core, const struct gm_name_asker *asker, uid_t uid, const char *text)
{
	struct gm_name *name = gm_name_is_sound(text) ? gm_name_find(core, uid, text) : NULL;

	return name && publish_is_own(name, asker) ? name : NULL;
}

gpumem_status gm_core_which_name(struct gm_core *core, const struct gm_name_asker *asker, uid_t uid,
	const char *text, struct gm_name_which *ret_which)
{
	const struct gm_name *name = publish_find_own(core, asker, uid, text);

	if (!name)
		return GPUMEM_E_NOT_FOUND;
	*ret_which = (struct gm_name_which){.id = name->id, .version = name->version};
	return GPUMEM_OK;
}

gpumem_status gm_core_unpublish(
	struct gm_core *core, const struct gm_name_asker *asker, uid_t uid, const char *text)
{
	struct gm_name *name = publish_find_own(core, asker, uid, text);
	if (!name)
		return GPUMEM_E_NOT_FOUND;

	uint64_t slice = gm_orphan_work_slice(&core->env);
	gm_env_enter(&core->env);
	publish_end(name, &slice);
	gm_env_leave(&core->env);
	return GPUMEM_OK;
}

gpumem_status gm_core_unpublish_which(struct gm_core *core, const struct gm_name_asker *asker,
	uid_t uid, const char *text, const struct gm_name_which *which)
{
	struct gm_name_which now;
	gpumem_status status = gm_core_which_name(core, asker, uid, text, &now);

	if (status == GPUMEM_OK && (now.id != which->id || now.version != which->version))
		status = GPUMEM_E_NOT_FOUND;
	return status == GPUMEM_OK ? gm_core_unpublish(core, asker, uid, text) : status;
}

gpumem_status gm_core_expire(struct gm_core *core, const struct gm_name_asker *asker, uid_t uid,
	const char *text, uint64_t lifetime_ns)
{
	struct gm_name *name = publish_find_own(core, asker, uid, text);
	if (!name)
		return GPUMEM_E_NOT_FOUND;
	if (gm_name_expiry_make_room(core) < 0)
		return GPUMEM_E_HOST_MEMORY;

	uint64_t now = gm_env_now(&core->env);
	gm_env_enter(&core->env);
	gm_name_expiry_set(name, lifetime_ns ? gm_u64_plus(now, lifetime_ns) : 0);
	(void)gm_commit_name(name); /* replacing a record never fails */
	gm_env_leave(&core->env);
	return GPUMEM_OK;
}

/* ---- attaching */

/* Numbers of trust domains end with the daemon, or with the last process of the domain. So a name
 * knows its domain by the hash. */
static bool publish_is_for(const struct gm_name *name, const struct gm_session *session,
	const gid_t *groups, size_t n_groups)
{
	static const struct gm_token_hash none;

	if (name->share.audience == GM_NAME_AUDIENCE_DOMAIN &&
		!gm_secret_equal(&name->domain, &none, sizeof(none)))
		return gm_secret_equal(&name->domain, &session->domain, sizeof(name->domain));
	return gm_token_is_for(&name->share, name->lease, session, groups, n_groups);
}

gpumem_status gm_session_attach(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease)
{
	if (again && gm_session_find_open(session, asked, ret_lease))
		return GPUMEM_OK; /* the name may mean another lease since */
	const struct gm_name *name =
		gm_name_is_sound(text) ? gm_name_find(session->core, uid, text) : NULL;

	if (!name || !publish_is_for(name, session, groups, n_groups))
		return GPUMEM_E_NOT_FOUND;
	return gm_token_open(session, name->lease, name->share.read_only, asked, ret_lease);
}

gpumem_status gm_session_find_metadata(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, struct gm_metadata_info *ret)
{
	const struct gm_name *name =
		gm_name_is_sound(text) ? gm_name_find(session->core, uid, text) : NULL;

	if (!name || !publish_is_for(name, session, groups, n_groups))
		return GPUMEM_E_NOT_FOUND;
	gm_lease_metadata(name->lease, ret);
	return GPUMEM_OK;
}

/* ---- for whoever looks */

void gm_core_name_each(const struct gm_core *core, const struct gm_name_asker *asker,
	uint64_t after, bool (*visit)(void *ctx, const struct gm_name_info *name), void *ctx)
{
	/* In the order in which they were made, which is that of their ids. */
	for (const struct gm_name *name = core->names; name; name = name->hh.next) {
		const struct gm_lease *lease = name->lease;
		const struct gm_session *maker = gm_lease_maker(lease);
		if (name->id <= after)
			continue;
		struct gm_metadata_info metadata;
		gm_lease_metadata(lease, &metadata);
		struct gm_name_info info = {
			.id = name->id,
			.uid = name->uid,
			.text = name->text,
			.version = name->version,
			.share = name->share,
			.until_unread = name->until_unread,
			.own = publish_is_own(name, asker),
			.made = maker != NULL,
			.payer = maker ? gm_session_id(maker) : gm_orphan_id(lease->orphan),
			.readers = lease->n_opens,
			.lease = lease->id,
			.bytes = lease->bytes,
			.user_bytes = lease->user_bytes,
			.tag = lease->tag,
			.device = lease->device->number,
			.since_ns = name->since_ns,
			.expires_ns = name->expires_ns,
			.metadata_bytes = metadata.size,
		};
		if (!visit(ctx, &info))
			return;
	}
}
