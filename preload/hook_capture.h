/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HOOK_CAPTURE_H
#define GM_PRELOAD_HOOK_CAPTURE_H

#include <stdbool.h>

#include "preload/preload_blocks.h"
#include "preload/preload_driver.h"

/*
 * Whether the program is capturing streams into graphs. To wait for a context then, or to record an
 * event for all of its streams, would break the capture. So memory that is freed meanwhile waits here
 * until the last capture has ended.
 *
 * A capture that ends because its stream is destroyed is never known to have ended. Memory that is freed
 * from then on stays with the process.
 */

/* Whether any stream is being captured. */
bool gm_capture_any(void);
/* Whether this one is. */
bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream);
/* Keeps a freed block until no stream is being captured. false: none is, or the host has no memory. */
bool gm_capture_keep(const struct gm_preload_block *block);

#endif
