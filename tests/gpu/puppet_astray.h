/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_PUPPET_ASTRAY_H
#define GM_TESTS_PUPPET_ASTRAY_H

#include "common/cuda/cuda.h"

/* Makes the current context do what no context survives, and waits for it: what waiting gives is
 * the error, GM_CUDA_ERROR_ILLEGAL_ADDRESS. Success: it went well, which it must not. */
int puppet_astray(const struct gm_cuda *cuda);

#endif
