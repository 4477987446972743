/* SPDX-License-Identifier: Apache-2.0 */
/* Leases and chunks of the fake daemon: see fake_books.h. */
#include "tests/unit/session/fake_books.h"

#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

static void chunk_free(struct fake_chunk *chunk)
{
	close(chunk->fd);
	free(chunk);
}

static void lease_free(struct fake_lease *lease)
{
	struct fake_chunk *chunk, *tmp;
	LL_FOREACH_SAFE (lease->chunks, chunk, tmp)
		chunk_free(chunk);
	free(lease);
}

void fake_books_grow(
	struct fake_books *books, struct fake_lease *lease, uint64_t bytes, uint64_t request)
{
	bytes = (bytes + GM_CHUNK_MIN - 1) & ~(GM_CHUNK_MIN - 1);
	while (bytes) {
		struct fake_chunk *chunk = calloc(1, sizeof(*chunk));
		ck_assert_ptr_nonnull(chunk);
		chunk->bytes = GM_CHUNK_MAX;
		while (chunk->bytes > bytes)
			chunk->bytes /= 2;
		chunk->id = ++books->last_id;
		chunk->request = request;
		chunk->index = lease->next_index++;
		chunk->fd = memfd_create("chunk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		ck_assert_int_ge(chunk->fd, 0);
		ck_assert_int_eq(ftruncate(chunk->fd, (off_t)chunk->bytes), 0);
		LL_APPEND(lease->chunks, chunk);
		bytes -= chunk->bytes;
	}
}

struct fake_lease *fake_books_granted(struct fake_books *books, uint64_t request)
{
	struct fake_lease *lease;
	struct fake_chunk *chunk;
	LL_FOREACH (books->leases, lease) {
		LL_SEARCH_SCALAR(lease->chunks, chunk, request, request);
		if (chunk)
			return lease;
	}
	return NULL;
}

struct fake_lease *fake_books_add(struct fake_books *books, uint64_t bytes, uint64_t request)
{
	struct fake_lease *lease = calloc(1, sizeof(*lease));
	ck_assert_ptr_nonnull(lease);
	lease->id = ++books->last_id;
	lease->user_bytes = bytes;
	lease->views = 1;
	fake_books_grow(books, lease, bytes, request);
	LL_PREPEND(books->leases, lease);
	unsigned n = fake_books_leases(books);
	if (n > books->most)
		books->most = n;
	return lease;
}

struct fake_lease *fake_books_find(struct fake_books *books, uint64_t id)
{
	struct fake_lease *lease;
	LL_SEARCH_SCALAR(books->leases, lease, id, id);
	return lease;
}

void fake_books_leave(struct fake_books *books, struct fake_lease *lease)
{
	if (--lease->views == 0) {
		LL_DELETE(books->leases, lease);
		lease_free(lease);
	}
}

bool fake_books_return(struct fake_lease *lease, const uint64_t *ids, size_t n)
{
	struct fake_chunk *chunk;
	for (size_t i = 0; i < n; i++) {
		LL_SEARCH_SCALAR(lease->chunks, chunk, id, ids[i]);
		if (!chunk)
			return false;
	}
	for (size_t i = 0; i < n; i++) {
		LL_SEARCH_SCALAR(lease->chunks, chunk, id, ids[i]);
		ck_assert_ptr_nonnull(chunk); /* no id is named twice */
		LL_DELETE(lease->chunks, chunk);
		chunk_free(chunk);
	}
	return true;
}

void fake_books_clear(struct fake_books *books)
{
	struct fake_lease *lease, *tmp;
	LL_FOREACH_SAFE (books->leases, lease, tmp)
		lease_free(lease);
	books->leases = NULL;
}

unsigned fake_books_leases(const struct fake_books *books)
{
	unsigned n = 0;
	struct fake_lease *lease;
	LL_COUNT(books->leases, lease, n);
	return n;
}

unsigned fake_books_chunks(const struct fake_books *books)
{
	unsigned n = 0;
	struct fake_lease *lease;
	struct fake_chunk *chunk;
	LL_FOREACH (books->leases, lease) {
		LL_FOREACH (lease->chunks, chunk)
			n++;
	}
	return n;
}
