/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HOOK_CAPTURE_H
#define GM_PRELOAD_HOOK_CAPTURE_H

#include <stdbool.h>

#include "preload/table/preload_blocks.h"
#include "preload/driver/preload_driver.h"

/*
 * Which streams the program is capturing into graphs. To wait for a context then, or to record an event
 * for all of its streams, would break the capture. So memory that is freed meanwhile is kept here. When the
 * last capture has ended (by its end, or with its stream or its context), the next call that waits for the
 * context frees it.
 */

/* Whether any stream is being captured. */
bool gm_capture_any(void);
/* Whether this one is. */
bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream);
/* Keeps a block that is freed while a stream is being captured. false: none is, or the host has no memory. */
bool gm_capture_keep(const struct gm_preload_block *block);

/* Whether anything is kept of a context, or of none. */
bool gm_capture_kept(gm_cu_ctx ctx);
/* Takes that out. The calling thread then waits for the context, and gives it to gm_capture_free_kept(). What is kept from
 * now on is not part of it: the wait may not cover that. NULL: there is nothing. */
struct gm_capture_kept *gm_capture_take_kept(gm_cu_ctx ctx);
/* waited: the work of the context is done. kept may be NULL. */
void gm_capture_free_kept(struct gm_capture_kept *kept, bool waited);

/* No capture begins before the calling thread has called gm_capture_let(), so that it can wait for a
 * context. false: one is under way, and nothing is put off. Costs two atomic additions. */
bool gm_capture_put_off(void);
void gm_capture_let(void);

/* The captures of a context's streams have ended with it. */
void gm_capture_end_of(gm_cu_ctx ctx);

#endif
