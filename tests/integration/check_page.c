/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Nonsense in a client's shared page: the daemon shows what it can, believes nothing, and everybody
 * who asks gets sane answers. What the daemon itself counts is not touched by any of it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "common/text/units.h"
#include "tests/integration/witness.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_witness witness;
static struct gm_raw peer;
static struct gm_raw_lease held; /* what it holds, so that it may say that it uses some */
static struct gm_page_client *page;

static void set_up(void)
{
	gm_witness_start(&witness, NULL);
	gm_raw_join(&peer, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &held), GPUMEM_OK);
	GM_REQUIRE(lseek(peer.client_page, 0, SEEK_END) >= (off_t)sizeof(*page));
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, peer.client_page, 0);
	GM_REQUIRE(page != MAP_FAILED);
}

static void tear_down(void)
{
	munmap(page, sizeof(*page));
	gm_raw_lease_clear(&held);
	gm_raw_goodbye(&peer);
	gm_raw_close(&peer);
	gm_witness_stop(&witness);
}

struct seen {
	size_t clients, buffers, ours;
	uint64_t our_bytes, untracked;
	char last_tag[GM_BOUND_NAME_BYTES + 1];
};

/* Asks for clients and buffers; every text in the answers is printable, every figure in bounds. */
static void look(uint64_t older_than_ms, struct seen *seen)
{
	struct gm_raw raw;
	*seen = (struct seen){0};
	gm_raw_observe(&raw, &witness.daemon);
	Gm__Wire__GetClients clients = GM__WIRE__GET_CLIENTS__INIT;
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(GET_CLIENTS, get_clients, &clients)), GPUMEM_OK);
	for (;;) {
		for (size_t i = 0; i < raw.packet->clients->n_clients; i++) {
			const Gm__Wire__Client *c = raw.packet->clients->clients[i];
			GM_REQUIRE(gm_name_ok(c->name));
			GM_REQUIRE(c->n_use <= GM_BOUND_DEVICES);
			seen->clients++;
			for (size_t k = 0; k < c->n_use; k++) {
				/* What the daemon charges does not come from the page. */
				if (c->session == peer.session)
					GM_REQUIRE_EQ(c->use[k]->held, GM_CHUNK_MIN);
				GM_REQUIRE_EQ(c->use[k]->device, 0);
			}
		}
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	Gm__Wire__GetBuffers buffers = GM__WIRE__GET_BUFFERS__INIT;
	buffers.older_than_ms = older_than_ms;
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &buffers)), GPUMEM_OK);
	for (;;) {
		const Gm__Wire__BuffersReply *reply = raw.packet->buffers;
		for (size_t i = 0; i < reply->n_buffers; i++) {
			const Gm__Wire__Buffer *b = reply->buffers[i];
			GM_REQUIRE(gm_name_ok(b->tag));
			GM_REQUIRE(gm_name_ok(b->client));
			GM_REQUIRE(b->bytes > 0);
			GM_REQUIRE_EQ(b->device, 0);
			/* No buffer is older than its client. */
			GM_REQUIRE(b->age_ms < 10 * 60 * 1000);
			seen->buffers++;
			if (b->session == peer.session) {
				seen->ours++;
				seen->our_bytes += b->bytes;
				snprintf(seen->last_tag, sizeof(seen->last_tag), "%s", b->tag);
			}
		}
		seen->untracked += reply->untracked;
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	GM_REQUIRE(seen->ours <= GM_BOUND_TRACKED_BUFFERS);
	gm_raw_close(&raw);
}

static void add_row(size_t i, uint64_t bytes, const char *tag, size_t tag_bytes)
{
	struct gm_page_row *row = &page->rows[i];
	gm_page_write_begin(&row->seq);
	row->device = 0;
	row->bytes = bytes;
	row->born_ns = gm_monotonic_ns();
	memset(row->tag, 0, sizeof(row->tag));
	memcpy(row->tag, tag, tag_bytes);
	gm_page_write_end(&row->seq);
}

START_TEST(an_honest_page_is_shown)
{
	struct seen seen;
	page->use[0].in_use = 1234;
	add_row(0, 4096, "weights", 7);
	add_row(GM_BOUND_TRACKED_BUFFERS - 1, 8192, "cache", 5);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.ours, 2);
	GM_REQUIRE_EQ(seen.our_bytes, 4096 + 8192);
	GM_REQUIRE_EQ(seen.clients, 2);
	/* Nothing here is an hour old. */
	look(3600 * 1000, &seen);
	GM_REQUIRE_EQ(seen.ours, 0);
}
END_TEST

START_TEST(random_bytes_in_the_page_are_survived)
{
	unsigned seed = 5;
	for (int round = 0; round < 20; round++) {
		uint8_t *bytes = (uint8_t *)page;
		for (size_t i = 0; i < sizeof(*page); i++)
			bytes[i] = (uint8_t)rand_r(&seed);
		struct seen seen;
		look(0, &seen);
		GM_REQUIRE_EQ(seen.clients, 2);
		gm_witness_served(&witness);
	}
}
END_TEST

START_TEST(all_ones_in_the_page_are_survived)
{
	struct seen seen;
	memset(page, 0xff, sizeof(*page));
	look(0, &seen);
	GM_REQUIRE_EQ(seen.clients, 2);
	look(60000, &seen);
}
END_TEST

START_TEST(a_header_that_lies_about_what_follows_is_not_followed)
{
	struct seen seen;
	page->header.devices = UINT32_MAX;
	page->header.rows = UINT32_MAX;
	page->header.session = witness.raw.session;
	page->header.generation = 0;
	add_row(0, 4096, "x", 1);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.clients, 2);
}
END_TEST

START_TEST(an_unterminated_or_unprintable_tag_is_made_harmless)
{
	struct seen seen;
	char tag[GM_BOUND_NAME_BYTES + 1];
	memset(tag, 't', sizeof(tag));
	add_row(0, 4096, tag, sizeof(tag));
	look(0, &seen);
	add_row(0, 4096, "esc\033[2J\r\n", 9);
	look(0, &seen);
	add_row(0, 4096, "\xc3", 1);
	look(0, &seen);
	add_row(0, 4096, "\xff\xff\xff", 3);
	look(0, &seen);
	/* A buffer is shown whatever it is called. */
	GM_REQUIRE_EQ(seen.ours, 1);
}
END_TEST

START_TEST(a_row_that_is_always_being_written_holds_nobody_up)
{
	struct seen seen;
	for (size_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
		add_row(i, 4096, "busy", 4);
		atomic_store(&page->rows[i].seq, 1);
	}
	atomic_store(&page->use[0].seq, 1);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.clients, 2);
}
END_TEST

START_TEST(a_full_table_is_listed_whole_and_what_is_past_it_counted)
{
	GM_BOUND_TEST(TRACKED_BUFFERS);
	struct seen seen;
	for (size_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++)
		add_row(i, GM_CHUNK_MIN / GM_BOUND_TRACKED_BUFFERS,
			"a tag of about the usual length, or longer", 42);
	gm_page_write_begin(&page->use[0].seq);
	page->use[0].active_buffers = GM_BOUND_TRACKED_BUFFERS + 1;
	page->use[0].untracked = 1;
	gm_page_write_end(&page->use[0].seq);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.ours, GM_BOUND_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(seen.untracked, 1);
}
END_TEST

START_TEST(a_row_of_more_than_the_client_holds_is_not_believed)
{
	struct seen seen;
	add_row(0, GM_CHUNK_MIN + 1, "boast", 5);
	add_row(1, GM_CHUNK_MIN, "fair", 4);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.ours, 1);
	GM_REQUIRE(strcmp(seen.last_tag, "fair") == 0);
}
END_TEST

START_TEST(the_page_of_a_client_off_the_socket_is_still_read)
{
	struct seen seen;
	add_row(0, 4096, "left", 4);
	struct gm_raw back;
	close(peer.socket);
	peer.socket = -1;
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined_clients == 1);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.ours, 1);
	/* Back with a new page, in which nothing stands yet. */
	GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &peer), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	look(0, &seen);
	GM_REQUIRE_EQ(seen.ours, 0);
	gm_raw_close(&peer);
	peer = back;
}
END_TEST

START_TEST(the_daemons_page_says_what_the_daemon_says)
{
	struct gm_raw_lease lease;
	const struct gm_page_daemon *theirs =
		mmap(NULL, sizeof(*theirs), PROT_READ, MAP_SHARED, peer.daemon_page, 0);
	GM_REQUIRE(theirs != MAP_FAILED);
	GM_REQUIRE_EQ(theirs->header.magic, GM_PAGE_DAEMON_MAGIC);
	GM_REQUIRE_EQ(theirs->header.session, peer.session);
	GM_REQUIRE_EQ(theirs->header.generation, peer.generation);
	GM_REQUIRE_EQ(theirs->header.devices, 1);
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, 8 * GM_CHUNK_MIN, &lease), GPUMEM_OK);
	struct gm_figures f = gm_figures_now(&witness.daemon);
	const volatile struct gm_page_device *d = &theirs->devices[0];
	GM_UNTIL(d->held == lease.bytes + GM_CHUNK_MIN);
	GM_UNTIL(d->available == f.available);
	GM_REQUIRE_EQ(d->total, f.total);
	GM_REQUIRE_EQ(d->capacity, f.capacity);
	gm_raw_lease_clear(&lease);
	munmap((void *)(uintptr_t)theirs, sizeof(*theirs));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page");
	TCase *tc = tcase_create("page");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, an_honest_page_is_shown);
	tcase_add_test(tc, random_bytes_in_the_page_are_survived);
	tcase_add_test(tc, all_ones_in_the_page_are_survived);
	tcase_add_test(tc, a_header_that_lies_about_what_follows_is_not_followed);
	tcase_add_test(tc, an_unterminated_or_unprintable_tag_is_made_harmless);
	tcase_add_test(tc, a_row_that_is_always_being_written_holds_nobody_up);
	tcase_add_test(tc, a_full_table_is_listed_whole_and_what_is_past_it_counted);
	tcase_add_test(tc, a_row_of_more_than_the_client_holds_is_not_believed);
	tcase_add_test(tc, the_page_of_a_client_off_the_socket_is_still_read);
	tcase_add_test(tc, the_daemons_page_says_what_the_daemon_says);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
