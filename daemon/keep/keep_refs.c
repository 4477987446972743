/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References: an array in a memfd, of which the keeper has a copy (keeper_wire.h). A write is one or two
 * stores. A process that dies between any two leaves a reference too many, never one too few: the
 * keeper may keep something that nobody needs, until the next daemon closes it.
 */
#include "daemon/keep/keep_private.h"

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
static void keep_refs_mark(struct gm_keep *keep)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (keep->refs)
		keep->refs[0].parent = !keep->refs_building && !keep->refs_failed;
	atomic_signal_fence(memory_order_seq_cst);
}

static void keep_refs_fail(struct gm_keep *keep, int error)
{
	keep->refs_failed = true;
	keep_refs_mark(keep);
	gm_log(GM_LOG_WARNING,
		"cannot write down what the keeper must keep: %s; while there is no daemon, it keeps everything",
		strerror(-error));
}

/* Allocates memory for references up to this place. */
static int keep_refs_allocate(struct gm_keep *keep, uint32_t place)
{
	uint64_t n = gm_round_up((uint64_t)place + 1, KEEP_REFS_STEP), size = sizeof(*keep->refs);
	if (n > KEEP_REFS_MAX)
		return -ENOSPC;
	if (fallocate(keep->refs_fd, 0, (off_t)(keep->n_refs * size),
		    (off_t)((n - keep->n_refs) * size)) < 0)
		return -errno;
	keep->n_refs = (uint32_t)n;
	return 0;
}

static int keep_refs_map(struct gm_keep *keep)
{
	void *refs = mmap(NULL, KEEP_REFS_MAX * sizeof(*keep->refs), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_NORESERVE, keep->refs_fd, 0);
	if (refs == MAP_FAILED)
		return -errno;
	keep->refs = refs;
	return 0;
}

static int keep_refs_new(struct gm_keep *keep)
{
	int r = gm_memfd_create("gpumemd-refs", 0, &keep->refs_fd);
	if (r == 0)
		r = keep_refs_allocate(keep, 0);
	if (r == 0)
		r = keep_refs_map(keep);
	if (r == 0 && fcntl(keep->refs_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		r = -errno;
	if (r < 0) {
		gm_keep_refs_close(keep);
		return r;
	}
	keep->refs[0].child = GM_KEEPER_REFS_MAGIC;
	keep_refs_mark(keep);
	r = gm_keep_deposit(keep, GM_KEEP_REFS, KEEP_REFS_ID, keep->refs_fd, NULL);
	if (r < 0)
		gm_keep_refs_close(keep);
	return r < 0 ? r : 0;
}

void gm_keep_refs_open(struct gm_keep *keep)
{
	struct stat st;
	if (gm_keep_claim(keep, GM_KEEP_REFS, KEEP_REFS_ID, &keep->refs_fd) < 0)
		return;
	uint64_t n =
		fstat(keep->refs_fd, &st) == 0 ? (uint64_t)st.st_size / sizeof(*keep->refs) : 0;
	if (n >= KEEP_REFS_STEP && n <= KEEP_REFS_MAX && keep_refs_map(keep) == 0) {
		keep->n_refs = (uint32_t)n;
		if (keep->refs[0].child == GM_KEEPER_REFS_MAGIC)
			return;
	}
	(void)gm_keep_withdraw(keep, GM_KEEP_REFS, KEEP_REFS_ID, NULL);
	gm_keep_refs_close(keep);
}

void gm_keep_refs_close(struct gm_keep *keep)
{
	if (keep->refs)
		munmap(keep->refs, KEEP_REFS_MAX * sizeof(*keep->refs));
	keep->refs = NULL;
	keep->n_refs = 0;
	keep->refs_fd = gm_close(keep->refs_fd);
}

void gm_keep_refer(struct gm_keep *keep, uint32_t place, uint64_t child, uint64_t parent)
{
	int r = 0;
	if (keep->refs_failed || (!keep->refs && !parent))
		return;
	if (!keep->refs)
		r = keep_refs_new(keep);
	if (r == 0 && place >= keep->n_refs)
		r = keep_refs_allocate(keep, place);
	if (r < 0) {
		keep_refs_fail(keep, r);
		return;
	}
	keep->refs[place].parent = parent;
	atomic_signal_fence(memory_order_seq_cst);
	keep->refs[place].child = parent ? child : 0;
}

void gm_keep_refs_erase(struct gm_keep *keep, uint32_t place)
{
	if (place < keep->n_refs && place)
		keep->refs[place].child = 0;
}

void gm_keep_refer_begin(struct gm_keep *keep)
{
	keep->refs_building = true;
	keep_refs_mark(keep);
	for (uint32_t i = 1; i < keep->n_refs; i++)
		keep->refs[i].child = 0;
}

void gm_keep_refer_end(struct gm_keep *keep)
{
	int r = keep->refs || keep->refs_failed ? 0 : keep_refs_new(keep);
	if (r < 0)
		keep_refs_fail(keep, r);
	keep->refs_building = false;
	keep_refs_mark(keep);
}
