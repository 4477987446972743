/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes what changed to the ledger's records (record.h), so that the next daemon finds it. This file
 * promises that a grant is committed as a whole or not at all. It must never decide anything: those
 * who change something say when it is to be written.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/commit.h"

#include <stddef.h>
#include <string.h>

#include "common/step.h"

/* The name fits, or is NULL. The rest of the field is 0 already. */
static void commit_copy_name(char *to, const char *name, size_t size)
{
	if (name)
		strncpy(to, name, size - 1);
}

/* Without the key, the hashes of tokens are worth nothing. */
static int commit_key(struct gm_core *core)
{
	struct gm_record_key record = {.key = core->token_key};
	if (core->key_place)
		return 0;
	gm_record_begin(&record.head, GM_RECORD_KEY, 1, sizeof(record), 0);
	return gm_env_record(
		&core->env, GM_RECORD_KEY, 1, &core->key_place, &record, sizeof(record));
}

int gm_commit_session(struct gm_session *session)
{
	struct gm_core *core = session->core;
	const struct gm_session_info *info = &session->info;
	if (!core->env.ops.record)
		return 0;

	int r = commit_key(core);
	if (r < 0)
		return r;

	struct gm_record_client record = {
		.start_time = info->began,
		.since_ns = info->since_ns,
		.pid = info->pid,
		.gid = info->gid,
		.page_version = session->page_version,
		.loose = info->loose,
		.confined = info->confined,
		.own_pid_namespace = info->own_pid_namespace,
		.page_unsafe = session->page_unsafe,
		.payer_uid = gm_record_payer_of(info->uid, info->payer_uid),
		.run_set = info->run_limit.set,
		.token = session->token,
		.domain = session->domain,
		.run_max = info->run_limit.max,
		.run_priority = info->run_limit.priority,
	};
	gm_record_begin(
		&record.head, GM_RECORD_CLIENT, session->payer.id, sizeof(record), info->uid);
	if (session->former_valid)
		record.former = session->former;
	memcpy(record.boot, info->boot, sizeof(record.boot));
	commit_copy_name(record.name, info->name, sizeof(record.name));
	commit_copy_name(record.command, info->command, sizeof(record.command));
	commit_copy_name(record.unit, info->unit, sizeof(record.unit));
	commit_copy_name(record.container, info->container, sizeof(record.container));
	commit_copy_name(record.scope, info->scope, sizeof(record.scope));
	commit_copy_name(record.run, info->run, sizeof(record.run));
	r = gm_env_record(&core->env, GM_RECORD_CLIENT, session->payer.id, &session->place, &record,
		sizeof(record));
	GM_STEP("client: recorded");
	return r;
}

int gm_commit_orphan(struct gm_orphan *orphan)
{
	const struct gm_env *env = &orphan->core->env;
	const struct gm_orphan_info *info = &orphan->info;
	uint64_t id = orphan->payer.id;
	if (!env->ops.record)
		return 0;

	struct gm_record_orphan record = {
		.gid = info->gid, .payer_uid = gm_record_payer_of(info->uid, info->payer_uid)};
	gm_record_begin(&record.head, GM_RECORD_ORPHAN, id, sizeof(record), info->uid);
	commit_copy_name(record.unit, info->unit, sizeof(record.unit));
	commit_copy_name(record.container, info->container, sizeof(record.container));
	return gm_env_record(env, GM_RECORD_ORPHAN, id, &orphan->place, &record, sizeof(record));
}

/* Writes the lease as it will be after a grant of so many chunks, or as it is. */
static int commit_lease(
	struct gm_lease *lease, uint64_t grants, uint64_t chunks, uint64_t user_bytes)
{
	const struct gm_env *env = lease->device->env;
	struct gm_record_lease record;
	uint64_t flags = (lease->for_others ? GM_RECORD_FOR_OTHERS : 0) |
			 (lease->signals ? GM_RECORD_SIGNALS : 0) |
			 (lease->origin ? GM_RECORD_PIECE : 0);
	size_t tag = lease->tag[0] ? strlen(lease->tag) : 0,
	       size = gm_record_lease_size(tag, flags);

	/* A lease that nobody holds yet is about to be its maker's. */
	const struct gm_session *maker = gm_lease_maker(lease);
	uint32_t made = maker ? lease->made + !lease->own.lease : 0;
	gm_record_begin(&record.head, GM_RECORD_LEASE, lease->id, size, lease->orphan->info.uid);
	record.session = maker ? maker->payer.id : 0;
	record.orphan = lease->orphan->payer.id;
	record.grants = lease->grants + grants;
	record.next_index = lease->next_index + chunks;
	record.user_bytes = lease->user_bytes + user_bytes;
	record.device = lease->device->key;
	record.made = made;
	record.transport = (uint32_t)lease->transport;
	record.flags = flags;
	record.origin = lease->origin;
	if (tag > 0 || flags)
		memcpy(record.tag, lease->tag, sizeof(record.tag));
	int r = gm_env_record(env, GM_RECORD_LEASE, lease->id, &lease->place, &record, size);
	GM_STEP("lease: recorded");
	return r;
}

int gm_commit_lease(struct gm_lease *lease)
{
	return lease->device->env->ops.record ? commit_lease(lease, 0, 0, 0) : 0;
}

static int commit_chunk(struct gm_chunk *chunk, const struct gm_device *device, uid_t uid,
	uint64_t owner, uint64_t grant, enum gm_record_chunk_state state)
{
	struct gm_record_chunk record;
	gm_record_begin(&record.head, GM_RECORD_CHUNK, chunk->id, sizeof(record), uid);
	record.owner = owner;
	record.request = chunk->asked;
	record.grant = grant;
	record.index = chunk->index;
	record.bytes = chunk->bytes;
	record.device = device->key;
	record.transport = (uint32_t)chunk->transport;
	record.state = state;
	int r = gm_env_record(
		device->env, GM_RECORD_CHUNK, chunk->id, &chunk->place, &record, sizeof(record));
	GM_STEP("chunk: recorded");
	return r;
}

void gm_commit_orphaned(struct gm_chunk *chunk)
{
	const struct gm_orphan *orphan = chunk->orphan;
	const struct gm_env *env = &orphan->core->env;
	if (env->ops.record)
		commit_chunk(chunk, &env->devices[chunk->device], orphan->info.uid,
			orphan->payer.id, 0, GM_RECORD_ORPHANED);
}

static void commit_erase_chunks(const struct gm_env *env, struct gm_chunk *chunks)
{
	struct gm_chunk *chunk;
	DL_FOREACH (chunks, chunk)
		gm_env_erase(env, &chunk->place);
}

/* Writes the counts of a device at a grant if they would lag too far behind. A write each time would
 * cost a pool hit 5% more. */
static void commit_counts(struct gm_device *device)
{
	uint64_t requests = device->env->core->counters.requests;
	if (device->ledger.peak_charged != device->kept.peak_charged ||
		requests - device->kept.requests >= GM_COMMIT_LAG)
		gm_commit_device(device);
}

int gm_commit_grant(
	struct gm_lease *lease, struct gm_chunk *chunks, uint64_t asked, uint64_t user_bytes)
{
	const struct gm_device *device = lease->device;
	struct gm_chunk *chunk;
	uint64_t n = 0;
	int r = 0;

	DL_FOREACH (chunks, chunk) {
		chunk->asked = asked;
		chunk->index = lease->next_index + n++;
		if (r == 0 && device->env->ops.record)
			r = commit_chunk(chunk, device, lease->orphan->info.uid, lease->id,
				lease->grants + 1, GM_RECORD_LEASED);
	}
	if (r == 0 && device->env->ops.record)
		r = commit_lease(lease, 1, n, user_bytes);
	if (r < 0)
		commit_erase_chunks(device->env, chunks);
	if (r == 0 && device->env->ops.record)
		commit_counts(lease->device);
	return r;
}

int gm_commit_piece(struct gm_lease *lease, struct gm_chunk *chunk)
{
	const struct gm_device *device = lease->device;
	uint64_t asked = chunk->asked;
	if (!device->env->ops.record)
		return 0;

	int r = commit_lease(lease, 1, chunk->index + 1, chunk->bytes);
	if (r < 0)
		return r;
	chunk->asked = 0;
	r = commit_chunk(chunk, device, lease->orphan->info.uid, lease->id, 1, GM_RECORD_LEASED);
	if (r < 0)
		gm_env_erase(device->env, &lease->place);
	chunk->asked = asked;
	return r;
}

void gm_commit_undo(struct gm_lease *lease, struct gm_chunk *chunks)
{
	gm_env_erase(lease->device->env, &lease->place);
	commit_erase_chunks(lease->device->env, chunks);
}

int gm_commit_open(
	struct gm_ref_entry *open, const struct gm_lease *lease, const struct gm_session *session)
{
	const struct gm_env *env = lease->device->env;
	if (!env->ops.record)
		return 0;

	struct gm_record_ref record = {
		.lease_uid = lease->orphan->info.uid,
		.lease = lease->id,
		.session = session->payer.id,
		.request = open->asked,
		.count = 1,
		.read_only = open->read_only,
		.version = lease->version,
	};
	gm_record_begin(&record.head, GM_RECORD_REF, open->id, sizeof(record), session->info.uid);
	int r = gm_env_record(env, GM_RECORD_REF, open->id, &open->place, &record, sizeof(record));
	GM_STEP("open: hold recorded");
	return r;
}

int gm_commit_name(struct gm_name *name)
{
	struct gm_record_name record = {
		.lease = name->lease->id,
		.version = name->version,
		.request = name->asked,
		.since_ns = name->since_ns,
		.domain = name->domain,
		.audience = name->share.audience,
		.audience_id = name->share.id,
		.read_only = name->share.read_only,
		.until_unread = name->until_unread,
		.expires_ns = name->expires_ns,
		.metadata = name->metadata,
	};
	gm_record_begin(&record.head, GM_RECORD_NAME, name->id, sizeof(record), name->uid);
	strcpy(record.text, name->text);
	int r = gm_env_record(
		&name->core->env, GM_RECORD_NAME, name->id, &name->place, &record, sizeof(record));
	GM_STEP("publish: recorded");
	return r;
}

int gm_commit_share(struct gm_token *share)
{
	const struct gm_lease *lease = share->lease;
	const struct gm_env *env = lease->device->env;
	if (!env->ops.record)
		return 0;

	struct gm_record_share record = {
		.hash = share->hash,
		.lease = lease->id,
		.audience = share->options.audience,
		.id = share->options.id,
		.read_only = share->options.read_only,
		.request = share->asked,
	};
	gm_record_begin(
		&record.head, GM_RECORD_SHARE, share->id, sizeof(record), lease->orphan->info.uid);
	int r = gm_env_record(
		env, GM_RECORD_SHARE, share->id, &share->place, &record, sizeof(record));
	GM_STEP("share: recorded");
	return r;
}

int gm_commit_declared(struct gm_session *session)
{
	const struct gm_env *env = &session->core->env;
	struct gm_record_declared record = {0};
	if (!env->ops.record)
		return 0;

	for (uint32_t d = 0; d < env->n_devices; d++) {
		uint64_t bytes = session->payer.accounts[d].declared;
		if (bytes == 0)
			continue;
		record.devices[record.n_devices].device = env->devices[d].key;
		record.devices[record.n_devices++].bytes = bytes;
	}
	if (record.n_devices == 0) {
		gm_env_erase(env, &session->declared_place);
		return 0;
	}
	gm_record_begin(&record.head, GM_RECORD_DECLARED, session->payer.id, sizeof(record),
		session->info.uid);
	int r = gm_env_record(env, GM_RECORD_DECLARED, session->payer.id, &session->declared_place,
		&record, sizeof(record));
	GM_STEP("declare: recorded");
	return r;
}

void gm_commit_orphan_map(struct gm_orphan_map *map)
{
	const struct gm_env *env = map->device->env;
	const struct gm_orphan *orphan = map->orphan;
	if (!env->ops.record)
		return;
	if (map->bytes == 0) {
		gm_env_erase(env, &map->place);
		return;
	}

	if (!map->id)
		map->id = env->ops.new_id(env->ctx);
	struct gm_record_orphan_map record = {
		.orphan = orphan->payer.id,
		.device = map->device->key,
		.bytes = map->bytes,
		.before = map->before,
		.began = map->began,
		.pid = map->pid,
	};
	gm_record_begin(
		&record.head, GM_RECORD_ORPHAN_MAP, map->id, sizeof(record), orphan->info.uid);
	/* Without a record, the next daemon does not know of it: it is an estimate anyway. */
	(void)gm_env_record(
		env, GM_RECORD_ORPHAN_MAP, map->id, &map->place, &record, sizeof(record));
}

void gm_commit_device(struct gm_device *device)
{
	const struct gm_core_counters *counters = &device->env->core->counters;
	if (!device->env->ops.record)
		return;

	struct gm_record_device record = {
		.reclaim_epoch = device->reclaim_epoch,
		.peak_charged = device->ledger.peak_charged,
		.peak_pooled = device->pool.peak,
		.hits = device->pool.hits,
		.misses = device->pool.misses,
		.returns = device->pool.returns,
		.released = device->pool.released,
		.granted = device->queue.granted,
		.requests = counters->requests,
		.refusals = counters->refusals,
	};
	gm_record_begin(&record.head, GM_RECORD_DEVICE, device->key, sizeof(record), 0);
	if (memcmp(&record, &device->kept, sizeof(record)) == 0)
		return;
	device->kept = record;
	gm_env_record(device->env, GM_RECORD_DEVICE, device->key, &device->place, &record,
		sizeof(record));
}
