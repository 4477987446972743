/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the leases of others. This file promises that only the audience of a token or a name opens its lease, and that a
 * repeated packet opens it once. It must never open more than a user leaves to others.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/ref_entry.h"

gpumem_status gm_session_open(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	const gid_t *groups, size_t n_groups, struct gm_lease **ret_lease)
{
	return gm_session_open_by(session, token, 0, groups, n_groups, 0, false, ret_lease);
}

gpumem_status gm_session_open_by(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	uint32_t index, const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease)
{
	struct gm_core *core = session->core;
	struct gm_token_hash hash = gm_token_hash_piece(&core->token_key, token, index);

	/* The share may have ended since. */
	if (again && gm_session_find_open(session, asked, ret_lease))
		return GPUMEM_OK;
	const struct gm_token *share = gm_token_find(core, &hash);
	if (!share || !gm_token_is_for(&share->options, share->lease, session, groups, n_groups))
		return GPUMEM_E_NOT_FOUND;
	return gm_token_open(session, share->lease, share->options.read_only, asked, ret_lease);
}

/* How often a user has the lease open. */
static uint64_t ref_entry_count_of(const struct gm_lease *lease, uid_t payer_uid)
{
	const struct gm_ref *ref;
	uint64_t n = 0;

	DL_FOREACH (lease->refs, ref)
		if (ref->session->info.payer_uid == payer_uid)
			n += ref == &lease->own ? ref->count - 1 : ref->count;
	return n;
}

gpumem_status gm_token_open(struct gm_session *session, struct gm_lease *lease, bool read_only,
	uint64_t asked, struct gm_lease **ret_lease)
{
	if (session->payer.ending || session->payer.quarantined)
		return GPUMEM_E_DISCONNECTED;
	if (!gm_user_leaves_enough(ref_entry_count_of(lease, session->info.payer_uid),
		    lease->n_opens, GM_BOUND_OPENERS_PER_LEASE))
		return GPUMEM_E_LIMIT;
	char unsaid[GM_DETAIL_BYTES];
	if (gm_lease_find_ref(lease, session) ? gm_session_full_of_bare(session, unsaid)
					      : gm_session_full(session, unsaid))
		return GPUMEM_E_LIMIT;
	if (gm_ref_open(lease, session, read_only, asked) < 0)
		return GPUMEM_E_HOST_MEMORY;
	*ret_lease = lease;
	return GPUMEM_OK;
}

void gm_session_say_open_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES])
{
	if (!gm_session_full(session, detail))
		gm_text_say(detail,
			"this user has the lease open as often as it leaves to others; the most is %d "
			"times for all; a client must return it first",
			GM_BOUND_OPENERS_PER_LEASE);
}
