/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: there is no daemon, or no more memory. */
#include "tests/gpu/preload_scenes.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SPILLED 8 /* times ACTOR_BYTES, which is more than the daemon gives */

/* There is no daemon. */
void scene_refused(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	GM_REQUIRE_EQ(cu.cuMemAlloc(&ptr, ACTOR_BYTES), GM_CUDA_ERROR_SYSTEM_NOT_READY);
}

void scene_plain(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	use(ptr, ACTOR_BYTES, 0x12);
	CU(cu.cuMemFree(ptr));
}

/* Takes all there is, in pieces: what is refused is CUDA_ERROR_OUT_OF_MEMORY, and what is freed can be had
 * again. */
void scene_fill(void)
{
	gm_cu_ptr ptrs[4096];
	gm_cu_result result = GM_CUDA_SUCCESS;
	size_t n = 0;

	use_gpu();
	while (n < 4096 && (result = cu.cuMemAlloc(&ptrs[n], ACTOR_BYTES)) == GM_CUDA_SUCCESS)
		n++;
	GM_REQUIRE(n > 0);
	GM_REQUIRE_EQ(result, GM_CUDA_ERROR_OUT_OF_MEMORY);
	show('h');
	CU(cu.cuMemFree(ptrs[0]));
	CU(cu.cuMemAlloc(&ptrs[0], ACTOR_BYTES));
	while (n)
		CU(cu.cuMemFree(ptrs[--n]));
}

/* ---- a full device */

static void copy_through(gm_cu_ptr ptr, size_t bytes)
{
	unsigned char *from = malloc(bytes), *to = calloc(1, bytes);
	GM_REQUIRE(from && to);

	for (size_t i = 0; i < bytes; i++)
		from[i] = (unsigned char)(i * 31 >> 4);
	CU(cu.cuMemcpyAsync(ptr, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, ptr, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(memcmp(from, to, bytes) == 0);
	free(from);
	free(to);
}

/* What no longer fits lies in host memory, and looks like memory of the device. */
void scene_spill(void)
{
	gm_cu_ptr ptrs[SPILLED], async, base;
	unsigned int kind = 0;
	gm_cu_stream stream;
	size_t bytes;
	int device = -1;

	gm_cu_ctx ctx = use_gpu(), of = NULL;
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < SPILLED; i++)
		CU(cu.cuMemAlloc(&ptrs[i], ACTOR_BYTES));
	show('h');

	gm_cu_ptr last = ptrs[SPILLED - 1];
	copy_through(last, ACTOR_BYTES);
	CU(cu.cuPointerGetAttribute(&kind, 2, last + 100));
	GM_REQUIRE_EQ(kind, GM_CU_MEMORYTYPE_DEVICE);
	CU(cu.cuPointerGetAttribute(&device, 9, last));
	GM_REQUIRE_EQ(device, 0);
	CU(cu.cuPointerGetAttribute(&of, 1, last));
	GM_REQUIRE(of == ctx);
	CU(cu.cuMemGetAddressRange(&base, &bytes, last + 1));
	GM_REQUIRE(base == last && bytes == ACTOR_BYTES);

	CU(cu.cuMemAllocAsync(&async, ACTOR_BYTES, stream));
	copy_through(async, ACTOR_BYTES);
	CU(cu.cuMemFreeAsync(async, stream));
	for (size_t i = 0; i < SPILLED; i++)
		CU(cu.cuMemFree(ptrs[i]));
	GM_REQUIRE(cu.cuMemFree(last) != GM_CUDA_SUCCESS);
}

static _Atomic int signals;
static sem_t signalled;

static void on_signal(int number)
{
	signals++;
	sem_post(&signalled);
}

/* The program is told that the device is full: once. */
void scene_pressure(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	size_t n = 0;
	gm_cu_ptr ptr;

	use_gpu();
	GM_REQUIRE(sem_init(&signalled, 0, 0) == 0);
	GM_REQUIRE(sigaction(SIGUSR2, &action, NULL) == 0);
	while (n < 4096 && cu.cuMemAlloc(&ptr, ACTOR_BYTES) == GM_CUDA_SUCCESS)
		n++;
	while (sem_wait(&signalled) < 0)
		;
	GM_REQUIRE_EQ(signals, 1);
	for (int i = 0; i < 50; i++)
		GM_REQUIRE(cu.cuMemAlloc(&ptr, ACTOR_BYTES) != GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(signals, 1);
}

/* One of many that want more together than there is. */
void scene_race(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	gm_cu_result result = cu.cuMemAlloc(&ptr, ACTOR_PIECE);
	GM_REQUIRE(result == GM_CUDA_SUCCESS || result == GM_CUDA_ERROR_OUT_OF_MEMORY);
	gm_text_say_word(ACTOR_CHANNEL, result == GM_CUDA_SUCCESS ? 'y' : 'n');
	gm_hear_word(ACTOR_CHANNEL, 'g');
	if (result == GM_CUDA_SUCCESS)
		CU(cu.cuMemFree(ptr));
}

/* The daemon restarts while it is shown what there is. */
void scene_restart(void)
{
	gm_cu_ptr a, b, c;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(a, ACTOR_BYTES, 1);
	use(b, ACTOR_BYTES, 2);
	GM_REQUIRE_EQ(cu.cuMemAlloc(&c, ACTOR_BYTES), GM_CUDA_ERROR_OUT_OF_MEMORY);
	CU(cu.cuMemFree(a));
	CU(cu.cuMemAlloc(&c, ACTOR_BYTES));
	CU(cu.cuMemFree(b));
	CU(cu.cuMemFree(c));
}
