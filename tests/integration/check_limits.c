/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * One past each bound of common/bounds.h on what a client can have or ask for over the socket: it happens what
 * the table says, to the one who did it, and a witness does not notice.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/gate.h"
#include "tests/integration/limits_fixture.h"

START_TEST(a_share_past_the_limit_is_refused)
{
	GM_BOUND_TEST(SHARES_PER_CLIENT);
	struct gm_raw_lease lease;
	uint8_t token[GM_TOKEN_BYTES];
	lease_chunks(&peer, 1, &lease);
	for (int i = 0; i < GM_BOUND_SHARES_PER_CLIENT; i++)
		GM_REQUIRE_EQ(gm_raw_share(&peer, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0,
				      false, token),
			GPUMEM_OK);
	GM_REQUIRE_EQ(
		gm_raw_share(&peer, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token),
		GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(gm_raw_unshare(&peer, lease.id), GPUMEM_OK);
	GM_REQUIRE_EQ(
		gm_raw_share(&peer, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token),
		GPUMEM_OK);
	give_back(&peer, &lease);
}
END_TEST

START_TEST(an_opener_past_the_limit_is_refused)
{
	GM_BOUND_TEST(OPENERS_PER_LEASE);
	struct gm_raw_lease lease, view;
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw other;
	gm_raw_join(&other, &witness.daemon);
	lease_chunks(&peer, 1, &lease);
	GM_REQUIRE_EQ(
		gm_raw_share(&peer, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token),
		GPUMEM_OK);
	/* A user leaves half of them to others. */
	for (int i = 0; i < GM_BOUND_OPENERS_PER_LEASE / 2; i++) {
		GM_REQUIRE_EQ(gm_raw_open(&other, token, &view), GPUMEM_OK);
		gm_raw_lease_clear(&view);
	}
	GM_REQUIRE_EQ(gm_raw_open(&other, token, &view), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(gm_raw_goodbye(&other), GPUMEM_OK);
	gm_raw_close(&other);
	/* Room again. */
	gm_raw_join(&other, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_open(&other, token, &view), GPUMEM_OK);
	gm_raw_lease_clear(&view);
	GM_REQUIRE_EQ(gm_raw_goodbye(&other), GPUMEM_OK);
	gm_raw_close(&other);
	give_back(&peer, &lease);
}
END_TEST

START_TEST(a_lease_past_the_limit_is_refused)
{
	GM_BOUND_TEST(LEASES_PER_CLIENT);
	/* A lease whose chunks went back one by one is still a lease. */
	struct gm_raw_lease lease;
	for (int i = 0; i < GM_BOUND_LEASES_PER_CLIENT; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		uint64_t chunk = lease.chunks[0].id, id = lease.id;
		gm_raw_lease_clear(&lease);
		GM_REQUIRE_EQ(gm_raw_return(&peer, id, &chunk, 1), GPUMEM_OK);
	}
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
}
END_TEST

/* ---- with a configuration of their own */

START_TEST(a_client_is_read_however_many_of_its_requests_are_unanswered)
{
	GM_BOUND_TEST(REQUESTS_IN_FLIGHT);
	enum { ASKED = GM_BOUND_REQUESTS_IN_FLIGHT + 6 };
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease held;
	uint64_t ids[ASKED];
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&raw, &daemon);
	gm_gate_let(&gate, 1);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &held), GPUMEM_OK);
	uint64_t lease = held.id;
	gm_raw_lease_clear(&held);

	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = GM_CHUNK_MIN;
	for (int i = 0; i < ASKED; i++)
		ids[i] = gm_raw_send(&raw, GM_RAW_PACKET(LEASE, lease, &ask));
	/* The device creates nothing, so all of them are under way or wait for it. Behind them come
	 * a cancel, a return and an acknowledgement. */
	Gm__Wire__Cancel cancel = GM__WIRE__CANCEL__INIT;
	cancel.request = ids[ASKED - 1];
	uint64_t cancelled = gm_raw_send(&raw, GM_RAW_PACKET(CANCEL, cancel, &cancel));
	Gm__Wire__Return give = GM__WIRE__RETURN__INIT;
	give.lease = lease;
	uint64_t given = gm_raw_send(&raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &give));
	Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
	gm_raw_send(&raw, GM_RAW_PACKET(ACK, ack, &ack));
	for (int seen = 0; seen < 2;) {
		GM_REQUIRE(gm_raw_receive(&raw));
		if (raw.packet->id == ids[ASKED - 1])
			continue;
		GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
		GM_REQUIRE(raw.packet->id == cancelled || raw.packet->id == given);
		seen++;
	}
	/* The rest goes through. */
	gm_gate_let(&gate, ASKED);
	for (int answered = 0; answered < ASKED - 1;) {
		GM_REQUIRE(gm_raw_receive(&raw));
		if (raw.packet->id == ids[ASKED - 1])
			continue;
		GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
		answered++;
	}
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(a_hello_that_never_comes_ends_the_connection)
{
	struct gm_daemon_options options = {
		.config = GM_DAEMON_CONFIG_WITH("hello_deadline = 50ms\n", "1G"),
	};
	gm_witness_start(&witness, &options);
	struct gm_raw raw;
	GM_REQUIRE(gm_raw_connect(&raw, witness.daemon.socket) == 0);
	gpumem_status last;
	size_t n = gm_raw_drain(&raw, &last);
	GM_REQUIRE_EQ(n, 1);
	GM_REQUIRE_EQ(last, GPUMEM_E_TIMEOUT);
	gm_raw_close(&raw);
	/* Who said hello stays, however long it is quiet after that: the witness did. */
	gm_witness_stop(&witness);
}
END_TEST

/* What a refused connection hears. */
static void require_refused(const char *path)
{
	struct gm_raw raw;
	GM_REQUIRE(gm_raw_connect(&raw, path) == 0);
	gpumem_status last;
	GM_REQUIRE_EQ(gm_raw_drain(&raw, &last), 1);
	GM_REQUIRE_EQ(last, GPUMEM_E_LIMIT);
	gm_raw_close(&raw);
}

START_TEST(a_connection_past_those_of_a_uid_is_refused_until_one_ends)
{
	struct gm_daemon_options options = {
		.config = GM_DAEMON_CONFIG_WITH("connections_per_uid = 4\n", "1G"),
	};
	struct gm_daemon daemon;
	struct gm_raw raw[4];
	gm_daemon_start(&daemon, &options);
	for (int i = 0; i < 4; i++)
		gm_raw_join(&raw[i], &daemon);
	require_refused(daemon.socket);
	require_refused(daemon.socket);
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&raw[3], 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	give_back(&raw[3], &lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw[0]), GPUMEM_OK);
	gm_raw_close(&raw[0]);
	/* The goodbye's end of the connection is the daemon's to see: ask until it has. */
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	struct gm_patience patience = {0};
	for (;;) {
		GM_REQUIRE(gm_raw_connect(&raw[0], daemon.socket) == 0);
		if (gm_raw_call(&raw[0], GM_RAW_PACKET(HELLO, hello, &hello)) == GPUMEM_OK)
			break;
		gm_raw_close(&raw[0]);
		gm_patience_wait(&patience, __FILE__, __LINE__, "a place is free again");
	}
	for (int i = 0; i < 4; i++)
		gm_raw_close(&raw[i]);
	gm_daemon_stop(&daemon);
}
END_TEST

/* A user that has no connection yet gets the place of one of those who have most. */
static void require_served_to_a_stranger(const struct gm_daemon *daemon)
{
	pid_t child = fork();
	if (child == 0) {
		struct gm_raw raw;
		GM_REQUIRE_EQ(setresuid(GM_STRANGER + 2, GM_STRANGER + 2, GM_STRANGER + 2), 0);
		gm_raw_join(&raw, daemon);
		_exit(gm_raw_goodbye(&raw) == GPUMEM_OK ? 0 : 1);
	}
	int status;
	GM_REQUIRE(waitpid(child, &status, 0) == child);
	GM_REQUIRE_EQ(status, 0);
}

#define CUT_OFF 4

/* Its clients lose their connections, and resume their sessions when they are told. */
static void resume_all(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;
	struct gm_raw raws[CUT_OFF];
	struct gm_raw_lease leases[CUT_OFF];

	gm_become_stranger();
	for (int i = 0; i < CUT_OFF; i++) {
		gm_raw_join(&raws[i], daemon);
		GM_REQUIRE_EQ(gm_raw_lease(&raws[i], 0, GM_CHUNK_MIN, &leases[i]), GPUMEM_OK);
	}
	for (int i = 0; i < CUT_OFF; i++)
		gm_raw_hang_up(&raws[i]);
	gm_text_say_word(channel, 'a');
	gm_hear_word(channel, 'r');

	for (int i = 0; i < CUT_OFF; i++)
		gm_raw_come_back(&raws[i], daemon);
}

/* Where descriptors are few, one user alone does not get all connections. */
static void take_the_rest(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;
	int sockets[1024];

	GM_REQUIRE_EQ(setresuid(GM_STRANGER + 1, GM_STRANGER + 1, GM_STRANGER + 1), 0);
	for (int i = 0; i < 1024; i++) {
		int r;
		GM_UNTIL((r = gm_seqpacket_connect(daemon->socket, 10000, &sockets[i])) != -EAGAIN);
		GM_REQUIRE_EQ(r, 0);
	}
	require_refused(daemon->socket);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(a_connection_past_all_is_refused)
{
	GM_BOUND_TEST(CONNECTIONS);
	struct rlimit limit;
	GM_REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < 2 * GM_BOUND_CONNECTIONS + 512)
		GM_FAIL("needs RLIMIT_NOFILE of %d", 2 * GM_BOUND_CONNECTIONS + 512);
	struct gm_daemon_options options = {
		.config = GM_DAEMON_CONFIG_WITH(
			"connections_per_uid = 8192\nhello_deadline = 1h\n", "1G"),
	};
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, &options);
	struct gm_worker cut_off, rest;
	if (gm_tap_has_users()) {
		gm_worker_start(&cut_off, resume_all, &daemon);
		gm_hear_word(cut_off.channel, 'a');
	}
	struct gm_raw first;
	gm_raw_join(&first, &daemon);
	int *sockets = calloc(GM_BOUND_CONNECTIONS, sizeof(int));
	GM_REQUIRE(sockets);
	for (int i = 1; i < GM_BOUND_CONNECTIONS; i++) {
		int r;
		/* A full backlog says EAGAIN: the daemon is still accepting the ones before. */
		GM_UNTIL((r = gm_seqpacket_connect(daemon.socket, 10000, &sockets[i])) != -EAGAIN);
		GM_REQUIRE_EQ(r, 0);
	}
	require_refused(daemon.socket);
	if (gm_tap_has_users()) {
		gm_worker_start(&rest, take_the_rest, &daemon);
		gm_hear_word(rest.channel, 'f');
		require_served_to_a_stranger(&daemon);
		gm_text_say_word(cut_off.channel, 'r');
		gm_worker_join(&cut_off);
		gm_text_say_word(rest.channel, 'e');
		gm_worker_join(&rest);
	}
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&first, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	give_back(&first, &lease);
	for (int i = 1; i < GM_BOUND_CONNECTIONS; i++)
		close(sockets[i]);
	free(sockets);
	gm_raw_close(&first);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limits");
	TCase *tc = tcase_create("beside a witness");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, a_share_past_the_limit_is_refused);
	tcase_add_test(tc, an_opener_past_the_limit_is_refused);
	tcase_add_test(tc, a_lease_past_the_limit_is_refused);
	suite_add_tcase(suite, tc);
	tc = tcase_create("by themselves");
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, a_client_is_read_however_many_of_its_requests_are_unanswered);
	tcase_add_test(tc, a_hello_that_never_comes_ends_the_connection);
	tcase_add_test(tc, a_connection_past_those_of_a_uid_is_refused_until_one_ends);
	tcase_add_test(tc, a_connection_past_all_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
