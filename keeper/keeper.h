/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_KEEPER_KEEPER_H
#define GM_KEEPER_KEEPER_H

#include <stdbool.h>

/*
 * This folder is gpumem-keeper: it holds file descriptors for the daemon while the daemon is away,
 * and gives them back to the next one. It must never read a record, nor include anything of the daemon's.
 *
 * It serves one daemon at a time: a process of its own uid, or of root, and of its own pid namespace. A connection of anybody else
 * is closed without a word.
 */
struct gm_keeper;

/*
 * Listens on this path, with mode 0600. A socket that a dead keeper left there is removed. On error,
 * returns a negative errno, and why names the cause and the remedy; -EADDRINUSE: another keeper
 * has the path.
 */
#define GM_KEEPER_WHY 512
int gm_keeper_new(const char *path, struct gm_keeper **ret_keeper, char why[GM_KEEPER_WHY]);
/* Removes the socket. keeper may be NULL. */
void gm_keeper_free(struct gm_keeper *keeper);

/*
 * Serves until there is nothing left to do. Returns 0, or a negative errno if it cannot wait. It ends
 *   - when a byte can be read from the descriptor stop;
 *   - when the daemon says that nothing is worth keeping, unless stays is set;
 *   - when no daemon is connected, and none could find it: its socket is gone;
 *   - when no daemon is connected, no process is left that needs anything, and nothing is needed without one, unless stays
 *     is set.
 */
int gm_keeper_serve(struct gm_keeper *keeper, int stop, bool stays);

/*
 * ---- the service manager
 *
 * A keeper that systemd runs leaves its items there when it ends. systemd hands them to the next keeper if the unit is
 * being restarted, and closes them if it stops.
 */

/* Takes what the daemon has sent, and leaves all items with the service manager. On error, returns a negative errno, and
 * some may be lost; -ENOTCONN: no service manager runs this process. */
int gm_keeper_leave(struct gm_keeper *keeper);
/* Takes the items that the keeper before left, if there are any. On error, returns a negative errno, and some are lost. */
int gm_keeper_take_left(struct gm_keeper *keeper);
void gm_keeper_tell_ready(void);
/* The same before an end with an error: why is the status of the unit. */
void gm_keeper_tell_failed(const char *why);

/*
 * Makes a keeper that does not listen and has copies of all items of the one that listens on this path. Meant for a keeper
 * of an earlier version, which leaves nothing by itself. On error, returns a negative errno, and why names the cause.
 * GM_KEEPER_E_NOT_NEEDED: that keeper leaves its items itself, or has a daemon that has them all.
 */
#define GM_KEEPER_E_NOT_NEEDED 1
int gm_keeper_fetch(const char *path, struct gm_keeper **ret_keeper, char why[GM_KEEPER_WHY]);

/* How many descriptors nobody else has for the daemon, besides its store. 0 while a daemon is connected, which has them all. */
unsigned gm_keeper_alone_with(const struct gm_keeper *keeper);

#endif
