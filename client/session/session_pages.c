/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared pages. Readers take no lock, because blocks have sequence counts. The writers of this
 * process share one lock. The hot path does not take it: the library's thread publishes figures and
 * rows now and then, and only freeing a block that has a row takes it. Both mappings keep their
 * addresses as long as the session lives; after a reconnect, new memory is behind them.
 *
 * The daemon is trusted no further than needed: a page that the daemon could shrink is refused,
 * because reading past its end would kill this process with a signal.
 */
#include "client/session/session_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/session/session_stacks.h"
#include "common/arith.h"
#include "common/clock.h"

void gm_session_pages_init(struct gm_session_pages *pages)
{
	memset(pages, 0, sizeof(*pages));
	gm_lock_init(&pages->lock, GM_LOCK_PAGES);
	/* In reverse order, so that row 0 is used first. */
	for (uint32_t i = GM_BOUND_TRACKED_BUFFERS; i-- > 0;)
		pages->free_rows[pages->n_free++] = (uint16_t)i;
}

static size_t pages_client_bytes(const struct gm_session_pages *pages)
{
	return pages->noted ? sizeof(struct gm_page_client) : GM_PAGE_CLIENT_BYTES_OLD;
}

void gm_session_pages_deinit(struct gm_session_pages *pages)
{
	if (pages->daemon)
		munmap((void *)pages->daemon, sizeof(*pages->daemon));
	if (pages->client)
		munmap(pages->client, pages_client_bytes(pages));
	pages->daemon = NULL;
	pages->client = NULL;
	for (uint32_t i = 0; i < pages->n_own; i++)
		free(pages->own[i]);
	free(pages->own);
	pages->own = NULL;
	pages->n_own = 0;
	gm_session_stacks_free(pages->stacks);
	pages->stacks = NULL;
	gm_lock_deinit(&pages->lock);
}

void gm_session_pages_keep(struct gm_session_pages *pages)
{
	pages->client = NULL;
}

static int pages_check(int fd, size_t bytes, uint32_t magic)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || (uint64_t)st.st_size < bytes)
		return -EBADMSG;
	struct gm_page_header header;
	ssize_t n = pread(fd, &header, sizeof(header), 0);
	if (n < 0)
		return -errno;
	/* Any version will do: a newer one only gives a meaning to reserved words. */
	if ((size_t)n != sizeof(header) || header.magic != magic || header.version == 0 ||
		header.devices > GM_BOUND_DEVICES || header.rows > GM_BOUND_TRACKED_BUFFERS)
		return -EBADMSG;
	return 0;
}

/* Maps a page so that a forked child does not inherit it. */
static int pages_map(int fd, size_t bytes, int prot, void **ret)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;
		munmap(p, bytes);
		return r;
	}

	*ret = p;
	return 0;
}

/* Moves a fresh mapping over an older one in one step: a reader sees either the old or the new. */
static int pages_replace(void *fresh, size_t bytes, const void *old)
{
	void *p = mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old);
	return p == MAP_FAILED ? -errno : 0;
}

/* Copies what this process wrote into its old page. A daemon of an older version made a page without
 * room for notes; then the rest of the old mapping stays where it is, and nobody else reads it. */
static void pages_copy(
	const struct gm_session_pages *pages, struct gm_page_client *fresh, size_t bytes)
{
	memcpy(fresh->use, pages->client->use, sizeof(fresh->use));
	memcpy(fresh->rows, pages->client->rows, sizeof(fresh->rows));
	if (!pages->noted || bytes < sizeof(*fresh))
		return;
	memcpy(fresh->notes, pages->client->notes, sizeof(fresh->notes));
	/* Without call stacks, their part of the page takes no memory. */
	if (pages->stacks) {
		memcpy(fresh->modules, pages->client->modules, sizeof(fresh->modules));
		memcpy(fresh->stacks, pages->client->stacks, sizeof(fresh->stacks));
	}
}

int gm_session_pages_map(struct gm_session_pages *pages, int daemon_fd, int client_fd)
{
	void *daemon, *client;
	struct stat st;
	int r = pages_check(daemon_fd, sizeof(*pages->daemon), GM_PAGE_DAEMON_MAGIC);
	if (r < 0)
		return r;
	r = pages_check(client_fd, GM_PAGE_CLIENT_BYTES_OLD, GM_PAGE_CLIENT_MAGIC);
	if (r < 0)
		return r;
	if (fstat(client_fd, &st) < 0)
		return -errno;
	/* A page that began without room for notes goes on without them. */
	bool noted =
		(uint64_t)st.st_size >= sizeof(*pages->client) && (!pages->client || pages->noted);
	size_t bytes = noted ? sizeof(*pages->client) : GM_PAGE_CLIENT_BYTES_OLD;

	/* First map both elsewhere: most failures then happen before anything is replaced. */
	r = pages_map(client_fd, bytes, PROT_READ | PROT_WRITE, &client);
	if (r < 0)
		return r;
	r = pages_map(daemon_fd, sizeof(*pages->daemon), PROT_READ, &daemon);
	if (r < 0) {
		munmap(client, bytes);
		return r;
	}

	gm_lock(&pages->lock);
	if (!pages->client) {
		pages->daemon = daemon;
		pages->client = client;
		pages->noted = noted;
	} else {
		gm_session_stacks_hold(pages->stacks);
		pages_copy(pages, client, bytes);
		r = pages_replace(daemon, sizeof(*pages->daemon), pages->daemon);
		if (r < 0)
			munmap(daemon, sizeof(*pages->daemon));
		else
			r = pages_replace(client, bytes, pages->client);
		gm_session_stacks_release(pages->stacks);
		if (r < 0)
			munmap(client, bytes);
	}
	gm_lock_drop(&pages->lock);
	return r;
}

int gm_session_pages_device(
	const struct gm_session_pages *pages, uint32_t device, struct gm_page_device *ret)
{
	return gm_page_read(&pages->daemon->devices[device], sizeof(*ret), ret);
}

uint64_t gm_session_pages_most(const struct gm_session_pages *pages, uint32_t device)
{
	struct gm_page_device page;

	/* Without a capacity, the page was never written. */
	if (gm_session_pages_device(pages, device, &page) < 0 || page.capacity == 0)
		return UINT64_MAX;
	return gm_u64_min(page.capacity, page.max);
}

bool gm_session_pages_use(
	struct gm_session_pages *pages, uint32_t device, const struct gm_page_use *use)
{
	struct gm_page_use value = *use, old;

	gm_lock(&pages->lock);
	struct gm_page_use *block = &pages->client->use[device];
	memcpy(&old, block, sizeof(old));
	value.untracked = pages->untracked[device] + pages->unlisted[device];
	value.seq = old.seq;
	bool differs = memcmp(&value, &old, sizeof(value)) != 0;
	if (differs)
		gm_page_write(block, &value, sizeof(value));
	gm_lock_drop(&pages->lock);
	return differs;
}

static uint64_t pages_coarse_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * GM_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- rows */

static bool pages_in_page(uint32_t row)
{
	return row && row <= GM_BOUND_TRACKED_BUFFERS;
}

/* Locked. A row of this process that is not in the page. */
static struct gm_pages_own_row *pages_own(const struct gm_session_pages *pages, uint32_t row)
{
	uint32_t i = row - GM_BOUND_TRACKED_BUFFERS - 1;

	return &pages->own[i / GM_PAGES_OWN_ROWS][i % GM_PAGES_OWN_ROWS];
}

/* Locked. Makes room for more of them. */
static bool pages_own_more(struct gm_session_pages *pages)
{
	struct gm_pages_own_row **own =
		realloc(pages->own, (pages->n_own + 1) * sizeof(*pages->own));
	if (!own)
		return false;
	pages->own = own;
	struct gm_pages_own_row *slab = calloc(GM_PAGES_OWN_ROWS, sizeof(*slab));
	if (!slab)
		return false;

	uint32_t first = GM_BOUND_TRACKED_BUFFERS + pages->n_own * GM_PAGES_OWN_ROWS + 1;
	for (uint32_t i = 0; i + 1 < GM_PAGES_OWN_ROWS; i++)
		slab[i].next = first + i + 1;
	pages->own[pages->n_own++] = slab;
	pages->free_own = first;
	return true;
}

/* Locked. Returns 0 if there is no memory. */
static uint32_t pages_own_take(struct gm_session_pages *pages)
{
	if (!pages->free_own && !pages_own_more(pages))
		return 0;
	uint32_t row = pages->free_own;
	pages->free_own = pages_own(pages, row)->next;
	pages_own(pages, row)->ptr = NULL;
	return row;
}

/* Locked. */
static struct gm_page_row *pages_row(const struct gm_session_pages *pages, uint32_t row)
{
	return pages_in_page(row) ? &pages->client->rows[row - 1] : &pages_own(pages, row)->row;
}

/* Locked. NULL: the page has no notes. */
static struct gm_page_note *pages_note(const struct gm_session_pages *pages, uint32_t row)
{
	if (!pages_in_page(row))
		return &pages_own(pages, row)->note;
	return pages->noted ? &pages->client->notes[row - 1] : NULL;
}

static void pages_row_write(
	struct gm_page_row *row, uint32_t device, uint64_t bytes, uint64_t born_ns, const char *tag)
{
	struct gm_page_row value = {.device = device, .bytes = bytes, .born_ns = born_ns};
	if (tag)
		snprintf(value.tag, sizeof(value.tag), "%s", tag);
	gm_page_write(row, &value, sizeof(value));
}

/* Locked. No two rows have the same time, which is how a note shows what row it is about. */
static uint64_t pages_born(struct gm_session_pages *pages, uint64_t now_ns)
{
	pages->last_born_ns = now_ns > pages->last_born_ns ? now_ns : pages->last_born_ns + 1;
	return pages->last_born_ns;
}

/* Takes a row, in the page or in this process. */
static uint32_t pages_row_take(struct gm_session_pages *pages, uint32_t device, uint64_t bytes,
	const char *tag, bool anywhere)
{
	uint64_t now_ns = pages_coarse_ns();
	uint32_t row = 0;

	gm_lock(&pages->lock);
	if (pages->n_free) {
		row = pages->free_rows[--pages->n_free] + UINT32_C(1);
	} else if (anywhere) {
		pages->untracked[device]++;
		row = pages->own_rows ? pages_own_take(pages) : 0;
		row = row ? row : GM_PAGES_UNTRACKED;
	}
	if (row && row != GM_PAGES_UNTRACKED)
		pages_row_write(
			pages_row(pages, row), device, bytes, pages_born(pages, now_ns), tag);
	gm_lock_drop(&pages->lock);
	return row;
}

uint32_t gm_session_pages_row_try(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag)
{
	return pages_row_take(pages, device, bytes, tag, false);
}

uint32_t gm_session_pages_row_add(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag)
{
	return pages_row_take(pages, device, bytes, tag, true);
}

void gm_session_pages_unlisted(struct gm_session_pages *pages, uint32_t device, uint64_t n)
{
	gm_lock(&pages->lock);
	pages->unlisted[device] = n;
	gm_lock_drop(&pages->lock);
}

/* Locked. The row is tracked. */
static void pages_set_ptr(struct gm_session_pages *pages, uint32_t row, void *ptr)
{
	if (pages_in_page(row))
		pages->row_ptr[row - 1] = ptr;
	else
		pages_own(pages, row)->ptr = ptr;
}

void gm_session_pages_row_tag(struct gm_session_pages *pages, uint32_t row, const char *tag)
{
	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	gm_lock(&pages->lock);
	struct gm_page_row *place = pages_row(pages, row);
	struct gm_page_row value;
	memcpy(&value, place, sizeof(value));
	memset(value.tag, 0, sizeof(value.tag));
	snprintf(value.tag, sizeof(value.tag), "%s", tag ? tag : "");
	gm_page_write(place, &value, sizeof(value));
	gm_lock_drop(&pages->lock);
}

void gm_session_pages_row_size(struct gm_session_pages *pages, uint32_t row, void *ptr,
	uint64_t bytes, const struct gm_page_growth *growth)
{
	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	gm_lock(&pages->lock);
	struct gm_page_row *place = pages_row(pages, row);
	struct gm_page_row value;
	memcpy(&value, place, sizeof(value));
	value.bytes = bytes;
	value.growth = *growth;
	gm_page_write(place, &value, sizeof(value));
	pages_set_ptr(pages, row, ptr);
	gm_lock_drop(&pages->lock);
}

/* Locked. Ends what the note says, and the use of its call stack. */
static void pages_note_clear(struct gm_session_pages *pages, uint32_t row)
{
	static const struct gm_page_note nothing;
	struct gm_page_note *note = pages_note(pages, row);

	if (!note || !note->born_ns)
		return;
	gm_session_stacks_drop(pages->stacks, note->stack);
	gm_page_write(note, &nothing, sizeof(nothing));
}

void gm_session_pages_row_remove(struct gm_session_pages *pages, uint32_t device, uint32_t row)
{
	if (!row)
		return;
	gm_lock(&pages->lock);
	if (row != GM_PAGES_UNTRACKED) {
		pages_row_write(pages_row(pages, row), 0, 0, 0, NULL);
		pages_note_clear(pages, row);
	}
	if (pages_in_page(row)) {
		pages->row_ptr[row - 1] = NULL;
		pages->free_rows[pages->n_free++] = (uint16_t)(row - 1);
	} else {
		pages->untracked[device]--;
		if (row != GM_PAGES_UNTRACKED) {
			pages_own(pages, row)->next = pages->free_own;
			pages->free_own = row;
		}
	}
	gm_lock_drop(&pages->lock);
}

/* ---- notes on rows */

void gm_session_pages_row_note(
	struct gm_session_pages *pages, uint32_t row, const struct gm_pages_about *about)
{
	if (!row)
		return;
	gm_lock(&pages->lock);
	struct gm_page_note *note = row == GM_PAGES_UNTRACKED ? NULL : pages_note(pages, row);
	if (row != GM_PAGES_UNTRACKED)
		pages_set_ptr(pages, row, about->ptr);

	if (note) {
		struct gm_page_note value = {
			.stack = about->stack, .born_ns = pages_row(pages, row)->born_ns};
		snprintf(value.type, sizeof(value.type), "%s", about->type ? about->type : "");
		snprintf(value.precision, sizeof(value.precision), "%s",
			about->precision ? about->precision : "");
		gm_page_write(note, &value, sizeof(value));
	} else {
		gm_session_stacks_drop(pages->stacks, about->stack);
	}
	gm_lock_drop(&pages->lock);
}

void gm_session_pages_row_stack(struct gm_session_pages *pages, uint32_t row, uint32_t stack)
{
	gm_lock(&pages->lock);
	struct gm_page_note *note =
		!row || row == GM_PAGES_UNTRACKED ? NULL : pages_note(pages, row);
	if (note) {
		struct gm_page_note value;
		memcpy(&value, note, sizeof(value));
		gm_session_stacks_drop(pages->stacks, value.stack);
		value.born_ns = pages_row(pages, row)->born_ns;
		value.stack = stack;
		gm_page_write(note, &value, sizeof(value));
	} else {
		gm_session_stacks_drop(pages->stacks, stack);
	}
	gm_lock_drop(&pages->lock);
}

void gm_session_pages_row_place(struct gm_session_pages *pages, uint32_t row, uint32_t place)
{
	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	gm_lock(&pages->lock);
	struct gm_page_row *there = pages_row(pages, row), value;
	if (there->place != place) {
		memcpy(&value, there, sizeof(value));
		value.place = place;
		gm_page_write(there, &value, sizeof(value));
	}
	gm_lock_drop(&pages->lock);
}

void gm_session_pages_row_touch(struct gm_session_pages *pages, uint32_t row)
{
	uint64_t now_ns = pages_coarse_ns();

	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	gm_lock(&pages->lock);
	struct gm_page_note *note = pages_note(pages, row);
	if (note) {
		struct gm_page_note value;
		memcpy(&value, note, sizeof(value));
		value.born_ns = pages_row(pages, row)->born_ns;
		value.used_ns = now_ns;
		gm_page_write(note, &value, sizeof(value));
	}
	gm_lock_drop(&pages->lock);
}

/* Locked. */
static void pages_row_copy(
	const struct gm_session_pages *pages, uint32_t row, struct gm_pages_seen_row *ret)
{
	const struct gm_page_note *note = pages_note(pages, row);

	memset(ret, 0, sizeof(*ret));
	memcpy(&ret->row, pages_row(pages, row), sizeof(ret->row));
	if (note && note->born_ns == ret->row.born_ns)
		memcpy(&ret->note, note, sizeof(ret->note));
	ret->ptr = pages_in_page(row) ? pages->row_ptr[row - 1] : pages_own(pages, row)->ptr;
}

int gm_session_pages_rows(struct gm_session_pages *pages, uint64_t born_until_ns,
	struct gm_pages_seen_row **ret_rows, size_t *ret_n)
{
	size_t n = 0, found = 0;

	gm_lock(&pages->lock);
	uint32_t last = GM_BOUND_TRACKED_BUFFERS + pages->n_own * GM_PAGES_OWN_ROWS;
	for (uint32_t row = 1; row <= last; row++) {
		const struct gm_page_row *place = pages_row(pages, row);
		n += place->bytes && place->born_ns <= born_until_ns;
	}

	struct gm_pages_seen_row *rows = n ? malloc(n * sizeof(*rows)) : NULL;
	for (uint32_t row = 1; rows && row <= last; row++) {
		const struct gm_page_row *place = pages_row(pages, row);
		if (place->bytes && place->born_ns <= born_until_ns)
			pages_row_copy(pages, row, &rows[found++]);
	}
	gm_lock_drop(&pages->lock);

	if (n && !rows)
		return -ENOMEM;
	*ret_rows = rows;
	*ret_n = found;
	return 0;
}
