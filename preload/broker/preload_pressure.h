/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_PRESSURE_H
#define GM_PRELOAD_PRESSURE_H

#include "gpumem/gpumem.h"

/*
 * Tells the program by a signal that a device is short of memory, if the user wants that
 * (GPUMEM_ON_PRESSURE). The signal is sent only while the program has a handler for it: it never ends a
 * program that knows nothing of it. After one signal, the next comes only when the pressure has fallen and
 * risen again.
 */

/* For gpumem_on_event(), which calls it on a thread of the client library. user must be NULL. */
void gm_pressure_event(void *user, const gpumem_event *event);

#endif
