/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_LOG_H
#define GM_COMMON_LOG_H

#include <stdarg.h>

/*
 * Log lines with fields, for programs (the daemon, gpumemctl's --debug). Where they go is set once,
 * at the start, by a sink; the default one writes "<level>message" to stderr, without the level
 * prefix on a terminal. The library side never logs.
 */
enum gm_log_level {
	GM_LOG_ERROR = 3,
	GM_LOG_WARNING = 4,
	GM_LOG_NOTICE = 5,
	GM_LOG_INFO = 6,
	GM_LOG_DEBUG = 7
};

/* A field is "GPUMEM_NAME=value"; fields is a NULL-ended list, never NULL itself. The default sink
 * leaves fields out. A sink may be called from several threads at once. */
typedef void (*gm_log_sink)(
	enum gm_log_level level, const char *message, const char *const *fields);
void gm_log_set_sink(gm_log_sink sink);        /* NULL: the default one */
void gm_log_set_level(enum gm_log_level most); /* GM_LOG_INFO unless told */

/* A message past 2 KiB is cut and says so. errno stays as it was; %m works. fields may be NULL. */
void gm_log(enum gm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gm_log_fields(enum gm_log_level level, const char *const *fields, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
