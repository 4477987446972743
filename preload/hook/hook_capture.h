/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HOOK_CAPTURE_H
#define GM_PRELOAD_HOOK_CAPTURE_H

#include <stdbool.h>

#include "preload/driver/preload_driver.h"

/*
 * Knows which streams the program is capturing into graphs, and tells the client library. A wait for a context, or an
 * event for all of its streams, would break the capture. So a call that frees memory meanwhile does not wait: it leaves
 * it to the library to find out when the device is done with the memory. The library asks the driver once the last
 * capture has ended (by its end, or with its stream or its context).
 */

/* Whether any stream is being captured. */
bool gm_capture_any(void);
/* Whether this one is. */
bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream);

/* The calling thread keeps captures out, so that it can wait for a context: none begins before the thread has called
 * gm_capture_let_in(), or within a second. false: the program is capturing, the thread must not wait, and keeps nothing
 * out. The two calls cost two atomic additions. */
bool gm_capture_keep_out(void);
void gm_capture_let_in(void);

/* The program has destroyed a context, and with it ended the captures of its streams. */
void gm_capture_end_of(gm_cu_ctx ctx);

#endif
