/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "daemon/books/hash_table.h"
#include "tests/integration/adopted.h"

#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/system/memfd.h"
#include "daemon/store/store_records.h"
#include "daemon/lease/session_private.h"
#include "keeper/keeper_private.h"
#include "tests/unit/core/fake_ledger.h"

/* More than the files of a test ever have. */
#define FILE_BYTES (UINT64_C(8) << 20)
/* An extent of the store, and two of the largest slots; the references to the places of an extent,
 * and some of them. */
#define LEDGER_UNIT  65536
#define LEDGER_SLACK 8192
#define REFS_UNIT    4096
#define REFS_SLACK   64
/* Time after which core has looked at all chunks that somebody may still map. */
#define ORPHANED_NS (60 * GM_NS_PER_S)

#define FAIL(adopted, format, ...) \
	ck_abort_msg("%s, instruction %" PRIu64 ": " format, (adopted)->operation, \
		(adopted)->instruction, __VA_ARGS__)

/* ---- what changes without a system call */

static void file_open(
	struct gm_adopted_file *file, const struct gm_inner_item *item, size_t unit, size_t slack)
{
	ck_assert_ptr_nonnull(item);
	void *bytes = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, item->fd, 0);
	*file = (struct gm_adopted_file){.item = item,
		.bytes = bytes,
		.seen = calloc(1, FILE_BYTES),
		.unit = unit,
		.slack = slack,
		.watched = calloc(FILE_BYTES / unit, sizeof(size_t))};
	ck_assert(bytes != MAP_FAILED && file->seen && file->watched);
}

static void file_close(struct gm_adopted_file *file)
{
	munmap((void *)file->bytes, FILE_BYTES);
	free(file->seen);
	free(file->watched);
}

/* Compares a unit as far as it is watched, or all of it. Takes note of a change. */
static bool file_unit_changed(struct gm_adopted_file *file, size_t at, bool all)
{
	size_t *watched = &file->watched[at / file->unit], n = file->unit;
	const uint8_t *bytes = file->bytes + at;
	uint8_t *seen = file->seen + at;
	bool rest = all && memcmp(bytes + *watched, seen + *watched, n - *watched) != 0;
	if (!rest && memcmp(bytes, seen, *watched) == 0)
		return false;
	file->missed |= rest;
	memcpy(seen, bytes, all ? n : *watched);
	while (n > 0 && !seen[n - 1])
		n--;
	n += file->slack;
	if (*watched < n)
		*watched = n < file->unit ? n : file->unit;
	return true;
}

/* Returns whether the file has changed, and takes note of what it is now. */
static bool file_changed(struct gm_adopted_file *file, bool all)
{
	bool changed = false;
	if (all) {
		struct stat st;
		ck_assert(fstat(file->item->fd, &st) == 0 && (uint64_t)st.st_size <= FILE_BYTES);
		changed = file->n != (size_t)st.st_size;
		for (; file->n < (size_t)st.st_size; file->n += file->unit)
			file->watched[file->n / file->unit] = file->slack;
		ck_assert_uint_eq(file->n, st.st_size);
	}
	for (size_t at = 0; at < file->n; at += file->unit)
		changed |= file_unit_changed(file, at, all);
	return changed;
}

/* ---- the records */

static void digest_add(uint64_t *digest, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	for (size_t i = 0; i < n; i++)
		*digest = (*digest ^ at[i]) * UINT64_C(0x100000001b3);
}

struct reading {
	struct fake_ledger ledger;
	uint64_t digest;
	struct gm_core_device_info devices[GM_BOUND_DEVICES];
	uint64_t keys[GM_BOUND_DEVICES];
	uint32_t n_devices;
};

/* A UUID from which core makes this key. Pinned memory has none, and comes last. */
static void add_device(struct reading *reading, uint64_t key)
{
	uint32_t at = reading->n_devices++;
	struct gm_core_device_info info = fake_info(GiB);
	ck_assert(at < GM_BOUND_DEVICES);
	fake_no_levels(&info.policy);
	memcpy(info.uuid, &key, sizeof(key));
	info.pinned = key == 1;
	if (info.pinned)
		memset(info.uuid, 0, sizeof(info.uuid));
	for (; at > 0 && reading->devices[at - 1].pinned; at--) {
		reading->devices[at] = reading->devices[at - 1];
		reading->keys[at] = reading->keys[at - 1];
	}
	reading->devices[at] = info;
	reading->keys[at] = key;
}

static void read_record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct reading *reading = ctx;
	uint32_t nowhere = 0;
	digest_add(&reading->digest, &kind, sizeof(kind));
	digest_add(&reading->digest, &id, sizeof(id));
	digest_add(&reading->digest, bytes, size);
	ck_assert_int_eq(fake_ledger_record(&reading->ledger, kind, id, &nowhere, bytes, size), 0);
	if (kind == GM_RECORD_DEVICE)
		add_device(reading, id);
}

/* Reads the store as the next daemon does, from a copy: it repairs what it finds. */
static void read_store(struct gm_adopted *adopted, struct reading *ret)
{
	struct gm_store_records *records;
	struct gm_store_records_state state;
	char why[GM_STORE_RECORDS_WHY];
	const struct gm_adopted_file *file = &adopted->ledger;
	ck_assert(pwrite(adopted->copy, file->bytes, file->n, 0) == (ssize_t)file->n);
	int fd = fcntl(adopted->copy, F_DUPFD_CLOEXEC, 0);
	ck_assert(fd >= 0);
	if (gm_store_records_open(fd, &records, why) < 0)
		FAIL(adopted, "%s", why);
	gm_store_records_get_state(records, &state);
	if (state.damaged)
		FAIL(adopted, "%" PRIu64 " damaged records", state.damaged);
	*ret = (struct reading){.digest = UINT64_C(0xcbf29ce484222325)};
	gm_store_records_each(records, 0, read_record, ret);
	gm_store_records_free(records);
	for (size_t i = 0; i < adopted->keeper->n; i++) {
		digest_add(&ret->digest, &adopted->keeper->items[i].kind, sizeof(uint64_t));
		digest_add(&ret->digest, &adopted->keeper->items[i].id, sizeof(uint64_t));
	}
}

/* ---- what the keeper has */

static void note_chunk(struct gm_adopted *adopted, const struct gm_inner_item *item)
{
	for (size_t i = adopted->n_chunks; i-- > 0;)
		if (adopted->chunks[i].inode == item->inode)
			return;
	ck_assert(adopted->n_chunks < GM_ADOPTED_CHUNKS);
	adopted->chunks[adopted->n_chunks].id = item->id;
	adopted->chunks[adopted->n_chunks++].inode = item->inode;
}

/* The device of the chunk, by its record; without one, nobody asks. */
static uint32_t device_of(const struct reading *reading, uint64_t chunk)
{
	for (size_t i = 0; i < reading->ledger.n; i++) {
		const struct gm_record_chunk *record =
			(const void *)reading->ledger.records[i].bytes;
		if (reading->ledger.records[i].kind != GM_RECORD_CHUNK ||
			reading->ledger.records[i].id != chunk)
			continue;
		for (uint32_t d = 0; d < reading->n_devices; d++)
			if (reading->keys[d] == record->device)
				return d;
	}
	return 0;
}

static void fill_kept(struct gm_adopted *adopted, struct reading *reading)
{
	for (size_t i = 0; i < adopted->keeper->n; i++) {
		const struct gm_inner_item *item = &adopted->keeper->items[i];
		struct gm_chunk chunk = {.id = item->id, .bytes = item->bytes};
		switch (item->kind) {
		case GM_STORE_CHUNK:
			chunk.device = device_of(reading, item->id);
			fake_ledger_created(&reading->ledger, &chunk);
			note_chunk(adopted, item);
			break;
		case GM_STORE_METADATA:
		case GM_STORE_CONTROL_BLOCK:
			ck_assert_int_eq(
				fake_ledger_deposit(&reading->ledger,
					(enum gm_store_kind)item->kind, item->id, item->fd, NULL),
				0);
			break;
		default:
			break;
		}
	}
}

/* ---- what clients map */

static const struct fake_books *books_now(const struct gm_adopted *adopted)
{
	return &adopted->books[adopted->n_books - 1];
}

static bool has_chunk(const struct fake_books *books, uint64_t id)
{
	char chunk[40], orphaned[40];
	int n = snprintf(chunk, sizeof(chunk), "chunk %" PRIu64 " ", id);
	int m = snprintf(orphaned, sizeof(orphaned), "orphaned %" PRIu64 " ", id);
	for (size_t i = 0; i < books->n; i++)
		if (!strncmp(books->lines[i], chunk, (size_t)n) ||
			!strncmp(books->lines[i], orphaned, (size_t)m))
			return true;
	return false;
}

/* The keeper, as it decides after a while without a daemon. */
static struct gm_keeper *left_alone(const struct gm_adopted *adopted)
{
	struct gm_keeper *keeper = calloc(1, sizeof(*keeper));
	ck_assert(keeper);
	keeper->folder = keeper->lock = keeper->listener = keeper->daemon = -1;
	for (size_t i = 0; i < adopted->keeper->n; i++) {
		const struct gm_inner_item *item = &adopted->keeper->items[i];
		int fd = fcntl(item->fd, F_DUPFD_CLOEXEC, 0);
		ck_assert(fd >= 0);
		ck_assert_int_eq(gm_keeper_put(keeper, item->kind, item->id, fd), 0);
	}
	(void)gm_keeper_release(keeper);
	return keeper;
}

static bool keeper_has_chunk(const struct gm_keeper *keeper, uint64_t id)
{
	for (const struct keeper_item *item = keeper->items; item; item = item->hh.next)
		if (item->key.kind == GM_STORE_CHUNK && item->key.id == id)
			return true;
	return false;
}

static void check_mapped(
	const struct gm_adopted *adopted, const struct gm_keeper *alone, uint64_t inode, pid_t pid)
{
	for (size_t i = 0; i < adopted->n_chunks; i++) {
		uint64_t id = adopted->chunks[i].id;
		if (adopted->chunks[i].inode != inode)
			continue;
		if (!has_chunk(books_now(adopted), id))
			FAIL(adopted,
				"the next daemon lacks chunk %" PRIu64 ", which process %d maps",
				id, (int)pid);
		if (!keeper_has_chunk(alone, id))
			FAIL(adopted,
				"a keeper without a daemon closes chunk %" PRIu64
				", which process %d maps",
				id, (int)pid);
	}
}

/* A client maps a chunk after it was told of it, and unmaps the chunk before it returns it. */
static void check_clients(const struct gm_adopted *adopted)
{
	struct gm_keeper *alone = left_alone(adopted);
	for (size_t i = 0; i < GM_ADOPTED_CLIENTS; i++) {
		char path[64], line[512];
		snprintf(path, sizeof(path), "/proc/%d/maps", (int)adopted->clients[i]);
		FILE *maps = adopted->clients[i] ? fopen(path, "re") : NULL;
		while (maps && fgets(line, sizeof(line), maps)) {
			uint64_t inode;
			if (strstr(line, "/memfd:") &&
				sscanf(line, "%*s %*s %*s %*s %" SCNu64, &inode) == 1)
				check_mapped(adopted, alone, inode, adopted->clients[i]);
		}
		if (maps)
			fclose(maps);
	}
	gm_keeper_free(alone);
}

/* ---- adoption */

static void check_result(const struct gm_adopted *adopted, const struct gm_adopt_result *result)
{
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		if (result->damaged[kind] || result->elsewhere[kind])
			FAIL(adopted,
				"of kind %u, %" PRIu64
				" records do not fit the others, and %" PRIu64 " have no device",
				kind, result->damaged[kind], result->elsewhere[kind]);
	if (result->lost || result->incomplete)
		FAIL(adopted, "%" PRIu64 " chunks and %" PRIu64 " leases or names would be lost",
			result->lost, result->incomplete);
}

/* All clients die, and nothing is left except for what has a name. */
static void check_end(const struct gm_adopted *adopted, struct fake_core *fake)
{
	static const enum gm_record_kind always[] = {
		GM_RECORD_CLIENT, GM_RECORD_REF, GM_RECORD_DECLARED};
	static const enum gm_record_kind unnamed[] = {GM_RECORD_LEASE, GM_RECORD_CHUNK,
		GM_RECORD_SHARE, GM_RECORD_METADATA, GM_RECORD_ORPHAN, GM_RECORD_ORPHAN_MAP};
	struct gm_session *session;
	fake->in_use = false;
	while ((session = fake_next_session(fake, NULL)))
		fake_ledger_leave(fake, session, true);
	fake_core_run(fake);
	fake_pass(fake, ORPHANED_NS);
	fake_core_run(fake);
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		if (fake_ledger_count(fake->ledger, always[i]))
			FAIL(adopted, "records of kind %d are left when all clients have died",
				(int)always[i]);
	if (fake_ledger_count(fake->ledger, GM_RECORD_NAME))
		return;
	for (size_t i = 0; i < sizeof(unnamed) / sizeof(unnamed[0]); i++)
		if (fake_ledger_count(fake->ledger, unnamed[i]))
			FAIL(adopted, "records of kind %d are left when all clients have died",
				(int)unnamed[i]);
}

static void adopt(struct gm_adopted *adopted, struct reading *reading)
{
	static struct fake_core fake;
	struct gm_adopt_result result;
	fill_kept(adopted, reading);
	fake = (struct fake_core){.ledger = &reading->ledger, .now = 1, .in_use = true};
	fake_ledger_start(&fake, reading->devices, reading->n_devices, false, &result);
	check_result(adopted, &result);
	for (uint32_t d = 0; d < reading->n_devices; d++)
		fake_core_check(&fake, d);
	adopted->books =
		realloc(adopted->books, (adopted->n_books + 1) * sizeof(adopted->books[0]));
	ck_assert_ptr_nonnull(adopted->books);
	fake_books_read(&fake, &adopted->books[adopted->n_books++]);
	check_end(adopted, &fake);
	fake_core_deinit(&fake);
	adopted->adoptions++;
}

void gm_adopted_look(struct gm_adopted *adopted, bool all, bool skipped)
{
	const struct gm_inner_keeper *keeper = adopted->keeper;
	bool items = adopted->changes != keeper->changes;
	if (items) {
		adopted->ledger.item = gm_inner_keeper_find(keeper, GM_STORE_RECORDS_FILE, 1);
		adopted->refs.item = gm_inner_keeper_find(keeper, GM_STORE_REFS, 1);
		if (!adopted->ledger.item || !adopted->refs.item)
			FAIL(adopted, "%s", "the keeper has no store");
	}
	bool store = file_changed(&adopted->ledger, all);
	bool references = file_changed(&adopted->refs, all);
	if (!skipped && (adopted->ledger.missed || adopted->refs.missed))
		FAIL(adopted, "%s", "the daemon wrote where nobody looked");
	adopted->ledger.missed = adopted->refs.missed = false;
	if (!items && !store && !references)
		return;

	struct reading reading;
	adopted->changes = keeper->changes;
	adopted->states++;
	read_store(adopted, &reading);
	bool changed = reading.digest != adopted->digest;
	adopted->digest = reading.digest;
	if (changed)
		adopt(adopted, &reading);
	fake_ledger_deinit(&reading.ledger);
	if (changed || references)
		check_clients(adopted);
}

void gm_adopted_open(struct gm_adopted *adopted, const struct gm_inner_keeper *keeper)
{
	gm_log_set_sink(gm_log_nowhere);
	*adopted = (struct gm_adopted){.keeper = keeper, .operation = "the start"};
	file_open(&adopted->ledger, gm_inner_keeper_find(keeper, GM_STORE_RECORDS_FILE, 1),
		LEDGER_UNIT, LEDGER_SLACK);
	file_open(&adopted->refs, gm_inner_keeper_find(keeper, GM_STORE_REFS, 1), REFS_UNIT,
		REFS_SLACK);
	ck_assert_int_eq(gm_memfd_create("copy", 0, &adopted->copy), 0);
}

/* Forgets the first ones of the books. */
static void forget_books(struct gm_adopted *adopted, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fake_books_deinit(&adopted->books[i]);
	adopted->n_books -= n;
	memmove(adopted->books, adopted->books + n, adopted->n_books * sizeof(adopted->books[0]));
}

void gm_adopted_close(struct gm_adopted *adopted)
{
	file_close(&adopted->ledger);
	file_close(&adopted->refs);
	forget_books(adopted, adopted->n_books);
	free(adopted->books);
	close(adopted->copy);
}

/* ---- the books */

void gm_adopted_begin(struct gm_adopted *adopted, const char *operation)
{
	forget_books(adopted, adopted->n_books - 1);
	adopted->operation = operation;
	adopted->instruction = 0;
}

static void check_line(const struct gm_adopted *adopted, const char *line)
{
	bool before = fake_books_has(&adopted->books[0], line);
	bool after = fake_books_has(books_now(adopted), line);
	unsigned changes = 0;
	for (size_t i = 1; i < adopted->n_books; i++)
		changes += fake_books_has(&adopted->books[i - 1], line) !=
			   fake_books_has(&adopted->books[i], line);
	/* An operation of several requests makes lines that it replaces. */
	if (changes > (before || after ? before != after : 2))
		FAIL(adopted, "it changes %u times whether this is in the books: %s", changes,
			line);
}

/* Finds the line of a lease; NULL: there is none. */
static const char *find_lease(const struct fake_books *books, uint64_t id)
{
	char begin[40];
	int n = snprintf(begin, sizeof(begin), "lease %" PRIu64 " ", id);
	for (size_t i = 0; i < books->n; i++)
		if (!strncmp(books->lines[i], begin, (size_t)n))
			return books->lines[i];
	return NULL;
}

/* Whether the lease has chunks in these books. before: those that were in no lease then. */
static bool has_chunks(
	const struct fake_books *books, uint64_t lease, const struct fake_books *before)
{
	uint64_t id, chunk;
	for (size_t i = 0; i < books->n; i++)
		if (sscanf(books->lines[i], "chunk %" SCNu64 " lease %" SCNu64, &chunk, &id) == 2 &&
			id == lease && (!before || !has_chunk(before, chunk)))
			return true;
	return false;
}

/* A grant is there as a whole: a lease comes with its chunks, and a chunk with a change of its
 * lease. A chunk that becomes a lease of its own comes later than that lease. */
static void check_grants(
	const struct gm_adopted *adopted, const struct fake_books *was, const struct fake_books *is)
{
	for (size_t i = 0; i < is->n; i++) {
		const char *line = is->lines[i];
		uint64_t lease, chunk;
		if (fake_books_has(was, line))
			continue;
		if (sscanf(line, "chunk %" SCNu64 " lease %" SCNu64, &chunk, &lease) == 2 &&
			!has_chunk(was, chunk) && fake_books_has(was, find_lease(is, lease)))
			FAIL(adopted, "this comes later than its lease: %s", line);
		if (sscanf(line, "lease %" SCNu64, &lease) == 1 && !find_lease(was, lease) &&
			!has_chunks(is, lease, NULL) && has_chunks(books_now(adopted), lease, was))
			FAIL(adopted, "this comes without its chunks: %s", line);
	}
}

void gm_adopted_end(struct gm_adopted *adopted)
{
	const struct fake_books *last = books_now(adopted);
	uint64_t lease;
	for (size_t i = 1; i < adopted->n_books; i++)
		check_grants(adopted, &adopted->books[i - 1], &adopted->books[i]);
	for (size_t i = 0; i < last->n; i++)
		if (sscanf(last->lines[i], "lease %" SCNu64, &lease) == 1 &&
			!find_lease(&adopted->books[0], lease) && !has_chunks(last, lease, NULL))
			FAIL(adopted, "this is new, and has no chunks: %s", last->lines[i]);
	for (size_t i = 0; i < adopted->n_books; i++)
		for (size_t j = 0; j < adopted->books[i].n; j++)
			check_line(adopted, adopted->books[i].lines[j]);
}

void gm_adopted_sum(const struct gm_adopted *adopted, struct gm_adopted_sums *ret)
{
	const struct fake_books *books = books_now(adopted);
	*ret = (struct gm_adopted_sums){0};
	for (size_t i = 0; i < books->n; i++) {
		const char *line = books->lines[i], *tag = strstr(line, " tag ");
		uint64_t bytes, maker;
		unsigned device;
		ret->sessions += !strncmp(line, "session ", 8);
		if (sscanf(line, "lease %*u maker %" SCNu64, &maker) == 1)
			ret->made += maker && tag && !tag[5];
		ret->opened += !strncmp(line, "hold ", 5);
		if (sscanf(line, "chunk %*u lease %*u index %*u bytes %" SCNu64 " device %u",
			    &bytes, &device) == 2 &&
			device == 0)
			ret->leased += bytes;
		if (sscanf(line, "declared by %*u device 0 bytes %" SCNu64, &bytes) == 1)
			ret->declared += bytes;
	}
}
