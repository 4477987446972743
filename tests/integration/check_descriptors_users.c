/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Descriptors of connections, of sessions and on their way: no user takes those of others. */

#include <string.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/descriptors_fixture.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

/* ---- connections */

static void hold_sessions(int channel, void *argument)
{
	static struct gm_raw raws[MANY];
	const struct gm_daemon *daemon = argument;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	gpumem_status status = GPUMEM_OK;
	size_t n = 0;

	gm_become_stranger();
	hello.major = GM_WIRE_MAJOR;
	while (n < MANY && (status = gm_raw_hello(&raws[n], daemon->socket, &hello)) == GPUMEM_OK)
		n++;
	GM_REQUIRE(n > 10);
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&raws[n]), "user 64999"));
	GM_REQUIRE(strstr(gm_raw_detail(&raws[n]), "LimitNOFILE="));
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(a_user_with_many_connections_leaves_descriptors_to_others)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &few);
	gm_worker_start(&worker, hold_sessions, &daemon);
	gm_hear_word(worker.channel, 'f');
	expect_served(&daemon, 10);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

/* A process of one user after the other. Each takes as many connections as it gets. */
#define USERS 6
static void hold_observers(int channel, void *argument)
{
	static struct gm_raw raws[MANY];
	const struct gm_daemon *daemon = argument;
	size_t n = 0;

	for (uid_t uid = GM_STRANGER - USERS; uid < GM_STRANGER; uid++) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		hello.observer = true;
		GM_REQUIRE_EQ(seteuid(0), 0);
		GM_REQUIRE_EQ(seteuid(uid), 0);
		for (size_t had = n;; n++) {
			gpumem_status status;
			GM_REQUIRE(n < MANY);
			status = gm_raw_hello(&raws[n], daemon->socket, &hello);
			if (status == GPUMEM_OK)
				continue;
			GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
			GM_REQUIRE(n > had);
			break;
		}
	}
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(and_so_do_several_users_together)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &few);
	gm_worker_start(&worker, hold_observers, &daemon);
	gm_hear_word(worker.channel, 'f');
	expect_served(&daemon, 4);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

/* Takes sessions, and takes each up again, until no more are given to it. */
static void hold_resumed_sessions(int channel, void *argument)
{
	static struct gm_raw raws[MANY];
	const struct gm_daemon *daemon = argument;
	gpumem_status status = GPUMEM_OK;
	size_t n = 0;

	gm_become_stranger();
	for (; n < MANY; n++) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		struct gm_raw_lease lease;

		hello.major = GM_WIRE_MAJOR;
		status = gm_raw_hello(&raws[n], daemon->socket, &hello);
		if (status == GPUMEM_OK)
			status = gm_raw_lease(&raws[n], 0, GM_CHUNK_MIN, &lease);
		if (status != GPUMEM_OK)
			break;
		gm_raw_lease_clear(&lease);

		gm_raw_hang_up(&raws[n]);
		status = gm_raw_resume(&raws[n], daemon, &raws[n]);
		if (status != GPUMEM_OK)
			break;
		GM_REQUIRE(raws[n].resumed);
	}
	GM_REQUIRE(n > 10);
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(a_user_with_many_resumed_sessions_leaves_descriptors_to_others)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &very_few);
	gm_worker_start(&worker, hold_resumed_sessions, &daemon);
	gm_hear_word(worker.channel, 'f');
	expect_served(&daemon, 1);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- after a restart */

#define RESUMERS 80

/* A user with many clients. It resumes them when it is told. */
static void resume_many(int channel, void *argument)
{
	static struct gm_raw raws[RESUMERS];
	const struct gm_daemon *daemon = argument;

	gm_become_stranger();
	for (size_t i = 0; i < RESUMERS; i++)
		gm_raw_join(&raws[i], daemon);
	gm_text_say_word(channel, 'j');
	gm_hear_word(channel, 'r');

	for (size_t i = 0; i < RESUMERS; i++)
		gm_raw_come_back(&raws[i], daemon);
}

START_TEST(nobody_takes_the_connections_of_clients_that_a_restart_cut_off)
{
	struct gm_daemon daemon;
	struct gm_worker user, others;

	gm_daemon_start(&daemon, &few);
	gm_worker_start(&user, resume_many, &daemon);
	gm_hear_word(user.channel, 'j');
	gm_daemon_kill(&daemon);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_worker_start(&others, hold_observers, &daemon);
	gm_hear_word(others.channel, 'f');
	gm_text_say_word(user.channel, 'r');
	gm_worker_join(&user);
	gm_text_say_word(others.channel, 'e');
	gm_worker_join(&others);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- on their way */

#define LIARS 110

static void acknowledge_unread(struct gm_raw *raw, uint64_t seen)
{
	Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
	Gm__Wire__Packet *packet = GM_RAW_PACKET(ACK, ack, &ack);

	packet->fds_seen = seen;
	gm_raw_send(raw, packet);
}

/* Opens one lease of many chunks on many connections, reads none of its handles, and says that it
 * has read them. */
static void lie_about_handles(int channel, void *argument)
{
	static struct gm_raw raws[LIARS];
	const struct gm_daemon *daemon = argument;
	struct gm_raw maker;
	struct gm_raw_lease lease;
	uint8_t token[GM_TOKEN_BYTES];

	gm_become_stranger();
	gm_raw_join(&maker, daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	for (int i = 1; i < GM_BOUND_FDS_IN_FLIGHT; i++)
		GM_REQUIRE_EQ(gm_raw_grow(&maker, &lease, GM_CHUNK_MIN), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, GM_BOUND_FDS_IN_FLIGHT);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false,
			      token),
		GPUMEM_OK);

	Gm__Wire__Open open_it = GM__WIRE__OPEN__INIT;
	open_it.token.data = token;
	open_it.token.len = sizeof(token);
	for (size_t i = 0; i < LIARS; i++) {
		gm_raw_join(&raws[i], daemon);
		gm_raw_send(&raws[i], GM_RAW_PACKET(OPEN, open, &open_it));
		raws[i].mute = true;
	}
	/* The answer to the last connection comes after whatever the others are sent. */
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	get.lease = lease.id;
	for (int round = 1; round <= 2; round++) {
		gm_figures_now(daemon);
		for (size_t i = 0; i < LIARS; i++) {
			if (!gm_raw_readable(raws[i].socket))
				continue;
			/* The first packet is there, with as many as a packet takes, or as the host
			 * backend opens for one. */
			acknowledge_unread(&raws[i],
				raws[i].fds_seen + (gm_on_gpu() ? GM_BOUND_PACKET_FDS : 16));
			gm_raw_send(&raws[i], GM_RAW_PACKET(GET_HANDLES, get_handles, &get));
		}
	}
	gm_figures_now(daemon);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gm_raw_lease_clear(&lease);
}

static void be_served(int channel, void *argument)
{
	(void)channel;
	expect_served(argument, 10);
}

START_TEST(descriptors_that_one_user_does_not_read_stop_nobody_else)
{
	struct gm_daemon daemon;
	struct gm_worker liar, user;

	/* The kernel bounds the descriptors on their way for all users but root. */
	struct gm_daemon_options options = few;
	options.uid = GM_STRANGER + 1;
	gm_daemon_start(&daemon, &options);
	gm_worker_start(&liar, lie_about_handles, &daemon);
	gm_hear_word(liar.channel, 'f');
	for (int i = 0; i < 10; i++) {
		gm_worker_start(&user, be_served, &daemon);
		gm_worker_join(&user);
	}
	gm_text_say_word(liar.channel, 'e');
	gm_worker_join(&liar);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("descriptors of users");
	TCase *tc = tcase_create("descriptors of users");
	/* Very many connections are made, one by one. */
	tcase_set_timeout(tc, 120);
	if (GM_TAP_WITH_USERS(a_user_with_many_connections_leaves_descriptors_to_others))
		tcase_add_test(tc, a_user_with_many_connections_leaves_descriptors_to_others);
	if (GM_TAP_WITH_USERS(and_so_do_several_users_together))
		tcase_add_test(tc, and_so_do_several_users_together);
	if (GM_TAP_WITH_USERS(a_user_with_many_resumed_sessions_leaves_descriptors_to_others))
		tcase_add_test(tc, a_user_with_many_resumed_sessions_leaves_descriptors_to_others);
	if (GM_TAP_WITH_USERS(nobody_takes_the_connections_of_clients_that_a_restart_cut_off))
		tcase_add_test(tc, nobody_takes_the_connections_of_clients_that_a_restart_cut_off);
	if (GM_TAP_WITH_USERS(descriptors_that_one_user_does_not_read_stop_nobody_else))
		tcase_add_test(tc, descriptors_that_one_user_does_not_read_stop_nobody_else);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
