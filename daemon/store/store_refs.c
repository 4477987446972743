/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References: an array in a memfd, of which the keeper has a copy (keeper_wire.h). A write is one or two
 * stores. A process that dies between any two leaves a reference too many, never one too few: the
 * keeper may keep something that nobody needs, until the next daemon closes it.
 */
#include "daemon/store/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/kept.h"
#include "common/log.h"
#include "common/system/memfd.h"

#define KEEP_REFS_ID 1
/* Memory is allocated for this many at a time. */
#define KEEP_REFS_STEP 4096
/* The address space that is set aside. Places of records are below this. */
#define KEEP_REFS_MAX (GM_KEPT_REFS / sizeof(struct gm_keeper_ref))

/* Tells the keeper whether it can rely on the references. */
static void store_refs_mark(struct gm_store *store)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (store->refs)
		store->refs[0].parent = !store->refs_building && !store->refs_failed;
	atomic_signal_fence(memory_order_seq_cst);
}

static void store_refs_fail(struct gm_store *store, int error)
{
	store->refs_failed = true;
	store_refs_mark(store);
	gm_log(GM_LOG_WARNING,
		"cannot write down what the keeper must keep: %s; while there is no daemon, it keeps everything",
		strerror(-error));
}

/* Allocates memory for references up to this place. */
static int store_refs_allocate(struct gm_store *store, uint32_t place)
{
	uint64_t n = gm_round_up((uint64_t)place + 1, KEEP_REFS_STEP), size = sizeof(*store->refs);
	if (n > KEEP_REFS_MAX)
		return -ENOSPC;
	if (fallocate(store->refs_fd, 0, (off_t)(store->n_refs * size),
		    (off_t)((n - store->n_refs) * size)) < 0)
		return -errno;
	store->n_refs = (uint32_t)n;
	return 0;
}

static int store_refs_map(struct gm_store *store)
{
	void *refs = mmap(NULL, KEEP_REFS_MAX * sizeof(*store->refs), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_NORESERVE, store->refs_fd, 0);
	if (refs == MAP_FAILED)
		return -errno;
	store->refs = refs;
	return 0;
}

static int store_refs_new(struct gm_store *store)
{
	int r = gm_memfd_create("gpumemd-refs", 0, &store->refs_fd);
	if (r == 0)
		r = store_refs_allocate(store, 0);
	if (r == 0)
		r = store_refs_map(store);
	if (r == 0 && fcntl(store->refs_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		r = -errno;
	if (r < 0) {
		gm_store_refs_close(store);
		return r;
	}
	store->refs[0].child = GM_KEEPER_REFS_MAGIC;
	store_refs_mark(store);
	r = gm_store_deposit(store, GM_STORE_REFS, KEEP_REFS_ID, store->refs_fd, NULL);
	if (r < 0)
		gm_store_refs_close(store);
	return r < 0 ? r : 0;
}

void gm_store_refs_open(struct gm_store *store)
{
	struct stat st;
	if (gm_store_claim(store, GM_STORE_REFS, KEEP_REFS_ID, &store->refs_fd) < 0)
		return;
	uint64_t n =
		fstat(store->refs_fd, &st) == 0 ? (uint64_t)st.st_size / sizeof(*store->refs) : 0;
	if (n >= KEEP_REFS_STEP && n <= KEEP_REFS_MAX && store_refs_map(store) == 0) {
		store->n_refs = (uint32_t)n;
		if (store->refs[0].child == GM_KEEPER_REFS_MAGIC)
			return;
	}
	(void)gm_store_withdraw(store, GM_STORE_REFS, KEEP_REFS_ID, NULL);
	gm_store_refs_close(store);
}

void gm_store_refs_close(struct gm_store *store)
{
	if (store->refs)
		munmap(store->refs, KEEP_REFS_MAX * sizeof(*store->refs));
	store->refs = NULL;
	store->n_refs = 0;
	store->refs_fd = gm_close(store->refs_fd);
}

void gm_store_refer(struct gm_store *store, uint32_t place, uint64_t child, uint64_t parent)
{
	int r = 0;
	if (store->refs_failed || (!store->refs && !parent))
		return;
	if (!store->refs)
		r = store_refs_new(store);
	if (r == 0 && place >= store->n_refs)
		r = store_refs_allocate(store, place);
	if (r < 0) {
		store_refs_fail(store, r);
		return;
	}
	store->refs[place].parent = parent;
	atomic_signal_fence(memory_order_seq_cst);
	store->refs[place].child = parent ? child : 0;
}

void gm_store_refs_erase(struct gm_store *store, uint32_t place)
{
	if (place < store->n_refs && place)
		store->refs[place].child = 0;
}

void gm_store_refer_begin(struct gm_store *store)
{
	store->refs_building = true;
	store_refs_mark(store);
	for (uint32_t i = 1; i < store->n_refs; i++)
		store->refs[i].child = 0;
}

void gm_store_refer_end(struct gm_store *store)
{
	int r = store->refs || store->refs_failed ? 0 : store_refs_new(store);
	if (r < 0)
		store_refs_fail(store, r);
	store->refs_building = false;
	store_refs_mark(store);
}
