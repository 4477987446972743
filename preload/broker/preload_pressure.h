/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_PRESSURE_H
#define GM_PRELOAD_PRESSURE_H

#include "gpumem/gpumem.h"

/*
 * Tells the program that memory is wanted, in two ways.
 *
 * By a signal, if the user wants that (GPUMEM_ON_PRESSURE), when a device is short of memory. The signal is sent only while
 * the program has a handler for it: it never ends a program that knows nothing of it. After one signal, the next comes only
 * when the pressure has fallen and risen again.
 *
 * By a descriptor, for allocators that cache memory of ours, such as PyTorch's: a thread of theirs can wait there. Memory in
 * their caches is in use as far as the daemon and the client library know. So they hear of reclaims, too: another client waits for
 * memory, and what the library cached itself was not enough. While a client waits in vain, that is once a second.
 */

/* For gpumem_on_event(), which calls it on a thread of the client library. user must be NULL. */
void gm_preload_pressure_event(void *user, const gpumem_event *event);
/* In the child, after fork(): the descriptor is its parent's. */
void gm_preload_pressure_after_fork(void);

/*
 * Exported. A descriptor that read(2) waits at until memory is wanted; a read takes 8 bytes. One for the process, for one reader;
 * made by the first call, and never closed. If the program has closed it meanwhile, or opened another file in its place, the
 * call makes a new one. Reads of the old one return 0 then, or fail. May be asked for before there is a session. Thread-safe. Fails with
 * -1 and errno.
 */
__attribute__((visibility("default"))) int gpumem_preload_wanted(void);

#endif
