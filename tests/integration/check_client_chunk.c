/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Chunks that a program maps itself, through the library: they are exactly as large as was asked for,
 * never pooled, and survive restarts of the daemon.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpumem/gpumem_chunk.h"
#include "tests/integration/client_fixture.h"
#include "tests/tap.h"

#define STEP GPUMEM_CHUNK_GRANULARITY

static void refused_(
	gpumem_status got, gpumem_status status, const char *says, const char *file, int line)
{
	if (got != status || !strstr(gpumem_error_detail(), says))
		gm_fail(file, line, "%s: %s, not %s with '%s'", gpumem_status_text(got),
			gpumem_error_detail(), gpumem_status_text(status), says);
}
#define REFUSED(call, status, says) refused_((call), (status), (says), __FILE__, __LINE__)

static uint64_t leased(void)
{
	struct gm_figures f = {0};
	return gm_figures_try(&daemon_, &f) ? f.leased : UINT64_MAX;
}

/* The size of the memory behind a descriptor, which this closes. The fake driver's is a file, as the host
 * backend's is. */
static size_t size_of(int fd)
{
	struct stat st;

	GM_REQUIRE(fstat(fd, &st) == 0);
	GM_REQUIRE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	return (size_t)st.st_size;
}

START_TEST(a_chunk_is_exactly_as_large_as_was_asked_for)
{
	gpumem_chunk_options options = GPUMEM_CHUNK_OPTIONS_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	gpumem_chunk *a, *b;
	int fd;

	options.tag = "kv cache";
	OK(gpumem_chunk_create(session, 0, 7 * STEP, &options, &a, &fd));
	GM_REQUIRE_EQ(size_of(fd), 7 * STEP);
	OK(gpumem_chunk_create(session, 0, STEP, NULL, &b, &fd));
	GM_REQUIRE_EQ(size_of(fd), STEP);
	GM_REQUIRE_EQ(leased(), 8 * STEP);
	GM_REQUIRE_EQ(gpumem_chunk_size(a), 7 * STEP);
	GM_REQUIRE_EQ(gpumem_chunk_device(a), 0);
	GM_REQUIRE_EQ(gpumem_chunk_size(NULL), 0);
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 8 * STEP);

	/* Another descriptor, as often as it takes. */
	for (int i = 0; i < 3; i++) {
		OK(gpumem_chunk_fd(a, &fd));
		GM_REQUIRE_EQ(size_of(fd), 7 * STEP);
	}
	gpumem_chunk_destroy(a);
	GM_UNTIL(leased() == STEP);
	gpumem_chunk_destroy(b);
	gpumem_chunk_destroy(NULL);
	GM_UNTIL(leased() == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 0);
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
	static const size_t sizes[] = {0, 1, STEP - 1, STEP + 4096, (size_t)1 << 63, SIZE_MAX};
	gpumem_chunk_options options = GPUMEM_CHUNK_OPTIONS_INIT;
	gpumem_chunk *chunk;
	int fd = -2;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		REFUSED(gpumem_chunk_create(session, 0, sizes[i], NULL, &chunk, &fd),
			GPUMEM_E_INVALID, "times 2097152 bytes");
	REFUSED(gpumem_chunk_create(session, 9, STEP, NULL, &chunk, &fd), GPUMEM_E_NOT_FOUND, "9");
	REFUSED(gpumem_chunk_create(session, 0, STEP, NULL, NULL, &fd), GPUMEM_E_INVALID,
		"ret_chunk must not be NULL");
	REFUSED(gpumem_chunk_create(session, 0, STEP, NULL, &chunk, NULL), GPUMEM_E_INVALID,
		"ret_fd must not be NULL");
	REFUSED(gpumem_chunk_fd(NULL, &fd), GPUMEM_E_INVALID, "chunk must not be NULL");
	options.tag = "\n";
	REFUSED(gpumem_chunk_create(session, 0, STEP, &options, &chunk, &fd), GPUMEM_E_INVALID,
		"tag");
	GM_REQUIRE(
		gpumem_chunk_create(session, 0, (size_t)1 << 46, NULL, &chunk, &fd) != GPUMEM_OK);
	GM_REQUIRE_EQ(fd, -2);
	GM_REQUIRE_EQ(leased(), 0);
}
END_TEST

/* More than a process may have open: none is kept. */
START_TEST(many_chunks_need_no_descriptors)
{
	enum { N = 400 };
	static gpumem_chunk *chunks[N];
	int first, last;

	GM_REQUIRE((first = dup(0)) >= 0);
	close(first);
	for (int i = 0; i < N; i++) {
		int fd;
		OK(gpumem_chunk_create(session, 0, STEP, NULL, &chunks[i], &fd));
		close(fd);
	}
	GM_REQUIRE_EQ(leased(), N * STEP);
	GM_REQUIRE((last = dup(0)) >= 0);
	close(last);
	GM_REQUIRE(last - first < 8);
	for (int i = 0; i < N; i++)
		gpumem_chunk_destroy(chunks[i]);
	GM_UNTIL(leased() == 0);
}
END_TEST

START_TEST(a_restart_loses_no_chunk)
{
	gpumem_chunk *chunk;
	int fd;

	OK(gpumem_chunk_create(session, 0, 5 * STEP, NULL, &chunk, &fd));
	GM_REQUIRE(pwrite(fd, "kept", 4, 4096) == 4);
	close(fd);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	OK(gpumem_chunk_fd(chunk, &fd));
	char text[4];
	GM_REQUIRE(pread(fd, text, 4, 4096) == 4 && memcmp(text, "kept", 4) == 0);
	GM_REQUIRE_EQ(size_of(fd), 5 * STEP);
	GM_UNTIL(leased() == 5 * STEP);
	gpumem_chunk_destroy(chunk);
	GM_UNTIL(leased() == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client chunk");
	TCase *tc = tcase_create("chunks");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_chunk_is_exactly_as_large_as_was_asked_for);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, many_chunks_need_no_descriptors);
	tcase_add_test(tc, a_restart_loses_no_chunk);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
