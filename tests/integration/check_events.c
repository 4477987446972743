/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Events, and connections that end by halves: a client that does not read its events is never
 * dropped for that and hears the latest when it does; what it does to its wakeup, or to one direction
 * of its connection, is nobody's loss but its own.
 */

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tests/integration/witness.h"
#include "tests/tap.h"

static struct gm_witness witness;
static struct gm_raw peer;

static void set_up(void)
{
	/* The address sanitizer keeps what is freed, up to 256 MiB of it, and the daemon would seem
	 * to grow; so it shall keep little. */
	static char keep_little[512];
	const char *options = getenv("ASAN_OPTIONS");
	snprintf(keep_little, sizeof(keep_little), "ASAN_OPTIONS=%s%squarantine_size_mb=1",
		options ? options : "", options && *options ? ":" : "");
	static const char *const env[] = {keep_little, NULL};
	gm_witness_start(
		&witness, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH(
					  "pressure_dwell = 0s\npressure_hysteresis = 0\n", "64M"),
				  .env = env});
	gm_raw_join(&peer, &witness.daemon);
}

static void tear_down(void)
{
	gm_raw_close(&peer);
	gm_witness_stop(&witness);
}

/* From low to critical and back. */
static void press(void)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&witness.raw, 0, 62 << 20, &lease), GPUMEM_OK);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness.raw, id, NULL, 0), GPUMEM_OK);
}

START_TEST(a_client_that_does_not_read_its_events_stays_and_hears_the_latest)
{
	/* The caches of an allocator, or of a sanitizer, grow to their size first. */
	for (int i = 0; i < 1000; i++)
		press();
	uint64_t before = gm_daemon_rss(&witness.daemon);
	for (int i = 0; i < 3000; i++)
		press();
	GM_REQUIRE(gm_daemon_rss(&witness.daemon) < before + (4 << 20));
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	/* Full, for good: the last thing it hears is that. */
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&witness.raw, 0, 62 << 20, &lease), GPUMEM_OK);
	uint64_t asked = witness.raw.sequence, last = 0;
	uint32_t level = 0;
	struct gm_patience patience = {0};
	do {
		if (!gm_raw_has_event(&peer)) {
			gm_patience_wait(&patience, __FILE__, __LINE__, "the latest level comes");
			continue;
		}
		GM_REQUIRE(gm_raw_receive_event(&peer));
		GM_REQUIRE_EQ(peer.event.kind, GM_PAGE_EVENT_PRESSURE);
		GM_REQUIRE(peer.sequence > last);
		last = peer.sequence;
		level = peer.event.level;
	} while (level != 3 || (last < asked && gm_raw_has_event(&peer)));
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness.raw, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
}
END_TEST

START_TEST(a_client_that_closes_its_bell_is_served_on)
{
	close(peer.wakeup);
	peer.wakeup = -1;
	for (int i = 0; i < 20; i++)
		press();
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(what_a_client_does_to_its_bell_disturbs_nobody)
{
	const struct itimerspec always = {.it_interval.tv_nsec = 1, .it_value.tv_nsec = 1},
				never = {0};
	char junk[5000] = {0};
	GM_REQUIRE(fcntl(peer.wakeup, F_SETFL, 0) == 0); /* both have the same file */
	for (int i = 0; i < 20; i++) {
		GM_REQUIRE(write(peer.wakeup, junk, sizeof(junk)) < 0);
		GM_REQUIRE(timerfd_settime(peer.wakeup, 0, i % 2 ? &always : &never, NULL) == 0);
		press();
	}
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
	/* And the next event rings. */
	press();
	GM_REQUIRE(gm_raw_receive_event(&peer));
}
END_TEST

START_TEST(the_answer_to_a_hello_carries_no_socket)
{
	/* The kernel may let the sender of a Unix socket wait for its garbage collector, whatever
	 * flags the sender gives: once others had the daemon's user send many descriptors. */
	const int fds[] = {peer.wakeup, peer.daemon_page, peer.client_page};
	for (size_t i = 0; i < 3; i++) {
		struct stat st;
		GM_REQUIRE(fstat(fds[i], &st) == 0);
		GM_REQUIRE(!S_ISSOCK(st.st_mode));
		/* Nor something that one side can lock while the other uses it. */
		GM_REQUIRE(!S_ISFIFO(st.st_mode));
	}
}
END_TEST

START_TEST(a_client_that_knows_no_events_on_its_page_gets_a_bell_that_never_rings)
{
	struct gm_raw old;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = 3;
	GM_REQUIRE_EQ(gm_raw_hello(&old, witness.daemon.socket, &hello), GPUMEM_OK);
	GM_REQUIRE_EQ(old.hearing.page->header.version, 2);
	for (int i = 0; i < 20; i++)
		press();
	GM_REQUIRE(gm_raw_receive_event(&peer));
	GM_REQUIRE(!gm_raw_has_event(&old));
	GM_REQUIRE(!gm_raw_readable(old.wakeup));
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&old, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&old, &lease), GPUMEM_OK);
	gm_raw_close(&old);
}
END_TEST

START_TEST(a_client_that_ends_its_sending_side_is_gone)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE(shutdown(peer.socket, SHUT_WR) == 0);
	GM_REQUIRE(!gm_raw_receive(&peer));
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined == GM_CHUNK_MIN);
	struct gm_raw back;
	GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &peer), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
}
END_TEST

START_TEST(a_client_that_ends_its_receiving_side_is_gone_at_its_next_answer)
{
	GM_REQUIRE(shutdown(peer.socket, SHUT_RD) == 0);
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	gm_raw_send(&peer, GM_RAW_PACKET(GET_DEVICES, get_devices, &get));
	GM_UNTIL(gm_figures_now(&witness.daemon).clients == 1);
}
END_TEST

START_TEST(a_trim_asks_the_clients_that_hold_memory_for_what_they_cache)
{
	struct gm_raw admin, idle;
	struct gm_raw_lease lease;
	gm_raw_join(&idle, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	/* Something in the pool to be released. */
	gm_witness_served(&witness);
	uint64_t pooled = gm_figures_now(&witness.daemon).pooled;
	GM_REQUIRE(pooled > 0);
	gm_raw_observe(&admin, &witness.daemon);
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	trim.all_devices = true;
	GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_OK);
	GM_REQUIRE_EQ(admin.packet->body_case, GM__WIRE__PACKET__BODY_TRIM_REPLY);
	GM_REQUIRE_EQ(admin.packet->trim_reply->released, pooled);
	GM_REQUIRE_EQ(admin.packet->trim_reply->clients_asked, 2);
	GM_REQUIRE(gm_raw_receive_event(&peer));
	GM_REQUIRE_EQ(peer.event.kind, GM_PAGE_EVENT_RECLAIM);
	GM_REQUIRE(peer.event.epoch > 0);
	GM_UNTIL(gm_figures_now(&witness.daemon).pooled == 0);
	GM_REQUIRE(!gm_raw_has_event(&idle));
	trim.all_devices = false;
	trim.device = 99;
	GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_E_NOT_FOUND);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
	gm_raw_close(&idle);
	gm_raw_close(&admin);
}
END_TEST

/* A request that lacks 16 MiB, and is refused because they do not come. */
static void lack_memory(void)
{
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = 46 << 20; /* of 64, 32 of which are leased, and 2 by the witness */
	ask.no_wait = true;
	GM_REQUIRE_EQ(
		gm_raw_call(&witness.raw, GM_RAW_PACKET(LEASE, lease, &ask)), GPUMEM_E_NO_MEMORY);
}

static uint64_t hear_reclaim(void)
{
	do
		GM_REQUIRE(gm_raw_receive_event(&peer));
	while (peer.event.kind != GM_PAGE_EVENT_RECLAIM);
	return peer.event.bytes;
}

START_TEST(of_reclaims_that_were_not_heard_the_largest_counts)
{
	struct gm_page_use use = {.cached = 32 << 20};
	struct gm_raw_lease lease;
	struct gm_raw admin;
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, 32 << 20, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(
		pwrite(peer.client_page, &use, sizeof(use), offsetof(struct gm_page_client, use)),
		(long long)sizeof(use));

	/* All, which the client has not heard when less is wanted. */
	gm_raw_observe(&admin, &witness.daemon);
	trim.all_devices = true;
	GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_OK);
	uint64_t first = peer.hearing.page->devices[0].reclaim_event;
	lack_memory();
	GM_REQUIRE(peer.hearing.page->devices[0].reclaim_event > first);
	GM_REQUIRE_EQ(hear_reclaim(), 0);

	/* What was heard counts no more. A client that is late again and again is asked less often. */
	uint64_t last = peer.sequence;
	GM_UNTIL((lack_memory(), peer.hearing.page->devices[0].reclaim_event > last));
	GM_REQUIRE_EQ(hear_reclaim(), 16 << 20);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
	gm_raw_close(&admin);
}
END_TEST

START_TEST(an_observer_gets_no_memory)
{
	struct gm_raw observer;
	struct gm_raw_lease lease;
	gm_raw_observe(&observer, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&observer, 0, GM_CHUNK_MIN, &lease), GPUMEM_E_DENIED);
	gm_raw_close(&observer);
}
END_TEST

START_TEST(after_a_goodbye_a_connection_gets_no_memory)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
	gpumem_status status = gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease);
	GM_REQUIRE(status == GPUMEM_E_DENIED || status == GPUMEM_E_DISCONNECTED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tc = tcase_create("events");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_client_that_does_not_read_its_events_stays_and_hears_the_latest);
	tcase_add_test(tc, a_client_that_closes_its_bell_is_served_on);
	tcase_add_test(tc, what_a_client_does_to_its_bell_disturbs_nobody);
	tcase_add_test(tc, the_answer_to_a_hello_carries_no_socket);
	tcase_add_test(tc, a_client_that_knows_no_events_on_its_page_gets_a_bell_that_never_rings);
	tcase_add_test(tc, a_client_that_ends_its_sending_side_is_gone);
	tcase_add_test(tc, a_client_that_ends_its_receiving_side_is_gone_at_its_next_answer);
	tcase_add_test(tc, a_trim_asks_the_clients_that_hold_memory_for_what_they_cache);
	tcase_add_test(tc, of_reclaims_that_were_not_heard_the_largest_counts);
	tcase_add_test(tc, an_observer_gets_no_memory);
	tcase_add_test(tc, after_a_goodbye_a_connection_gets_no_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
