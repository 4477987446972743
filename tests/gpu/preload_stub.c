/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 to link against: the driver's functions, of which none does anything. */
#include "tests/gpu/preload_actor.h"

#define STUB(name, symbol, version, parameters) \
	__attribute__((visibility("default"))) gm_cu_result symbol parameters; \
	gm_cu_result symbol parameters \
	{ \
		return GM_CUDA_ERROR_STUB_LIBRARY; \
	}
ACTOR_CALLS(STUB)
