/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_ERROR_H
#define GM_DAEMON_CONFIG_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One file of the configuration. */
struct gm_config_source {
	struct gm_config_source *next;
	size_t order; /* files are read in this order */
	bool was_read;
	char path[];
};

/*
 * Everything that is wrong with a configuration. Complaints are added in any order and shown in the
 * order of files and lines. Must be zeroed before its first use.
 */
struct gm_config_error {
	const struct gm_config_source *source; /* NULL: no file in particular */
	uint32_t line;                         /* 0: the file as a whole */
	size_t order;                          /* among complaints about the same line */
	char *text;
};

struct gm_config_errors {
	struct gm_config_error *list;
	size_t n;
};

#define GM_CONFIG_E_REFUSED 1

/* Adds a complaint. The source must outlive errors. Returns GM_CONFIG_E_REFUSED, so that the caller
 * can pass that on; or -ENOMEM. */
int gm_config_errors_add(struct gm_config_errors *errors, const struct gm_config_source *source,
	uint32_t line, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* One "file:line: text" per line, without a newline at the end. Returns 0 or -ENOMEM. */
int gm_config_errors_text(struct gm_config_errors *errors, char **ret_text);
void gm_config_errors_deinit(struct gm_config_errors *errors);

#endif
