/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * How often a call counts: once, however often the library has to ask. And a client that says it asks
 * again cannot hide that it is refused all the time.
 */

#include "gpumem/gpumem.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"
#include "tests/bound.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_daemon daemon_;
static struct gm_figures before;

static void start(void)
{
	char config[512];

	snprintf(config, sizeof(config), "%s[limit uid:%u]\nmax = 600M\n",
		GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1ms\n", "1G"), getuid());
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	before = gm_figures_now(&daemon_);
}

/* So many requests and refusals came since this was last called. */
static void counted(uint64_t requests, uint64_t refusals)
{
	struct gm_figures now = gm_figures_now(&daemon_);

	if (now.requests - before.requests != requests ||
		now.refusals - before.refusals != refusals)
		GM_FAIL("%llu requests and %llu refusals",
			(unsigned long long)(now.requests - before.requests),
			(unsigned long long)(now.refusals - before.refusals));
	before = now;
}

/* ---- through the library */

static gpumem_status alloc(gpumem_session *session, uint64_t bytes, uint32_t wait_ms)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;

	options.wait_ms = wait_ms;
	return gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, &options, &ptr);
}

/* The page of the library's session does not say yet that somebody else has the memory. */
START_TEST(a_call_that_fails_behind_a_race_counts_once)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	start();
	options.socket = daemon_.socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(alloc(session, 512 * MiB, 0), GPUMEM_OK);
	counted(1, 0);
	for (uint32_t wait_ms = 0; wait_ms < 3; wait_ms++) {
		GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 80 * MiB, &lease), GPUMEM_OK);
		gpumem_status status = alloc(session, 10 * MiB, wait_ms);
		GM_REQUIRE(status == GPUMEM_E_LIMIT || status == GPUMEM_E_TIMEOUT);
		/* That of the other client, too. */
		counted(2, 1);
		GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	}
	/* What was refused before does not hide the next call. */
	GM_REQUIRE_EQ(alloc(session, 10 * MiB, 0), GPUMEM_OK);
	counted(1, 0);
	gpumem_disconnect(session);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon_);
}
END_TEST

/* ---- by the wire */

/* Asks for more than may be had. Returns the id of the request, which is refused. */
static uint64_t refused_at(struct gm_raw *raw, uint64_t bytes, uint64_t again_of)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;

	body.bytes = bytes;
	body.tag = (char *)"";
	body.again_of = again_of;
	uint64_t id = gm_raw_send(raw, GM_RAW_PACKET(LEASE, lease, &body));
	do
		GM_REQUIRE(gm_raw_receive(raw));
	while (raw->packet->id != id);
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	return id;
}

static uint64_t refused(struct gm_raw *raw, uint64_t again_of)
{
	return refused_at(raw, 602 * MiB, again_of);
}

/* The next that a watcher hears about a limit is this. */
static void is_told(struct gm_raw *watcher, uint64_t asked)
{
	do
		GM_REQUIRE(gm_raw_receive(watcher));
	while (watcher->packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT ||
		strcmp(watcher->packet->notice_event->kind, "limit") != 0);
	GM_REQUIRE_EQ(watcher->packet->notice_event->asked, asked);
}

START_TEST(a_request_that_is_made_again_is_told_to_nobody)
{
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	struct gm_raw raw, watcher;

	start();
	gm_raw_join(&raw, &daemon_);
	gm_raw_observe(&watcher, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&watcher, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_OK);
	uint64_t first = refused_at(&raw, 608 * MiB, 0);
	refused_at(&raw, 606 * MiB, first);
	refused_at(&raw, 604 * MiB, 0);
	is_told(&watcher, 608 * MiB);
	is_told(&watcher, 604 * MiB);
	gm_raw_close(&watcher);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(a_request_that_is_made_again_counts_with_the_first)
{
	struct gm_raw raw, other;

	start();
	gm_raw_join(&raw, &daemon_);
	gm_raw_join(&other, &daemon_);
	uint64_t first = refused(&raw, 0), second = refused(&raw, first);
	counted(1, 1);
	refused(&raw, second);
	counted(0, 0);
	/* Each refusal is followed by one at most. */
	refused(&raw, first);
	counted(1, 1);
	/* Nor can one follow a request that was never made, or another client's. */
	refused(&raw, 4711);
	first = refused(&raw, 0);
	refused(&other, first);
	counted(3, 3);
	gm_raw_close(&other);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(nobody_hides_refusals_by_asking_again_for_ever)
{
	struct gm_raw raw;
	uint64_t id = 0;

	GM_BOUND_TEST(REPEATS);
	start();
	gm_raw_join(&raw, &daemon_);
	for (int i = 0; i < 10 * (GM_BOUND_REPEATS + 1); i++)
		id = refused(&raw, id);
	counted(10, 10);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(several_threads_may_ask_again_at_once)
{
	struct gm_raw raw;
	uint64_t ids[8];

	start();
	gm_raw_join(&raw, &daemon_);
	for (int i = 0; i < 8; i++)
		ids[i] = refused(&raw, 0);
	counted(8, 8);
	for (int i = 0; i < 8; i++)
		refused(&raw, ids[i]);
	counted(0, 0);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon_);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("counts");
	TCase *tests = tcase_create("counts");

	tcase_add_test(tests, a_call_that_fails_behind_a_race_counts_once);
	tcase_add_test(tests, a_request_that_is_made_again_counts_with_the_first);
	tcase_add_test(tests, a_request_that_is_made_again_is_told_to_nobody);
	tcase_add_test(tests, nobody_hides_refusals_by_asking_again_for_ever);
	tcase_add_test(tests, several_threads_may_ask_again_at_once);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
