/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_OTHER_DAEMON_H
#define GM_CTL_IO_OTHER_DAEMON_H

#include <stdint.h>

#include "common/system/path.h"

/*
 * A user's own daemon and the system's can run at the same time. Clients find one of them, so people
 * must be told which one answered, and that there is another.
 */

enum gm_daemon_kind { GM_DAEMON_SYSTEM, GM_DAEMON_USER, GM_DAEMON_ELSEWHERE };

/* Which daemon listens on this socket, by its path. */
enum gm_daemon_kind gm_other_daemon_kind(const char *path);
/* For programs: "system", "user" or "elsewhere". For people: "the system's daemon", … */
const char *gm_other_daemon_word(enum gm_daemon_kind kind);
const char *gm_other_daemon_words(enum gm_daemon_kind kind);

struct gm_other_daemon {
	enum gm_daemon_kind kind;
	char path[GM_PATH_BYTES];
	const char
		*state; /* "running", "denied" (you may not ask it), "silent" (does not answer) */
	uint64_t pid, uid; /* if running */
};

#define GM_OTHER_DAEMONS 2

/*
 * Finds the daemons that clients of this user could reach, besides the one at the given path. Waits
 * at most timeout_ms for each of them. Returns how many there are.
 */
size_t gm_other_daemon_find(const char *besides, uint64_t timeout_ms,
	struct gm_other_daemon ret_list[GM_OTHER_DAEMONS]);

#endif
