/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Allocations of a heap that other processes open: they are the same memory, they outlive the process
 * that made them while somebody has them open, and sharing often costs nobody anything.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/gpumem_piece.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

static uint8_t *at(gpumem_buffer *buffer, const gpumem_piece *piece)
{
	return (uint8_t *)gpumem_buffer_ptr(buffer) + piece->offset;
}

static void *allocated(gpumem_session *s, size_t bytes, uint8_t byte)
{
	void *ptr;

	OK(gpumem_alloc(s, 0, bytes, GPUMEM_STREAM_ANY, NULL, &ptr));
	gm_device_set(ptr, bytes, byte);
	return ptr;
}

static bool same(const gpumem_piece *a, const gpumem_piece *b)
{
	return memcmp(&a->token, &b->token, sizeof a->token) == 0 && a->offset == b->offset &&
	       a->bytes == b->bytes;
}

START_TEST(two_sessions_have_the_same_memory)
{
	static const size_t sizes[] = {1, 4096, 100 * 1000, 2 * MIB, 3 * MIB + 17, 77 * MIB};
	enum { N = sizeof sizes / sizeof *sizes };
	gpumem_session *other = join("opener");
	gpumem_piece pieces[N], again;
	gpumem_buffer *buffers[N];
	uint8_t *blocks[N];

	for (int i = 0; i < N; i++)
		blocks[i] = allocated(session, sizes[i], (uint8_t)(0x40 + i));
	for (int i = 0; i < N; i++) {
		OK(gpumem_share_ptr(session, blocks[i], &pieces[i]));
		GM_REQUIRE_EQ(pieces[i].bytes, sizes[i]);
		OK(gpumem_share_ptr(session, blocks[i], &again));
		GM_REQUIRE(same(&pieces[i], &again));
	}
	for (int i = 0; i < N; i++) {
		OK(gpumem_open_piece(other, &pieces[i], &buffers[i]));
		GM_REQUIRE(gm_device_is(at(buffers[i], &pieces[i]), sizes[i], (uint8_t)(0x40 + i)));
		gm_device_set(at(buffers[i], &pieces[i]), sizes[i], (uint8_t)(0x60 + i));
	}
	for (int i = 0; i < N; i++) {
		GM_REQUIRE(gm_device_is(blocks[i], sizes[i], (uint8_t)(0x60 + i)));
		gpumem_buffer_destroy(buffers[i]);
		OK(gpumem_free(session, blocks[i], GPUMEM_STREAM_DONE));
	}
	gpumem_disconnect(other);

	/* Chunks that were shared go back as the others do. */
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}
END_TEST

/* Whoever asks meanwhile gets other memory. */
START_TEST(what_is_open_outlives_its_allocation_and_its_process)
{
	gpumem_session *maker = join("maker"), *other = join("opener");
	uint8_t *block = allocated(maker, 90 * MIB, 0x11);
	gpumem_piece piece;
	gpumem_buffer *buffer;
	void *ptr;

	OK(gpumem_share_ptr(maker, block, &piece));
	OK(gpumem_open_piece(other, &piece, &buffer));
	OK(gpumem_free(maker, block, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(maker, NULL));
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= 90 * MIB);
	gpumem_disconnect(maker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 2);
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= 90 * MIB);

	size_t filled = 0;
	while (gpumem_alloc(session, 0, 30 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr) == GPUMEM_OK) {
		gm_device_set(ptr, 30 * MIB, 0x22);
		filled += 30 * MIB;
	}
	GM_REQUIRE(filled > 500 * MIB && filled < (1024 - 90) * MIB);
	GM_REQUIRE(gm_device_is(at(buffer, &piece), 90 * MIB, 0x11));
	/* The one that shared it is gone, so nobody can open it any more. */
	gpumem_buffer *late;
	GM_REQUIRE_EQ(gpumem_open_piece(other, &piece, &late), GPUMEM_E_NOT_FOUND);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(memory_that_went_back_cannot_be_opened)
{
	gpumem_session *other = join("opener");
	uint8_t *block = allocated(session, 5 * MIB, 1);
	gpumem_piece piece, wrong;
	gpumem_buffer *buffer;

	OK(gpumem_share_ptr(session, block, &piece));
	wrong = piece;
	wrong.offset = 100 * MIB;
	GM_REQUIRE_EQ(gpumem_open_piece(other, &wrong, &buffer), GPUMEM_E_NOT_FOUND);
	wrong = piece;
	wrong.bytes = UINT64_MAX;
	GM_REQUIRE_EQ(gpumem_open_piece(other, &wrong, &buffer), GPUMEM_E_NOT_FOUND);
	wrong = piece;
	wrong.token.bytes[3] ^= 1;
	GM_REQUIRE_EQ(gpumem_open_piece(other, &wrong, &buffer), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gpumem_share_ptr(session, block + 512, &wrong), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_share_ptr(session, &wrong, &wrong), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_share_ptr(session, NULL, &wrong), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_share_ptr(session, block, NULL), GPUMEM_E_INVALID);

	OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gpumem_open_piece(other, &piece, &buffer), GPUMEM_E_NOT_FOUND);
	gpumem_disconnect(other);
}
END_TEST

/* More often than a client may have shares. */
START_TEST(sharing_often_uses_up_nothing)
{
	enum { SMALL = 512, ROUNDS = 2 * GM_BOUND_SHARES_PER_CLIENT };
	static void *small[SMALL];
	gpumem_piece piece, first;
	unsigned seed = 1;

	small[0] = allocated(session, 8192, 1);
	OK(gpumem_share_ptr(session, small[0], &first));
	for (int i = 1; i < SMALL; i++)
		small[i] = allocated(session, 8192, 1);
	for (int i = 0; i < ROUNDS; i++)
		OK(gpumem_share_ptr(session, small[i % SMALL], &piece));

	/* Allocations in several chunks, each in others. */
	for (int i = 0; i < ROUNDS / 4; i++) {
		size_t bytes = 6 * MIB + (size_t)(rand_r(&seed) % 64) * MIB;
		void *before, *block;
		OK(gpumem_alloc(session, 0, 1 + (size_t)(rand_r(&seed) % 40) * MIB,
			GPUMEM_STREAM_ANY, NULL, &before));
		OK(gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, NULL, &block));
		OK(gpumem_share_ptr(session, block, &piece));
		OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
		OK(gpumem_free(session, before, GPUMEM_STREAM_DONE));
		if (i % 64 == 0)
			OK(gpumem_trim(session, NULL));
	}

	OK(gpumem_share_ptr(session, small[0], &piece));
	GM_REQUIRE(same(&piece, &first));
	for (int i = 0; i < SMALL; i++)
		OK(gpumem_free(session, small[i], GPUMEM_STREAM_DONE));
}
END_TEST

START_TEST(a_restart_of_the_daemon_changes_no_piece)
{
	gpumem_session *other = join("opener");
	uint8_t *block = allocated(session, 40 * MIB, 3), *next;
	gpumem_buffer *before, *after;
	gpumem_piece piece, again;

	OK(gpumem_share_ptr(session, block, &piece));
	OK(gpumem_open_piece(other, &piece, &before));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	OK(gpumem_share_ptr(session, block, &again));
	GM_REQUIRE(same(&piece, &again));
	OK(gpumem_open_piece(other, &piece, &after));
	GM_REQUIRE(gm_device_is(at(after, &piece), 40 * MIB, 3));
	gm_device_set(at(before, &piece), 40 * MIB, 4);
	GM_REQUIRE(gm_device_is(at(after, &piece), 40 * MIB, 4));
	GM_REQUIRE(gm_device_is(block, 40 * MIB, 4));

	next = allocated(session, 50 * MIB, 5);
	OK(gpumem_share_ptr(session, next, &again));
	gpumem_buffer_destroy(before);
	gpumem_buffer_destroy(after);
	gpumem_disconnect(other);
	OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, next, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}
END_TEST

/* A chunk that comes back from the pool has the id that it had. */
START_TEST(memory_that_went_back_and_came_again_is_shared_anew)
{
	gpumem_session *other = join("opener");
	gpumem_buffer *buffer;
	gpumem_piece piece;

	for (int i = 0; i < 10; i++) {
		uint8_t *block = allocated(session, 40 * MIB, (uint8_t)(i + 1));
		OK(gpumem_share_ptr(session, block, &piece));
		OK(gpumem_open_piece(other, &piece, &buffer));
		GM_REQUIRE(gm_device_is(at(buffer, &piece), 40 * MIB, (uint8_t)(i + 1)));
		gpumem_buffer_destroy(buffer);
		OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
		OK(gpumem_trim(session, NULL));
		GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	}
	gpumem_disconnect(other);
}
END_TEST

/* ---- a limit in the middle */

enum { MOST = 256, CLIENT_SHARES = GM_BOUND_SHARES_PER_CLIENT };

/* Shares the lease, which has one chunk, so often under one token. */
static gpumem_status share_often(struct gm_raw *raw, uint64_t lease, size_t n, uint8_t *ret_token)
{
	uint64_t leases[MOST], chunks[MOST] = {0};

	for (size_t i = 0; i < n; i++)
		leases[i] = lease;
	return gm_raw_share_chunks(raw, leases, chunks, n, 0, ret_token, NULL);
}

/* An allocation in so many chunks of 2 MiB: the heap gets no larger ones, because another client has all other memory. */
static void *in_many_chunks(size_t n)
{
	void *blocks[512], *all;
	struct gm_raw_lease hoard;
	struct gm_raw raw;
	size_t grown = 1;

	GM_REQUIRE(n <= sizeof(blocks) / sizeof(*blocks));
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &hoard), GPUMEM_OK);
	while (gm_raw_grow(&raw, &hoard, GM_CHUNK_MIN) == GPUMEM_OK)
		grown++;
	GM_REQUIRE(grown > n);
	for (size_t i = 0; i < n; i++) {
		close(hoard.chunks[i].fd);
		hoard.chunks[i].fd = -1;
		GM_REQUIRE_EQ(gm_raw_return(&raw, hoard.id, &hoard.chunks[i].id, 1), GPUMEM_OK);
		OK(gpumem_alloc(session, 0, GM_CHUNK_MIN, GPUMEM_STREAM_ANY, NULL, &blocks[i]));
	}
	for (size_t i = 0; i < n; i++)
		OK(gpumem_free(session, blocks[i], GPUMEM_STREAM_DONE));
	OK(gpumem_alloc(session, 0, n * GM_CHUNK_MIN, GPUMEM_STREAM_ANY, NULL, &all));
	gm_raw_lease_clear(&hoard);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	return all;
}

/* Another client that has so many shares. */
static void sharer_come(struct gm_raw *raw, size_t shares, uint64_t *ret_lease)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw_lease lease;

	gm_raw_join(raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	*ret_lease = lease.id;
	gm_raw_lease_clear(&lease);
	for (size_t n; shares; shares -= n) {
		n = shares < MOST ? shares : MOST;
		GM_REQUIRE_EQ(share_often(raw, *ret_lease, n, token), GPUMEM_OK);
	}
}

/* Clients that together leave their user room for so many shares. */
enum { CROWD = GM_BOUND_SHARES / 2 / CLIENT_SHARES };

static void crowd_come(struct gm_raw crowd[CROWD], size_t room)
{
	uint64_t lease;

	for (size_t i = 0; i < CROWD; i++)
		sharer_come(&crowd[i], CLIENT_SHARES - (i == 0 ? room : 0), &lease);
}

static void crowd_go(struct gm_raw crowd[CROWD])
{
	for (size_t i = 0; i < CROWD; i++)
		gm_raw_close(&crowd[i]);
}

/* The user may have so many shares more. */
static void require_room(size_t room)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw raw;
	uint64_t lease;

	sharer_come(&raw, room, &lease);
	GM_REQUIRE_EQ(share_often(&raw, lease, 1, token), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

/* The library needs two requests, and there is room for the shares of one. */
START_TEST(a_share_that_a_limit_refuses_leaves_nothing_behind)
{
	void *block = in_many_chunks(MOST + 4);
	struct gm_raw crowd[CROWD];
	gpumem_piece piece;

	crowd_come(crowd, MOST);
	for (int i = 0; i < 3; i++)
		GM_REQUIRE_EQ(gpumem_share_ptr(session, block, &piece), GPUMEM_E_LIMIT);
	require_room(MOST);
	crowd_go(crowd);
}
END_TEST

/* As before, but the library finds that it has a token too many, so that the second try succeeds. */
START_TEST(a_share_that_succeeds_at_the_limit_has_one_token)
{
	enum { BEFORE = MOST + 4, NOW = MOST + 2 };
	void *block = in_many_chunks(BEFORE);
	struct gm_raw crowd[CROWD];
	gpumem_piece piece;

	crowd_come(crowd, BEFORE + MOST);
	OK(gpumem_share_ptr(session, block, &piece));
	OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
	require_room(MOST);
	OK(gpumem_alloc(session, 0, NOW * GM_CHUNK_MIN, GPUMEM_STREAM_ANY, NULL, &block));
	OK(gpumem_share_ptr(session, block, &piece));
	require_room(BEFORE + MOST - NOW);
	crowd_go(crowd);
}
END_TEST

/* ---- another user */

static void pry(int channel, void *argument)
{
	gpumem_piece piece;
	gpumem_buffer *buffer;

	(void)argument;
	gm_hear(channel, &piece, sizeof piece);
	gm_become_stranger();
	gpumem_session *own = join("stranger");
	GM_REQUIRE_EQ(gpumem_open_piece(own, &piece, &buffer), GPUMEM_E_NOT_FOUND);
	gpumem_disconnect(own);
}

START_TEST(another_user_cannot_open_a_piece)
{
	struct gm_worker worker;
	gpumem_piece piece;

	start_worker(&worker, pry);
	uint8_t *block = allocated(session, 5 * MIB, 1);
	OK(gpumem_share_ptr(session, block, &piece));
	gm_text_say(worker.channel, &piece, sizeof piece);
	gm_worker_join(&worker);
	OK(gpumem_free(session, block, GPUMEM_STREAM_DONE));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client piece");
	TCase *tc = tcase_create("pieces");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, two_sessions_have_the_same_memory);
	tcase_add_test(tc, what_is_open_outlives_its_allocation_and_its_process);
	tcase_add_test(tc, memory_that_went_back_cannot_be_opened);
	tcase_add_test(tc, sharing_often_uses_up_nothing);
	tcase_add_test(tc, a_restart_of_the_daemon_changes_no_piece);
	tcase_add_test(tc, memory_that_went_back_and_came_again_is_shared_anew);
	tcase_add_test(tc, a_share_that_a_limit_refuses_leaves_nothing_behind);
	tcase_add_test(tc, a_share_that_succeeds_at_the_limit_has_one_token);
	if (GM_TAP_WITH_USERS(another_user_cannot_open_a_piece))
		tcase_add_test(tc, another_user_cannot_open_a_piece);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
