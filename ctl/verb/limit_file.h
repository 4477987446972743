/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_LIMIT_FILE_H
#define GM_CTL_VERB_LIMIT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"

struct gm_ctl;

/*
 * The drop-in of the configuration that keeps a limit: one file for each owner and device, so that a
 * limit that is saved again replaces its file, and other files are not touched.
 */

#define GM_LIMIT_FILE_TEXT 1024
#define GM_LIMIT_FILE_WHY  512

/* What the daemon's devices are called. */
struct gm_limit_file_devices {
	size_t n;
	struct {
		uint32_t number;
		bool pinned, has_uuid;
		uint8_t uuid[GM_UUID_BYTES];
		char pci[32];
	} list[GM_BOUND_DEVICES + 1];
};

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

/* Returns whether the daemon at this socket (NULL: where clients look for it) reads the configuration of this user: the
 * system's daemon that of root, and a user's own daemon that of the user. If not, changes file to the one that the
 * daemon reads; "": not known. */
bool gm_limit_file_is_ours(const char *socket, char file[PATH_MAX]);

/* Asks the daemon for its devices, if a drop-in may be for one. Without an answer, there are none. */
void gm_limit_file_ask_devices(struct gm_ctl *ctl, struct gm_limit_file_devices *ret_devices);
/* Returns whether a drop-in of the daemon at this socket has all pairs of the limit on the device of this number, by whatever
 * name the file has the device, and which one. limit->said and limit->device are not used. */
bool gm_limit_file_find(const char *socket, const struct gm_limit_file *limit, uint32_t device,
	const struct gm_limit_file_devices *devices, char ret_path[PATH_MAX]);

/* Calls fn for each drop-in of the owner ("": of all owners) that the daemon at this socket reads. */
void gm_limit_file_list(const char *socket, const char *owner,
	void (*fn)(void *user, const char *path), void *user);

#endif
