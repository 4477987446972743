/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/piece.c: chunks of a lease that are shared one by one. */
#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct fake_core fake;
static struct gm_session *maker, *mate, *stranger;
static struct gm_lease *heap;
static uint8_t token[GM_TOKEN_BYTES];
static uint64_t ids[8], own[8];
static char detail[GM_DETAIL_BYTES];
static uint32_t d;

/* A heap of three chunks: 32, 8 and 2 MiB. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(16 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	maker = fake_session(&fake, 1, 1000);
	mate = fake_session(&fake, 1, 1000);
	stranger = fake_session(&fake, 2, 1000);
	heap = fake_lease(&fake, maker, d, 42 * MiB);

	size_t n = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(heap, 0); c; c = c->next)
		ids[n++] = c->id;
	ck_assert_uint_eq(n, 3);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

/* Shares chunks of the heap, from the first-th of the token on. */
static gpumem_status share_as(struct gm_session *session, const uint64_t *chunks, size_t n,
	uint32_t first, uint64_t asked, bool again)
{
	uint64_t leases[8];
	struct gm_token_chunks what = {
		.leases = leases,
		.chunks = chunks,
		.n = n,
		.first = first,
		.asked = asked,
		.again = again,
	};

	for (size_t i = 0; i < n; i++)
		leases[i] = heap->id;
	return fake_share_chunks(session, &what, token, own, detail);
}

static gpumem_status share(const uint64_t *chunks, size_t n)
{
	return share_as(maker, chunks, n, 0, 0, false);
}

static gpumem_status open_by(
	struct gm_session *session, uint32_t index, struct gm_lease **ret_lease)
{
	*ret_lease = NULL;
	return gm_session_open_by(session, token, index, NULL, 0, 0, false, ret_lease);
}

START_TEST(a_shared_chunk_leaves_its_lease_and_nothing_else_changes)
{
	struct gm_lease *opened;

	ck_assert_int_eq(share(ids + 1, 1), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(heap), 2);
	ck_assert_uint_eq(gm_session_held(maker, d), 42 * MiB);
	ck_assert_int_eq(open_by(stranger, 0, &opened), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(open_by(mate, 0, &opened), GPUMEM_OK);
	ck_assert_uint_eq(opened->id, own[0]);
	ck_assert_uint_eq(opened->bytes, 8 * MiB);
	ck_assert_uint_eq(gm_lease_chunk(opened, 0)->id, ids[1]);

	/* The rest of the heap goes back as ever; the chunk only as the lease that it is. */
	ck_assert_int_eq(gm_lease_return_chunks(maker, heap, ids + 1, 1), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_lease_return_chunks(maker, heap, ids, 1), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(maker, d), 10 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 32 * MiB);
	gm_lease_return(maker, opened);
	ck_assert_uint_eq(gm_session_held(maker, d), 2 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 8 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 32 * MiB);
	gm_lease_return(mate, opened);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 0);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 40 * MiB);
}
END_TEST

START_TEST(one_token_has_several_chunks_and_a_chunk_several_tokens)
{
	const uint64_t order[] = {ids[2], ids[0]};
	struct gm_lease *a, *b, *c;

	ck_assert_int_eq(share(order, 2), GPUMEM_OK);
	ck_assert_int_eq(open_by(mate, 0, &a), GPUMEM_OK);
	ck_assert_int_eq(open_by(mate, 1, &b), GPUMEM_OK);
	ck_assert_uint_eq(gm_lease_chunk(a, 0)->id, ids[2]);
	ck_assert_uint_eq(gm_lease_chunk(b, 0)->id, ids[0]);

	/* The owner of the token adds to it, and nobody else does. */
	ck_assert_int_eq(share_as(mate, ids + 1, 1, 2, 0, false), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(share_as(maker, ids + 1, 1, 2, 0, false), GPUMEM_OK);
	ck_assert_int_eq(open_by(mate, 2, &c), GPUMEM_OK);
	ck_assert_uint_eq(gm_lease_chunk(c, 0)->id, ids[1]);
	ck_assert_uint_eq(fake_chunks(heap), 0);

	uint8_t first[GM_TOKEN_BYTES];
	memcpy(first, token, sizeof(first));
	ck_assert_int_eq(share(ids + 1, 1), GPUMEM_OK);
	ck_assert_uint_eq(own[0], c->id);
	ck_assert_uint_eq(maker->shares.amount, 4);

	/* The end of one does not end the other. */
	fake_unshare_chunks(mate, first, 3);
	ck_assert_uint_eq(maker->shares.amount, 4);
	fake_unshare_chunks(maker, first, 3);
	ck_assert_uint_eq(maker->shares.amount, 1);
	ck_assert_int_eq(open_by(mate, 0, &a), GPUMEM_OK);
	memcpy(token, first, sizeof(first));
	ck_assert_int_eq(open_by(mate, 0, &a), GPUMEM_E_NOT_FOUND);
}
END_TEST

/* Else the other ones would go on opening memory after the end of the token, and make the table of all
 * users' tokens slow. */
START_TEST(a_token_has_one_chunk_at_an_index)
{
	const uint64_t order[] = {ids[0], ids[1]};
	struct gm_lease *opened;

	ck_assert_int_eq(share(order, 2), GPUMEM_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(share_as(maker, ids + 2, 1, 1, 0, false), GPUMEM_OK);
	ck_assert_uint_eq(maker->shares.amount, 2);
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_OK);
	ck_assert_uint_eq(gm_lease_chunk(opened, 0)->id, ids[2]);

	fake_unshare_chunks(maker, token, 2);
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(maker->shares.amount, 0);
}
END_TEST

/* Else they would be shared under a token that has ended. */
START_TEST(nothing_is_added_to_a_token_that_ends_meanwhile)
{
	const uint64_t leases[] = {heap->id, heap->id, heap->id},
		       chunks[] = {ids[1], ids[2], ids[0]};
	struct gm_token_chunks what = {.leases = leases, .chunks = chunks, .n = 3, .first = 1};
	uint64_t ret[3];
	gpumem_status status;

	ck_assert_int_eq(share(ids, 1), GPUMEM_OK);
	ck_assert(gm_session_share_some(maker, &what, token, ret, &status, detail));
	ck_assert_uint_eq(what.n_shared, 1);
	ck_assert_uint_eq(maker->shares.amount, 2);
	fake_unshare_chunks(maker, token, 1);
	ck_assert(!gm_session_share_some(maker, &what, token, ret, &status, detail));
	ck_assert_int_eq(status, GPUMEM_E_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(detail, "ended the token"));
	ck_assert_uint_eq(maker->shares.amount, 0);
}
END_TEST

/* Else it would have shares that the end of the token does not end. */
START_TEST(a_token_has_no_more_chunks_than_a_client_has_shares)
{
	ck_assert_int_eq(share(ids, 1), GPUMEM_OK);
	ck_assert_int_eq(share_as(maker, ids + 1, 2, GM_BOUND_SHARES_PER_CLIENT - 1, 0, false),
		GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "a token has at most"));
	ck_assert_int_eq(
		share_as(maker, ids + 1, 2, GM_BOUND_SHARES_PER_CLIENT - 2, 0, false), GPUMEM_OK);
	ck_assert_uint_eq(maker->shares.amount, 3);
	fake_unshare_chunks(maker, token, UINT32_MAX);
	ck_assert_uint_eq(maker->shares.amount, 0);
}
END_TEST

/* Else a return of its one chunk would return others, too, and very many of them at once. */
START_TEST(a_chunk_that_is_a_lease_stays_the_only_one_in_it)
{
	struct fake_request q;

	ck_assert_int_eq(share(ids, 1), GPUMEM_OK);
	fake_unshare_chunks(maker, token, 1);
	struct gm_lease *piece = gm_session_find_lease(maker, own[0]);
	fake_grow(&fake, &q, maker, piece, 2 * MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(q.detail, "cannot grow"));
	ck_assert_uint_eq(fake_chunks(piece), 1);

	/* The lease that the chunk was in can still grow. */
	fake_grow(&fake, &q, maker, heap, 2 * MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(heap), 3);
}
END_TEST

START_TEST(a_client_that_asks_again_gets_the_same_leases_and_one_token)
{
	struct gm_lease *opened;
	uint8_t lost[GM_TOKEN_BYTES];
	uint64_t before[2];

	ck_assert_int_eq(share_as(maker, ids, 2, 0, 7, false), GPUMEM_OK);
	memcpy(lost, token, sizeof(lost));
	memcpy(before, own, sizeof(before));
	ck_assert_int_eq(share_as(maker, ids, 2, 0, 7, true), GPUMEM_OK);
	ck_assert_mem_eq(own, before, sizeof(before));
	ck_assert_uint_eq(maker->shares.amount, 2);
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_OK);
	memcpy(token, lost, sizeof(lost));
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_E_NOT_FOUND);
}
END_TEST

/* The same chunk may come several times in one request. */
START_TEST(a_client_that_asks_again_has_no_share_that_it_did_not_hear_of)
{
	const uint64_t twice[] = {ids[0], ids[1], ids[0]};
	struct gm_lease *opened;
	uint8_t lost[GM_TOKEN_BYTES];

	ck_assert_int_eq(share_as(maker, twice, 3, 0, 7, false), GPUMEM_OK);
	memcpy(lost, token, sizeof(lost));
	ck_assert_int_eq(share_as(maker, twice, 2, 0, 7, true), GPUMEM_OK);
	ck_assert_uint_eq(maker->shares.amount, 2);
	memcpy(token, lost, sizeof(lost));
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(open_by(mate, i, &opened), GPUMEM_E_NOT_FOUND);
}
END_TEST

/* The answer was lost, so what the client was refused for would be its own lost shares. */
START_TEST(a_client_that_asks_again_is_not_refused_for_what_it_did_not_hear_of)
{
	struct gm_lease *opened;

	while (maker->shares.amount < GM_BOUND_SHARES_PER_CLIENT - 2)
		ck_assert_int_eq(share(ids, 1), GPUMEM_OK);
	ck_assert_int_eq(share_as(maker, ids + 1, 2, 0, 7, false), GPUMEM_OK);
	ck_assert_int_eq(share_as(maker, ids + 1, 2, 0, 8, true), GPUMEM_E_LIMIT);
	ck_assert_int_eq(share_as(maker, ids + 1, 2, 0, 7, true), GPUMEM_OK);
	ck_assert_uint_eq(maker->shares.amount, GM_BOUND_SHARES_PER_CLIENT);
	ck_assert_int_eq(open_by(mate, 1, &opened), GPUMEM_OK);
}
END_TEST

/* The client did not hear that its chunk is a lease of its own, and returns it with the index that it knows. */
START_TEST(a_chunk_goes_back_by_the_index_it_had)
{
	uint64_t index = gm_lease_chunk(heap, 1)->index;
	struct gm_lease *opened;

	ck_assert_int_eq(
		gm_session_return_piece(maker, heap->id, ids[1], index), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(share(ids + 1, 1), GPUMEM_OK);
	ck_assert_int_eq(
		gm_session_return_piece(maker, heap->id, ids[1], index + 1), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_session_return_piece(mate, heap->id, ids[1], index), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_session_return_piece(maker, heap->id, 12345, index), GPUMEM_E_NOT_FOUND);

	/* If it is open here, the client knows it. */
	ck_assert_int_eq(open_by(maker, 0, &opened), GPUMEM_OK);
	ck_assert_int_eq(
		gm_session_return_piece(maker, heap->id, ids[1], index), GPUMEM_E_NOT_FOUND);
	gm_lease_return(maker, opened);

	/* Others keep it, and a second return takes nothing from them. */
	ck_assert_int_eq(open_by(mate, 0, &opened), GPUMEM_OK);
	ck_assert_int_eq(gm_session_return_piece(maker, heap->id, ids[1], index), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(maker, d), 34 * MiB);
	ck_assert_int_eq(
		gm_session_return_piece(maker, heap->id, ids[1], index), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 8 * MiB);
	gm_lease_return(mate, opened);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 8 * MiB);
}
END_TEST

/* The chunk came back, was granted again in another lease of the client, at the same index, and was shared there. */
START_TEST(a_return_that_is_sent_again_takes_no_chunk_that_left_another_lease)
{
	uint64_t index = gm_lease_chunk(heap, 1)->index;
	const struct gm_lease *before = heap;

	ck_assert_int_eq(share(ids + 1, 1), GPUMEM_OK);
	ck_assert_int_eq(gm_session_return_piece(maker, before->id, ids[1], index), GPUMEM_OK);
	heap = fake_lease(&fake, maker, d, 42 * MiB);
	ck_assert_uint_eq(gm_lease_chunk(heap, 1)->id, ids[1]);
	ck_assert_uint_eq(gm_lease_chunk(heap, 1)->index, index);
	ck_assert_int_eq(share(ids + 1, 1), GPUMEM_OK);
	ck_assert_int_eq(
		gm_session_return_piece(maker, before->id, ids[1], index), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_session_return_piece(maker, heap->id, ids[1], index), GPUMEM_OK);
}
END_TEST

START_TEST(nobody_shares_what_it_has_not)
{
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	uint8_t other[GM_TOKEN_BYTES];
	uint64_t none = 12345678;

	ck_assert_int_eq(share_as(mate, ids, 1, 0, 0, false), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(share(&none, 1), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_lease_share(maker, heap, &options, other), GPUMEM_OK);
	ck_assert_int_eq(share(ids, 1), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "shared itself"));
	gm_lease_unshare(maker, heap);

	/* A lease of one chunk is shared as it is; one of several is not. */
	uint64_t whole = 0;
	ck_assert_int_eq(share(&whole, 1), GPUMEM_E_NOT_FOUND);
	heap = fake_lease(&fake, maker, d, 4 * MiB);
	ck_assert_int_eq(share(&whole, 1), GPUMEM_OK);
	ck_assert_uint_eq(own[0], heap->id);
}
END_TEST

START_TEST(a_bound_of_shares_holds_for_chunks_too)
{
	int n = 0;

	ck_assert_int_eq(share(ids, 1), GPUMEM_OK);
	while (share(ids, 1) == GPUMEM_OK)
		n++;
	ck_assert_int_eq(n + 1, GM_BOUND_SHARES_PER_CLIENT);
	ck_assert_int_eq(share(ids, 2), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "shares"));
	ck_assert_uint_eq(fake_chunks(heap), 2);
}
END_TEST

START_TEST(without_memory_nothing_is_shared_and_the_client_hears_what_became_a_lease)
{
	struct gm_lease *opened;

	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		gpumem_status status = share(ids, 3);
		if (!failing_malloc_fired()) {
			ck_assert_int_eq(status, GPUMEM_OK);
			break;
		}
		/* Uthash can do without a larger table. */
		if (status == GPUMEM_OK) {
			fake_unshare_chunks(maker, token, 3);
			continue;
		}
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
		ck_assert_uint_eq(maker->shares.amount, 0);
		for (size_t i = 0; i < 3; i++)
			ck_assert(!own[i] || gm_session_find_lease(maker, own[i])->bytes > 0);
		ck_assert_uint_eq(gm_session_held(maker, d), 42 * MiB);
		fake_core_check(&fake, d);
	}
	ck_assert_int_eq(open_by(mate, 2, &opened), GPUMEM_OK);
}
END_TEST

START_TEST(chunks_are_shared_in_slices_and_one_may_go_in_between)
{
	enum { N = 4 * GM_TOKEN_SLICE };
	uint64_t leases[N], chunks[N], now[N];
	gpumem_status status = GPUMEM_OK;
	uint32_t at = 0;

	/* A chunk can be under a token at many indexes. */
	for (size_t i = 0; i < N; i++)
		leases[i] = heap->id;
	for (size_t i = 0; i < N; i++)
		chunks[i] = ids[0];
	for (int returns = 0; returns < 2; returns++) {
		struct gm_token_chunks what = {.leases = leases, .chunks = chunks, .n = N};
		for (size_t slice = 1; slice < 2 * N / GM_TOKEN_SLICE; slice++) {
			ck_assert(gm_session_share_some(maker, &what, token, now, &status, detail));
			ck_assert_uint_eq(what.n_split + what.n_shared, slice * GM_TOKEN_SLICE);
		}
		if (returns)
			gm_lease_return(maker, gm_session_find_lease(maker, now[0]));
		ck_assert(!gm_session_share_some(maker, &what, token, now, &status, detail));
		ck_assert_int_eq(status, returns ? GPUMEM_E_NOT_FOUND : GPUMEM_OK);
		ck_assert_uint_eq(maker->shares.amount, returns ? 0 : N);
		if (returns)
			break;
		for (size_t slice = 1; slice < N / GM_TOKEN_SLICE; slice++)
			ck_assert(gm_session_unshare_some(maker, token, &at, N));
		ck_assert(!gm_session_unshare_some(maker, token, &at, N));
		ck_assert_uint_eq(maker->shares.amount, 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("piece");
	TCase *tcase = tcase_create("piece");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, chunks_are_shared_in_slices_and_one_may_go_in_between);
	tcase_add_test(tcase, a_shared_chunk_leaves_its_lease_and_nothing_else_changes);
	tcase_add_test(tcase, one_token_has_several_chunks_and_a_chunk_several_tokens);
	tcase_add_test(tcase, a_token_has_one_chunk_at_an_index);
	tcase_add_test(tcase, nothing_is_added_to_a_token_that_ends_meanwhile);
	tcase_add_test(tcase, a_token_has_no_more_chunks_than_a_client_has_shares);
	tcase_add_test(tcase, a_chunk_that_is_a_lease_stays_the_only_one_in_it);
	tcase_add_test(tcase, a_client_that_asks_again_gets_the_same_leases_and_one_token);
	tcase_add_test(tcase, a_client_that_asks_again_has_no_share_that_it_did_not_hear_of);
	tcase_add_test(tcase, a_client_that_asks_again_is_not_refused_for_what_it_did_not_hear_of);
	tcase_add_test(tcase, a_chunk_goes_back_by_the_index_it_had);
	tcase_add_test(tcase, a_return_that_is_sent_again_takes_no_chunk_that_left_another_lease);
	tcase_add_test(tcase, nobody_shares_what_it_has_not);
	tcase_add_test(tcase, a_bound_of_shares_holds_for_chunks_too);
	tcase_add_test(
		tcase, without_memory_nothing_is_shared_and_the_client_hears_what_became_a_lease);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
