/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_FILE_H
#define GM_DAEMON_CONFIG_FILE_H

#include <stdint.h>

#include "daemon/config/config_error.h"

/* The longest file that is read: longer than anybody writes. */
#define GM_CONFIG_FILE_BYTES (64 * 1024)

/*
 * What gm_config_file_read() calls, in the order of lines. Case does not count in the names of sections and
 * keys. Each function returns 0, a negative errno that ends the reading, or GM_CONFIG_E_REFUSED. stray() gets the
 * lines that set nothing, although they may have been meant to: those in a section that section() refused,
 * those that are no assignment, and those below no section.
 */
struct gm_config_file_ops {
	int (*section)(void *ctx, const char *section, uint32_t line);
	int (*value)(
		void *ctx, const char *section, const char *key, const char *value, uint32_t line);
	/* section is NULL if nobody knows to which one the line belongs. key is NULL if nobody
	 * knows what the line was to set. Assignments have a value to be checked; for other lines
	 * it is NULL. */
	int (*stray)(
		void *ctx, const char *section, const char *key, const char *value, uint32_t line);
};

/*
 * Reads one file. Adds to errors what is wrong with the file itself (syntax, encoding, type,
 * permissions) and goes on behind it. Returns 0 if the file could be read, whatever it says. If it
 * could not, returns a negative errno, which errors explains. Passes on the negative errno of an
 * op.
 */
int gm_config_file_read(const struct gm_config_source *source, const struct gm_config_file_ops *ops,
	void *ctx, struct gm_config_errors *errors);

#endif
