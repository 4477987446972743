/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PRELOAD_SCENES_H
#define GM_TESTS_GPU_PRELOAD_SCENES_H

/* What the scenes of preload_actor share. A scene that fails ends the program and says why. */

#include "tests/gpu/preload_actor.h"
#include "tests/integration/harness.h"

#define CU(call) GM_REQUIRE_EQ(call, GM_CUDA_SUCCESS)

/* The driver's functions, found as the program was told. */
struct actor_calls {
#define ACTOR_MEMBER(name, symbol, version, parameters) gm_cu_result(*name) parameters;
	ACTOR_CALLS(ACTOR_MEMBER)
#undef ACTOR_MEMBER
};
extern struct actor_calls cu;

/* The primary context of the first GPU, current. */
gm_cu_ctx use_gpu(void);
/* The device writes all of it, and what the CPU reads is that. */
void use(gm_cu_ptr ptr, size_t bytes, unsigned char value);
/* Shows the test what the daemon has meanwhile. */
void show(char word);

/* preload_scenes_pools.c */
void *new_pool(int handle_types);
void scene_pools(void);
void scene_pool_threads(void);

/* preload_scenes_declared.c */
void scene_declared(void);
void scene_declared_limit(void);
void scene_declared_threads(void);
void scene_graphs(void);

/* preload_scenes_pinned.c */
void scene_pinned(void);
void scene_nvml(void);

#endif
