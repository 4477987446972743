/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which addresses ipc blocks have had, and who may have seen them: see ipc_ranges.h. All ranges,
 * live and retired, are in one list in order of address and never overlap, so what a new block
 * would lie on is found quickly; everything else is a walk, which is short beside the driver's own.
 * It must never let memory out of here that lies on a retired range, unless that is the domain's
 * own.
 */
#include "daemon/core/table.h"
#include "daemon/ipc_ranges.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

struct account {
	uid_t uid;
	uint64_t ranges;  /* that name it, live ones included */
	uint64_t retired; /* of them */
	uint64_t bytes;   /* of those */
	bool told;
	UT_hash_handle hh;
};

struct range {
	gm_cu_ptr va;
	uint64_t bytes;
	uint32_t device;
	gm_domain domain;
	struct account *account;
	bool live;
	bool guarded;    /* a reservation holds it */
	bool seen;       /* a handle of it was given out, now or earlier */
	bool several;    /* to more than the domain: never used again */
	unsigned missed; /* how often the driver was offered it and took another place */
};

struct gm_ipc_ranges {
	const struct gm_cuda *cuda;
	pthread_mutex_t lock; /* of all below, and of the driver's calls that place memory */
	struct range **all;   /* by address */
	size_t n, room;
	struct account *accounts;
	bool never_merges; /* the driver does not reserve neighbours as one */
};

/* Memory that cannot be taken, kept from coming again until some other was found. */
struct avoided {
	gm_cu_ptr va;
	bool reserved; /* else it is still allocated */
	struct avoided *next;
};

int gm_ipc_ranges_new(const struct gm_cuda *cuda, struct gm_ipc_ranges **ret_ranges)
{
	struct gm_ipc_ranges *ranges = calloc(1, sizeof *ranges);

	if (!ranges)
		return -ENOMEM;
	ranges->cuda = cuda;
	pthread_mutex_init(&ranges->lock, NULL);
	*ret_ranges = ranges;
	return 0;
}

void gm_ipc_ranges_free(struct gm_ipc_ranges *ranges)
{
	struct account *account, *next;

	if (!ranges)
		return;
	for (size_t i = 0; i < ranges->n; i++) {
		if (ranges->all[i]->guarded)
			ranges->cuda->cuMemAddressFree(ranges->all[i]->va, ranges->all[i]->bytes);
		free(ranges->all[i]);
	}
	HASH_ITER (hh, ranges->accounts, account, next) {
		HASH_DEL(ranges->accounts, account);
		free(account);
	}
	free(ranges->all);
	pthread_mutex_destroy(&ranges->lock);
	free(ranges);
}

/* ---- accounts */

static struct account *account_get(struct gm_ipc_ranges *ranges, uid_t uid)
{
	struct account *account;

	HASH_FIND(hh, ranges->accounts, &uid, sizeof uid, account);
	if (account)
		return account;
	account = calloc(1, sizeof *account);
	if (!account)
		return NULL;
	account->uid = uid;
	HASH_ADD(hh, ranges->accounts, uid, sizeof account->uid, account);
	if (!GM_TABLE_ADDED(account)) {
		free(account);
		return NULL;
	}
	return account;
}

static void account_put(struct gm_ipc_ranges *ranges, struct account *account)
{
	if (account->ranges)
		return;
	HASH_DEL(ranges->accounts, account);
	free(account);
}

static bool has_room(const struct account *account)
{
	return account->retired < GM_LIMIT_IPC_RANGES_PER_UID &&
	       account->bytes >> 30 < GM_LIMIT_IPC_RANGES_GIB_PER_UID;
}

/* ---- ranges by address */

/* The first one that ends behind an address; n: none does. */
static size_t behind(const struct gm_ipc_ranges *ranges, gm_cu_ptr va)
{
	size_t low = 0, high = ranges->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ranges->all[middle]->va + ranges->all[middle]->bytes > va)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static struct range *overlapping(const struct gm_ipc_ranges *ranges, gm_cu_ptr va, uint64_t bytes)
{
	size_t i = behind(ranges, va);

	return i < ranges->n && ranges->all[i]->va < va + bytes ? ranges->all[i] : NULL;
}

static int make_room(struct gm_ipc_ranges *ranges)
{
	size_t room = ranges->room ? ranges->room * 2 : 64;
	struct range **all;

	if (ranges->n < ranges->room)
		return 0;
	all = realloc(ranges->all, room * sizeof *all);
	if (!all)
		return -ENOMEM;
	ranges->all = all;
	ranges->room = room;
	return 0;
}

/* There is room, and nothing overlaps it. */
static void insert(struct gm_ipc_ranges *ranges, struct range *range)
{
	size_t i = behind(ranges, range->va);

	memmove(&ranges->all[i + 1], &ranges->all[i], (ranges->n - i) * sizeof *ranges->all);
	ranges->all[i] = range;
	ranges->n++;
	range->account->ranges++;
}

/* Forgets some that lie side by side in the list. */
static void forget(struct gm_ipc_ranges *ranges, size_t first, size_t n)
{
	for (size_t i = first; i < first + n; i++) {
		struct account *account = ranges->all[i]->account;
		account->ranges--;
		free(ranges->all[i]);
		account_put(ranges, account);
	}
	memmove(&ranges->all[first], &ranges->all[first + n],
		(ranges->n - first - n) * sizeof *ranges->all);
	ranges->n -= n;
}

/* ---- reservations */

/* Whether the driver reserves just that place. */
static bool reserve(struct gm_ipc_ranges *ranges, gm_cu_ptr va, uint64_t bytes)
{
	const struct gm_cuda *cuda = ranges->cuda;
	gm_cu_ptr got;

	if (!cuda->cuMemAddressReserve || !cuda->cuMemAddressFree ||
		cuda->cuMemAddressReserve(&got, bytes, 0, va, 0))
		return false;
	if (got == va)
		return true;
	cuda->cuMemAddressFree(got, bytes);
	return false;
}

static void guard(struct gm_ipc_ranges *ranges, struct range *range)
{
	range->guarded = reserve(ranges, range->va, range->bytes);
}

static bool unguard(struct gm_ipc_ranges *ranges, struct range *range)
{
	if (ranges->cuda->cuMemAddressFree(range->va, range->bytes))
		return false;
	range->guarded = false;
	return true;
}

static void retire(struct range *range)
{
	range->live = false;
	range->account->retired++;
	range->account->bytes += range->bytes;
}

static void revive(struct range *range)
{
	range->live = true;
	range->account->retired--;
	range->account->bytes -= range->bytes;
}

/* ---- neighbours that become one */

/* The end of a run of reserved ranges of one account that lie side by side. */
static size_t run_end(const struct gm_ipc_ranges *ranges, size_t first, const struct account *of)
{
	size_t i = first;

	while (i < ranges->n && ranges->all[i]->guarded && ranges->all[i]->account == of &&
		(i == first ||
			ranges->all[i - 1]->va + ranges->all[i - 1]->bytes == ranges->all[i]->va))
		i++;
	return i;
}

static void merge(struct gm_ipc_ranges *ranges, size_t first, size_t n)
{
	struct range **run = &ranges->all[first];
	uint64_t bytes = 0;
	bool free_all = true;

	for (size_t i = 0; i < n; i++) {
		bytes += run[i]->bytes;
		free_all = free_all && unguard(ranges, run[i]);
	}
	if (free_all && reserve(ranges, run[0]->va, bytes)) {
		run[0]->bytes = bytes;
		run[0]->guarded = true;
		run[0]->several = true; /* of no size that anybody asks for */
		run[0]->account->retired -= n - 1;
		forget(ranges, first + 1, n - 1);
		return;
	}
	ranges->never_merges = true;
	for (size_t i = 0; i < n; i++)
		if (!run[i]->guarded)
			guard(ranges, run[i]);
}

static void compact(struct gm_ipc_ranges *ranges, const struct account *account)
{
	for (size_t i = 0; i < ranges->n && !ranges->never_merges; i++) {
		size_t end = run_end(ranges, i, account);
		if (end > i + 1)
			merge(ranges, i, end - i);
	}
}

/* ---- taking */

static bool is_own(const struct range *range, const struct gm_seen *seen)
{
	return !range->live && !range->several && range->domain == seen->domain;
}

/* A retired range of the domain that just fits, one that the driver did not pass over if there is
 * one. */
static struct range *find_own(const struct gm_ipc_ranges *ranges, uint32_t device, uint64_t bytes,
	const struct gm_seen *seen)
{
	struct range *best = NULL;

	for (size_t i = 0; i < ranges->n; i++) {
		struct range *range = ranges->all[i];
		if (range->bytes == bytes && range->guarded && range->device == device &&
			is_own(range, seen) && (!best || range->missed < best->missed))
			best = range;
	}
	return best;
}

/*
 * Memory that lies where it must not is freed and its place reserved until the search is over;
 * where the driver does not do that it is kept, from then on. Either way it does not come again.
 * false: no host memory; it is freed.
 */
static bool avoid(struct gm_ipc_ranges *ranges, gm_cu_ptr ptr, uint64_t bytes, bool *keep,
	struct avoided **list)
{
	struct avoided *avoided = calloc(1, sizeof *avoided);

	if (avoided && *keep) {
		avoided->va = ptr;
		LL_PREPEND(*list, avoided);
		return true;
	}
	ranges->cuda->cuMemFree(ptr);
	if (!avoided)
		return false;
	avoided->va = ptr;
	avoided->reserved = reserve(ranges, ptr, bytes);
	if (avoided->reserved) {
		LL_PREPEND(*list, avoided);
	} else {
		*keep = true;
		free(avoided);
	}
	return true;
}

static void unavoid(struct gm_ipc_ranges *ranges, struct avoided *avoided, uint64_t bytes)
{
	struct range *range = overlapping(ranges, avoided->va, bytes);

	if (!avoided->reserved)
		ranges->cuda->cuMemFree(avoided->va);
	else if (range && range->va == avoided->va && range->bytes == bytes && !range->live)
		range->guarded = true; /* by what was reserved just now */
	else
		ranges->cuda->cuMemAddressFree(avoided->va, bytes);
	free(avoided);
}

/* Memory that lies on no range, or on one of the domain's own, which is told. */
static gm_cu_result place(struct gm_ipc_ranges *ranges, uint64_t bytes, const struct gm_seen *seen,
	gm_cu_ptr *ret_ptr, struct range **ret_own)
{
	struct avoided *list = NULL, *avoided, *next;
	struct range *range = NULL;
	gm_cu_result result;
	bool keep = false;
	gm_cu_ptr ptr;

	/* Each one that is avoided lies on another range, so this ends. */
	for (;;) {
		result = ranges->cuda->cuMemAlloc(&ptr, bytes);
		if (result)
			break;
		range = overlapping(ranges, ptr, bytes);
		if (!range || (range->va == ptr && range->bytes == bytes && is_own(range, seen)))
			break;
		if (!avoid(ranges, ptr, bytes, &keep, &list)) {
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
	}
	LL_FOREACH_SAFE (list, avoided, next)
		unavoid(ranges, avoided, bytes);
	if (result)
		return result;
	*ret_ptr = ptr;
	*ret_own = range;
	return GM_CUDA_SUCCESS;
}

static bool find_room(struct gm_ipc_ranges *ranges, struct account *account)
{
	if (!has_room(account))
		compact(ranges, account);
	return has_room(account);
}

/* With the lock, and a range that it takes if it needs one. */
static int take(struct gm_ipc_ranges *ranges, struct range **fresh, const struct gm_seen *seen,
	gm_cu_ptr *ret_ptr, gm_cu_result *ret_result)
{
	struct account *account = (*fresh)->account;
	uint64_t bytes = (*fresh)->bytes;
	struct range *offered = find_own(ranges, (*fresh)->device, bytes, seen), *own;
	gm_cu_result result;

	if (offered && !unguard(ranges, offered))
		offered = NULL;
	if (!offered && !find_room(ranges, account))
		return GM_IPC_RANGES_E_SPENT;
	result = place(ranges, bytes, seen, ret_ptr, &own);
	if (offered && (result || own != offered)) {
		guard(ranges, offered);
		offered->missed += !result;
	}
	if (result) {
		*ret_result = result;
		return GM_IPC_RANGES_E_DRIVER;
	}
	if (own) {
		revive(own);
		return 0;
	}
	if (offered && !find_room(ranges, account)) {
		ranges->cuda->cuMemFree(*ret_ptr);
		return GM_IPC_RANGES_E_SPENT;
	}
	(*fresh)->va = *ret_ptr;
	insert(ranges, *fresh);
	*fresh = NULL;
	return 0;
}

int gm_ipc_ranges_take(struct gm_ipc_ranges *ranges, uint32_t device, uint64_t bytes,
	const struct gm_seen *seen, gm_cu_ptr *ret_ptr, gm_cu_result *ret_result)
{
	struct range *fresh = calloc(1, sizeof *fresh);
	struct account *account;
	gm_cu_ptr ptr;
	int r = -ENOMEM;

	if (!fresh)
		return r;
	pthread_mutex_lock(&ranges->lock);
	account = account_get(ranges, seen->uid);
	if (account && make_room(ranges) == 0) {
		*fresh = (struct range){.bytes = (bytes + GM_CHUNK_MIN - 1) & ~(GM_CHUNK_MIN - 1),
			.device = device,
			.domain = seen->domain,
			.account = account,
			.live = true};
		r = take(ranges, &fresh, seen, &ptr, ret_result);
	}
	if (account)
		account_put(ranges, account);
	pthread_mutex_unlock(&ranges->lock);
	free(fresh);
	if (r == 0)
		*ret_ptr = ptr;
	return r;
}

/* ---- giving back */

static void note_seen(struct range *range, const struct gm_seen *seen)
{
	if (!seen || seen->domain == GM_DOMAIN_FRESH)
		return;
	if (range->domain == GM_DOMAIN_FRESH)
		range->domain = seen->domain;
	if (range->domain != seen->domain || seen->several)
		range->several = true;
	range->seen = true;
}

gm_cu_result gm_ipc_ranges_release(
	struct gm_ipc_ranges *ranges, gm_cu_ptr ptr, const struct gm_seen *seen)
{
	struct range *range;
	gm_cu_result result;
	size_t i;

	pthread_mutex_lock(&ranges->lock);
	i = behind(ranges, ptr);
	assert(i < ranges->n && ranges->all[i]->va == ptr && ranges->all[i]->live);
	range = ranges->all[i];
	note_seen(range, seen);
	result = ranges->cuda->cuMemFree(ptr);
	if (result) {
		range->several = true;
		retire(range);
	} else if (range->seen) {
		retire(range);
		guard(ranges, range);
	} else {
		forget(ranges, i, 1);
	}
	pthread_mutex_unlock(&ranges->lock);
	return result;
}

bool gm_ipc_ranges_left(
	struct gm_ipc_ranges *ranges, uid_t uid, uint64_t *ret_ranges, uint64_t *ret_bytes)
{
	struct account *account;
	bool told = false;

	pthread_mutex_lock(&ranges->lock);
	HASH_FIND(hh, ranges->accounts, &uid, sizeof uid, account);
	*ret_ranges = account ? account->retired : 0;
	*ret_bytes = account ? account->bytes : 0;
	if (account) {
		told = account->told;
		account->told = true;
	}
	pthread_mutex_unlock(&ranges->lock);
	return told;
}
