/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_LOG_H
#define GM_COMMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Log lines with fields, for the daemon and for gpumemctl's --debug. The program sets a sink once,
 * at its start. The default sink writes "2026-11-15 18:30:00 warning: message" to stderr. The client
 * library never logs.
 */
enum gm_log_level {
	GM_LOG_ERROR = 3,
	GM_LOG_WARNING = 4,
	GM_LOG_NOTICE = 5,
	GM_LOG_INFO = 6,
	GM_LOG_DEBUG = 7
};

/* A field is "GPUMEM_NAME=value". fields ends with NULL and is never NULL itself. The default sink
 * leaves fields out. Several threads may call a sink at once. */
typedef void (*gm_log_sink)(
	enum gm_log_level level, const char *message, const char *const *fields);
void gm_log_set_sink(gm_log_sink sink); /* NULL: the default sink */
gm_log_sink gm_log_get_sink(void);      /* the one in use; never NULL */
/* A sink that drops every line. */
void gm_log_nowhere(enum gm_log_level level, const char *message, const char *const *fields);
/* Whether a message of one line can be written now without waiting: true only if the sink is the
 * default one and stderr is a file, or a pipe that has room. */
bool gm_log_is_ready(gm_log_sink sink);
/* Copies the beginning of the last message of level GM_LOG_ERROR; "" if there was none. */
void gm_log_last_error(char *text, size_t size);
void gm_log_set_level(enum gm_log_level most); /* GM_LOG_INFO by default */

/* A message longer than 2 KiB is cut, and the line says so. errno is kept; %m works. fields may be
 * NULL. */
void gm_log(enum gm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gm_log_fields(enum gm_log_level level, const char *const *fields, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
