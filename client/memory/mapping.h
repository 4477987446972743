/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAPPING_H
#define GM_CLIENT_MAPPING_H

#include <stdint.h>

#include "gpumem/gpumem.h"

struct gm_session_device;

/*
 * Gets a device ready to be mapped, if it is not yet: picks the backend's half on this side. Not
 * when the session connects, because loading a GPU's driver costs device memory and makes fork() a
 * problem: a program that only looks, or forks its workers later, must not pay for that. Takes as
 * long as the driver takes to start, the first time. GPUMEM_E_UNSUPPORTED: this process cannot use
 * that device, and the sentence says why.
 */
gpumem_status gm_mapping_open(struct gpumem_session *session, uint32_t device);
/* Nothing of the device is mapped any more. */
void gm_mapping_close(struct gm_session_device *device);
/* A sentence on why a call of the device's map_ops failed: the driver's own word for it where there
 * is one. */
const char *gm_mapping_error(const struct gm_session_device *device, int error);

#endif
