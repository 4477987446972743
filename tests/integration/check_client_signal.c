/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Signals on host memory, between processes: they arrive in order, and nobody waits for good for a
 * producer that is gone. tests/gpu/check_signal.c does the same with streams.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/control.h"
#include "tests/end_keeper.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/raw.h"
#include "tests/integration/refused.h"
#include "tests/tap.h"

#define BYTES (3 * MIB + 5)

/* The test itself forks, so it has no session. */
static void set_up_alone(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down_alone(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_daemon_stop(&daemon_);
}

static gpumem_buffer *with_signals(gpumem_session *s, size_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;

	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_buffer_create(s, 0, bytes, &options, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), bytes);
	return buffer;
}

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
	gm_say(channel, &token, sizeof(token));
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(s, &token, &theirs));

	volatile uint64_t *out = gpumem_buffer_ptr(mine), *in = gpumem_buffer_ptr(theirs);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (!first) {
			OK(gpumem_buffer_wait(theirs, NULL, i));
			GM_REQUIRE_EQ(*in, i);
		}
		*out = i;
		OK(gpumem_buffer_signal(mine, NULL, i));
		if (first) {
			OK(gpumem_buffer_wait(theirs, NULL, i));
			GM_REQUIRE_EQ(*in, i);
		}
	}
	gm_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(theirs);
	gpumem_buffer_destroy(mine);
	gpumem_disconnect(s);
}

static void pass_token(const struct gm_worker *from, const struct gm_worker *to)
{
	gpumem_token token;

	gm_hear(from->channel, &token, sizeof(token));
	gm_say(to->channel, &token, sizeof(token));
}

static void end_worker(struct gm_worker *worker)
{
	gm_say_word(worker->channel, 'e');
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

static const gpumem_share_options read_only = {
	sizeof(gpumem_share_options), GPUMEM_AUDIENCE_DOMAIN, 0, GPUMEM_SHARE_READ_ONLY, 0};

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
	gm_say(channel, &token, sizeof(token));

	for (;;) {
		char word;
		gm_hear(channel, &word, 1);
		if (word != 's')
			break;
		OK(gpumem_buffer_signal(buffer, NULL, ++value));
		gm_say_word(channel, 'd');
	}
	if (producing->leaving == DESTROYS) {
		gpumem_buffer_destroy(buffer);
		gm_say_word(channel, 'd');
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
	OK(gpumem_buffer_wait(buffer, NULL, 1));
	OK(gpumem_buffer_lost(buffer, 1));
	OK(gpumem_buffer_lost(buffer, 2)); /* it may still come */
	gm_say_word(channel, 'w');
	gpumem_status status = gpumem_buffer_wait(buffer, NULL, 2);
	if (status == GPUMEM_E_CANCELLED) {
		REFUSED(gpumem_buffer_wait(buffer, NULL, 2), GPUMEM_E_CANCELLED,
			"its last signal was 1, and 2 will not come");
		REFUSED(gpumem_buffer_wait(buffer, NULL, GPUMEM_SIGNAL_MAX), GPUMEM_E_CANCELLED,
			"will not come");
		REFUSED(gpumem_buffer_lost(buffer, 2), GPUMEM_E_CANCELLED, "will not come");
		OK(gpumem_buffer_wait(buffer, NULL, 1));
		OK(gpumem_buffer_lost(buffer, 1));
	}
	gm_say(channel, &status, sizeof(status));
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
		gm_say(consumers[i].channel, &token, sizeof(token));
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
		gm_say_word(producer.channel, 'e');
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
	gm_say_word(producer.channel, 's');
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
		gm_say_word(producer.channel, 's');
		gm_hear_word(producer.channel, 'd');
		require_waited(&consumer, GPUMEM_OK);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	} else {
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		gm_say_word(producer.channel, 's');
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
	OK(gpumem_buffer_wait(buffer, NULL, 1));
	REFUSED(gpumem_buffer_wait(buffer, NULL, 2), GPUMEM_E_CANCELLED, "will not come");
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

/* ---- one session */

/* Nothing that the program writes to the buffer touches them, and they take no memory of the device. */
START_TEST(signals_begin_at_0_whatever_the_memory_held)
{
	gpumem_buffer *buffer = NULL;

	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 0xff, 2 * MIB);
	gpumem_buffer_destroy(buffer);

	static const size_t sizes[] = {1, MIB, 2 * MIB - 64, 2 * MIB, 2 * MIB + 1, 64 * MIB};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		buffer = with_signals(session, sizes[i]);
		uint8_t *ptr = gpumem_buffer_ptr(buffer);
		size_t whole = (sizes[i] + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		GM_UNTIL(gm_figures_now(&daemon_).leased == whole);
		memset(ptr, 0xff, whole);
		OK(gpumem_buffer_lost(buffer, 7));
		OK(gpumem_buffer_signal(buffer, NULL, 7));
		OK(gpumem_buffer_wait(buffer, NULL, 7));
		memset(ptr, 0xff, whole);
		OK(gpumem_buffer_signal(buffer, NULL, 8));
		OK(gpumem_buffer_wait(buffer, NULL, 8));
		gpumem_buffer_destroy(buffer);
		GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	}
}
END_TEST

START_TEST(wrong_calls_are_refused_and_change_nothing)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = with_signals(session, BYTES), *plain = NULL, *view = NULL;
	gpumem_token token;

	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &plain));
	REFUSED(gpumem_buffer_signal(plain, NULL, 1), GPUMEM_E_UNSUPPORTED,
		"GPUMEM_BUFFER_SIGNALS");
	REFUSED(gpumem_buffer_wait(plain, NULL, 1), GPUMEM_E_UNSUPPORTED, "GPUMEM_BUFFER_SIGNALS");
	REFUSED(gpumem_buffer_lost(plain, 1), GPUMEM_E_UNSUPPORTED, "GPUMEM_BUFFER_SIGNALS");
	REFUSED(gpumem_buffer_signal(NULL, NULL, 1), GPUMEM_E_INVALID, "buffer must not be NULL");
	REFUSED(gpumem_buffer_wait(NULL, NULL, 1), GPUMEM_E_INVALID, "buffer must not be NULL");
	REFUSED(gpumem_buffer_lost(NULL, 1), GPUMEM_E_INVALID, "buffer must not be NULL");

	REFUSED(gpumem_buffer_signal(buffer, NULL, 0), GPUMEM_E_INVALID, "value must be from 1");
	REFUSED(gpumem_buffer_signal(buffer, NULL, GPUMEM_SIGNAL_MAX + 1), GPUMEM_E_INVALID,
		"value must be from 1");
	REFUSED(gpumem_buffer_wait(buffer, NULL, 0), GPUMEM_E_INVALID, "value must be from 1");
	REFUSED(gpumem_buffer_wait(buffer, NULL, UINT64_MAX), GPUMEM_E_INVALID, "value must be");
	REFUSED(gpumem_buffer_signal(buffer, GPUMEM_STREAM_ANY, 1), GPUMEM_E_INVALID, "stream");
	REFUSED(gpumem_buffer_wait(buffer, GPUMEM_STREAM_ANY, 1), GPUMEM_E_INVALID, "stream");
	REFUSED(gpumem_buffer_wait(buffer, GPUMEM_STREAM_DONE, 1), GPUMEM_E_INVALID, "stream");

	OK(gpumem_buffer_signal(buffer, GPUMEM_STREAM_DONE, 5));
	REFUSED(gpumem_buffer_signal(buffer, NULL, 5), GPUMEM_E_INVALID,
		"which was 5; 5 was given");
	REFUSED(gpumem_buffer_signal(buffer, NULL, 4), GPUMEM_E_INVALID,
		"which was 5; 4 was given");
	OK(gpumem_buffer_signal(buffer, NULL, GPUMEM_SIGNAL_MAX));
	OK(gpumem_buffer_wait(buffer, NULL, GPUMEM_SIGNAL_MAX));

	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(session, &token, &view));
	REFUSED(gpumem_buffer_signal(view, NULL, 6), GPUMEM_E_DENIED, "created");
	OK(gpumem_buffer_wait(view, NULL, GPUMEM_SIGNAL_MAX));
	gpumem_buffer_destroy(view);

	options.flags = GPUMEM_BUFFER_SIGNALS;
	options.transport = GPUMEM_TRANSPORT_IPC;
	REFUSED(gpumem_buffer_create(session, 0, BYTES, &options, &view), GPUMEM_E_UNSUPPORTED,
		"signals need the fd transport");
	gpumem_buffer_destroy(plain);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_that_was_begun_has_signals_too)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request = NULL;
	gpumem_buffer *buffer = NULL;

	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_buffer_create_begin(session, 0, BYTES, &options, &request));
	OK(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER));
	OK(gpumem_buffer_take(request, &buffer));
	OK(gpumem_buffer_signal(buffer, NULL, 1));
	OK(gpumem_buffer_wait(buffer, NULL, 1));
	gpumem_buffer_destroy(buffer);
}
END_TEST

static struct gm_control *control_of(int fd, int prot)
{
	void *page = mmap(NULL, GM_CONTROL_BYTES, prot, MAP_SHARED, fd, 0);
	GM_REQUIRE(page != MAP_FAILED);
	return page;
}

/* A reader that may write the buffer can write the control block, too. The producer's next signal
 * repairs it. Nobody can cut it. */
START_TEST(a_lie_ends_with_the_next_signal)
{
	gpumem_buffer *buffer = with_signals(session, BYTES), *view = NULL;
	struct gm_raw_lease opened = {0};
	struct gm_raw liar;
	gpumem_token token;

	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(session, &token, &view));
	gm_raw_join(&liar, &daemon_);
	OK(gm_raw_open(&liar, token.bytes, &opened));
	GM_REQUIRE(ftruncate(opened.control, 0) < 0);
	struct gm_control *control = control_of(opened.control, PROT_READ | PROT_WRITE);

	memset(control, 0, sizeof(*control));
	OK(gpumem_buffer_signal(buffer, NULL, 1));
	GM_REQUIRE_EQ(control->last, 1);
	memset(control, 0, sizeof(*control));
	OK(gpumem_buffer_signal(buffer, NULL, 2));
	OK(gpumem_buffer_wait(view, NULL, 2));
	munmap(control, GM_CONTROL_BYTES);
	OK(gm_raw_give_back(&liar, &opened));
	gm_raw_close(&liar);
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* Host memory can be had for reading alone, and its signals then, too. */
START_TEST(a_reader_of_host_memory_cannot_write_its_signals)
{
	gpumem_buffer *buffer = with_signals(session, BYTES);
	struct gm_raw_lease opened = {0};
	struct gm_raw reader;
	gpumem_token token;

	OK(gpumem_share(buffer, &read_only, &token));
	gm_raw_join(&reader, &daemon_);
	OK(gm_raw_open(&reader, token.bytes, &opened));
	GM_REQUIRE(mmap(NULL, GM_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, opened.control,
			   0) == MAP_FAILED);
	struct gm_control *control = control_of(opened.control, PROT_READ);
	OK(gpumem_buffer_signal(buffer, NULL, 9));
	GM_REQUIRE_EQ(control->value, 9);
	munmap(control, GM_CONTROL_BYTES);
	OK(gm_raw_give_back(&reader, &opened));
	gm_raw_close(&reader);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- the wire */

/* Asks which of the leases have no maker; how many are said to be gone. */
static size_t ask_makers(struct gm_raw *raw, uint64_t *leases, size_t n)
{
	Gm__Wire__GetMakers ask = GM__WIRE__GET_MAKERS__INIT;
	ask.leases = leases;
	ask.n_leases = n;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_MAKERS, get_makers, &ask);

	OK(gm_raw_call(raw, &packet));
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_MAKERS);
	return raw->packet->makers->n_gone;
}

START_TEST(the_daemon_tells_openers_and_answers_for_what_they_hold)
{
	struct gm_raw maker, opener;
	struct gm_raw_lease lease = {0}, opened = {0};
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t many[4097];

	gm_raw_join(&maker, &daemon_);
	gm_raw_join(&opener, &daemon_);
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = 2 * MIB;
	body.signals = true;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(LEASE, lease, &body);
	OK(gm_raw_call(&maker, &packet));
	GM_REQUIRE(maker.packet->lease_reply->signals && !maker.packet->lease_reply->maker_gone);
	GM_REQUIRE_EQ(maker.packet->lease_reply->user_bytes, 2 * MIB);
	OK(gm_raw_collect(&maker, &lease));
	GM_REQUIRE_EQ(lease.bytes, 2 * MIB); /* the control block is no memory of the device */
	GM_REQUIRE(lease.control > 0);
	GM_REQUIRE_EQ(gm_raw_grow(&maker, &lease, 2 * MIB), GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE(strstr(gm_raw_detail(&maker), "cannot grow") != NULL);

	OK(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token));
	OK(gm_raw_open(&opener, token, &opened));
	uint64_t asked[] = {lease.id, UINT64_MAX, 0};
	GM_REQUIRE_EQ(ask_makers(&opener, asked, 3), 2); /* all but the one that it holds */
	GM_REQUIRE_EQ(ask_makers(&opener, NULL, 0), 0);
	GM_REQUIRE(!gm_raw_has_event(&opener));

	gm_raw_lease_clear(&lease);
	OK(gm_raw_goodbye(&maker));
	GM_REQUIRE(gm_raw_receive_event(&opener));
	GM_REQUIRE_EQ(opener.event.kind, GM_PAGE_EVENT_MAKERS);
	GM_REQUIRE_EQ(ask_makers(&opener, asked, 3), 3);
	memset(many, 0xff, sizeof(many)); /* the longest ids that there are */
	GM_REQUIRE_EQ(ask_makers(&opener, many, 4096), 4096);
	Gm__Wire__GetMakers too_many = GM__WIRE__GET_MAKERS__INIT;
	too_many.leases = many;
	too_many.n_leases = 4097;
	packet = (Gm__Wire__Packet)GM_WIRE_PACKET(GET_MAKERS, get_makers, &too_many);
	GM_REQUIRE_EQ(gm_raw_call(&opener, &packet), GPUMEM_E_INVALID);
	OK(gm_raw_give_back(&opener, &opened));
	gm_raw_close(&maker);
	gm_raw_close(&opener);
}
END_TEST

static void raw_with_signals(struct gm_raw *raw, uint64_t bytes, struct gm_raw_lease *ret)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = bytes;
	body.signals = true;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(LEASE, lease, &body);
	OK(gm_raw_call(raw, &packet));
	OK(gm_raw_collect(raw, ret));
	GM_REQUIRE(ret->control > 0);
}

/* Every answer has it once, however many packets that takes: its handles may have been lost before. */
START_TEST(each_answer_brings_the_control_block)
{
	struct gm_raw maker;
	struct gm_raw_lease lease = {0}, handles;
	struct stat first, again;

	gm_raw_join(&maker, &daemon_);
	raw_with_signals(&maker, 62 * MIB, &lease);
	GM_REQUIRE(lease.n > 1);
	GM_REQUIRE(fstat(lease.control, &first) == 0);
	for (size_t from = 0; from <= lease.n; from++) {
		OK(gm_raw_handles(&maker, lease.id, from, &handles));
		GM_REQUIRE_EQ(handles.n, lease.n - from);
		GM_REQUIRE(fstat(handles.control, &again) == 0);
		GM_REQUIRE_EQ(first.st_ino, again.st_ino);
		gm_raw_lease_clear(&handles);
	}
	OK(gm_raw_give_back(&maker, &lease));
	gm_raw_close(&maker);
}
END_TEST

/* The maker has returned a chunk, which has nothing to do with the signals. */
START_TEST(signals_do_not_depend_on_chunks)
{
	struct gm_raw maker;
	struct gm_raw_lease lease = {0};
	gpumem_buffer *buffer = NULL;
	gpumem_token token;

	gm_raw_join(&maker, &daemon_);
	raw_with_signals(&maker, 6 * MIB, &lease);
	GM_REQUIRE_EQ(lease.n, 2);
	close(lease.chunks[1].fd);
	lease.chunks[1].fd = -1;
	OK(gm_raw_return(&maker, lease.id, &lease.chunks[1].id, 1));
	OK(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, _i, token.bytes));
	OK(gpumem_open(session, &token, &buffer));
	struct gm_control *control = control_of(lease.control, PROT_READ | PROT_WRITE);
	atomic_store(&control->last, 3);
	OK(gpumem_buffer_wait(buffer, NULL, 3));
	munmap(control, GM_CONTROL_BYTES);
	gpumem_buffer_destroy(buffer);
	OK(gm_raw_give_back(&maker, &lease));
	gm_raw_close(&maker);
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
	tcase_add_test(tc, the_daemon_tells_openers_and_answers_for_what_they_hold);
	tcase_add_test(tc, who_attaches_after_the_end_gets_what_was_signalled);
	tcase_add_loop_test(tc, the_keeper_that_follows_has_the_control_blocks, 0, 2);
	suite_add_tcase(suite, tc);

	tc = tcase_create("one session");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, signals_begin_at_0_whatever_the_memory_held);
	tcase_add_test(tc, wrong_calls_are_refused_and_change_nothing);
	tcase_add_test(tc, a_buffer_that_was_begun_has_signals_too);
	tcase_add_test(tc, a_lie_ends_with_the_next_signal);
	tcase_add_test(tc, a_reader_of_host_memory_cannot_write_its_signals);
	tcase_add_test(tc, each_answer_brings_the_control_block);
	tcase_add_loop_test(tc, signals_do_not_depend_on_chunks, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
