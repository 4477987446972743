/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Odd but allowed things to do with leases and shares: what is opened twice, by its own maker, with
 * two kinds of token, returned by its maker first, grown or shrunk while others look at it.
 */

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/integration/witness.h"
#include "tests/tap.h"

static struct gm_witness witness;
static struct gm_raw maker, opener;
static struct gm_raw_lease lease;
static uint8_t token[GM_TOKEN_BYTES], read_only[GM_TOKEN_BYTES];

static void set_up(void)
{
	gm_witness_start(&witness, NULL);
	gm_raw_join(&maker, &witness.daemon);
	gm_raw_join(&opener, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false,
			      token),
		GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, true,
			      read_only),
		GPUMEM_OK);
}

static void tear_down(void)
{
	gm_raw_lease_clear(&lease);
	gm_raw_goodbye(&maker);
	gm_raw_goodbye(&opener);
	gm_raw_close(&maker);
	gm_raw_close(&opener);
	gm_witness_stop(&witness);
}

static uint64_t held(const struct gm_raw *raw)
{
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&witness.daemon, raw->session, &row));
	return row.held;
}

static bool writable(const struct gm_alloc_raw_chunk *chunk)
{
	void *at = gm_raw_map(chunk, true);
	if (at == MAP_FAILED)
		return false;
	munmap(at, chunk->bytes);
	return true;
}

START_TEST(what_is_opened_twice_is_returned_twice)
{
	struct gm_raw_lease a, b, c;
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &a), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &b), GPUMEM_OK);
	GM_REQUIRE_EQ(a.id, b.id);
	GM_REQUIRE_EQ(gm_raw_return(&opener, a.id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_handles(&opener, a.id, 0, &c), GPUMEM_OK);
	GM_REQUIRE_EQ(c.n, 1);
	GM_REQUIRE_EQ(gm_raw_return(&opener, a.id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&opener, a.id, NULL, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(held(&maker), GM_CHUNK_MIN);
	gm_raw_lease_clear(&a);
	gm_raw_lease_clear(&b);
	gm_raw_lease_clear(&c);
}
END_TEST

START_TEST(a_maker_that_opens_its_own_read_only_share_can_still_write)
{
	struct gm_raw_lease own, again;
	GM_REQUIRE_EQ(gm_raw_open(&maker, read_only, &own), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_handles(&maker, lease.id, 0, &again), GPUMEM_OK);
	GM_REQUIRE(writable(&again.chunks[0]));
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 2 * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_return(&maker, lease.id, NULL, 0), GPUMEM_OK);
	gm_raw_lease_clear(&own);
	gm_raw_lease_clear(&again);
}
END_TEST

START_TEST(a_read_only_view_gets_no_writable_handle_by_asking_again)
{
	struct gm_raw_lease view, again;
	GM_REQUIRE_EQ(gm_raw_open(&opener, read_only, &view), GPUMEM_OK);
	GM_REQUIRE(view.read_only);
	for (int i = 0; i < 3; i++) {
		GM_REQUIRE_EQ(gm_raw_handles(&opener, view.id, 0, &again), GPUMEM_OK);
		GM_REQUIRE(again.read_only);
		GM_REQUIRE(!writable(&again.chunks[0]));
		gm_raw_lease_clear(&again);
	}
	/* Nor by growing or sharing on what is not its own. */
	GM_REQUIRE(gm_raw_grow(&opener, &view, GM_CHUNK_MIN) != GPUMEM_OK);
	uint8_t wider[GM_TOKEN_BYTES];
	GM_REQUIRE(gm_raw_share(&opener, view.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false,
			   wider) != GPUMEM_OK);
	GM_REQUIRE(gm_raw_unshare(&opener, view.id) != GPUMEM_OK);
	gm_raw_lease_clear(&view);
}
END_TEST

START_TEST(a_maker_that_returns_first_leaves_the_memory_to_the_opener_and_goes_on_paying)
{
	struct gm_raw_lease view;
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &view), GPUMEM_OK);
	gm_alloc_raw_chunk_fill(&view.chunks[0], 0x77);
	GM_REQUIRE_EQ(gm_raw_return(&maker, lease.id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(held(&maker), 0);
	GM_REQUIRE_EQ(held(&opener), 0);
	GM_REQUIRE_EQ(gm_left_by(&witness.daemon, geteuid()), GM_CHUNK_MIN);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&view.chunks[0], 0x77));
	/* It is not in the pool: a new lease gets another chunk. */
	struct gm_raw_lease other;
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &other), GPUMEM_OK);
	GM_REQUIRE(other.chunks[0].id != view.chunks[0].id);
	gm_alloc_raw_chunk_fill(&other.chunks[0], 0x11);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&view.chunks[0], 0x77));
	gm_raw_lease_clear(&other);
	gm_raw_lease_clear(&view);
}
END_TEST

START_TEST(a_shared_lease_goes_back_as_a_whole_only)
{
	struct gm_raw_lease view;
	uint64_t chunk = lease.chunks[0].id;
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &view), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&maker, lease.id, &chunk, 1), GPUMEM_E_BUSY);
	GM_REQUIRE(gm_raw_return(&opener, view.id, &chunk, 1) != GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 2 * GM_CHUNK_MIN);
	gm_raw_lease_clear(&view);
}
END_TEST

START_TEST(a_lease_shrinks_and_grows_chunk_by_chunk_and_never_gives_an_index_twice)
{
	struct gm_raw_lease own;
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &own), GPUMEM_OK);
	uint64_t last = own.chunks[0].index;
	for (int i = 0; i < 200; i++) {
		GM_REQUIRE_EQ(gm_raw_grow(&maker, &own, GM_CHUNK_MIN), GPUMEM_OK);
		GM_REQUIRE_EQ(own.n, 2);
		GM_REQUIRE(own.chunks[1].index > last);
		last = own.chunks[1].index;
		GM_REQUIRE_EQ(own.bytes, 2 * GM_CHUNK_MIN);
		uint64_t old = own.chunks[0].id;
		close(own.chunks[0].fd);
		own.chunks[0] = own.chunks[1];
		own.n = 1;
		GM_REQUIRE_EQ(gm_raw_return(&maker, own.id, &old, 1), GPUMEM_OK);
	}
	GM_REQUIRE_EQ(held(&maker), 2 * GM_CHUNK_MIN);
	gm_raw_lease_clear(&own);
}
END_TEST

START_TEST(any_size_is_granted_in_powers_of_two_that_cover_it)
{
	static const uint64_t sizes[] = {1, GM_CHUNK_MIN - 1, GM_CHUNK_MIN + 1, 3 * GM_CHUNK_MIN,
		7 * GM_CHUNK_MIN + 5, 100 << 20, (333 << 20) + 17, 900 << 20};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct gm_raw_lease own;
		GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, sizes[i], &own), GPUMEM_OK);
		uint64_t sum = 0;
		for (size_t k = 0; k < own.n; k++) {
			uint64_t bytes = own.chunks[k].bytes;
			GM_REQUIRE(bytes >= GM_CHUNK_MIN && bytes <= GM_CHUNK_MAX);
			GM_REQUIRE((bytes & (bytes - 1)) == 0);
			GM_REQUIRE_EQ(lseek(own.chunks[k].fd, 0, SEEK_END), bytes);
			sum += bytes;
		}
		GM_REQUIRE_EQ(sum, own.bytes);
		GM_REQUIRE(sum >= sizes[i] && sum <= sizes[i] + sizes[i] / 64 + GM_CHUNK_MIN);
		GM_REQUIRE_EQ(own.user_bytes, sizes[i]);
		uint64_t id = own.id;
		gm_raw_lease_clear(&own);
		GM_REQUIRE_EQ(gm_raw_return(&maker, id, NULL, 0), GPUMEM_OK);
	}
}
END_TEST

START_TEST(memory_in_chunks_of_the_wrong_size_serves_any_request_that_fits)
{
	/* All of it as small chunks, given back; then all of it as one lease; and the other way
	 * round. */
	struct gm_raw_lease small[600];
	for (int round = 0; round < 3; round++) {
		size_t n = 0;
		while (n < 600 && gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &small[n]) == GPUMEM_OK)
			n++;
		GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).available, 0);
		for (size_t i = 0; i < n; i++) {
			uint64_t id = small[i].id;
			gm_raw_lease_clear(&small[i]);
			GM_REQUIRE_EQ(gm_raw_return(&maker, id, NULL, 0), GPUMEM_OK);
		}
		struct gm_raw_lease all;
		uint64_t available = gm_figures_now(&witness.daemon).available;
		GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, available, &all), GPUMEM_OK);
		GM_REQUIRE_EQ(all.bytes, available);
		uint64_t id = all.id;
		gm_raw_lease_clear(&all);
		GM_REQUIRE_EQ(gm_raw_return(&maker, id, NULL, 0), GPUMEM_OK);
	}
}
END_TEST

enum { MANY = 1200 };

/* A lease of so many chunks that it is returned in parts. */
static void take_many(struct gm_raw *raw)
{
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	for (int i = 1; i < MANY; i++) {
		struct gm_raw_lease grown = {.id = lease.id};
		GM_REQUIRE_EQ(gm_raw_grow(raw, &grown, GM_CHUNK_MIN), GPUMEM_OK);
		gm_raw_lease_clear(&grown);
	}
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	lease.id = id;
}

START_TEST(a_lease_of_many_chunks_is_gone_when_its_return_is_answered)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct rlimit files;
	GM_REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_max < 4 * MANY) /* the daemon would refuse so many chunks */
		return;
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = "[device 0]\nsize = 4G\n"});
	gm_raw_join(&raw, &daemon);
	take_many(&raw);
	GM_REQUIRE_EQ(gm_raw_return(&raw, lease.id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leased, 0);
	GM_REQUIRE_EQ(gm_raw_return(&raw, lease.id, NULL, 0), GPUMEM_E_NOT_FOUND);

	/* The client may leave before it has the answer. */
	take_many(&raw);
	Gm__Wire__Return give = GM__WIRE__RETURN__INIT;
	give.lease = lease.id;
	gm_raw_send(&raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &give));
	Gm__Wire__Goodbye goodbye = GM__WIRE__GOODBYE__INIT;
	gm_raw_send(&raw, GM_RAW_PACKET(GOODBYE, goodbye, &goodbye));
	gm_raw_close(&raw);
	GM_UNTIL(gm_figures_now(&daemon).leased == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leases");
	TCase *tc = tcase_create("leases");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_is_opened_twice_is_returned_twice);
	tcase_add_test(tc, a_maker_that_opens_its_own_read_only_share_can_still_write);
	/* On a GPU read-only is a request: whoever has the handle chooses its access. */
	if (!gm_on_gpu())
		tcase_add_test(tc, a_read_only_view_gets_no_writable_handle_by_asking_again);
	tcase_add_test(
		tc, a_maker_that_returns_first_leaves_the_memory_to_the_opener_and_goes_on_paying);
	tcase_add_test(tc, a_shared_lease_goes_back_as_a_whole_only);
	tcase_add_test(tc, a_lease_shrinks_and_grows_chunk_by_chunk_and_never_gives_an_index_twice);
	tcase_add_test(tc, any_size_is_granted_in_powers_of_two_that_cover_it);
	tcase_add_test(tc, memory_in_chunks_of_the_wrong_size_serves_any_request_that_fits);
	suite_add_tcase(suite, tc);
	TCase *many = tcase_create("many");
	tcase_set_timeout(many, 120);
	tcase_add_test(many, a_lease_of_many_chunks_is_gone_when_its_return_is_answered);
	suite_add_tcase(suite, many);
	return gm_tap_run(suite);
}
