/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Requests that wait, over the socket: each is granted when what it waits for comes back, ends in
 * time or with its client, and none waits for what never comes.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/integration/scene.h"
#include "tests/bound.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_scene s;

/* How many requests of a client wait, by the list of clients. */
static uint64_t waiting_of(const struct gm_raw *raw)
{
	Gm__Wire__GetClients body = GM__WIRE__GET_CLIENTS__INIT;

	GM_REQUIRE_EQ(
		gm_raw_call(&s.ctl, GM_RAW_PACKET(GET_CLIENTS, get_clients, &body)), GPUMEM_OK);
	for (size_t i = 0; i < s.ctl.packet->clients->n_clients; i++)
		if (s.ctl.packet->clients->clients[i]->session == raw->session)
			return s.ctl.packet->clients->clients[i]->waiting;
	GM_FAIL("the client is not in the list");
}

START_TEST(a_waiting_request_is_granted_when_memory_comes_back)
{
	uint64_t held, got;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, &held), GPUMEM_OK);
	uint64_t id = gm_scene_ask(&s.b, 100 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	const Gm__Wire__Waiting *row = gm_scene_queue(&s)->requests[0];
	GM_REQUIRE_EQ(row->session, s.b.session);
	GM_REQUIRE_EQ(row->bytes, 100 * MiB);
	GM_REQUIRE_EQ(row->block, GM__WIRE__BLOCK__BLOCK_DEVICE);
	GM_REQUIRE(row->left_ms > 0 && row->left_ms <= 3600000);
	GM_REQUIRE(!gm_raw_readable(s.b.socket));
	GM_REQUIRE_EQ(waiting_of(&s.b), 1);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, &got), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 0);
	GM_REQUIRE_EQ(waiting_of(&s.b), 0);
	GM_REQUIRE(gm_scene_logged(&s, "waits: "));
	GM_REQUIRE(gm_scene_logged(&s, "): granted after "));
	gm_scene_stop(&s);
}
END_TEST

START_TEST(refusals_that_the_log_leaves_out_are_counted_in_it)
{
	enum { TIMES = 1018 };
	uint64_t more = 0;
	unsigned lines = 0;

	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 1, 64 * MiB, 0, 0), GPUMEM_OK);
	for (int i = 0; i < TIMES; i++)
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, 128 * MiB, NULL), GPUMEM_E_LIMIT);
	gm_daemon_signal(&s.daemon, SIGTERM);
	gm_daemon_wait(&s.daemon);

	/* On a slow machine there are several lines, and several sums. */
	char *log = gm_daemon_log(&s.daemon), *rest = log;
	for (char *line; (line = strsep(&rest, "\n"));) {
		const char *sum = strstr(line, " more like this)");
		if (!strstr(line, "): refused: ") || !strstr(line, " may hold 64.0M, "))
			continue;
		uint64_t n = 0;
		for (const char *at = sum ? strrchr(line, '(') : NULL; at && at < sum; at++)
			if (*at >= '0' && *at <= '9')
				n = n * 10 + (uint64_t)(*at - '0');
		lines += !sum;
		more += n;
	}
	GM_REQUIRE(lines > 0);
	GM_REQUIRE_EQ(lines + more, TIMES);
	free(log);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_waiting_request_is_granted_when_its_limit_is_raised)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 1, 64 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 64 * MiB, NULL), GPUMEM_OK);
	uint64_t id = gm_scene_ask(&s.a, 32 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	GM_REQUIRE_EQ(gm_scene_queue(&s)->requests[0]->block, GM__WIRE__BLOCK__BLOCK_LIMIT);
	GM_REQUIRE(!strcmp(gm_scene_queue(&s)->requests[0]->owner, gm_scene_uid()));
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 1, 96 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_answer(&s.a, id, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_reload_that_is_refused_ends_no_request_that_waits)
{
	uint64_t held;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, &held), GPUMEM_OK);
	uint64_t id = gm_scene_ask(&s.b, 100 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	/* With so little it could never be granted, but the rest of the file cannot be. */
	gm_daemon_configure(&s.daemon,
		GM_DAEMON_CONFIG "fraction = 0.05\n[device 0 limit uid:7]\nguarantee = 2G\n");
	gm_daemon_signal(&s.daemon, SIGHUP);
	GM_UNTIL(gm_scene_logged(&s, "the configuration stays as it was"));
	GM_REQUIRE(gm_scene_logged(&s, ") go beyond its capacity"));
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 1);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_waiting_request_ends_when_it_is_cancelled_or_its_time_is_over)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
	/* A year or more is for ever, and shown as that. */
	uint64_t id = gm_scene_ask(&s.b, 2 * MiB, UINT64_C(1000) * 3600 * 24 * 365);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	GM_REQUIRE_EQ(gm_scene_queue(&s)->requests[0]->left_ms, UINT64_MAX);
	Gm__Wire__Cancel cancel = GM__WIRE__CANCEL__INIT;
	cancel.request = id + 1000;
	GM_REQUIRE_EQ(
		gm_raw_call(&s.b, GM_RAW_PACKET(CANCEL, cancel, &cancel)), GPUMEM_E_NOT_FOUND);
	cancel.request = id;
	uint64_t cancel_id = gm_raw_send(&s.b, GM_RAW_PACKET(CANCEL, cancel, &cancel));
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_E_CANCELLED);
	GM_REQUIRE(gm_raw_receive(&s.b));
	GM_REQUIRE_EQ(s.b.packet->id, cancel_id);
	GM_REQUIRE_EQ(s.b.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 0);
	GM_REQUIRE_EQ(
		gm_scene_answer(&s.b, gm_scene_ask(&s.b, 2 * MiB, 1), NULL), GPUMEM_E_TIMEOUT);
	GM_REQUIRE(strstr(gm_raw_detail(&s.b), "waited"));
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_waiting_request_goes_with_its_client)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
	(void)gm_scene_ask(&s.b, 2 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	gm_raw_close(&s.b);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 0);
	gm_raw_join(&s.b, &s.daemon);
	gm_scene_stop(&s);
}
END_TEST

/* How often a text stands in the daemon's log. */
static int logged_times(const char *text)
{
	char *log = gm_daemon_log(&s.daemon);
	int n = 0;
	for (const char *at = log; (at = strstr(at, text)); at++)
		n++;
	free(log);
	return n;
}

/* However many it leaves behind, and whichever way it goes. */
START_TEST(of_requests_that_go_with_their_client_the_journal_says_once_whose_they_were)
{
	char line[128];
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
	for (int i = 0; i < GM_BOUND_WAITING_PER_CLIENT; i++)
		(void)gm_scene_ask(&s.b, 2 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == GM_BOUND_WAITING_PER_CLIENT);
	snprintf(line, sizeof(line), "raw (pid %d, %s): cancelled: the session went away",
		(int)getpid(), gm_own_user());
	if (_i) {
		Gm__Wire__Goodbye goodbye = GM__WIRE__GOODBYE__INIT;
		uint64_t id = gm_raw_send(&s.b, GM_RAW_PACKET(GOODBYE, goodbye, &goodbye));
		do
			GM_REQUIRE(gm_raw_receive(&s.b));
		while (s.b.packet->id != id);
	}
	gm_raw_close(&s.b);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 0);
	GM_REQUIRE_EQ(logged_times(line), 1);
	GM_REQUIRE_EQ(logged_times("the session went away"), 1);
	gm_raw_join(&s.b, &s.daemon);
	gm_scene_stop(&s);
}
END_TEST

/* How many epoll watches a client has on its own connection: COPIES of its descriptor, in SETS sets. */
enum { COPIES = 500, SETS = 1000 };

/* A process of another user. The kernel wakes all its watches during an answer, so its user rests afterwards. It asks
 * again at once, and tells the number of that answer. */
static void rester(int channel, void *argument)
{
	int copies[COPIES];
	struct rlimit files = {COPIES + SETS + 64, COPIES + SETS + 64};
	struct epoll_event event = {.events = EPOLLIN};
	Gm__Wire__GetStatus ask = GM__WIRE__GET_STATUS__INIT;
	struct gm_raw raw;
	uint64_t sequence;

	GM_REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	gm_become_stranger();
	gm_raw_join(&raw, argument);
	for (size_t i = 0; i < COPIES; i++) {
		copies[i] = dup(raw.socket);
		GM_REQUIRE(copies[i] >= 0);
	}
	for (size_t i = 0; i < SETS; i++) {
		int set = epoll_create1(EPOLL_CLOEXEC);
		GM_REQUIRE(set >= 0);
		for (size_t n = 0; n < COPIES; n++)
			GM_REQUIRE_EQ(epoll_ctl(set, EPOLL_CTL_ADD, copies[n], &event), 0);
	}
	gm_text_say_word(channel, 'r');

	gm_hear_word(channel, 'g');
	gm_raw_send(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &ask));
	gm_raw_send(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &ask));
	GM_REQUIRE(gm_raw_receive(&raw));
	gm_text_say_word(channel, 'f');
	GM_REQUIRE(gm_raw_receive(&raw));
	sequence = raw.packet->sequence;
	gm_text_say(channel, &sequence, sizeof(sequence));
}

/* A process of the same user. It has all of the device until it is killed. */
static void holder(int channel, void *argument)
{
	struct gm_raw raw;

	gm_become_stranger();
	gm_raw_join(&raw, argument);
	GM_REQUIRE_EQ(gm_scene_lease(&raw, 1024 * MiB, NULL), GPUMEM_OK);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'g');
}

START_TEST(the_memory_of_a_process_comes_back_while_its_user_rests)
{
	struct gm_worker resting, ending;
	uint64_t granted, answered;

	gm_scene_start(&s, NULL);
	gm_worker_start(&ending, holder, &s.daemon);
	gm_hear_word(ending.channel, 'r');
	gm_worker_start(&resting, rester, &s.daemon);
	gm_hear_word(resting.channel, 'r');
	uint64_t id = gm_scene_ask(&s.b, 1024 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);

	gm_text_say_word(resting.channel, 'g');
	gm_hear_word(resting.channel, 'f');
	gm_worker_kill(&ending);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	granted = s.b.packet->sequence;
	gm_hear(resting.channel, &answered, sizeof(answered));
	GM_REQUIRE(granted < answered);
	gm_worker_join(&resting);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(what_could_never_be_granted_does_not_wait)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_answer(&s.a, gm_scene_ask(&s.a, 1025 * MiB, 3600000), NULL),
		GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.a), 1, 64 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(
		gm_scene_answer(&s.a, gm_scene_ask(&s.a, 66 * MiB, 3600000), NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "never"));
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 0);
	gm_scene_stop(&s);
}
END_TEST

/* A year: for ever. */
#define FOREVER_MS (UINT64_C(1000) * 3600 * 24 * 365)

START_TEST(two_who_hold_half_and_wait_for_more_are_told_so)
{
	uint64_t half;
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH("deadlock_after = 50ms\n", "1G"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 512 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 512 * MiB, &half), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.a), 4, 0, 0, 5), GPUMEM_OK);
	uint64_t of_a = gm_scene_ask(&s.a, 256 * MiB, FOREVER_MS);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	uint64_t of_b = gm_scene_ask(&s.b, 256 * MiB, FOREVER_MS);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, of_b, NULL), GPUMEM_E_DEADLOCK);
	gm_scene_give(&s.b, half);
	GM_REQUIRE_EQ(gm_scene_answer(&s.a, of_a, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_client_with_many_waiting_requests_can_still_return_memory)
{
	GM_BOUND_TEST(WAITING_PER_CLIENT);
	uint64_t held, ids[GM_BOUND_WAITING_PER_CLIENT], half;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 512 * MiB, &half), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 512 * MiB, &held), GPUMEM_OK);
	for (int i = 0; i < GM_BOUND_WAITING_PER_CLIENT; i++)
		ids[i] = gm_scene_ask(&s.a, 2 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == GM_BOUND_WAITING_PER_CLIENT);
	uint64_t more = gm_scene_ask(&s.a, 2 * MiB, 3600000);
	GM_REQUIRE_EQ(gm_scene_answer(&s.a, more, NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "wait already"));
	gm_scene_give(&s.b, half);
	for (int i = 0; i < GM_BOUND_WAITING_PER_CLIENT; i++)
		GM_REQUIRE_EQ(gm_scene_answer(&s.a, ids[i], NULL), GPUMEM_OK);
	gm_scene_give(&s.a, held);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(requests_that_do_not_say_wait_where_the_daemon_is_told_so)
{
	uint64_t held;
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH("oom = wait\noom_wait = 1h\n", "1G"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, &held), GPUMEM_OK);
	uint64_t id = gm_scene_ask(&s.b, 2 * MiB, 0);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	/* One that says that it does not, does not. */
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = 2 * MiB;
	body.no_wait = true;
	struct gm_raw c;
	gm_raw_join(&c, &s.daemon);
	GM_REQUIRE_EQ(gm_raw_call(&c, GM_RAW_PACKET(LEASE, lease, &body)), GPUMEM_E_NO_MEMORY);
	gm_raw_close(&c);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_queue_is_told_as_it_is_read_however_often_it_is_asked_for)
{
	enum { CLIENTS = 7, ROWS = CLIENTS * GM_BOUND_WAITING_PER_CLIENT };
	enum { ASKED = GM_BOUND_REQUESTS_IN_FLIGHT + 300 };
	struct gm_raw waiting[CLIENTS], deaf;
	Gm__Wire__GetQueue get = GM__WIRE__GET_QUEUE__INIT;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_QUEUE, get_queue, &get);
	uint8_t bytes[64];
	size_t n, asked = 0, rows = 0, told = 0;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
	for (int i = 0; i < CLIENTS; i++) {
		gm_raw_join(&waiting[i], &s.daemon);
		for (int k = 0; k < GM_BOUND_WAITING_PER_CLIENT; k++)
			gm_scene_ask(&waiting[i], 2 * MiB, 3600000);
	}
	GM_UNTIL(gm_queue_wait(&s.daemon) == ROWS);
	/* Answers of more than the daemon keeps for a peer are under way. */
	gm_raw_observe(&deaf, &s.daemon);
	while (asked < ASKED) {
		p->id = 1000 + asked;
		GM_REQUIRE(gm_wire_pack(p, bytes, sizeof(bytes), &n) == 0);
		int r = gm_seqpacket_send(deaf.socket, bytes, n, NULL, 0);
		GM_REQUIRE(r == 0 || r == -EAGAIN);
		asked += r == 0;
		/* Somebody else is served meanwhile. */
		if (r < 0)
			gm_figures_now(&s.daemon);
	}
	gm_figures_now(&s.daemon);
	/* It reads after all: every question is answered, in full. */
	for (size_t answers = 0; answers < asked;) {
		GM_REQUIRE(gm_raw_receive(&deaf));
		GM_REQUIRE_EQ(deaf.packet->body_case, GM__WIRE__PACKET__BODY_QUEUE);
		rows += deaf.packet->queue->n_requests;
		told += gm__wire__packet__get_packed_size(deaf.packet);
		answers += !deaf.packet->more;
	}
	GM_REQUIRE_EQ(rows, asked * ROWS);
	GM_REQUIRE(told > GM_BOUND_SEND_QUEUE_BYTES);
	gm_raw_close(&deaf);
	for (int i = 0; i < CLIENTS; i++)
		gm_raw_close(&waiting[i]);
	gm_scene_stop(&s);
}
END_TEST

/* Somebody else, who looks twice: at a limit of what a client calls itself, and at one of its user.
 */
static void look_as_stranger(int channel, void *argument)
{
	struct gm_raw eye;
	Gm__Wire__GetQueue get = GM__WIRE__GET_QUEUE__INIT;
	gm_become_stranger();
	gm_raw_observe(&eye, &s.daemon);
	for (int i = 0; i < 2; i++) {
		gm_hear_word(channel, 'l');
		GM_REQUIRE_EQ(
			gm_raw_call(&eye, GM_RAW_PACKET(GET_QUEUE, get_queue, &get)), GPUMEM_OK);
		GM_REQUIRE_EQ(eye.packet->queue->n_requests, 1);
		const Gm__Wire__Waiting *row = eye.packet->queue->requests[0];
		GM_REQUIRE_EQ(row->session, s.a.session);
		GM_REQUIRE_EQ(row->uid, 0);
		GM_REQUIRE_EQ(row->bytes, 2 * MiB);
		GM_REQUIRE_EQ(row->block, GM__WIRE__BLOCK__BLOCK_LIMIT);
		GM_REQUIRE(!row->client[0]);
		/* The user's number is no secret. */
		GM_REQUIRE(!strcmp(row->owner, i ? "uid:0" : ""));
		gm_text_say_word(channel, 'd');
	}
	gm_raw_close(&eye);
}

START_TEST(who_may_not_see_a_client_does_not_learn_its_name_from_the_limit_it_waits_for)
{
	/* By what the clients of this program call themselves, and by their user. */
	static const char *const owners[] = {"client:raw", "uid:0"};
	struct gm_worker worker;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 8 * MiB, NULL), GPUMEM_OK);
	gm_worker_start(&worker, look_as_stranger, NULL);
	for (int i = 0; i < 2; i++) {
		GM_REQUIRE_EQ(gm_scene_set_limit(&s, owners[i], 1, 8 * MiB, 0, 0), GPUMEM_OK);
		uint64_t id = gm_scene_ask(&s.a, 2 * MiB, 3600000);
		GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
		/* An administrator sees it. */
		GM_REQUIRE(!strcmp(gm_scene_queue(&s)->requests[0]->owner, owners[i]));
		gm_text_say_word(worker.channel, 'l');
		gm_hear_word(worker.channel, 'd');
		uint64_t got;
		GM_REQUIRE_EQ(gm_scene_reset_limit(&s, owners[i]), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_scene_answer(&s.a, id, &got), GPUMEM_OK);
		gm_scene_give(&s.a, got);
	}
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

/* Gets what the clients of this process's user cached, gives it back at once, and asks again. */
static void waste_what_others_cached(int channel, void *argument)
{
	struct gm_raw raw;
	uint64_t got;
	gm_become_stranger();
	gm_raw_join(&raw, &s.daemon);
	uint64_t id = gm_scene_ask(&raw, 512 * MiB, 3600000);
	GM_REQUIRE_EQ(gm_scene_answer(&raw, id, &got), GPUMEM_OK);
	gm_scene_give(&raw, got);
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'a');
	(void)gm_scene_ask(&raw, 512 * MiB, 3600000);
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* Whether gpumemctl queue says this. Its lines fit a terminal. */
static bool queue_shows(const char *arguments, const char *what)
{
	char command[512], line[512];
	bool found = false;
	snprintf(command, sizeof(command), "COLUMNS=80 %s/ctl/gpumemctl --socket %s queue %s",
		getenv("top_builddir"), s.daemon.socket, arguments);
	FILE *out = popen(command, "re");
	GM_REQUIRE(out);
	while (fgets(line, sizeof(line), out)) {
		/* What was cut ends with three bytes for one column. */
		size_t cut = 0;
		for (const char *c = line; (c = strstr(c, "…")); c++)
			cut++;
		GM_REQUIRE(strlen(line) - 2 * cut <= 81);
		found = found || strstr(line, what);
	}
	GM_REQUIRE_EQ(pclose(out), 0);
	return found;
}

START_TEST(a_request_that_waits_until_other_users_may_be_asked_again_is_shown_as_such)
{
	struct gm_worker worker;
	uint64_t cached;
	/* The client has all the time that gpumemctl needs. */
	gm_scene_start(
		&s, GM_DAEMON_CONFIG_WITH("after_action = 1h\nreclaim_deadline = 1h\n", "1G"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 512 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 512 * MiB, &cached), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 512 * MiB);
	gm_worker_start(&worker, waste_what_others_cached, NULL);
	gm_scene_await_reclaim(&s.a);
	GM_REQUIRE(queue_shows("", " device"));
	GM_REQUIRE(!queue_shows("", "rests"));
	gm_scene_claim_cached(&s.a, 0);
	gm_scene_give(&s.a, cached);
	gm_hear_word(worker.channel, 'w');

	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 512 * MiB, &cached), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 512 * MiB);
	gm_text_say_word(worker.channel, 'a');
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	GM_REQUIRE(queue_shows("", " device, rests 59min\n"));
	GM_REQUIRE(queue_shows("--json", "\"block\": \"device\""));
	GM_REQUIRE(queue_shows("--json", "\"rests_ms\": 3"));
	GM_UNTIL(
		gm_scene_logged(&s, "rests, asked for 512.0M: other users' clients returned memory "
				    "that this user does not hold, and are left alone for 59min"));
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

/* ---- one user's waiting requests, and what they do to the others */

/* Asks for all of the device, and waits for ever. */
static void wait_for_everything(int channel, void *argument)
{
	struct gm_raw greedy;
	gm_become_stranger();
	gm_raw_join(&greedy, &s.daemon);
	if (argument) {
		/* It holds half of it, too, and lies: none of that will ever come back. */
		GM_REQUIRE_EQ(gm_scene_lease(&greedy, 512 * MiB, NULL), GPUMEM_OK);
		gm_scene_claim_cached(&greedy, 512 * MiB);
	}
	(void)gm_scene_ask(&greedy, 1024 * MiB, FOREVER_MS);
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	gm_raw_close(&greedy);
}

START_TEST(a_user_that_waits_for_all_of_the_device_does_not_close_it)
{
	struct gm_worker worker;
	uint64_t lease;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 2 * MiB, NULL), GPUMEM_OK);
	gm_worker_start(&worker, wait_for_everything, NULL);
	gm_hear_word(worker.channel, 'w');
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	for (int i = 0; i < 200; i++) {
		GM_REQUIRE_EQ(gm_scene_lease(&s.b, 2 * MiB, &lease), GPUMEM_OK);
		gm_scene_give(&s.b, lease);
	}
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 1);
	GM_REQUIRE(gm_scene_queue(&s)->requests[0]->overtaken >= 200);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

/* It may hold the others back for a while, since by its word the memory is there. */
START_TEST(nor_does_one_that_lies_about_what_it_could_return)
{
	struct gm_worker worker;
	uint64_t lease;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 2 * MiB, NULL), GPUMEM_OK);
	gm_worker_start(&worker, wait_for_everything, &s);
	gm_hear_word(worker.channel, 'w');
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	for (int i = 0; i < 200; i++) {
		uint64_t id = gm_scene_ask(&s.b, 2 * MiB, 3600000);
		GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, &lease), GPUMEM_OK);
		gm_scene_give(&s.b, lease);
	}
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

#define FLOOD_CLIENTS 130

/* Makes as many requests wait as it can. */
static void flood_the_queue(int channel, void *argument)
{
	static struct gm_raw clients[FLOOD_CLIENTS];
	gm_become_stranger();
	for (int i = 0; i < FLOOD_CLIENTS; i++) {
		gm_raw_join(&clients[i], &s.daemon);
		for (int k = 0; k < GM_BOUND_WAITING_PER_CLIENT; k++)
			(void)gm_scene_ask(&clients[i], 2 * MiB, FOREVER_MS);
	}
	/* The last one is refused, and the daemon says why. */
	struct gm_raw *last = &clients[FLOOD_CLIENTS - 1];
	GM_REQUIRE(gm_raw_receive(last));
	GM_REQUIRE_EQ(last->packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE(strstr(
		gm_raw_detail(last), "1024 requests that wait for device 0, which is the most"));
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	for (int i = 0; i < FLOOD_CLIENTS; i++)
		gm_raw_close(&clients[i]);
}

START_TEST(a_user_whose_requests_wait_in_thousands_leaves_room_for_the_others)
{
	struct gm_worker worker;
	uint64_t held;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, &held), GPUMEM_OK);
	gm_worker_start(&worker, flood_the_queue, NULL);
	gm_hear_word(worker.channel, 'w');
	uint64_t id = gm_scene_ask(&s.b, 4 * MiB, 3600000);
	GM_UNTIL(gm_queue_wait(&s.daemon) == GM_BOUND_WAITING_PER_UID + 1);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("queue");
	TCase *tcase = tcase_create("queue");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_waiting_request_is_granted_when_memory_comes_back);
	tcase_add_test(tcase, refusals_that_the_log_leaves_out_are_counted_in_it);
	tcase_add_test(tcase, a_waiting_request_is_granted_when_its_limit_is_raised);
	tcase_add_test(tcase, a_reload_that_is_refused_ends_no_request_that_waits);
	tcase_add_test(tcase, a_waiting_request_ends_when_it_is_cancelled_or_its_time_is_over);
	tcase_add_test(tcase, a_waiting_request_goes_with_its_client);
	tcase_add_loop_test(tcase,
		of_requests_that_go_with_their_client_the_journal_says_once_whose_they_were, 0, 2);
	if (GM_TAP_WITH_USERS(the_memory_of_a_process_comes_back_while_its_user_rests))
		tcase_add_test(tcase, the_memory_of_a_process_comes_back_while_its_user_rests);
	tcase_add_test(tcase, what_could_never_be_granted_does_not_wait);
	tcase_add_test(tcase, two_who_hold_half_and_wait_for_more_are_told_so);
	tcase_add_test(tcase, a_client_with_many_waiting_requests_can_still_return_memory);
	tcase_add_test(tcase, requests_that_do_not_say_wait_where_the_daemon_is_told_so);
	tcase_add_test(tcase, a_queue_is_told_as_it_is_read_however_often_it_is_asked_for);
	if (GM_TAP_WITH_USERS(
		    who_may_not_see_a_client_does_not_learn_its_name_from_the_limit_it_waits_for))
		tcase_add_test(tcase,
			who_may_not_see_a_client_does_not_learn_its_name_from_the_limit_it_waits_for);
	if (GM_TAP_WITH_USERS(
		    a_request_that_waits_until_other_users_may_be_asked_again_is_shown_as_such))
		tcase_add_test(tcase,
			a_request_that_waits_until_other_users_may_be_asked_again_is_shown_as_such);
	if (GM_TAP_WITH_USERS(a_user_that_waits_for_all_of_the_device_does_not_close_it))
		tcase_add_test(tcase, a_user_that_waits_for_all_of_the_device_does_not_close_it);
	if (GM_TAP_WITH_USERS(nor_does_one_that_lies_about_what_it_could_return))
		tcase_add_test(tcase, nor_does_one_that_lies_about_what_it_could_return);
	if (GM_TAP_WITH_USERS(a_user_whose_requests_wait_in_thousands_leaves_room_for_the_others))
		tcase_add_test(
			tcase, a_user_whose_requests_wait_in_thousands_leaves_room_for_the_others);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
