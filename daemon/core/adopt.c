/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of adoption. This file promises that each record has its turn after those that it rests on, and that whatever
 * is not adopted is erased and counted. It must never know what makes a record sound: adopt_take.c does.
 *
 * The order is: limits, orphaned accounts, clients, leases, chunks, declarations, opened leases, shares, names, metadata, limits
 * of clients. Each limit makes a new table of all limits and runs, and joins all clients to it. So limits come first,
 * when there are no runs and no clients: otherwise a user with many runs would make the start slow.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/name_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "daemon/core/adopt.h"
#include "daemon/core/adopt_take.h"

struct gm_adopt {
	struct gm_adopt_take take;
	struct gm_adopt_result result;
};

/* ---- reading */

int gm_adopt_new(struct gm_core *core, struct gm_adopt **ret_adopt)
{
	struct gm_adopt *adopt = calloc(1, sizeof(*adopt));
	if (!adopt)
		return -ENOMEM;
	adopt->take.core = core;
	*ret_adopt = adopt;
	return 0;
}

void gm_adopt_free(struct gm_adopt *adopt)
{
	if (!adopt)
		return;
	gm_adopt_records_deinit(&adopt->take.records);
	free(adopt);
}

int gm_adopt_add(struct gm_adopt *adopt, uint32_t kind, uint64_t id, uint32_t place,
	const void *bytes, size_t size)
{
	adopt->result.records++;
	int r = gm_adopt_records_add(&adopt->take.records, kind, id, place, bytes, size);
	if (r != GM_ADOPT_RECORDS_E_DAMAGED)
		return r;
	adopt->result.damaged[gm_adopt_records_is_kind(kind) ? kind : GM_RECORD_NONE]++;
	gm_env_erase(&adopt->take.core->env, &place);
	return 0;
}

static int adopt_by_index(const void *a, const void *b)
{
	const struct gm_adopt_entry *x = *(struct gm_adopt_entry *const *)a;
	const struct gm_adopt_entry *y = *(struct gm_adopt_entry *const *)b;
	const struct gm_record_chunk *p = (const void *)x->record, *q = (const void *)y->record;
	if (p->owner != q->owner)
		return p->owner < q->owner ? -1 : 1;
	if (p->index != q->index)
		return p->index < q->index ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

bool gm_adopt_is_elsewhere(const struct gm_adopt *adopt)
{
	const struct gm_env *env = &adopt->take.core->env;
	const struct gm_adopt_list *devices = &adopt->take.records.lists[GM_RECORD_DEVICE];
	const struct gm_adopt_list *leases = &adopt->take.records.lists[GM_RECORD_LEASE];
	bool away = false;

	for (size_t i = 0; i < devices->n; i++) {
		const struct gm_device *device = gm_device_by_key(env, devices->entries[i]->id);
		if (device && !device->info.pinned)
			return false;
	}
	for (size_t i = 0; i < leases->n; i++) {
		const struct gm_record_lease *lease = (const void *)leases->entries[i]->record;
		away = away || !gm_device_by_key(env, lease->device);
	}
	return away;
}

static void adopt_give_up(struct gm_adopt *adopt, struct gm_adopt_entry *entry)
{
	gm_env_erase(&adopt->take.core->env, &entry->place);
}

/* Nobody can say which one of several records is right. */
static void adopt_drop_double(void *ctx, uint32_t kind, struct gm_adopt_entry *entry)
{
	struct gm_adopt *adopt = ctx;
	adopt_give_up(adopt, entry);
	adopt->result.damaged[kind]++;
}

/* ---- all of it */

static bool adopt_is_of_session(const struct gm_adopt_entry *entry)
{
	const struct gm_record_limit *record = (const void *)entry->record;
	return record->owner.kind == GM_OWNER_SESSION;
}

static bool adopt_is_of_others(const struct gm_adopt_entry *entry)
{
	return !adopt_is_of_session(entry);
}

struct adopt_step {
	unsigned kind;
	bool (*which)(const struct gm_adopt_entry *entry); /* NULL: all */
};

static void adopt_count(struct gm_adopt_result *result, unsigned kind, int outcome)
{
	switch (outcome) {
	case 0:
		result->adopted[kind]++;
		break;
	case GM_ADOPT_TAKE_E_UNFINISHED:
		result->unfinished++;
		break;
	case GM_ADOPT_TAKE_E_LOST:
		result->lost += kind == GM_RECORD_CHUNK;
		result->incomplete += kind == GM_RECORD_NAME;
		break;
	case GM_ADOPT_TAKE_E_IPC:
		/* The lease stands for its chunks. */
		result->ipc += kind == GM_RECORD_LEASE;
		break;
	case GM_ADOPT_TAKE_E_ELSEWHERE:
		result->elsewhere[kind]++;
		break;
	case GM_ADOPT_TAKE_E_CONTRADICTED:
		result->contradicted++;
		break;
	default:
		result->damaged[kind]++;
	}
}

static int adopt_each(struct gm_adopt *adopt, const struct adopt_step *step)
{
	const struct gm_adopt_list *list = &adopt->take.records.lists[step->kind];
	for (size_t i = 0; i < list->n; i++) {
		struct gm_adopt_entry *entry = list->entries[i];
		if (step->which && !step->which(entry))
			continue;
		int r = gm_adopt_take_record(&adopt->take, step->kind, entry);
		if (r < 0)
			return r;
		entry->taken = r == 0;
		adopt_count(&adopt->result, step->kind, r);
	}
	return 0;
}

/* Ends a lease of which the daemon lacks some memory. Only its maker can hold it. */
static void adopt_end_lost(struct gm_adopt *adopt, struct gm_lease *lease, bool missed)
{
	uint64_t all = UINT64_MAX;
	adopt->result.incomplete += missed;
	adopt->result.adopted[GM_RECORD_LEASE]--;
	if (lease->maker)
		gm_lease_drop(lease, &lease->own, true, &all);
	else
		gm_lease_end_unheld(lease);
}

/* Ends leases that nobody holds, because their last holder was about to leave, and those that are not whole. A name without
 * its metadata is not whole, either. */
static void adopt_end_leases(struct gm_adopt *adopt)
{
	struct gm_adopt_list *list = &adopt->take.records.lists[GM_RECORD_LEASE];
	for (size_t i = 0; i < list->n; i++) {
		struct gm_lease *lease = gm_steal_ptr(&list->entries[i]->object);
		if (!lease)
			continue;
		if (list->entries[i]->lost) {
			adopt_end_lost(adopt, lease, list->entries[i]->missed);
			continue;
		}
		if (lease->name && lease->name->metadata && !lease->metadata) {
			gm_name_drop(lease);
			adopt->result.incomplete++;
			adopt->result.adopted[GM_RECORD_NAME]--;
		}
		lease->user_bytes = gm_u64_min(lease->user_bytes, lease->bytes);
		if (!lease->refs && !lease->name)
			gm_lease_end_unheld(lease);
	}
}

static void adopt_finish(struct gm_adopt *adopt)
{
	adopt_end_leases(adopt);

	/* Orphaned accounts live on if something refers to them. */
	struct gm_adopt_list *orphans = &adopt->take.records.lists[GM_RECORD_ORPHAN];
	for (size_t i = 0; i < orphans->n; i++)
		gm_orphan_unref(orphans->entries[i]->object);

	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		for (size_t i = 0; i < adopt->take.records.lists[kind].n; i++)
			if (!adopt->take.records.lists[kind].entries[i]->taken)
				adopt_give_up(adopt, adopt->take.records.lists[kind].entries[i]);
}

static int adopt_all(struct gm_adopt *adopt)
{
	static const struct adopt_step steps[] = {
		{GM_RECORD_KEY, NULL},
		{GM_RECORD_DEVICE, NULL},
		{GM_RECORD_DRAIN, NULL},
		{GM_RECORD_LIMIT, adopt_is_of_others},
		{GM_RECORD_ORPHAN, NULL},
		{GM_RECORD_CLIENT, NULL},
		{GM_RECORD_LEASE, NULL},
		{GM_RECORD_CHUNK, NULL},
		{GM_RECORD_ORPHAN_MAP, NULL},
		{GM_RECORD_DECLARED, NULL},
		{GM_RECORD_REF, NULL},
		{GM_RECORD_SHARE, NULL},
		{GM_RECORD_NAME, NULL},
		{GM_RECORD_METADATA, NULL},
		{GM_RECORD_LIMIT, adopt_is_of_session},
	};
	gm_adopt_records_sort(&adopt->take.records, adopt_drop_double, adopt);
	struct gm_adopt_list *chunks = &adopt->take.records.lists[GM_RECORD_CHUNK];
	if (chunks->n > 0)
		qsort(chunks->entries, chunks->n, sizeof(chunks->entries[0]), adopt_by_index);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int r = adopt_each(adopt, &steps[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int gm_core_adopt(struct gm_adopt *adopt, const struct gm_adopt_ops *ops, void *ctx,
	struct gm_adopt_result *ret_result)
{
	struct gm_env *env = &adopt->take.core->env;
	assert(env->adopting);
	adopt->take.ops = ops;
	adopt->take.ctx = ctx;

	gm_env_enter(env);
	int r = adopt_all(adopt);
	if (r == 0)
		adopt_finish(adopt);
	gm_env_leave(env);

	*ret_result = adopt->result;
	gm_adopt_free(adopt);
	return r;
}
