/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing by token. This file promises that a lease is opened only by a session that shows a token
 * made for it and belongs to the token's audience, and that a wrong token and a wrong audience get
 * the same answer. (Not in the same time: a token is 128 random bits, so that tells nobody anything.)
 * It must never keep a token: see token_hash.c.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/token.h"
#include "common/text/uid_name.h"

void gm_token_end(struct gm_token *share)
{
	struct gm_lease *lease = share->lease;
	gm_env_erase(&lease->core->env, &share->place);
	GM_STEP("unshare: record erased");
	gm_user_charge_remove(&lease->maker->shares, 1);
	DL_DELETE(lease->shares, share);
	HASH_DEL(lease->core->shares, share);
	free(share);
}

void gm_token_end_some(struct gm_lease *lease, uint64_t *slice)
{
	for (; lease->shares && *slice > 0; --*slice)
		gm_token_end(lease->shares);
}

void gm_token_end_all(struct gm_lease *lease)
{
	uint64_t all = UINT64_MAX;
	gm_token_end_some(lease, &all);
}

/* Puts the share into its tables. -ENOMEM */
static int lease_token_add(struct gm_token *share)
{
	struct gm_lease *lease = share->lease;
	HASH_ADD(hh, lease->core->shares, hash.h[0], sizeof(share->hash.h[0]), share);
	if (!GM_TABLE_ADDED(share))
		return -ENOMEM;
	DL_APPEND(lease->shares, share);
	gm_user_charge_add(&lease->maker->shares, 1);
	return 0;
}

int gm_token_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_share *record)
{
	struct gm_token *share;
	HASH_FIND(hh, lease->core->shares, &record->hash.h[0], sizeof(record->hash.h[0]), share);
	if (share)
		return -EEXIST;

	share = calloc(1, sizeof(*share));
	if (!share)
		return -ENOMEM;
	share->hash = record->hash;
	share->lease = lease;
	share->options = (struct gm_token_options){
		.audience = (enum gm_name_audience)record->audience,
		.id = record->id,
		.read_only = record->read_only,
	};
	share->asked = record->request;
	share->id = id;
	share->place = place;
	if (lease_token_add(share) < 0) {
		free(share);
		return -ENOMEM;
	}
	return 0;
}

gpumem_status gm_token_check(const struct gm_lease *lease, const struct gm_token_options *options,
	char detail[GM_DETAIL_BYTES])
{
	switch (options->audience) {
	case GM_NAME_AUDIENCE_DOMAIN:
		return GPUMEM_OK;
	case GM_NAME_AUDIENCE_UID:
	case GM_NAME_AUDIENCE_GID:
		if (options->id == UINT32_MAX) /* to the kernel, this is no uid or gid */
			break;
		if (!lease->for_others)
			return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
				"the buffer may have old data of its trust domain, so it cannot be "
				"shared with a uid or gid; create it for others");
		return GPUMEM_OK;
	}
	return gm_text_refuse(GPUMEM_E_INVALID, detail,
		"no such audience; share with the domain, a uid or a gid");
}

gpumem_status gm_lease_share(struct gm_session *session, struct gm_lease *lease,
	const struct gm_token_options *options, uint8_t ret_token[GM_TOKEN_BYTES])
{
	return gm_lease_share_by(session, lease, options, 0, false, ret_token);
}

void gm_token_forget(struct gm_lease *lease, uint64_t asked)
{
	struct gm_token *share, *tmp;

	DL_FOREACH_SAFE (lease->shares, share, tmp)
		if (share->asked == asked)
			gm_token_end(share);
}

bool gm_token_has_room(const struct gm_session *session, uint64_t more)
{
	return session->shares.amount + more <= GM_BOUND_SHARES_PER_CLIENT &&
	       gm_user_check(session->payer.user, GM_USER_SHARES, more) == 0;
}

gpumem_status gm_token_make(struct gm_lease *lease, const struct gm_token_hash *hash,
	const struct gm_token_options *options, uint64_t asked)
{
	struct gm_core *core = lease->core;
	struct gm_token *share = calloc(1, sizeof(*share));
	if (!share)
		return GPUMEM_E_HOST_MEMORY;

	share->hash = *hash;
	share->lease = lease;
	share->options = *options;
	share->asked = asked;
	share->id = core->env.ops.record ? core->env.ops.new_id(core->env.ctx) : 0;
	if (gm_commit_share(share) < 0 || lease_token_add(share) < 0) {
		gm_env_erase(&core->env, &share->place);
		free(share);
		return GPUMEM_E_HOST_MEMORY;
	}
	return GPUMEM_OK;
}

gpumem_status gm_lease_share_by(struct gm_session *session, struct gm_lease *lease,
	const struct gm_token_options *options, uint64_t asked, bool again,
	uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_core *core = session->core;
	uint8_t token[GM_TOKEN_BYTES];
	if (lease->maker != session)
		return GPUMEM_E_DENIED;
	char unsaid[GM_DETAIL_BYTES];
	gpumem_status status = gm_token_check(lease, options, unsaid);
	if (status != GPUMEM_OK)
		return status;
	if (again && asked)
		gm_token_forget(lease, asked);
	if (!gm_token_has_room(session, 1))
		return GPUMEM_E_LIMIT;

	core->env.ops.random(core->env.ctx, token, sizeof(token));
	struct gm_token_hash hash = gm_token_hash_make(&core->token_key, token);
	status = gm_token_make(lease, &hash, options, asked);
	if (status != GPUMEM_OK)
		return status;

	memcpy(ret_token, token, sizeof(token));
	explicit_bzero(token, sizeof(token));
	return GPUMEM_OK;
}

bool gm_token_is_for(const struct gm_token_options *options, const struct gm_lease *lease,
	const struct gm_session *session, const gid_t *groups, size_t n_groups)
{
	const struct gm_session_info *info = &session->info;
	switch (options->audience) {
	case GM_NAME_AUDIENCE_DOMAIN:
		return info->domain == lease->domain;
	case GM_NAME_AUDIENCE_UID:
		return info->uid == options->id;
	case GM_NAME_AUDIENCE_GID:
		if (info->gid == options->id)
			return true;
		for (size_t i = 0; i < n_groups; i++)
			if (groups[i] == options->id)
				return true;
		return false;
	}
	return false;
}

struct gm_token *gm_token_find(const struct gm_core *core, const struct gm_token_hash *hash)
{
	struct gm_token *share;

	HASH_FIND(hh, core->shares, &hash->h[0], sizeof(hash->h[0]), share);
	if (!share || !gm_lease_maker(share->lease))
		return NULL;
	return gm_secret_equal(&share->hash, hash, sizeof(*hash)) ? share : NULL;
}

void gm_session_say_share_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES])
{
	const struct gm_user *user = session->payer.user;
	char name[GM_UID_NAME_PAYER_TEXT];

	if (session->shares.amount >= GM_BOUND_SHARES_PER_CLIENT)
		gm_text_say(detail,
			"this client has %d shares, which is the most; unshare a lease first",
			GM_BOUND_SHARES_PER_CLIENT);
	else
		gm_text_say(detail,
			"%s has %llu shares, as many as it leaves to others; the most is %d for "
			"all; unshare a lease first",
			gm_uid_name_say_payer(user->uid, session->info.uid, name),
			(unsigned long long)user->has[GM_USER_SHARES], GM_BOUND_SHARES);
}

gpumem_status gm_lease_unshare(struct gm_session *session, struct gm_lease *lease)
{
	if (lease->maker != session)
		return GPUMEM_E_DENIED;
	gm_token_end_all(lease);
	return GPUMEM_OK;
}
