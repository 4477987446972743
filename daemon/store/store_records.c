/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in a memfd. All room is allocated before it is touched: a write to a page that cannot be
 * had would end the daemon (SIGBUS).
 *
 * Which copy of a slot is in force?
 *   - A mark of 0 is a copy that was never used. A void mark is a copy whose writer died, or that was
 *     erased. Otherwise the mark has a generation.
 *   - A copy is sound if its checksum is right. Of two sound ones, the higher generation counts.
 *   - Any other copy is damaged. Nobody knows whether it was the one in force, and going back to the
 *     other could revive what was replaced. So the record is gone.
 */
#include "daemon/store/store_records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/kept.h"
#include "common/system/memfd.h"
#include "common/step.h"

#define RECORDS_MAGIC  UINT64_C(0x7265676d6d757067) /* "gpummger" */
#define RECORDS_EXTENT 65536
/* The address space that is set aside. The file never gets longer. */
#define RECORDS_MAX GM_KEPT_STORE
/* Slots of an extent have numbers below this. */
#define RECORDS_SLOT_BITS 8
#define RECORDS_CLASSES   5
/* Marks differ in many bits, so that damage does not turn one into another. */
#define RECORDS_VOID       UINT64_C(0x3c5a000000000000)
#define RECORDS_GENERATION UINT64_C(0xc3a5000000000000)
#define RECORDS_TAG        UINT64_C(0xffff000000000000)

struct store_records_header {
	uint64_t magic;
	uint32_t format;
	uint32_t extent_bytes;
	uint64_t checksum;
	/* Written after an extent was added, so a shorter file is one that was cut. The checksum
	 * does not cover it. */
	_Atomic uint32_t extents;
};

/* The start of an extent. */
struct store_records_extent {
	uint32_t copy_bytes;
	uint32_t number;
	uint64_t checksum;
	uint8_t padding[48];
};

struct store_records_copy {
	_Atomic uint64_t mark;
	uint64_t checksum;
	uint64_t id;
	uint32_t kind;
	uint32_t size;
	uint8_t bytes[] __attribute__((aligned(8)));
};
_Static_assert(sizeof(struct store_records_copy) == 32, "the same for every compiler");
_Static_assert(sizeof(struct store_records_extent) == 64, "the same for every compiler");

struct gm_store_records {
	int fd;
	uint8_t *file;
	uint64_t bytes, most;
	uint32_t n_extents; /* the header counts as one */
	uint64_t records, damaged;
	/* Places without a record, one stack per class. */
	struct store_records_spare {
		uint32_t *places;
		size_t n, room;
	} spare[RECORDS_CLASSES];
};

static uint32_t store_records_copy_bytes(unsigned int class)
{
	return UINT32_C(128) << class;
}

/* Every pool hit passes here. The factor is odd, so a change of one word always changes the sum. */
#define RECORDS_FACTOR UINT64_C(0x9fb21c651e98df25)

typedef uint64_t __attribute__((may_alias)) records_word;

static uint64_t store_records_mix(uint64_t sum, uint64_t word)
{
	return (sum + word) * RECORDS_FACTOR;
}

static uint64_t store_records_sum(const struct store_records_copy *copy, uint64_t mark)
{
	/* The bytes are aligned to 8, and padded with zeros. */
	const records_word *word = (const records_word *)copy->bytes;
	const records_word *end = word + (copy->size + 7) / 8;
	uint64_t sum = store_records_mix(RECORDS_MAGIC, mark);
	sum = store_records_mix(sum, copy->id);
	sum = store_records_mix(sum, (uint64_t)copy->kind << 32 | copy->size);
	for (; word + 4 <= end; word += 4)
		sum = store_records_mix(
			store_records_mix(
				store_records_mix(store_records_mix(sum, word[0]), word[1]),
				word[2]),
			word[3]);
	for (; word < end; word++)
		sum = store_records_mix(sum, *word);
	return sum ^ sum >> 32;
}

static uint64_t store_records_extent_sum(const struct store_records_extent *extent)
{
	return store_records_mix(
		store_records_mix(RECORDS_MAGIC, extent->copy_bytes), extent->number);
}

static uint64_t store_records_header_sum(const struct store_records_header *header)
{
	return store_records_mix(
		store_records_mix(header->magic, header->format), header->extent_bytes);
}

/* ---- places */

static struct store_records_header *store_records_get_header(const struct gm_store_records *records)
{
	return (struct store_records_header *)records->file;
}

static struct store_records_extent *store_records_get_extent(
	const struct gm_store_records *records, uint32_t number)
{
	return (struct store_records_extent *)(records->file + (uint64_t)number * RECORDS_EXTENT);
}

static uint32_t store_records_slot_count(const struct store_records_extent *extent)
{
	return (RECORDS_EXTENT - (uint32_t)sizeof(*extent)) / (2 * extent->copy_bytes);
}

static struct store_records_copy *store_records_get_copy(
	const struct store_records_extent *extent, uint32_t slot, unsigned int which)
{
	return (struct store_records_copy *)((uint8_t *)extent + sizeof(*extent) +
					     (uint64_t)(2 * slot + which) * extent->copy_bytes);
}

static bool store_records_extent_is_sound(
	const struct store_records_extent *extent, uint32_t number)
{
	uint32_t n = extent->copy_bytes;
	return extent->number == number && extent->checksum == store_records_extent_sum(extent) &&
	       n >= store_records_copy_bytes(0) &&
	       n <= store_records_copy_bytes(RECORDS_CLASSES - 1) && !(n & (n - 1));
}

static unsigned int store_records_class_of(const struct store_records_extent *extent)
{
	return (unsigned int)__builtin_ctz(extent->copy_bytes) - 7;
}

/* There is room: an extent's places are allocated with it. */
static void store_records_put_spare(
	struct gm_store_records *records, unsigned int class, uint32_t place)
{
	struct store_records_spare *spare = &records->spare[class];
	spare->places[spare->n++] = place;
}

static int store_records_make_room(
	struct gm_store_records *records, unsigned int class, uint32_t more)
{
	struct store_records_spare *spare = &records->spare[class];
	uint32_t *places = realloc(spare->places, (spare->room + more) * sizeof(*places));
	if (!places)
		return -ENOMEM;
	spare->places = places;
	spare->room += more;
	return 0;
}

/* Allocates the file up to this length. */
static int store_records_allocate(struct gm_store_records *records, uint64_t bytes)
{
	if (bytes > records->most)
		return -ENOSPC;
	if (fallocate(records->fd, 0, (off_t)records->bytes, (off_t)(bytes - records->bytes)) < 0)
		return errno == EFBIG ? -ENOSPC : -errno;
	records->bytes = bytes;
	return 0;
}

static void store_records_format_extent(
	struct gm_store_records *records, uint32_t number, unsigned int class)
{
	struct store_records_extent *extent = store_records_get_extent(records, number);
	memset(extent, 0, RECORDS_EXTENT);
	extent->number = number;
	extent->copy_bytes = store_records_copy_bytes(class);
	extent->checksum = store_records_extent_sum(extent);
	for (uint32_t slot = store_records_slot_count(extent); slot-- > 0;)
		store_records_put_spare(records, class, number << RECORDS_SLOT_BITS | slot);
}

static int store_records_add_extent(struct gm_store_records *records, unsigned int class)
{
	uint32_t number = records->n_extents;
	int r = store_records_make_room(records, class, 1 << RECORDS_SLOT_BITS);
	if (r == 0)
		r = store_records_allocate(records, (uint64_t)(number + 1) * RECORDS_EXTENT);
	if (r < 0)
		return r;
	records->n_extents = number + 1;
	store_records_format_extent(records, number, class);
	atomic_store_explicit(&store_records_get_header(records)->extents, records->n_extents,
		memory_order_release);
	return 0;
}

/* ---- reading */

enum store_records_state { RECORDS_EMPTY, RECORDS_SOUND, RECORDS_DAMAGED };

/* The generation of a copy; 0: it has none. */
static uint64_t store_records_generation(const struct store_records_copy *copy)
{
	uint64_t mark = atomic_load_explicit(&copy->mark, memory_order_acquire);
	return (mark & RECORDS_TAG) == RECORDS_GENERATION ? mark & ~RECORDS_TAG : 0;
}

static enum store_records_state store_records_judge_copy(
	const struct store_records_extent *extent, const struct store_records_copy *copy)
{
	uint64_t mark = atomic_load_explicit(&copy->mark, memory_order_acquire);
	if (mark == 0 || mark == RECORDS_VOID)
		return RECORDS_EMPTY;
	if (!store_records_generation(copy) ||
		copy->size > extent->copy_bytes - sizeof(struct store_records_copy) ||
		copy->checksum != store_records_sum(copy, mark))
		return RECORDS_DAMAGED;
	return RECORDS_SOUND;
}

/* Finds the copy in force. The comment at the top has the rules. */
static enum store_records_state store_records_judge(const struct store_records_extent *extent,
	uint32_t slot, struct store_records_copy **ret_copy)
{
	struct store_records_copy *copy = store_records_get_copy(extent, slot, 0);
	struct store_records_copy *other = store_records_get_copy(extent, slot, 1);
	enum store_records_state state = store_records_judge_copy(extent, copy);
	enum store_records_state others = store_records_judge_copy(extent, other);

	if (state == RECORDS_DAMAGED || others == RECORDS_DAMAGED)
		return RECORDS_DAMAGED;
	if (state == RECORDS_EMPTY && others == RECORDS_EMPTY)
		return RECORDS_EMPTY;
	*ret_copy = store_records_generation(other) > store_records_generation(copy) ? other : copy;
	return RECORDS_SOUND;
}

/* Takes stock of an extent: places without a record, and damaged ones, which are emptied. */
static void store_records_read_extent(struct gm_store_records *records, uint32_t number)
{
	struct store_records_extent *extent = store_records_get_extent(records, number);
	unsigned int class = store_records_class_of(extent);

	for (uint32_t slot = store_records_slot_count(extent); slot-- > 0;) {
		struct store_records_copy *copy;
		enum store_records_state state = store_records_judge(extent, slot, &copy);
		records->records += state == RECORDS_SOUND;
		if (state == RECORDS_SOUND)
			continue;
		if (state == RECORDS_DAMAGED) {
			records->damaged++;
			memset(store_records_get_copy(extent, slot, 0), 0,
				2 * (size_t)extent->copy_bytes);
		}
		store_records_put_spare(records, class, number << RECORDS_SLOT_BITS | slot);
	}
}

static bool store_records_is_zero(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	return !at[0] && !memcmp(at, at + 1, n - 1);
}

/* used: number of extents that the writer had put to use. It may have died before it used the others. */
static int store_records_read_extents(struct gm_store_records *records, uint32_t used)
{
	for (uint32_t i = 1; i < records->n_extents; i++) {
		struct store_records_extent *extent = store_records_get_extent(records, i);
		bool sound = store_records_extent_is_sound(extent, i);
		unsigned int class = sound ? store_records_class_of(extent) : 0;
		int r = store_records_make_room(records, class, 1 << RECORDS_SLOT_BITS);
		if (r < 0)
			return r;
		if (sound) {
			store_records_read_extent(records, i);
			continue;
		}

		records->damaged += i < used && !store_records_is_zero(extent, RECORDS_EXTENT);
		store_records_format_extent(records, i, class);
	}
	return 0;
}

void gm_store_records_each(const struct gm_store_records *records, uint32_t kind,
	gm_store_records_visit visit, void *ctx)
{
	for (uint32_t i = 1; i < records->n_extents; i++) {
		const struct store_records_extent *extent = store_records_get_extent(records, i);
		uint32_t n = store_records_slot_count(extent);
		for (uint32_t slot = 0; slot < n; slot++) {
			struct store_records_copy *copy;
			if (store_records_judge(extent, slot, &copy) == RECORDS_SOUND &&
				(!kind || copy->kind == kind))
				visit(ctx, copy->kind, copy->id, i << RECORDS_SLOT_BITS | slot,
					copy->bytes, copy->size);
		}
	}
}

/* ---- writing */

/* Writes the copy that is not in force, and puts it into force. */
static void store_records_commit(const struct store_records_extent *extent, uint32_t slot,
	uint32_t kind, uint64_t id, const void *bytes, uint32_t size)
{
	struct store_records_copy *copy = store_records_get_copy(extent, slot, 0);
	struct store_records_copy *other = store_records_get_copy(extent, slot, 1);
	uint64_t generation = store_records_generation(copy);
	uint64_t newest = store_records_generation(other);
	if (generation > newest) {
		copy = other;
		newest = generation;
	}

	/* The copy is out of force while it is written. */
	atomic_store_explicit(&copy->mark, RECORDS_VOID, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	copy->id = id;
	copy->kind = kind;
	copy->size = size;
	memcpy(copy->bytes, bytes, size);
	if (size % 8)
		memset(copy->bytes + size, 0, 8 - size % 8);
	uint64_t mark = RECORDS_GENERATION | (newest + 1);
	GM_STEP("store: half written");
	copy->checksum = store_records_sum(copy, mark);
	atomic_store_explicit(&copy->mark, mark, memory_order_release);
	GM_STEP("store: written");
}

int gm_store_records_write(struct gm_store_records *records, uint32_t kind, uint64_t id,
	uint32_t *place, const void *bytes, size_t size)
{
	unsigned int class = 0;

	if (!size || size > GM_STORE_RECORDS_BYTES)
		return -EMSGSIZE;
	if (*place) {
		const struct store_records_extent *extent =
			store_records_get_extent(records, *place >> RECORDS_SLOT_BITS);
		if (size > extent->copy_bytes - sizeof(struct store_records_copy))
			return -EMSGSIZE;
		store_records_commit(extent, *place & ((1 << RECORDS_SLOT_BITS) - 1), kind, id,
			bytes, (uint32_t)size);
		return 0;
	}

	while (size > store_records_copy_bytes(class) - sizeof(struct store_records_copy))
		class ++;
	struct store_records_spare *spare = &records->spare[class];
	if (!spare->n) {
		int r = store_records_add_extent(records, class);
		if (r < 0)
			return r;
	}

	uint32_t taken = spare->places[--spare->n];
	store_records_commit(store_records_get_extent(records, taken >> RECORDS_SLOT_BITS),
		taken & ((1 << RECORDS_SLOT_BITS) - 1), kind, id, bytes, (uint32_t)size);
	records->records++;
	*place = taken;
	return 0;
}

void gm_store_records_erase(struct gm_store_records *records, uint32_t *place)
{
	if (!*place)
		return;

	const struct store_records_extent *extent =
		store_records_get_extent(records, *place >> RECORDS_SLOT_BITS);
	uint32_t slot = *place & ((1 << RECORDS_SLOT_BITS) - 1);
	struct store_records_copy *copy = store_records_get_copy(extent, slot, 0);
	struct store_records_copy *other = store_records_get_copy(extent, slot, 1);
	if (store_records_generation(other) < store_records_generation(copy)) {
		struct store_records_copy *swap = copy;
		copy = other;
		other = swap;
	}

	/* The one in force goes last: otherwise the older one would be in force in between. */
	atomic_store_explicit(&copy->mark, RECORDS_VOID, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	GM_STEP("store: half erased");
	atomic_store_explicit(&other->mark, RECORDS_VOID, memory_order_release);
	GM_STEP("store: erased");
	store_records_put_spare(records, store_records_class_of(extent), *place);
	records->records--;
	*place = 0;
}

/* ---- the file */

static int store_records_map(struct gm_store_records *records)
{
	void *file = mmap(NULL, records->most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		records->fd, 0);
	if (file == MAP_FAILED)
		return -errno;
	records->file = file;
	return 0;
}

static struct gm_store_records *store_records_alloc(uint64_t most)
{
	struct gm_store_records *records = calloc(1, sizeof(*records));
	if (!records)
		return NULL;
	records->fd = -1;
	records->most = most && most < RECORDS_MAX ? most : RECORDS_MAX;
	records->n_extents = 1;
	return records;
}

int gm_store_records_new(
	uint64_t most, struct gm_store_records **ret_records, char why[GM_STORE_RECORDS_WHY])
{
	struct gm_store_records *records = store_records_alloc(most);
	int r = records ? 0 : -ENOMEM;
	if (r == 0)
		r = gm_memfd_create("gpumemd-ledger", 0, &records->fd);
	if (r == 0)
		r = store_records_allocate(records, RECORDS_EXTENT);
	if (r == 0)
		r = store_records_map(records);
	/* A file that got shorter would end the daemon. */
	if (r == 0 && fcntl(records->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		r = -errno;
	if (r < 0) {
		snprintf(why, GM_STORE_RECORDS_WHY,
			"the store: there is no room for it in memory: %s; free some memory or raise "
			"MemoryMax=",
			strerror(-r));
		gm_store_records_free(records);
		return r;
	}

	struct store_records_header *header = store_records_get_header(records);
	header->format = GM_STORE_RECORDS_FORMAT;
	header->extent_bytes = RECORDS_EXTENT;
	header->magic = RECORDS_MAGIC;
	header->checksum = store_records_header_sum(header);
	*ret_records = records;
	return 0;
}

static int store_records_check_header(
	const struct gm_store_records *records, char why[GM_STORE_RECORDS_WHY])
{
	const struct store_records_header *header = store_records_get_header(records);

	/* Of a newer format nothing else is known. */
	if (header->magic == RECORDS_MAGIC && header->format > GM_STORE_RECORDS_FORMAT) {
		snprintf(why, GM_STORE_RECORDS_WHY,
			"the store was written by a newer gpumemd (format %u, and this one reads up "
			"to %u)",
			header->format, GM_STORE_RECORDS_FORMAT);
		return -EPROTONOSUPPORT;
	}
	if (header->magic != RECORDS_MAGIC || header->extent_bytes != RECORDS_EXTENT ||
		header->checksum != store_records_header_sum(header)) {
		snprintf(why, GM_STORE_RECORDS_WHY, "the store: its header is damaged");
		return -EBADMSG;
	}
	return 0;
}

/* Takes stock of the extents, and counts those that were cut off the end of the file. */
static int store_records_take_stock(struct gm_store_records *records)
{
	struct store_records_header *header = store_records_get_header(records);
	uint32_t used = atomic_load_explicit(&header->extents, memory_order_acquire);
	records->n_extents = (uint32_t)(records->bytes / RECORDS_EXTENT);
	records->damaged += gm_u64_minus(used, records->n_extents);
	int r = store_records_read_extents(records, used);
	if (r == 0)
		atomic_store_explicit(&header->extents, records->n_extents, memory_order_release);
	return r;
}

static int store_records_check_size(
	struct gm_store_records *records, char why[GM_STORE_RECORDS_WHY])
{
	struct stat st;
	if (fstat(records->fd, &st) < 0)
		return -errno;

	uint64_t bytes = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode) || bytes < sizeof(struct store_records_header) ||
		bytes > RECORDS_MAX) {
		snprintf(why, GM_STORE_RECORDS_WHY,
			"the store: its file is not one, or was truncated");
		return -EBADMSG;
	}

	/* An extent that was cut in the middle is damaged. Holes would be allocated when they are touched, and that can fail. */
	records->damaged += bytes % RECORDS_EXTENT != 0;
	return store_records_allocate(
		records, (bytes + RECORDS_EXTENT - 1) / RECORDS_EXTENT * RECORDS_EXTENT);
}

int gm_store_records_open(
	int fd, struct gm_store_records **ret_records, char why[GM_STORE_RECORDS_WHY])
{
	struct gm_store_records *records = store_records_alloc(0);
	int r = records ? 0 : -ENOMEM;
	*why = '\0';
	if (r == 0) {
		records->fd = fd;
		r = store_records_check_size(records, why);
	}
	if (r == 0)
		r = store_records_map(records);
	if (r == 0)
		r = store_records_check_header(records, why);
	if (r == 0)
		r = store_records_take_stock(records);
	if (r < 0 && !*why)
		snprintf(why, GM_STORE_RECORDS_WHY, "the store cannot be read: %s%s", strerror(-r),
			r == -ENOMEM ? "; raise LimitAS= or MemoryMax= of the daemon's unit" : "");
	if (r < 0) {
		if (records)
			records->fd = -1; /* it stays the caller's */
		gm_store_records_free(records);
		return r;
	}
	*ret_records = records;
	return 0;
}

void gm_store_records_free(struct gm_store_records *records)
{
	if (!records)
		return;
	if (records->file)
		munmap(records->file, records->most);
	for (unsigned int i = 0; i < RECORDS_CLASSES; i++)
		free(records->spare[i].places);
	gm_close(records->fd);
	free(records);
}

int gm_store_records_fd(const struct gm_store_records *records)
{
	return records->fd;
}

void gm_store_records_get_state(
	const struct gm_store_records *records, struct gm_store_records_state *ret)
{
	*ret = (struct gm_store_records_state){
		.records = records->records,
		.damaged = records->damaged,
		.bytes = records->bytes,
	};
}
