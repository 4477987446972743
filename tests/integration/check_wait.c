/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs that wait for memory through the library, and give back what they cache when it is
 * wanted: two real processes against a daemon.
 */

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "gpumem/gpumem.h"
#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_region.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_daemon daemon_;

static gpumem_session *join(const struct gm_daemon *daemon)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;
	options.socket = daemon->socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	return session;
}

static void *alloc(gpumem_session *session, uint64_t bytes, uint32_t wait_ms, gpumem_status want)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr = NULL;
	options.wait_ms = wait_ms;
	gpumem_status status = gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, &options, &ptr);
	if (status != want)
		GM_FAIL("%s: %s", gpumem_status_text(status), gpumem_error_detail());
	return ptr;
}

/* Holds memory, and frees it when told. */
static void holder(int channel, void *argument)
{
	gpumem_session *session = join(&daemon_);
	void *ptr = alloc(session, *(uint64_t *)argument, 0, GPUMEM_OK);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'f');
	GM_REQUIRE_EQ(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void waiter(int channel, void *argument)
{
	gpumem_session *session = join(&daemon_);
	char *ptr = alloc(session, *(uint64_t *)argument, GPUMEM_WAIT_FOREVER, GPUMEM_OK);
	gm_device_set(ptr, *(uint64_t *)argument, 'w');
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void buffer_waiter(int channel, void *argument)
{
	gpumem_session *session = join(&daemon_);
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.wait_ms = 3600000;
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, *(uint64_t *)argument, &options, &buffer),
		GPUMEM_OK);
	gm_device_set(gpumem_buffer_ptr(buffer), gpumem_buffer_size(buffer), 'b');
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void wait_for_free(gm_worker_fn fn)
{
	uint64_t all = 60 * MiB, some = 20 * MiB;
	struct gm_worker a, b;
	/* What is freed stays cached for an hour, unless it is wanted. */
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){
					  .config = GM_DAEMON_CONFIG_WITH("decay = 1h\n", "64M")});
	gm_worker_start(&a, holder, &all);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, fn, &some);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gm_text_say_word(a.channel, 'f');
	gm_hear_word(a.channel, 'f');
	gm_hear_word(b.channel, 'w');
	gm_text_say_word(a.channel, 'e');
	gm_text_say_word(b.channel, 'e');
	gm_worker_join(&a);
	gm_worker_join(&b);
	gm_daemon_stop(&daemon_);
}

START_TEST(an_alloc_that_waits_gets_what_another_process_frees)
{
	wait_for_free(waiter);
}
END_TEST

START_TEST(a_buffer_that_waits_gets_what_another_process_frees)
{
	wait_for_free(buffer_waiter);
}
END_TEST

/* ---- a daemon that lets requests wait that do not say how long */

struct party {
	gpumem_session *session;
	uint64_t bytes;
	void *ptr;
};

static void *ask_plainly(void *ctx)
{
	struct party *party = ctx;
	party->ptr = alloc(party->session, party->bytes, 0, GPUMEM_OK);
	return NULL;
}

/* One thread waits as the daemon is configured. The other one is in a hurry. */
static void two_threads(int channel, void *argument)
{
	bool later = *(bool *)argument;
	/* It leaves room in its last chunk for what the other one wants. */
	struct party party = {.session = join(&daemon_), .bytes = 19 * MiB};
	pthread_t thread;
	if (later)
		(void)alloc(party.session, 2 * MiB, 0, GPUMEM_OK);
	GM_REQUIRE(pthread_create(&thread, NULL, ask_plainly, &party) == 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	(void)alloc(party.session, 64 << 10, 1, GPUMEM_E_TIMEOUT);
	gm_text_say_word(channel, 't');
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	gm_device_set(party.ptr, party.bytes, 't');
	gpumem_disconnect(party.session);
}

START_TEST(who_waits_as_the_daemon_is_configured_holds_up_no_other_thread)
{
	bool later = _i;
	uint64_t all = later ? 62 * MiB : 64 * MiB;
	struct gm_worker a, b;
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("oom = wait\noom_wait = 1h\n", "64M")});
	gm_worker_start(&a, holder, &all);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, two_threads, &later);
	gm_hear_word(b.channel, 't');
	gm_text_say_word(a.channel, 'f');
	gm_hear_word(a.channel, 'f');
	gm_text_say_word(a.channel, 'e');
	gm_worker_join(&a);
	gm_worker_join(&b);
	gm_daemon_stop(&daemon_);
}
END_TEST

/* ---- calls that must not wait, although the daemon would let them */

static gpumem_status hasty_alloc(gpumem_session *session, uint64_t bytes)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;

	options.wait_ms = GPUMEM_NO_WAIT;
	return gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, &options, &ptr);
}

static gpumem_status hasty_request(gpumem_session *session, uint64_t bytes)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_request *request;
	void *ptr;

	options.wait_ms = GPUMEM_NO_WAIT;
	GM_REQUIRE_EQ(gpumem_alloc_begin(session, 0, bytes, GPUMEM_STREAM_ANY, &options, &request),
		GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_request_wait(request, GPUMEM_NO_WAIT), GPUMEM_OK);
	return gpumem_alloc_take(request, &ptr);
}

static gpumem_status hasty_buffer(gpumem_session *session, uint64_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;

	options.wait_ms = GPUMEM_NO_WAIT;
	return gpumem_buffer_create(session, 0, bytes, &options, &buffer);
}

static gpumem_status hasty_buffer_request(gpumem_session *session, uint64_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request;
	gpumem_buffer *buffer;

	options.wait_ms = GPUMEM_NO_WAIT;
	GM_REQUIRE_EQ(gpumem_buffer_create_begin(session, 0, bytes, &options, &request), GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	return gpumem_buffer_take(request, &buffer);
}

static gpumem_status hasty_region(gpumem_session *session, uint64_t bytes)
{
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region *region;

	options.initial = bytes;
	options.wait_ms = GPUMEM_NO_WAIT;
	return gpumem_region_create(session, 0, "kv", 2 * bytes, &options, &region);
}

static gpumem_status hasty_declaration(gpumem_session *session, uint64_t bytes)
{
	return gpumem_declare(session, 0, bytes, GPUMEM_NO_WAIT);
}

static gpumem_status (*const hasty[])(gpumem_session *, uint64_t) = {hasty_alloc, hasty_request,
	hasty_buffer, hasty_buffer_request, hasty_region, hasty_declaration};
#define HASTY (sizeof(hasty) / sizeof(*hasty))

/* Makes each of these calls, of which none may succeed or wait. */
static void require_hasty(gpumem_session *session, gpumem_status want)
{
	for (size_t i = 0; i < HASTY; i++) {
		gpumem_status status = hasty[i](session, 20 * MiB);
		if (status != want)
			GM_FAIL("call %zu: %s: %s", i, gpumem_status_text(status),
				gpumem_error_detail());
	}
}

static void in_a_hurry(int channel, void *argument)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;

	options.socket = daemon_.socket;
	options.away_ms = 3600000;
	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	require_hasty(session, GPUMEM_E_NO_MEMORY);
	gm_text_say_word(channel, 'n');
	gm_hear_word(channel, 'f');
	/* What the other process only caches comes back first, once the daemon knows of it. */
	GM_UNTIL(hasty_buffer(session, 20 * MiB) == GPUMEM_OK);
	gm_text_say_word(channel, 'c');
	gm_hear_word(channel, 'k');
	require_hasty(session, GPUMEM_E_DISCONNECTED);
	gm_text_say_word(channel, 'a');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

START_TEST(who_must_not_wait_waits_neither_for_memory_nor_for_the_daemon)
{
	uint64_t all = 60 * MiB;
	struct gm_worker a, b;

	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH(
					  "oom = wait\noom_wait = 1h\ndecay = 1h\n", "64M")});
	gm_worker_start(&a, holder, &all);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, in_a_hurry, NULL);
	gm_hear_word(b.channel, 'n');
	gm_text_say_word(a.channel, 'f');
	gm_hear_word(a.channel, 'f');
	gm_text_say_word(b.channel, 'f');
	gm_hear_word(b.channel, 'c');
	gm_daemon_kill(&daemon_);
	gm_text_say_word(b.channel, 'k');
	gm_hear_word(b.channel, 'a');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_text_say_word(a.channel, 'e');
	gm_text_say_word(b.channel, 'e');
	gm_worker_join(&a);
	gm_worker_join(&b);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(waiting_ends_with_the_reason)
{
	uint64_t all = 60 * MiB;
	struct gm_worker a;
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "64M")});
	gm_worker_start(&a, holder, &all);
	gm_hear_word(a.channel, 'h');
	gpumem_session *session = join(&daemon_);
	(void)alloc(session, 20 * MiB, 0, GPUMEM_E_NO_MEMORY);
	(void)alloc(session, 20 * MiB, 1, GPUMEM_E_TIMEOUT);
	GM_REQUIRE(strstr(gpumem_error_detail(), "waited"));
	/* More than could ever be: at once. */
	(void)alloc(session, 65 * MiB, GPUMEM_WAIT_FOREVER, GPUMEM_E_NO_MEMORY);
	/* What fits does not wait, and what was refused left nothing behind. */
	void *ptr = alloc(session, 2 * MiB, GPUMEM_WAIT_FOREVER, GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	GM_REQUIRE_EQ(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	GM_REQUIRE_EQ(stats.in_use, 0);
	gm_text_say_word(a.channel, 'f');
	gm_hear_word(a.channel, 'f');
	gm_text_say_word(a.channel, 'e');
	gm_worker_join(&a);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
}
END_TEST

/* Asks in vain, and says that this was one request and one refusal. */
static void hopeless(gpumem_session *session, uint64_t bytes, uint32_t wait_ms, bool buffer,
	gpumem_status want, const char *why)
{
	struct gm_figures before = gm_figures_now(&daemon_);
	if (buffer) {
		gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
		gpumem_buffer *none;
		options.wait_ms = wait_ms;
		GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, bytes, &options, &none), want);
	} else {
		(void)alloc(session, bytes, wait_ms, want);
	}
	if (!strstr(gpumem_error_detail(), why))
		GM_FAIL("not \"%s\" but: %s", why, gpumem_error_detail());
	struct gm_figures after = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(after.requests, before.requests + 1);
	GM_REQUIRE_EQ(after.refusals, before.refusals + 1);
	GM_REQUIRE_EQ(after.leased, before.leased);
}

START_TEST(what_can_never_be_had_is_one_request_and_costs_no_cache)
{
	static const uint32_t waits[] = {0, 3600000, GPUMEM_WAIT_FOREVER};
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("decay = 1h\n[limit client:small]\n"
							"max = 16M\n",
				"64M")});
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session = join(&daemon_), *small;
	options.socket = daemon_.socket;
	options.name = "small";
	GM_REQUIRE_EQ(gpumem_connect(&options, &small), GPUMEM_OK);
	/* Something is cached, which a trim would give back. */
	void *ptr = alloc(session, 40 * MiB, 0, GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	for (int i = 0; i < 6; i++) {
		hopeless(session, 1024 * 1024 * MiB, waits[i / 2], i % 2, GPUMEM_E_NO_MEMORY,
			"asked for 1.0T, which it can never give");
		hopeless(session, 66 * MiB, waits[i / 2], i % 2, GPUMEM_E_NO_MEMORY,
			"asked for 66.0M, which it can never give");
		hopeless(small, 18 * MiB, waits[i / 2], i % 2, GPUMEM_E_LIMIT,
			"asked for 18.0M, which it can never have");
	}
	GM_REQUIRE_EQ(gm_queue_wait(&daemon_), 0);
	gpumem_disconnect(small);
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
}
END_TEST

/* Holds half, and waits for more than the other half. */
static void greedy(int channel, void *argument)
{
	gpumem_session *session = join(&daemon_);
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *half = alloc(session, 32 * MiB, 0, GPUMEM_OK), *more;
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'm');
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	gpumem_status status =
		gpumem_alloc(session, 0, 16 * MiB, GPUMEM_STREAM_ANY, &options, &more);
	if (status == GPUMEM_E_DEADLOCK) {
		gm_text_say_word(channel, 'd');
		GM_REQUIRE_EQ(gpumem_free(session, half, GPUMEM_STREAM_DONE), GPUMEM_OK);
	} else {
		GM_REQUIRE_EQ(status, GPUMEM_OK);
		gm_text_say_word(channel, 'g');
	}
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

START_TEST(of_two_who_hold_half_and_wait_one_is_told_and_the_other_served)
{
	struct gm_worker a, b;
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("deadlock_after = 50ms\n", "64M")});
	gm_worker_start(&a, greedy, NULL);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, greedy, NULL);
	gm_hear_word(b.channel, 'h');
	gm_text_say_word(a.channel, 'm');
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gm_text_say_word(b.channel, 'm');
	gm_hear_word(b.channel, 'd');
	gm_hear_word(a.channel, 'g');
	gm_text_say_word(a.channel, 'e');
	gm_text_say_word(b.channel, 'e');
	gm_worker_join(&a);
	gm_worker_join(&b);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(a_waiting_process_that_is_killed_leaves_nothing)
{
	uint64_t all = 60 * MiB, some = 20 * MiB;
	struct gm_worker a, b;
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "64M")});
	gm_worker_start(&a, holder, &all);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, waiter, &some);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gm_worker_kill(&b);
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	gm_text_say_word(a.channel, 'f');
	gm_hear_word(a.channel, 'f');
	gm_text_say_word(a.channel, 'e');
	gm_worker_join(&a);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	gm_daemon_stop(&daemon_);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wait");
	TCase *tcase = tcase_create("wait");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, an_alloc_that_waits_gets_what_another_process_frees);
	tcase_add_test(tcase, a_buffer_that_waits_gets_what_another_process_frees);
	tcase_add_loop_test(
		tcase, who_waits_as_the_daemon_is_configured_holds_up_no_other_thread, 0, 2);
	tcase_add_test(tcase, who_must_not_wait_waits_neither_for_memory_nor_for_the_daemon);
	tcase_add_test(tcase, waiting_ends_with_the_reason);
	tcase_add_test(tcase, what_can_never_be_had_is_one_request_and_costs_no_cache);
	tcase_add_test(tcase, of_two_who_hold_half_and_wait_one_is_told_and_the_other_served);
	tcase_add_test(tcase, a_waiting_process_that_is_killed_leaves_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
