/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See ipc_blocks.h. No manual says where in a handle the number is; it was found by experiment
 * (driver 580, see doc/driver.md). If another driver puts it elsewhere, two blocks most
 * likely have the same bytes there. Then only one block exists at a time, for one domain.
 *
 * It must never hand out a block if another domain may have a handle with its number.
 */
#include "daemon/books/hash_table.h" /* must come first */

#include "daemon/backend/ipc_blocks.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/bounds.h"
#include "daemon/user/user.h"

/* The offset of the number in a handle. */
#define NUMBER_AT 48

/* How many unusable numbers in a row are skipped, besides one for each number that is known; and
 * the bound on both together, which is what two uids can leave behind. */
#define TRIES     1024
#define TRIES_MAX (2 * GM_BOUND_IPC_NUMBERS_PER_UID)

/* A number that a block has, or had while somebody may still have a handle with it. */
struct number {
	uint64_t key;
	bool live;        /* a block has it now */
	bool several;     /* several domains have had it */
	gm_domain domain; /* the domain that had it; 0: none yet */
	uid_t uid;        /* the uid that it is charged to */
	UT_hash_handle hh;
};

struct payer {
	uid_t uid;
	uint64_t numbers;
	bool asked;
	UT_hash_handle hh;
};

/* A page of host memory that keeps a number out of use. */
struct page {
	uint32_t device;
	void *at;
	struct page *prev, *next;
};

struct gm_ipc_blocks {
	const struct gm_cuda *cuda;
	size_t page_bytes;
	pthread_mutex_t
		lock; /* of everything below, and of calls that change the driver's numbers */
	struct number *numbers;
	struct payer *payers;
	struct page *pages;
};

int gm_ipc_blocks_new(const struct gm_cuda *cuda, struct gm_ipc_blocks **ret_blocks)
{
	struct gm_ipc_blocks *blocks = calloc(1, sizeof(*blocks));

	if (!blocks)
		return -ENOMEM;
	blocks->cuda = cuda;
	blocks->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	pthread_mutex_init(&blocks->lock, NULL);
	*ret_blocks = blocks;
	return 0;
}

static void ipc_page_free(struct gm_ipc_blocks *blocks, struct page *page)
{
	DL_DELETE(blocks->pages, page);
	munmap(page->at, blocks->page_bytes);
	free(page);
}

void gm_ipc_blocks_free(struct gm_ipc_blocks *blocks)
{
	struct number *number, *next_number;
	struct payer *payer, *next_payer;

	if (!blocks)
		return;

	while (blocks->pages)
		ipc_page_free(blocks, blocks->pages);
	HASH_ITER (hh, blocks->numbers, number, next_number) {
		HASH_DEL(blocks->numbers, number);
		free(number);
	}

	HASH_ITER (hh, blocks->payers, payer, next_payer) {
		HASH_DEL(blocks->payers, payer);
		free(payer);
	}

	pthread_mutex_destroy(&blocks->lock);
	free(blocks);
}

/* ---- numbers; all with the lock held */

static struct number *ipc_find(struct gm_ipc_blocks *blocks, const gm_cu_ipc_mem *handle)
{
	struct number *number;
	uint64_t key;

	memcpy(&key, (const char *)handle + NUMBER_AT, sizeof(key));
	HASH_FIND(hh, blocks->numbers, &key, sizeof(key), number);
	return number;
}

static struct payer *ipc_payer_of(struct gm_ipc_blocks *blocks, uid_t uid)
{
	struct payer *payer;

	HASH_FIND(hh, blocks->payers, &uid, sizeof(uid), payer);
	if (payer)
		return payer;

	payer = calloc(1, sizeof(*payer));
	if (!payer)
		return NULL;

	payer->uid = uid;
	HASH_ADD(hh, blocks->payers, uid, sizeof(uid), payer);
	if (!GM_TABLE_ADDED(payer)) {
		free(payer);
		return NULL;
	}
	return payer;
}

static bool ipc_is_spent(struct gm_ipc_blocks *blocks, uid_t uid)
{
	struct payer *payer;

	HASH_FIND(hh, blocks->payers, &uid, sizeof(uid), payer);
	uint64_t own = payer ? payer->numbers : 0;
	return own >= GM_BOUND_IPC_NUMBERS_PER_UID ||
	       !gm_user_leaves_enough(own, HASH_COUNT(blocks->numbers), GM_BOUND_IPC_NUMBERS);
}

/* Nobody can have a handle with this number. */
static void ipc_forget(struct gm_ipc_blocks *blocks, struct number *number)
{
	struct payer *payer;

	HASH_FIND(hh, blocks->payers, &number->uid, sizeof(number->uid), payer);
	if (payer && --payer->numbers == 0 && !payer->asked) {
		HASH_DEL(blocks->payers, payer);
		free(payer);
	}
	HASH_DEL(blocks->numbers, number);
	free(number);
}

/* Whether a block of the domain may have the number. NULL: a number that nobody has had. */
static bool ipc_is_good(const struct number *number, const struct gm_backend_seen *seen)
{
	return !number || (!number->live && !number->several && number->domain == seen->domain);
}

/* Gives the number in a handle to the domain. Returns 0, E_SPENT, E_TAKEN or -ENOMEM. */
static int ipc_claim(struct gm_ipc_blocks *blocks, const gm_cu_ipc_mem *handle,
	const struct gm_backend_seen *seen)
{
	struct number *number = ipc_find(blocks, handle);
	struct payer *payer;

	if (!ipc_is_good(number, seen))
		return GM_IPC_BLOCKS_E_TAKEN;
	if (number) {
		number->live = true;
		return 0;
	}
	if (ipc_is_spent(blocks, seen->payer_uid))
		return GM_IPC_BLOCKS_E_SPENT;

	payer = ipc_payer_of(blocks, seen->payer_uid);
	if (!payer)
		return -ENOMEM;

	number = calloc(1, sizeof(*number));
	if (!number)
		return -ENOMEM;

	memcpy(&number->key, (const char *)handle + NUMBER_AT, sizeof(number->key));
	number->live = true;
	number->uid = seen->payer_uid;
	HASH_ADD(hh, blocks->numbers, key, sizeof(number->key), number);
	if (!GM_TABLE_ADDED(number)) {
		free(number);
		return -ENOMEM;
	}

	payer->numbers++;
	return 0;
}

static void ipc_retire(
	struct gm_ipc_blocks *blocks, struct number *number, const struct gm_backend_seen *seen)
{
	number->live = false;
	if (seen->several || (number->domain && number->domain != seen->domain))
		number->several = true;
	if (seen->domain)
		number->domain = seen->domain;
	if (!number->several && !number->domain)
		ipc_forget(blocks, number);
}

/* Makes a page, which gets the number that was just freed, or another one that is not in use. */
static int ipc_plug(struct gm_ipc_blocks *blocks, uint32_t device, gm_cu_result *ret_result)
{
	struct page *page = calloc(1, sizeof(*page));

	if (!page)
		return -ENOMEM;

	page->device = device;
	page->at = mmap(NULL, blocks->page_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page->at == MAP_FAILED) {
		free(page);
		return -ENOMEM;
	}

	DL_APPEND(blocks->pages, page);
	*ret_result = blocks->cuda->cuMemHostRegister(page->at, blocks->page_bytes, 0);
	if (!*ret_result)
		return 0;

	ipc_page_free(blocks, page);
	return GM_IPC_BLOCKS_E_DRIVER;
}

/* ---- blocks */

/* Makes and frees a small block to see its number, because the driver needs longer for large
 * blocks. The next block mostly gets the number that was freed last. Returns 0, E_TAKEN or
 * E_DRIVER. Must be called with the lock held. */
static int ipc_peek(struct gm_ipc_blocks *blocks, const struct gm_backend_seen *seen,
	const char **ret_call, gm_cu_result *ret_result)
{
	const struct gm_cuda *cuda = blocks->cuda;
	gm_cu_ipc_mem handle;
	gm_cu_ptr ptr;

	*ret_call = "cuMemAlloc";
	*ret_result = cuda->cuMemAlloc(&ptr, GM_CHUNK_MIN);
	if (*ret_result)
		return GM_IPC_BLOCKS_E_DRIVER;
	*ret_call = "cuIpcGetMemHandle";
	*ret_result = cuda->cuIpcGetMemHandle(&handle, ptr);
	cuda->cuMemFree(ptr);
	if (*ret_result)
		return GM_IPC_BLOCKS_E_DRIVER;
	return ipc_is_good(ipc_find(blocks, &handle), seen) ? 0 : GM_IPC_BLOCKS_E_TAKEN;
}

/* Tries once. Must be called with the lock held. */
static int ipc_try(struct gm_ipc_blocks *blocks, uint64_t bytes, const struct gm_backend_seen *seen,
	struct gm_ipc_block *ret_block, const char **ret_call, gm_cu_result *ret_result)
{
	const struct gm_cuda *cuda = blocks->cuda;
	struct gm_ipc_block block = {0};
	int r;

	*ret_call = "cuMemAlloc";
	*ret_result = cuda->cuMemAlloc(&block.ptr, bytes);
	if (*ret_result)
		return GM_IPC_BLOCKS_E_DRIVER;

	*ret_call = "cuIpcGetMemHandle";
	*ret_result = cuda->cuIpcGetMemHandle(&block.handle, block.ptr);
	r = *ret_result ? GM_IPC_BLOCKS_E_DRIVER : ipc_claim(blocks, &block.handle, seen);
	if (r)
		cuda->cuMemFree(block.ptr);
	else
		*ret_block = block;
	return r;
}

int gm_ipc_blocks_take(struct gm_ipc_blocks *blocks, uint32_t device, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_ipc_block *ret_block, const char **ret_call,
	gm_cu_result *ret_result)
{
	unsigned tries;
	int r;

	pthread_mutex_lock(&blocks->lock);
	tries = TRIES + HASH_COUNT(blocks->numbers);
	tries = tries < TRIES_MAX ? tries : TRIES_MAX;
	r = ipc_try(blocks, bytes, seen, ret_block, ret_call, ret_result);

	/* A uid that may not have a new number gets no pages made for it. */
	if (r == GM_IPC_BLOCKS_E_TAKEN && ipc_is_spent(blocks, seen->payer_uid))
		r = GM_IPC_BLOCKS_E_SPENT;

	/* Each page keeps one number out of use, as long as the context exists. */
	while (r == GM_IPC_BLOCKS_E_TAKEN && tries-- > 0) {
		*ret_call = "cuMemHostRegister";
		r = ipc_plug(blocks, device, ret_result);
		if (r == 0 && bytes > GM_CHUNK_MIN)
			r = ipc_peek(blocks, seen, ret_call, ret_result);
		if (r == 0)
			r = ipc_try(blocks, bytes, seen, ret_block, ret_call, ret_result);
	}

	pthread_mutex_unlock(&blocks->lock);
	return r;
}

gm_cu_result gm_ipc_blocks_release(struct gm_ipc_blocks *blocks, const struct gm_ipc_block *block,
	const struct gm_backend_seen *seen)
{
	gm_cu_result result;

	pthread_mutex_lock(&blocks->lock);
	result = blocks->cuda->cuMemFree(block->ptr);
	if (!result)
		ipc_retire(blocks, ipc_find(blocks, &block->handle), seen);
	pthread_mutex_unlock(&blocks->lock);
	return result;
}

void gm_ipc_blocks_leave(struct gm_ipc_blocks *blocks, uint32_t device)
{
	struct page *page, *next;

	pthread_mutex_lock(&blocks->lock);
	DL_FOREACH_SAFE (blocks->pages, page, next)
		if (page->device == device) {
			blocks->cuda->cuMemHostUnregister(page->at);
			ipc_page_free(blocks, page);
		}
	pthread_mutex_unlock(&blocks->lock);
}

bool gm_ipc_blocks_had(struct gm_ipc_blocks *blocks, uid_t uid, uint64_t *ret_numbers)
{
	struct payer *payer;
	bool asked = false;

	pthread_mutex_lock(&blocks->lock);
	HASH_FIND(hh, blocks->payers, &uid, sizeof(uid), payer);
	*ret_numbers = payer ? payer->numbers : 0;
	if (payer) {
		asked = payer->asked;
		payer->asked = true;
	}
	pthread_mutex_unlock(&blocks->lock);
	return asked;
}
