/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_PROBE_H
#define GM_DEVICE_DEVICE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"

/*
 * A fresh measurement of how much of a device is free, for a request that does not fit.
 *
 * Core knows how much memory is foreign from samples. A sample is right for the moment in which it
 * was taken: the device's thread takes it between two jobs, and reports it in order with them. So
 * core subtracts its own memory as it was in that moment, and its own creations and destructions
 * never look like somebody else's. But a sample grows old. A program ends, or a process lets go of
 * memory that core has destroyed, and free memory counts as foreign until the next sample. (In the
 * opposite case, when there is less memory than core believes, the backend reports that it is out
 * of memory.)
 *
 * So if a request lacks room on the device, but would fit if nothing were foreign, core does not
 * decide by a figure that is older than the request:
 *   - The request is held in the queue, in its place, while the thread probes the device. Until
 *     then no client is asked for memory on its behalf, and no event reports that it waits.
 *   - If clients were asked in vain, the device is probed once more before the refusal.
 *   - While such a request waits, the device is probed every GM_DEVICE_PROBE_NS.
 *   - A request's time limit holds all the same: if the probe does not end before it, what is known
 *     decides.
 *
 * A device has one probe under way at most. Requests that arrive meanwhile share the next one.
 * Without gm_core_ops.probe, and where nothing is foreign, none of this happens.
 */

#define GM_DEVICE_PROBE_NS UINT64_C(20000000)

/* Whether this account could be charged for so many bytes if less memory were foreign. */
bool gm_device_probe_helps(
	const struct gm_device *device, const struct gm_account *account, uint64_t bytes);
/* Asks for a probe that begins after this call. Returns its number, which is never 0. */
uint64_t gm_device_probe_want(struct gm_device *device);
bool gm_device_probe_over(const struct gm_device *device, uint64_t number);
/* The probe under way ended, if there is one. Its result was reported before. */
void gm_device_probe_told(struct gm_device *device);
/* For a request that waits for foreign memory: probes again when it is time. Returns when that is;
 * UINT64_MAX: a probe is under way. */
uint64_t gm_device_probe_retry(struct gm_device *device, uint64_t now);

#endif
