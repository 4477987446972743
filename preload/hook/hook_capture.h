/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HOOK_CAPTURE_H
#define GM_PRELOAD_HOOK_CAPTURE_H

#include <stdbool.h>

#include "preload/driver/preload_driver.h"

/*
 * Knows which streams the program is capturing into graphs, and announces the captures to the client library, which keeps
 * captures out while a thread waits for a context. Such a wait, or an event for all streams of a context, would break a
 * capture. A call that frees memory during a capture therefore does not wait: the library finds out when the device is done
 * with the memory. The library asks the driver once the last capture has ended (by its end, or with its stream or its
 * context).
 */

/* Whether this stream is being captured. */
bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream);

/* The program has destroyed a context, and with it ended the captures of its streams. */
void gm_capture_end_of(gm_cu_ctx ctx);

#endif
