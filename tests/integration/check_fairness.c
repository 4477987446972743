/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Users are served in turn. The daemon is stopped while a flooder fills its sockets and a user asks
 * for one thing. Then it goes on, and the numbers of the packets say how many of the flooder's were
 * served before the user's.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/flood.h"
#include "tests/integration/subuids.h"
#include "tests/tap.h"

/* How many packets may go ahead of a user's: its own turn comes within one turn of the loop, and
 * the loop may be in the middle of one. */
#define FEW 4

struct flood {
	const struct gm_daemon *daemon;
	size_t connections, requests;
	uid_t first_uid; /* 0: one uid for all connections; else each has one, from this */
	bool watch;      /* the connections watch before the flood */
	const Gm__Wire__Packet *(*packet)(void); /* what each connection sends */
};

/* A process of another user. It fills its sockets while the daemon is stopped. Then it tells how
 * many packets with a lower number than the user's it was sent. */
static void flooder(int channel, void *argument)
{
	const struct flood *flood = argument;
	struct gm_raw *raws = calloc(flood->connections, sizeof(*raws));
	struct gm_raw client;
	uint64_t users, before = 0;

	if (!flood->first_uid)
		gm_become_stranger();
	for (size_t i = 0; i < flood->connections; i++) {
		if (flood->first_uid) {
			GM_REQUIRE_EQ(seteuid(0), 0);
			GM_REQUIRE_EQ(seteuid(flood->first_uid + (uid_t)i), 0);
		}
		if (flood->watch) {
			Gm__Wire__Watch body = GM__WIRE__WATCH__INIT;
			gm_raw_observe(&raws[i], flood->daemon);
			GM_REQUIRE_EQ(gm_raw_call(&raws[i], GM_RAW_PACKET(WATCH, watch, &body)),
				GPUMEM_OK);
			GM_REQUIRE(gm_raw_receive(&raws[i])); /* the level of the device */
		} else {
			gm_raw_join(&raws[i], flood->daemon);
		}
	}
	gm_raw_join(&client, flood->daemon);
	gm_text_say_word(channel, 'r');

	gm_hear_word(channel, 'g');
	for (size_t n = 0; n < flood->requests; n++)
		for (size_t i = 0; i < (flood->watch ? 1 : flood->connections); i++)
			gm_raw_send(flood->watch ? &client : &raws[i], flood->packet());
	gm_text_say_word(channel, 'f');

	gm_hear(channel, &users, sizeof(users));
	/* Whatever was sent before the user's packet is in the sockets by now. */
	for (size_t i = 0; i < flood->connections; i++)
		while (gm_raw_readable(raws[i].socket) && gm_raw_receive(&raws[i]) &&
			raws[i].packet->sequence < users)
			before++;
	gm_text_say(channel, &before, sizeof(before));
}

static void expect_few_ahead(struct flood *flood)
{
	struct gm_daemon daemon;
	struct gm_worker worker;
	struct gm_raw user;
	uint64_t sequence, before;

	const char *const env[] = {gm_subuids_env("ann:100000:65536\n"), NULL};
	gm_daemon_start(&daemon,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("", "16G") "[limit uid:64999]\nmax = 64M\n",
			.env = env,
		});
	flood->daemon = &daemon;
	gm_worker_start(&worker, flooder, flood);
	gm_raw_join(&user, &daemon);
	gm_hear_word(worker.channel, 'r');

	int status;
	gm_daemon_signal(&daemon, SIGSTOP);
	GM_REQUIRE_EQ(waitpid(daemon.pid, &status, WUNTRACED), daemon.pid);
	gm_text_say_word(worker.channel, 'g');
	gm_hear_word(worker.channel, 'f');
	gm_raw_send(&user, gm_flood_status());
	gm_daemon_signal(&daemon, SIGCONT);

	GM_REQUIRE(gm_raw_receive(&user));
	sequence = user.packet->sequence;
	gm_text_say(worker.channel, &sequence, sizeof(sequence));
	gm_hear(worker.channel, &before, sizeof(before));
	if (before > FEW)
		GM_FAIL("%llu packets went ahead of the user's", (unsigned long long)before);
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(gm_raw_goodbye(&user), GPUMEM_OK);
	gm_raw_close(&user);
	gm_daemon_stop(&daemon);
}

START_TEST(many_connections_do_not_come_before_another_user)
{
	expect_few_ahead(
		&(struct flood){.connections = 64, .requests = 8, .packet = gm_flood_status});
}
END_TEST

START_TEST(nor_do_connections_of_as_many_subordinate_uids)
{
	expect_few_ahead(&(struct flood){
		.connections = 64, .requests = 8, .first_uid = 100000, .packet = gm_flood_status});
}
END_TEST

START_TEST(nor_do_long_lists)
{
	expect_few_ahead(
		&(struct flood){.connections = 64, .requests = 8, .packet = gm_flood_clients});
}
END_TEST

START_TEST(nor_do_long_returns)
{
	expect_few_ahead(
		&(struct flood){.connections = 16, .requests = 2, .packet = gm_flood_return});
}
END_TEST

START_TEST(nor_do_many_watchers)
{
	expect_few_ahead(&(struct flood){
		.connections = 100, .requests = 8, .watch = true, .packet = gm_flood_lease});
}
END_TEST

/* bench/fairness floods with all of them. */
START_TEST(every_kind_of_request_has_a_flood)
{
	const char *missing = gm_flood_missing();

	if (missing)
		GM_FAIL("gm_flood_kinds of tests/integration/flood.c has no %s", missing);
}
END_TEST

/* ---- returns */

/* More chunks than are released at once. */
#define MANY 2048
/* How many may be released on one turn of a user. */
#define TURN 128

/* A process of another user. It returns very many chunks by their ids, as many at a time as it
 * may. */
static void returner(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	static uint64_t ids[MANY];

	gm_become_stranger();
	gm_raw_join(&raw, daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	for (size_t i = 0; i < MANY; i++) {
		if (i > 0)
			GM_REQUIRE_EQ(gm_raw_grow(&raw, &lease, GM_CHUNK_MIN), GPUMEM_OK);
		ids[i] = lease.chunks[i].id;
		close(lease.chunks[i].fd);
		lease.chunks[i].fd = -1;
	}
	gm_text_say_word(channel, 'r');

	gm_hear_word(channel, 'g');
	for (size_t i = 0; i < MANY; i += GM_BOUND_LIST_ITEMS) {
		Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
		body.lease = lease.id;
		body.chunks = ids + i;
		body.n_chunks = GM_BOUND_LIST_ITEMS;
		gm_raw_send(&raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &body));
	}
	gm_text_say_word(channel, 'f');
	for (size_t i = 0; i < MANY; i += GM_BOUND_LIST_ITEMS) {
		GM_REQUIRE(gm_raw_receive(&raw));
		GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
	}
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}

START_TEST(nor_does_one_return_of_many_chunks)
{
	struct gm_daemon daemon;
	struct gm_worker worker;
	struct gm_raw user;
	uint64_t left = MANY * GM_CHUNK_MIN;
	int status;

	gm_daemon_start(
		&daemon, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "16G")});
	gm_worker_start(&worker, returner, &daemon);
	gm_raw_join(&user, &daemon);
	gm_hear_word(worker.channel, 'r');

	gm_daemon_signal(&daemon, SIGSTOP);
	GM_REQUIRE_EQ(waitpid(daemon.pid, &status, WUNTRACED), daemon.pid);
	gm_text_say_word(worker.channel, 'g');
	gm_hear_word(worker.channel, 'f');
	for (int i = 0; i < 2 * MANY / TURN; i++)
		gm_raw_send(&user, gm_flood_status());
	gm_daemon_signal(&daemon, SIGCONT);

	/* Between two packets of the user, the other one has one turn, or is in the middle of one. */
	for (int i = 0; i < 2 * MANY / TURN; i++) {
		GM_REQUIRE(gm_raw_receive(&user));
		GM_REQUIRE_EQ(user.packet->body_case, GM__WIRE__PACKET__BODY_STATUS);
		uint64_t leased = user.packet->status->devices[0]->leased;
		if (left - leased > 2 * TURN * GM_CHUNK_MIN)
			GM_FAIL("%llu chunks were released between two packets of the user",
				(unsigned long long)((left - leased) / GM_CHUNK_MIN));
		left = leased;
	}
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leased, 0);
	GM_REQUIRE_EQ(gm_raw_goodbye(&user), GPUMEM_OK);
	gm_raw_close(&user);
	gm_daemon_stop(&daemon);
}
END_TEST

/* Nobody reads what the daemon tells the service manager: the queue of a socket has 10 to 512 messages. */
/* A user who reads all answers is not dropped for what the daemon keeps until then. */
START_TEST(many_requests_to_evict_are_all_answered)
{
	/* Each request looks at all connections of the process. */
	enum { CONNECTIONS = 24, REQUESTS = GM_BOUND_REQUESTS_IN_FLIGHT };
	struct gm_raw *raws = calloc(CONNECTIONS, sizeof(*raws));
	struct gm_daemon daemon;
	int status;

	gm_daemon_start(&daemon, NULL);
	for (size_t i = 0; i < CONNECTIONS; i++)
		gm_raw_join(&raws[i], &daemon);
	gm_daemon_signal(&daemon, SIGSTOP);
	GM_REQUIRE_EQ(waitpid(daemon.pid, &status, WUNTRACED), daemon.pid);
	for (size_t n = 0; n < REQUESTS; n++) {
		for (size_t i = 0; i < CONNECTIONS; i++) {
			Gm__Wire__Evict body = GM__WIRE__EVICT__INIT;
			body.session = raws[i].session;
			body.process = true;
			gm_raw_send(&raws[i], GM_RAW_PACKET(EVICT, evict, &body));
		}
	}
	gm_daemon_signal(&daemon, SIGCONT);
	for (size_t n = 0; n < REQUESTS; n++)
		for (size_t i = 0; i < CONNECTIONS; i++)
			do
				GM_REQUIRE(gm_raw_receive(&raws[i]));
			while (raws[i].packet->id == 0);
	for (size_t i = 0; i < CONNECTIONS; i++) {
		GM_REQUIRE_EQ(gm_raw_goodbye(&raws[i]), GPUMEM_OK);
		gm_raw_close(&raws[i]);
	}
	free(raws);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(reloads_do_not_wait_for_a_service_manager_that_does_not_read)
{
	enum { RELOADS = 600 };
	Gm__Wire__Reload body = GM__WIRE__RELOAD__INIT;
	struct gm_daemon daemon;
	struct gm_raw admin, user;

	gm_daemon_start(&daemon, NULL);
	gm_raw_observe(&admin, &daemon);
	for (int i = 0; i < RELOADS; i++)
		GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(RELOAD, reload, &body)), GPUMEM_OK);
	gm_raw_join(&user, &daemon);
	gm_raw_close(&user);
	gm_raw_close(&admin);
	gm_daemon_stop(&daemon);
}
END_TEST

/* The file of users is a pipe, and its reader waits until somebody writes. */
START_TEST(a_reload_that_waits_for_the_disk_delays_nobody)
{
	Gm__Wire__Reload body = GM__WIRE__RELOAD__INIT;
	struct gm_daemon daemon;
	struct gm_raw admin, second, user;
	char users[256];

	const char *const env[] = {gm_subuids_env(""), NULL};
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = env});
	gm_raw_observe(&admin, &daemon);
	gm_raw_observe(&second, &daemon);
	gm_raw_join(&user, &daemon);
	snprintf(users, sizeof(users), "%s/etc/passwd", strchr(env[0], '=') + 1);
	GM_REQUIRE_EQ(unlink(users), 0);
	GM_REQUIRE_EQ(mkfifo(users, 0600), 0);
	gm_raw_send(&admin, GM_RAW_PACKET(RELOAD, reload, &body));
	gm_raw_send(&second, GM_RAW_PACKET(RELOAD, reload, &body));
	gm_raw_send(&second, GM_RAW_PACKET(RELOAD, reload, &body));
	GM_REQUIRE_EQ(gm_raw_call(&user, gm_flood_status()), GPUMEM_OK);
	GM_REQUIRE(!gm_raw_readable(admin.socket));

	/* One who waits may go. The other one's requests came later, so a second reload answers them. */
	int writer = open(users, O_WRONLY | O_CLOEXEC);
	GM_REQUIRE(writer >= 0);
	gm_raw_close(&admin);
	close(writer);
	writer = open(users, O_WRONLY | O_CLOEXEC);
	GM_REQUIRE(writer >= 0);
	GM_REQUIRE_EQ(unlink(users), 0);
	close(writer);
	for (int i = 0; i < 2; i++) {
		GM_REQUIRE(gm_raw_receive(&second));
		GM_REQUIRE_EQ(second.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
	}
	gm_raw_close(&second);
	gm_raw_close(&user);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fairness");
	TCase *tests = tcase_create("fairness");

	tcase_add_test(tests, every_kind_of_request_has_a_flood);
	tcase_set_timeout(tests, GM_PATIENCE_MS / 1000.0 * 2);
	if (GM_TAP_WITH_USERS(many_connections_do_not_come_before_another_user))
		tcase_add_test(tests, many_connections_do_not_come_before_another_user);
	if (GM_TAP_WITH_USERS(nor_do_connections_of_as_many_subordinate_uids))
		tcase_add_test(tests, nor_do_connections_of_as_many_subordinate_uids);
	if (GM_TAP_WITH_USERS(nor_do_long_lists))
		tcase_add_test(tests, nor_do_long_lists);
	if (GM_TAP_WITH_USERS(nor_do_long_returns))
		tcase_add_test(tests, nor_do_long_returns);
	if (GM_TAP_WITH_USERS(nor_do_many_watchers))
		tcase_add_test(tests, nor_do_many_watchers);
	if (GM_TAP_WITH_USERS(nor_does_one_return_of_many_chunks))
		tcase_add_test(tests, nor_does_one_return_of_many_chunks);
	tcase_add_test(tests, many_requests_to_evict_are_all_answered);
	tcase_add_test(tests, reloads_do_not_wait_for_a_service_manager_that_does_not_read);
	tcase_add_test(tests, a_reload_that_waits_for_the_disk_delays_nobody);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
