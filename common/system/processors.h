/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_PROCESSORS_H
#define GM_SYSTEM_PROCESSORS_H

#include <stdint.h>

/* How many processors the calling thread may use; at least 1. */
uint32_t gm_processors(void);

#endif
