/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_FILE_H
#define GM_DAEMON_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config_error.h"

/* The most that a file may have: more than anybody writes, and little enough for the library, which
 * takes its time over a long file. */
#define GM_CONFIG_FILE_BYTES (64 * 1024)

/*
 * What the reader of one file tells: first each section's header and each key's name, in the order
 * of lines, then the values. Sections and keys are compared without regard to case. A name that is
 * refused there (1) is not heard of again, a section's with all that stands in it. 0: known;
 * negative: fatal, passed up.
 */
struct gm_config_file_ops {
	int (*section)(void *ctx, const char *section, uint32_t line);
	int (*key)(void *ctx, const char *section, const char *key, uint32_t line);
	int (*value)(
		void *ctx, const char *section, const char *key, const char *value, uint32_t line);
};

/*
 * Reads one file. What is wrong with the file itself (syntax, encoding, not a file, not readable)
 * is added to errors and reading goes on behind it. 0 when the file could be opened and read
 * whatever it says; a negative errno when not (that is in errors, too), or what an op returned.
 */
int gm_config_file_read(const char *path, size_t file_order, const struct gm_config_file_ops *ops,
	void *ctx, struct gm_config_errors *errors);

#endif
