/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_CHANGE_LIMIT_FILE_H
#define GM_CTL_CHANGE_LIMIT_FILE_H

#include <limits.h>
#include <stddef.h>

/*
 * The drop-in of the configuration that keeps a limit: one file for each owner and device, so that a
 * limit that is saved again replaces its file, and other files are not touched.
 */

#define GM_LIMIT_FILE_TEXT  1024
#define GM_LIMIT_FILE_WHY   512
#define GM_LIMIT_FILE_PAIRS 3

struct gm_limit_file {
	const char *owner;        /* in its canonical form; names the file */
	const char *said;         /* the owner as the user wrote it; names the section */
	const char *device;       /* as the user wrote it; NULL: all devices */
	const char *const *pairs; /* "max=1G", as on the command line */
	size_t n_pairs;
};

/*
 * Finds where the drop-in belongs, as the daemon of this user would look for it, and makes its text. Values
 * that the file has already stay, unless pairs replace them. Returns 0, or a negative errno: -ENOENT if
 * this user has no folder for a configuration.
 */
int gm_limit_file_make(const struct gm_limit_file *limit, char ret_path[PATH_MAX],
	char ret_text[GM_LIMIT_FILE_TEXT]);
/* Writes the file in one step: it has the old content or the new one, whatever happens. First checks that the
 * daemon would read it. On error, returns a negative errno, and why says what failed. */
int gm_limit_file_write(const char *path, const char *text, char why[GM_LIMIT_FILE_WHY]);

#endif
