/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Files that are loaded into buffers, against a real daemon: whole and in parts, files that shrink while
 * they are read, pipes, devices, and files that cannot be read.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/copy_fixture.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"

static char path[256];

/* Writes a file with the bytes of a pattern. */
static void make_file(size_t n, uint8_t seed)
{
	uint8_t *bytes = pattern(n, seed);
	gm_scratch_path("file", path, sizeof(path));
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0);
	GM_REQUIRE_EQ(write(fd, bytes, n), n);
	close(fd);
	free(bytes);
}

static gpumem_copy_file at_path(const char *where)
{
	gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;
	file.path = where;
	return file;
}

static gpumem_copy_file of_fd(int fd)
{
	gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;
	file.fd = fd;
	return file;
}

static gpumem_status load(size_t offset, gpumem_copy_file file, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result)
{
	return gpumem_copy_file_in(buffer, offset, &file, GPUMEM_STREAM_DONE, options, ret_result);
}

/* ---- whole files and parts */

START_TEST(files_are_loaded_byte_for_byte)
{
	static const size_t lengths[] = {
		0, 1, SLOT - 1, SLOT, SLOT + 1, 5 * SLOT + 77, 3 * 1024 * 1024 + 1};
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		size_t n = lengths[i], offset = i * 3;
		gpumem_copy_options options = staged(1 + (uint32_t)i % 4, 2 + (uint32_t)i % 5);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		uint8_t *bytes = pattern(n, (uint8_t)i);
		make_file(n, (uint8_t)i);
		options.strategy = (gpumem_copy_strategy[]){
			GPUMEM_COPY_STAGED, GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC}[i % 3];
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		OK(load(offset, at_path(path), &options, &result));
		GM_REQUIRE_EQ(result.bytes, n);
		require_in_buffer(offset, bytes, n, 0xee);
		GM_REQUIRE(unlink(path) == 0);
		free(bytes);
	}
}
END_TEST

START_TEST(parts_of_files_are_loaded_and_the_position_stays)
{
	uint8_t *bytes = pattern(2 * MIB, 4);
	unsigned seed = 5;
	make_file(2 * MIB, 4);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(fd >= 0);
	GM_REQUIRE_EQ(lseek(fd, 4711, SEEK_SET), 4711);
	for (int i = 0; i < 20; i++) {
		gpumem_copy_options options = staged(2, 3);
		gpumem_copy_file file = of_fd(fd);
		file.offset = (uint64_t)rand_r(&seed) % (2 * MIB);
		file.bytes = (uint64_t)rand_r(&seed) % (2 * MIB - file.offset + 1);
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		OK(load(13, file, &options, NULL));
		require_in_buffer(13, bytes + file.offset, file.bytes, 0xee);
	}
	GM_REQUIRE_EQ(lseek(fd, 0, SEEK_CUR), 4711);
	close(fd);
	free(bytes);
}
END_TEST

START_TEST(wrong_parts_and_files_are_named)
{
	gpumem_copy_options options = GPUMEM_COPY_OPTIONS_INIT;
	gpumem_copy_file file;
	make_file(1000, 0);
	REFUSED(gpumem_copy_file_in(buffer, 0, NULL, NULL, NULL, NULL), GPUMEM_E_INVALID, "file");
	REFUSED(gpumem_copy_file_in(NULL, 0, &file, NULL, NULL, NULL), GPUMEM_E_INVALID, "");
	file = at_path(NULL);
	REFUSED(load(0, file, NULL, NULL), GPUMEM_E_INVALID, "neither a path nor an fd");
	file = at_path(path);
	file.offset = 1001;
	REFUSED(load(0, file, NULL, NULL), GPUMEM_E_INVALID, "offset 1001 is past the end of");
	file.offset = 1;
	file.bytes = 1000;
	REFUSED(load(0, file, NULL, NULL), GPUMEM_E_INVALID, "it has 1000 bytes");
	file.offset = UINT64_MAX;
	file.bytes = UINT64_MAX - 1;
	REFUSED(load(0, file, NULL, NULL), GPUMEM_E_INVALID, "offset");
	REFUSED(load(ROOM - 999, at_path(path), NULL, NULL), GPUMEM_E_INVALID, "do not fit");
	REFUSED(load(ROOM + 1, at_path(path), NULL, NULL), GPUMEM_E_INVALID, "offset");
	options.strategy = GPUMEM_COPY_ASYNC;
	REFUSED(load(0, at_path(path), &options, NULL), GPUMEM_E_INVALID,
		"strategy must be auto, sync or staged");
	options.strategy = GPUMEM_COPY_MANAGED;
	REFUSED(load(0, at_path(path), &options, NULL), GPUMEM_E_INVALID, "staged");
	REFUSED(load(0, at_path("/nowhere/at/all"), NULL, NULL), GPUMEM_E_NOT_FOUND,
		"/nowhere/at/all");
	REFUSED(load(0, at_path("/tmp"), NULL, NULL), GPUMEM_E_INVALID, "/tmp is a folder");
	REFUSED(load(0, of_fd(12345), NULL, NULL), GPUMEM_E_INVALID, "Bad file descriptor");
	int writer = open(path, O_WRONLY | O_CLOEXEC);
	GM_REQUIRE(writer >= 0);
	REFUSED(load(0, of_fd(writer), NULL, NULL), GPUMEM_E_SYSTEM, "0 of 1000 bytes arrived");
	close(writer);
	GM_REQUIRE(chmod(path, 0) == 0);
	if (geteuid() != 0)
		REFUSED(load(0, at_path(path), NULL, NULL), GPUMEM_E_DENIED, path);
}
END_TEST

/* ---- functions that read */

struct reading {
	const uint8_t *bytes;
	size_t fail_at; /* SIZE_MAX: never */
	_Atomic size_t sum;
};

static int read_part(void *user, uint64_t at, void *to, size_t n)
{
	struct reading *reading = user;

	if (reading->fail_at >= at && reading->fail_at < at + n)
		return ENOSPC;
	memcpy(to, reading->bytes + at, n);
	atomic_fetch_add(&reading->sum, n);
	return 0;
}

static int read_badly(void *user, uint64_t at, void *to, size_t n)
{
	return -1;
}

START_TEST(a_function_fills_a_buffer_in_parts)
{
	static const size_t lengths[] = {0, 1, SLOT + 1, 5 * SLOT + 77, 3 * 1024 * 1024 + 1};
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		size_t n = lengths[i], offset = i * 3;
		gpumem_copy_options options = staged(1 + (uint32_t)i % 4, 2 + (uint32_t)i % 5);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		uint8_t *bytes = pattern(n, (uint8_t)i);
		struct reading reading = {.bytes = bytes, .fail_at = SIZE_MAX};
		options.strategy = (gpumem_copy_strategy[]){
			GPUMEM_COPY_STAGED, GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC}[i % 3];
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		OK(gpumem_copy_read_in(buffer, offset, n, read_part, &reading, GPUMEM_STREAM_DONE,
			&options, &result));
		GM_REQUIRE_EQ(result.bytes, n);
		GM_REQUIRE_EQ(reading.sum, n); /* each byte was asked for once */
		require_in_buffer(offset, bytes, n, 0xee);
		free(bytes);
	}
	require_no_ring();
}
END_TEST

START_TEST(a_function_that_fails_ends_the_transfer)
{
	size_t n = 16 * SLOT;
	uint8_t *bytes = pattern(n, 9);
	struct reading reading = {.bytes = bytes, .fail_at = 9 * SLOT + 5};
	gpumem_copy_options options = staged(3, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;

	REFUSED(gpumem_copy_read_in(
			buffer, 0, n, read_part, &reading, GPUMEM_STREAM_DONE, &options, &result),
		GPUMEM_E_SYSTEM, "read() failed: No space left on device: ");
	GM_REQUIRE(result.bytes <= 9 * SLOT);
	REFUSED(gpumem_copy_read_in(
			buffer, 0, n, read_badly, NULL, GPUMEM_STREAM_DONE, &options, NULL),
		GPUMEM_E_SYSTEM, "read() failed: Input/output error: 0 of");
	REFUSED(gpumem_copy_read_in(buffer, 0, n, NULL, NULL, GPUMEM_STREAM_DONE, NULL, NULL),
		GPUMEM_E_INVALID, "read must not be NULL");
	REFUSED(gpumem_copy_read_in(buffer, ROOM - n + 1, n, read_part, &reading,
			GPUMEM_STREAM_DONE, NULL, NULL),
		GPUMEM_E_INVALID, "do not fit");
	options.strategy = GPUMEM_COPY_ASYNC;
	REFUSED(gpumem_copy_read_in(
			buffer, 0, n, read_part, &reading, GPUMEM_STREAM_DONE, &options, NULL),
		GPUMEM_E_INVALID, "strategy must be");
	free(bytes);
	require_no_ring();
}
END_TEST

/* ---- files that change */

static int make_shorter(void *user, uint64_t done, uint64_t total)
{
	GM_REQUIRE(truncate(path, *(const off_t *)user) == 0);
	return 0;
}

START_TEST(a_file_that_shrinks_is_an_error_that_names_it)
{
	for (int i = 0; i < 6; i++) {
		gpumem_copy_options options = staged(1 + (uint32_t)i % 3, 2);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		off_t end = i % 2 ? 0 : (off_t)(ROOM / 2 + 5);
		uint8_t *bytes = pattern(ROOM, 1), *there = malloc(ROOM);
		GM_REQUIRE(there);
		make_file(ROOM, 1);
		options.progress = make_shorter;
		options.user = &end;
		gpumem_status status = load(0, at_path(path), &options, &result);
		/* The first word of progress comes before all pieces are begun. */
		REFUSED(status, GPUMEM_E_SYSTEM, "became shorter while it was read");
		GM_REQUIRE(strstr(gpumem_error_detail(), path));
		GM_REQUIRE(result.bytes < ROOM);
		gm_device_read(there, gpumem_buffer_ptr(buffer), ROOM);
		GM_REQUIRE(memcmp(there, bytes, result.bytes) == 0);
		require_no_ring();
		free(bytes);
		free(there);
	}
}
END_TEST

/* ---- pipes and devices */

struct feed {
	int fd;
	size_t n;
	uint8_t *bytes;
};

static void *feed_pipe(void *ctx)
{
	struct feed *feed = ctx;
	for (size_t done = 0, piece = 1; done < feed->n; piece = piece * 3 % 70001) {
		size_t n = piece < feed->n - done ? piece : feed->n - done;
		ssize_t r = write(feed->fd, feed->bytes + done, n);
		GM_REQUIRE(r > 0);
		done += (size_t)r;
	}
	close(feed->fd);
	return NULL;
}

/* Loads what a pipe brings; fed bytes are wanted (SIZE_MAX: to its end). */
static gpumem_status load_pipe(size_t fed, uint64_t wanted, size_t offset, bool sync,
	gpumem_copy_result *ret_result, uint8_t **ret_bytes)
{
	gpumem_copy_options options = staged(3, 3);
	gpumem_copy_file file;
	int ends[2];
	pthread_t thread;
	if (sync)
		options.strategy = GPUMEM_COPY_SYNC;
	GM_REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
	struct feed feed = {ends[1], fed, pattern(fed, 8)};
	GM_REQUIRE(pthread_create(&thread, NULL, feed_pipe, &feed) == 0);
	file = of_fd(ends[0]);
	file.path = "the pipe";
	file.bytes = wanted;
	gpumem_status status = load(offset, file, &options, ret_result);
	/* The writer finds a reader until it has written all. */
	char rest[4096];
	while (read(ends[0], rest, sizeof(rest)) > 0)
		;
	pthread_join(thread, NULL);
	close(ends[0]);
	*ret_bytes = feed.bytes;
	return status;
}

START_TEST(a_pipe_is_read_in_its_order)
{
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes;
	for (int i = 0; i < 2; i++) {
		size_t n = 5 * SLOT + 99;
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		OK(load_pipe(n, GPUMEM_COPY_REST, 3, i, &result, &bytes));
		GM_REQUIRE_EQ(result.bytes, n);
		GM_REQUIRE(result.threads <= 1);
		require_in_buffer(3, bytes, n, 0xee);
		free(bytes);
		OK(load_pipe(2 * SLOT, 2 * SLOT - 5, 0, i, &result, &bytes));
		GM_REQUIRE_EQ(result.bytes, 2 * SLOT - 5);
		free(bytes);
		OK(load_pipe(0, GPUMEM_COPY_REST, 0, i, &result, &bytes));
		GM_REQUIRE_EQ(result.bytes, 0);
		free(bytes);
		/* It fills the buffer to the last byte. */
		OK(load_pipe(3 * SLOT, GPUMEM_COPY_REST, ROOM - 3 * SLOT, i, &result, &bytes));
		GM_REQUIRE_EQ(result.bytes, 3 * SLOT);
		free(bytes);
		REFUSED(load_pipe(3 * SLOT + 1, GPUMEM_COPY_REST, ROOM - 3 * SLOT, i, &result,
				&bytes),
			GPUMEM_E_INVALID, "the pipe has more than the 196608 bytes");
		free(bytes);
		REFUSED(load_pipe(2 * SLOT + 1, 3 * SLOT, 0, i, &result, &bytes), GPUMEM_E_SYSTEM,
			"the pipe ended early: 131073 of 196608 bytes arrived");
		/* What came before that is there, to the last byte. */
		GM_REQUIRE_EQ(result.bytes, 2 * SLOT + 1);
		free(bytes);
		gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
		REFUSED(load_pipe(100, 200, 3, i, &result, &bytes), GPUMEM_E_SYSTEM,
			"the pipe ended early: 100 of 200 bytes arrived");
		GM_REQUIRE_EQ(result.bytes, 100);
		require_in_buffer(3, bytes, 100, 0xee);
		free(bytes);
		REFUSED(load_pipe(0, 200, 3, i, &result, &bytes), GPUMEM_E_SYSTEM,
			"the pipe ended early: 0 of 200 bytes arrived");
		GM_REQUIRE_EQ(result.bytes, 0);
		free(bytes);
		REFUSED(load_pipe(1, 2, ROOM - 1, i, &result, &bytes), GPUMEM_E_INVALID,
			"do not fit");
		free(bytes);
	}
}
END_TEST

struct late {
	uint32_t word;
	_Atomic uint64_t done;
};

static int note_done(void *user, uint64_t done, uint64_t total)
{
	atomic_store(&((struct late *)user)->done, done);
	return 0;
}

static void *cancel_when_begun(void *ctx)
{
	struct late *late = ctx;
	while (!atomic_load(&late->done))
		sched_yield();
	gpumem_copy_cancel(&late->word);
	return NULL;
}

/* Nothing ever comes through the pipe again, and its writer does not close it. */
START_TEST(a_load_from_an_idle_pipe_can_be_cancelled)
{
	for (int i = 0; i < 2; i++) {
		gpumem_copy_options options = staged(2, 2);
		gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
		struct late late = {0};
		uint8_t *bytes = pattern(2 * SLOT, 2);
		pthread_t thread;
		int ends[2];
		GM_REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
		GM_REQUIRE(fcntl(ends[1], F_SETPIPE_SZ, 4 * SLOT) > 0);
		GM_REQUIRE_EQ(write(ends[1], bytes, SLOT + 9), SLOT + 9);
		if (i)
			GM_REQUIRE(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
		options.progress = note_done;
		options.user = &late;
		options.cancel = &late.word;
		GM_REQUIRE(pthread_create(&thread, NULL, cancel_when_begun, &late) == 0);
		REFUSED(load(0, of_fd(ends[0]), &options, &result), GPUMEM_E_CANCELLED,
			"after 65536 of");
		GM_REQUIRE_EQ(result.bytes, SLOT);
		pthread_join(thread, NULL);
		gm_device_read(bytes + SLOT, gpumem_buffer_ptr(buffer), SLOT);
		GM_REQUIRE(memcmp(bytes + SLOT, bytes, SLOT) == 0);
		close(ends[0]);
		close(ends[1]);
		free(bytes);
	}
}
END_TEST

static char fifo[256];

static void make_fifo(void)
{
	gm_scratch_path("fifo", fifo, sizeof(fifo));
	GM_REQUIRE(mkfifo(fifo, 0600) == 0);
}

struct loading {
	uint32_t cancel;
	gpumem_status status;
	char detail[256];
	uint64_t bytes;
};

static void *load_from_fifo(void *ctx)
{
	struct loading *loading = ctx;
	gpumem_copy_options options = staged(2, 2);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	options.cancel = &loading->cancel;
	loading->status = load(0, at_path(fifo), &options, &result);
	loading->bytes = result.bytes;
	snprintf(loading->detail, sizeof(loading->detail), "%s", gpumem_error_detail());
	return NULL;
}

/* The load waits for its first byte, before and after the call has opened the pipe. */
START_TEST(a_load_from_a_fifo_without_a_writer_can_be_cancelled)
{
	make_fifo();
	for (int i = 0; i < 3; i++) {
		struct loading loading = {.cancel = i == 0};
		pthread_t thread;
		GM_REQUIRE(pthread_create(&thread, NULL, load_from_fifo, &loading) == 0);
		/* It has the pipe open: a writer finds a reader. This one says nothing, and stays. */
		int writer = -1;
		if (i == 2)
			GM_UNTIL((writer = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
		gpumem_copy_cancel(&loading.cancel);
		pthread_join(thread, NULL);
		if (writer >= 0)
			close(writer);
		GM_REQUIRE_EQ(loading.status, GPUMEM_E_CANCELLED);
		GM_REQUIRE_EQ(loading.bytes, 0);
	}
}
END_TEST

/* The writer comes when the load has waited for it: an open pipe without a writer is not at its end. */
START_TEST(a_load_from_a_fifo_waits_for_its_writer)
{
	for (int i = 0; i < 2; i++) {
		struct loading loading = {0};
		uint8_t *bytes = pattern(SLOT, 3);
		pthread_t thread;
		int writer;
		make_fifo();
		GM_REQUIRE(pthread_create(&thread, NULL, load_from_fifo, &loading) == 0);
		GM_UNTIL((writer = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
		GM_REQUIRE(fcntl(writer, F_SETFL, 0) == 0);
		if (i)
			GM_REQUIRE_EQ(write(writer, bytes, SLOT), SLOT);
		close(writer);
		pthread_join(thread, NULL);
		if (loading.status)
			GM_FAIL("%s", loading.detail);
		GM_REQUIRE_EQ(loading.bytes, i ? SLOT : 0);
		GM_REQUIRE(unlink(fifo) == 0);
		free(bytes);
	}
}
END_TEST

/* A buffer that is full already has room for a pipe that brings nothing, and for no other. */
START_TEST(a_pipe_into_no_room_must_be_empty)
{
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes;
	for (int i = 0; i < 2; i++) {
		OK(load_pipe(0, GPUMEM_COPY_REST, ROOM, i, &result, &bytes));
		GM_REQUIRE_EQ(result.bytes, 0);
		free(bytes);
		REFUSED(load_pipe(1, GPUMEM_COPY_REST, ROOM, i, &result, &bytes), GPUMEM_E_INVALID,
			"the pipe has more than the 0 bytes");
		GM_REQUIRE_EQ(result.bytes, 0);
		free(bytes);
		OK(load_pipe(1, 0, ROOM, i, &result, &bytes));
		free(bytes);
	}
}
END_TEST

/* Its length is said to be 0. */
START_TEST(files_of_proc_are_read_to_their_end)
{
	static const char name[] = "/proc/self/limits"; /* does not change */
	gpumem_copy_options options = staged(2, 2);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t bytes[16384];
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(fd >= 0);
	size_t n = 0;
	for (ssize_t r; (r = read(fd, bytes + n, sizeof(bytes) - n)) > 0;)
		n += (size_t)r;
	GM_REQUIRE(n > 100 && n < sizeof(bytes));

	OK(load(3, at_path(name), &options, &result));
	GM_REQUIRE_EQ(result.bytes, n);
	require_in_buffer(3, bytes, n, 0xee);

	/* By its descriptor, whose position is at the end and stays there; from an offset; and a part. */
	gpumem_copy_file file = of_fd(fd);
	file.offset = 17;
	OK(load(ROOM / 2, file, NULL, &result));
	GM_REQUIRE_EQ(result.bytes, n - 17);
	require_in_buffer(ROOM / 2, bytes + 17, n - 17, 0xee);
	file.bytes = 50;
	OK(load(ROOM - 50, file, NULL, &result));
	require_in_buffer(ROOM - 50, bytes + 17, 50, 0xee);
	GM_REQUIRE_EQ(lseek(fd, 0, SEEK_CUR), n);

	file.bytes = n;
	REFUSED(load(0, file, NULL, &result), GPUMEM_E_SYSTEM, "ended early");
	file.offset = n + 1;
	REFUSED(load(0, file, NULL, NULL), GPUMEM_E_INVALID, "past the end");
	REFUSED(load(ROOM - n + 1, at_path(name), &options, NULL), GPUMEM_E_INVALID,
		"/proc/self/limits has more than");
	close(fd);
}
END_TEST

/* Has a lease of the file until somebody opens it. */
static void holder(int channel, void *argument)
{
	sigset_t broken;
	int number;
	sigemptyset(&broken);
	sigaddset(&broken, SIGIO);
	GM_REQUIRE(sigprocmask(SIG_BLOCK, &broken, NULL) == 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	GM_REQUIRE(fd >= 0);
	GM_REQUIRE(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
	gm_text_say_word(channel, 'l');
	GM_REQUIRE(sigwait(&broken, &number) == 0);
	GM_REQUIRE(fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
	close(fd);
}

START_TEST(a_file_that_another_process_has_a_lease_of_is_waited_for)
{
	struct gm_worker worker;
	uint8_t *bytes = pattern(SLOT, 7);
	make_file(SLOT, 7);
	start_worker(&worker, holder);
	gm_hear_word(worker.channel, 'l');
	OK(gpumem_buffer_create(session, 0, ROOM, NULL, &buffer));
	gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0);
	OK(load(0, at_path(path), NULL, NULL));
	require_in_buffer(0, bytes, SLOT, 0);
	gm_worker_join(&worker);
	free(bytes);
}
END_TEST

/* In a frame of its own: the address sanitizer does not know that a cancelled thread leaves its frames. */
static __attribute__((noinline)) void load_path(gpumem_status *ret_status)
{
	*ret_status = load(0, at_path(path), NULL, NULL);
}

/* A thread that is cancelled ends after the call, and the file is closed. */
static void *load_cancelled(void *ctx)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	load_path(ctx);
	pthread_testcancel();
	return NULL;
}

START_TEST(a_cancelled_thread_closes_its_file)
{
	make_file(SLOT, 1);
	OK(load(0, at_path(path), NULL, NULL));
	unsigned before = open_fds();
	for (int i = 0; i < 3; i++) {
		gpumem_status status = GPUMEM_E_SYSTEM;
		pthread_t thread;
		void *result;
		GM_REQUIRE(pthread_create(&thread, NULL, load_cancelled, &status) == 0);
		GM_REQUIRE(pthread_join(thread, &result) == 0);
		GM_REQUIRE(result == PTHREAD_CANCELED);
		GM_REQUIRE_EQ(status, GPUMEM_OK);
	}
	GM_REQUIRE_EQ(open_fds(), before);
}
END_TEST

START_TEST(character_devices_are_read_like_pipes)
{
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_copy_file file = at_path("/dev/full");
	uint8_t *zeros = calloc(1, 100000);
	file.bytes = 100000;
	OK(load(1, file, NULL, &result));
	GM_REQUIRE_EQ(result.bytes, 100000);
	require_in_buffer(1, zeros, 100000, 0xee);
	file.bytes = GPUMEM_COPY_REST;
	REFUSED(load(1, file, NULL, NULL), GPUMEM_E_INVALID, "/dev/full has more than");
	file.offset = 1;
	REFUSED(load(1, file, NULL, NULL), GPUMEM_E_INVALID, "offset must be 0");
	OK(load(1, at_path("/dev/null"), NULL, &result));
	GM_REQUIRE_EQ(result.bytes, 0);
	free(zeros);
}
END_TEST

/* ---- without pinned memory */

START_TEST(a_file_is_loaded_without_pinned_memory)
{
	gpumem_copy_options options = staged(2, 4);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(3 * MIB, 6);
	make_file(3 * MIB, 6);
	OK(gpumem_copy_set_limit(session, 0));
	OK(load(5, at_path(path), &options, &result));
	require_in_buffer(5, bytes, 3 * MIB, 0xee);
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE_EQ(result.strategy, gm_on_gpu() ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED);
	GM_REQUIRE_EQ(result.ring_status, gm_on_gpu() ? GPUMEM_E_LIMIT : GPUMEM_OK);
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_copy_file");
	TCase *tc = tcase_create("files");
	tcase_add_checked_fixture(tc, copy_set_up, copy_tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, files_are_loaded_byte_for_byte);
	tcase_add_test(tc, a_function_fills_a_buffer_in_parts);
	tcase_add_test(tc, a_function_that_fails_ends_the_transfer);
	tcase_add_test(tc, parts_of_files_are_loaded_and_the_position_stays);
	tcase_add_test(tc, wrong_parts_and_files_are_named);
	tcase_add_test(tc, a_file_that_shrinks_is_an_error_that_names_it);
	tcase_add_test(tc, a_pipe_is_read_in_its_order);
	tcase_add_test(tc, a_load_from_an_idle_pipe_can_be_cancelled);
	tcase_add_test(tc, a_load_from_a_fifo_without_a_writer_can_be_cancelled);
	tcase_add_test(tc, a_load_from_a_fifo_waits_for_its_writer);
	tcase_add_test(tc, a_pipe_into_no_room_must_be_empty);
	tcase_add_test(tc, files_of_proc_are_read_to_their_end);
	tcase_add_test(tc, a_file_that_another_process_has_a_lease_of_is_waited_for);
	tcase_add_test(tc, a_cancelled_thread_closes_its_file);
	tcase_add_test(tc, character_devices_are_read_like_pipes);
	tcase_add_test(tc, a_file_is_loaded_without_pinned_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
