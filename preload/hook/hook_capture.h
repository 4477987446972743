/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HOOK_CAPTURE_H
#define GM_PRELOAD_HOOK_CAPTURE_H

#include <stdbool.h>

#include "preload/table/preload_blocks.h"
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

/* No capture begins before the calling thread has called gm_capture_let(), so that it can wait for a
 * context. false: one is under way, and nothing is put off. Costs two atomic additions. */
bool gm_capture_put_off(void);
void gm_capture_let(void);

/* The captures of a context's streams have ended with it. */
void gm_capture_end_of(gm_cu_ctx ctx);

#endif
