/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debts: an estimate of the memory of a GPU that was destroyed although a process still maps it. The
 * driver counts such memory for the process that maps it, from the moment at which the daemon lets it go. So
 * this file compares what the driver said of a process before some of its chunks were destroyed with
 * what it said afterwards. What came to it then is a debt: it is charged as lingering to the estate of
 * those who had the chunks, while the driver's figure stays above the one from before.
 *
 * This file promises that a process whose figure did not grow when its chunks were destroyed owes
 * nothing, that memory which it declared and then made is no debt, and that nobody owes more than was
 * destroyed. Whatever cannot be told is no debt. A debt of 0 bytes keeps no estate: pooled chunks refer
 * to it long after the last session has ended. It must never ask the driver itself: the device's thread
 * does, at moments of its own choice.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/zeroed.h"
#include "daemon/queue/deadlock.h"

/* How often debts are looked at when nothing else asks for a count. */
#define DEBT_EVERY_NS UINT64_C(1000000000)
/* To learn what became of a process takes a system call or two, so a count asks so often at most. */
#define DEBT_LOOK_AT 64

/* ---- life */

static size_t debt_name_bytes(const char *name)
{
	return name ? strlen(name) + 1 : 0;
}

/* NULL: what the process maps cannot be counted, or there is no memory. */
static struct gm_debt *debt_new(
	struct gm_device *device, pid_t pid, uint64_t began, const struct gm_estate *estate)
{
	if (!device->info.counted || pid <= 0)
		return NULL;
	const struct gm_estate_info *payer = &estate->info;
	size_t unit = debt_name_bytes(payer->unit), container = debt_name_bytes(payer->container);
	struct gm_debt *debt = gm_zeroed(sizeof(*debt) + unit + container);
	if (!debt)
		return NULL;

	debt->device = device;
	debt->payer = *payer;
	if (unit)
		debt->payer.unit = memcpy(debt->names, payer->unit, unit);
	if (container)
		debt->payer.container = memcpy(debt->names + unit, payer->container, container);
	debt->pid = pid;
	debt->began = began;
	debt->refs = 1;
	return debt;
}

struct gm_debt *gm_debt_of_opener(
	struct gm_device *device, const struct gm_session *session, struct gm_estate *estate)
{
	return debt_new(device, session->info.pid, session->info.began, estate);
}

struct gm_debt *gm_debt_of(struct gm_session *session, struct gm_device *device)
{
	struct gm_account *account = gm_session_account(session, device);
	if (!account->debt)
		account->debt =
			debt_new(device, session->info.pid, session->info.began, session->estate);
	return account->debt;
}

static struct gm_debt *debt_ref(struct gm_debt *debt)
{
	if (debt)
		debt->refs++;
	return debt;
}

void gm_debt_unref(struct gm_debt *debt)
{
	if (!debt)
		return;
	assert(debt->refs > 0);
	if (--debt->refs > 0)
		return;
	assert(debt->bytes == 0 && debt->place == 0 && !debt->estate);
	free(debt);
}

void gm_debt_watch(struct gm_chunk *chunk, struct gm_debt *debt)
{
	struct gm_debt *before = chunk->debt;
	if (before == debt)
		return;
	chunk->debt = debt_ref(debt);
	chunk->debtor = debt ? debt->pid : 0;
	gm_debt_unref(before);
}

static void debt_list(struct gm_debt *debt)
{
	if (debt->prev)
		return;
	debt_ref(debt);
	DL_APPEND(debt->device->debts.list, debt);
}

/* Takes it off the list, which may free it. */
static void debt_unlist(struct gm_debt *debt)
{
	assert(debt->bytes == 0);
	DL_DELETE(debt->device->debts.list, debt);
	debt->prev = debt->next = NULL;
	gm_debt_unref(debt);
}

void gm_debt_destroyed(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_debt *debt = chunk->debt;
	if (!debt)
		return;

	chunk->debt = NULL;
	if (!device->env->stopping && device->debts.last) {
		debt->smallest =
			debt->destroyed ? gm_min(debt->smallest, chunk->bytes) : chunk->bytes;
		debt->destroyed += chunk->bytes;
		debt_list(debt);
	}
	gm_debt_unref(debt);
}

/* ---- what is charged */

/* If there is no room for its estate, a debt stays at 0 bytes. */
static void debt_set(struct gm_debt *debt, uint64_t bytes)
{
	struct gm_device *device = debt->device;
	if (!debt->estate &&
		(bytes == 0 || gm_estate_get(device->env->core, &debt->payer, &debt->estate) < 0))
		return;

	struct gm_account *account = gm_estate_account(debt->estate, device);
	if (bytes > debt->bytes)
		gm_ledger_owe(&device->ledger, account, bytes - debt->bytes);
	if (bytes < debt->bytes) {
		gm_ledger_forgive(&device->ledger, account, debt->bytes - bytes);
		gm_deadlock_returned(device, account);
	}
	debt->bytes = bytes;
	gm_commit_debt(debt);
	if (bytes > 0)
		return;
	gm_estate_unref(debt->estate);
	debt->estate = NULL;
}

int gm_debt_adopt(struct gm_device *device, struct gm_estate *estate, uint64_t id, uint32_t place,
	const struct gm_record_debt *record)
{
	if (!device->info.counted || record->pid <= 0)
		return -EOPNOTSUPP;
	struct gm_debt *debt = debt_new(device, record->pid, record->began, estate);
	if (!debt)
		return -ENOMEM;

	debt->estate = gm_estate_ref(estate);
	debt->id = id;
	debt->place = place;
	debt->before = record->before;
	debt->bytes = record->bytes;
	gm_ledger_owe(&device->ledger, gm_estate_account(estate, device), record->bytes);
	debt_list(debt);
	gm_debt_unref(debt);
	device->debts.due_ns = gm_device_now(device);
	return 0;
}

/* ---- counts */

/*
 * How much of what came to a process is memory of its chunks. A living process may have got memory of
 * its own at that moment. So it must be a sum of chunks: a multiple of the smallest, and no more than
 * all of them. A dead process gets nothing any more, and a child of it cannot call the driver.
 */
static uint64_t debt_believe(const struct gm_debt *debt, uint64_t growth, enum gm_fate fate)
{
	if (fate == GM_FATE_GONE)
		return gm_min(growth, debt->destroyed);
	if (growth > debt->destroyed || growth % debt->smallest != 0)
		return 0;
	return growth;
}

static enum gm_fate debt_fate(const struct gm_debt *debt, unsigned *looks)
{
	const struct gm_env *env = debt->device->env;
	if (!env->ops.fate || *looks == 0)
		return GM_FATE_ALIVE;
	--*looks;
	return env->ops.fate(env->ctx, debt->pid, debt->began);
}

/* What the process owes by these two counts: last is the one from before. */
static uint64_t debt_estimate(struct gm_debt *debt, struct gm_counted_process *last,
	const struct gm_counted_process *now, unsigned *looks)
{
	uint64_t growth = 0;
	if (debt->destroyed)
		growth = gm_minus(now->bytes, last ? last->bytes + last->expected : 0);
	if (growth == 0 && debt->bytes == 0)
		return 0;

	enum gm_fate fate = debt_fate(debt, looks);
	if (fate == GM_FATE_REPLACED)
		return 0;
	/* A living process that was not listed before has made its context since. */
	if (!last && fate != GM_FATE_GONE)
		growth = 0;
	uint64_t more = growth ? debt_believe(debt, growth, fate) : 0;

	uint64_t bytes = gm_min(debt->bytes, gm_minus(now->bytes - more, debt->before));
	if (more == 0)
		return bytes;
	/* Another session of the same process must not owe it, too. */
	if (last)
		last->bytes += more;
	/* What the process got for itself since the last debt is no part of it. */
	debt->before = now->bytes - bytes - more;
	return bytes + more;
}

/* Notes in the last count how much of what each process declared is not in it yet, as far as core can tell. Without
 * declarations that is 0. */
static void debt_expect_declared(struct gm_device *device)
{
	struct gm_counted *last = device->debts.last;
	if (!last || device->ledger.declared == 0)
		return;

	for (size_t i = 0; i < last->n; i++) {
		last->list[i].expected = 0;
		last->list[i].before = UINT64_MAX;
	}
	const struct gm_account *account;
	DL_FOREACH (device->ledger.holders, account) {
		struct gm_counted_process *process =
			account->declared ? gm_counted_find(last, account->payer->pid) : NULL;
		if (!process)
			continue;
		process->expected += account->declared;
		process->before = gm_min(process->before, account->undeclared);
	}
	/* What came to the process since then may be declared memory. The rest of that is still to come. */
	for (size_t i = 0; i < last->n; i++) {
		struct gm_counted_process *process = &last->list[i];
		process->expected =
			gm_minus(process->expected, gm_minus(process->bytes, process->before));
	}
}

bool gm_debt_count(struct gm_device *device, struct gm_counted *counted)
{
	struct gm_debts *debts = &device->debts;
	unsigned looks = DEBT_LOOK_AT;
	bool changed = false;
	struct gm_debt *debt, *next;

	debts->due_ns = UINT64_MAX;
	if (debts->list)
		debt_expect_declared(device);
	DL_FOREACH_SAFE (debts->list, debt, next) {
		struct gm_counted_process *now = gm_counted_find(counted, debt->pid);
		uint64_t bytes = debt->bytes, before = debt->before;
		if (counted->known)
			bytes = now ? debt_estimate(debt, gm_counted_find(debts->last, debt->pid),
					      now, &looks)
				    : 0;

		debt->destroyed = debt->smallest = 0;
		if (bytes != debt->bytes || before != debt->before) {
			debt_set(debt, bytes);
			changed = true;
		}
		if (debt->bytes == 0)
			debt_unlist(debt);
		else
			debts->due_ns = gm_device_now(device) + DEBT_EVERY_NS;
	}
	gm_env_need_tick(device->env, debts->due_ns);

	free(debts->last);
	debts->last = counted;
	if (!counted->known) {
		free(counted);
		debts->last = NULL;
	}
	return changed;
}

void gm_debt_tick(struct gm_device *device)
{
	const struct gm_env *env = device->env;
	uint64_t now = gm_device_now(device);
	if (device->debts.due_ns > now)
		return;
	/* The count will say when the next one is due. If it does not come, another one is asked for. */
	device->debts.due_ns = now + DEBT_EVERY_NS;
	if (env->ops.count)
		env->ops.count(env->ctx, device->number);
}

void gm_debt_retire(struct gm_device *device)
{
	struct gm_debt *debt, *next;
	DL_FOREACH_SAFE (device->debts.list, debt, next)
		if (debt->bytes == 0)
			debt_unlist(debt);
}

void gm_debt_end_all(struct gm_device *device)
{
	struct gm_debt *debt, *next;
	DL_FOREACH_SAFE (device->debts.list, debt, next) {
		debt_set(debt, 0);
		debt_unlist(debt);
	}
	device->debts.due_ns = UINT64_MAX;
}
