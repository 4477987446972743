/* SPDX-License-Identifier: Apache-2.0 */

/* A device's thread, driven through a backend that notes what it was asked for and in which order.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/backend/worker.h"
#include "tests/tap.h"

#define JOBS 64

/* The backend: creations wait for a permit, everything is noted. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int permits, waiting;
	uint64_t
		order[JOBS]; /* bytes of each creation; those of a destruction are 0x1000 + bytes */
	size_t n;
	int fail_with;
	uint64_t free_bytes;
	int sample_fails_with;
	bool processes_fail;
	long count_ns; /* how long it takes to list processes */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note(uint64_t what)
{
	ck_assert_uint_lt(fake.n, JOBS);
	fake.order[fake.n++] = what;
}

/* Returns the place of what was noted in the order. */
static size_t place(uint64_t what)
{
	for (size_t i = 0; i < fake.n; i++)
		if (fake.order[i] == what)
			return i;
	ck_abort_msg("%llx was not done", (unsigned long long)what);
}

static int fake_create(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_backend_handle *ret)
{
	pthread_mutex_lock(&fake.lock);
	fake.waiting++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.permits == 0)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake.permits--;
	fake.waiting--;
	note(bytes);
	int r = fake.fail_with;
	pthread_mutex_unlock(&fake.lock);
	ret->fd = -1;
	return r;
}

static void fake_destroy(void *backend, uint32_t device, enum gm_transport transport,
	uint64_t bytes, const struct gm_backend_seen *seen, struct gm_backend_handle *handle)
{
	pthread_mutex_lock(&fake.lock);
	note(0x1000 + bytes);
	pthread_mutex_unlock(&fake.lock);
}

static int fake_memory_free(void *backend, uint32_t device, uint64_t *ret_free)
{
	pthread_mutex_lock(&fake.lock);
	*ret_free = fake.free_bytes;
	int r = fake.sample_fails_with;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static int fake_processes(
	void *backend, uint32_t device, struct gm_backend_process **ret_list, size_t *ret_n)
{
	nanosleep(&(struct timespec){.tv_nsec = fake.count_ns}, NULL);
	if (fake.processes_fail)
		return -EOPNOTSUPP;
	*ret_list = calloc(2, sizeof(**ret_list));
	(*ret_list)[0] = (struct gm_backend_process){getpid(), 5};
	(*ret_list)[1] = (struct gm_backend_process){1, 7};
	*ret_n = 2;
	return 0;
}

static const struct gm_backend_ops shared_ops = {
	.name = "fake",
	.create = fake_create,
	.destroy = fake_destroy,
	.memory_free = fake_memory_free,
	.processes = fake_processes,
};
static const struct gm_backend_ops exclusive_ops = {
	.name = "fake",
	.exclusive = true,
	.create = fake_create,
	.destroy = fake_destroy,
	.memory_free = fake_memory_free,
};

/* Noted as 0x2000 and the number of the first MiB. */
static void fake_discard(
	void *backend, const struct gm_backend_handle *handle, uint64_t from, uint64_t bytes)
{
	pthread_mutex_lock(&fake.lock);
	note(0x2000 + (from >> 20));
	ck_assert_uint_le(bytes, 4 << 20);
	pthread_mutex_unlock(&fake.lock);
}

static const struct gm_backend_ops discarding_ops = {
	.name = "fake",
	.exclusive = true,
	.create = fake_create,
	.discard = fake_discard,
	.destroy = fake_destroy,
	.memory_free = fake_memory_free,
};

static uv_loop_t loop;
static struct gm_worker *worker;
static struct gm_chunk chunks[JOBS];
static pthread_t loop_thread;
static struct {
	size_t created, destroyed, sampled, failed, surveyed, not_sampled, latest;
	uint64_t last_free;
	size_t created_before_sample, created_before_survey, sampled_before_survey;
	struct gm_usage *usage;
	size_t counted, destroyed_before_count[JOBS];
	struct gm_usage_sample *last_count;
} told;
static size_t expect;

static void tell(void)
{
	ck_assert(pthread_equal(pthread_self(), loop_thread));
	if (told.created + told.destroyed + told.sampled + told.surveyed == expect)
		uv_stop(&loop);
}

static void on_created(void *ctx, struct gm_chunk *chunk, int result)
{
	told.created++;
	if (result < 0)
		told.failed++;
	tell();
}

static void on_destroyed(void *ctx, struct gm_chunk *chunk)
{
	told.destroyed++;
	tell();
}

static void on_sampled(void *ctx, uint32_t device, int result, uint64_t free_bytes, bool latest)
{
	ck_assert_uint_eq(device, 3);
	told.sampled++;
	told.not_sampled += result < 0;
	told.latest += latest;
	told.last_free = free_bytes;
	told.created_before_sample = told.created;
	tell();
}

static void on_surveyed(void *ctx, uint32_t device, struct gm_usage *usage)
{
	ck_assert_uint_eq(device, 3);
	told.surveyed++;
	told.created_before_survey = told.created;
	told.sampled_before_survey = told.sampled;
	gm_usage_free(told.usage);
	told.usage = usage;
	tell();
}

static void on_counted(void *ctx, uint32_t device, struct gm_usage_sample *counted)
{
	ck_assert_uint_eq(device, 3);
	ck_assert(pthread_equal(pthread_self(), loop_thread));
	ck_assert_uint_lt(told.counted, JOBS);
	told.destroyed_before_count[told.counted++] = told.destroyed;
	free(told.last_count);
	told.last_count = counted;
}

static const struct gm_worker_events events = {
	.created = on_created,
	.destroyed = on_destroyed,
	.sampled = on_sampled,
	.counted = on_counted,
	.surveyed = on_surveyed,
};

static void start(const struct gm_backend_ops *ops)
{
	loop_thread = pthread_self();
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_worker_new(&loop, ops, NULL, 3, &events, NULL, &worker), 0);
	for (size_t i = 0; i < JOBS; i++)
		chunks[i] = (struct gm_chunk){.bytes = i, .transport = GM_TRANSPORT_FD};
}

static void stop(void)
{
	gm_worker_stop(worker);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void run_until(size_t n)
{
	expect = n;
	if (told.created + told.destroyed + told.sampled + told.surveyed < n)
		uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(told.created + told.destroyed + told.sampled + told.surveyed, n);
}

static void run_until_counted(size_t n)
{
	while (told.counted < n)
		uv_run(&loop, UV_RUN_ONCE);
}

static void permit(unsigned int n)
{
	pthread_mutex_lock(&fake.lock);
	fake.permits += n;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

/* Who waits while there is a permit is about to go on. */
static void wait_until_stuck(void)
{
	pthread_mutex_lock(&fake.lock);
	while (fake.waiting == 0 || fake.permits > 0)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

/* The thread is held with job 0, so that all others are queued. */
static void start_stuck(uint64_t turn)
{
	start(&exclusive_ops);
	gm_worker_create(worker, &chunks[0], turn);
	wait_until_stuck();
}

START_TEST(creations_of_different_sessions_take_turns)
{
	start_stuck(99);
	for (size_t i = 1; i <= 6; i++)
		gm_worker_create(worker, &chunks[i], 1);
	gm_worker_create(worker, &chunks[10], 2);
	gm_worker_create(worker, &chunks[11], 2);
	gm_worker_create(worker, &chunks[20], 3);
	permit(10);
	run_until(10);
	static const uint64_t order[] = {0, 1, 10, 20, 2, 11, 3, 4, 5, 6};
	for (size_t i = 0; i < 10; i++)
		ck_assert_uint_eq(fake.order[i], order[i]);
	stop();
}
END_TEST

/* The first of a turn, one in its middle, its last, and a turn that is one job. */
START_TEST(a_creation_that_has_not_begun_is_called_off_and_leaves_the_others_as_they_were)
{
	start_stuck(99);
	for (size_t i = 1; i <= 6; i++)
		gm_worker_create(worker, &chunks[i], 1);
	gm_worker_create(worker, &chunks[10], 2);
	gm_worker_create(worker, &chunks[20], 3);
	gm_worker_create(worker, &chunks[21], 3);
	static const size_t off[] = {1, 3, 6, 10};
	for (size_t i = 0; i < 4; i++) {
		ck_assert(gm_worker_call_off(worker, &chunks[off[i]]));
		ck_assert(!gm_worker_call_off(worker, &chunks[off[i]]));
	}
	ck_assert(!gm_worker_call_off(worker, &chunks[0])); /* it is under way */
	/* What comes later goes to the end of its turn. */
	gm_worker_create(worker, &chunks[7], 1);
	gm_worker_create(worker, &chunks[10], 2);
	permit(8);
	run_until(8);
	static const uint64_t order[] = {0, 2, 20, 10, 4, 21, 5, 7};
	for (size_t i = 0; i < 8; i++)
		ck_assert_uint_eq(fake.order[i], order[i]);
	ck_assert(!gm_worker_call_off(worker, &chunks[7])); /* it is done */
	for (size_t i = 30; i < 32; i++)
		gm_worker_create(worker, &chunks[i], 5);
	wait_until_stuck();
	ck_assert(gm_worker_call_off(worker, &chunks[31]));
	permit(1);
	run_until(9);
	stop();
}
END_TEST

START_TEST(a_users_destructions_go_before_its_creations)
{
	start_stuck(1);
	gm_worker_create(worker, &chunks[1], 1);
	gm_worker_destroy(worker, &chunks[2]);
	gm_worker_destroy(worker, &chunks[3]);
	permit(2);
	run_until(4);
	static const uint64_t order[] = {0, 0x1002, 0x1003, 1};
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_eq(fake.order[i], order[i]);
	ck_assert_uint_eq(told.destroyed, 2);
	stop();
}
END_TEST

START_TEST(a_large_chunk_is_destroyed_in_parts_between_which_others_have_their_turn)
{
	static const uint64_t large = 40 << 20;
	start(&discarding_ops);
	gm_worker_create(worker, &chunks[0], 99);
	wait_until_stuck();
	chunks[1].payer_uid = 1;
	chunks[1].bytes = large;
	gm_worker_destroy(worker, &chunks[1]);
	/* 5 is of the same user. 4 needs room, so it waits for all of the large one. */
	static const uid_t uids[] = {2, 2, 2, 1, 3};
	for (size_t i = 2; i <= 6; i++) {
		chunks[i].payer_uid = uids[i - 2];
		chunks[i].after_doomed = i == 4;
		gm_worker_create(worker, &chunks[i], 7);
	}
	permit(6);
	run_until(7);
	/* Each user has one job before anybody has two. */
	static const uint64_t first[] = {0, 0x2000, 2, 6};
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		ck_assert_uint_eq(fake.order[i], first[i]);
	for (uint64_t mib = 0; mib + 4 < large >> 20; mib += 4)
		ck_assert_uint_lt(place(0x2000 + mib), place(0x2000 + mib + 4));
	ck_assert_uint_lt(place(0x2000 + (large >> 20) - 4), place(0x1000 + large));
	ck_assert_uint_lt(place(0x1000 + large), place(4));
	ck_assert_uint_lt(place(0x1000 + large), place(5));
	stop();
}
END_TEST

/* A user's job does not wait until the loop has taken the results of all jobs of another user. */
START_TEST(the_thread_begins_no_further_job_while_results_wait_for_the_loop)
{
	enum { OF_ONE = 40, OF_OTHER = 50 };
	size_t n;

	start_stuck(99);
	for (size_t i = 1; i <= OF_ONE; i++)
		chunks[i].payer_uid = 1;
	chunks[OF_OTHER].payer_uid = 2;
	for (size_t i = 1; i <= OF_ONE; i++)
		gm_worker_create(worker, &chunks[i], 1);
	permit(JOBS);
	do {
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		pthread_mutex_lock(&fake.lock);
		n = fake.n;
		pthread_mutex_unlock(&fake.lock);
	} while (n < GM_WORKER_AHEAD);
	ck_assert_uint_eq(n, GM_WORKER_AHEAD);
	gm_worker_create(worker, &chunks[OF_OTHER], 2);
	run_until(OF_ONE + 2);
	ck_assert_uint_eq(place(OF_OTHER), GM_WORKER_AHEAD);
	stop();
}
END_TEST

START_TEST(the_loop_turns_while_the_backend_is_stuck)
{
	start_stuck(1);
	ck_assert_int_ne(uv_run(&loop, UV_RUN_NOWAIT), 0);
	ck_assert_uint_eq(told.created, 0);
	permit(1);
	run_until(1);
	stop();
}
END_TEST

START_TEST(a_failed_creation_is_told_with_its_error_behind_a_fresh_sample)
{
	start(&shared_ops);
	fake.fail_with = -ENOMEM;
	fake.free_bytes = 4711;
	gm_worker_create(worker, &chunks[0], 1);
	permit(1);
	run_until(2);
	ck_assert_uint_eq(told.failed, 1);
	ck_assert_uint_eq(told.sampled, 1);
	ck_assert_uint_eq(told.last_free, 4711);
	ck_assert_uint_eq(told.created_before_sample, 0);
	stop();
}
END_TEST

START_TEST(a_sample_is_told_when_it_is_asked_for)
{
	start(&shared_ops);
	fake.free_bytes = 17;
	gm_worker_sample(worker);
	run_until(1);
	ck_assert_uint_eq(told.last_free, 17);
	stop();
}
END_TEST

START_TEST(a_sample_that_began_before_it_was_asked_for_is_not_the_latest)
{
	start(&shared_ops);
	fake.fail_with = -ENOMEM;
	gm_worker_create(worker, &chunks[0], 1);
	gm_worker_create(worker, &chunks[1], 1);
	permit(1);
	/* The first has failed, and was looked after; the second is under way. */
	wait_until_stuck();
	gm_worker_sample(worker);
	run_until(2);
	ck_assert_uint_eq(told.sampled, 1);
	ck_assert_uint_eq(told.latest, 0);
	/* The one after it answers both who asked and why the second one failed. */
	permit(1);
	run_until(4);
	ck_assert_uint_eq(told.sampled, 2);
	ck_assert_uint_eq(told.latest, 1);
	stop();
}
END_TEST

START_TEST(devices_that_are_exclusive_are_not_sampled)
{
	start(&exclusive_ops);
	fake.fail_with = -ENOMEM;
	gm_worker_sample(worker);
	gm_worker_create(worker, &chunks[0], 1);
	permit(1);
	run_until(1);
	ck_assert_uint_eq(told.created, 1);
	ck_assert_uint_eq(told.failed, 1);
	stop();
	ck_assert_uint_eq(told.sampled, 0);
}
END_TEST

START_TEST(a_sample_that_fails_is_told_as_such)
{
	start(&shared_ops);
	fake.sample_fails_with = -EIO;
	gm_worker_sample(worker);
	run_until(1);
	ck_assert_uint_eq(told.not_sampled, 1);
	stop();
}
END_TEST

START_TEST(a_survey_comes_between_two_jobs_with_a_sample_before_it)
{
	start(&shared_ops);
	fake.free_bytes = 4711;
	gm_worker_create(worker, &chunks[0], 1);
	wait_until_stuck();
	gm_worker_create(worker, &chunks[1], 1);
	gm_worker_survey(worker);
	gm_worker_survey(worker); /* the same one */
	permit(2);
	run_until(4);
	ck_assert_uint_eq(told.surveyed, 1);
	ck_assert_uint_eq(told.sampled, 1);
	ck_assert_uint_eq(told.sampled_before_survey, 1);
	ck_assert_uint_eq(told.last_free, 4711);
	/* Both mean the device as it was when one chunk had been made and the other had not. */
	ck_assert_uint_eq(told.created_before_sample, 1);
	ck_assert_uint_eq(told.created_before_survey, 1);
	ck_assert(told.usage->known);
	ck_assert_uint_eq(told.usage->n, 2);
	ck_assert_int_eq(told.usage->list[0].pid, 1);
	ck_assert_int_eq(told.usage->list[1].pid, getpid());
	gm_usage_free(told.usage);
	stop();
}
END_TEST

START_TEST(a_survey_that_fails_says_that_nothing_is_known)
{
	start(&shared_ops);
	fake.processes_fail = true;
	gm_worker_survey(worker);
	run_until(2);
	ck_assert(!told.usage->known);
	ck_assert_uint_eq(told.usage->n, 0);
	gm_usage_free(told.usage);
	stop();
}
END_TEST

START_TEST(a_count_is_in_order_of_pid_and_comes_with_a_sample)
{
	start(&shared_ops);
	fake.free_bytes = 4711;
	gm_worker_count(worker);
	run_until_counted(1);
	ck_assert(told.last_count->known && told.last_count->sampled);
	ck_assert_uint_eq(told.last_count->free_bytes, 4711);
	ck_assert_uint_eq(told.last_count->n, 2);
	ck_assert_int_eq(told.last_count->list[0].pid, 1);
	ck_assert_uint_eq(told.last_count->list[0].bytes, 7);
	ck_assert_int_eq(told.last_count->list[1].pid, getpid());
	ck_assert_uint_eq(told.sampled, 0);

	fake.processes_fail = true;
	fake.sample_fails_with = -EIO;
	gm_worker_count(worker);
	run_until_counted(2);
	ck_assert(!told.last_count->known && !told.last_count->sampled);
	free(told.last_count);
	stop();
}
END_TEST

START_TEST(a_watched_chunk_is_destroyed_between_two_counts)
{
	start(&shared_ops);
	gm_worker_destroy(worker, &chunks[1]);
	run_until(1);
	ck_assert_uint_eq(told.counted, 0);
	chunks[2].watched = true;
	gm_worker_destroy(worker, &chunks[2]);
	run_until_counted(2);
	ck_assert_uint_eq(told.destroyed_before_count[0], 1);
	ck_assert_uint_eq(told.destroyed_before_count[1], 2);
	free(told.last_count);
	stop();
}
END_TEST

/* A count takes far longer than a destruction here. */
START_TEST(many_watched_chunks_are_counted_together)
{
	enum { MANY = 60 };
	size_t behind = 0;
	start(&shared_ops);
	fake.count_ns = 2000000;
	gm_worker_create(worker, &chunks[0], 99);
	wait_until_stuck();
	for (size_t i = 1; i <= MANY; i++) {
		chunks[i].watched = true;
		gm_worker_destroy(worker, &chunks[i]);
	}
	permit(1);
	run_until(MANY + 1);
	/* The last of them is counted, too. */
	while (behind < MANY) {
		run_until_counted(told.counted + 1);
		behind = told.destroyed_before_count[told.counted - 1];
	}
	ck_assert_uint_eq(told.destroyed_before_count[0], 0);
	ck_assert_uint_le(told.counted, MANY / 3);
	free(told.last_count);
	stop();
}
END_TEST

/* Nothing could be told of a process that no count has seen, so the pace does not hold for it. */
START_TEST(an_unseen_chunk_is_counted_before_it_is_destroyed_at_any_pace)
{
	start(&shared_ops);
	fake.count_ns =
		200000000; /* after two of these in a row, the thread counts no more for long */
	chunks[1].watched = true;
	gm_worker_destroy(worker, &chunks[1]);
	run_until_counted(2);
	gm_worker_create(worker, &chunks[0], 99);
	wait_until_stuck();
	for (size_t i = 2; i <= 5; i++) {
		chunks[i].watched = chunks[i].unseen = true;
		gm_worker_destroy(worker, &chunks[i]);
	}
	permit(1);
	run_until(6);
	/* One count is enough for all of them. */
	ck_assert_uint_ge(told.counted, 3);
	ck_assert_uint_eq(told.destroyed_before_count[2], 1);
	for (size_t i = 3; i < told.counted; i++)
		ck_assert_uint_eq(told.destroyed_before_count[i], 5);
	free(told.last_count);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("worker");
	TCase *tests = tcase_create("worker");
	tcase_add_test(tests, creations_of_different_sessions_take_turns);
	tcase_add_test(tests,
		a_creation_that_has_not_begun_is_called_off_and_leaves_the_others_as_they_were);
	tcase_add_test(tests, a_users_destructions_go_before_its_creations);
	tcase_add_test(
		tests, a_large_chunk_is_destroyed_in_parts_between_which_others_have_their_turn);
	tcase_add_test(tests, the_thread_begins_no_further_job_while_results_wait_for_the_loop);
	tcase_add_test(tests, the_loop_turns_while_the_backend_is_stuck);
	tcase_add_test(tests, a_failed_creation_is_told_with_its_error_behind_a_fresh_sample);
	tcase_add_test(tests, a_sample_is_told_when_it_is_asked_for);
	tcase_add_test(tests, a_sample_that_began_before_it_was_asked_for_is_not_the_latest);
	tcase_add_test(tests, devices_that_are_exclusive_are_not_sampled);
	tcase_add_test(tests, a_sample_that_fails_is_told_as_such);
	tcase_add_test(tests, a_survey_comes_between_two_jobs_with_a_sample_before_it);
	tcase_add_test(tests, a_survey_that_fails_says_that_nothing_is_known);
	tcase_add_test(tests, a_count_is_in_order_of_pid_and_comes_with_a_sample);
	tcase_add_test(tests, a_watched_chunk_is_destroyed_between_two_counts);
	tcase_add_test(tests, many_watched_chunks_are_counted_together);
	tcase_add_test(tests, an_unseen_chunk_is_counted_before_it_is_destroyed_at_any_pace);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
