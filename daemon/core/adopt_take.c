/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each function here takes one kind of record over, and knows which other records it needs. No set of records can crash core, or move memory from one uid
 * to another. Nothing here creates memory, or pools any.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/orphan_chunk.h"
#include "daemon/lease/declare_private.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/name_private.h"
#include "daemon/lease/control_block.h"
#include "daemon/lease/metadata_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/arith.h"
#include "daemon/books/fds.h"
#include "daemon/core/adopt_take.h"
#include "daemon/device/device_drain.h"

static struct gm_adopt_entry *adopt_find(
	const struct gm_adopt_take *take, uint32_t kind, uint64_t id)
{
	return gm_adopt_records_find(&take->records, kind, id);
}

/* Finds the object that adoption made for this id. NULL: it made none. */
static void *adopt_find_object(const struct gm_adopt_take *take, unsigned kind, uint64_t id)
{
	const struct gm_adopt_entry *entry = adopt_find(take, kind, id);
	return entry ? entry->object : NULL;
}

/* Whether the lease is on a device that this daemon does not have. */
static bool adopt_lease_is_elsewhere(const struct gm_adopt_take *take, uint64_t id)
{
	const struct gm_adopt_entry *entry = adopt_find(take, GM_RECORD_LEASE, id);
	return entry &&
	       !gm_device_by_key(&take->core->env,
		       ((const struct gm_record_lease *)(const void *)entry->record)->device);
}

/* Whether some memory of the lease is not there. Nobody may hold or find such a lease. */
static bool adopt_lease_is_lost(const struct gm_adopt_take *take, uint64_t id)
{
	const struct gm_adopt_entry *entry = adopt_find(take, GM_RECORD_LEASE, id);
	return entry && entry->lost;
}

/* Takes note that the session, which may be NULL, had a lease that is lost. */
static void adopt_lose(
	const struct gm_adopt_take *take, uint64_t lease, const struct gm_session *session)
{
	struct gm_adopt_entry *entry = adopt_find(take, GM_RECORD_LEASE, lease);
	const struct gm_env *env = &take->core->env;

	entry->lost = true;
	entry->missed |=
		session && (!env->ops.fate || env->ops.fate(env->ctx, session->info.pid,
						      session->info.began) == GM_ENV_PROCESS_ALIVE);
}

static bool adopt_is_name(const char *name, size_t size)
{
	return memchr(name, '\0', size) != NULL;
}

static bool adopt_payer_exists(const struct gm_adopt_take *take, uint64_t id)
{
	const struct gm_account_payer *payer;
	HASH_FIND(hh, take->core->env.payers, &id, sizeof(id), payer);
	return payer != NULL;
}

/* Whether the record of a client is by a daemon that wrote two records of each. */
static bool adopt_is_of_pair(const struct gm_adopt_entry *entry)
{
	const struct gm_record *head = (const void *)entry->record;
	return head->format < GM_RECORD_FORMAT_ONE_CLIENT;
}

/* Whether the client of this id had ended, and was being taken apart: its record goes first, and of two records that of
 * the session. */
static bool adopt_client_has_ended(const struct gm_adopt_take *take, uint64_t id)
{
	const struct gm_adopt_entry *entry = adopt_find(take, GM_RECORD_CLIENT, id);
	return id &&
	       (!entry || (adopt_is_of_pair(entry) && !adopt_find(take, GM_RECORD_SESSION, id)));
}

/* Returns the id of the session that made the lease, by its record. 0: it has left the lease. */
static uint64_t adopt_maker_of(const struct gm_adopt_take *take, uint64_t lease)
{
	const struct gm_adopt_entry *entry = adopt_find(take, GM_RECORD_LEASE, lease);
	return ((const struct gm_record_lease *)(const void *)entry->record)->session;
}

static uid_t adopt_lease_uid(const struct gm_lease *lease)
{
	return lease->orphan->info.uid;
}

/*
 * ---- each kind
 *
 * No bound counts here. The daemon before kept its own, clients still use what it granted, and to give
 * that up would take memory from them which they map. Bounds hold again for what is new.
 */

static int adopt_key(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_key *record = (const void *)entry->record;
	if (entry->id != 1)
		return GM_ADOPT_TAKE_E_DAMAGED;
	take->core->token_key = record->key;
	take->core->key_place = entry->place;
	return 0;
}

static int adopt_device(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_device *record = (const void *)entry->record;
	struct gm_core_counters *counters = &take->core->counters;
	struct gm_device *device = gm_device_by_key(&take->core->env, entry->id);
	if (!device)
		return GM_ADOPT_TAKE_E_ELSEWHERE;

	device->place = entry->place;
	device->reclaim_epoch += record->reclaim_epoch;
	device->ledger.peak_charged = record->peak_charged;
	device->pool.peak = record->peak_pooled;
	device->pool.hits += record->hits;
	device->pool.misses += record->misses;
	device->pool.returns += record->returns;
	device->pool.released += record->released;
	device->queue.granted += record->granted;
	/* Each device's record has them, as of its last change. */
	counters->requests = gm_u64_max(counters->requests, record->requests);
	counters->refusals = gm_u64_max(counters->refusals, record->refusals);
	return 0;
}

static int adopt_drain(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_drain *record = (const void *)entry->record;
	struct gm_device *device = gm_device_by_key(&take->core->env, entry->id);
	if (!device)
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	gm_device_drain_adopt(device, record, entry->place);
	return 0;
}

static int adopt_orphan(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_orphan *record = (const void *)entry->record;
	struct gm_orphan_info info = {
		.uid = record->head.uid,
		.payer_uid = gm_record_payer_uid(&record->head, record->payer_uid),
		.subordinate = true,
		.gid = record->gid,
		.unit = record->unit,
		.container = record->container,
	};
	struct gm_orphan *orphan;
	if (!adopt_is_name(record->unit, sizeof(record->unit)) ||
		!adopt_is_name(record->container, sizeof(record->container)) ||
		adopt_payer_exists(take, entry->id))
		return GM_ADOPT_TAKE_E_DAMAGED;
	int r = gm_orphan_adopt(take->core, entry->id, entry->place, &info, &orphan);
	if (r < 0)
		return r == -ENOMEM ? r : GM_ADOPT_TAKE_E_DAMAGED;
	entry->object = orphan;
	return 0;
}

/* Makes one record of the two that such a daemon wrote. */
static bool adopt_join_pair(const struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	struct gm_record_client *record = (void *)entry->record;
	const struct gm_adopt_entry *other = adopt_find(take, GM_RECORD_SESSION, entry->id);
	const struct gm_record_session *session = (const void *)other->record;
	if (session->head.uid != record->head.uid || session->pid != record->pid ||
		gm_record_payer_uid(&session->head, session->payer_uid) !=
			gm_record_payer_uid(&record->head, record->payer_uid))
		return false;

	record->token = session->token;
	record->former = session->former;
	record->domain = session->domain;
	record->run_set = session->run_set;
	record->run_max = session->run_max;
	record->run_priority = session->run_priority;
	memcpy(record->run, session->run, sizeof(record->run));
	return true;
}

static bool adopt_client_is_sound(const struct gm_record_client *record)
{
	return adopt_is_name(record->name, sizeof(record->name)) &&
	       adopt_is_name(record->command, sizeof(record->command)) &&
	       adopt_is_name(record->unit, sizeof(record->unit)) &&
	       adopt_is_name(record->container, sizeof(record->container)) &&
	       adopt_is_name(record->scope, sizeof(record->scope)) &&
	       adopt_is_name(record->run, sizeof(record->run));
}

static struct gm_session_info adopt_client_info(const struct gm_record_client *record)
{
	struct gm_session_info info = {
		.pid = record->pid,
		.began = record->start_time,
		.uid = record->head.uid,
		.payer_uid = gm_record_payer_uid(&record->head, record->payer_uid),
		.subordinate = true,
		.gid = record->gid,
		.unit = record->unit,
		.container = record->container,
		.name = record->name,
		.run = record->run,
		.run_limit = {.set = record->run_set & (GM_LIMIT_MAX | GM_LIMIT_PRIORITY),
			.max = record->run_max,
			.priority = record->run_priority},
		.scope = record->scope,
		.command = record->command,
		.loose = record->loose,
		.confined = record->confined,
		.own_pid_namespace = record->own_pid_namespace,
		.since_ns = record->since_ns,
	};
	memcpy(info.boot, record->boot, sizeof(info.boot));
	return info;
}

static int adopt_client(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_client *record = (const void *)entry->record;
	struct gm_core *core = take->core;
	if ((adopt_is_of_pair(entry) && !adopt_join_pair(take, entry)) ||
		!adopt_client_is_sound(record) || adopt_payer_exists(take, entry->id))
		return GM_ADOPT_TAKE_E_DAMAGED;

	struct gm_session_info info = adopt_client_info(record);
	int r = take->ops->client(take->ctx, entry->id, record, &info.domain, &info.pooling);
	if (r < 0)
		return gm_adopt_is_shortage(r) || gm_adopt_is_unseen(r) ? r
									: GM_ADOPT_TAKE_E_DAMAGED;
	assert(info.domain != GM_DOMAIN_FRESH);

	struct gm_orphan *orphan;
	r = gm_orphan_get_for(core, &info, &orphan);
	if (r < 0)
		return gm_adopt_is_shortage(r) ? r : GM_ADOPT_TAKE_E_DAMAGED;
	struct gm_session *session = gm_session_make(core, entry->id, &info);
	if (!session) {
		gm_orphan_unref(orphan);
		return -ENOMEM;
	}
	session->orphan = orphan;
	gm_user_charge_add(&session->charge, 1);
	session->token = record->token;
	session->domain = record->domain;
	session->former = record->former;
	session->former_valid = record->former.h[0] || record->former.h[1];
	session->place = entry->place;
	session->page_version = record->page_version;
	session->page_unsafe = record->page_unsafe;
	session->payer.quarantined = true;
	for (uint32_t d = 0; d < core->env.n_devices; d++)
		session->payer.accounts[d].quarantined = true;

	if (adopt_is_of_pair(entry))
		(void)gm_commit_session(session);
	entry->object = session;
	return 0;
}

/* Whether the record of a lease makes sense by itself. */
static bool adopt_lease_is_sound(const struct gm_record_lease *record)
{
	return record->grants > 0 && record->next_index >= record->grants &&
	       (record->session != 0) == (record->made > 0) && record->made <= INT32_MAX &&
	       (record->origin != 0) == ((record->flags & GM_RECORD_PIECE) != 0) &&
	       adopt_is_name(record->tag, sizeof(record->tag)) &&
	       record->head.size == gm_record_lease_size(strlen(record->tag), record->flags);
}

static int adopt_lease(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_lease *record = (const void *)entry->record;
	struct gm_session *maker = adopt_find_object(take, GM_RECORD_CLIENT, record->session);
	struct gm_orphan *orphan = adopt_find_object(take, GM_RECORD_ORPHAN, record->orphan);
	struct gm_device *device = gm_device_by_key(&take->core->env, record->device);
	int fd;
	if (record->session && !adopt_client_has_ended(take, record->session))
		orphan = maker ? maker->orphan : NULL;
	if (!adopt_lease_is_sound(record) || !orphan || orphan->info.uid != record->head.uid)
		return GM_ADOPT_TAKE_E_DAMAGED;
	if (!device)
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	if (record->transport == GM_TRANSPORT_IPC)
		return GM_ADOPT_TAKE_E_IPC;
	if (record->transport != GM_TRANSPORT_FD)
		return GM_ADOPT_TAKE_E_DAMAGED;

	struct gm_lease *lease = gm_lease_new(
		take->core, entry->id, maker, orphan, device, GM_TRANSPORT_FD, record->tag);
	if (!lease)
		return -ENOMEM;
	lease->reusable = false;
	lease->for_others = record->flags & GM_RECORD_FOR_OTHERS;
	lease->signals = record->flags & GM_RECORD_SIGNALS;
	lease->origin = record->origin;
	lease->grants = record->grants;
	lease->next_index = record->next_index;
	lease->user_bytes = record->user_bytes;
	lease->place = entry->place;
	if (maker && gm_lease_begin(lease) < 0) {
		gm_lease_free(lease);
		return -ENOMEM;
	}
	if (maker) {
		lease->own.count = lease->made = record->made;
		lease->n_opens = record->made - 1;
	} else {
		take->core->n_leases++;
	}
	/* Without its block, the memory is still worth having. */
	if (lease->signals && take->ops->word && take->ops->word(take->ctx, entry->id, &fd) == 0)
		gm_control_block_adopt(lease, fd);
	if (record->orphan != orphan->payer.id || (record->session && !maker))
		gm_commit_lease(lease);
	entry->object = lease;
	return 0;
}

static bool adopt_is_chunk_size(uint64_t bytes)
{
	/* Chunks that were made to measure are no powers of two. */
	return bytes > 0 && bytes <= GM_LEASE_BYTES_MAX && bytes % GM_CHUNK_MIN == 0;
}

/* Takes over the memory of a chunk, whose user is that of the orphaned account. The chunk is charged to nobody yet. */
static int adopt_memory(struct gm_adopt_take *take, struct gm_adopt_entry *entry,
	struct gm_device *device, const struct gm_orphan *orphan, struct gm_chunk **ret_chunk)
{
	const struct gm_record_chunk *record = (const void *)entry->record;
	struct gm_backend_handle handle;
	int r = take->ops->chunk(take->ctx, entry->id, device->number, record->bytes, &handle);
	if (r < 0)
		return gm_adopt_is_shortage(r) || gm_adopt_is_unusable(r) ? r
									  : GM_ADOPT_TAKE_E_LOST;
	struct gm_chunk *chunk = gm_device_adopt_chunk(device, entry->id, record->bytes, &handle);
	if (!chunk) {
		take->ops->drop(take->ctx, entry->id, device->number, record->bytes, &handle);
		return -ENOMEM;
	}
	chunk->payer_uid = orphan->info.payer_uid;
	chunk->place = entry->place;
	chunk->index = record->index;
	chunk->asked = record->request;
	gm_fds_move(device->env, chunk, GM_FDS_LEASED, orphan->payer.user);
	*ret_chunk = chunk;
	return 0;
}

static int adopt_orphaned(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_chunk *record = (const void *)entry->record;
	struct gm_orphan *orphan = adopt_find_object(take, GM_RECORD_ORPHAN, record->owner);
	struct gm_device *device = gm_device_by_key(&take->core->env, record->device);
	struct gm_chunk *chunk;
	if (!orphan || orphan->info.uid != record->head.uid)
		return GM_ADOPT_TAKE_E_DAMAGED;
	if (!device)
		return GM_ADOPT_TAKE_E_ELSEWHERE;

	int r = adopt_memory(take, entry, device, orphan, &chunk);
	if (r != 0)
		return r;
	chunk->domain = GM_DOMAIN_NOBODY;
	gm_ledger_adopt_orphaned(&device->ledger, gm_orphan_account(orphan, device), record->bytes);
	gm_orphan_chunk_adopt(device, chunk, orphan);
	return 0;
}

static int adopt_orphan_map(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_orphan_map *record = (const void *)entry->record;
	struct gm_orphan *orphan = adopt_find_object(take, GM_RECORD_ORPHAN, record->orphan);
	struct gm_device *device = gm_device_by_key(&take->core->env, record->device);
	if (!orphan || orphan->info.uid != record->head.uid || record->bytes == 0)
		return GM_ADOPT_TAKE_E_DAMAGED;
	if (!device)
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	if (record->bytes > device->info.total)
		return GM_ADOPT_TAKE_E_DAMAGED;
	int r = gm_orphan_map_adopt(device, orphan, entry->id, entry->place, record);
	return r < 0 && r != -ENOMEM ? GM_ADOPT_TAKE_E_DAMAGED : r;
}

static int adopt_chunk(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_chunk *record = (const void *)entry->record;
	if (record->transport == GM_TRANSPORT_IPC)
		return GM_ADOPT_TAKE_E_IPC;
	if (record->transport != GM_TRANSPORT_FD || !adopt_is_chunk_size(record->bytes))
		return GM_ADOPT_TAKE_E_DAMAGED;
	if (record->state == GM_RECORD_ORPHANED)
		return adopt_orphaned(take, entry);

	if (adopt_lease_is_elsewhere(take, record->owner))
		return GM_ADOPT_TAKE_E_ELSEWHERE;

	struct gm_lease *lease = adopt_find_object(take, GM_RECORD_LEASE, record->owner);
	struct gm_chunk *chunk;
	if (record->state != GM_RECORD_LEASED || !lease ||
		adopt_lease_uid(lease) != record->head.uid ||
		lease->device->key != record->device || record->grant == 0 ||
		record->index >= lease->next_index ||
		(lease->chunks && lease->chunks->prev->index >= record->index))
		return GM_ADOPT_TAKE_E_DAMAGED;

	int r = adopt_memory(take, entry, lease->device, lease->orphan, &chunk);
	if (r == GM_ADOPT_TAKE_E_LOST)
		adopt_lose(take, record->owner, lease->maker);
	if (r != 0)
		return r;
	gm_lease_adopt_chunk(lease, chunk);
	return 0;
}

static int adopt_declared(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_declared *record = (const void *)entry->record;
	struct gm_session *session = adopt_find_object(take, GM_RECORD_CLIENT, entry->id);
	if (adopt_client_has_ended(take, entry->id))
		return GM_ADOPT_TAKE_E_UNFINISHED;
	if (!session || session->info.uid != record->head.uid)
		return GM_ADOPT_TAKE_E_DAMAGED;
	return gm_declare_adopt(session, entry->place, record) ? 0 : GM_ADOPT_TAKE_E_DAMAGED;
}

static int adopt_hold(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_ref *record = (const void *)entry->record;
	struct gm_session *session = adopt_find_object(take, GM_RECORD_CLIENT, record->session);
	struct gm_lease *lease = adopt_find_object(take, GM_RECORD_LEASE, record->lease);
	if (adopt_lease_is_elsewhere(take, record->lease))
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	if (adopt_lease_is_lost(take, record->lease)) {
		adopt_lose(take, record->lease, session);
		return GM_ADOPT_TAKE_E_LOST;
	}
	if (adopt_client_has_ended(take, record->session))
		return GM_ADOPT_TAKE_E_UNFINISHED;
	if (!session || !lease || session->info.uid != record->head.uid ||
		adopt_lease_uid(lease) != record->lease_uid || record->count != 1 ||
		lease->n_opens == INT32_MAX)
		return GM_ADOPT_TAKE_E_DAMAGED;
	int r = gm_ref_adopt(lease, session, entry->id, entry->place, record);
	if (r < 0)
		return r;
	lease->version = gm_u64_max(lease->version, record->version);
	return 0;
}

static int adopt_share(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_share *record = (const void *)entry->record;
	struct gm_lease *lease = adopt_find_object(take, GM_RECORD_LEASE, record->lease);
	if (adopt_lease_is_elsewhere(take, record->lease))
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	if (adopt_lease_is_lost(take, record->lease))
		return GM_ADOPT_TAKE_E_LOST;
	if (lease && !lease->maker &&
		adopt_client_has_ended(take, adopt_maker_of(take, record->lease)))
		return GM_ADOPT_TAKE_E_UNFINISHED;
	if (!lease || !lease->maker || adopt_lease_uid(lease) != record->head.uid ||
		record->audience > GM_NAME_AUDIENCE_GID ||
		(record->audience != GM_NAME_AUDIENCE_DOMAIN && record->id == UINT32_MAX))
		return GM_ADOPT_TAKE_E_DAMAGED;
	int r = gm_token_adopt(lease, entry->id, entry->place, record);
	if (r < 0)
		return r == -ENOMEM ? r : GM_ADOPT_TAKE_E_DAMAGED;
	return 0;
}

static int adopt_name(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_name *record = (const void *)entry->record;
	struct gm_lease *lease = adopt_find_object(take, GM_RECORD_LEASE, record->lease);
	if (adopt_lease_is_elsewhere(take, record->lease))
		return GM_ADOPT_TAKE_E_ELSEWHERE;
	if (adopt_lease_is_lost(take, record->lease))
		return GM_ADOPT_TAKE_E_LOST;
	if (!lease || lease->name || !lease->chunks || adopt_lease_uid(lease) != record->head.uid ||
		record->audience > GM_NAME_AUDIENCE_GID ||
		(record->audience != GM_NAME_AUDIENCE_DOMAIN &&
			(record->audience_id == UINT32_MAX || !lease->for_others)) ||
		!adopt_is_name(record->text, sizeof(record->text)))
		return GM_ADOPT_TAKE_E_DAMAGED;
	int r = gm_name_adopt(lease, entry->id, entry->place, record);
	if (r < 0)
		return r == -ENOMEM ? r : GM_ADOPT_TAKE_E_DAMAGED;
	return 0;
}

static int adopt_metadata(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_metadata *record = (const void *)entry->record;
	struct gm_lease *lease = adopt_find_object(take, GM_RECORD_LEASE, record->lease);
	int fd;
	if (adopt_lease_uid(lease) != record->head.uid || record->bytes == 0 ||
		record->bytes > GM_BOUND_METADATA_BYTES)
		return GM_ADOPT_TAKE_E_DAMAGED;
	if (!take->ops->metadata || take->ops->metadata(take->ctx, entry->id, &fd) < 0)
		return GM_ADOPT_TAKE_E_LOST;
	int r = gm_metadata_adopt(lease, entry->id, entry->place, record, fd);
	if (r < 0)
		return r == -ENOMEM ? r : GM_ADOPT_TAKE_E_DAMAGED;
	return 0;
}

/* Builds the owner anew, so that nothing but what belongs there is hashed. */
static bool adopt_make_owner(const struct gm_owner *from, struct gm_owner *ret_owner)
{
	switch (from->kind) {
	case GM_OWNER_UID:
	case GM_OWNER_GID:
	case GM_OWNER_SESSION:
		gm_owner_by_id((enum gm_owner_kind)from->kind, from->id, ret_owner);
		return true;
	case GM_OWNER_UNIT:
	case GM_OWNER_CONTAINER:
	case GM_OWNER_NAME:
		return adopt_is_name(from->name, sizeof(from->name)) &&
		       gm_owner_by_name((enum gm_owner_kind)from->kind, from->name, ret_owner) == 0;
	default:
		return false;
	}
}

/* Sets values of an owner that has a record. */
static gpumem_status adopt_set_limit(struct gm_adopt_take *take, const struct gm_owner *owner,
	uint32_t device, const struct gm_limit_values *values, char detail[GM_DETAIL_BYTES])
{
	struct gm_limits *limits = &take->core->limits, next;
	gpumem_status status = gm_limits_with(limits, owner, device, values, &next, detail);

	if (status != GPUMEM_OK)
		return status;
	gm_limits_replace(limits, &next);
	gm_limits_deinit(&next);
	return GPUMEM_OK;
}

/*
 * Adopts as much of the values as goes together with the configuration, which may have changed. A guarantee is dropped
 * first. A max is kept, if need be with the configured guarantee lowered to it: otherwise a restart would lift it.
 */
static gpumem_status adopt_values(struct gm_adopt_take *take, const struct gm_owner *owner,
	uint32_t device, const struct gm_limit_values *set, struct gm_limit_values *ret_now)
{
	char why[GM_DETAIL_BYTES], again[GM_DETAIL_BYTES];
	struct gm_limit_values now = *set;
	gpumem_status status = adopt_set_limit(take, owner, device, &now, why);

	*ret_now = now;
	if (status != GPUMEM_E_INVALID)
		return status;
	if (now.set & GM_LIMIT_GUARANTEE) {
		now.set &= ~(unsigned)GM_LIMIT_GUARANTEE;
		status = adopt_set_limit(take, owner, device, &now, again);
	}
	if (status == GPUMEM_E_INVALID && now.set & GM_LIMIT_MAX) {
		now.set |= GM_LIMIT_GUARANTEE;
		now.guarantee = now.max;
		status = adopt_set_limit(take, owner, device, &now, again);
	}
	if (status == GPUMEM_E_INVALID) {
		now.set &= GM_LIMIT_PRIORITY;
		status = adopt_set_limit(take, owner, device, &now, again);
	}
	if (status == GPUMEM_E_INVALID)
		now.set = 0;
	if ((status == GPUMEM_OK || status == GPUMEM_E_INVALID) && take->ops->limit)
		take->ops->limit(take->ctx, owner, device, set, &now, why);
	*ret_now = now;
	return status;
}

static int adopt_limit(struct gm_adopt_take *take, struct gm_adopt_entry *entry)
{
	const struct gm_record_limit *record = (const void *)entry->record;
	struct gm_limits *limits = &take->core->limits;
	struct gm_owner owner;
	bool any = false, changed = false;
	int outcome = GM_ADOPT_TAKE_E_ELSEWHERE;
	if (record->n_devices > GM_BOUND_DEVICES || !adopt_make_owner(&record->owner, &owner) ||
		gm_limits_place(limits, &owner))
		return GM_ADOPT_TAKE_E_DAMAGED;

	for (uint64_t i = 0; i < record->n_devices; i++) {
		struct gm_limit_values values, now;
		const struct gm_device *device =
			gm_device_by_key(&take->core->env, gm_limits_read(record, i, &values));
		if (!device)
			continue;
		gpumem_status status = adopt_values(take, &owner, device->number, &values, &now);
		if (status == GPUMEM_E_HOST_MEMORY)
			return -ENOMEM;
		any = any || status == GPUMEM_OK;
		changed = changed || now.set != values.set || now.guarantee != values.guarantee;
		if (outcome != GM_ADOPT_TAKE_E_CONTRADICTED)
			outcome = status == GPUMEM_E_INVALID && values.set
					  ? GM_ADOPT_TAKE_E_CONTRADICTED
					  : GM_ADOPT_TAKE_E_DAMAGED;
	}
	if (!any)
		return outcome;
	gm_limits_adopt(limits, &owner, entry->id, entry->place);
	/* The next daemon shall find what is in force. Without room for that, it decides again. */
	if (changed)
		(void)gm_limits_record(limits, &owner);
	return 0;
}

/* Something that was never brought to its end left it. */
static bool adopt_is_unfinished(
	const struct gm_adopt_take *take, unsigned kind, const struct gm_adopt_entry *entry)
{
	/* Of two records, that of the session goes first. */
	if (kind == GM_RECORD_CLIENT)
		return adopt_client_has_ended(take, entry->id);
	/* The limit of a session goes last. */
	if (kind == GM_RECORD_LIMIT) {
		const struct gm_record_limit *limit = (const void *)entry->record;
		return limit->owner.kind == GM_OWNER_SESSION &&
		       adopt_client_has_ended(take, limit->owner.id);
	}
	/* It is recorded before its name, and erased after it. */
	if (kind == GM_RECORD_METADATA) {
		const struct gm_record_metadata *metadata = (const void *)entry->record;
		const struct gm_lease *of =
			adopt_find_object(take, GM_RECORD_LEASE, metadata->lease);
		return !of || of->metadata || (of->name && of->name->metadata != entry->id);
	}
	if (kind != GM_RECORD_CHUNK)
		return false;

	const struct gm_record_chunk *record = (const void *)entry->record;
	const struct gm_adopt_entry *lease = adopt_find(take, GM_RECORD_LEASE, record->owner);
	return record->state == GM_RECORD_LEASED &&
	       (!lease ||
		       record->grant > ((const struct gm_record_lease *)(const void *)lease->record)
					       ->grants);
}

int gm_adopt_take_record(struct gm_adopt_take *take, uint32_t kind, struct gm_adopt_entry *entry)
{
	static int (*const takes[GM_RECORD_KINDS])(
		struct gm_adopt_take * take, struct gm_adopt_entry * entry) = {
		[GM_RECORD_KEY] = adopt_key,
		[GM_RECORD_DEVICE] = adopt_device,
		[GM_RECORD_DRAIN] = adopt_drain,
		[GM_RECORD_LIMIT] = adopt_limit,
		[GM_RECORD_ORPHAN] = adopt_orphan,
		[GM_RECORD_CLIENT] = adopt_client,
		[GM_RECORD_LEASE] = adopt_lease,
		[GM_RECORD_CHUNK] = adopt_chunk,
		[GM_RECORD_ORPHAN_MAP] = adopt_orphan_map,
		[GM_RECORD_DECLARED] = adopt_declared,
		[GM_RECORD_REF] = adopt_hold,
		[GM_RECORD_SHARE] = adopt_share,
		[GM_RECORD_NAME] = adopt_name,
		[GM_RECORD_METADATA] = adopt_metadata,
	};

	assert(kind < GM_RECORD_KINDS && takes[kind]);
	if (adopt_is_unfinished(take, kind, entry))
		return GM_ADOPT_TAKE_E_UNFINISHED;
	return takes[kind](take, entry);
}
