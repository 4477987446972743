/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_ERROR_H
#define GM_DAEMON_CONFIG_ERROR_H

#include <stddef.h>
#include <stdint.h>

/*
 * What is wrong with a configuration, all of it: complaints are collected in any order and told in
 * the order of files and lines. To be zeroed before its first use.
 */
struct gm_config_error {
	char *file;
	size_t file_order; /* the how-manieth file read it was */
	uint32_t line;     /* 0: the file as a whole */
	size_t order;
	char *text;
};

struct gm_config_errors {
	struct gm_config_error *list;
	size_t n;
};

/* 0, -ENOMEM. */
int gm_config_errors_add(struct gm_config_errors *errors, const char *file, size_t file_order,
	uint32_t line, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Lines of "file:line: text", without a line end after the last. 0, -ENOMEM. */
int gm_config_errors_text(struct gm_config_errors *errors, char **ret_text);
void gm_config_errors_deinit(struct gm_config_errors *errors);

#endif
