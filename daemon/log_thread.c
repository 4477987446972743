/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that writes the log. A line that can be written at once, to a file or to a pipe with
 * room, does not go through the thread. A line that waits is one block of memory: the header, the
 * message, and the fields, each with its end. No lock is held while the thread writes.
 */
#include "daemon/log_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GM_LOG_THREAD_BYTES  (512 * 1024)
#define GM_LOG_THREAD_FIELDS 32

struct log_line {
	struct log_line *next;
	enum gm_log_level level;
	size_t bytes; /* of the whole block */
	size_t n_fields;
	char text[]; /* the message, then the fields */
};

static pthread_t log_thread;
static bool log_running; /* written before the thread starts and after it ends */
static gm_log_sink log_target;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static pthread_cond_t log_wake = PTHREAD_COND_INITIALIZER;   /* there is a line, or stop */
static pthread_cond_t log_wrote = PTHREAD_COND_INITIALIZER;
static struct log_line *log_first, *log_last;
static size_t log_bytes;
static uint64_t log_dropped, log_written;
static bool log_busy, log_stop;

static struct log_line *log_thread_make_line(
	enum gm_log_level level, const char *message, const char *const *fields)
{
	size_t bytes = sizeof(struct log_line) + strlen(message) + 1, n = 0;
	while (fields[n] && n < GM_LOG_THREAD_FIELDS)
		bytes += strlen(fields[n++]) + 1;

	struct log_line *line = malloc(bytes);
	if (!line)
		return NULL;
	*line = (struct log_line){.level = level, .bytes = bytes, .n_fields = n};
	char *at = stpcpy(line->text, message) + 1;
	for (size_t i = 0; i < n; i++)
		at = stpcpy(at, fields[i]) + 1;
	return line;
}

static void log_thread_push(struct log_line *line)
{
	if (!line || log_bytes + line->bytes > GM_LOG_THREAD_BYTES) {
		log_dropped++;
		free(line);
		return;
	}
	if (log_last)
		log_last->next = line;
	else
		log_first = line;
	log_last = line;
	log_bytes += line->bytes;
	pthread_cond_signal(&log_wake);
}

/* The sink while the thread runs. */
static void log_thread_take(enum gm_log_level level, const char *message, const char *const *fields)
{
	pthread_mutex_lock(&log_lock);
	bool waiting = log_first || log_dropped || log_busy;
	if (!waiting && !strchr(message, '\n') && gm_log_is_ready(log_target))
		log_target(level, message, fields);
	else
		log_thread_push(log_thread_make_line(level, message, fields));
	pthread_mutex_unlock(&log_lock);
}

static void log_thread_write(const struct log_line *line)
{
	const char *fields[GM_LOG_THREAD_FIELDS + 1];
	const char *at = line->text + strlen(line->text) + 1;

	for (size_t i = 0; i < line->n_fields; i++) {
		fields[i] = at;
		at += strlen(at) + 1;
	}
	fields[line->n_fields] = NULL;
	log_target(line->level, line->text, fields);
}

static void log_thread_write_dropped(uint64_t dropped)
{
	static const char *const none[] = {NULL};
	char text[96];

	snprintf(text, sizeof(text), "%llu log lines were dropped: they were not read fast enough",
		(unsigned long long)dropped);
	log_target(GM_LOG_WARNING, text, none);
}

static void *log_thread_main(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&log_lock);
	for (;;) {
		struct log_line *line = log_first;
		uint64_t dropped = 0;

		if (line) {
			log_first = line->next;
			if (!log_first)
				log_last = NULL;
			log_bytes -= line->bytes;
		} else if (log_dropped) {
			dropped = log_dropped;
			log_dropped = 0;
		} else if (log_stop) {
			break;
		} else {
			pthread_cond_wait(&log_wake, &log_lock);
			continue;
		}

		log_busy = true;
		pthread_mutex_unlock(&log_lock);
		if (line)
			log_thread_write(line);
		else
			log_thread_write_dropped(dropped);
		free(line);
		pthread_mutex_lock(&log_lock);
		log_busy = false;
		log_written++;
		pthread_cond_signal(&log_wrote);
	}
	pthread_mutex_unlock(&log_lock);
	return NULL;
}

int gm_log_thread_start(void)
{
	sigset_t all, before;

	log_target = gm_log_get_sink();
	log_stop = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&log_thread, NULL, log_thread_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return -r;

	log_running = true;
	gm_log_set_sink(log_thread_take);
	return 0;
}

void gm_log_thread_stop(void)
{
	if (!log_running)
		return;

	gm_log_set_sink(log_target);
	log_running = false;
	bool moving = true;
	pthread_mutex_lock(&log_lock);
	log_stop = true;
	pthread_cond_signal(&log_wake);
	while ((log_first || log_dropped || log_busy) && moving) {
		uint64_t written = log_written;
		struct timespec until;
		int r = 0;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		/* It may end early for no reason. */
		while (log_written == written && r == 0)
			r = pthread_cond_clockwait(&log_wrote, &log_lock, CLOCK_MONOTONIC, &until);
		moving = log_written != written;
	}
	pthread_mutex_unlock(&log_lock);

	/* A thread that is stuck in a write ends with the process. */
	if (moving)
		pthread_join(log_thread, NULL);
	else
		pthread_detach(log_thread);
}
