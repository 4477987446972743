/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Rings in memory from a daemon: between processes, one of which may be killed, and between a program and a
 * kernel. Where there are no kernels (the host, the fake driver), a thread plays the kernel with the same
 * code. See pinned.h.
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "examples/ring_kernel.h"
#include "examples/ring_kernel.ptx.h"
#include "gpumem/gpumem_ring.h"
#include "tests/gpu/pinned.h"
#include "tests/tap.h"

#define UID_A    54321
#define MESSAGES 500000

static void tear_down_all(void)
{
	/* What a killed process had is destroyed a moment after its end was noticed. */
	GM_UNTIL(now().clients == 0);
	GM_UNTIL(now().leased + now().quarantined + now().admitted == 0);
	gm_daemon_stop(&daemon_);
}

static gpumem_ring_options patient(uint32_t flush_every)
{
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT;
	options.full = GPUMEM_RING_WAIT;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	options.flush_every = flush_every;
	return options;
}

/* ---- in a worker */

/* Makes a ring and says its token. */
static gpumem_ring *make_ring(
	int channel, size_t message_bytes, size_t messages, uint32_t flush_every)
{
	gpumem_ring_options options = patient(flush_every);
	gpumem_ring *ring;
	gpumem_token token;

	OK(gpumem_ring_create(session, message_bytes, messages, &options, &ring));
	OK(gpumem_share(gpumem_ring_buffer(ring), NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	return ring;
}

static gpumem_ring *open_ring(int channel, uint32_t flush_every)
{
	gpumem_ring_options options = patient(flush_every);
	gpumem_buffer *buffer;
	gpumem_ring *ring;
	gpumem_token token;

	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &buffer));
	OK(gpumem_ring_open(buffer, &options, &ring));
	return ring;
}

static void send_numbers(gpumem_ring *ring, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		OK(gpumem_ring_send(ring, (uint64_t[3]){i, ~i, i * i}));
}

static void receive_numbers(gpumem_ring *ring, uint64_t from, uint64_t to)
{
	uint64_t got[3];

	for (uint64_t i = from; i < to; i++) {
		OK(gpumem_ring_receive(ring, got, GPUMEM_WAIT_FOREVER));
		GM_REQUIRE(got[0] == i && got[1] == ~i && got[2] == i * i);
	}
}

static void leave(gpumem_ring *ring)
{
	gpumem_ring_close(ring);
	gpumem_disconnect(session);
}

static void pass_token(const struct gm_worker *from, const struct gm_worker *to)
{
	gpumem_token token;

	gm_hear(from->channel, &token, sizeof(token));
	gm_text_say(to->channel, &token, sizeof(token));
}

/* ---- two processes */

struct traffic {
	size_t messages;
	uint32_t flush_every;
};

static void send_very_many(int channel, void *argument)
{
	const struct traffic *traffic = argument;
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;

	join("near");
	use_gpu_of(0);
	gpumem_ring *ring =
		make_ring(channel, 3 * sizeof(uint64_t), traffic->messages, traffic->flush_every);
	send_numbers(ring, 0, MESSAGES);
	OK(gpumem_ring_flush(ring));
	receive_numbers(ring, 0, MESSAGES);
	OK(gpumem_ring_stats(ring, &stats));
	GM_REQUIRE_EQ(stats.out.sent, MESSAGES);
	GM_REQUIRE_EQ(stats.out.received, MESSAGES);
	GM_REQUIRE_EQ(stats.in.sent, MESSAGES);
	GM_REQUIRE_EQ(stats.in.dropped + stats.out.dropped, 0);
	GM_REQUIRE(stats.out.high_water >= 1 && stats.out.high_water <= traffic->messages);
	gm_hear_word(channel, 'e');
	leave(ring);
}

static void return_very_many(int channel, void *argument)
{
	const struct traffic *traffic = argument;
	uint64_t got[3];

	join("far");
	use_gpu_of(0);
	gpumem_ring *ring = open_ring(channel, traffic->flush_every);
	GM_REQUIRE_EQ(gpumem_ring_messages(ring), traffic->messages);
	GM_REQUIRE_EQ(gpumem_ring_message_bytes(ring), 3 * sizeof(uint64_t));
	receive_numbers(ring, 0, MESSAGES);
	GM_REQUIRE_EQ(gpumem_ring_receive(ring, got, 0), GPUMEM_E_TIMEOUT);
	send_numbers(ring, 0, MESSAGES);
	leave(ring);
}

static void exchange(struct traffic traffic)
{
	struct gm_worker near, far;

	gm_worker_start(&near, send_very_many, &traffic);
	gm_worker_start(&far, return_very_many, &traffic);
	pass_token(&near, &far);
	gm_worker_join(&far);
	end_worker(&near);
}

START_TEST(millions_of_messages_arrive_in_order_between_processes)
{
	set_up();
	exchange((struct traffic){.messages = 1024, .flush_every = 1});
	exchange((struct traffic){.messages = 256, .flush_every = 32});
	tear_down_all();
}
END_TEST

/* ---- a process that is killed */

static void answer_for_good(int channel, void *argument)
{
	uint64_t number;

	join("answers");
	use_gpu_of(0);
	gpumem_ring *ring = open_ring(channel, 1);
	gm_text_say_word(channel, 'o');
	for (;;) {
		OK(gpumem_ring_receive(ring, &number, GPUMEM_WAIT_FOREVER));
		number = ~number;
		OK(gpumem_ring_send(ring, &number));
	}
}

#define ROUNDS 6

/* Asks one process after the other; the test kills each of them while it answers. It hears n: the next one
 * is there. It says w: some answers have come, and g: the process is gone. */
static void ask_for_good(int channel, void *argument)
{
	uint64_t asked = 0, answered = 0, number;

	join("asks");
	use_gpu_of(0);
	gpumem_ring *ring = make_ring(channel, sizeof(uint64_t), 8, 1);
	for (int round = 0; round < ROUNDS; round++) {
		gpumem_status status = GPUMEM_OK;
		uint64_t before = answered;

		gm_hear_word(channel, 'n');
		while (!status) {
			if (asked - answered < 4)
				OK(gpumem_ring_send(ring, &asked));
			asked += asked - answered < 4;
			status = gpumem_ring_receive(ring, &number, GPUMEM_WAIT_FOREVER);
			/* A question that was read and not answered when the process was killed may
			 * be lost, and none is answered out of order. */
			if (!status) {
				GM_REQUIRE(~number >= answered && ~number < asked);
				answered = ~number + 1;
			}
			if (!status && answered - before >= 50 && before != UINT64_MAX) {
				gm_text_say_word(channel, 'w');
				before = UINT64_MAX;
			}
		}
		GM_REQUIRE_EQ(status, GPUMEM_E_CANCELLED);
		gm_text_say_word(channel, 'g');
	}
	leave(ring);
}

START_TEST(a_killed_process_is_noticed_and_the_next_one_goes_on)
{
	struct gm_worker asks, answers;
	gpumem_token token;

	set_up();
	gm_worker_start(&asks, ask_for_good, NULL);
	gm_hear(asks.channel, &token, sizeof(token));
	for (int round = 0; round < ROUNDS; round++) {
		gm_worker_start(&answers, answer_for_good, NULL);
		gm_text_say(answers.channel, &token, sizeof(token));
		gm_hear_word(answers.channel, 'o');
		gm_text_say_word(asks.channel, 'n');
		gm_hear_word(asks.channel, 'w');
		gm_worker_kill(&answers);
		gm_hear_word(asks.channel, 'g');
	}
	gm_worker_join(&asks);
	tear_down_all();
}
END_TEST

static void make_and_wait(int channel, void *argument)
{
	join("maker");
	use_gpu_of(0);
	gpumem_ring *ring = make_ring(channel, 3 * sizeof(uint64_t), 64, 1);
	send_numbers(ring, 0, 10);
	gm_text_say_word(channel, 's');
	gm_hear_word(channel, 'e'); /* never */
}

static void outlive_the_maker(int channel, void *argument)
{
	uint64_t got[3];

	join("opener");
	use_gpu_of(0);
	gpumem_ring *ring = open_ring(channel, 1);
	gm_text_say_word(channel, 'o');
	gm_hear_word(channel, 'k');
	receive_numbers(ring, 0, 10);
	GM_REQUIRE_EQ(gpumem_ring_receive(ring, got, GPUMEM_WAIT_FOREVER), GPUMEM_E_CANCELLED);
	send_numbers(ring, 0, 64);
	GM_REQUIRE_EQ(gpumem_ring_send(ring, got), GPUMEM_E_CANCELLED);
	leave(ring);
}

START_TEST(what_a_killed_maker_sent_is_received_and_then_its_end_noticed)
{
	struct gm_worker maker, opener;

	set_up();
	gm_worker_start(&maker, make_and_wait, NULL);
	gm_worker_start(&opener, outlive_the_maker, NULL);
	pass_token(&maker, &opener);
	gm_hear_word(opener.channel, 'o');
	gm_hear_word(maker.channel, 's');
	gm_worker_kill(&maker);
	gm_text_say_word(opener.channel, 'k');
	gm_worker_join(&opener);
	tear_down_all();
}
END_TEST

/* ---- without the daemon */

static void play_on(int channel, void *argument)
{
	bool first = argument;
	join(first ? "ping" : "pong");
	use_gpu_of(0);
	gpumem_ring *ring =
		first ? make_ring(channel, 3 * sizeof(uint64_t), 16, 1) : open_ring(channel, 1);
	for (uint64_t i = 0; i < 3; i++) {
		for (uint64_t n = i * 1000; n < (i + 1) * 1000; n++) {
			if (first)
				send_numbers(ring, n, n + 1);
			receive_numbers(ring, n, n + 1);
			if (!first)
				send_numbers(ring, n, n + 1);
		}
		gm_text_say_word(channel, 'd');
		gm_hear_word(channel, 'n');
	}
	leave(ring);
}

START_TEST(a_ring_works_while_the_daemon_is_away)
{
	struct gm_worker ping, pong;

	set_up();
	gm_worker_start(&ping, play_on, (void *)1);
	gm_worker_start(&pong, play_on, NULL);
	pass_token(&ping, &pong);
	for (int i = 0; i < 3; i++) {
		gm_hear_word(ping.channel, 'd');
		gm_hear_word(pong.channel, 'd');
		if (i == 0)
			gm_daemon_kill(&daemon_);
		if (i == 1)
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		gm_text_say_word(ping.channel, 'n');
		gm_text_say_word(pong.channel, 'n');
	}
	gm_worker_join(&ping);
	gm_worker_join(&pong);
	tear_down_all();
}
END_TEST

/* ---- names, other users, and what is refused */

static void publish_a_ring(int channel, void *argument)
{
	gpumem_ring *ring;
	uint64_t number;

	join("publisher");
	use_gpu_of(0);
	OK(gpumem_ring_create(session, sizeof(number), 3, NULL, &ring));
	OK(gpumem_publish(gpumem_ring_buffer(ring), "ring", NULL, GPUMEM_STREAM_DONE, NULL));
	gm_text_say_word(channel, 'p');
	OK(gpumem_ring_receive(ring, &number, GPUMEM_WAIT_FOREVER));
	GM_REQUIRE_EQ(number, 42);
	OK(gpumem_unpublish(session, "ring"));
	leave(ring);
}

static void attach_to_it(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_ring *ring;
	uint64_t number = 42;

	join("attacher");
	use_gpu_of(0);
	OK(gpumem_attach(session, "ring", &buffer));
	OK(gpumem_ring_open(buffer, NULL, &ring));
	GM_REQUIRE_EQ(gpumem_ring_messages(ring), 4);
	OK(gpumem_ring_send(ring, &number));
	leave(ring);
}

START_TEST(a_ring_is_found_by_its_name)
{
	struct gm_worker publisher;

	set_up();
	gm_worker_start(&publisher, publish_a_ring, NULL);
	gm_hear_word(publisher.channel, 'p');
	one_worker(attach_to_it, NULL);
	gm_worker_join(&publisher);
	tear_down_all();
}
END_TEST

static void make_for_another(int channel, void *argument)
{
	gpumem_ring_options options = patient(1);
	gpumem_share_options share = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_ring *ring;
	gpumem_token token;

	join("one user");
	use_gpu_of(0);
	options.flags = GPUMEM_BUFFER_FOR_OTHERS;
	OK(gpumem_ring_create(session, 3 * sizeof(uint64_t), 16, &options, &ring));
	share.audience = GPUMEM_AUDIENCE_UID;
	share.id = UID_A;
	share.flags = GPUMEM_READERS_CAN_WRITE;
	OK(gpumem_share(gpumem_ring_buffer(ring), &share, &token));
	gm_text_say(channel, &token, sizeof(token));
	send_numbers(ring, 0, 1000);
	receive_numbers(ring, 0, 1000);
	leave(ring);
}

static void open_as_another(int channel, void *argument)
{
	become(UID_A);
	join("another user");
	use_gpu_of(0);
	gpumem_ring *ring = open_ring(channel, 1);
	receive_numbers(ring, 0, 1000);
	send_numbers(ring, 0, 1000);
	leave(ring);
}

START_TEST(two_users_have_one_end_each)
{
	struct gm_worker one, another;

	set_up();
	gm_worker_start(&one, make_for_another, NULL);
	gm_worker_start(&another, open_as_another, NULL);
	pass_token(&one, &another);
	gm_worker_join(&one);
	gm_worker_join(&another);
	tear_down_all();
}
END_TEST

static void try_wrong_things(int channel, void *argument)
{
	gpumem_buffer *buffer, *opened;
	gpumem_ring *ring, *far, *none;
	gpumem_token token;

	join("wrong");
	use_gpu_of(0);
	REFUSED(gpumem_ring_create(session, 8, 0, NULL, &none), GPUMEM_E_INVALID, "messages");
	REFUSED(gpumem_ring_create(session, 0, 8, NULL, &none), GPUMEM_E_INVALID, "message_bytes");
	REFUSED(gpumem_ring_create(session, 8, 8, NULL, NULL), GPUMEM_E_INVALID, "ret_ring");
	REFUSED(gpumem_ring_create(session, SIZE_MAX, 8, NULL, &none), GPUMEM_E_INVALID,
		"message_bytes");
	GM_REQUIRE(gpumem_ring_create(session, 1 << 30, 1 << 30, NULL, &none) != GPUMEM_OK);
	GM_REQUIRE(gpumem_ring_create(session, 1 << 20, 1 << 10, NULL, &none) != GPUMEM_OK);
	REFUSED(gpumem_ring_open(NULL, NULL, &none), GPUMEM_E_INVALID, "buffer");

	/* A buffer that is no ring. */
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, MIB, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 0, MIB);
	REFUSED(gpumem_ring_open(buffer, NULL, &none), GPUMEM_E_INVALID, "no ring");
	gpumem_buffer_destroy(buffer);
	OK(gpumem_buffer_create(session, 0, MIB, NULL, &buffer));
	if (!on_host())
		REFUSED(gpumem_ring_open(buffer, NULL, &none), GPUMEM_E_UNSUPPORTED, "on a GPU");
	gpumem_buffer_destroy(buffer);

	/* A ring whose far end is taken. */
	OK(gpumem_ring_create(session, 8, 8, NULL, &ring));
	OK(gpumem_share(gpumem_ring_buffer(ring), NULL, &token));
	OK(gpumem_open(session, &token, &opened));
	OK(gpumem_ring_open(opened, NULL, &far));
	OK(gpumem_open(session, &token, &opened));
	REFUSED(gpumem_ring_open(opened, NULL, &none), GPUMEM_E_BUSY, "has the far end");
	gpumem_ring_close(far);
	OK(gpumem_ring_open(opened, NULL, &far));
	gpumem_ring_close(far);
	leave(ring);
}

START_TEST(what_is_wrong_is_refused_and_leaves_nothing_behind)
{
	set_up();
	one_worker(try_wrong_things, NULL);
	tear_down_all();
}
END_TEST

static void share_read_only(int channel, void *argument)
{
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_ring *ring;
	gpumem_token token;

	join("maker");
	use_gpu_of(0);
	OK(gpumem_ring_create(session, 8, 8, NULL, &ring));
	options.mode = GPUMEM_SHARE_READ_ONLY;
	OK(gpumem_share(gpumem_ring_buffer(ring), &options, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'e');
	leave(ring);
}

static void open_read_only(int channel, void *argument)
{
	gpumem_buffer *opened;
	gpumem_ring *none;
	gpumem_token token;

	join("opener");
	use_gpu_of(0);
	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &opened));
	REFUSED(gpumem_ring_open(opened, NULL, &none), GPUMEM_E_DENIED, "read-only");
	gpumem_buffer_destroy(opened);
	gpumem_disconnect(session);
}

START_TEST(a_ring_that_may_only_be_read_is_not_opened)
{
	struct gm_worker maker, opener;

	set_up();
	gm_worker_start(&maker, share_read_only, NULL);
	gm_worker_start(&opener, open_read_only, NULL);
	pass_token(&maker, &opener);
	gm_worker_join(&opener);
	end_worker(&maker);
	tear_down_all();
}
END_TEST

static void use_it_in_a_child(int channel, void *argument)
{
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
	uint64_t number = 1;
	gpumem_ring *ring;
	int status;

	join("parent");
	OK(gpumem_ring_create(session, sizeof(number), 8, NULL, &ring));
	pid_t pid = fork();
	if (pid == 0) {
		bool all = gpumem_ring_send(ring, &number) == GPUMEM_E_FORKED &&
			   gpumem_ring_receive(ring, &number, 0) == GPUMEM_E_FORKED &&
			   gpumem_ring_flush(ring) == GPUMEM_E_FORKED &&
			   gpumem_ring_hang_up(ring) == GPUMEM_E_FORKED &&
			   gpumem_ring_stats(ring, &stats) == GPUMEM_E_FORKED;
		gpumem_ring_close(ring);
		_exit(all ? 0 : 1);
	}
	GM_REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	/* The child has changed nothing. */
	OK(gpumem_ring_send(ring, &number));
	OK(gpumem_ring_stats(ring, &stats));
	GM_REQUIRE_EQ(stats.out.sent, 1);
	leave(ring);
}

START_TEST(a_forked_child_leaves_the_ring_alone)
{
	set_up();
	one_worker(use_it_in_a_child, NULL);
	tear_down_all();
}
END_TEST

/* ---- a kernel */

static void *play_kernel(void *view)
{
	ring_answer(view);
	return NULL;
}

/* Starts what answers, and returns a thread to join; 0: it is a kernel. */
static pthread_t start_kernel(gpumem_ring_view *view, gm_cu_stream stream)
{
	gm_cu_result (*load)(void **, const void *) =
		(gm_cu_result(*)(void **, const void *))driver_symbol("cuModuleLoadData");
	gm_cu_result (*find)(void **, void *, const char *) = (gm_cu_result(*)(
		void **, void *, const char *))driver_symbol("cuModuleGetFunction");
	gm_cu_result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		unsigned, gm_cu_stream, void **, void **) =
		(gm_cu_result(*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			unsigned, gm_cu_stream, void **, void **))driver_symbol("cuLaunchKernel");
	void *module, *function, *arguments[] = {view};
	pthread_t thread = 0;

	if (on_host() || !launch) {
		GM_REQUIRE(on_host() || on_fake());
		GM_REQUIRE(pthread_create(&thread, NULL, play_kernel, view) == 0);
		return thread;
	}
	CU(load(&module, ring_kernel_text));
	CU(find(&function, module, "ring_kernel"));
	CU(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	return 0;
}

#define QUESTIONS 20000

static void ask_a_kernel(int channel, void *argument)
{
	gpumem_ring_options options = patient(1);
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
	struct ring_message question = {0}, answer;
	gpumem_ring_view view;
	gpumem_ring *ring;

	join("asks a kernel");
	use_gpu_of(0);
	OK(gpumem_ring_create(session, sizeof(question), 16, &options, &ring));
	OK(gpumem_ring_far_end(ring, NULL, &view));
	gm_cu_stream stream = on_host() ? NULL : stream_new();
	pthread_t thread = start_kernel(&view, stream);

	for (uint64_t answered = 0; answered < QUESTIONS; answered++) {
		while (question.id < QUESTIONS && question.id < answered + 1 + answered % 16) {
			question.number = (double)question.id;
			OK(gpumem_ring_send(ring, &question));
			question.id++;
		}
		OK(gpumem_ring_receive(ring, &answer, GPUMEM_WAIT_FOREVER));
		GM_REQUIRE_EQ(answer.id, answered);
		GM_REQUIRE(answer.number == (double)answered * (double)answered);
	}
	OK(gpumem_ring_hang_up(ring));
	if (thread)
		GM_REQUIRE(pthread_join(thread, NULL) == 0);
	else
		CU(cuda->cuStreamSynchronize(stream));
	OK(gpumem_ring_stats(ring, &stats));
	GM_REQUIRE_EQ(stats.out.received, QUESTIONS);
	GM_REQUIRE_EQ(stats.in.sent, QUESTIONS);
	GM_REQUIRE_EQ(stats.in.received, QUESTIONS);
	GM_REQUIRE(stats.in.high_water >= 1 && stats.in.high_water <= 16);
	leave(ring);
}

START_TEST(a_kernel_answers_while_it_runs)
{
	set_up();
	one_worker(ask_a_kernel, NULL);
	tear_down_all();
}
END_TEST

/* To end a registration, the driver waits for all that runs, and keeps the program from launching: a kernel
 * that waits for the program's next message would hang both. */
static void signals_beside_a_kernel(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_ring_view view;
	gpumem_buffer *buffer;
	gpumem_ring *ring;

	join("signals");
	use_gpu_of(0);
	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_ring_create(session, 8, 16, NULL, &ring));
	OK(gpumem_ring_far_end(ring, NULL, &view));
	OK(gpumem_ring_far_end(ring, NULL, &view)); /* the same kernel */
	int before = registered();
	for (int i = 0; i < 200; i++) {
		OK(gpumem_buffer_create(session, 0, MIB, &options, &buffer));
		gpumem_buffer_destroy(buffer);
		OK(gpumem_trim(session, NULL));
	}
	if (on_fake())
		GM_UNTIL(registered() == before + 200);
	gpumem_ring_close(ring);
	/* Each destroyed buffer wakes the library's thread, which ends what it may. */
	do {
		OK(gpumem_buffer_create(session, 0, MIB, &options, &buffer));
		gpumem_buffer_destroy(buffer);
		OK(gpumem_trim(session, NULL));
	} while (registered() > before + 100);
	gpumem_disconnect(session);
}

START_TEST(no_registration_ends_while_a_kernel_may_wait_for_a_message)
{
	set_up();
	one_worker(signals_beside_a_kernel, NULL);
	tear_down_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring_gpu");
	TCase *tc = tcase_create("ring_gpu");

	/* Millions of messages between two processes, on a busy machine. */
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, millions_of_messages_arrive_in_order_between_processes);
	tcase_add_test(tc, a_killed_process_is_noticed_and_the_next_one_goes_on);
	tcase_add_test(tc, what_a_killed_maker_sent_is_received_and_then_its_end_noticed);
	tcase_add_test(tc, no_registration_ends_while_a_kernel_may_wait_for_a_message);
	tcase_add_test(tc, a_ring_works_while_the_daemon_is_away);
	tcase_add_test(tc, a_ring_is_found_by_its_name);
	if (GM_TAP_WITH_USERS(two_users_have_one_end_each))
		tcase_add_test(tc, two_users_have_one_end_each);
	tcase_add_test(tc, what_is_wrong_is_refused_and_leaves_nothing_behind);
	tcase_add_test(tc, a_ring_that_may_only_be_read_is_not_opened);
	tcase_add_test(tc, a_forked_child_leaves_the_ring_alone);
	tcase_add_test(tc, a_kernel_answers_while_it_runs);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
