/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for leases. This file promises that a name leads to a whole lease that its maker published,
 * that only the name's audience learns of it, and that replacing a lease is one step: one record says
 * what the name means. It must never move a charge: a named lease is charged as any other.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/token.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/device/reserve.h"

/* Names come from clients, who must not be able to choose colliding ones. So the table is keyed by
 * their hash under the secret key. */
static struct gm_token_hash name_hash(const struct gm_core *core, uid_t uid, const char *text)
{
	char whole[16 + GM_LIMIT_NAME_BYTES];

	snprintf(whole, sizeof(whole), "%u/%s", uid, text);
	return gm_token_hash_text(&core->token_key, whole);
}

static struct gm_name *name_find(const struct gm_core *core, uid_t uid, const char *text)
{
	struct gm_token_hash hash = name_hash(core, uid, text);
	struct gm_name *name;

	HASH_FIND(hh, core->names, &hash, sizeof(hash), name);
	return name && name->uid == uid && strcmp(name->text, text) == 0 ? name : NULL;
}

static bool name_is_sound(const char *text)
{
	return gm_name_ok(text) && text[0] && !strchr(text, '/');
}

/* Charges the user of its lease. */
static void name_charge(struct gm_name *name)
{
	gm_user_charge_init(&name->charge, name->lease->estate->charge.user, GM_USER_NAMES);
	gm_user_charge_add(&name->charge, 1);
}

/* Puts a name that has its lease into the tables. -ENOMEM */
static int name_add(struct gm_name *name)
{
	struct gm_core *core = name->lease->core;

	name->hash = name_hash(core, name->uid, name->text);
	HASH_ADD(hh, core->names, hash, sizeof(name->hash), name);
	if (!GM_TABLE_ADDED(name))
		return -ENOMEM;
	name->lease->name = name;
	name->lease->version = name->version;
	name->lease->published_by = name->asked;
	name_charge(name);
	return 0;
}

/* The name and its lease part. The caller ends the lease if nobody has it. */
static struct gm_lease *name_part(struct gm_name *name)
{
	struct gm_lease *lease = name->lease;

	assert(lease->name == name);
	gm_user_charge_deinit(&name->charge);
	lease->name = NULL;
	name->lease = NULL;
	return lease;
}

static void name_free(struct gm_name *name)
{
	struct gm_core *core = name->core;

	gm_env_erase(&core->env, &name->place);
	GM_STEP("unpublish: record erased");
	gm_expiry_set(name, 0);
	HASH_DEL(core->names, name);
	free(name);
}

static void name_end(struct gm_name *name, uint64_t *slice)
{
	struct gm_lease *lease = name_part(name);

	name_free(name);
	gm_lease_settle(lease, slice);
}

void gm_name_reader_left(struct gm_lease *lease, const struct gm_hold *leaving)
{
	struct gm_name *name = lease->name;
	const struct gm_hold *hold;

	if (!name || !name->until_unread)
		return;
	DL_FOREACH (lease->holds, hold)
		if (hold != &lease->own && hold != leaving)
			return;
	gm_name_drop(lease);
}

void gm_name_drop(struct gm_lease *lease)
{
	struct gm_name *name = lease->name;

	name_part(name);
	name_free(name);
}

void gm_name_end_all(struct gm_core *core)
{
	uint64_t all = UINT64_MAX;

	while (core->names)
		name_end(core->names, &all);
}

/* So many end in one tick. The next tick comes at once if there are more. */
#define NAMES_AT_ONCE 8

void gm_name_expire_some(struct gm_core *core)
{
	uint64_t now = gm_env_now(&core->env), slice = gm_estate_work_slice(&core->env);

	for (int n = 0; n < NAMES_AT_ONCE && gm_expiry_next(core) <= now; n++)
		name_end(core->expiries.names[0], &slice);
}

int gm_name_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_name *record)
{
	if (!name_is_sound(record->text) || name_find(lease->core, record->head.uid, record->text))
		return -EEXIST;

	struct gm_name *name = calloc(1, sizeof(*name));
	if (!name || gm_expiry_make_room(lease->core) < 0) {
		free(name);
		return -ENOMEM;
	}
	name->core = lease->core;
	name->id = id;
	name->place = place;
	name->lease = lease;
	name->uid = record->head.uid;
	strcpy(name->text, record->text);
	name->domain = record->domain;
	name->version = record->version;
	name->asked = record->request;
	name->since_ns = record->since_ns;
	name->until_unread = record->until_unread;
	name->metadata = record->metadata;
	name->share = (struct gm_share_options){
		.audience = (enum gm_audience)record->audience,
		.id = record->audience_id,
		.read_only = record->read_only,
	};
	if (name_add(name) < 0) {
		free(name);
		return -ENOMEM;
	}
	gm_expiry_set(name, record->expires_ns);
	return 0;
}

/* Whether the name is the asker's to replace, to end and to see. */
static bool name_is_own(const struct gm_name *name, const struct gm_name_asker *asker)
{
	static const struct gm_token_hash none;

	if (asker->admin || (asker->session && asker->session == name->lease->maker))
		return true;
	return !gm_secret_equal(&name->domain, &none, sizeof(none)) &&
	       gm_secret_equal(&name->domain, &asker->domain, sizeof(none));
}

struct gm_token_hash gm_core_domain(const struct gm_core *core, const char *key)
{
	static const struct gm_token_hash none;

	return key ? gm_token_hash_text(&core->token_key, key) : none;
}

/* ---- publishing */

static gpumem_status name_check(const struct gm_session *session, const struct gm_lease *lease,
	const struct gm_publish *what, char detail[GM_DETAIL_BYTES])
{
	if (lease->maker != session)
		return gm_refuse(GPUMEM_E_DENIED, detail,
			"only the client that made a lease can publish it");
	if (!name_is_sound(what->text))
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"a name has 1 to %d bytes of printable UTF-8, without \"/\"",
			GM_LIMIT_NAME_BYTES);
	if (!lease->chunks)
		return gm_refuse(GPUMEM_E_INVALID, detail, "the lease has no memory");
	if (lease->leaving)
		return gm_refuse(
			GPUMEM_E_BUSY, detail, "a part of the lease is being returned; try again");
	if (lease->transport == GM_TRANSPORT_IPC)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"memory of the ipc transport ends with the daemon, so it cannot be "
			"published; create the buffer on the fd transport");
	if (lease->name && (lease->name->uid != session->info.uid ||
				   strcmp(lease->name->text, what->text) != 0))
		return gm_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s already; a buffer has one name",
			lease->name->text);
	return gm_share_check(lease, &what->share, detail);
}

/* A new name, or the one that exists, with no lease yet. NULL: no memory. */
static struct gm_name *name_make(struct gm_session *session, const char *text)
{
	struct gm_core *core = session->core;
	struct gm_name *name = calloc(1, sizeof(*name));
	if (!name)
		return NULL;

	name->core = core;
	name->id = core->env.ops.new_id(core->env.ctx);
	name->uid = session->info.uid;
	strcpy(name->text, text);
	return name;
}

static gpumem_status name_lacks_metadata(char detail[GM_DETAIL_BYTES])
{
	return gm_refuse(GPUMEM_E_NOT_FOUND, detail,
		"the daemon does not have all of the metadata, or cannot keep it right now; send it "
		"again");
}

/* The name means this lease from now on. Writes the record first: that is the step that counts. On
 * failure nothing has changed. */
static int name_give(struct gm_name *name, struct gm_lease *lease, const struct gm_publish *what)
{
	struct gm_name next = *name;
	uint64_t now = gm_env_now(&name->core->env);

	next.lease = lease;
	next.domain = lease->maker->domain;
	next.version++;
	next.asked = what->asked;
	next.share = what->share;
	next.until_unread = what->until_unread;
	next.since_ns = now;
	next.metadata = 0;
	next.expires_ns = what->lifetime_ns ? gm_plus(now, what->lifetime_ns) : 0;
	int r = gm_expiry_make_room(name->core);
	if (r == 0 && lease->draft)
		r = gm_metadata_commit(lease, next.version, &next.metadata);
	if (r == 0)
		r = gm_commit_name(&next);
	GM_STEP("publish: name recorded");
	if (r < 0)
		return r;

	name->place = next.place;
	struct gm_lease *old = name->lease;
	if (old)
		name_part(name);
	name->domain = next.domain;
	name->version = next.version;
	name->asked = next.asked;
	name->share = next.share;
	name->until_unread = next.until_unread;
	name->since_ns = next.since_ns;
	name->metadata = next.metadata;
	name->lease = lease;
	if (old) {
		lease->name = name;
		lease->version = name->version;
		lease->published_by = name->asked;
		name_charge(name);
	} else {
		r = name_add(name);
	}
	if (r < 0) {
		gm_env_erase(&name->core->env, &name->place);
		return r;
	}

	gm_metadata_publish(lease);
	gm_expiry_set(name, next.expires_ns);
	uint64_t slice = gm_estate_work_slice(&lease->core->env);
	if (old)
		gm_lease_settle(old, &slice);
	return 0;
}

static gpumem_status name_publish(struct gm_session *session, struct gm_lease *lease,
	const struct gm_publish *what, uint64_t *ret_version, char detail[GM_DETAIL_BYTES])
{
	struct gm_core *core = session->core;
	const struct gm_user *user = session->payer.user;
	char owner[GM_UID_NAME_PAYER_TEXT];
	gpumem_status status = name_check(session, lease, what, detail);
	if (status != GPUMEM_OK)
		return status;
	if (lease->name || (what->again && what->asked && lease->published_by == what->asked)) {
		*ret_version = lease->version;
		return GPUMEM_OK;
	}

	struct gm_name *name = name_find(core, session->info.uid, what->text);
	bool fresh = !name;
	if (name && !what->replace)
		return gm_refuse(GPUMEM_E_BUSY, detail,
			"the name %s is taken; remove it first, or ask to replace it", what->text);
	const struct gm_name_asker self = {.session = session, .domain = session->domain};
	if (name && !name_is_own(name, &self))
		return gm_refuse(GPUMEM_E_BUSY, detail,
			"the name %s is taken, in another container of this user; choose another",
			what->text);
	if (fresh && gm_user_check(user, GM_USER_NAMES, 1))
		return gm_refuse(GPUMEM_E_LIMIT, detail,
			"%s has %llu names, as many as it leaves to others; the most is %d for all; "
			"remove one first",
			gm_uid_name_say_payer(user->uid, session->info.uid, owner),
			(unsigned long long)user->has[GM_USER_NAMES], GM_LIMIT_NAMES);
	if (what->metadata_bytes && !gm_metadata_is_whole(lease, what->metadata_bytes))
		return name_lacks_metadata(detail);
	if (!what->metadata_bytes)
		gm_metadata_drop_draft(lease);
	if (fresh)
		name = name_make(session, what->text);

	gm_env_enter(&core->env);
	int r = -ENOMEM;
	if (name)
		r = name_give(name, lease, what);
	if (r == 0) {
		gm_request_cancel_grows(session, lease);
		*ret_version = name->version;
	} else if (fresh) {
		free(name);
	}
	gm_env_leave(&core->env);
	if (r == -EAGAIN)
		return name_lacks_metadata(detail);
	if (r < 0)
		return gm_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another name");
	return GPUMEM_OK;
}

gpumem_status gm_lease_publish(struct gm_session *session, struct gm_lease *lease,
	const struct gm_publish *what, uint64_t *ret_version, char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = name_publish(session, lease, what, ret_version, detail);

	if (lease->maker == session)
		gm_metadata_drop_draft(lease);
	return status;
}

/* Finds a name that the asker may end; NULL: there is none. */
static struct gm_name *name_find_own(
	struct gm_core *core, const struct gm_name_asker *asker, uid_t uid, const char *text)
{
	struct gm_name *name = name_is_sound(text) ? name_find(core, uid, text) : NULL;

	return name && name_is_own(name, asker) ? name : NULL;
}

gpumem_status gm_core_which_name(struct gm_core *core, const struct gm_name_asker *asker, uid_t uid,
	const char *text, struct gm_name_which *ret_which)
{
	const struct gm_name *name = name_find_own(core, asker, uid, text);

	if (!name)
		return GPUMEM_E_NOT_FOUND;
	*ret_which = (struct gm_name_which){.id = name->id, .version = name->version};
	return GPUMEM_OK;
}

gpumem_status gm_core_unpublish(
	struct gm_core *core, const struct gm_name_asker *asker, uid_t uid, const char *text)
{
	struct gm_name *name = name_find_own(core, asker, uid, text);
	if (!name)
		return GPUMEM_E_NOT_FOUND;

	uint64_t slice = gm_estate_work_slice(&core->env);
	gm_env_enter(&core->env);
	name_end(name, &slice);
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
	struct gm_name *name = name_find_own(core, asker, uid, text);
	if (!name)
		return GPUMEM_E_NOT_FOUND;
	if (gm_expiry_make_room(core) < 0)
		return GPUMEM_E_HOST_MEMORY;

	uint64_t now = gm_env_now(&core->env);
	gm_env_enter(&core->env);
	gm_expiry_set(name, lifetime_ns ? gm_plus(now, lifetime_ns) : 0);
	(void)gm_commit_name(name); /* replacing a record never fails */
	gm_env_leave(&core->env);
	return GPUMEM_OK;
}

/* ---- attaching */

/* Numbers of trust domains end with the daemon, or with the last process of the domain. So a name
 * knows its domain by the hash. */
static bool name_is_for(const struct gm_name *name, const struct gm_session *session,
	const gid_t *groups, size_t n_groups)
{
	static const struct gm_token_hash none;

	if (name->share.audience == GM_AUDIENCE_DOMAIN &&
		!gm_secret_equal(&name->domain, &none, sizeof(none)))
		return gm_secret_equal(&name->domain, &session->domain, sizeof(name->domain));
	return gm_share_is_for(&name->share, name->lease, session, groups, n_groups);
}

gpumem_status gm_session_attach(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease)
{
	if (again && gm_session_find_open(session, asked, ret_lease))
		return GPUMEM_OK; /* the name may mean another lease since */
	const struct gm_name *name =
		name_is_sound(text) ? name_find(session->core, uid, text) : NULL;

	if (!name || !name_is_for(name, session, groups, n_groups))
		return GPUMEM_E_NOT_FOUND;
	return gm_share_open(session, name->lease, name->share.read_only, asked, ret_lease);
}

gpumem_status gm_session_find_metadata(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, struct gm_metadata_info *ret)
{
	const struct gm_name *name =
		name_is_sound(text) ? name_find(session->core, uid, text) : NULL;

	if (!name || !name_is_for(name, session, groups, n_groups))
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
			.own = name_is_own(name, asker),
			.made = maker != NULL,
			.payer = maker ? gm_session_id(maker) : gm_estate_id(lease->estate),
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
