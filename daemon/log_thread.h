/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LOG_THREAD_H
#define GM_DAEMON_LOG_THREAD_H

#include "common/log.h"

/*
 * A thread that writes the log, so that nothing else ever waits for whoever reads it: a pipe that
 * nobody empties, or a journal that hangs. Lines wait in a bounded queue. If it is full, further
 * lines are dropped and counted, and a line says how many when there is room again.
 */

/* Passes all lines to the sink that is set now: at once if that cannot wait, otherwise on a thread.
 * Returns 0 or a negative errno; then nothing has changed. */
int gm_log_thread_start(void);
/* Waits until all lines are written, but for no longer than a second in which none was. Lines are
 * written directly from now on. Does nothing if no thread was started. */
void gm_log_thread_stop(void);

#endif
