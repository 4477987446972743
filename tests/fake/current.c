/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which context each thread of the fake driver's has current: a stack. What is on one is held by
 * that, and let go at the latest when the thread ends.
 */
#include "tests/fake/fake.h"

#define STACK_MAX 16

static __thread struct stack {
	gm_cu_ctx at[STACK_MAX];
	int n;
} stack;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

gm_cu_ctx fake_current(void)
{
	return stack.n ? stack.at[stack.n - 1] : NULL;
}

static void thread_ends(void *unused)
{
	(void)unused;
	while (stack.n)
		fake_pop();
}

static void begin(void)
{
	if (pthread_key_create(&key, thread_ends))
		fake_undefined("no key for threads");
}

/* It is held already. */
static void put(gm_cu_ctx ctx)
{
	if (stack.n == STACK_MAX)
		fake_undefined("contexts are pushed and not popped");
	pthread_once(&once, begin);
	pthread_setspecific(key, &stack);
	stack.at[stack.n++] = ctx;
}

gm_cu_result fake_push(gm_cu_ctx ctx)
{
	gm_cu_result result = fake_hold(ctx);

	if (!result)
		put(ctx);
	return result;
}

gm_cu_ctx fake_pop(void)
{
	gm_cu_ctx ctx = stack.at[--stack.n];

	fake_let_go(ctx);
	return ctx;
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx)
{
	FAKE_ENTER("cuCtxGetCurrent");
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ctx = fake_current();
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx)
{
	gm_cu_result result;

	FAKE_ENTER("cuCtxSetCurrent");
	if (ctx && (result = fake_hold(ctx)))
		return result;
	/* In the place of the one that was, which is held until the new one is. */
	if (stack.n)
		fake_pop();
	if (ctx)
		put(ctx);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx)
{
	FAKE_ENTER("cuCtxPushCurrent");
	return ctx ? fake_push(ctx) : GM_CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx)
{
	gm_cu_ctx popped;

	FAKE_ENTER("cuCtxPopCurrent");
	if (!stack.n)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	popped = fake_pop();
	if (ctx)
		*ctx = popped;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number);
FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number)
{
	struct fake_device *device = NULL;
	gm_cu_result result;

	FAKE_ENTER("cuCtxGetDevice");
	if (!number)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_find_context(&device);
	/* Which device it is can be told always, even of one that was destroyed elsewhere. */
	if (result && result != GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return result;
	*number = (gm_cu_device)(device - fake.device);
	return GM_CUDA_SUCCESS;
}
