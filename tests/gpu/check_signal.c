/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Signals between processes, by streams of a GPU: a consumer's stream waits for a producer's, and goes
 * on when the producer is killed. See broker.h.
 */

#include <inttypes.h>
#include <stdatomic.h>

#include "common/control.h"
#include "tests/gpu/broker.h"

#define BYTES  (3 * MIB)
#define ROUNDS 200

static gpumem_buffer *with_signals(void)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;

	options.transport = GPUMEM_TRANSPORT_FD;
	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_buffer_create(session, 0, BYTES, &options, &buffer));
	return buffer;
}

static void pass_token(const struct gm_worker *from, const struct gm_worker *to)
{
	gpumem_token token;

	gm_hear(from->channel, &token, sizeof(token));
	gm_text_say(to->channel, &token, sizeof(token));
}

/* ---- two processes that answer one another */

/* Nothing but the streams keeps the order: the program only launches. */
static void play(int channel, void *argument)
{
	bool first = argument;
	gpumem_buffer *mine, *theirs;
	gpumem_token token;

	join(first ? "ping" : "pong");
	use_gpu();
	gm_cu_stream stream = stream_new();
	mine = with_signals();
	OK(gpumem_share(mine, NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &theirs));

	unsigned char *seen = calloc(ROUNDS, 1);
	GM_REQUIRE(seen);
	for (int i = 0; i < ROUNDS; i++) {
		gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(theirs) + BYTES - 1;
		if (!first)
			OK(gpumem_buffer_wait(
				theirs, stream, (uint64_t)i + 1, GPUMEM_WAIT_FOREVER));
		if (!first)
			CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)(seen + i), at, 1, stream));
		fill(gpumem_buffer_ptr(mine), BYTES, (unsigned char)(i + 1), stream);
		OK(gpumem_buffer_signal(mine, stream, (uint64_t)i + 1));
		if (first)
			OK(gpumem_buffer_wait(
				theirs, stream, (uint64_t)i + 1, GPUMEM_WAIT_FOREVER));
		if (first)
			CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)(seen + i), at, 1, stream));
	}
	CU(cuda->cuStreamSynchronize(stream));
	for (int i = 0; i < ROUNDS; i++)
		GM_REQUIRE_EQ(seen[i], (unsigned char)(i + 1));
	OK(gpumem_buffer_lost(theirs, ROUNDS));
	free(seen);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(theirs);
	gpumem_buffer_destroy(mine);
	gpumem_disconnect(session);
}

START_TEST(streams_of_two_processes_answer_one_another)
{
	struct gm_worker ping, pong;

	start_with(CONFIG(""));
	gm_worker_start(&ping, play, (void *)1);
	gm_worker_start(&pong, play, NULL);
	pass_token(&ping, &pong);
	pass_token(&pong, &ping);
	gm_hear_word(ping.channel, 'd');
	gm_hear_word(pong.channel, 'd');
	end_worker(&ping);
	end_worker(&pong);
	tear_down();
}
END_TEST

/* ---- a producer that goes */

struct going {
	bool read_only;
	bool default_stream; /* the consumer waits on it */
	int waits;           /* on so many streams */
	int others;          /* buffers with signals that come and go meanwhile */
};

/* Signals 1 behind a gate, and 2 never. It hears s: the gate opens. It hears e: it leaves. */
static void produce(int channel, void *argument)
{
	const struct going *going = argument;
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_buffer *buffer;
	gpumem_token token;

	join("producer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	buffer = with_signals();
	if (going->read_only)
		options.mode = GPUMEM_SHARE_READ_ONLY;
	OK(gpumem_share(buffer, &options, &token));
	keep_busy(stream);
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x61, stream);
	OK(gpumem_buffer_signal(buffer, stream, 1));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 's');
	open_gate();
	CU(cuda->cuStreamSynchronize(stream));
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

static void consume(int channel, void *argument)
{
	const struct going *going = argument;
	gm_cu_stream streams[64];
	gpumem_buffer *buffer;
	gpumem_token token;

	join("consumer");
	use_gpu();
	for (int i = 0; i < going->waits; i++)
		streams[i] = going->default_stream ? NULL : stream_new();
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &buffer));
	OK(gpumem_buffer_wait(buffer, streams[0], 1, GPUMEM_WAIT_FOREVER));
	GM_REQUIRE_EQ(cuda->cuStreamQuery(streams[0]), GM_CUDA_ERROR_NOT_READY);
	gm_text_say_word(channel, 'w');
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 0x61, streams[0]));
	OK(gpumem_buffer_lost(buffer, 1));
	OK(gpumem_buffer_lost(buffer, 2));

	for (int i = 0; i < going->waits; i++)
		OK(gpumem_buffer_wait(buffer, streams[i], 2, GPUMEM_WAIT_FOREVER));
	/* The library keeps their blocks registered: to end that, the driver would wait for the stream. */
	for (int i = 0; i < going->others; i++)
		gpumem_buffer_destroy(with_signals());
	GM_REQUIRE_EQ(cuda->cuStreamQuery(streams[0]), GM_CUDA_ERROR_NOT_READY);
	gm_text_say_word(channel, 'w');
	for (int i = 0; i < going->waits; i++)
		CU(cuda->cuStreamSynchronize(streams[i]));
	OK(gpumem_buffer_lost(buffer, 1));
	REFUSED(gpumem_buffer_lost(buffer, 2), GPUMEM_E_CANCELLED,
		"its last signal was 1, and 2 will not come");
	OK(gpumem_buffer_wait(buffer, streams[0], 1, GPUMEM_WAIT_FOREVER));

	/* The library of this process may not have heard of it yet: then the stream goes on anyway. */
	gpumem_status status = gpumem_buffer_wait(buffer, streams[0], 3, GPUMEM_WAIT_FOREVER);
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_CANCELLED);
	CU(cuda->cuStreamSynchronize(streams[0]));
	GM_UNTIL(gpumem_buffer_wait(buffer, streams[0], 3, GPUMEM_WAIT_FOREVER) ==
		 GPUMEM_E_CANCELLED);
	gm_text_say_word(channel, 'l');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* The producer has signalled 1, and all consumers wait for 2. */
static void begin_going(
	struct going *going, struct gm_worker *producer, struct gm_worker *consumers, int n)
{
	gpumem_token token;

	gm_worker_start(producer, produce, going);
	gm_hear(producer->channel, &token, sizeof(token));
	for (int i = 0; i < n; i++) {
		gm_worker_start(&consumers[i], consume, going);
		gm_text_say(consumers[i].channel, &token, sizeof(token));
		gm_hear_word(consumers[i].channel, 'w');
	}
	gm_text_say_word(producer->channel, 's');
	for (int i = 0; i < n; i++)
		gm_hear_word(consumers[i].channel, 'w');
}

static void end_going(struct gm_worker *consumers, int n)
{
	for (int i = 0; i < n; i++)
		gm_hear_word(consumers[i].channel, 'l');
	for (int i = 0; i < n; i++)
		end_worker(&consumers[i]);
	tear_down();
}

START_TEST(streams_that_wait_for_a_killed_producer_go_on)
{
	static struct going goings[] = {{.waits = 1}, {.waits = 1, .read_only = true},
		{.waits = 1, .default_stream = true}, {.waits = 40}, {.waits = 1, .others = 100}};
	struct gm_worker producer, consumers[2];

	start_with(CONFIG(""));
	begin_going(&goings[_i], &producer, consumers, 2);
	gm_worker_kill(&producer);
	end_going(consumers, 2);
}
END_TEST

START_TEST(streams_that_wait_for_a_producer_that_leaves_go_on)
{
	static struct going going = {.waits = 1};
	struct gm_worker producer, consumers[2];

	start_with(CONFIG(""));
	begin_going(&going, &producer, consumers, 2);
	end_worker(&producer);
	end_going(consumers, 2);
}
END_TEST

START_TEST(a_producer_that_dies_while_the_daemon_is_away_is_noticed)
{
	static struct going goings[] = {{.waits = 1}, {.waits = 40}};
	struct gm_worker producer, consumers[2];

	start_with(CONFIG(""));
	begin_going(&goings[_i], &producer, consumers, 2);
	gm_daemon_kill(&daemon_);
	gm_worker_kill(&producer);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	end_going(consumers, 2);
}
END_TEST

/* ---- a producer that lies */

/* The control block of the only buffer with signals, as the library has it mapped. */
static struct gm_control *find_block(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	uintptr_t at = 0;

	GM_REQUIRE(maps);
	while (!at && fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:gpumem-signals"))
			GM_REQUIRE_EQ(sscanf(line, "%" SCNxPTR, &at), 1);
	fclose(maps);
	GM_REQUIRE(at);
	return (struct gm_control *)at;
}

/* On v it signals 2 and on r takes that back, behind the library's back. */
static void lie(int channel, void *argument)
{
	gpumem_token token;

	(void)argument;
	join("liar");
	use_gpu();
	gpumem_buffer *buffer = with_signals();
	OK(gpumem_share(buffer, NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'v');
	atomic_store(&find_block()->value, 2);
	gm_text_say_word(channel, 'v');
	gm_hear_word(channel, 'r');
	atomic_store(&find_block()->value, 0);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'e'); /* it is killed before */
	gpumem_buffer_destroy(buffer);
}

/* More than may stay registered. */
static void others_come_and_go(void)
{
	for (int i = 0; i < 100; i++)
		gpumem_buffer_destroy(with_signals());
}

/* Its stream has not come to the wait yet, so what the block says now is not what the stream will see. */
static void believe(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_token token;

	(void)argument;
	join("believer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &buffer));
	keep_busy(stream);
	OK(gpumem_buffer_wait(buffer, stream, 2, GPUMEM_WAIT_FOREVER));
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'v');
	others_come_and_go();
	GM_REQUIRE_EQ(cuda->cuStreamQuery(stream), GM_CUDA_ERROR_NOT_READY);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'r');
	open_gate();
	others_come_and_go();
	GM_REQUIRE_EQ(cuda->cuStreamQuery(stream), GM_CUDA_ERROR_NOT_READY);
	gm_text_say_word(channel, 's');
	/* The library's thread ends the wait for a producer that is dead. It must not be stuck. */
	CU(cuda->cuStreamSynchronize(stream));
	others_come_and_go();
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_signal_that_is_taken_back_hangs_no_other_buffer)
{
	struct gm_worker liar, believer;

	start_with(CONFIG(""));
	gm_worker_start(&liar, lie, NULL);
	gm_worker_start(&believer, believe, NULL);
	pass_token(&liar, &believer);
	gm_hear_word(believer.channel, 'w');
	gm_text_say_word(liar.channel, 'v');
	gm_hear_word(liar.channel, 'v');
	gm_text_say_word(believer.channel, 'v');
	gm_hear_word(believer.channel, 'd');
	gm_text_say_word(liar.channel, 'r');
	gm_hear_word(liar.channel, 'r');
	gm_text_say_word(believer.channel, 'r');
	gm_hear_word(believer.channel, 's');
	gm_worker_kill(&liar);
	gm_worker_join(&believer);
	tear_down();
}
END_TEST

/* ---- what is refused */

static void refuses(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer, *none = NULL;

	join("refused");
	use_gpu();
	gm_cu_stream stream = stream_new();
	buffer = with_signals();
	begin_capture(stream);
	REFUSED(gpumem_buffer_signal(buffer, stream, 1), GPUMEM_E_BUSY,
		"a stream is being captured into a graph");
	REFUSED(gpumem_buffer_wait(buffer, stream, 1, GPUMEM_WAIT_FOREVER), GPUMEM_E_BUSY,
		"a stream is being captured into a graph");
	(void)end_capture(stream); /* nothing of ours broke it */
	OK(gpumem_buffer_signal(buffer, stream, 1));
	OK(gpumem_buffer_wait(buffer, stream, 1, GPUMEM_WAIT_FOREVER));
	CU(cuda->cuStreamSynchronize(stream));
	OK(gpumem_buffer_signal(buffer, GPUMEM_STREAM_DONE, 2));
	OK(gpumem_buffer_wait(buffer, NULL, 2, GPUMEM_WAIT_FOREVER));
	CU(cuda->cuStreamSynchronize(NULL));
	gpumem_buffer_destroy(buffer);

	/* A wait with a time is the caller's, and no stream has it. */
	buffer = with_signals();
	keep_busy(stream);
	OK(gpumem_buffer_signal(buffer, stream, 1));
	REFUSED(gpumem_buffer_wait(buffer, NULL, 1, 0), GPUMEM_E_TIMEOUT,
		"was not signalled in time");
	REFUSED(gpumem_buffer_wait(buffer, NULL, 1, 20), GPUMEM_E_TIMEOUT,
		"was not signalled in time");
	open_gate();
	OK(gpumem_buffer_wait(buffer, NULL, 1, 3600000));
	CU(cuda->cuStreamSynchronize(stream));
	gpumem_buffer_destroy(buffer);

	options.flags = GPUMEM_BUFFER_SIGNALS;
	REFUSED(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, BYTES, &options, &none),
		GPUMEM_E_UNSUPPORTED, "pinned host memory has no signals");
	options.transport = GPUMEM_TRANSPORT_IPC;
	REFUSED(gpumem_buffer_create(session, 0, BYTES, &options, &none), GPUMEM_E_UNSUPPORTED,
		"signals need the fd transport");
	gpumem_disconnect(session);
}

static void refuses_ipc(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *none = NULL;

	join("refused");
	use_gpu();
	options.flags = GPUMEM_BUFFER_SIGNALS;
	REFUSED(gpumem_buffer_create(session, 0, BYTES, &options, &none), GPUMEM_E_UNSUPPORTED,
		"signals need the fd transport");
	gpumem_disconnect(session);
}

START_TEST(what_cannot_be_signalled_is_refused)
{
	start_with(_i ? IPC_CONFIG : CONFIG("host_limit = 128M\n"));
	one_worker(_i ? refuses_ipc : refuses, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("signal");
	TCase *tc = tcase_create("signal");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, streams_of_two_processes_answer_one_another);
	tcase_add_loop_test(tc, streams_that_wait_for_a_killed_producer_go_on, 0, 5);
	tcase_add_test(tc, streams_that_wait_for_a_producer_that_leaves_go_on);
	tcase_add_loop_test(tc, a_producer_that_dies_while_the_daemon_is_away_is_noticed, 0, 2);
	tcase_add_test(tc, a_signal_that_is_taken_back_hangs_no_other_buffer);
	tcase_add_loop_test(tc, what_cannot_be_signalled_is_refused, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
