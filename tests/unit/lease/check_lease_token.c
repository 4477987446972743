/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/lease_token.c and who pays for what is shared. */
#include <string.h>

#include "daemon/core/place.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct fake_core fake;
static struct gm_session *maker, *mate, *stranger;
static struct gm_lease *l;
static uint8_t token[GM_TOKEN_BYTES];
static uint32_t d;

/* The maker and its mate are of one domain; the stranger has the same uid in another container. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(16 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	maker = fake_session(&fake, 1, 1000);
	mate = fake_session(&fake, 1, 1000);
	stranger = fake_session(&fake, 2, 1000);
	fake.for_others = true;
	l = fake_lease(&fake, maker, d, 64 * MiB);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

static void share(enum gm_name_audience audience, uint32_t id)
{
	struct gm_token_options options = {.audience = audience, .id = id};
	ck_assert_int_eq(gm_lease_share(maker, l, &options, token), GPUMEM_OK);
}

static gpumem_status open_it(struct gm_session *session)
{
	struct gm_lease *opened = NULL;
	gpumem_status status = gm_session_open(session, token, NULL, 0, &opened);
	ck_assert_ptr_eq(opened, status == GPUMEM_OK ? l : NULL);
	return status;
}

START_TEST(a_token_for_the_domain_is_good_for_the_domain_alone)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(stranger), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_ptr_eq(gm_session_next_lease(mate, NULL), l);
	ck_assert_uint_eq(gm_session_held(mate, d), 0);
	ck_assert_uint_eq(gm_session_held(maker, d), 64 * MiB);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 1);
}
END_TEST

START_TEST(a_maker_that_returns_its_view_twice_keeps_what_it_made)
{
	struct gm_lease *opened;
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(
		gm_session_open_by(maker, token, 0, NULL, 0, 5, false, &opened), GPUMEM_OK);
	gm_lease_return_view(maker, l, 5);
	ck_assert(!gm_lease_has_view(maker, l, 5));
	gm_lease_return_view(maker, l, 5);
	ck_assert_uint_eq(gm_session_held(maker, d), 64 * MiB);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 1);

	/* Without names, each return ends one of them. */
	ck_assert_int_eq(
		gm_session_open_by(maker, token, 0, NULL, 0, 6, false, &opened), GPUMEM_OK);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 1);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
}
END_TEST

START_TEST(a_token_for_a_uid_or_gid_is_good_for_those)
{
	struct gm_session *other = fake_session(&fake, 3, 2000);
	struct gm_lease *opened;
	share(GM_NAME_AUDIENCE_UID, 1000);
	ck_assert_int_eq(open_it(other), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(open_it(stranger), GPUMEM_OK);
	share(GM_NAME_AUDIENCE_GID, 44);
	gid_t groups[] = {5, 44};
	ck_assert_int_eq(gm_session_open(other, token, groups, 1, &opened), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_session_open(other, token, groups, 2, &opened), GPUMEM_OK);
	share(GM_NAME_AUDIENCE_GID, 2000);
	ck_assert_int_eq(open_it(other), GPUMEM_OK);
}
END_TEST

START_TEST(what_was_not_made_for_others_stays_in_its_domain)
{
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 1000};

	fake.for_others = false;
	struct gm_lease *own = fake_lease(&fake, maker, d, 2 * MiB);
	ck_assert_int_eq(gm_lease_share(maker, own, &options, token), GPUMEM_E_UNSUPPORTED);
	options.audience = GM_NAME_AUDIENCE_GID;
	ck_assert_int_eq(gm_lease_share(maker, own, &options, token), GPUMEM_E_UNSUPPORTED);
	options.audience = GM_NAME_AUDIENCE_DOMAIN;
	ck_assert_int_eq(gm_lease_share(maker, own, &options, token), GPUMEM_OK);
}
END_TEST

START_TEST(what_is_made_for_others_has_no_old_data)
{
	fake.for_others = false;
	gm_lease_return(maker, fake_lease(&fake, maker, d, 8 * MiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	uint64_t hits = fake_pool(&fake, d).hits;

	fake.for_others = true;
	struct gm_lease *lease = fake_lease(&fake, maker, d, 8 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	struct fake_request q;
	fake_grow(&fake, &q, maker, lease, 8 * MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).hits, hits);

	/* Nobody opened it, so its maker's domain may use it again. */
	gm_lease_return(maker, lease);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 24 * MiB);
}
END_TEST

START_TEST(a_guess_is_not_found_whichever_bit_is_wrong)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	for (int bit = 0; bit < GM_TOKEN_BYTES * 8; bit++) {
		token[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(open_it(mate), GPUMEM_E_NOT_FOUND);
		token[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
}
END_TEST

START_TEST(a_session_that_is_away_opens_nothing)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	gm_session_quarantine(mate);
	ck_assert_int_eq(open_it(mate), GPUMEM_E_DISCONNECTED);
	/* The maker's being away does not end its tokens: its process lives. */
	gm_session_quarantine(maker);
	ck_assert_int_eq(open_it(fake_session(&fake, 1, 1000)), GPUMEM_OK);
}
END_TEST

START_TEST(an_audience_that_is_nobody_is_invalid)
{
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = UINT32_MAX};
	ck_assert_int_eq(gm_lease_share(maker, l, &options, token), GPUMEM_E_INVALID);
	options.audience = (enum gm_name_audience)9;
	ck_assert_int_eq(gm_lease_share(maker, l, &options, token), GPUMEM_E_INVALID);
}
END_TEST

START_TEST(only_the_maker_shares_and_unshares)
{
	struct gm_token_options options = {0};
	uint8_t other[GM_TOKEN_BYTES];
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(mate, l, &options, other), GPUMEM_E_DENIED);
	ck_assert_int_eq(gm_lease_unshare(mate, l), GPUMEM_E_DENIED);
	ck_assert_int_eq(gm_lease_unshare(maker, l), GPUMEM_OK);
	ck_assert_int_eq(open_it(mate), GPUMEM_E_NOT_FOUND);
	/* Who has it keeps it. */
	ck_assert_ptr_eq(gm_session_next_lease(mate, NULL), l);
}
END_TEST

START_TEST(a_shared_lease_goes_back_as_a_whole)
{
	uint64_t id = gm_lease_chunk(l, 0)->id;
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(gm_lease_return_chunks(maker, l, &id, 1), GPUMEM_E_BUSY);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_unshare(maker, l);
	ck_assert_int_eq(gm_lease_return_chunks(maker, l, &id, 1), GPUMEM_E_BUSY);
	ck_assert_int_eq(gm_lease_return_chunks(mate, l, &id, 1), GPUMEM_E_BUSY);
	gm_lease_return(mate, l);
	ck_assert_int_eq(gm_lease_return_chunks(maker, l, &id, 1), GPUMEM_OK);
}
END_TEST

START_TEST(the_makers_uid_pays_until_the_last_opener_has_left)
{
	struct gm_session *third = fake_session(&fake, 1, 1000);
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_int_eq(open_it(third), GPUMEM_OK);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(gm_session_held(maker, d), 0);
	ck_assert_uint_eq(gm_session_held(mate, d), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 64 * MiB);
	/* The maker's part is over, and its tokens with it. */
	ck_assert_int_eq(open_it(maker), GPUMEM_E_NOT_FOUND);
	ck_assert_ptr_null(gm_session_next_lease(maker, NULL));
	gm_lease_return(mate, l);
	ck_assert_uint_eq(gm_session_held(third, d), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 64 * MiB);
	gm_lease_return(third, l);
	ck_assert_uint_eq(fake_left_by(&fake, 1000, d), 0);
	/* All of one domain, all unmapped: pooled. */
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
}
END_TEST

START_TEST(an_openers_return_changes_no_charge)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_return(mate, l);
	ck_assert_uint_eq(gm_session_held(maker, d), 64 * MiB);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
}
END_TEST

START_TEST(the_payers_quarantine_counts_and_an_openers_does_not)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_session_quarantine(mate);
	ck_assert_uint_eq(fake_figures(&fake, d).quarantined, 0);
	gm_session_quarantine(maker);
	ck_assert_uint_eq(fake_figures(&fake, d).quarantined, 64 * MiB);
	/* The maker dies: what it left behind is not quarantined, though its opener is. */
	gm_session_end_died(maker);
	ck_assert_uint_eq(fake_figures(&fake, d).quarantined, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).leased, 64 * MiB);
	ck_assert_uint_eq(gm_session_held(mate, d), 0);
	gm_session_end_died(mate);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 0);
}
END_TEST

START_TEST(a_lease_opened_across_domains_is_never_pooled)
{
	share(GM_NAME_AUDIENCE_UID, 1000);
	ck_assert_int_eq(open_it(stranger), GPUMEM_OK);
	gm_lease_return(stranger, l);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
}
END_TEST

START_TEST(a_lease_opened_by_a_client_that_nobody_trusts_is_never_pooled)
{
	struct gm_session_info info = {.uid = 1000, .domain = 1, .pooling = false};
	uint8_t unused[GM_TOKEN_BYTES];
	struct gm_session *loner;
	ck_assert_int_eq(gm_session_new(fake.core, &info, unused, &loner), 0);
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(loner), GPUMEM_OK);
	gm_lease_return(loner, l);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(a_holder_that_dies_spoils_the_chunks_for_good)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_session_end_died(mate);
	ck_assert_uint_eq(fake_core_count(&fake, true), 0);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
}
END_TEST

START_TEST(opening_twice_counts_twice)
{
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_lease_count(mate), 1);
	gm_lease_return(mate, l);
	ck_assert_uint_eq(gm_session_lease_count(mate), 1);
	gm_lease_return(mate, l);
	ck_assert_uint_eq(gm_session_lease_count(mate), 0);
	/* The maker may open its own. */
	ck_assert_int_eq(open_it(maker), GPUMEM_OK);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(gm_session_held(maker, d), 64 * MiB);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(gm_session_held(maker, d), 0);
}
END_TEST

START_TEST(read_only_holds_until_it_is_opened_for_writing)
{
	struct gm_token_options options = {.read_only = true};
	struct gm_lease_info info;
	ck_assert_int_eq(gm_lease_share(maker, l, &options, token), GPUMEM_OK);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_info(l, mate, &info);
	ck_assert(info.read_only);
	gm_lease_info(l, maker, &info);
	ck_assert(!info.read_only);
	gm_lease_info(l, stranger, &info);
	ck_assert(info.read_only);
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_info(l, mate, &info);
	ck_assert(!info.read_only);
}
END_TEST

START_TEST(a_share_too_many_is_refused)
{
	GM_BOUND_TEST(SHARES_PER_CLIENT);
	struct gm_token_options options = {0};
	uint8_t other[GM_TOKEN_BYTES];
	for (int i = 0; i < GM_BOUND_SHARES_PER_CLIENT; i++)
		share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(gm_lease_share(maker, l, &options, other), GPUMEM_E_LIMIT);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_unshare(maker, l);
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
}
END_TEST

/* Makes tokens for all leases of the uid until none is granted any more. */
static uint64_t share_until_refused(uid_t uid, char detail[GM_DETAIL_BYTES])
{
	struct gm_token_options options = {0};
	struct gm_session *session = NULL;
	struct gm_lease *lease = NULL;

	for (uint64_t n = 0;; n++) {
		if (n % GM_BOUND_SHARES_PER_CLIENT == 0) {
			session = fake_session(&fake, 1, uid);
			lease = fake_lease(&fake, session, d, MiB);
		}
		gpumem_status status = gm_lease_share(session, lease, &options, token);
		if (status == GPUMEM_OK)
			continue;
		ck_assert_int_eq(status, GPUMEM_E_LIMIT);
		gm_session_say_share_limit(session, detail);
		gm_session_end_unmapped(session);
		return n;
	}
}

START_TEST(a_uid_leaves_shares_to_others)
{
	GM_BOUND_TEST(SHARES);
	char detail[GM_DETAIL_BYTES];

	ck_assert_uint_eq(share_until_refused(1000, detail), GM_BOUND_SHARES / 2);
	ck_assert_ptr_nonnull(strstr(detail, "user 1000"));
	ck_assert_ptr_nonnull(strstr(detail, "65536"));
	ck_assert_uint_eq(share_until_refused(1001, detail), GM_BOUND_SHARES / 4);
	ck_assert_uint_eq(share_until_refused(1002, detail), GM_BOUND_SHARES / 8);
}
END_TEST

/* The uid opens leases that another one made, and makes leases that it empties. */
START_TEST(a_uid_leaves_opened_and_empty_leases_to_others)
{
	GM_BOUND_TEST(BARE_LEASES);
	const uint64_t most = GM_BOUND_BARE_LEASES / 2, leases = 256;
	struct fake_core_tokens {
		uint8_t token[GM_TOKEN_BYTES];
	} tokens[256];
	struct gm_session *opener = NULL, *first = NULL;
	struct gm_lease *opened, *empty;
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 1001};
	char detail[GM_DETAIL_BYTES];

	for (uint64_t i = 0; i < leases; i++)
		ck_assert_int_eq(gm_lease_share(maker, fake_lease(&fake, maker, d, MiB), &options,
					 tokens[i].token),
			GPUMEM_OK);
	first = fake_session(&fake, 1, 1001);
	empty = fake_lease(&fake, first, d, MiB);
	uint64_t id = gm_lease_chunk(empty, 0)->id;
	ck_assert_int_eq(gm_lease_return_chunks(first, empty, &id, 1), GPUMEM_OK);

	for (uint64_t n = 0; n + 1 < most; n++) {
		if (n % leases == 0)
			opener = fake_session(&fake, 1, 1001);
		ck_assert_int_eq(
			gm_session_open(opener, tokens[n % leases].token, NULL, 0, &opened),
			GPUMEM_OK);
	}

	/* One more of either kind is refused, and the refusal names the bound. */
	opener = fake_session(&fake, 1, 1001);
	ck_assert_int_eq(
		gm_session_open(opener, tokens[0].token, NULL, 0, &opened), GPUMEM_E_LIMIT);
	gm_session_say_open_limit(opener, detail);
	ck_assert_ptr_nonnull(strstr(detail, "user 1001"));
	ck_assert_ptr_nonnull(strstr(detail, "262144"));
	struct fake_request q;
	fake_ask(&fake, &q, opener, d, MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_str_eq(q.detail, detail);

	/* Who asks for a place hears the same, also without a session. */
	struct gm_session_info visitor = {.pid = 7, .uid = 1001, .gid = 1001};
	struct gm_place_row place = {.device = d};
	char wrong[GM_DETAIL_BYTES];
	ck_assert_int_eq(gm_place(fake.core, opener, NULL, MiB, &place, 1, wrong), GPUMEM_OK);
	ck_assert_int_eq(place.status, GPUMEM_E_LIMIT);
	place = (struct gm_place_row){.device = d};
	ck_assert_int_eq(gm_place(fake.core, NULL, &visitor, MiB, &place, 1, wrong), GPUMEM_OK);
	ck_assert_int_eq(place.status, GPUMEM_E_LIMIT);
	ck_assert_int_eq(place.fit, GM_FIT_NONE);
	ck_assert_str_eq(place.detail, detail);
	visitor.uid = 4711;
	ck_assert_int_eq(gm_place(fake.core, NULL, &visitor, MiB, &place, 1, wrong), GPUMEM_OK);
	ck_assert_int_eq(place.status, GPUMEM_OK);

	/* Others are served. An empty lease that grows, or ends, makes room. */
	fake_lease(&fake, stranger, d, MiB);
	fake_grow(&fake, &q, first, empty, MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(opener, tokens[0].token, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_int_eq(
		gm_session_open(opener, tokens[1].token, NULL, 0, &opened), GPUMEM_E_LIMIT);
	gm_session_end_died(opener);
	opener = fake_session(&fake, 1, 1001);
	ck_assert_int_eq(gm_session_open(opener, tokens[1].token, NULL, 0, &opened), GPUMEM_OK);
}
END_TEST

START_TEST(an_opener_too_many_is_refused)
{
	GM_BOUND_TEST(OPENERS_PER_LEASE);
	const int most = GM_BOUND_OPENERS_PER_LEASE / 2;
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	/* Some from many sessions, the others from one. */
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(open_it(fake_session(&fake, 1, 1000)), GPUMEM_OK);
	for (int i = 100; i < most; i++)
		ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	ck_assert_int_eq(open_it(mate), GPUMEM_E_LIMIT);
	ck_assert_int_eq(open_it(maker), GPUMEM_E_LIMIT);
	/* Another user finds some left. */
	struct gm_session *other = fake_session(&fake, 1, 2000);
	for (int i = 0; i < most / 2; i++)
		ck_assert_int_eq(open_it(other), GPUMEM_OK);
	ck_assert_int_eq(open_it(other), GPUMEM_E_LIMIT);
	gm_session_end_died(other);
	gm_core_tick(fake.core); /* it has more views than end in one go */

	gm_lease_return(mate, l);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_session_end_died(mate);
	gm_core_tick(fake.core);
	for (int i = 100; i < most; i++)
		ck_assert_int_eq(open_it(maker), GPUMEM_OK);
	ck_assert_int_eq(open_it(maker), GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(without_memory_nothing_is_shared_or_opened)
{
	struct gm_token_options options = {0};
	int failures = 0;
	gpumem_status status;
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		status = gm_lease_share(maker, l, &options, token);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
		failures++;
	}
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_int_ge(failures, 2);
	failures = 0;
	for (uint64_t n = 1;; n++) {
		struct gm_lease *opened = NULL;
		failing_malloc_arm(n);
		status = gm_session_open(mate, token, NULL, 0, &opened);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
		ck_assert_uint_eq(gm_session_lease_count(mate), 0);
		failures++;
	}
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_int_ge(failures, 2);
}
END_TEST

START_TEST(openers_are_told_when_the_maker_of_signals_leaves)
{
	struct gm_lease_info info;

	/* A lease without signals is nobody's concern. */
	share(GM_NAME_AUDIENCE_DOMAIN, 0);
	ck_assert_int_eq(open_it(mate), GPUMEM_OK);
	gm_lease_return(maker, l);
	ck_assert_uint_eq(fake.left, 0);
	gm_lease_return(mate, l);

	fake.signals = true;
	for (int died = 0; died < 2; died++) {
		l = fake_lease(&fake, maker, d, 64 * MiB);
		gm_lease_info(l, maker, &info);
		ck_assert(info.signals && info.made);
		ck_assert_uint_eq(info.user_bytes, 64 * MiB);
		share(GM_NAME_AUDIENCE_DOMAIN, 0);
		ck_assert_int_eq(open_it(mate), GPUMEM_OK);
		ck_assert_int_eq(open_it(mate), GPUMEM_OK); /* twice, and told once */
		fake.left = 0;
		if (died)
			gm_session_end_died(maker);
		else
			gm_lease_return(maker, l);
		ck_assert_uint_eq(fake.left, 1);
		ck_assert_uint_eq(fake.left_to, gm_session_id(mate));
		gm_lease_info(l, mate, &info);
		ck_assert(info.signals && !info.made);
		gm_lease_return(mate, l);
		gm_lease_return(mate, l);
		ck_assert_uint_eq(fake.left, 1); /* an opener that leaves is no maker */
	}
	fake_core_run(&fake);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *tcase = tcase_create("share");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_token_for_the_domain_is_good_for_the_domain_alone);
	tcase_add_test(tcase, a_token_for_a_uid_or_gid_is_good_for_those);
	tcase_add_test(tcase, what_was_not_made_for_others_stays_in_its_domain);
	tcase_add_test(tcase, what_is_made_for_others_has_no_old_data);
	tcase_add_test(tcase, openers_are_told_when_the_maker_of_signals_leaves);
	tcase_add_test(tcase, a_guess_is_not_found_whichever_bit_is_wrong);
	tcase_add_test(tcase, a_session_that_is_away_opens_nothing);
	tcase_add_test(tcase, an_audience_that_is_nobody_is_invalid);
	tcase_add_test(tcase, only_the_maker_shares_and_unshares);
	tcase_add_test(tcase, a_shared_lease_goes_back_as_a_whole);
	tcase_add_test(tcase, the_makers_uid_pays_until_the_last_opener_has_left);
	tcase_add_test(tcase, an_openers_return_changes_no_charge);
	tcase_add_test(tcase, the_payers_quarantine_counts_and_an_openers_does_not);
	tcase_add_test(tcase, a_lease_opened_across_domains_is_never_pooled);
	tcase_add_test(tcase, a_lease_opened_by_a_client_that_nobody_trusts_is_never_pooled);
	tcase_add_test(tcase, a_holder_that_dies_spoils_the_chunks_for_good);
	tcase_add_test(tcase, opening_twice_counts_twice);
	tcase_add_test(tcase, read_only_holds_until_it_is_opened_for_writing);
	tcase_add_test(tcase, a_share_too_many_is_refused);
	tcase_add_test(tcase, a_uid_leaves_shares_to_others);
	tcase_add_test(tcase, a_uid_leaves_opened_and_empty_leases_to_others);
	tcase_add_test(tcase, an_opener_too_many_is_refused);
	tcase_add_test(tcase, a_maker_that_returns_its_view_twice_keeps_what_it_made);
	tcase_add_test(tcase, without_memory_nothing_is_shared_or_opened);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
