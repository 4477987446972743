/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: the column in which every byte of a device stands. It promises that no byte is in two
 * columns or in none, that nothing is admitted past the ceiling, and that charges and accounts add
 * up. Each transition asserts that before it returns. Nobody may write to its columns but through
 * these functions. Two fields that are no columns have a second writer: limit.c changes unmet when
 * limits begin or end, and core.c clears measured when a sample failed. The ledger must never
 * decide whether something may happen: the caller has decided that before. (Its one refusal, at
 * admission, makes the check and the charge one step.)
 */
#include "daemon/books/ledger.h"

#include <assert.h>
#include <string.h>

#include <utlist.h>

static void ledger_check(const struct gm_ledger *ledger, const struct gm_account *account)
{
	assert(gm_ledger_charged(ledger) == ledger->held);
	assert(ledger->orphaned <= ledger->quarantined);
	assert(ledger->seen <= ledger->declared);
	if (account) {
		assert(account->admitted <= account->held);
		assert(account->declared <= account->held - account->admitted);
		assert(account->seen <= account->declared);
		assert(account->held <= ledger->held);
		assert(!account->quarantined || account->admitted == 0);
		assert(account->orphaned <= ledger->orphaned);
	}
}

static void ledger_take(uint64_t *column, uint64_t bytes)
{
	assert(*column >= bytes);
	*column -= bytes;
}

static void ledger_put(uint64_t *column, uint64_t bytes)
{
	assert(bytes <= UINT64_MAX - *column);
	*column += bytes;
}

static void ledger_count(struct gm_ledger *ledger, struct gm_ledger_tally *tally, uint64_t held)
{
	ledger->unmet -= gm_ledger_tally_unmet(tally);
	tally->held = held;
	ledger->unmet += gm_ledger_tally_unmet(tally);
}

static void ledger_begin_holding(struct gm_ledger *ledger, struct gm_account *account)
{
	DL_APPEND(ledger->holders, account);
	ledger->n_holders++;
}

static void ledger_end_holding(struct gm_ledger *ledger, struct gm_account *account)
{
	DL_DELETE(ledger->holders, account);
	ledger->n_holders--;
}

static void ledger_charge(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	if (account->held == 0 && bytes > 0)
		ledger_begin_holding(ledger, account);
	ledger_put(&ledger->held, bytes);
	ledger_put(&account->held, bytes);
	for (unsigned i = 0; i < account->n_tallies; i++)
		ledger_count(ledger, account->tallies[i], account->tallies[i]->held + bytes);
}

static void ledger_uncharge(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&account->held, bytes);
	ledger_take(&ledger->held, bytes);
	if (account->held == 0 && bytes > 0)
		ledger_end_holding(ledger, account);
	for (unsigned i = 0; i < account->n_tallies; i++) {
		assert(account->tallies[i]->held >= bytes);
		ledger_count(ledger, account->tallies[i], account->tallies[i]->held - bytes);
	}
}

/* The column that holds what was created for an account. */
static uint64_t *ledger_created_of(struct gm_ledger *ledger, const struct gm_account *account)
{
	return account->quarantined ? &ledger->quarantined : &ledger->leased;
}

static void ledger_uncharge_admitted(
	struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->admitted, bytes);
	ledger_take(&account->admitted, bytes);
	ledger_uncharge(ledger, account, bytes);
}

static void ledger_uncharge_created(
	struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	assert(gm_account_in_chunks(account) - account->orphaned >= bytes);
	ledger_take(ledger_created_of(ledger, account), bytes);
	ledger_uncharge(ledger, account, bytes);
}

void gm_ledger_init(struct gm_ledger *ledger, uint64_t total)
{
	memset(ledger, 0, sizeof(*ledger));
	ledger->total = total;
}

void gm_ledger_deinit(struct gm_ledger *ledger)
{
	assert(gm_ledger_charged(ledger) == 0 && ledger->held == 0 && !ledger->holders);
	assert(ledger->pooled == 0 && ledger->unclaimed == 0 && ledger->doomed == 0);
}

uint64_t gm_ledger_room(
	const struct gm_ledger *ledger, const struct gm_account *account, uint64_t ceiling)
{
	uint64_t taken = gm_ledger_charged(ledger) + gm_ledger_kept_from(ledger, account);
	uint64_t room = ceiling > taken ? ceiling - taken : 0;

	for (unsigned i = 0; i < account->n_tallies; i++) {
		const struct gm_ledger_tally *tally = account->tallies[i];
		uint64_t left = tally->max > tally->held ? tally->max - tally->held : 0;
		if (left < room)
			room = left;
	}
	return room;
}

void gm_ledger_join(
	struct gm_ledger *ledger, struct gm_account *account, struct gm_ledger_tally *tally)
{
	assert(account->n_tallies < GM_TALLIES);
	account->tallies[account->n_tallies++] = tally;
	if (tally->guarantee) {
		assert(!account->guaranteed);
		account->guaranteed = tally;
	}
	ledger_count(ledger, tally, tally->held + account->held);
}

int gm_ledger_admit(
	struct gm_ledger *ledger, struct gm_account *account, uint64_t ceiling, uint64_t bytes)
{
	assert(!account->quarantined);
	if (bytes > gm_ledger_room(ledger, account, ceiling))
		return GM_LEDGER_E_NO_ROOM;

	ledger_put(&ledger->admitted, bytes);
	ledger_put(&account->admitted, bytes);
	ledger_charge(ledger, account, bytes);
	if (ledger->peak_charged < ledger->held)
		ledger->peak_charged = ledger->held;
	ledger_check(ledger, account);
	return 0;
}

void gm_ledger_unadmit(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_uncharge_admitted(ledger, account, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_disown(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_uncharge_admitted(ledger, account, bytes);
	ledger_put(&ledger->unclaimed, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_lease_created(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	assert(!account->quarantined);
	ledger_take(&ledger->admitted, bytes);
	ledger_take(&account->admitted, bytes);
	ledger_put(&ledger->leased, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_lease_pooled(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->pooled, bytes);
	gm_ledger_lease_created(ledger, account, bytes);
}

void gm_ledger_pool_leased(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_uncharge_created(ledger, account, bytes);
	ledger_put(&ledger->pooled, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_doom_leased(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_uncharge_created(ledger, account, bytes);
	ledger_put(&ledger->doomed, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_doom_pooled(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_take(&ledger->pooled, bytes);
	ledger_put(&ledger->doomed, bytes);
}

void gm_ledger_begin_unclaimed(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_put(&ledger->unclaimed, bytes);
}

void gm_ledger_fail_unclaimed(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_take(&ledger->unclaimed, bytes);
}

void gm_ledger_pool_unclaimed(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_take(&ledger->unclaimed, bytes);
	ledger_put(&ledger->pooled, bytes);
}

void gm_ledger_doom_unclaimed(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_take(&ledger->unclaimed, bytes);
	ledger_put(&ledger->doomed, bytes);
}

void gm_ledger_destroyed(struct gm_ledger *ledger, uint64_t bytes)
{
	ledger_take(&ledger->doomed, bytes);
}

void gm_ledger_orphan(
	struct gm_ledger *ledger, struct gm_account *from, struct gm_account *to, uint64_t bytes)
{
	ledger_uncharge_created(ledger, from, bytes);
	ledger_put(&ledger->quarantined, bytes);
	ledger_put(&ledger->orphaned, bytes);
	ledger_put(&to->orphaned, bytes);
	ledger_charge(ledger, to, bytes);
	ledger_check(ledger, from);
	ledger_check(ledger, to);
}

void gm_ledger_doom_orphaned(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->quarantined, bytes);
	ledger_take(&ledger->orphaned, bytes);
	ledger_take(&account->orphaned, bytes);
	ledger_uncharge(ledger, account, bytes);
	ledger_put(&ledger->doomed, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_adopt(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_put(ledger_created_of(ledger, account), bytes);
	ledger_charge(ledger, account, bytes);
	if (ledger->peak_charged < ledger->held)
		ledger->peak_charged = ledger->held;
	ledger_check(ledger, account);
}

void gm_ledger_adopt_orphaned(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_put(&ledger->quarantined, bytes);
	ledger_put(&ledger->orphaned, bytes);
	ledger_put(&account->orphaned, bytes);
	ledger_charge(ledger, account, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_owe(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	gm_ledger_adopt_orphaned(ledger, account, bytes);
}

void gm_ledger_forgive(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->quarantined, bytes);
	ledger_take(&ledger->orphaned, bytes);
	ledger_take(&account->orphaned, bytes);
	ledger_uncharge(ledger, account, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_declare(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	assert(!account->quarantined);
	ledger_take(&ledger->admitted, bytes);
	ledger_take(&account->admitted, bytes);
	ledger_put(&ledger->declared, bytes);
	ledger_put(&account->declared, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_adopt_declared(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_put(&ledger->declared, bytes);
	ledger_put(&account->declared, bytes);
	ledger_charge(ledger, account, bytes);
	if (ledger->peak_charged < ledger->held)
		ledger->peak_charged = ledger->held;
	ledger_check(ledger, account);
}

void gm_ledger_see(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->seen, account->seen);
	account->seen = bytes < account->declared ? bytes : account->declared;
	ledger_put(&ledger->seen, account->seen);
}

void gm_ledger_undeclare(struct gm_ledger *ledger, struct gm_account *account, uint64_t bytes)
{
	ledger_take(&ledger->declared, bytes);
	ledger_take(&account->declared, bytes);
	gm_ledger_see(ledger, account, account->seen);
	ledger_uncharge(ledger, account, bytes);
	ledger_check(ledger, account);
}

void gm_ledger_move(
	struct gm_ledger *ledger, struct gm_account *from, struct gm_account *to, uint64_t bytes)
{
	ledger_uncharge_created(ledger, from, bytes);
	ledger_put(ledger_created_of(ledger, to), bytes);
	ledger_charge(ledger, to, bytes);
	ledger_check(ledger, from);
	ledger_check(ledger, to);
}

void gm_ledger_quarantine(struct gm_ledger *ledger, struct gm_account *account)
{
	assert(!account->quarantined && account->admitted == 0);
	ledger_take(&ledger->leased, gm_account_in_chunks(account));
	ledger_put(&ledger->quarantined, gm_account_in_chunks(account));
	account->quarantined = true;
	ledger_check(ledger, account);
}

void gm_ledger_resume(struct gm_ledger *ledger, struct gm_account *account)
{
	assert(account->quarantined);
	ledger_take(&ledger->quarantined, gm_account_in_chunks(account));
	ledger_put(&ledger->leased, gm_account_in_chunks(account));
	account->quarantined = false;
	ledger_check(ledger, account);
}

uint64_t gm_ledger_free(const struct gm_ledger *ledger)
{
	uint64_t used = ledger->foreign + gm_ledger_created(ledger) + ledger->doomed + ledger->seen;
	return used < ledger->total ? ledger->total - used : 0;
}

bool gm_ledger_sample(struct gm_ledger *ledger, uint64_t free_bytes)
{
	uint64_t ours = gm_ledger_created(ledger) + ledger->doomed + ledger->seen;
	uint64_t used = free_bytes < ledger->total ? ledger->total - free_bytes : 0;
	uint64_t foreign = used > ours ? used - ours : 0;

	ledger->measured = true;
	if (foreign == ledger->foreign)
		return false;
	ledger->foreign = foreign;
	return true;
}
