/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: the ways in which a program ends, and processes that fork. */
#include "tests/gpu/preload_scenes.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ends */

static gm_cu_ptr late_ptr;
static char late; /* how the program ends: f, a, e, t, or 0 */

static __attribute__((destructor)) void free_late(void)
{
	/* The driver may have ended before. */
	if (late == 'f')
		(void)cu.cuMemFree(late_ptr);
}

static void *outlive(void *unused)
{
	for (;;) {
		gm_cu_ptr ptr;
		if (cu.cuMemAlloc(&ptr, 4096) == GM_CUDA_SUCCESS)
			(void)cu.cuMemFree(ptr);
	}
	return NULL;
}

static void scene_end(char how)
{
	pthread_t thread;

	use_gpu();
	CU(cu.cuMemAlloc(&late_ptr, ACTOR_BYTES));
	show('h');
	late = how;
	switch (how) {
	case 'a':
		abort();
	case 'e':
		_exit(0);
	case 't':
		/* It goes on while main() returns. */
		GM_REQUIRE(pthread_create(&thread, NULL, outlive, NULL) == 0);
		break;
	}
}

void scene_destructor(void)
{
	scene_end('f');
}
void scene_abort(void)
{
	scene_end('a');
}
void scene_exit(void)
{
	scene_end('e');
}
void scene_thread(void)
{
	scene_end('t');
}

/* A program that closes the driver as often as it has opened it (by its route, once for each call), and opens it again. The
 * library keeps the driver, so that the memory stays, and what was found before works. */
void scene_dlclose(void)
{
#define COUNT_CALL(name, symbol, version, parameters) +1
	int opened = 0 ACTOR_CALLS(COUNT_CALL);
#undef COUNT_CALL
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *before = (void *)cu.cuMemAlloc;
	gm_cu_ptr a, b;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	show('h');
	for (int i = 0; i <= opened; i++)
		GM_REQUIRE(dlclose(library) == 0);
	use(a, ACTOR_BYTES, 0x15);
	CU(cu.cuMemFree(a));

	library = dlopen("libcuda.so.1", RTLD_NOW);
	GM_REQUIRE(library && dlsym(library, "cuMemAlloc_v2") == before);
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(b, ACTOR_BYTES, 0x16);
	CU(cu.cuMemFree(b));
	GM_REQUIRE(dlclose(library) == 0);
}

/* ---- processes */

/* A child without exec() has the driver's own answer, and does its parent's memory no harm. */
void scene_fork(void)
{
	gm_cu_ptr ptr, other;
	int status;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	void *pool = new_pool(GM_CU_MEM_HANDLE_TYPE_NONE);
	show('h');
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		size_t total, free_bytes;
		GM_REQUIRE_EQ(cu.cuMemAlloc(&other, 4096), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemFree(ptr), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemPoolTrimTo(pool, 0), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemPoolDestroy(pool), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemGetInfo(&free_bytes, &total), GM_CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	use(ptr, ACTOR_BYTES, 0x44);
	CU(cu.cuMemFree(ptr));
}

/* A child of a process that has not used CUDA yet, which then does: both are the broker's. */
void scene_fork_first(void)
{
	pid_t child = fork();
	int status;

	GM_REQUIRE(child >= 0);
	scene_alloc();
	if (child == 0)
		_exit(0);
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void *connect_slowly(void *unused)
{
	gm_cu_ptr ptr;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	GM_REQUIRE(cu.cuMemAlloc(&ptr, ACTOR_BYTES) != GM_CUDA_SUCCESS);
	return NULL;
}

/* A child that is made while another thread waits for the daemon does not wait for that thread. */
void scene_fork_connect(void)
{
	pthread_t thread;
	gm_cu_ptr ptr;
	int status;

	shared_ctx = use_gpu();
	GM_REQUIRE(pthread_create(&thread, NULL, connect_slowly, NULL) == 0);
	gm_hear_word(ACTOR_CHANNEL, 'g');
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		GM_REQUIRE_EQ(cu.cuMemAlloc(&ptr, 4096), GM_CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	gm_text_say_word(ACTOR_CHANNEL, 'f');
	pthread_join(thread, NULL);
}
