/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/lease.c: growing, shrinking, giving back, and which chunks may be used again. */
#include <stdlib.h>
#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/lease_token.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

static struct fake_core fake;
static struct gm_session *s;
static struct gm_core_device_info device_info;
static struct fake_request q;
static uint32_t d;

static void setup(void)
{
	device_info = fake_info(16 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &device_info);
	s = fake_session(&fake, 1, 1000);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

static struct gm_lease_info info_of(const struct gm_lease *lease)
{
	struct gm_lease_info info;
	gm_lease_info(lease, s, &info);
	return info;
}

START_TEST(a_lease_says_what_it_is)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 5 * MiB);
	struct gm_lease_info info = info_of(l);
	ck_assert_uint_eq(info.bytes, 6 * MiB);
	ck_assert_uint_eq(info.user_bytes, 5 * MiB);
	ck_assert_str_eq(info.tag, "test");
	ck_assert_int_eq(info.transport, GM_TRANSPORT_FD);
	ck_assert(!info.read_only);
	ck_assert_ptr_eq(gm_session_find_lease(s, info.id), l);
	ck_assert_ptr_null(gm_session_find_lease(s, info.id + 1));
	ck_assert_ptr_null(gm_session_find_lease(fake_session(&fake, 1, 1000), info.id));
}
END_TEST

START_TEST(it_grows_and_shrinks_and_never_gives_an_index_twice)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 6 * MiB);
	ck_assert_uint_eq(fake_chunks(l), 2);
	uint64_t ids[2] = {gm_lease_chunk(l, 0)->id, gm_lease_chunk(l, 1)->id};
	ck_assert_int_eq(gm_lease_return_chunks(s, l, ids, 2), GPUMEM_OK);
	ck_assert_ptr_null(gm_lease_chunk(l, 0));
	ck_assert_uint_eq(info_of(l).bytes, 0);
	ck_assert_uint_eq(info_of(l).user_bytes, 0);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	fake_grow(&fake, &q, s, l, 2 * MiB);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(q.r.first_index, 2);
	ck_assert_uint_eq(gm_lease_chunk(l, 0)->index, 2);
	ck_assert_uint_eq(gm_session_held(s, d), 2 * MiB);
}
END_TEST

static void resize_begin(struct gm_lease *l, uint64_t bytes, uint64_t user_bytes)
{
	fake_grow(&fake, &q, s, l, 0); /* fills it in, and is refused */
	q = (struct fake_request){.r = {.session = s,
					  .lease = l,
					  .bytes = bytes,
					  .user_bytes = user_bytes,
					  .done = q.r.done}};
	gm_core_request(fake.core, &q.r);
}

/* Grows the lease to a size of its own. */
static gpumem_status resize(struct gm_lease *l, uint64_t bytes, uint64_t user_bytes)
{
	resize_begin(l, bytes, user_bytes);
	fake_core_run(&fake);
	return q.status;
}

START_TEST(it_has_the_size_that_its_maker_says)
{
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_session *other = fake_session(&fake, 1, 1000);
	struct gm_lease *l = fake_lease(&fake, s, d, 5 * MiB);
	ck_assert_int_eq(gm_lease_set_size(s, l, 6 * MiB, detail), GPUMEM_OK);
	ck_assert_uint_eq(info_of(l).user_bytes, 6 * MiB);
	ck_assert_int_eq(gm_lease_set_size(s, l, 1, detail), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_set_size(s, l, 0, detail), GPUMEM_E_INVALID);
	ck_assert_int_eq(gm_lease_set_size(s, l, 6 * MiB + 1, detail), GPUMEM_E_INVALID);
	ck_assert_int_eq(gm_lease_set_size(s, l, UINT64_MAX, detail), GPUMEM_E_INVALID);
	ck_assert_int_eq(gm_lease_set_size(other, l, MiB, detail), GPUMEM_E_DENIED);
	ck_assert_uint_eq(info_of(l).user_bytes, 1);
	ck_assert_uint_eq(info_of(l).bytes, 6 * MiB);

	ck_assert_int_eq(resize(l, 4 * MiB, 9 * MiB + 1), GPUMEM_OK);
	ck_assert_uint_eq(info_of(l).user_bytes, 9 * MiB + 1);
	ck_assert_uint_eq(info_of(l).bytes, 10 * MiB);
	ck_assert_int_eq(resize(l, 2 * MiB, 12 * MiB + 1), GPUMEM_E_INVALID);
	ck_assert_int_eq(resize(l, 2 * MiB, UINT64_MAX), GPUMEM_E_INVALID);
	ck_assert_uint_eq(info_of(l).bytes, 10 * MiB);
	ck_assert_uint_eq(info_of(l).user_bytes, 9 * MiB + 1);
}
END_TEST

START_TEST(a_chunk_that_is_granted_again_has_another_index)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 4 * MiB);
	const struct gm_chunk *last = gm_lease_chunk(l, fake_chunks(l) - 1);
	uint64_t id = last->id, before = last->index, had = info_of(l).bytes, bytes = last->bytes;

	ck_assert_int_eq(gm_lease_return_chunks_at(s, l, &id, &before, 1), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_return_chunks_at(s, l, &id, &before, 1), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(resize(l, bytes, had), GPUMEM_OK);
	last = gm_lease_chunk(l, before + 1);
	ck_assert_uint_eq(last->id, id);
	uint64_t now = last->index;

	/* The client did not hear of the first return, and sends it again. */
	ck_assert_int_eq(gm_lease_return_chunks_at(s, l, &id, &before, 1), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(info_of(l).bytes, had);
	ck_assert_int_eq(gm_lease_return_chunks_at(s, l, &id, &now, 1), GPUMEM_OK);
	ck_assert_uint_eq(info_of(l).bytes, had - bytes);
}
END_TEST

/* The client gave up before the answer came, and so returns what a resize brought: in parts, if it is
 * much. Whoever opens the lease must hear the size that the client knows. */
START_TEST(it_has_its_old_size_if_what_a_resize_brought_goes_back)
{
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_lease *l = fake_lease(&fake, s, d, 5 * MiB);
	const uint64_t had = fake_chunks(l);

	ck_assert_int_eq(resize(l, 3 * MiB, 8 * MiB + 1), GPUMEM_OK);
	for (const struct gm_chunk *chunk; (chunk = gm_lease_chunk(l, had));) {
		ck_assert_int_eq(gm_lease_return_chunks(s, l, &chunk->id, 1), GPUMEM_OK);
		fake_core_run(&fake);
	}
	ck_assert_uint_eq(info_of(l).bytes, 6 * MiB);
	ck_assert_uint_eq(info_of(l).user_bytes, 5 * MiB);

	/* What the maker says later counts. */
	ck_assert_int_eq(resize(l, 2 * MiB, 7 * MiB), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_set_size(s, l, 8 * MiB, detail), GPUMEM_OK);
	uint64_t last = gm_lease_chunk(l, had)->id;
	ck_assert_int_eq(gm_lease_return_chunks(s, l, &last, 1), GPUMEM_OK);
	fake_core_run(&fake);
	ck_assert_uint_eq(info_of(l).user_bytes, 6 * MiB);
}
END_TEST

START_TEST(a_lease_that_others_have_or_could_get_is_not_resized)
{
	char detail[GM_DETAIL_BYTES] = "";
	uint8_t token[GM_TOKEN_BYTES];
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	struct gm_session *other = fake_session(&fake, 1, 1000);
	struct gm_lease *l = fake_lease(&fake, s, d, 5 * MiB), *opened;
	ck_assert_int_eq(gm_lease_share(s, l, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_set_size(s, l, MiB, detail), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "gpumem_unshare"));
	ck_assert_int_eq(resize(l, 2 * MiB, 8 * MiB), GPUMEM_E_BUSY);
	/* It may still have more chunks: that harms nobody. */
	ck_assert_int_eq(resize(l, 2 * MiB, 0), GPUMEM_OK);

	ck_assert_int_eq(gm_session_open(other, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_unshare(s, l);
	ck_assert_int_eq(gm_lease_set_size(s, l, MiB, detail), GPUMEM_E_BUSY);
	ck_assert_int_eq(resize(l, 2 * MiB, 8 * MiB), GPUMEM_E_BUSY);
	gm_lease_return(other, opened);
	ck_assert_int_eq(gm_lease_set_size(s, l, MiB, detail), GPUMEM_OK);
	ck_assert_int_eq(resize(l, 2 * MiB, 8 * MiB), GPUMEM_OK);
	ck_assert_uint_eq(info_of(l).user_bytes, 8 * MiB);
}
END_TEST

/* While its chunk is created, the lease is shared: whoever opens it is told one size, once. */
START_TEST(a_resize_that_a_share_overtakes_is_refused)
{
	uint8_t token[GM_TOKEN_BYTES];
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	struct gm_lease *l = fake_lease(&fake, s, d, 5 * MiB);
	resize_begin(l, 2 * MiB, 8 * MiB);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	ck_assert_int_eq(gm_lease_share(s, l, &options, token), GPUMEM_OK);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_E_BUSY);
	ck_assert_uint_eq(info_of(l).user_bytes, 5 * MiB);
	ck_assert_uint_eq(info_of(l).bytes, 6 * MiB);
	ck_assert_uint_eq(gm_session_held(s, d), 6 * MiB);
}
END_TEST

START_TEST(any_chunk_is_found_by_its_index_and_past_holes)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 2 * MiB);
	for (int i = 1; i < 40; i++) {
		fake_grow(&fake, &q, s, l, 2 * MiB);
		fake_core_run(&fake);
	}
	for (uint64_t i = 0; i < 40; i++)
		ck_assert_uint_eq(gm_lease_chunk(l, i)->index, i);
	ck_assert_ptr_null(gm_lease_chunk(l, 40));
	ck_assert_ptr_null(gm_lease_chunk(l, UINT64_MAX));
	uint64_t ids[20];
	for (uint64_t i = 0; i < 20; i++)
		ids[i] = gm_lease_chunk(l, i * 2)->id;
	ck_assert_int_eq(gm_lease_return_chunks(s, l, ids, 20), GPUMEM_OK);
	for (uint64_t i = 0; i < 40; i++)
		ck_assert_uint_eq(gm_lease_chunk(l, i)->index, i | 1);
}
END_TEST

START_TEST(the_next_chunk_is_found_by_the_one_before_it)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 2 * MiB), *second = NULL;
	for (int i = 1; i < 4; i++)
		fake_grow(&fake, &q, s, l, 2 * MiB), fake_core_run(&fake);
	uint64_t first = gm_lease_chunk(l, 0)->id, last = gm_lease_chunk(l, 3)->id;
	ck_assert_uint_eq(gm_lease_chunk_after(l, 0, 2)->index, 2);
	ck_assert_uint_eq(gm_lease_chunk_after(l, first, 1)->index, 1);
	ck_assert_ptr_null(gm_lease_chunk_after(l, last, 4));
	/* It has left the lease: in the pool, or in another lease by now. */
	ck_assert_int_eq(gm_lease_return_chunks(s, l, &first, 1), GPUMEM_OK);
	ck_assert_uint_eq(gm_lease_chunk_after(l, first, 1)->index, 1);
	second = fake_lease(&fake, s, d, 2 * MiB);
	ck_assert_uint_eq(gm_lease_chunk(second, 0)->id, first);
	ck_assert_uint_eq(gm_lease_chunk_after(l, first, 1)->index, 1);
}
END_TEST

START_TEST(a_return_with_a_wrong_id_changes_nothing)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 14 * MiB);
	struct gm_lease *other = fake_lease(&fake, s, d, 2 * MiB);
	uint64_t a = gm_lease_chunk(l, 0)->id, b = gm_lease_chunk(l, 1)->id;
	uint64_t foreign = gm_lease_chunk(other, 0)->id;
	uint64_t twice[] = {a, b, a}, strange[] = {a, b, foreign}, unknown[] = {a, 999999};
	ck_assert_int_eq(gm_lease_return_chunks(s, l, twice, 3), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_lease_return_chunks(s, l, strange, 3), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_lease_return_chunks(s, l, unknown, 2), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(info_of(l).bytes, 14 * MiB);
	ck_assert_int_eq(gm_lease_return_chunks(s, l, twice, 2), GPUMEM_OK);
	/* Given back already, and pooled: not in the lease any more. */
	ck_assert_int_eq(gm_lease_return_chunks(s, l, twice, 1), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_lease_return_chunks(s, l, NULL, 0), GPUMEM_OK);
	ck_assert_int_eq(
		gm_lease_return_chunks(fake_session(&fake, 1, 1), l, NULL, 0), GPUMEM_E_NOT_FOUND);
}
END_TEST

START_TEST(what_is_returned_is_pooled_for_its_domain)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 64 * MiB);
	uint64_t id = gm_lease_chunk(l, 0)->id;
	gm_lease_return(s, l);
	ck_assert_uint_eq(gm_session_lease_count(s), 0);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
	struct gm_session *mate = fake_session(&fake, 1, 1000);
	ck_assert_uint_eq(gm_lease_chunk(fake_lease(&fake, mate, d, 64 * MiB), 0)->id, id);
}
END_TEST

START_TEST(what_a_dead_client_had_is_destroyed)
{
	fake_lease(&fake, s, d, 64 * MiB);
	gm_session_end_died(s);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 0);
}
END_TEST

START_TEST(what_a_client_said_it_unmapped_at_its_end_is_pooled)
{
	fake_lease(&fake, s, d, 64 * MiB);
	gm_session_end_unmapped(s);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
}
END_TEST

START_TEST(nothing_is_pooled_where_trust_ends_at_the_client)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *loner;
	struct gm_session_info info = {.domain = 9, .pooling = false};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &loner), 0);
	gm_lease_return(loner, fake_lease(&fake, loner, d, 2 * MiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);

	gm_lease_return(s, fake_lease(&fake, s, d, 2 * MiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 2 * MiB);
	device_info.policy.pooling = false;
	gm_core_set_policy(fake.core, d, &device_info.policy);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	gm_lease_return(s, fake_lease(&fake, s, d, 2 * MiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(what_is_returned_above_the_ceiling_is_destroyed)
{
	/* Pressure, which empties the pool too, is not what this is about. */
	struct gm_policy p = device_info.policy;
	fake_no_levels(&p);
	gm_core_set_policy(fake.core, d, &p);
	struct gm_lease *l = fake_lease(&fake, s, d, GiB);
	fake_lease(&fake, s, d, GiB);
	gm_core_sample(fake.core, d, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).ceiling, 2 * GiB);
	gm_lease_return(s, l);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, GiB);
	/* Others take more: first the pool goes, then what comes back does not get in. */
	fake_core_run(&fake);
	gm_core_sample(fake.core, d, 0);
	p.min_free = 15 * GiB;
	gm_core_set_policy(fake.core, d, &p);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 0);
	gm_session_end_unmapped(s);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).returns, 1);
}
END_TEST

START_TEST(a_grow_that_is_pending_when_its_lease_is_returned_is_cancelled)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 2 * MiB);
	struct fake_request other;
	fake_grow(&fake, &q, s, l, 64 * MiB);
	fake_ask(&fake, &other, s, d, 64 * MiB, GM_TRANSPORT_AUTO);
	gm_lease_return(s, l);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(other.ended, 0);
	fake_core_run(&fake);
	ck_assert_int_eq(other.status, GPUMEM_OK);
	/* What was made for the other is fresh: it goes to anyone. */
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 66 * MiB);
	fake_ask(&fake, &q, fake_session(&fake, 5, 5), d, 64 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 1);
}
END_TEST

START_TEST(a_lease_too_many_is_refused)
{
	GM_BOUND_TEST(LEASES_PER_CLIENT);
	struct gm_core_device_info info = fake_info(256 * GiB);
	struct fake_core big;
	fake_core_init(&big);
	/* Several devices, because the chunks of one would not do. */
	uint32_t n[3] = {
		fake_core_add(&big, &info), fake_core_add(&big, &info), fake_core_add(&big, &info)};
	struct gm_session *x = fake_session(&big, 1, 1);
	int made = 0;
	for (; made < GM_BOUND_LEASES_PER_CLIENT - 1; made++) {
		fake_ask(&big, &q, x, n[made / 8000], MiB, GM_TRANSPORT_AUTO);
		fake_core_complete(&big, 0, 0);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	/* One that is pending counts. */
	struct fake_request last;
	fake_ask(&big, &last, x, n[2], MiB, GM_TRANSPORT_AUTO);
	fake_ask(&big, &q, x, n[2], MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "16384"));
	fake_core_run(&big);
	ck_assert_int_eq(last.status, GPUMEM_OK);
	fake_ask(&big, &q, x, n[2], MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	/* Opening one is having one more. */
	struct gm_session *y = fake_session(&big, 1, 1);
	struct gm_lease *shared = fake_lease(&big, y, n[2], MiB), *opened;
	uint8_t token[GM_TOKEN_BYTES];
	ck_assert_int_eq(
		gm_lease_share(y, shared, &(struct gm_token_options){0}, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(x, token, NULL, 0, &opened), GPUMEM_E_LIMIT);
	/* Growing is not a lease, and one returned makes room for one. */
	fake_grow(&big, &q, x, last.r.lease, MiB);
	fake_core_run(&big);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	gm_lease_return(x, last.r.lease);
	fake_lease(&big, x, n[2], MiB);
	fake_core_deinit(&big);
}
END_TEST

START_TEST(leases_are_listed_in_order_of_age)
{
	struct gm_lease *a = fake_lease(&fake, s, d, MiB), *b = fake_lease(&fake, s, d, MiB);
	struct gm_lease *c = fake_lease(&fake, s, d, MiB);
	gm_lease_return(s, b);
	ck_assert_ptr_eq(gm_session_next_lease(s, NULL), a);
	ck_assert_ptr_eq(gm_session_next_lease(s, a), c);
	ck_assert_ptr_null(gm_session_next_lease(s, c));
	ck_assert_uint_eq(gm_session_lease_count(s), 2);
}
END_TEST

/* A lease of so many chunks. */
static struct gm_lease *lease_of(size_t n)
{
	static struct fake_request grow;
	struct gm_lease *lease = fake_lease(&fake, s, d, 2 * MiB);
	while (--n > 0) {
		fake_grow(&fake, &grow, s, lease, 2 * MiB);
		fake_core_run(&fake);
		ck_assert_int_eq(grow.status, GPUMEM_OK);
	}
	return lease;
}

START_TEST(a_large_lease_is_returned_in_parts)
{
	size_t left = 3 * GM_LEASE_SLICE;
	struct gm_lease *lease = lease_of(left);
	struct gm_session *stranger = fake_session(&fake, 1, 1);
	for (bool more = true; more; fake_core_check(&fake, d)) {
		more = gm_lease_return_some(s, lease);
		left -= GM_LEASE_SLICE;
		ck_assert_uint_eq(fake_chunks(lease), left);
		ck_assert_uint_eq(gm_session_held(s, d), left * 2 * MiB);
		ck_assert_int_eq(more, left > GM_LEASE_SLICE);
	}
	ck_assert(!gm_lease_return_some(s, lease));
	ck_assert(!gm_lease_return_some(stranger, lease));
	gm_lease_return(s, lease);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	ck_assert_uint_eq(gm_session_lease_count(s), 0);
}
END_TEST

/* Returns all but the first chunk, by their ids. */
static void return_most(struct gm_lease *lease, size_t n)
{
	uint64_t *ids = calloc(n, sizeof(*ids));
	size_t i = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 1); c; c = c->next)
		ids[i++] = c->id;
	ck_assert_uint_eq(i, n - 1);
	ck_assert_int_eq(gm_lease_return_chunks(s, lease, ids, i), GPUMEM_OK);
	/* They are the client's no more. */
	ck_assert_int_eq(gm_lease_return_chunks(s, lease, &ids[i - 1], 1), GPUMEM_E_NOT_FOUND);
	free(ids);
}

START_TEST(many_chunks_are_returned_in_parts)
{
	size_t left = 3 * GM_LEASE_SLICE + 1;
	struct gm_lease *lease = lease_of(left);
	return_most(lease, left);
	for (left -= GM_LEASE_SLICE; left > 1; left -= GM_LEASE_SLICE) {
		ck_assert_uint_eq(fake_chunks(lease), left);
		ck_assert_uint_eq(gm_session_held(s, d), left * 2 * MiB);
		ck_assert(gm_lease_is_leaving(lease));
		ck_assert_int_eq(gm_lease_return_more(s, lease), left > GM_LEASE_SLICE + 1);
		fake_core_check(&fake, d);
	}
	ck_assert_uint_eq(fake_chunks(lease), 1);
	ck_assert(!gm_lease_is_leaving(lease));
	ck_assert(!gm_lease_return_more(s, lease));
}
END_TEST

/* Lets ticks release what was returned, a part in each. */
static void expect_ticks(size_t left, size_t last)
{
	while (left > last) {
		gm_core_tick(fake.core);
		left -= GM_LEASE_SLICE < left - last ? GM_LEASE_SLICE : left - last;
		struct gm_device_figures figures;
		gm_core_device_figures(fake.core, d, &figures);
		ck_assert_uint_eq(figures.leased + figures.quarantined, left * 2 * MiB);
	}
}

START_TEST(what_was_returned_goes_in_ticks_if_the_connection_ends)
{
	size_t n = 3 * GM_LEASE_SLICE + 1;
	struct gm_lease *lease = lease_of(n);
	return_most(lease, n);
	gm_session_quarantine(s);
	expect_ticks(n - GM_LEASE_SLICE, 1);
	fake_core_check(&fake, d);
	ck_assert_uint_eq(gm_session_held(s, d), 2 * MiB);
}
END_TEST

START_TEST(or_if_the_maker_leaves_the_lease_to_others)
{
	size_t n = 3 * GM_LEASE_SLICE + 1;
	struct gm_lease *lease = lease_of(n);
	struct gm_session *mate = fake_session(&fake, 1, 1);
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_lease *opened;
	return_most(lease, n);
	ck_assert_int_eq(gm_lease_share(s, lease, &(struct gm_token_options){0}, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(mate, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_return(s, lease);
	expect_ticks(n - GM_LEASE_SLICE, 1);
	gm_lease_return(mate, opened);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_lease_that_is_being_emptied_can_be_returned_as_a_whole)
{
	size_t n = 3 * GM_LEASE_SLICE + 1;
	struct gm_lease *lease = lease_of(n);
	return_most(lease, n);
	gm_session_quarantine(s);
	gm_session_end_unmapped(s);
	expect_ticks(n - 2 * GM_LEASE_SLICE, 0);
	fake_core_check(&fake, d);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
	s = fake_session(&fake, 1, 1);

	lease = lease_of(n);
	return_most(lease, n);
	ck_assert(gm_lease_return_some(s, lease));
	ck_assert(!gm_lease_return_some(s, lease));
	gm_lease_return(s, lease);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	fake_core_check(&fake, d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease");
	TCase *tcase = tcase_create("lease");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_lease_says_what_it_is);
	tcase_add_test(tcase, it_grows_and_shrinks_and_never_gives_an_index_twice);
	tcase_add_test(tcase, it_has_the_size_that_its_maker_says);
	tcase_add_test(tcase, a_chunk_that_is_granted_again_has_another_index);
	tcase_add_test(tcase, it_has_its_old_size_if_what_a_resize_brought_goes_back);
	tcase_add_test(tcase, a_lease_that_others_have_or_could_get_is_not_resized);
	tcase_add_test(tcase, a_resize_that_a_share_overtakes_is_refused);
	tcase_add_test(tcase, any_chunk_is_found_by_its_index_and_past_holes);
	tcase_add_test(tcase, the_next_chunk_is_found_by_the_one_before_it);
	tcase_add_test(tcase, a_return_with_a_wrong_id_changes_nothing);
	tcase_add_test(tcase, what_is_returned_is_pooled_for_its_domain);
	tcase_add_test(tcase, what_a_dead_client_had_is_destroyed);
	tcase_add_test(tcase, what_a_client_said_it_unmapped_at_its_end_is_pooled);
	tcase_add_test(tcase, nothing_is_pooled_where_trust_ends_at_the_client);
	tcase_add_test(tcase, what_is_returned_above_the_ceiling_is_destroyed);
	tcase_add_test(tcase, a_grow_that_is_pending_when_its_lease_is_returned_is_cancelled);
	tcase_add_test(tcase, a_lease_too_many_is_refused);
	tcase_add_test(tcase, leases_are_listed_in_order_of_age);
	tcase_add_test(tcase, a_large_lease_is_returned_in_parts);
	tcase_add_test(tcase, many_chunks_are_returned_in_parts);
	tcase_add_test(tcase, what_was_returned_goes_in_ticks_if_the_connection_ends);
	tcase_add_test(tcase, or_if_the_maker_leaves_the_lease_to_others);
	tcase_add_test(tcase, a_lease_that_is_being_emptied_can_be_returned_as_a_whole);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
