/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Planning: which device has room for this client, and what a model needs. On two devices, of which the
 * first is larger on the host, and both are alike on GPUs.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/gpumem_plan.h"
#include "tests/integration/client_fixture.h"
#include "tests/tap.h"

#define DEVICES 2
#define CONFIG  GM_DAEMON_CONFIG_WITH("", "256M") "[device 1]\nsize = 128M\n"

static void start(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	session = join("the test");
}

static void start_plain(void)
{
	start(CONFIG);
}

static uint64_t capacity(uint32_t device)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	OK(gpumem_device_info(session, device, &info));
	return info.capacity;
}

static gpumem_buffer *fill(gpumem_session *s, uint32_t device, uint64_t bytes)
{
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(s, device, bytes, NULL, &buffer));
	return buffer;
}

static gpumem_placement place(uint64_t bytes, gpumem_fit at_worst)
{
	gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
	OK(gpumem_place(session, bytes, at_worst, &placement));
	return placement;
}

/* No device is good enough. Returns the sentence. */
static const char *none(uint64_t bytes, gpumem_fit at_worst, gpumem_status status)
{
	gpumem_placement placement = {.size = sizeof(placement), .device = 77};
	GM_REQUIRE_EQ(gpumem_place(session, bytes, at_worst, &placement), status);
	GM_REQUIRE_EQ(placement.device, 77);
	return gpumem_error_detail();
}

struct seen {
	unsigned n;
	gpumem_placement list[DEVICES];
};

static void see(void *user, const gpumem_placement *placement)
{
	struct seen *seen = user;
	GM_REQUIRE(seen->n < DEVICES);
	GM_REQUIRE_EQ(placement->size, sizeof(*placement));
	seen->list[seen->n++] = *placement;
}

static struct seen all(uint64_t bytes)
{
	struct seen seen = {0};
	OK(gpumem_place_each(session, bytes, see, &seen));
	GM_REQUIRE_EQ(seen.n, DEVICES);
	return seen;
}

START_TEST(the_device_with_most_room_is_chosen_and_gives_it)
{
	uint64_t first = capacity(0), second = capacity(1);
	gpumem_placement p = place(16 * MIB, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(p.device, 0);
	GM_REQUIRE_EQ(p.fit, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(p.room, first);
	GM_REQUIRE(p.why[0] == '\0');

	/* Now the other one has more. */
	gpumem_buffer *buffer = fill(session, 0, first - 16 * MIB);
	p = place(16 * MIB, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(p.device, 1);
	GM_REQUIRE_EQ(p.room, second);
	struct seen seen = all(16 * MIB);
	GM_REQUIRE_EQ(seen.list[0].device, 1);
	GM_REQUIRE_EQ(seen.list[1].device, 0);
	GM_REQUIRE_EQ(seen.list[1].fit, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(seen.list[1].room, 16 * MIB);

	/* What it says can be had. */
	gpumem_buffer *other = fill(session, p.device, p.room);
	p = place(16 * MIB, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(p.device, 0);
	gpumem_buffer_destroy(other);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(if_there_is_none_each_device_has_its_sentence)
{
	uint64_t most = capacity(0) + capacity(1);
	const char *detail = none(most, GPUMEM_FIT_WAIT, GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(!strncmp(detail, "device 0 has ", 13));
	GM_REQUIRE(strstr(detail, "; device 1 has "));
	GM_REQUIRE(strstr(detail, "which it can never give"));

	struct seen seen = all(most);
	for (unsigned i = 0; i < DEVICES; i++) {
		GM_REQUIRE_EQ(seen.list[i].fit, GPUMEM_FIT_NONE);
		GM_REQUIRE(strstr(seen.list[i].why, "which it can never give"));
	}
}
END_TEST

START_TEST(memory_in_use_must_be_waited_for)
{
	gpumem_session *other = join("the other");
	gpumem_buffer *buffers[DEVICES];
	for (uint32_t i = 0; i < DEVICES; i++)
		buffers[i] = fill(other, i, capacity(i));

	const char *detail = none(16 * MIB, GPUMEM_FIT_RECLAIM, GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(detail, "has 0B available of"));
	gpumem_placement p = place(16 * MIB, GPUMEM_FIT_WAIT);
	GM_REQUIRE_EQ(p.fit, GPUMEM_FIT_WAIT);
	GM_REQUIRE_EQ(p.room, 0);
	GM_REQUIRE(strstr(p.why, "has 0B available of"));

	gpumem_buffer_destroy(buffers[1]);
	GM_UNTIL(place(16 * MIB, GPUMEM_FIT_WAIT).device == 1);
	GM_REQUIRE_EQ(place(16 * MIB, GPUMEM_FIT_NOW).device, 1);
	gpumem_buffer_destroy(buffers[0]);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(memory_that_others_cache_is_room)
{
	gpumem_session *other = join("the other");
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	gpumem_buffer *buffer = fill(other, 1, capacity(1));
	void *ptr;
	OK(gpumem_alloc(other, 0, capacity(0), NULL, NULL, &ptr));
	OK(gpumem_free(other, ptr, GPUMEM_STREAM_DONE));
	OK(gpumem_stats(other, 0, &stats));

	/* It is cached until the library returns it by itself. Core may have looked at the page before
	 * the memory was freed. */
	GM_UNTIL(place(16 * MIB, GPUMEM_FIT_WAIT).fit <= GPUMEM_FIT_RECLAIM);
	gpumem_placement p = place(16 * MIB, GPUMEM_FIT_RECLAIM);
	GM_REQUIRE_EQ(p.device, 0);
	gpumem_buffer *own = fill(session, p.device, 16 * MIB);
	gpumem_buffer_destroy(own);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(limits_of_the_user_count)
{
	char config[512];
	snprintf(
		config, sizeof(config), "%s[device 0 limit uid:%u]\nmax = 16M\n", CONFIG, getuid());
	start(config);
	gpumem_placement p = place(16 * MIB, GPUMEM_FIT_NOW);
	GM_REQUIRE_EQ(p.device, 1);
	struct seen seen = all(32 * MIB);
	GM_REQUIRE_EQ(seen.list[1].device, 0);
	GM_REQUIRE_EQ(seen.list[1].fit, GPUMEM_FIT_NONE);
	GM_REQUIRE_EQ(seen.list[1].room, 16 * MIB);
	GM_REQUIRE(strstr(seen.list[1].why, "may hold 16.0M, holds 0B, asked for 32.0M"));

	snprintf(config, sizeof(config), "%s[limit uid:%u]\nmax = 16M\n", CONFIG, getuid());
	gm_daemon_reload(&daemon_, config);
	GM_REQUIRE(strstr(none(32 * MIB, GPUMEM_FIT_WAIT, GPUMEM_E_LIMIT), "may hold 16.0M"));
	gpumem_buffer *buffer = fill(session, 0, 16 * MIB);
	GM_REQUIRE_EQ(place(MIB, GPUMEM_FIT_NOW).device, 1);
	gpumem_buffer_destroy(buffer);
	tear_down();
}
END_TEST

/* Like every question, it waits for a daemon that is away. */
START_TEST(a_restart_is_not_noticed)
{
	gpumem_buffer *buffer = fill(session, 0, capacity(0));
	for (int i = 0; i < 3; i++) {
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		GM_REQUIRE_EQ(place(16 * MIB, GPUMEM_FIT_NOW).device, 1);
	}
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
	gpumem_placement p = GPUMEM_PLACEMENT_INIT;
	GM_REQUIRE_EQ(gpumem_place(session, MIB, GPUMEM_FIT_NONE, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "at_worst must be"));
	GM_REQUIRE_EQ(gpumem_place(session, MIB, (gpumem_fit)-1, &p), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_place(session, MIB, GPUMEM_FIT_NOW, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "ret_placement"));
	GM_REQUIRE_EQ(gpumem_place(session, 0, GPUMEM_FIT_NOW, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "asked for 0 bytes"));
	GM_REQUIRE_EQ(gpumem_place(session, UINT64_MAX, GPUMEM_FIT_NOW, &p), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_place(NULL, MIB, GPUMEM_FIT_NOW, &p), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_place_each(session, MIB, NULL, NULL), GPUMEM_E_INVALID);
	p.size = 0;
	GM_REQUIRE_EQ(gpumem_place(session, MIB, GPUMEM_FIT_NOW, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "_INIT macro"));

	/* A program that was built with an older header has a shorter structure. */
	p = (gpumem_placement){.size = offsetof(gpumem_placement, room), .device = 77, .room = 77};
	OK(gpumem_place(session, MIB, GPUMEM_FIT_NOW, &p));
	GM_REQUIRE_EQ(p.device, 0);
	GM_REQUIRE_EQ(p.room, 77);
}
END_TEST

/* The CPU reaches host memory at any time, and managed memory of the fake GPU, too. */
START_TEST(a_device_tells_how_far_its_memory_is_seen)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	GM_REQUIRE_EQ(info.visibility, GPUMEM_VISIBILITY_UNKNOWN);
	OK(gpumem_device_info(session, 1, &info));
	GM_REQUIRE_EQ(info.visibility, GPUMEM_VISIBILITY_SYSTEM);

	/* A program that was built before does not get it. */
	info = (gpumem_device_info_t){.size = offsetof(gpumem_device_info_t, visibility)};
	OK(gpumem_device_info(session, 1, &info));
	GM_REQUIRE_EQ(info.number, 1);
	GM_REQUIRE_EQ(info.visibility, GPUMEM_VISIBILITY_UNKNOWN);
}
END_TEST

/* The figures are explained in tests/unit/common/check_estimate.c. */
START_TEST(a_model_is_estimated_without_a_session)
{
	gpumem_model model = GPUMEM_MODEL_INIT;
	gpumem_estimate e = GPUMEM_ESTIMATE_INIT;
	model.hidden = 4096;
	model.intermediate = 14336;
	model.layers = 32;
	model.vocab = 32000;
	model.heads = 32;
	model.kv_heads = 8;
	model.context = 4096;
	model.bytes_per_weight = 2;
	OK(gpumem_estimate_inference(&model, &e));
	GM_REQUIRE_EQ(e.parameters, 7241732096);
	GM_REQUIRE_EQ(e.weights, 14483464192);
	GM_REQUIRE_EQ(e.kv_cache, 536870912);
	GM_REQUIRE_EQ(e.activations, 302117888);
	GM_REQUIRE_EQ(e.total, 15322452992);

	/* A program that was built with an older header knows fewer members. */
	model.size = offsetof(gpumem_model, head_dim);
	model.head_dim = UINT64_MAX;
	model.tied = model.bytes_per_value = UINT32_MAX;
	e = (gpumem_estimate){.size = offsetof(gpumem_estimate, total)};
	OK(gpumem_estimate_inference(&model, &e));
	GM_REQUIRE_EQ(e.activations, 302117888);
	GM_REQUIRE_EQ(e.total, 0);

	model.kv_heads = 7;
	GM_REQUIRE_EQ(gpumem_estimate_inference(&model, &e), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "kv_heads is 7"));
	GM_REQUIRE_EQ(gpumem_estimate_inference(NULL, &e), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_estimate_inference(&model, NULL), GPUMEM_E_INVALID);
	model.size = 0;
	GM_REQUIRE_EQ(gpumem_estimate_inference(&model, &e), GPUMEM_E_INVALID);
}
END_TEST

static gpumem_status cancelled_status[2];

/* As each function does that writes or reads. The answers would be lost if the thread ended here. */
static void end_here(void *user, const gpumem_placement *placement)
{
	pthread_testcancel();
}

/* Ends as soon as a call lets it. */
static void *place_cancelled(void *unused)
{
	static gpumem_placement placement = GPUMEM_PLACEMENT_INIT;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	cancelled_status[0] = gpumem_place(session, MIB, GPUMEM_FIT_NOW, &placement);
	cancelled_status[1] = gpumem_place_each(session, MIB, end_here, NULL);
	pthread_testcancel();
	return NULL;
}

START_TEST(a_cancelled_thread_ends_after_its_question)
{
	pthread_t thread;
	void *result;

	cancelled_status[0] = cancelled_status[1] = GPUMEM_E_SYSTEM;
	GM_REQUIRE(pthread_create(&thread, NULL, place_cancelled, NULL) == 0);
	GM_REQUIRE(pthread_join(thread, &result) == 0);
	GM_REQUIRE(result == PTHREAD_CANCELED);
	GM_REQUIRE_EQ(cancelled_status[0], GPUMEM_OK);
	GM_REQUIRE_EQ(cancelled_status[1], GPUMEM_OK);
	/* Nobody else is held up. */
	(void)place(MIB, GPUMEM_FIT_NOW);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_place");
	TCase *tc = tcase_create("place"), *own = tcase_create("own");
	tcase_set_timeout(tc, 120);
	tcase_set_timeout(own, 120);
	tcase_add_checked_fixture(tc, start_plain, tear_down);
	tcase_add_test(tc, the_device_with_most_room_is_chosen_and_gives_it);
	tcase_add_test(tc, if_there_is_none_each_device_has_its_sentence);
	tcase_add_test(tc, a_cancelled_thread_ends_after_its_question);
	tcase_add_test(tc, memory_in_use_must_be_waited_for);
	tcase_add_test(tc, memory_that_others_cache_is_room);
	tcase_add_test(tc, a_restart_is_not_noticed);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, a_device_tells_how_far_its_memory_is_seen);
	tcase_add_test(own, limits_of_the_user_count);
	tcase_add_test(own, a_model_is_estimated_without_a_session);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, own);
	return gm_tap_run(suite);
}
