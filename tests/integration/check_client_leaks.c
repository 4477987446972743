/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What others see of a program that tracks its memory: through the daemon, before and after its restart,
 * and who does not see it. And that tracking is right for memory that a GPU still uses.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

/* Workers are forked, and start threads of their own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static void track_again(gpumem_track how)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.track = how;
	gpumem_disconnect(session);
	session = join_as(options, "tracker");
}

static gpumem_buffer *make(uint64_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.tag = "layer 1";
	options.type = "weights";
	options.precision = "bf16";
	OK(gpumem_buffer_create(session, 0, bytes, &options, &buffer));
	return buffer;
}

/* What the daemon lists: how many buffers, and the first of them. */
struct seen {
	size_t n;
	uint64_t session, untracked, hidden, age_ms, idle_ms;
	uint32_t stack;
	char tag[64], type[16], precision[16];
};

static struct seen look(struct gm_raw *raw)
{
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	struct seen seen = {0};

	GM_REQUIRE_EQ(gm_raw_call(raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	for (;;) {
		const Gm__Wire__BuffersReply *reply = raw->packet->buffers;
		if (!seen.n && reply->n_buffers) {
			const Gm__Wire__Buffer *first = reply->buffers[0];
			seen.session = first->session;
			seen.stack = first->stack;
			seen.age_ms = first->age_ms;
			seen.idle_ms = first->idle_ms;
			snprintf(seen.tag, sizeof(seen.tag), "%s", first->tag);
			snprintf(seen.type, sizeof(seen.type), "%s", first->type);
			snprintf(seen.precision, sizeof(seen.precision), "%s", first->precision);
		}
		seen.n += reply->n_buffers;
		seen.untracked += reply->untracked;
		seen.hidden += reply->hidden_clients;
		if (!raw->packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(raw));
	}
	return seen;
}

static struct seen look_now(void)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, &daemon_);
	struct seen seen = look(&raw);
	gm_raw_close(&raw);
	return seen;
}

/* How many stacks the session has; whether that one has frames in a module with a path. */
static size_t stacks_of(uint64_t id, uint32_t stack, bool *ret_found)
{
	Gm__Wire__GetStacks get = GM__WIRE__GET_STACKS__INIT;
	struct gm_raw raw;
	size_t n = 0, modules = 0;

	*ret_found = false;
	get.session = id;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_STACKS, get_stacks, &get)), GPUMEM_OK);
	for (;;) {
		const Gm__Wire__StacksReply *reply = raw.packet->stacks;
		n += reply->n_stacks;
		modules += reply->n_modules;
		for (size_t i = 0; i < reply->n_modules; i++)
			GM_REQUIRE(reply->modules[i]->path[0] == '/' ||
				   strstr(reply->modules[i]->path, "vdso"));
		for (size_t i = 0; i < reply->n_stacks; i++)
			*ret_found |= reply->stacks[i]->id == stack &&
				      reply->stacks[i]->n_frames > 1 &&
				      reply->stacks[i]->frames[0] >> GM_PAGE_FRAME_SHIFT < modules;
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
	return n;
}

START_TEST(the_daemon_shows_what_a_program_says_about_its_buffers)
{
	bool found;

	track_again(GPUMEM_TRACK_ALL);
	gpumem_buffer *buffer = make(MIB);
	struct seen seen = look_now();
	GM_REQUIRE_EQ(seen.n, 1);
	GM_REQUIRE(strcmp(seen.tag, "layer 1") == 0);
	GM_REQUIRE(strcmp(seen.type, "weights") == 0);
	GM_REQUIRE(strcmp(seen.precision, "bf16") == 0);
	GM_REQUIRE_EQ(seen.stack, 0);
	GM_REQUIRE_EQ(seen.idle_ms, seen.age_ms);
	GM_REQUIRE_EQ(stacks_of(seen.session, 1, &found), 0);
	do {
		OK(gpumem_buffer_touch(buffer));
		seen = look_now();
	} while (seen.idle_ms == seen.age_ms);
	gpumem_buffer_destroy(buffer);
	GM_REQUIRE_EQ(look_now().n, 0);
}
END_TEST

START_TEST(stacks_are_there_before_and_after_a_restart_and_end_with_their_buffers)
{
	bool found;

	track_again(GPUMEM_TRACK_STACKS);
	gpumem_buffer *buffer = make(MIB);
	struct seen seen = look_now();
	GM_REQUIRE_EQ(seen.n, 1);
	GM_REQUIRE(seen.stack != 0);
	GM_REQUIRE_EQ(stacks_of(seen.session, seen.stack, &found), 1);
	GM_REQUIRE(found);

	gm_daemon_kill(&daemon_);
	gm_daemon_spawn(&daemon_);
	/* Until the client has resumed its session, the daemon knows only the lease. The client then copies its notes, its modules
	 * and its stacks into the new page, while the daemon may already read there. */
	GM_UNTIL((seen = look_now(), seen.n == 1 && strcmp(seen.type, "weights") == 0));
	GM_UNTIL(stacks_of(seen.session, seen.stack, &found) == 1 && found);

	gpumem_buffer_destroy(buffer);
	GM_REQUIRE_EQ(look_now().n, 0);
	GM_REQUIRE_EQ(stacks_of(seen.session, seen.stack, &found), 0);
}
END_TEST

START_TEST(the_daemon_can_want_stacks_of_all_programs)
{
	bool found;

	gm_daemon_reload(&daemon_, GM_DAEMON_CONFIG_WITH("track = stacks\n", "1G"));
	track_again(GPUMEM_TRACK_AUTO);
	void *ptr;
	OK(gpumem_alloc(session, 0, 100, NULL, NULL, &ptr));
	struct seen seen = look_now();
	GM_REQUIRE_EQ(seen.n, 1);
	GM_REQUIRE_EQ(stacks_of(seen.session, seen.stack, &found), 1);
	GM_REQUIRE(found);
	OK(gpumem_free(session, ptr, NULL));
	GM_REQUIRE_EQ(look_now().n, 0);
}
END_TEST

START_TEST(nobody_asks_for_the_stacks_of_a_session_that_is_not_there)
{
	Gm__Wire__GetStacks get = GM__WIRE__GET_STACKS__INIT;
	struct gm_raw raw;

	get.session = 1;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(GET_STACKS, get_stacks, &get)), GPUMEM_E_NOT_FOUND);
	gm_raw_close(&raw);
}
END_TEST

static void look_as_stranger(int channel, void *argument)
{
	Gm__Wire__GetStacks get = GM__WIRE__GET_STACKS__INIT;
	struct gm_raw raw;

	(void)argument;
	gm_become_stranger();
	gm_hear(channel, &get.session, sizeof(get.session));
	gm_raw_observe(&raw, &daemon_);
	struct seen seen = look(&raw);
	GM_REQUIRE_EQ(seen.n, 0);
	GM_REQUIRE_EQ(seen.hidden, 1);
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(GET_STACKS, get_stacks, &get)), GPUMEM_E_DENIED);
	gm_raw_close(&raw);
}

START_TEST(another_user_sees_neither_types_nor_stacks)
{
	struct gm_worker worker;

	gpumem_disconnect(session);
	session = NULL;
	gm_worker_start(&worker, look_as_stranger, NULL);
	track_again(GPUMEM_TRACK_STACKS);
	gpumem_buffer *buffer = make(MIB);
	struct seen seen = look_now();
	gm_text_say(worker.channel, &seen.session, sizeof(seen.session));
	gm_worker_join(&worker);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* What was freed is not a leak, even if the device still uses it; and all threads count. */
static void *use_streams(void *argument)
{
	gpumem_stream stream = argument;
	for (int i = 0; i < 50; i++) {
		void *p, *q;
		OK(gpumem_alloc(session, 0, 4096, stream, NULL, &p));
		OK(gpumem_alloc(session, 0, 2 * MIB, stream, NULL, &q));
		OK(gpumem_free(session, p, stream));
		OK(gpumem_free(session, q, GPUMEM_STREAM_ANY));
	}
	return NULL;
}

START_TEST(freed_memory_is_no_leak_whatever_its_stream)
{
	pthread_t threads[3];
	uint64_t count;

	track_again(GPUMEM_TRACK_STACKS);
	for (int i = 0; i < 3; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, use_streams, NULL), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	OK(gpumem_leaks(session, 0, NULL, NULL, &count));
	GM_REQUIRE_EQ(count, 0);
	GM_REQUIRE_EQ(look_now().n, 0);
}
END_TEST

START_TEST(ten_thousand_buffers_are_all_known)
{
	enum { N = 10000 };
	static void *ptr[N];
	uint64_t count;

	track_again(GPUMEM_TRACK_STACKS);
	for (int i = 0; i < N; i++)
		OK(gpumem_alloc(session, 0, 64, NULL, NULL, &ptr[i]));
	OK(gpumem_leaks(session, 0, NULL, NULL, &count));
	GM_REQUIRE_EQ(count, N);
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	struct seen seen = look_now();
	GM_REQUIRE_EQ(seen.n, GM_BOUND_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(seen.untracked, N - GM_BOUND_TRACKED_BUFFERS);
	for (int i = 0; i < N; i++)
		OK(gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE));
	OK(gpumem_leaks(session, 0, NULL, NULL, &count));
	GM_REQUIRE_EQ(count, 0);
	GM_REQUIRE_EQ(look_now().n, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client leaks");
	TCase *tc = tcase_create("client leaks");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, the_daemon_shows_what_a_program_says_about_its_buffers);
	tcase_add_test(tc, stacks_are_there_before_and_after_a_restart_and_end_with_their_buffers);
	tcase_add_test(tc, the_daemon_can_want_stacks_of_all_programs);
	tcase_add_test(tc, nobody_asks_for_the_stacks_of_a_session_that_is_not_there);
	if (GM_TAP_WITH_USERS(another_user_sees_neither_types_nor_stacks))
		tcase_add_test(tc, another_user_sees_neither_types_nor_stacks);
	tcase_add_test(tc, freed_memory_is_no_leak_whatever_its_stream);
	tcase_add_test(tc, ten_thousand_buffers_are_all_known);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
