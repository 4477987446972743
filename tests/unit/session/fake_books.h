/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_BOOKS_H
#define GM_TESTS_FAKE_BOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "common/types.h"

/*
 * The books of the fake daemon: the leases of its client, and their chunks, each a memfd. They have
 * no lock of their own; what cannot be done here fails the test.
 */
struct fake_chunk {
	uint64_t id, index, bytes;
	uint64_t request; /* the id of the packet that it was granted to; 0: no client asked */
	int fd;
	struct fake_chunk *next;
};

struct fake_lease {
	uint64_t id, user_bytes, next_index;
	uint32_t device;
	unsigned views;
	bool shared, read_only;
	uint8_t token[GM_TOKEN_BYTES];
	char tag[GM_BOUND_NAME_BYTES + 1];
	struct fake_chunk *chunks; /* by index */
	struct fake_lease *next;
};

struct fake_books {
	uint64_t last_id; /* of anything: no id comes twice */
	struct fake_lease *leases;
	unsigned most; /* leases at a time */
};

/* A lease that one client sees, and more chunks for it: bytes in chunks as large as they may be. */
struct fake_lease *fake_books_add(struct fake_books *books, uint64_t bytes, uint64_t request);
void fake_books_grow(
	struct fake_books *books, struct fake_lease *lease, uint64_t bytes, uint64_t request);
/* The lease with chunks of that request, or NULL. */
struct fake_lease *fake_books_granted(struct fake_books *books, uint64_t request);
/* Returns NULL if it is not there. */
struct fake_lease *fake_books_find(struct fake_books *books, uint64_t id);
/* A client less sees it: with the last one it goes. */
void fake_books_leave(struct fake_books *books, struct fake_lease *lease);
/* false: not all of them are chunks of the lease, and all stay. */
bool fake_books_return(struct fake_lease *lease, const uint64_t *ids, size_t n);
void fake_books_clear(struct fake_books *books);

unsigned fake_books_leases(const struct fake_books *books);
unsigned fake_books_chunks(const struct fake_books *books);

#endif
