/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_MAP_CHUNKS_H
#define GM_CLIENT_DEVICE_MAP_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpumem/gpumem.h"

struct gm_session_chunk;
struct gm_session_device;

/*
 * The folder client/device/ promises what all kinds of memory need of a device: mapping chunks, waiting for
 * its work, keeping memory until it has finished, moving content to host memory, and counting. It must
 * never know buffers or regions: they lie above, and call it.
 */

/*
 * Prepares a device for mapping, if that has not been done: chooses the client's half of its
 * backend. The first time, this takes as long as the driver takes to start. gpumem_connect() does not do
 * it, because loading a GPU's driver costs device memory and makes fork() a problem:
 * a program that only looks, or that forks its workers later, must not pay for that.
 *
 * Returns GPUMEM_E_UNSUPPORTED if this process cannot use the device; the sentence says why.
 */
gpumem_status gm_map_chunks_open(struct gpumem_session *session, uint32_t device);
/* Nothing of the device may be mapped any more. */
void gm_map_chunks_close(struct gm_session_device *device);
/* Why a call of the device's map_ops failed: the driver's own words if it has any, else
 * strerror(). */
const char *gm_map_chunks_error(const struct gm_session_device *device, int error);
/* Leaves the sentence for a failed call of the device's map_ops: "cannot WHAT so many bytes". */
gpumem_status gm_map_chunks_failed(
	const struct gm_session_device *device, int error, const char *what, uint64_t bytes);

/* Maps chunks side by side into an empty range of the device, lets the device use them, and closes their
 * handles. On error nothing of them stays mapped, or *ret_stuck is set: then they must not be given back. The
 * error is a negative errno, as in gm_map_ops. */
int gm_map_chunks_add_chunks(const struct gm_session_device *device, void *addr, uint64_t room,
	struct gm_session_chunk *chunks, uint64_t *ret_mapped, bool *ret_stuck);

#endif
