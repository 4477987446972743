/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A user who has as much as a user may have: of buffers that outlive their makers, and of requests
 * that wait. All of it goes through the library, with processes of several users. What is past the
 * bound is refused, and another user does not notice.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/client_fixture.h"
#include "tests/bound.h"
#include "tests/tap.h"

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

#define FOREVER GPUMEM_WAIT_FOREVER

static uint64_t held_now(void)
{
	struct gm_figures f = gm_figures_now(&daemon_);
	return f.leased + f.quarantined + f.orphaned + f.admitted;
}

/* Everything is back, and the daemon ends. */
static void tear_down_books(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	/* What was on its way to a client that died is gone a moment later. */
	GM_UNTIL(held_now() == 0);
	gm_daemon_stop(&daemon_);
}

static void run(gm_worker_fn fn, void *result, size_t n)
{
	struct gm_worker worker;
	gm_worker_start(&worker, fn, NULL);
	if (n)
		gm_hear(worker.channel, result, n);
	gm_worker_join(&worker);
}

/* ---- buffers that outlive their makers */

/* Each of these buffers has a chunk of its own, and the daemon a descriptor of each. This daemon
 * may not have many: that bounds them, before GM_BOUND_NAMES does. */
#define DAEMON_FDS 4096

static gpumem_status publish_one(gpumem_session *s, const char *name, bool replace)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	gpumem_status status = gpumem_buffer_create(s, 0, 1, NULL, &buffer);
	if (status != GPUMEM_OK)
		return status;
	options.replace = replace;
	status = gpumem_publish(buffer, name, &options, GPUMEM_STREAM_DONE, NULL);
	gpumem_buffer_destroy(buffer);
	return status;
}

/* Publishes names from this one on until it is refused. Returns the first that was refused. */
static uint64_t publish_from(gpumem_session *s, uint64_t n)
{
	gpumem_status status;
	char name[32];

	for (;; n++) {
		snprintf(name, sizeof(name), "name %llu", (unsigned long long)n);
		status = publish_one(s, name, false);
		if (status != GPUMEM_OK)
			break;
	}
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	if (!strstr(gpumem_error_detail(), "user 64999") ||
		!strstr(gpumem_error_detail(), "others"))
		GM_FAIL("%s", gpumem_error_detail());
	return n;
}

static void publish_all(int channel, void *argument)
{
	gm_become_stranger();
	gpumem_session *s = join("publisher");
	uint64_t n = publish_from(s, 0);
	gm_text_say(channel, &n, sizeof(n));
	gpumem_disconnect(s);
}

/* The user has all it may have, whichever of its processes asks. If it removes some,
 * it can go on. */
static void publish_past(int channel, void *argument)
{
	enum { SOME = 20 };
	char name[32];

	gm_become_stranger();
	gpumem_session *s = join("publisher");
	GM_REQUIRE_EQ(publish_from(s, DAEMON_FDS), DAEMON_FDS);
	for (int i = 1; i <= SOME; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		OK(gpumem_unpublish(s, name));
	}
	OK(publish_one(s, "name 0", true));
	uint64_t n = publish_from(s, 1);
	GM_REQUIRE(n > 1 && n <= SOME + 1);
	gpumem_disconnect(s);
}

static void publish_as_another(int channel, void *argument)
{
	gpumem_buffer *buffer = NULL;
	gpumem_session *s = join("another");
	OK(publish_one(s, "mine", false));
	OK(gpumem_attach(s, "mine", &buffer));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(s, "mine"));
	gpumem_disconnect(s);
}

static uint64_t names_now(void)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, &daemon_);
	uint64_t n = gm_raw_count_names(&raw);
	gm_raw_close(&raw);
	return n;
}

static void remove_all(void)
{
	struct gm_raw raw;
	char name[32];
	gm_raw_observe(&raw, &daemon_);
	for (unsigned i = 0; i < DAEMON_FDS; i++) {
		snprintf(name, sizeof(name), "name %u", i);
		gpumem_status status = gm_raw_unpublish(&raw, GM_STRANGER, name);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_NOT_FOUND);
	}
	gm_raw_close(&raw);
	GM_REQUIRE_EQ(names_now(), 0);
}

START_TEST(a_user_with_all_its_persistent_buffers_leaves_room_to_another)
{
	uint64_t n = 0;

	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "32G"),
				  .nofile = DAEMON_FDS});
	run(publish_all, &n, sizeof(n));
	GM_REQUIRE(n > 100 && n < DAEMON_FDS);
	for (int i = 0; i < 2; i++) {
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		GM_UNTIL(gm_figures_now(&daemon_).leases == names_now());
		run(publish_past, NULL, 0);
		run(publish_as_another, NULL, 0);
		/* A later daemon has counted them. */
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	remove_all();
	tear_down_books();
}
END_TEST

/* ---- requests that wait */

enum { SESSIONS = 34, EACH = 40 };

/* Has more requests waiting than the daemon takes of a user, and more in each session than the
 * daemon takes of a client. The library keeps the rest. */
static void wait_in_vain(int channel, void *argument)
{
	static gpumem_request *requests[SESSIONS][EACH];
	gpumem_session *sessions[SESSIONS];
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.wait_ms = FOREVER;

	gm_become_stranger();
	for (int i = 0; i < SESSIONS; i++) {
		sessions[i] = join("waits");
		for (int k = 0; k < EACH; k++)
			OK(gpumem_buffer_create_begin(
				sessions[i], 0, 40 * MIB, &options, &requests[i][k]));
	}
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	for (int i = 0; i < SESSIONS; i++)
		gpumem_disconnect(sessions[i]); /* with everything that is pending */
}

START_TEST(a_user_whose_requests_wait_in_every_session_leaves_room_to_another)
{
	GM_BOUND_TEST(WAITING_PER_UID);
	enum { N = 100 };
	struct gm_worker worker;
	gpumem_request *requests[N];
	gpumem_buffer *buffer;

	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("",
								      "1G") "[limit uid:64999]\n"
									    "max = 64M\n"});
	gm_worker_start(&worker, wait_in_vain, NULL);
	gm_hear_word(worker.channel, 'w');
	GM_UNTIL(gm_queue_wait(&daemon_) >= GM_BOUND_WAITING_PER_UID / 2);
	GM_REQUIRE(gm_queue_wait(&daemon_) <= GM_BOUND_WAITING_PER_UID);

	/* Another user gets what it asks for, with requests that wait and with such that do not. */
	session = join("another");
	for (int i = 0; i < N; i++) {
		gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
		options.wait_ms = i % 2 ? FOREVER : 0;
		OK(gpumem_buffer_create_begin(session, 0, 2 * MIB, &options, &requests[i]));
	}
	for (int i = 0; i < N; i++) {
		OK(gpumem_request_wait(requests[i], FOREVER));
		OK(gpumem_buffer_take(requests[i], &buffer));
		gpumem_buffer_destroy(buffer);
	}
	OK(publish_one(session, "mine", false));
	OK(gpumem_unpublish(session, "mine"));
	gpumem_disconnect(session);

	if (_i) {
		gm_worker_kill(&worker);
	} else {
		gm_text_say_word(worker.channel, 'e');
		gm_worker_join(&worker);
	}
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	tear_down_books();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client users");
	TCase *tc = tcase_create("client users");
	tcase_set_timeout(tc, 300);
	if (GM_TAP_WITH_USERS(a_user_with_all_its_persistent_buffers_leaves_room_to_another) &&
		!gm_on_gpu())
		tcase_add_test(tc, a_user_with_all_its_persistent_buffers_leaves_room_to_another);
	if (GM_TAP_WITH_USERS(a_user_whose_requests_wait_in_every_session_leaves_room_to_another))
		tcase_add_loop_test(tc,
			a_user_whose_requests_wait_in_every_session_leaves_room_to_another, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
