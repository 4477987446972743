/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * Limits, waiting and getting memory back, over the socket: who is refused is told by what, who
 * waits is granted when memory comes back, and what is done by force is done to the right one.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/page.h"
#include "tests/integration/raw.h"
#include "tests/limit.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_daemon daemon_;
static struct gm_raw a, b, ctl;

static void start(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	gm_raw_join(&a, &daemon_);
	gm_raw_join(&b, &daemon_);
	gm_raw_observe(&ctl, &daemon_);
}

static void stop(void)
{
	gm_raw_close(&a);
	gm_raw_close(&b);
	gm_raw_close(&ctl);
	gm_daemon_stop(&daemon_);
}

/* A lease that is kept by its id alone. */
static gpumem_status lease(struct gm_raw *raw, uint64_t bytes, uint64_t *ret_id)
{
	struct gm_raw_lease got;
	gpumem_status status = gm_raw_lease(raw, 0, bytes, &got);
	if (status == GPUMEM_OK) {
		if (ret_id)
			*ret_id = got.id;
		gm_raw_lease_clear(&got);
	}
	return status;
}

static void give(struct gm_raw *raw, uint64_t id)
{
	GM_REQUIRE_EQ(gm_raw_return(raw, id, NULL, 0), GPUMEM_OK);
}

/* Asks for a lease that waits, and does not wait for the answer. The request's id. */
static uint64_t ask(struct gm_raw *raw, uint64_t bytes, uint64_t wait_ms)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = bytes;
	body.wait_ms = wait_ms;
	return gm_raw_send(raw, GM_RAW_PACKET(LEASE, lease, &body));
}

/* The answer to a request; of a lease all of it. */
static gpumem_status answer(struct gm_raw *raw, uint64_t id, uint64_t *ret_lease)
{
	GM_REQUIRE(gm_raw_receive(raw));
	GM_REQUIRE_EQ(raw->packet->id, id);
	if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
		return (gpumem_status)raw->packet->failure->status;
	struct gm_raw_lease got = {0};
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	uint64_t lease_id = raw->packet->lease_reply->lease;
	GM_REQUIRE_EQ(gm_raw_collect(raw, &got), GPUMEM_OK);
	gm_raw_lease_clear(&got);
	if (ret_lease)
		*ret_lease = lease_id;
	return GPUMEM_OK;
}

static gpumem_status set_limit(
	const char *owner, uint32_t set, uint64_t max, uint64_t guarantee, int32_t priority)
{
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	body.owner = (char *)owner;
	body.all_devices = true;
	body.set = set;
	body.max = max;
	body.guarantee = guarantee;
	body.priority = priority;
	return gm_raw_call(&ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &body));
}

static gpumem_status reset_limit(const char *owner)
{
	Gm__Wire__ResetLimit body = GM__WIRE__RESET_LIMIT__INIT;
	body.owner = (char *)owner;
	body.all_devices = true;
	return gm_raw_call(&ctl, GM_RAW_PACKET(RESET_LIMIT, reset_limit, &body));
}

/* The limit of an owner on device 0, as it is shown. NULL: none. Good until the next packet. */
static const Gm__Wire__Limit *limit(const char *owner)
{
	Gm__Wire__GetLimits body = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &body)), GPUMEM_OK);
	GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
	for (size_t i = 0; i < ctl.packet->limits->n_limits; i++)
		if (!strcmp(ctl.packet->limits->limits[i]->owner, owner))
			return ctl.packet->limits->limits[i];
	return NULL;
}

static const Gm__Wire__QueueReply *queue(void)
{
	Gm__Wire__GetQueue body = GM__WIRE__GET_QUEUE__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_QUEUE, get_queue, &body)), GPUMEM_OK);
	GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_QUEUE);
	return ctl.packet->queue;
}

static bool logged(const char *text)
{
	char *log = gm_daemon_log(&daemon_);
	bool found = strstr(log, text) != NULL;
	free(log);
	return found;
}

static const char *own_uid(void)
{
	static char text[32];
	snprintf(text, sizeof(text), "uid:%u", getuid());
	return text;
}

static const char *own_session(const struct gm_raw *raw)
{
	static char text[2][48];
	static int turn;
	turn = !turn;
	snprintf(text[turn], sizeof(text[0]), "session:%llu", (unsigned long long)raw->session);
	return text[turn];
}

/* ---- limits */

START_TEST(a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked)
{
	char config[512], want[128];
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 64M\n", GM_DAEMON_CONFIG, own_uid());
	start(config);
	GM_REQUIRE_EQ(lease(&a, 48 * MiB, NULL), GPUMEM_OK);
	/* What another client of the same owner holds counts. */
	GM_REQUIRE_EQ(lease(&b, 32 * MiB, NULL), GPUMEM_E_LIMIT);
	snprintf(want, sizeof(want), "uid %u may hold 64.0M, holds 48.0M, asked 32.0M", getuid());
	GM_REQUIRE(strstr(gm_raw_detail(&b), want));
	GM_REQUIRE_EQ(lease(&b, 16 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&b, 1, NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(logged(want));
	const Gm__Wire__Limit *row = limit(own_uid());
	GM_REQUIRE(row);
	GM_REQUIRE_EQ(row->held, 64 * MiB);
	GM_REQUIRE_EQ(row->clients, 2);
	GM_REQUIRE(!row->over);
	GM_REQUIRE_EQ(row->run_time, 0);
	stop();
}
END_TEST

START_TEST(a_limit_set_below_what_is_held_is_accepted_and_shown_as_over)
{
	uint64_t id;
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 48 * MiB, &id), GPUMEM_OK);
	GM_REQUIRE_EQ(set_limit(own_uid(), 1, 16 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
	GM_REQUIRE(ctl.packet->limits->n_limits >= 1);
	GM_REQUIRE(ctl.packet->limits->limits[0]->over);
	GM_REQUIRE_EQ(ctl.packet->limits->limits[0]->held, 48 * MiB);
	GM_REQUIRE_EQ(ctl.packet->limits->limits[0]->run_time, 1);
	/* Nothing is taken; both are told. */
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 48 * MiB);
	for (int i = 0; i < 2; i++) {
		struct gm_raw *raw = i ? &b : &a;
		do
			GM_REQUIRE(gm_raw_receive_event(raw));
		while (raw->packet->body_case != GM__WIRE__PACKET__BODY_LIMITS_EVENT);
		GM_REQUIRE_EQ(raw->packet->limits_event->max, 16 * MiB);
	}
	GM_REQUIRE_EQ(lease(&a, 2 * MiB, NULL), GPUMEM_E_LIMIT);
	give(&a, id);
	GM_REQUIRE_EQ(lease(&a, 16 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE(!limit(own_uid())->over);
	stop();
}
END_TEST

START_TEST(what_is_set_at_run_time_stays_over_a_reload_until_it_is_reset)
{
	char config[512];
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 64M\n", GM_DAEMON_CONFIG, own_uid());
	start(config);
	GM_REQUIRE_EQ(set_limit(own_uid(), 1, 32 * MiB, 0, 0), GPUMEM_OK);
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 128M\npriority = 7\n",
		GM_DAEMON_CONFIG, own_uid());
	gm_daemon_configure(&daemon_, config);
	gm_daemon_signal(&daemon_, SIGHUP);
	gm_daemon_await_notice(&daemon_, "READY=1");
	const Gm__Wire__Limit *row = limit(own_uid());
	GM_REQUIRE_EQ(row->max, 32 * MiB);
	GM_REQUIRE_EQ(row->run_time, 1);
	GM_REQUIRE_EQ(row->priority, 7);
	GM_REQUIRE_EQ(reset_limit(own_uid()), GPUMEM_OK);
	GM_REQUIRE_EQ(limit(own_uid())->max, 128 * MiB);
	GM_REQUIRE_EQ(reset_limit(own_uid()), GPUMEM_E_NOT_FOUND);
	stop();
}
END_TEST

START_TEST(limits_that_make_no_sense_change_nothing)
{
	start(NULL);
	GM_REQUIRE_EQ(set_limit(own_uid(), 3, 1 * MiB, 2 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gm_raw_detail(&ctl), "max 1.0M is below guarantee 2.0M"));
	GM_REQUIRE_EQ(set_limit(own_uid(), 2, 0, 1025 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit("client:x", 2, 0, 1 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit(own_uid(), 0, 0, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit(own_uid(), 4, 0, 0, 1001), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit(own_uid(), 8, 0, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit("uid:root!", 1, 1, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit("", 1, 1, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(set_limit("session:1", 1, 1, 0, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(reset_limit("uid:4711"), GPUMEM_E_NOT_FOUND);
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	body.owner = (char *)own_uid();
	body.device = 9;
	body.set = 1;
	GM_REQUIRE_EQ(
		gm_raw_call(&ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &body)), GPUMEM_E_NOT_FOUND);
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	GM_REQUIRE_EQ(ctl.packet->limits->n_limits, 0);
	/* Guarantees are given to one kind of owner only. */
	GM_REQUIRE_EQ(set_limit(own_uid(), 2, 0, 1 * MiB, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(set_limit("gid:1", 2, 0, 1 * MiB, 0), GPUMEM_E_INVALID);
	stop();
}
END_TEST

START_TEST(a_reload_whose_limits_contradict_the_device_changes_nothing)
{
	char config[512];
	start(NULL);
	snprintf(config, sizeof(config), "%s[limit %s]\nguarantee = 2G\n",
		GM_DAEMON_CONFIG_WITH("oom = wait\n", "1G"), own_uid());
	gm_daemon_configure(&daemon_, config);
	gm_daemon_signal(&daemon_, SIGHUP);
	gm_daemon_await_notice(&daemon_, "READY=1");
	GM_REQUIRE(logged("the configuration stays as it was"));
	GM_REQUIRE(!limit(own_uid()));
	/* oom = wait is not in force either. */
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&b, 2 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	stop();
	/* And nothing starts with it. */
	gm_daemon_prepare(&daemon_, &(struct gm_daemon_options){.config = config});
	int status = gm_daemon_spawn(&daemon_);
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	GM_REQUIRE(logged("guarantee"));
}
END_TEST

START_TEST(a_guarantee_is_kept_free_for_its_owner)
{
	start(NULL);
	GM_REQUIRE_EQ(set_limit(own_session(&b), 2, 0, 512 * MiB, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&a, 514 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gm_raw_detail(&a), "keeps 512.0M"));
	GM_REQUIRE_EQ(lease(&a, 512 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&b, 512 * MiB, NULL), GPUMEM_OK);
	stop();
}
END_TEST

static void stranger(int channel, void *argument)
{
	struct gm_raw raw;
	Gm__Wire__SetLimit set = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__ResetLimit reset = GM__WIRE__RESET_LIMIT__INIT;
	Gm__Wire__Cleanup cleanup = GM__WIRE__CLEANUP__INIT;
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	if (getuid() == 0)
		GM_REQUIRE(
			setresgid(54321, 54321, 54321) == 0 && setresuid(54321, 54321, 54321) == 0);
	gm_raw_observe(&raw, argument);
	set.owner = (char *)"uid:54321";
	set.set = 1;
	set.max = UINT64_MAX;
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(SET_LIMIT, set_limit, &set)), GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(RESET_LIMIT, reset_limit, &reset)),
		GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(CLEANUP, cleanup, &cleanup)), GPUMEM_E_DENIED);
	cleanup.dry_run = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(CLEANUP, cleanup, &cleanup)), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(who_is_no_administrator_sees_limits_and_changes_none)
{
	if (getuid() != 0)
		return; /* only root can be somebody else */
	start(NULL);
	GM_REQUIRE(chmod(daemon_.folder, 0755) == 0);
	struct gm_worker worker;
	gm_worker_start(&worker, stranger, &daemon_);
	gm_worker_join(&worker);
	stop();
}
END_TEST

/* ---- waiting */

START_TEST(a_waiting_request_is_granted_when_memory_comes_back)
{
	uint64_t held, got;
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, &held), GPUMEM_OK);
	uint64_t id = ask(&b, 100 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == 1);
	const Gm__Wire__Waiting *row = queue()->requests[0];
	GM_REQUIRE_EQ(row->session, b.session);
	GM_REQUIRE_EQ(row->bytes, 100 * MiB);
	GM_REQUIRE_EQ(row->block, GM__WIRE__BLOCK__BLOCK_DEVICE);
	GM_REQUIRE(row->left_ms > 0 && row->left_ms <= 3600000);
	GM_REQUIRE(!gm_raw_readable(b.socket));
	give(&a, held);
	GM_REQUIRE_EQ(answer(&b, id, &got), GPUMEM_OK);
	GM_REQUIRE_EQ(queue()->n_requests, 0);
	GM_REQUIRE(logged("waits: "));
	GM_REQUIRE(logged("granted 100.0M after"));
	stop();
}
END_TEST

START_TEST(a_waiting_request_is_granted_when_its_limit_is_raised)
{
	start(NULL);
	GM_REQUIRE_EQ(set_limit(own_uid(), 1, 64 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&b, 64 * MiB, NULL), GPUMEM_OK);
	uint64_t id = ask(&a, 32 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == 1);
	GM_REQUIRE_EQ(queue()->requests[0]->block, GM__WIRE__BLOCK__BLOCK_LIMIT);
	GM_REQUIRE(!strcmp(queue()->requests[0]->owner, own_uid()));
	GM_REQUIRE_EQ(set_limit(own_uid(), 1, 96 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(answer(&a, id, NULL), GPUMEM_OK);
	stop();
}
END_TEST

START_TEST(a_waiting_request_ends_when_it_is_cancelled_or_its_time_is_over)
{
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, NULL), GPUMEM_OK);
	uint64_t id = ask(&b, 2 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == 1);
	Gm__Wire__Cancel cancel = GM__WIRE__CANCEL__INIT;
	cancel.request = id + 1000;
	GM_REQUIRE_EQ(gm_raw_call(&b, GM_RAW_PACKET(CANCEL, cancel, &cancel)), GPUMEM_E_NOT_FOUND);
	cancel.request = id;
	uint64_t cancel_id = gm_raw_send(&b, GM_RAW_PACKET(CANCEL, cancel, &cancel));
	GM_REQUIRE_EQ(answer(&b, id, NULL), GPUMEM_E_CANCELLED);
	GM_REQUIRE(gm_raw_receive(&b));
	GM_REQUIRE_EQ(b.packet->id, cancel_id);
	GM_REQUIRE_EQ(b.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
	GM_REQUIRE_EQ(queue()->n_requests, 0);
	GM_REQUIRE_EQ(answer(&b, ask(&b, 2 * MiB, 1), NULL), GPUMEM_E_TIMEOUT);
	GM_REQUIRE(strstr(gm_raw_detail(&b), "waited"));
	stop();
}
END_TEST

START_TEST(a_waiting_request_goes_with_its_client)
{
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, NULL), GPUMEM_OK);
	(void)ask(&b, 2 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == 1);
	gm_raw_close(&b);
	GM_UNTIL(queue()->n_requests == 0);
	gm_raw_join(&b, &daemon_);
	stop();
}
END_TEST

START_TEST(what_could_never_be_granted_does_not_wait)
{
	start(NULL);
	GM_REQUIRE_EQ(answer(&a, ask(&a, 1025 * MiB, 3600000), NULL), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(set_limit(own_session(&a), 1, 64 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(answer(&a, ask(&a, 66 * MiB, 3600000), NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&a), "never"));
	GM_REQUIRE_EQ(queue()->n_requests, 0);
	stop();
}
END_TEST

START_TEST(two_who_hold_half_and_wait_for_more_are_told_so)
{
	uint64_t half;
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 512 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&b, 512 * MiB, &half), GPUMEM_OK);
	GM_REQUIRE_EQ(set_limit(own_session(&a), 4, 0, 0, 5), GPUMEM_OK);
	uint64_t of_a = ask(&a, 256 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == 1);
	uint64_t of_b = ask(&b, 256 * MiB, 3600000);
	GM_REQUIRE_EQ(answer(&b, of_b, NULL), GPUMEM_E_DEADLOCK);
	give(&b, half);
	GM_REQUIRE_EQ(answer(&a, of_a, NULL), GPUMEM_OK);
	stop();
}
END_TEST

START_TEST(a_client_with_many_waiting_requests_can_still_return_memory)
{
	GM_LIMIT_TEST(WAITING_PER_CLIENT);
	uint64_t held, ids[GM_LIMIT_WAITING_PER_CLIENT], half;
	start(NULL);
	GM_REQUIRE_EQ(lease(&b, 512 * MiB, &half), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&a, 512 * MiB, &held), GPUMEM_OK);
	for (int i = 0; i < GM_LIMIT_WAITING_PER_CLIENT; i++)
		ids[i] = ask(&a, 2 * MiB, 3600000);
	GM_UNTIL(queue()->n_requests == GM_LIMIT_WAITING_PER_CLIENT);
	uint64_t more = ask(&a, 2 * MiB, 3600000);
	GM_REQUIRE_EQ(answer(&a, more, NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&a), "wait already"));
	give(&b, half);
	for (int i = 0; i < GM_LIMIT_WAITING_PER_CLIENT; i++)
		GM_REQUIRE_EQ(answer(&a, ids[i], NULL), GPUMEM_OK);
	give(&a, held);
	stop();
}
END_TEST

START_TEST(requests_that_do_not_say_wait_where_the_daemon_is_told_so)
{
	uint64_t held;
	start(GM_DAEMON_CONFIG_WITH("oom = wait\noom_wait = 1h\n", "1G"));
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, &held), GPUMEM_OK);
	uint64_t id = ask(&b, 2 * MiB, 0);
	GM_UNTIL(queue()->n_requests == 1);
	/* One that says that it does not, does not. */
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = 2 * MiB;
	body.no_wait = true;
	struct gm_raw c;
	gm_raw_join(&c, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&c, GM_RAW_PACKET(LEASE, lease, &body)), GPUMEM_E_NO_MEMORY);
	gm_raw_close(&c);
	give(&a, held);
	GM_REQUIRE_EQ(answer(&b, id, NULL), GPUMEM_OK);
	stop();
}
END_TEST

/* ---- getting memory back */

/* Says in its page that so much of what it holds is not in use. */
static void claim_cached(struct gm_raw *raw, uint64_t bytes)
{
	struct gm_page_use use = {.cached = bytes};
	GM_REQUIRE_EQ(
		pwrite(raw->client_page, &use, sizeof(use), offsetof(struct gm_page_client, use)),
		(long long)sizeof(use));
}

static void await_reclaim(struct gm_raw *raw)
{
	do
		GM_REQUIRE(gm_raw_receive_event(raw));
	while (raw->packet->body_case != GM__WIRE__PACKET__BODY_RECLAIM_EVENT);
}

START_TEST(a_request_that_does_not_fit_gets_what_another_one_caches)
{
	uint64_t idle;
	start(GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"));
	GM_REQUIRE_EQ(lease(&a, 300 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&a, 300 * MiB, &idle), GPUMEM_OK);
	claim_cached(&a, 300 * MiB);
	/* It does not wait for long: only for those who were asked. */
	uint64_t id = ask(&b, 600 * MiB, 0);
	await_reclaim(&a);
	GM_REQUIRE(a.packet->reclaim_event->bytes >= 176 * MiB);
	give(&a, idle);
	GM_REQUIRE_EQ(answer(&b, id, NULL), GPUMEM_OK);
	stop();
}
END_TEST

START_TEST(a_client_that_ignores_what_it_is_asked_holds_nobody_up)
{
	start(NULL);
	GM_REQUIRE_EQ(lease(&a, 900 * MiB, NULL), GPUMEM_OK);
	claim_cached(&a, 900 * MiB);
	GM_REQUIRE_EQ(lease(&b, 600 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_UNTIL(logged("did not return"));
	/* What it holds is its own all the same. */
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 900 * MiB);
	GM_REQUIRE_EQ(lease(&b, 100 * MiB, NULL), GPUMEM_OK);
	stop();
}
END_TEST

struct plan {
	size_t n;
	uint64_t sessions[16], bytes[16], planned;
	int rungs[16];
	bool done, reached;
	uint64_t freed;
};

static gpumem_status cleanup(uint64_t need, bool dry_run, struct plan *ret)
{
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.need = need;
	body.dry_run = dry_run;
	memset(ret, 0, sizeof(*ret));
	gpumem_status status = gm_raw_call(&ctl, GM_RAW_PACKET(CLEANUP, cleanup, &body));
	if (status != GPUMEM_OK)
		return status;
	for (;;) {
		GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_CLEANUP_REPLY);
		const Gm__Wire__CleanupReply *reply = ctl.packet->cleanup_reply;
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
			ret->rungs[ret->n] = (int)reply->steps[i]->rung;
		}
		if (!ctl.packet->more)
			return GPUMEM_OK;
		/* Between the plan and its end the clients are asked: here they answer. */
		while (gm_raw_readable(a.events)) {
			GM_REQUIRE(gm_raw_receive_event(&a));
		}
		GM_REQUIRE(gm_raw_receive(&ctl));
	}
}

static void idle_client(int channel, void *argument)
{
	struct gm_raw raw;
	uint64_t id;
	gm_raw_join(&raw, argument);
	GM_REQUIRE_EQ(lease(&raw, 200 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&raw, 100 * MiB, &id), GPUMEM_OK);
	claim_cached(&raw, 100 * MiB);
	gm_say(channel, &raw.session, sizeof(raw.session));
	await_reclaim(&raw);
	give(&raw, id);
	gm_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

START_TEST(a_dry_run_names_the_same_victims_as_the_real_one)
{
	struct gm_worker worker;
	uint64_t pooled, session;
	struct plan dry, real;
	start(GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"));
	gm_worker_start(&worker, idle_client, &daemon_);
	gm_hear(worker.channel, &session, sizeof(session));
	GM_REQUIRE_EQ(lease(&a, 50 * MiB, &pooled), GPUMEM_OK);
	give(&a, pooled);
	struct gm_figures before = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(cleanup(0, true, &dry), GPUMEM_OK);
	GM_REQUIRE(!dry.done);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, before.pooled);
	GM_REQUIRE_EQ(cleanup(0, false, &real), GPUMEM_OK);
	GM_REQUIRE_EQ(dry.n, real.n);
	GM_REQUIRE_EQ(dry.planned, real.planned);
	GM_REQUIRE(memcmp(dry.sessions, real.sessions, sizeof(dry.sessions)) == 0);
	GM_REQUIRE(memcmp(dry.bytes, real.bytes, sizeof(dry.bytes)) == 0);
	GM_REQUIRE(memcmp(dry.rungs, real.rungs, sizeof(dry.rungs)) == 0);
	GM_REQUIRE(real.n >= 2);
	GM_REQUIRE_EQ(real.sessions[0], 0);
	GM_REQUIRE_EQ(real.bytes[0], before.pooled);
	GM_REQUIRE_EQ(real.sessions[1], session);
	GM_REQUIRE_EQ(real.bytes[1], 100 * MiB);
	gm_hear_word(worker.channel, 'd');
	GM_REQUIRE(real.done && real.reached);
	GM_REQUIRE_EQ(real.freed, before.pooled + 100 * MiB);
	/* Destroyed, not pooled. */
	GM_UNTIL(gm_figures_now(&daemon_).pooled == 0);
	/* More than there is: said, and nothing done. */
	GM_REQUIRE_EQ(cleanup(2048 * MiB, false, &real), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(cleanup(2048 * MiB, true, &real), GPUMEM_E_NO_MEMORY);
	/* Nothing to do: done at once. */
	GM_REQUIRE_EQ(cleanup(1 * MiB, false, &real), GPUMEM_OK);
	GM_REQUIRE(real.done && real.reached && real.n == 0);
	Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.device = 7;
	GM_REQUIRE_EQ(
		gm_raw_call(&ctl, GM_RAW_PACKET(CLEANUP, cleanup, &body)), GPUMEM_E_NOT_FOUND);
	gm_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	stop();
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
	GM_REQUIRE_EQ(lease(&raw, eater->bytes, NULL), GPUMEM_OK);
	gm_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

static void last_rung(bool stubborn, int signal)
{
	struct gm_worker low, high;
	struct eater little = {&daemon_, 600 * MiB, "low", stubborn},
		     much = {&daemon_, 400 * MiB, "high", false};
	int status;
	start(GM_DAEMON_CONFIG_WITH("oom = terminate\nafter_action = 1ms\nreclaim_deadline = 1ms\n"
				    "terminate_grace = 50ms\n",
		"1G") "[limit client:low]\npriority = -10\n");
	gm_worker_start(&low, eat, &little);
	gm_hear_word(low.channel, 'h');
	gm_worker_start(&high, eat, &much);
	gm_hear_word(high.channel, 'h');
	/* Of two, neither of whom gives anything back, the one of lower priority goes. */
	GM_REQUIRE_EQ(waitpid(low.pid, &status, 0), low.pid);
	GM_REQUIRE(WIFSIGNALED(status));
	GM_REQUIRE_EQ(WTERMSIG(status), signal);
	close(low.channel);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 400 * MiB);
	GM_REQUIRE(logged("is terminated"));
	gm_say_word(high.channel, 'e');
	gm_worker_join(&high);
	stop();
}

START_TEST(the_client_of_the_lowest_priority_is_ended_where_the_administrator_chose_so)
{
	last_rung(false, SIGTERM);
}
END_TEST

START_TEST(a_client_that_does_not_end_by_itself_is_killed)
{
	last_rung(true, SIGKILL);
}
END_TEST

/* ---- watching */

static const Gm__Wire__NoticeEvent *next_notice(struct gm_raw *raw, const char *kind)
{
	do
		GM_REQUIRE(gm_raw_receive(raw));
	while (raw->packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT ||
		strcmp(raw->packet->notice_event->kind, kind) != 0);
	GM_REQUIRE_EQ(raw->packet->id, 0);
	return raw->packet->notice_event;
}

START_TEST(who_watches_hears_what_happens)
{
	uint64_t held;
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	start(NULL);
	gm_raw_observe(&eye, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&eye, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_OK);
	GM_REQUIRE(gm_raw_receive(&eye));
	GM_REQUIRE_EQ(eye.packet->body_case, GM__WIRE__PACKET__BODY_PRESSURE_EVENT);
	GM_REQUIRE_EQ(eye.packet->pressure_event->level, 0);
	GM_REQUIRE_EQ(gm_raw_call(&eye, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(lease(&a, 1024 * MiB, &held), GPUMEM_OK);
	do
		GM_REQUIRE(gm_raw_receive(&eye));
	while (eye.packet->body_case != GM__WIRE__PACKET__BODY_PRESSURE_EVENT ||
		eye.packet->pressure_event->level != 3);
	uint64_t id = ask(&b, 2 * MiB, 3600000);
	const Gm__Wire__NoticeEvent *notice = next_notice(&eye, "queued");
	GM_REQUIRE_EQ(notice->session, b.session);
	GM_REQUIRE_EQ(notice->pid, getpid());
	GM_REQUIRE_EQ(notice->asked, 2 * MiB);
	GM_REQUIRE(notice->text[0]);
	give(&a, held);
	GM_REQUIRE_EQ(answer(&b, id, NULL), GPUMEM_OK);
	notice = next_notice(&eye, "granted");
	GM_REQUIRE_EQ(notice->session, b.session);
	GM_REQUIRE_EQ(set_limit(own_session(&b), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	notice = next_notice(&eye, "limits");
	GM_REQUIRE(strstr(notice->text, "max 2.0M"));
	GM_REQUIRE_EQ(lease(&b, 2 * MiB, NULL), GPUMEM_E_LIMIT);
	notice = next_notice(&eye, "limit");
	GM_REQUIRE_EQ(notice->max, 2 * MiB);
	GM_REQUIRE_EQ(notice->held, 2 * MiB);
	gm_raw_close(&a);
	gm_raw_close(&b);
	gm_raw_close(&ctl);
	gm_daemon_stop(&daemon_);
	do
		GM_REQUIRE(gm_raw_receive(&eye));
	while (eye.packet->body_case != GM__WIRE__PACKET__BODY_GOODBYE_EVENT);
	gm_raw_close(&eye);
}
END_TEST

START_TEST(who_watches_and_does_not_read_is_dropped_and_disturbs_nobody)
{
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	start(NULL);
	gm_raw_observe(&eye, &daemon_);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	GM_REQUIRE_EQ(set_limit(own_session(&a), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	for (int i = 0; i < 12000; i++)
		GM_REQUIRE_EQ(lease(&a, 4 * MiB, NULL), GPUMEM_E_LIMIT);
	GM_UNTIL(logged("does not read its answers"));
	/* A line a second about one client, however often it runs against its limit. */
	char *log = gm_daemon_log(&daemon_);
	GM_REQUIRE(strlen(log) < 256 * 1024);
	free(log);
	GM_REQUIRE_EQ(lease(&b, 4 * MiB, NULL), GPUMEM_OK);
	gm_raw_close(&eye);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shortage");
	TCase *limits = tcase_create("limits");
	tcase_set_timeout(limits, 120);
	tcase_add_test(limits, a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked);
	tcase_add_test(limits, a_limit_set_below_what_is_held_is_accepted_and_shown_as_over);
	tcase_add_test(limits, what_is_set_at_run_time_stays_over_a_reload_until_it_is_reset);
	tcase_add_test(limits, limits_that_make_no_sense_change_nothing);
	tcase_add_test(limits, a_reload_whose_limits_contradict_the_device_changes_nothing);
	tcase_add_test(limits, a_guarantee_is_kept_free_for_its_owner);
	tcase_add_test(limits, who_is_no_administrator_sees_limits_and_changes_none);
	suite_add_tcase(suite, limits);
	TCase *waiting = tcase_create("waiting");
	tcase_set_timeout(waiting, 120);
	tcase_add_test(waiting, a_waiting_request_is_granted_when_memory_comes_back);
	tcase_add_test(waiting, a_waiting_request_is_granted_when_its_limit_is_raised);
	tcase_add_test(waiting, a_waiting_request_ends_when_it_is_cancelled_or_its_time_is_over);
	tcase_add_test(waiting, a_waiting_request_goes_with_its_client);
	tcase_add_test(waiting, what_could_never_be_granted_does_not_wait);
	tcase_add_test(waiting, two_who_hold_half_and_wait_for_more_are_told_so);
	tcase_add_test(waiting, a_client_with_many_waiting_requests_can_still_return_memory);
	tcase_add_test(waiting, requests_that_do_not_say_wait_where_the_daemon_is_told_so);
	suite_add_tcase(suite, waiting);
	TCase *ladder = tcase_create("ladder");
	tcase_set_timeout(ladder, 120);
	tcase_add_test(ladder, a_request_that_does_not_fit_gets_what_another_one_caches);
	tcase_add_test(ladder, a_client_that_ignores_what_it_is_asked_holds_nobody_up);
	tcase_add_test(ladder, a_dry_run_names_the_same_victims_as_the_real_one);
	tcase_add_test(ladder,
		the_client_of_the_lowest_priority_is_ended_where_the_administrator_chose_so);
	tcase_add_test(ladder, a_client_that_does_not_end_by_itself_is_killed);
	suite_add_tcase(suite, ladder);
	TCase *watching = tcase_create("watching");
	tcase_set_timeout(watching, 120);
	tcase_add_test(watching, who_watches_hears_what_happens);
	tcase_add_test(watching, who_watches_and_does_not_read_is_dropped_and_disturbs_nobody);
	suite_add_tcase(suite, watching);
	return gm_tap_run(suite);
}
