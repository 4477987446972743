/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Signals on host memory, between processes: they arrive in order, and nobody waits for good for a
 * producer that is gone. tests/gpu/check_signal.c does the same with streams.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/refused.h"
#include "tests/integration/signal_fixture.h"
#include "tests/tap.h"

/* ---- two processes that answer one another */

#define ROUNDS 10000

/* Both do the same: each produces in its own buffer, and consumes from the other's. */
static void play(int channel, void *argument)
{
	bool first = argument;
	gpumem_session *s = join(first ? "ping" : "pong");
	gpumem_buffer *mine = with_signals(s, BYTES), *theirs = NULL;
	gpumem_token token;

	OK(gpumem_share(mine, NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(s, &token, &theirs));

	volatile uint64_t *out = gpumem_buffer_ptr(mine), *in = gpumem_buffer_ptr(theirs);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (!first) {
			OK(gpumem_buffer_wait(theirs, NULL, i, GPUMEM_WAIT_FOREVER));
			GM_REQUIRE_EQ(*in, i);
		}
		*out = i;
		OK(gpumem_buffer_signal(mine, NULL, i));
		if (first) {
			OK(gpumem_buffer_wait(theirs, NULL, i, GPUMEM_WAIT_FOREVER));
			GM_REQUIRE_EQ(*in, i);
		}
	}
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(theirs);
	gpumem_buffer_destroy(mine);
	gpumem_disconnect(s);
}

static void pass_token(const struct gm_worker *from, const struct gm_worker *to)
{
	gpumem_token token;

	gm_hear(from->channel, &token, sizeof(token));
	gm_text_say(to->channel, &token, sizeof(token));
}

static void end_worker(struct gm_worker *worker)
{
	gm_text_say_word(worker->channel, 'e');
	gm_worker_join(worker);
}

START_TEST(ten_thousand_signals_arrive_in_order)
{
	struct gm_worker ping, pong;

	gm_worker_start(&ping, play, (void *)1);
	gm_worker_start(&pong, play, NULL);
	pass_token(&ping, &pong);
	pass_token(&pong, &ping);
	gm_hear_word(ping.channel, 'd');
	gm_hear_word(pong.channel, 'd');
	end_worker(&ping);
	end_worker(&pong);
}
END_TEST

/* ---- a producer that goes */

enum leaving { KILLED, DESTROYS, DISCONNECTS, LEAVINGS };

struct producing {
	enum leaving leaving;
	bool read_only;
	const char *name; /* published under it; NULL: shared by token */
};

/* Signals 1, and more as it hears: s signals the next value, e leaves. */
static void produce(int channel, void *argument)
{
	const struct producing *producing = argument;
	gpumem_session *s = join("producer");
	gpumem_buffer *buffer = with_signals(s, BYTES);
	gpumem_token token = {{0}};
	uint64_t value = 1;

	OK(gpumem_buffer_signal(buffer, NULL, value));
	if (producing->name)
		OK(gpumem_publish(buffer, producing->name, NULL, NULL, NULL));
	else
		OK(gpumem_share(buffer, producing->read_only ? &read_only : NULL, &token));
	gm_text_say(channel, &token, sizeof(token));

	for (;;) {
		char word;
		gm_hear(channel, &word, 1);
		if (word != 's')
			break;
		OK(gpumem_buffer_signal(buffer, NULL, ++value));
		gm_text_say_word(channel, 'd');
	}
	if (producing->leaving == DESTROYS) {
		gpumem_buffer_destroy(buffer);
		gm_text_say_word(channel, 'd');
		gm_hear_word(channel, 'e');
	}
	gpumem_disconnect(s);
}

/* Waits for 2 and says the status; then everything that holds if it was lost. */
static void consume(int channel, void *argument)
{
	gpumem_session *s = join("consumer");
	gpumem_buffer *buffer = NULL;
	gpumem_token token;

	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(s, &token, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), BYTES);
	OK(gpumem_buffer_wait(buffer, NULL, 1, GPUMEM_WAIT_FOREVER));
	OK(gpumem_buffer_lost(buffer, 1));
	OK(gpumem_buffer_lost(buffer, 2)); /* it may still come */
	gm_text_say_word(channel, 'w');
	gpumem_status status = gpumem_buffer_wait(buffer, NULL, 2, GPUMEM_WAIT_FOREVER);
	if (status == GPUMEM_E_CANCELLED) {
		REFUSED(gpumem_buffer_wait(buffer, NULL, 2, GPUMEM_WAIT_FOREVER),
			GPUMEM_E_CANCELLED, "its last signal was 1, and 2 will not come");
		REFUSED(gpumem_buffer_wait(buffer, NULL, GPUMEM_SIGNAL_MAX, GPUMEM_WAIT_FOREVER),
			GPUMEM_E_CANCELLED, "will not come");
		REFUSED(gpumem_buffer_lost(buffer, 2), GPUMEM_E_CANCELLED, "will not come");
		OK(gpumem_buffer_wait(buffer, NULL, 1, GPUMEM_WAIT_FOREVER));
		OK(gpumem_buffer_lost(buffer, 1));
	}
	gm_text_say(channel, &status, sizeof(status));
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(s);
}

static void begin(struct producing *producing, struct gm_worker *producer,
	struct gm_worker *consumers, size_t n)
{
	gpumem_token token;

	gm_worker_start(producer, produce, producing);
	for (size_t i = 0; i < n; i++)
		gm_worker_start(&consumers[i], consume, NULL);
	gm_hear(producer->channel, &token, sizeof(token));
	for (size_t i = 0; i < n; i++) {
		gm_text_say(consumers[i].channel, &token, sizeof(token));
		gm_hear_word(consumers[i].channel, 'w');
	}
}

static void require_waited(struct gm_worker *consumer, gpumem_status status)
{
	gpumem_status got;

	gm_hear(consumer->channel, &got, sizeof(got));
	GM_REQUIRE_EQ(got, status);
	end_worker(consumer);
}

START_TEST(a_wait_for_a_producer_that_goes_is_lost)
{
	struct producing producing = {.leaving = _i / 2, .read_only = _i % 2};
	struct gm_worker producer, consumers[3];

	begin(&producing, &producer, consumers, 3);
	if (producing.leaving == KILLED)
		gm_worker_kill(&producer);
	else
		gm_text_say_word(producer.channel, 'e');
	if (producing.leaving == DESTROYS)
		gm_hear_word(producer.channel, 'd');
	for (int i = 0; i < 3; i++)
		require_waited(&consumers[i], GPUMEM_E_CANCELLED);
	if (producing.leaving == DESTROYS)
		end_worker(&producer);
	else if (producing.leaving == DISCONNECTS)
		gm_worker_join(&producer);
}
END_TEST

START_TEST(a_consumer_that_is_killed_disturbs_nobody)
{
	struct producing producing = {0};
	struct gm_worker producer, consumers[2];

	begin(&producing, &producer, consumers, 2);
	gm_worker_kill(&consumers[0]);
	gm_text_say_word(producer.channel, 's');
	gm_hear_word(producer.channel, 'd');
	require_waited(&consumers[1], GPUMEM_OK);
	gm_worker_kill(&producer);
}
END_TEST

/* ---- the daemon goes, too */

START_TEST(a_restart_of_the_daemon_changes_nothing)
{
	struct producing producing = {0};
	struct gm_worker producer, consumer;

	begin(&producing, &producer, &consumer, 1);
	gm_daemon_kill(&daemon_);
	if (_i == 0) {
		/* It signals while the daemon is away. */
		gm_text_say_word(producer.channel, 's');
		gm_hear_word(producer.channel, 'd');
		require_waited(&consumer, GPUMEM_OK);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	} else {
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		gm_text_say_word(producer.channel, 's');
		gm_hear_word(producer.channel, 'd');
		require_waited(&consumer, GPUMEM_OK);
	}
	gm_worker_kill(&producer);
}
END_TEST

START_TEST(a_producer_that_dies_while_the_daemon_is_away_is_noticed)
{
	struct producing producing = {0};
	struct gm_worker producer, consumers[2];

	begin(&producing, &producer, consumers, 2);
	gm_daemon_kill(&daemon_);
	gm_worker_kill(&producer);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	require_waited(&consumers[0], GPUMEM_E_CANCELLED);
	require_waited(&consumers[1], GPUMEM_E_CANCELLED);
}
END_TEST

START_TEST(a_producer_that_dies_after_a_restart_is_noticed)
{
	struct producing producing = {0};
	struct gm_worker producer, consumer;

	begin(&producing, &producer, &consumer, 1);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined == 0);
	gm_worker_kill(&producer);
	require_waited(&consumer, GPUMEM_E_CANCELLED);
}
END_TEST

static pid_t keeper(void)
{
	char run[128];
	snprintf(run, sizeof(run), "%.*s", (int)(strrchr(daemon_.socket, '/') - daemon_.socket),
		daemon_.socket);
	pid_t pid = gm_keeper_in(run);
	GM_REQUIRE(pid > 0);
	return pid;
}

/* A daemon that knows nothing of the buffer would never tell of its maker's end. */
START_TEST(a_daemon_that_forgot_everything_releases_all_waits)
{
	struct producing producing = {0};
	struct gm_worker producer, consumer;

	begin(&producing, &producer, &consumer, 1);
	pid_t pid = keeper();
	gm_daemon_kill(&daemon_);
	gm_keeper_signal(pid, SIGKILL);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	require_waited(&consumer, GPUMEM_E_CANCELLED);
	gm_worker_kill(&producer);
}
END_TEST

/* ---- a late reader */

static void attach_late(int channel, void *argument)
{
	gpumem_session *s = join("late");
	gpumem_buffer *buffer = NULL;

	OK(gpumem_attach(s, "frames", &buffer));
	OK(gpumem_buffer_wait(buffer, NULL, 1, GPUMEM_WAIT_FOREVER));
	REFUSED(gpumem_buffer_wait(buffer, NULL, 2, GPUMEM_WAIT_FOREVER), GPUMEM_E_CANCELLED,
		"will not come");
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(s);
}

static void unpublish(int channel, void *argument)
{
	gpumem_session *s = join("remover");

	OK(gpumem_unpublish(s, "frames"));
	gpumem_disconnect(s);
}

START_TEST(who_attaches_after_the_end_gets_what_was_signalled)
{
	struct producing producing = {.name = "frames"};
	struct gm_worker producer, late;
	gpumem_token unused;

	gm_worker_start(&producer, produce, &producing);
	gm_hear(producer.channel, &unused, sizeof(unused));
	gm_worker_kill(&producer);
	/* The name keeps the buffer; the record keeps that it has signals. */
	gm_worker_start(&late, attach_late, NULL);
	gm_worker_join(&late);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_worker_start(&late, attach_late, NULL);
	gm_worker_join(&late);
	gm_worker_start(&late, unpublish, NULL);
	gm_worker_join(&late);
}
END_TEST

/* ---- the keeper goes */

/* A buffer that is asked for while the keeper is away has its control block in the next one. */
START_TEST(the_keeper_that_follows_has_the_control_blocks)
{
	struct producing producing = {.name = "frames"};
	struct gm_worker before, late;
	gpumem_token unused;

	size_t said = gm_daemon_said(&daemon_, "has everything again");
	if (_i == 0)
		gm_keeper_signal(keeper(), SIGKILL);
	gm_worker_start(&before, produce, &producing);
	gm_hear(before.channel, &unused, sizeof(unused));
	if (_i == 1)
		gm_keeper_signal(keeper(), SIGKILL);
	GM_UNTIL(gm_daemon_said(&daemon_, "has everything again") == said + 1);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_worker_kill(&before);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	gm_worker_start(&late, attach_late, NULL);
	gm_worker_join(&late);
	gm_worker_start(&late, unpublish, NULL);
	gm_worker_join(&late);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client signal");
	TCase *tc = tcase_create("processes");
	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, ten_thousand_signals_arrive_in_order);
	tcase_add_loop_test(tc, a_wait_for_a_producer_that_goes_is_lost, 0, 2 * LEAVINGS);
	tcase_add_test(tc, a_consumer_that_is_killed_disturbs_nobody);
	tcase_add_loop_test(tc, a_restart_of_the_daemon_changes_nothing, 0, 2);
	tcase_add_test(tc, a_producer_that_dies_while_the_daemon_is_away_is_noticed);
	tcase_add_test(tc, a_producer_that_dies_after_a_restart_is_noticed);
	tcase_add_test(tc, a_daemon_that_forgot_everything_releases_all_waits);
	tcase_add_test(tc, who_attaches_after_the_end_gets_what_was_signalled);
	tcase_add_loop_test(tc, the_keeper_that_follows_has_the_control_blocks, 0, 2);
	suite_add_tcase(suite, tc);

	return gm_tap_run(suite);
}
