/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "common/text/message.h"
#include "common/text/text.h"
#include "common/text/units.h"
#include "preload/preload.h"
#include "preload/table/preload_blocks.h"

/* Bytes of a sentence of the client library, with its end. */
#define REPORT_WHY 512
/* Begins the part of a sentence about host memory. */
#define REPORT_HOST "; nor from host memory (--spill)"
/* Bytes of the cause that the last line names, at most. */
#define REPORT_CAUSE 160

static _Atomic uint64_t report_refusals;
static _Atomic uint64_t report_chunks, report_chunk_bytes;
static _Atomic uint64_t report_calls_passed[GM_PRELOAD_CALLS_N];

static GM_PRELOAD_THREAD char report_kept[REPORT_WHY];
static struct gm_lock report_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static char report_last[REPORT_WHY]; /* with the lock held */
static atomic_bool report_told;      /* a refusal */

/* A copy of stderr, which the program may have closed or replaced like any other. */
static int report_copy = -1;
static dev_t report_copy_device;
static ino_t report_copy_inode;
/* Descriptors below are left to the program, which may count on the lowest free one. */
#define REPORT_COPY_LEAST 100

/* Whether the program has left the copy open. */
static bool report_copy_is_ours(void)
{
	struct stat st;

	return report_copy >= 0 && fstat(report_copy, &st) == 0 &&
	       st.st_dev == report_copy_device && st.st_ino == report_copy_inode;
}

/* The name given to gpumem-run, or the program's. */
static const char *report_name(void)
{
	const char *name = gm_preload_settings()->name;

	return name ? name : program_invocation_short_name;
}

/* ---- the first refusal */

/* Whether stderr is the file that gpumem-run had as its own. A program may have closed it, and opened a file of its own in its
 * place. */
static bool report_stderr_is_ours(void)
{
	const struct gm_preload_settings *settings = gm_preload_settings();
	struct stat now;

	return settings->tells && fstat(STDERR_FILENO, &now) == 0 &&
	       (uint64_t)now.st_dev == settings->stderr_device &&
	       (uint64_t)now.st_ino == settings->stderr_inode;
}

/* Writes a line, which ends with a newline. On a terminal, a long one becomes several. The program is neither stopped nor ended
 * by the write. */
static void report_write(int fd, char *line, size_t n)
{
	const struct timespec now = {0};
	sigset_t held, before, pending;
	size_t columns = gm_message_columns(fd);

	if (columns) {
		line[n - 1] = '\0';
		gm_text_wrap(line, columns);
		line[n - 1] = '\n';
	}

	sigemptyset(&held);
	sigaddset(&held, SIGPIPE);
	sigaddset(&held, SIGTTOU);
	if (pthread_sigmask(SIG_BLOCK, &held, &before) != 0)
		return;
	sigpending(&pending);
	if (write(fd, line, n) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
		sigdelset(&held, SIGTTOU);
		(void)sigtimedwait(&held, NULL, &now);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Replaces what a terminal could take for a command: the name may be that of any file. The line ends with a newline. */
static void report_clean(char *line, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)line[i], next = (unsigned char)line[i + 1];
		if (c < ' ' || c == 0x7f)
			line[i] = ' ';
		else if (c == 0xc2 && next >= 0x80 && next < 0xa0)
			line[i] = line[i + 1] = ' ';
	}
	line[n - 1] = '\n';
}

void gm_preload_report_tell(const char *why)
{
	char line[REPORT_WHY + NAME_MAX + 64];
	GM_UNCANCELLED;

	if (atomic_exchange(&report_told, true))
		return;
	int n = snprintf(line, sizeof line, "gpumem-run: %s (pid %d): refused: %s\n", report_name(),
		(int)getpid(), why);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof line)
		n = sizeof line - 1;
	report_clean(line, (size_t)n);
	/* At once, or not at all: the program must not wait for a process that reads. */
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT)
		report_write(STDERR_FILENO, line, (size_t)n);
}

/* ---- counting */

void gm_preload_report_why(const char *why)
{
	const struct gm_preload_settings *settings = gm_preload_settings();

	if (settings->report || settings->tells)
		snprintf(report_kept, sizeof report_kept, "%s", why);
}

void gm_preload_report_why_host(const char *why)
{
	size_t n = strlen(report_kept);

	if (*report_kept)
		snprintf(report_kept + n, sizeof report_kept - n,
			REPORT_HOST ", where limits hold, too: %s", why);
}

void gm_preload_report_refused(void)
{
	int before = errno;

	atomic_fetch_add_explicit(&report_refusals, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&report_told, memory_order_relaxed) && report_stderr_is_ours())
		gm_preload_report_tell(report_kept);
	errno = before;
	if (!gm_preload_settings()->report)
		return;
	gm_lock(&report_lock);
	memcpy(report_last, report_kept, sizeof report_last);
	gm_lock_drop(&report_lock);
}

void gm_preload_report_chunk(uint64_t bytes)
{
	atomic_fetch_add_explicit(&report_chunks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&report_chunk_bytes, bytes, memory_order_relaxed);
}

void gm_preload_report_passed(enum gm_preload_call call)
{
	atomic_fetch_add_explicit(&report_calls_passed[call], 1, memory_order_relaxed);
}

void gm_preload_report_after_fork(void)
{
	/* Another thread of the parent may have the lock, and may have written a part of the sentence. */
	gm_lock_init(&report_lock, GM_LOCK_LEAF);
	memset(report_last, 0, sizeof report_last);
	/* Who reads the parent's stderr must not wait for a child that has closed its own. */
	if (report_copy_is_ours())
		close(report_copy);
	report_copy = -1;
	atomic_store(&report_told, false);
	atomic_store(&report_refusals, 0);
	atomic_store(&report_chunks, 0);
	atomic_store(&report_chunk_bytes, 0);
	for (unsigned i = 0; i < GM_PRELOAD_CALLS_N; i++)
		atomic_store(&report_calls_passed[i], 0);
}

/* ---- the last line */

/* Cuts a sentence to its cause. The remedy, which follows the last semicolon, comes too late: the program has ended when
 * somebody reads it. */
static void report_cut(char why[REPORT_WHY])
{
	static const char cut[] = "...";
	char *end = strstr(why, REPORT_HOST);

	if (end)
		*end = '\0';
	end = NULL;

	for (char *at = why; (at = strstr(at, "; ")); at++)
		end = at;
	if (end)
		*end = '\0';
	if (strlen(why) < REPORT_CAUSE)
		return;

	size_t n = REPORT_CAUSE - sizeof cut;
	/* Not within a character of UTF-8. */
	while (n && ((unsigned char)why[n] & 0xc0) == 0x80)
		n--;
	memcpy(why + n, cut, sizeof cut);
}

/* "; the last: device 0 has ...": why the last allocation was refused, if any was. */
static void report_say_last(char *text, size_t room)
{
	char why[REPORT_WHY];

	gm_lock(&report_lock);
	memcpy(why, report_last, sizeof why);
	gm_lock_drop(&report_lock);
	report_cut(why);
	if (*why)
		snprintf(text, room, "; the last: %.*s", REPORT_CAUSE, why);
}

/* ", 24.0M of it spilled to host memory", if the program may spill. */
static void report_say_spilled(uint64_t bytes, char *text, size_t room)
{
	char size[GM_UNITS_TEXT];

	if (gm_preload_settings()->spill)
		snprintf(text, room, ", %s of it spilled to host memory",
			gm_format_size(bytes, size));
}

/* ", cuMemCreate 3": the calls that went to the driver, as far as there is room. */
static void report_say_passed(char *text, size_t room)
{
	static const char *const symbols[] = {
#define REPORT_SYMBOL(symbol, name, version, flags, parameters) name,
		GM_PRELOAD_CALLS(REPORT_SYMBOL)
#undef REPORT_SYMBOL
	};
	size_t n = 0;

	for (unsigned i = 0; i < GM_PRELOAD_CALLS_N && n < room; i++) {
		uint64_t count = atomic_load(&report_calls_passed[i]);
		if (count)
			n += (size_t)snprintf(text + n, room - n, "%s%s %llu",
				n ? ", " : "; served by the driver: ", symbols[i],
				(unsigned long long)count);
	}
}

void gm_preload_report_begin(void)
{
	struct stat st;

	/* Otherwise the settings are not read yet: the program may change its environment. */
	if (!getenv("GPUMEM_RUN_REPORT") || !gm_preload_settings()->report ||
		fstat(STDERR_FILENO, &st) < 0)
		return;
	report_copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, REPORT_COPY_LEAST);
	report_copy_device = st.st_dev;
	report_copy_inode = st.st_ino;
}

/* Prints the last line on stderr, or if the program has closed it, to the file that was stderr at first. */
static void report_last_line(char *line)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) == 0)
		report_write(STDERR_FILENO, line, strlen(line));
	else if (report_copy_is_ours())
		report_write(report_copy, line, strlen(line));
}

void gm_preload_report_print(void)
{
	char size[GM_UNITS_TEXT], host[80] = "", last[REPORT_CAUSE + 16] = "", passed[512] = "";
	char line[1024] = "";
	uint64_t n, bytes, spilled, refused = atomic_load(&report_refusals);

	if (!gm_preload_settings()->report)
		return;
	report_say_last(last, sizeof last);
	report_say_passed(passed, sizeof passed);
	gm_preload_blocks_total(&n, &bytes, &spilled);
	report_say_spilled(spilled, host, sizeof host);
	n += atomic_load(&report_chunks);
	bytes += atomic_load(&report_chunk_bytes);
	if (n || refused || *passed)
		snprintf(line, sizeof line,
			"gpumem-run: %.63s (pid %d): %llu allocation%s from gpumemd, %s in all%s, %llu refused%s%s\n",
			report_name(), (int)getpid(), (unsigned long long)n, n == 1 ? "" : "s",
			gm_format_size(bytes, size), host, (unsigned long long)refused, last,
			passed);
	else if (gm_preload_settings()->reporter == (uint64_t)getpid())
		snprintf(line, sizeof line,
			"gpumem-run: %.63s (pid %d): no CUDA call asked for device memory\n",
			report_name(), (int)getpid());
	if (!*line)
		return;
	report_clean(line, strlen(line));
	report_last_line(line);
}
