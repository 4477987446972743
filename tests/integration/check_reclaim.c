/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Getting memory back, over the socket: what another client caches goes to who needs it, a dry run
 * says what the real one does, and what is done by force is done to the right one.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/net/log_limit.h"
#include "tests/integration/scene.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_scene s;

START_TEST(a_request_that_does_not_fit_gets_what_another_one_caches)
{
	uint64_t idle;
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 300 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 300 * MiB, &idle), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 300 * MiB);
	/* It does not wait for long: only for those who were asked. */
	uint64_t id = gm_scene_ask(&s.b, 600 * MiB, 0);
	gm_scene_await_reclaim(&s.a);
	GM_REQUIRE(s.a.event.bytes >= 176 * MiB);
	gm_scene_give(&s.a, idle);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_client_that_ignores_what_it_is_asked_holds_nobody_up)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 900 * MiB, NULL), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 900 * MiB);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 600 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_UNTIL(gm_scene_logged(&s, "and returned none of it in time"));
	/* What it holds is its own all the same. */
	GM_REQUIRE_EQ(gm_figures_now(&s.daemon).leased, 900 * MiB);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 100 * MiB, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

struct plan {
	size_t n;
	uint64_t sessions[16], bytes[16], planned;
	int stages[16];
	bool done, reached;
	uint64_t freed;
};

static gpumem_status cleanup(uint64_t need, bool dry_run, struct plan *ret)
{
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.need = need;
	body.dry_run = dry_run;
	memset(ret, 0, sizeof(*ret));
	gpumem_status status = gm_raw_call(&s.ctl, GM_RAW_PACKET(CLEANUP, cleanup, &body));
	if (status != GPUMEM_OK)
		return status;
	for (;;) {
		GM_REQUIRE_EQ(s.ctl.packet->body_case, GM__WIRE__PACKET__BODY_CLEANUP_REPLY);
		const Gm__Wire__CleanupReply *reply = s.ctl.packet->cleanup_reply;
		if (reply->done) {
			ret->done = true;
			ret->reached = reply->reached;
			for (size_t i = 0; i < reply->n_freed; i++)
				ret->freed += reply->freed[i];
		} else {
			ret->planned = reply->planned;
		}
		for (size_t i = 0; i < reply->n_steps; i++, ret->n++) {
			GM_REQUIRE(ret->n < 16);
			ret->sessions[ret->n] = reply->steps[i]->session;
			ret->bytes[ret->n] = reply->steps[i]->bytes;
			ret->stages[ret->n] = (int)reply->steps[i]->stage;
		}
		if (!s.ctl.packet->more)
			return GPUMEM_OK;
		/* Between the plan and its end the clients are asked: here they answer. */
		while (gm_raw_has_event(&s.a)) {
			GM_REQUIRE(gm_raw_receive_event(&s.a));
		}
		GM_REQUIRE(gm_raw_receive(&s.ctl));
	}
}

static void idle_client(int channel, void *argument)
{
	struct gm_raw raw;
	uint64_t id;
	gm_raw_join(&raw, argument);
	GM_REQUIRE_EQ(gm_scene_lease(&raw, 200 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&raw, 100 * MiB, &id), GPUMEM_OK);
	gm_scene_claim_cached(&raw, 100 * MiB);
	gm_text_say(channel, &raw.session, sizeof(raw.session));
	gm_scene_await_reclaim(&raw);
	gm_scene_give(&raw, id);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

START_TEST(a_dry_run_names_the_same_victims_as_the_real_one)
{
	struct gm_worker worker;
	uint64_t pooled, session;
	struct plan dry, real;
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"));
	gm_worker_start(&worker, idle_client, &s.daemon);
	gm_hear(worker.channel, &session, sizeof(session));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 50 * MiB, &pooled), GPUMEM_OK);
	gm_scene_give(&s.a, pooled);
	struct gm_figures before = gm_figures_now(&s.daemon);
	GM_REQUIRE_EQ(cleanup(0, true, &dry), GPUMEM_OK);
	GM_REQUIRE(!dry.done);
	GM_REQUIRE_EQ(gm_figures_now(&s.daemon).pooled, before.pooled);
	GM_REQUIRE_EQ(cleanup(0, false, &real), GPUMEM_OK);
	GM_REQUIRE_EQ(dry.n, real.n);
	GM_REQUIRE_EQ(dry.planned, real.planned);
	GM_REQUIRE(memcmp(dry.sessions, real.sessions, sizeof(dry.sessions)) == 0);
	GM_REQUIRE(memcmp(dry.bytes, real.bytes, sizeof(dry.bytes)) == 0);
	GM_REQUIRE(memcmp(dry.stages, real.stages, sizeof(dry.stages)) == 0);
	GM_REQUIRE(real.n >= 2);
	GM_REQUIRE_EQ(real.sessions[0], 0);
	GM_REQUIRE_EQ(real.bytes[0], before.pooled);
	GM_REQUIRE_EQ(real.sessions[1], session);
	GM_REQUIRE_EQ(real.bytes[1], 100 * MiB);
	gm_hear_word(worker.channel, 'd');
	GM_REQUIRE(real.done && real.reached);
	GM_REQUIRE_EQ(real.freed, before.pooled + 100 * MiB);
	/* Destroyed, not pooled. */
	GM_UNTIL(gm_figures_now(&s.daemon).pooled == 0);
	/* More than there is: said, and nothing done. */
	GM_REQUIRE_EQ(cleanup(2048 * MiB, false, &real), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(cleanup(2048 * MiB, true, &real), GPUMEM_E_NO_MEMORY);
	/* Nothing to do: done at once. */
	GM_REQUIRE_EQ(cleanup(1 * MiB, false, &real), GPUMEM_OK);
	GM_REQUIRE(real.done && real.reached && real.n == 0);
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.device = 7;
	GM_REQUIRE_EQ(
		gm_raw_call(&s.ctl, GM_RAW_PACKET(CLEANUP, cleanup, &body)), GPUMEM_E_NOT_FOUND);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_plan_is_told_as_it_is_read_however_often_it_is_asked_for)
{
	/* The last question is not a dry run, and is done before anything was read. */
	enum { CLIENTS = 320, ASKED = GM_BOUND_REQUESTS_IN_FLIGHT };
	static struct gm_raw clients[CLIENTS];
	size_t steps[ASKED] = {0}, ended = 0, told = 0;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	char name[GM_BOUND_NAME_BYTES + 1];
	struct rlimit limit;
	struct gm_raw deaf;
	GM_REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1ms\n", "2G"));
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = name;
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(name, sizeof(name), "%0*d", GM_BOUND_NAME_BYTES, i);
		GM_REQUIRE_EQ(gm_raw_hello(&clients[i], s.daemon.socket, &hello), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_scene_lease(&clients[i], 2 * MiB, NULL), GPUMEM_OK);
		gm_scene_claim_cached(&clients[i], 2 * MiB);
	}
	gm_raw_observe(&deaf, &s.daemon);
	uint64_t first = deaf.next_id;
	for (int i = 0; i < ASKED; i++) {
		body.dry_run = i < ASKED - 1;
		GM_REQUIRE_EQ(gm_raw_send(&deaf, GM_RAW_PACKET(CLEANUP, cleanup, &body)),
			first + (uint64_t)i);
	}
	GM_UNTIL(gm_scene_logged(&s, "reclaim for a cleanup by hand ended") ||
		 gm_scene_logged(&s, "dropped"));
	while (ended < ASKED) {
		GM_REQUIRE(gm_raw_receive(&deaf));
		GM_REQUIRE_EQ(deaf.packet->body_case, GM__WIRE__PACKET__BODY_CLEANUP_REPLY);
		const Gm__Wire__CleanupReply *reply = deaf.packet->cleanup_reply;
		uint64_t i = deaf.packet->id - first;
		GM_REQUIRE(i < ASKED);
		GM_REQUIRE_EQ(reply->done, i == ASKED - 1 && !deaf.packet->more);
		for (size_t k = 0; k < reply->n_steps; k++)
			GM_REQUIRE_EQ(strlen(reply->steps[k]->client), GM_BOUND_NAME_BYTES);
		steps[i] += reply->n_steps;
		told += gm__wire__packet__get_packed_size(deaf.packet);
		if (!deaf.packet->more) {
			GM_REQUIRE_EQ(steps[i], CLIENTS);
			ended++;
		}
	}
	GM_REQUIRE(told > GM_BOUND_SEND_QUEUE_BYTES + 512 * 1024);
	gm_raw_close(&deaf);
	for (int i = 0; i < CLIENTS; i++)
		gm_raw_close(&clients[i]);
	gm_scene_stop(&s);
}
END_TEST

struct eater {
	const struct gm_daemon *daemon;
	uint64_t bytes;
	const char *name;
	bool stubborn;
};

static void eat(int channel, void *argument)
{
	const struct eater *eater = argument;
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)eater->name;
	/* Check's own handler ends the whole group. */
	signal(SIGTERM, eater->stubborn ? SIG_IGN : SIG_DFL);
	GM_REQUIRE_EQ(gm_raw_hello(&raw, eater->daemon->socket, &hello), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&raw, eater->bytes, NULL), GPUMEM_OK);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* Clients without manners, until the log says no more about this user. */
static void fill_the_log(void)
{
	for (int i = 0; i < GM_LOG_LIMIT_LINES + 1; i++) {
		struct gm_raw rude;
		gpumem_status failure;
		gm_raw_join(&rude, &s.daemon);
		GM_REQUIRE_EQ(gm_raw_send_bytes(&rude, "?", 1, NULL, 0), 0);
		gm_raw_drain(&rude, &failure);
		gm_raw_close(&rude);
	}
}

static void last_stage(bool stubborn, int signal)
{
	struct gm_worker low, high;
	struct eater little = {&s.daemon, 600 * MiB, "low", stubborn},
		     much = {&s.daemon, 400 * MiB, "high", false};
	int status;
	gm_scene_start(&s, GM_DAEMON_CONFIG_WITH(
				   "oom = terminate\nafter_action = 1ms\nreclaim_deadline = 1ms\n"
				   "terminate_grace = 50ms\n",
				   "1G") "[limit client:low]\npriority = -10\n");
	gm_worker_start(&low, eat, &little);
	gm_hear_word(low.channel, 'h');
	fill_the_log(); /* which hides no warning */
	gm_worker_start(&high, eat, &much);
	gm_hear_word(high.channel, 'h');
	/* Of two, neither of whom gives anything back, the one of lower priority goes. */
	GM_REQUIRE_EQ(waitpid(low.pid, &status, 0), low.pid);
	GM_REQUIRE(WIFSIGNALED(status));
	GM_REQUIRE_EQ(WTERMSIG(status), signal);
	close(low.channel);
	GM_UNTIL(gm_figures_now(&s.daemon).leased == 400 * MiB);
	GM_REQUIRE(gm_scene_logged(&s, "is terminated"));
	gm_text_say_word(high.channel, 'e');
	gm_worker_join(&high);
	gm_scene_stop(&s);
}

START_TEST(the_client_of_the_lowest_priority_is_ended_where_the_administrator_chose_so)
{
	last_stage(false, SIGTERM);
}
END_TEST

START_TEST(a_client_that_does_not_end_by_itself_is_killed)
{
	last_stage(true, SIGKILL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reclaim");
	TCase *tcase = tcase_create("reclaim");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_request_that_does_not_fit_gets_what_another_one_caches);
	tcase_add_test(tcase, a_client_that_ignores_what_it_is_asked_holds_nobody_up);
	tcase_add_test(tcase, a_dry_run_names_the_same_victims_as_the_real_one);
	tcase_add_test(tcase, a_plan_is_told_as_it_is_read_however_often_it_is_asked_for);
	tcase_add_test(
		tcase, the_client_of_the_lowest_priority_is_ended_where_the_administrator_chose_so);
	tcase_add_test(tcase, a_client_that_does_not_end_by_itself_is_killed);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
