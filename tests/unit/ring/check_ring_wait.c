/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Ends of rings that wait for one another: in threads, where one may play a kernel, and in processes, one of
 * which may be killed. No test says how long anything takes.
 */

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client/ring/ring_wait.h"
#include "tests/unit/ring/ring_fixture.h"

#define MESSAGES 5000
#define FOREVER  ring_options(GPUMEM_RING_WAIT, GPUMEM_WAIT_FOREVER, 1)

/* ---- threads */

struct flood {
	gpumem_ring *ring;
	uint64_t messages;
};

/* Every word of a message, so that none is seen half written. */
struct message {
	uint64_t words[5];
};

static void *send_all(void *argument)
{
	struct flood *flood = argument;
	struct message message;

	for (uint64_t i = 0; i < flood->messages; i++) {
		for (uint64_t j = 0; j < 5; j++)
			message.words[j] = i * 5 + j;
		ck_assert_int_eq(gpumem_ring_send(flood->ring, &message), GPUMEM_OK);
	}
	ck_assert_int_eq(gpumem_ring_hang_up(flood->ring), GPUMEM_OK);
	return NULL;
}

static void receive_all(gpumem_ring *ring, uint64_t messages)
{
	struct message message;

	for (uint64_t i = 0; i < messages; i++) {
		ck_assert_int_eq(
			gpumem_ring_receive(ring, &message, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
		for (uint64_t j = 0; j < 5; j++)
			ck_assert_uint_eq(message.words[j], i * 5 + j);
	}
	ck_assert_int_eq(
		gpumem_ring_receive(ring, &message, GPUMEM_WAIT_FOREVER), GPUMEM_E_CANCELLED);
}

static void flood_both_ways(size_t messages, uint32_t flush_every, uint64_t first)
{
	struct ring_memory memory = ring_memory_new(sizeof(struct message), messages, first);
	gpumem_ring_options options = FOREVER;
	options.flush_every = flush_every;
	struct flood near = {ring_near(&memory, options), MESSAGES};
	struct flood far = {ring_far(&memory, options), MESSAGES};
	pthread_t near_sends, far_sends;

	/* Each end has one thread that sends and one that receives. */
	ck_assert_int_eq(pthread_create(&near_sends, NULL, send_all, &near), 0);
	ck_assert_int_eq(pthread_create(&far_sends, NULL, send_all, &far), 0);
	receive_all(far.ring, MESSAGES);
	pthread_join(near_sends, NULL);
	receive_all(near.ring, MESSAGES);
	pthread_join(far_sends, NULL);

	gpumem_ring_stats_t stats = ring_stats(near.ring);
	ck_assert_uint_eq(stats.out.sent, MESSAGES);
	ck_assert_uint_eq(stats.out.received, MESSAGES);
	ck_assert_uint_eq(stats.in.sent, MESSAGES);
	ck_assert_uint_le(stats.out.high_water, gpumem_ring_messages(near.ring));
	ck_assert_uint_ge(stats.out.high_water, 1);
	gpumem_ring_close(far.ring);
	gpumem_ring_close(near.ring);
	ring_memory_free(&memory);
}

/* The far end sends all before anybody reads what it sends, so the ring must wait, not fail. */
START_TEST(all_messages_arrive_whole_and_in_order)
{
	flood_both_ways(1, 1, 0);
	flood_both_ways(2, 1, UINT64_MAX - 2000);
	flood_both_ways(64, 1, UINT32_MAX - 2000);
	flood_both_ways(64, 16, UINT64_MAX - 1);
	flood_both_ways(1024, 0, 0);
}
END_TEST

/* A thread in place of a kernel: it answers with the device's header alone. */
static void *play_kernel(void *argument)
{
	const gpumem_ring_view *view = argument;
	gpumem_ring_sender out;
	gpumem_ring_receiver in;
	uint64_t number;

	gpumem_ring_sender_begin(&out, view);
	gpumem_ring_receiver_begin(&in, view);
	for (;;) {
		int last = gpumem_ring_receiver_closed(&in);
		int got = gpumem_ring_receiver_receive(&in, &number);
		ck_assert_int_ge(got, 0);
		if (!got && last)
			return NULL;
		number *= 2;
		while (got && !gpumem_ring_sender_send(&out, &number))
			sched_yield();
		if (!got)
			sched_yield();
	}
}

START_TEST(an_end_that_wakes_nobody_is_polled)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 4, 0);
	gpumem_ring *near = ring_near(&memory, FOREVER);
	gpumem_ring_view view;
	pthread_t kernel;
	uint64_t answer;

	ck_assert_int_eq(gpumem_ring_far_end(near, NULL, &view), GPUMEM_OK);
	/* Two kernels, one after the other: the second goes on where the first ended. */
	for (uint64_t round = 0; round < 2; round++) {
		ck_assert_int_eq(pthread_create(&kernel, NULL, play_kernel, &view), 0);
		for (uint64_t i = 0; i < 500; i++) {
			ck_assert_int_eq(gpumem_ring_send(near, &i), GPUMEM_OK);
			ck_assert_int_eq(
				gpumem_ring_receive(near, &answer, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
			ck_assert_uint_eq(answer, 2 * i);
		}
		/* The ring has no way back from hanging up: the test takes it back. */
		uint64_t owner = ring_control(&memory, false)->sender;
		if (round == 1)
			ck_assert_int_eq(gpumem_ring_hang_up(near), GPUMEM_OK);
		else
			__atomic_store_n(&ring_control(&memory, false)->sender,
				gm_ring_owner(GPUMEM_RING_SILENT), __ATOMIC_RELEASE);
		pthread_join(kernel, NULL);
		if (round == 0)
			__atomic_store_n(
				&ring_control(&memory, false)->sender, owner, __ATOMIC_RELEASE);
	}
	gpumem_ring_stats_t stats = ring_stats(near);
	ck_assert_uint_eq(stats.out.received, 1000);
	ck_assert_uint_eq(stats.in.sent, 1000);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

/* ---- the end of a wait */

START_TEST(a_wait_for_nobody_ends_with_its_timeout)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 2, 0);
	gpumem_ring *near = ring_near(&memory, ring_options(GPUMEM_RING_WAIT, 3, 1));
	uint64_t number = 5;

	ck_assert_int_eq(gpumem_ring_receive(near, &number, 3), GPUMEM_E_TIMEOUT);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gpumem_ring_send(near, &number), GPUMEM_OK);
	ck_assert_int_eq(gpumem_ring_send(near, &number), GPUMEM_E_TIMEOUT);
	ck_assert_uint_eq(ring_stats(near).out.sent, 2);
	ck_assert_uint_eq(ring_stats(near).out.dropped, 0);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

static void *close_it(void *argument)
{
	gpumem_ring_close(argument);
	return NULL;
}

START_TEST(a_close_ends_waits_of_the_other_end)
{
	for (int sending = 0; sending < 2; sending++) {
		struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 1, 0);
		gpumem_ring *near = ring_near(&memory, FOREVER), *far = ring_far(&memory, FOREVER);
		uint64_t number = 5;
		pthread_t thread;

		ck_assert_int_eq(gpumem_ring_send(near, &number), GPUMEM_OK);
		ck_assert_int_eq(pthread_create(&thread, NULL, close_it, far), 0);
		ck_assert_int_eq(sending ? gpumem_ring_send(near, &number)
					 : gpumem_ring_receive(near, &number, GPUMEM_WAIT_FOREVER),
			GPUMEM_E_CANCELLED);
		pthread_join(thread, NULL);
		gpumem_ring_close(near);
		ring_memory_free(&memory);
	}
}
END_TEST

/* ---- processes */

/* Sends numbers until it is killed. */
static void send_for_good(gpumem_ring *far)
{
	for (uint64_t i = 0;; i++)
		if (gpumem_ring_send(far, &i))
			_exit(1);
}

/* Starts a process, and returns when it has the far end. */
static pid_t start(void (*fn)(gpumem_ring *), const struct ring_memory *memory)
{
	char word = 0;
	int pair[2];

	ck_assert_int_eq(pipe(pair), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		gpumem_ring *far = ring_far(memory, FOREVER);
		if (write(pair[1], "r", 1) == 1)
			fn(far);
		_exit(1);
	}
	close(pair[1]);
	ck_assert_int_eq(read(pair[0], &word, 1), 1);
	close(pair[0]);
	return pid;
}

/* Whatever the sender was doing when it died: all messages that came are whole and in order, and then the
 * receiver is told. The next process goes on. */
START_TEST(a_killed_sender_leaves_whole_messages_and_ends_the_wait)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 16, UINT64_MAX - 1000);
	gpumem_ring *near = ring_near(&memory, FOREVER);
	uint64_t number;

	for (int round = 0; round < 20; round++) {
		pid_t pid = start(send_for_good, &memory);
		gpumem_status status = GPUMEM_OK;
		uint64_t expected = 0, kill_at = (uint64_t)round * 37;

		for (; status == GPUMEM_OK; expected++) {
			if (expected == kill_at)
				kill(pid, SIGKILL);
			status = gpumem_ring_receive(near, &number, GPUMEM_WAIT_FOREVER);
			if (status == GPUMEM_OK)
				ck_assert_uint_eq(number, expected);
		}
		ck_assert_int_eq(status, GPUMEM_E_CANCELLED);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	}
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

static void receive_for_good(gpumem_ring *far)
{
	uint64_t number;

	for (;;)
		if (gpumem_ring_receive(far, &number, GPUMEM_WAIT_FOREVER))
			_exit(1);
}

START_TEST(a_killed_receiver_ends_the_wait_for_a_place)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 4, 0);
	gpumem_ring *near = ring_near(&memory, FOREVER);

	for (int round = 0; round < 10; round++) {
		pid_t pid = start(receive_for_good, &memory);
		gpumem_status status = GPUMEM_OK;

		for (uint64_t i = 0; status == GPUMEM_OK; i++) {
			if (i == (uint64_t)round * 11)
				kill(pid, SIGKILL);
			status = gpumem_ring_send(near, &i);
		}
		ck_assert_int_eq(status, GPUMEM_E_CANCELLED);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	}
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

static void hold(gpumem_ring *far)
{
	uint64_t number = 1;

	if (gpumem_ring_send(far, &number) == GPUMEM_OK)
		for (;;)
			pause();
}

START_TEST(an_end_is_free_again_when_its_process_has_ended)
{
	struct ring_memory memory = ring_memory_new(sizeof(uint64_t), 4, 0);
	gpumem_ring *near = ring_near(&memory, FOREVER), *far;
	uint64_t *word = &ring_control(&memory, true)->sender, number;
	pid_t pid = start(hold, &memory);

	ck_assert_int_eq(gpumem_ring_receive(near, &number, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	ck_assert_int_eq(gm_ring_owner_claim(word, GPUMEM_RING_PROCESS, false), GPUMEM_E_BUSY);
	kill(pid, SIGKILL);
	ck_assert_int_eq(
		gpumem_ring_receive(near, &number, GPUMEM_WAIT_FOREVER), GPUMEM_E_CANCELLED);
	/* Nobody has asked for its status yet: it has ended all the same. */
	far = ring_far(&memory, FOREVER);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	gpumem_ring_close(far);
	gpumem_ring_close(near);
	ring_memory_free(&memory);
}
END_TEST

/* The kernel gives the number of a process that has ended to threads, too. */
struct numbered {
	_Atomic pid_t number;
	sem_t enough;
};

static void *have_a_number(void *argument)
{
	struct numbered *numbered = argument;
	atomic_store(&numbered->number, gettid());
	while (sem_wait(&numbered->enough) < 0)
		;
	return NULL;
}

START_TEST(a_number_that_is_a_threads_by_now_is_of_no_process)
{
	struct numbered numbered = {0};
	pthread_t thread;

	ck_assert_int_eq(sem_init(&numbered.enough, 0, 0), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, have_a_number, &numbered), 0);
	while (!atomic_load(&numbered.number))
		sched_yield();
	uint64_t mine = gm_ring_owner(GPUMEM_RING_PROCESS);
	uint64_t its = (mine & ~UINT64_C(0xffffffff)) | (uint64_t)numbered.number << 8 |
		       GPUMEM_RING_PROCESS;
	ck_assert(gm_ring_owner_gone(its));
	ck_assert(!gm_ring_owner_gone(mine));
	ck_assert_int_eq(gm_ring_owner_claim(&its, GPUMEM_RING_PROCESS, false), GPUMEM_OK);
	ck_assert_int_eq(sem_post(&numbered.enough), 0);
	pthread_join(thread, NULL);
}
END_TEST

/* ---- a number that goes and comes back */

struct wavering {
	uint64_t *word;
	_Atomic bool enough;
};

static void *waver(void *argument)
{
	struct wavering *wavering = argument;
	unsigned n = 0;
	while (!atomic_load(&wavering->enough)) {
		__atomic_store_n(wavering->word, 1, __ATOMIC_SEQ_CST);
		if (++n % 16 == 0)
			gm_ring_wake(wavering->word);
		__atomic_store_n(wavering->word, 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* The waiting end sees that the number is another one, and then finds the old one again. It waits on: only what
 * cannot be is nonsense. */
START_TEST(a_number_that_came_back_is_waited_for_again)
{
	for (int i = 0; i < 100; i++) {
		struct ring_memory memory = ring_memory_new(8, 1, 0);
		gpumem_ring *ring =
			ring_near(&memory, ring_options(GPUMEM_RING_WAIT, 3600 * 1000, 1));
		struct wavering wavering = {.word = i % 2 ? &ring_control(&memory, false)->tail
							  : &ring_control(&memory, true)->head};
		uint64_t message = 7;
		pthread_t thread;

		ck_assert_int_eq(gpumem_ring_send(ring, &message), GPUMEM_OK);
		ck_assert_int_eq(pthread_create(&thread, NULL, waver, &wavering), 0);
		gpumem_status status = i % 2 ? gpumem_ring_send(ring, &message)
					     : gpumem_ring_receive(ring, &message, 3600 * 1000);
		ck_assert_int_eq(status, GPUMEM_OK);
		atomic_store(&wavering.enough, true);
		pthread_join(thread, NULL);
		gpumem_ring_close(ring);
		ring_memory_free(&memory);
	}
}
END_TEST

START_TEST(a_process_of_another_namespace_is_never_taken_for_ended)
{
	uint64_t here = gm_ring_owner(GPUMEM_RING_PROCESS);
	uint64_t nobody = (here & ~(UINT64_C(0xffffff) << 8)) | UINT64_C(0xfffffe) << 8;

	ck_assert(gm_ring_owner_here(here));
	ck_assert(!gm_ring_owner_gone(here));
	ck_assert(gm_ring_owner_gone(nobody)); /* Linux has no such process */
	ck_assert(!gm_ring_owner_here(nobody));
	ck_assert(!gm_ring_owner_gone(nobody ^ UINT64_C(1) << 40));
	ck_assert(!gm_ring_owner_gone(nobody & 0xffffffff));
	ck_assert(!gm_ring_owner_here(here ^ UINT64_C(1) << 40));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring_wait");
	TCase *tc = tcase_create("ring_wait");

	tcase_add_test(tc, a_number_that_is_a_threads_by_now_is_of_no_process);
	tcase_add_test(tc, a_number_that_came_back_is_waited_for_again);
	tcase_add_test(tc, all_messages_arrive_whole_and_in_order);
	tcase_add_test(tc, an_end_that_wakes_nobody_is_polled);
	tcase_add_test(tc, a_wait_for_nobody_ends_with_its_timeout);
	tcase_add_test(tc, a_close_ends_waits_of_the_other_end);
	tcase_add_test(tc, a_killed_sender_leaves_whole_messages_and_ends_the_wait);
	tcase_add_test(tc, a_killed_receiver_ends_the_wait_for_a_place);
	tcase_add_test(tc, an_end_is_free_again_when_its_process_has_ended);
	tcase_add_test(tc, a_process_of_another_namespace_is_never_taken_for_ended);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
