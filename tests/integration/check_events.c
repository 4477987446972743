/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The second channel, and connections that end by halves: a client that does not read its events is
 * never dropped for that and hears the latest when it does; what it does to that socket, or to one
 * direction of the other, is nobody's loss but its own.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
	uint64_t before = gm_daemon_rss(&witness.daemon);
	for (int i = 0; i < 3000; i++)
		press();
	GM_REQUIRE(gm_daemon_rss(&witness.daemon) < before + (16 << 20));
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	/* Full, for good: the last thing it hears is that. */
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&witness.raw, 0, 62 << 20, &lease), GPUMEM_OK);
	uint64_t asked = witness.raw.sequence, last = 0;
	uint32_t level = 0;
	struct gm_patience patience = {0};
	do {
		if (!gm_raw_readable(peer.events)) {
			gm_patience_wait(&patience, __FILE__, __LINE__, "the latest level comes");
			continue;
		}
		GM_REQUIRE(gm_raw_receive_event(&peer));
		GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_PRESSURE_EVENT);
		GM_REQUIRE(peer.sequence > last);
		last = peer.sequence;
		level = peer.packet->pressure_event->level;
	} while (level != 3 || (last < asked && gm_raw_readable(peer.events)));
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness.raw, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
}
END_TEST

START_TEST(a_client_that_closes_its_event_channel_is_served_on)
{
	close(peer.events);
	peer.events = -1;
	for (int i = 0; i < 20; i++)
		press();
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(what_a_client_says_on_its_event_channel_disturbs_nobody)
{
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
	char junk[5000];
	memset(junk, 'j', sizeof(junk));
	int pipe_fds[2];
	GM_REQUIRE(pipe(pipe_fds) == 0);
	for (int i = 0; i < 100; i++)
		(void)!send(peer.events, junk, sizeof(junk), flags);
	(void)!send(peer.events, "", 0, flags);
	for (int i = 0; i < 20; i++)
		press();
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
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
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.session = peer.session;
	hello.token.data = peer.token;
	hello.token.len = GM_TOKEN_BYTES;
	GM_REQUIRE_EQ(gm_raw_hello(&back, witness.daemon.socket, &hello), GPUMEM_OK);
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
	GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_RECLAIM_EVENT);
	GM_REQUIRE(peer.packet->reclaim_event->epoch > 0);
	GM_UNTIL(gm_figures_now(&witness.daemon).pooled == 0);
	GM_REQUIRE(!gm_raw_readable(idle.events));
	trim.all_devices = false;
	trim.device = 99;
	GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_E_NOT_FOUND);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
	gm_raw_close(&idle);
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
	tcase_add_test(tc, a_client_that_closes_its_event_channel_is_served_on);
	tcase_add_test(tc, what_a_client_says_on_its_event_channel_disturbs_nobody);
	tcase_add_test(tc, a_client_that_ends_its_sending_side_is_gone);
	tcase_add_test(tc, a_client_that_ends_its_receiving_side_is_gone_at_its_next_answer);
	tcase_add_test(tc, a_trim_asks_the_clients_that_hold_memory_for_what_they_cache);
	tcase_add_test(tc, an_observer_gets_no_memory);
	tcase_add_test(tc, after_a_goodbye_a_connection_gets_no_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
