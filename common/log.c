/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Log lines. A line of bounded length is formatted once and passed to the sink. Only the last error is kept.
 * Any thread may log once the sink is set, and errno is kept.
 *
 * The default sink writes each line in one piece, so that the lines of several threads do not mix.
 * It writes control characters as '?', so that text from a client cannot forge a line.
 */

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

/* A longer message is cut, and ends with LOG_CUT. */
#define LOG_BYTES 2048
#define LOG_CUT   " [cut]"

static void log_to_stderr(enum gm_log_level level, const char *message, const char *const *fields);

static _Atomic(gm_log_sink) log_sink = log_to_stderr;
static _Atomic int log_most = GM_LOG_INFO;
static pthread_mutex_t log_error_lock = PTHREAD_MUTEX_INITIALIZER; /* of log_error_text */
static char log_error_text[512];

static void log_write(const char *line, size_t n)
{
	while (n > 0) {
		ssize_t done = write(STDERR_FILENO, line, n);
		if (done < 0) {
			if (errno == EINTR)
				continue;
			return; /* there is nowhere left to report it */
		}
		line += done;
		n -= (size_t)done;
	}
}

static const char *log_level_word(enum gm_log_level level)
{
	static const char *const words[] = {"error", "warning", "notice", "info", "debug"};

	return words[level - GM_LOG_ERROR];
}

/* Writes one line per line of the message, each with the local time and the level. Newlines are our
 * own: text from clients has none. */
static void log_to_stderr(enum gm_log_level level, const char *message, const char *const *fields)
{
	time_t now = time(NULL);
	struct tm local;
	char head[48], line[sizeof(head) + LOG_BYTES];

	(void)fields;
	size_t width =
		strftime(head, sizeof(head), "%Y-%m-%d %H:%M:%S ", localtime_r(&now, &local));
	width +=
		(size_t)snprintf(head + width, sizeof(head) - width, "%s: ", log_level_word(level));

	for (;;) {
		size_t length = strcspn(message, "\n"), n = width;

		memcpy(line, head, width);
		for (size_t i = 0; i < length && n < sizeof(line) - 1; i++) {
			unsigned char c = (unsigned char)message[i];
			line[n++] = (c < 0x20 && c != '\t') || c == 0x7f ? '?' : (char)c;
		}
		line[n++] = '\n';
		log_write(line, n);
		message += length;
		if (*message == '\0' || *++message == '\0')
			return;
	}
}

void gm_log_nowhere(enum gm_log_level level, const char *message, const char *const *fields)
{
	(void)level;
	(void)message;
	(void)fields;
}

void gm_log_set_sink(gm_log_sink sink)
{
	atomic_store(&log_sink, sink ? sink : log_to_stderr);
}

gm_log_sink gm_log_get_sink(void)
{
	return atomic_load(&log_sink);
}

bool gm_log_is_ready(gm_log_sink sink)
{
	struct pollfd stderr_poll = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct stat st;

	if (sink != log_to_stderr || fstat(STDERR_FILENO, &st) < 0)
		return false;
	/* A terminal or a socket is ready if it has room for a byte. */
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return false;
	/* A pipe is ready if it has room for PIPE_BUF bytes, which is more than a line has. */
	_Static_assert(LOG_BYTES + 64 < PIPE_BUF, "a line fits into a pipe that is ready");
	return poll(&stderr_poll, 1, 0) == 1 && (stderr_poll.revents & POLLOUT);
}

void gm_log_last_error(char *text, size_t size)
{
	pthread_mutex_lock(&log_error_lock);
	snprintf(text, size, "%s", log_error_text);
	pthread_mutex_unlock(&log_error_lock);
}

void gm_log_set_level(enum gm_log_level most)
{
	atomic_store(&log_most, (int)most);
}

static void log_format(
	enum gm_log_level level, const char *const *fields, const char *format, va_list arguments)
{
	static const char *const none[] = {NULL};
	char message[LOG_BYTES];
	int saved = errno, n;

	if ((int)level > atomic_load_explicit(&log_most, memory_order_relaxed))
		return;
	n = vsnprintf(message, sizeof(message), format, arguments);
	if (n < 0) {
		strcpy(message, "a message that could not be formatted");
	} else if ((size_t)n >= sizeof(message)) {
		size_t at = sizeof(message) - sizeof(LOG_CUT);
		/* Not in the middle of a character. */
		while (at > 0 && ((unsigned char)message[at] & 0xc0) == 0x80)
			at--;
		strcpy(message + at, LOG_CUT);
	}

	if (level == GM_LOG_ERROR) {
		pthread_mutex_lock(&log_error_lock);
		snprintf(log_error_text, sizeof(log_error_text), "%.*s",
			(int)sizeof(log_error_text) - 1, message);
		pthread_mutex_unlock(&log_error_lock);
	}
	gm_log_sink sink = atomic_load(&log_sink);
	sink(level, message, fields ? fields : none);
	errno = saved;
}

void gm_log(enum gm_log_level level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_format(level, NULL, format, arguments);
	va_end(arguments);
}

void gm_log_fields(enum gm_log_level level, const char *const *fields, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_format(level, fields, format, arguments);
	va_end(arguments);
}
