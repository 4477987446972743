/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What a program does while a transfer runs, against a real daemon: it hears of the progress, cancels at any
 * point, resizes or destroys the buffer, has memory that faults, and copies with several threads.
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/integration/copy_fixture.h"
#include "tests/tap.h"

/* ---- progress and cancelling */

struct heard {
	uint64_t last, total;
	size_t calls;
	uint64_t cancel_at; /* bytes; the function says no from there on */
	uint32_t *word;     /* or sets this one */
};

static int hear_progress(void *user, uint64_t done, uint64_t total)
{
	struct heard *heard = user;
	GM_REQUIRE(done > heard->last && done <= total);
	heard->last = done;
	heard->total = total;
	heard->calls++;
	if (done < heard->cancel_at)
		return 0;
	if (!heard->word)
		return 1;
	gpumem_copy_cancel(heard->word);
	return 0;
}

START_TEST(progress_goes_up_to_the_end)
{
	for (int i = 0; i < 4; i++) {
		struct heard heard = {.cancel_at = UINT64_MAX};
		gpumem_copy_options options = staged(2, 4);
		uint8_t *bytes = pattern(ROOM, 3);
		options.strategy = i % 2 ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED;
		options.progress = hear_progress;
		options.user = &heard;
		if (i < 2)
			OK(gpumem_copy_in(buffer, 0, bytes, ROOM, NULL, &options, NULL));
		else
			OK(gpumem_copy_out(buffer, 0, bytes, ROOM, NULL, &options, NULL));
		GM_REQUIRE_EQ(heard.last, ROOM);
		GM_REQUIRE_EQ(heard.total, ROOM);
		free(bytes);
	}
}
END_TEST

/* Cancels copies at random points, in both ways. What is said to have arrived is there. */
START_TEST(a_cancelled_transfer_says_what_arrived)
{
	unsigned seed = 23;
	size_t threads_before = threads_now();
	for (int i = 0; i < 60; i++) {
		bool out = i & 1, known_at_once = i % 7 == 6;
		uint32_t word = known_at_once;
		struct heard heard = {.word = i & 2 ? &word : NULL};
		gpumem_copy_options options = staged(1 + rand_r(&seed) % 4, 2 + rand_r(&seed) % 6);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		size_t n = ROOM - (size_t)rand_r(&seed) % SLOT;
		uint8_t *bytes = pattern(n, (uint8_t)i), *there = malloc(n);
		GM_REQUIRE(there);
		heard.cancel_at = (uint64_t)rand_r(&seed) % (n - 16 * SLOT);
		options.progress = hear_progress;
		options.user = &heard;
		options.cancel = &word;
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		gpumem_status status;
		if (out) {
			gm_device_write(gpumem_buffer_ptr(buffer), bytes, n);
			status = gpumem_copy_out(
				buffer, 0, there, n, GPUMEM_STREAM_DONE, &options, &result);
		} else {
			status = gpumem_copy_in(
				buffer, 0, bytes, n, GPUMEM_STREAM_DONE, &options, &result);
			gm_device_read(there, gpumem_buffer_ptr(buffer), n);
		}
		/* Threads may have moved the rest before the word was heard. */
		if (status != GPUMEM_OK)
			REFUSED(status, GPUMEM_E_CANCELLED, "cancelled after");
		GM_REQUIRE_EQ(status == GPUMEM_OK, result.bytes == n);
		if (known_at_once)
			GM_REQUIRE_EQ(result.bytes, 0);
		else
			GM_REQUIRE(result.bytes >= heard.last && heard.last >= heard.cancel_at);
		GM_REQUIRE(memcmp(there, bytes, result.bytes) == 0);
		require_no_ring();
		free(bytes);
		free(there);
	}
	GM_UNTIL(threads_now() <= threads_before);
}
END_TEST

static int count_up(void *user, uint64_t done, uint64_t total)
{
	atomic_store((_Atomic uint64_t *)user, done);
	return 0;
}

struct canceller {
	uint32_t word;
	_Atomic uint64_t done;
	_Atomic bool over;
};

static void *cancel_soon(void *ctx)
{
	struct canceller *canceller = ctx;
	while (!atomic_load(&canceller->done) && !atomic_load(&canceller->over))
		sched_yield();
	gpumem_copy_cancel(&canceller->word);
	return NULL;
}

START_TEST(another_thread_cancels_a_transfer)
{
	uint8_t *bytes = pattern(ROOM, 3);
	size_t threads_before = threads_now();
	for (int i = 0; i < 10; i++) {
		struct canceller canceller = {0};
		gpumem_copy_options options = staged(2, 2);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		pthread_t thread;
		options.progress = count_up;
		options.user = (void *)&canceller.done;
		options.cancel = &canceller.word;
		GM_REQUIRE(pthread_create(&thread, NULL, cancel_soon, &canceller) == 0);
		gpumem_status status =
			gpumem_copy_in(buffer, 0, bytes, ROOM, NULL, &options, &result);
		atomic_store(&canceller.over, true);
		pthread_join(thread, NULL);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_CANCELLED);
		GM_REQUIRE_EQ(status == GPUMEM_OK, result.bytes == ROOM);
		GM_REQUIRE(result.bytes >= atomic_load(&canceller.done));
	}
	GM_UNTIL(threads_now() <= threads_before);
	free(bytes);
}
END_TEST

/* ---- what a program does meanwhile */

enum meddling { GROW, SHRINK, ENSURE, DESTROY };

struct meddler {
	enum meddling with;
	gpumem_buffer *buffer;
	size_t calls;
};

static int meddle(void *user, uint64_t done, uint64_t total)
{
	struct meddler *m = user;
	int moved;
	m->calls++;
	switch (m->with) {
	case GROW:
		REFUSED(gpumem_buffer_resize(m->buffer, 2 * ROOM, GPUMEM_STREAM_DONE, &moved),
			GPUMEM_E_BUSY, "a transfer copies to or from this buffer");
		break;
	case SHRINK:
		REFUSED(gpumem_buffer_resize(m->buffer, ROOM / 2, GPUMEM_STREAM_ANY, NULL),
			GPUMEM_E_BUSY, "a transfer copies to or from this buffer");
		OK(gpumem_buffer_resize(m->buffer, ROOM, GPUMEM_STREAM_ANY, NULL));
		break;
	case ENSURE:
		OK(gpumem_buffer_ensure(m->buffer, ROOM, GPUMEM_STREAM_DONE, NULL));
		REFUSED(gpumem_buffer_ensure(m->buffer, ROOM + 1, GPUMEM_STREAM_DONE, NULL),
			GPUMEM_E_BUSY, "a transfer copies to or from this buffer");
		break;
	case DESTROY:
		if (m->calls == 1)
			gpumem_buffer_destroy(m->buffer);
		break;
	}
	return 0;
}

/* A progress function may call anything but gpumem_disconnect(). */
START_TEST(a_buffer_is_not_resized_or_unmapped_under_a_transfer)
{
	uint8_t *bytes = pattern(ROOM, 9), *there = malloc(ROOM);
	GM_REQUIRE(there);
	for (int i = 0; i < 12; i++) {
		struct meddler m = {.with = (enum meddling)(i % 4)};
		gpumem_copy_options options = staged(2, 3);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		options.progress = meddle;
		options.user = &m;
		options.strategy = i >= 8 ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED;
		OK(gpumem_buffer_create(session, 0, ROOM, NULL, &m.buffer));
		uint64_t in_use = stats_of(0).in_use;
		gm_device_write(gpumem_buffer_ptr(m.buffer), bytes, ROOM);
		memset(there, 0, ROOM);
		if (i & 4)
			OK(gpumem_copy_in(m.buffer, 0, bytes, ROOM, NULL, &options, &result));
		else
			OK(gpumem_copy_out(m.buffer, 0, there, ROOM, NULL, &options, &result));
		GM_REQUIRE_EQ(result.bytes, ROOM);
		GM_REQUIRE(m.calls > 0);
		if (!(i & 4))
			GM_REQUIRE(memcmp(there, bytes, ROOM) == 0);
		if (m.with == DESTROY) {
			/* It has gone with the end of the transfer. */
			GM_REQUIRE(stats_of(0).in_use < in_use);
			continue;
		}
		/* Afterwards everything works again. */
		OK(gpumem_buffer_resize(m.buffer, ROOM / 2, GPUMEM_STREAM_DONE, NULL));
		gpumem_buffer_destroy(m.buffer);
	}
	free(bytes);
	free(there);
}
END_TEST

/* A call that is refused leaves nothing behind that would make the buffer busy. */
START_TEST(a_refused_transfer_does_not_hold_its_buffer)
{
	gpumem_copy_options options = staged(2, 3);
	gpumem_copy_file none = GPUMEM_COPY_FILE_INIT;
	uint8_t byte = 0;
	options.threads = GPUMEM_COPY_THREADS_MOST + 1;
	GM_REQUIRE(gpumem_copy_in(buffer, 0, &byte, 1, NULL, &options, NULL));
	GM_REQUIRE(gpumem_copy_in(buffer, ROOM, &byte, 1, NULL, NULL, NULL));
	GM_REQUIRE(gpumem_copy_in(buffer, 0, NULL, 1, NULL, NULL, NULL));
	GM_REQUIRE(gpumem_copy_file_in(buffer, 0, &none, NULL, NULL, NULL));
	none.path = "/nowhere/at/all";
	GM_REQUIRE(gpumem_copy_file_in(buffer, 0, &none, NULL, NULL, NULL));
	OK(gpumem_buffer_resize(buffer, 2 * ROOM, GPUMEM_STREAM_DONE, NULL));
}
END_TEST

/* ---- memory that faults */

static uint8_t *faulty;
static _Atomic unsigned faults;

/* As a program does that keeps parts of its memory elsewhere until somebody wants them. */
static void bring_page(int signal, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)4095;
	if (page < (uintptr_t)faulty || page >= (uintptr_t)faulty + ROOM)
		abort();
	atomic_fetch_add(&faults, 1);
	if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE))
		abort();
}

START_TEST(faults_in_copying_threads_are_for_the_programs_handler)
{
	struct sigaction action = {.sa_sigaction = bring_page, .sa_flags = SA_SIGINFO}, before;
	gpumem_copy_options options = staged(3, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(ROOM, 5);
	faulty = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(faulty != MAP_FAILED);
	memcpy(faulty, bytes, ROOM);
	GM_REQUIRE(mprotect(faulty, ROOM, PROT_NONE) == 0);
	GM_REQUIRE(sigaction(SIGSEGV, &action, &before) == 0);
	OK(gpumem_copy_in(buffer, 0, faulty, ROOM, NULL, &options, &result));
	GM_REQUIRE(result.threads > 0);
	GM_REQUIRE(atomic_load(&faults) > 0);
	GM_REQUIRE(sigaction(SIGSEGV, &before, NULL) == 0);
	require_in_buffer(0, bytes, ROOM, 0);
	munmap(faulty, ROOM);
	free(bytes);
}
END_TEST

/* ---- several at once */

struct copier {
	pthread_t thread;
	unsigned number;
};

#define COPIERS 4
#define SHARE   (ROOM / COPIERS)

static void *copy_much(void *ctx)
{
	const struct copier *copier = ctx;
	size_t offset = copier->number * SHARE;
	unsigned seed = copier->number + 1;
	for (int i = 0; i < 12; i++) {
		gpumem_copy_options options = staged(2, 3);
		size_t n = (size_t)rand_r(&seed) % SHARE;
		uint8_t *from = pattern(n, (uint8_t)(i * COPIERS + copier->number));
		uint8_t *to = malloc(n + 1);
		GM_REQUIRE(to);
		options.strategy = i % 3 ? GPUMEM_COPY_STAGED : GPUMEM_COPY_AUTO;
		OK(gpumem_copy_in(buffer, offset, from, n, GPUMEM_STREAM_DONE, &options, NULL));
		OK(gpumem_copy_out(buffer, offset, to, n, GPUMEM_STREAM_DONE, &options, NULL));
		GM_REQUIRE(memcmp(from, to, n) == 0);
		free(from);
		free(to);
	}
	return NULL;
}

START_TEST(threads_copy_to_one_buffer_at_the_same_time)
{
	struct copier copiers[COPIERS];
	for (unsigned i = 0; i < COPIERS; i++) {
		copiers[i].number = i;
		GM_REQUIRE(pthread_create(&copiers[i].thread, NULL, copy_much, &copiers[i]) == 0);
	}
	for (unsigned i = 0; i < COPIERS; i++)
		pthread_join(copiers[i].thread, NULL);
}
END_TEST

/* New threads would need more address space than there is. */
static void allow_no_threads(bool none)
{
	static pthread_attr_t before;
	pthread_attr_t attr;
	if (none) {
		GM_REQUIRE(pthread_getattr_default_np(&before) == 0);
		GM_REQUIRE(pthread_attr_init(&attr) == 0);
		GM_REQUIRE(pthread_attr_setstacksize(&attr, (size_t)1 << 50) == 0);
	}
	GM_REQUIRE(pthread_setattr_default_np(none ? &attr : &before) == 0);
}

START_TEST(without_threads_the_caller_copies_alone)
{
	gpumem_copy_options options = staged(4, 3);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *from = pattern(ROOM, 4), *to = calloc(1, ROOM);
	GM_REQUIRE(to);
	allow_no_threads(true);
	OK(gpumem_copy_in(buffer, 0, from, ROOM, NULL, &options, &result));
	GM_REQUIRE_EQ(result.threads, 0);
	GM_REQUIRE_EQ(result.bytes, ROOM);
	OK(gpumem_copy_out(buffer, 0, to, ROOM, NULL, &options, &result));
	GM_REQUIRE_EQ(result.threads, 0);
	GM_REQUIRE_EQ(result.slots, gm_on_gpu() ? 3 : 0);
	allow_no_threads(false);
	GM_REQUIRE(memcmp(from, to, ROOM) == 0);
	free(from);
	free(to);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_copy_meanwhile");
	TCase *tc = tcase_create("meanwhile");
	tcase_add_checked_fixture(tc, copy_set_up, copy_tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, progress_goes_up_to_the_end);
	tcase_add_test(tc, a_cancelled_transfer_says_what_arrived);
	tcase_add_test(tc, another_thread_cancels_a_transfer);
	tcase_add_test(tc, a_buffer_is_not_resized_or_unmapped_under_a_transfer);
	tcase_add_test(tc, a_refused_transfer_does_not_hold_its_buffer);
	tcase_add_test(tc, faults_in_copying_threads_are_for_the_programs_handler);
	tcase_add_test(tc, threads_copy_to_one_buffer_at_the_same_time);
	tcase_add_test(tc, without_threads_the_caller_copies_alone);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
