/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: green contexts. */
#include "tests/gpu/preload_scenes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

#define GREEN_SM             1 /* CU_DEV_RESOURCE_TYPE_SM */
#define GREEN_DEFAULT_STREAM 1 /* CU_GREEN_CTX_DEFAULT_STREAM */

static sem_t closed;
static _Atomic bool passed;

static void wait_until_open(void *unused)
{
	while (sem_wait(&closed) < 0 && errno == EINTR)
		;
	passed = true;
}

static void *open_later(void *unused)
{
	gm_text_say_word(ACTOR_CHANNEL, 'w');
	gm_hear_word(ACTOR_CHANNEL, 'o');
	sem_post(&closed);
	return NULL;
}

static void *green_find(const char *symbol)
{
	void *fn = dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
	if (!fn)
		GM_FAIL("no %s", symbol);
	return fn;
}

/* One that has all multiprocessors of the first GPU. */
static void *green_new(void)
{
	gm_cu_result (*resource)(gm_cu_device, void *, int);
	gm_cu_result (*describe)(void **, void *, unsigned int);
	gm_cu_result (*create)(void **, void *, gm_cu_device, unsigned int);
	char room[256] = {0}; /* larger than the driver has it */
	void *description, *green;

	*(void **)&resource = green_find("cuDeviceGetDevResource");
	*(void **)&describe = green_find("cuDevResourceGenerateDesc");
	*(void **)&create = green_find("cuGreenCtxCreate");
	CU(resource(0, room, GREEN_SM));
	CU(describe(&description, room, 1));
	CU(create(&green, description, 0, GREEN_DEFAULT_STREAM));
	return green;
}

/* Memory that is allocated in a green context is the primary one's: freeing it waits for work of that one, and it
 * stays when the green context ends. */
void scene_green(void)
{
	gm_cu_result (*from)(gm_cu_ctx *, void *), (*destroy)(void *);
	gm_cu_ctx primary = use_gpu(), ctx;
	gm_cu_stream stream;
	gm_cu_ptr a, b, base;
	pthread_t opener;
	size_t bytes;
	void *green;

	*(void **)&from = green_find("cuCtxFromGreenCtx");
	*(void **)&destroy = green_find("cuGreenCtxDestroy");
	GM_REQUIRE(sem_init(&closed, 0, 0) == 0);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	green = green_new();
	CU(from(&ctx, green));
	CU(cu.cuCtxSetCurrent(ctx));
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(b, ACTOR_BYTES, 0x21);
	CU(cu.cuMemsetD8Async(a, 0x77, ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuLaunchHostFunc(stream, wait_until_open, NULL));
	show('h');
	GM_REQUIRE(pthread_create(&opener, NULL, open_later, NULL) == 0);
	CU(cu.cuMemFree(a));
	GM_REQUIRE(passed);
	pthread_join(opener, NULL);

	CU(cu.cuCtxSetCurrent(primary));
	CU(destroy(green));
	use(b, ACTOR_BYTES, 0x22);
	CU(cu.cuMemGetAddressRange(&base, &bytes, b + 1));
	GM_REQUIRE(base == b && bytes == ACTOR_BYTES);
	CU(cu.cuMemFree(b));
	GM_REQUIRE(cu.cuMemFree(b) != GM_CUDA_SUCCESS);
}
