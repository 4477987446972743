/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for leases. This file promises that a name leads to a whole lease that its maker published, and that replacing
 * a lease is one step: one record says what the name means. name_publish.c decides who may do that.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/name_private.h"
#include "daemon/lease/name_expiry.h"
#include "daemon/lease/metadata_private.h"
#include "daemon/lease/commit.h"

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
	char whole[16 + GM_BOUND_NAME_BYTES];

	snprintf(whole, sizeof(whole), "%u/%s", uid, text);
	return gm_token_hash_text(&core->token_key, whole);
}

struct gm_name *gm_name_find(const struct gm_core *core, uid_t uid, const char *text)
{
	struct gm_token_hash hash = name_hash(core, uid, text);
	struct gm_name *name;

	HASH_FIND(hh, core->names, &hash, sizeof(hash), name);
	return name && name->uid == uid && strcmp(name->text, text) == 0 ? name : NULL;
}

bool gm_name_is_sound(const char *text)
{
	return gm_name_ok(text) && text[0] && !strchr(text, '/');
}

/* Charges the user of its lease. */
static void name_charge(struct gm_name *name)
{
	gm_user_charge_init(&name->charge, name->lease->orphan->charge.user, GM_USER_NAMES);
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
	gm_name_expiry_set(name, 0);
	HASH_DEL(core->names, name);
	free(name);
}

void gm_name_reader_left(struct gm_lease *lease, const struct gm_ref *leaving)
{
	struct gm_name *name = lease->name;
	const struct gm_ref *ref;

	if (!name || !name->until_unread)
		return;
	DL_FOREACH (lease->refs, ref)
		if (ref != &lease->own && ref != leaving)
			return;
	gm_name_drop(lease);
}

void gm_name_drop(struct gm_lease *lease)
{
	struct gm_name *name = lease->name;

	name_part(name);
	name_free(name);
}

int gm_name_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_name *record)
{
	if (!gm_name_is_sound(record->text) ||
		gm_name_find(lease->core, record->head.uid, record->text))
		return -EEXIST;

	struct gm_name *name = calloc(1, sizeof(*name));
	if (!name || gm_name_expiry_make_room(lease->core) < 0) {
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
	name->share = (struct gm_token_options){
		.audience = (enum gm_name_audience)record->audience,
		.id = record->audience_id,
		.read_only = record->read_only,
	};
	if (name_add(name) < 0) {
		free(name);
		return -ENOMEM;
	}
	gm_name_expiry_set(name, record->expires_ns);
	return 0;
}

/* ---- publishing */

struct gm_name *gm_name_make(struct gm_session *session, const char *text)
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

int gm_name_give(struct gm_name *name, struct gm_lease *lease, const struct gm_name_publish *what,
	struct gm_lease **ret_old)
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
	next.expires_ns = what->lifetime_ns ? gm_u64_plus(now, what->lifetime_ns) : 0;
	int r = gm_name_expiry_make_room(name->core);
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
	gm_name_expiry_set(name, next.expires_ns);
	*ret_old = old;
	return 0;
}
