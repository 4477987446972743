/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_STREAMS_H
#define GM_PRELOAD_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/driver/preload_driver.h"

/*
 * Which device a stream is of. Each thread remembers the streams that it has used lately, because the driver
 * is slow to say it.
 */

/* The device of a stream, and the daemon's number of it. A default stream is that of the current context. false: the
 * driver does not know the stream, or the daemon does not serve its device. */
bool gm_preload_streams_device(const struct gm_driver *driver, gm_cu_stream stream,
	gm_cu_device *ret_device, uint32_t *ret_number);
/* The context of a stream. A result of the driver. */
gm_cu_result gm_preload_streams_context(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_ctx *ret_ctx);

#endif
