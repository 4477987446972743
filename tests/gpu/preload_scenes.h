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
/* The context of a scene with several threads. */
extern gm_cu_ctx shared_ctx;
/* Shows the test what the daemon has meanwhile. */
void show(char word);

/* preload_scenes_pools.c */
void *new_pool(int handle_types);
void scene_pools(void);
void scene_pools_trimmed(void);
void scene_pool_threads(void);

/* preload_scenes_declared.c */
void scene_declared(void);
void scene_declared_limit(void);
void scene_declared_threads(void);
void scene_graphs(void);
void scene_graphs_end(void);

/* preload_scenes_pinned.c */
void scene_pinned(void);
void scene_nvml(void);
/* The size of the first GPU. */
unsigned long long nvml_total(void);

/* preload_actor.c */
void scene_alloc(void);

/* preload_scenes_capture.c */
void scene_wait(void);
void scene_capture(void);
void scene_capture_full(void);
void scene_capture_room(void);
void scene_capture_race(void);
void scene_capture_after_free(void);
void scene_capture_cancel(void);
void scene_capture_first(void);
void scene_capture_pinned(void);
void scene_capture_destroyed(void);
void scene_capture_destroying(void);
void scene_capture_joined(void);
void scene_calls(void);
void scene_reset(void);

/* preload_scenes_ends.c */
void scene_destructor(void);
void scene_dlclose(void);
void scene_abort(void);
void scene_exit(void);
void scene_thread(void);
void scene_fork(void);
void scene_fork_first(void);
void scene_fork_connect(void);

/* preload_scenes_failing.c */
void scene_failing_memory(void);
void scene_failing_others(void);

/* preload_scenes_limits.c */
void scene_refused(void);
void scene_plain(void);
void scene_fill(void);
void scene_spill(void);
void scene_pressure(void);
void scene_race(void);
void scene_restart(void);

/* preload_scenes_odd.c */
void scene_odd_files(void);
void scene_odd_stacks(void);
void scene_odd_cancel(void);

/* preload_scenes_physical.c */
void scene_physical(void);
void scene_physical_restart(void);
void scene_physical_wrong(void);

/* preload_scenes_green.c */
void scene_green(void);

/* preload_scenes_two.c */
void scene_across(void);
void scene_across_capture(void);
void scene_across_cancel(void);
void scene_two_capture(void);

#endif
