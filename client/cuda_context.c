/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_context.h. Knowing a context is not owning it: it is used only while it is current here,
 * and every use may find that it is no more. A handle may come again for another context; where the
 * driver numbers contexts that is noticed, and nothing of the old one is touched.
 *
 * It must never make a primary context where the program has one of its own, and never leave a
 * context current that was not.
 */
#include "client/cuda_context.h"

#include <errno.h>
#include <stdlib.h>

#include "client/cuda_event.h"

/* Numbers below are those of primary contexts, by device. */
static _Atomic uint64_t next_number = GM_LIMIT_DEVICES;

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gm_cuda_contexts *all[GM_LIMIT_DEVICES];

/* What this thread's last look came to. */
static __thread struct {
	const struct gm_cuda_contexts *contexts;
	gm_cu_ctx cu;
	uint64_t left;
	uint64_t number;
} seen;

static uint64_t primary_number(const struct gm_cuda_contexts *contexts)
{
	return (uint64_t)contexts->device % GM_LIMIT_DEVICES;
}

/* ---- the list */

/* Lock. NULL: it is not known. */
static struct gm_cuda_context *find(struct gm_cuda_contexts *contexts, gm_cu_ctx cu)
{
	struct gm_cuda_context *context = contexts->list;

	while (context && context->cu != cu)
		context = context->next;
	return context;
}

/* Lock. -ENOMEM. */
static int add(struct gm_cuda_contexts *contexts, gm_cu_ctx cu, uint64_t number)
{
	struct gm_cuda_context *context = calloc(1, sizeof(*context));

	if (!context)
		return -ENOMEM;
	context->cu = cu;
	context->number = number;
	context->refs = 1;
	if (contexts->cuda->cuCtxGetId && contexts->cuda->cuCtxGetId(cu, &context->id))
		context->id = 0;
	context->next = contexts->list;
	contexts->list = context;
	return 0;
}

/* Retains the primary context if it is active, so that it is known. Lock. */
static gm_cu_result know_primary(struct gm_cuda_contexts *contexts)
{
	const struct gm_cuda *cuda = contexts->cuda;
	unsigned int flags;
	gm_cu_result result;
	gm_cu_ctx cu;
	int active = 0;

	if (contexts->primary)
		return GM_CUDA_SUCCESS;
	result = cuda->cuDevicePrimaryCtxGetState(contexts->device, &flags, &active);
	if (result || !active)
		return result;
	result = cuda->cuDevicePrimaryCtxRetain(&cu, contexts->device);
	if (result)
		return result;
	if (!find(contexts, cu) && add(contexts, cu, primary_number(contexts)) < 0) {
		cuda->cuDevicePrimaryCtxRelease(contexts->device);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	contexts->primary = cu;
	return GM_CUDA_SUCCESS;
}

struct gm_cuda_context *gm_cuda_contexts_first(
	struct gm_cuda_contexts *contexts, gm_cu_result *ret_result)
{
	struct gm_cuda_context *first;

	pthread_mutex_lock(&contexts->lock);
	*ret_result = know_primary(contexts);
	if (contexts->blind)
		*ret_result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	first = contexts->list;
	pthread_mutex_unlock(&contexts->lock);
	return first;
}

void gm_cuda_context_unref(struct gm_cuda_context *context)
{
	if (--context->refs == 0)
		free(context);
}

void gm_cuda_contexts_walk(struct gm_cuda_contexts *contexts)
{
	pthread_mutex_lock(&contexts->walking);
}

void gm_cuda_contexts_walked(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;

	while ((context = contexts->gone)) {
		contexts->gone = context->next_gone;
		gm_cuda_context_unref(context);
	}
	pthread_mutex_unlock(&contexts->walking);
}

/* Its next stays as it is, for who is looking through the list. */
static void end(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context)
{
	struct gm_cuda_context **link;

	if (context->gone)
		return;
	context->gone = true;
	gm_cuda_points_drop(context);
	pthread_mutex_lock(&contexts->lock);
	for (link = &contexts->list; *link != context; link = &(*link)->next)
		;
	*link = context->next;
	atomic_fetch_add_explicit(&contexts->left, 1, memory_order_release);
	pthread_mutex_unlock(&contexts->lock);
	context->next_gone = contexts->gone;
	contexts->gone = context;
}

bool gm_cuda_context_ended(
	struct gm_cuda_contexts *contexts, struct gm_cuda_context *context, gm_cu_result result)
{
	if (result != GM_CUDA_ERROR_CONTEXT_IS_DESTROYED && result != GM_CUDA_ERROR_INVALID_CONTEXT)
		return false;
	end(contexts, context);
	return true;
}

/* ---- who is there */

static uint64_t look(struct gm_cuda_contexts *contexts, gm_cu_ctx cu)
{
	uint64_t left = atomic_load_explicit(&contexts->left, memory_order_acquire);
	uint64_t number = primary_number(contexts);
	struct gm_cuda_context *context;
	gm_cu_device device;

	if (contexts->cuda->cuCtxGetDevice(&device) || device != contexts->device)
		return number;
	pthread_mutex_lock(&contexts->lock);
	/* First, to tell whether this is it. */
	(void)know_primary(contexts);
	context = find(contexts, cu);
	if (context) {
		number = context->number;
	} else {
		number = atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed);
		if (add(contexts, cu, number) < 0)
			contexts->blind = true;
	}
	pthread_mutex_unlock(&contexts->lock);
	seen.contexts = contexts;
	seen.cu = cu;
	seen.left = left;
	seen.number = number;
	return number;
}

uint64_t gm_cuda_contexts_here(struct gm_cuda_contexts *contexts)
{
	gm_cu_ctx cu = NULL;

	if (contexts->cuda->cuCtxGetCurrent(&cu) || !cu)
		return primary_number(contexts);
	if (seen.contexts == contexts && seen.cu == cu &&
		seen.left == atomic_load_explicit(&contexts->left, memory_order_acquire))
		return seen.number;
	return look(contexts, cu);
}

bool gm_cuda_contexts_any(struct gm_cuda_contexts *contexts)
{
	bool any;

	pthread_mutex_lock(&contexts->lock);
	(void)know_primary(contexts);
	any = contexts->list != NULL;
	pthread_mutex_unlock(&contexts->lock);
	return any;
}

/* ---- entering */

void gm_cuda_contexts_leave(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *entered)
{
	if (entered->pushed)
		contexts->cuda->cuCtxPopCurrent(NULL);
	if (entered->exchanged)
		contexts->cuda->cuThreadExchangeStreamCaptureMode(&entered->mode);
}

/* In its default mode the driver would refuse many calls while a stream is captured, by whichever
 * thread, and break the capture. */
void gm_cuda_contexts_relax(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered)
{
	*ret_entered = (struct gm_cuda_entered){.mode = GM_CU_STREAM_CAPTURE_MODE_RELAXED};
	ret_entered->exchanged = contexts->cuda->cuThreadExchangeStreamCaptureMode &&
				 contexts->cuda->cuThreadExchangeStreamCaptureMode(
					 &ret_entered->mode) == GM_CUDA_SUCCESS;
}

int gm_cuda_context_enter(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_entered *ret_entered)
{
	const struct gm_cuda *cuda = contexts->cuda;
	unsigned long long id = 0;
	unsigned int version;
	gm_cu_ctx current = NULL;
	gm_cu_result result;

	if (context->gone)
		return GM_CUDA_CONTEXT_GONE;
	result = cuda->cuCtxGetCurrent(&current);
	if (result)
		return result;
	/* Before it is made current: the driver lets a thread push a context that is no more, and
	 * kills the process when that is popped. */
	result = cuda->cuCtxGetId ? cuda->cuCtxGetId(context->cu, &id)
				  : cuda->cuCtxGetApiVersion(context->cu, &version);
	if (result)
		return gm_cuda_context_ended(contexts, context, result) ? GM_CUDA_CONTEXT_GONE
									: (int)result;
	gm_cuda_contexts_relax(contexts, ret_entered);
	if (current != context->cu) {
		result = cuda->cuCtxPushCurrent(context->cu);
		ret_entered->pushed = !result;
	}
	if (!result && id != context->id) {
		/* Another one by now: nothing that was in the old one is there. */
		gm_cuda_points_drop(context);
		context->generation++;
		context->id = id;
	}
	if (!result)
		return GM_CUDA_SUCCESS;
	gm_cuda_contexts_leave(contexts, ret_entered);
	return gm_cuda_context_ended(contexts, context, result) ? GM_CUDA_CONTEXT_GONE
								: (int)result;
}

/* Any known one. false: there is none. */
static bool enter_known(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;
	bool entered = false;

	gm_cuda_contexts_walk(contexts);
	for (context = gm_cuda_contexts_first(contexts, &unused); context && !entered;
		context = context->next)
		entered = gm_cuda_context_enter(contexts, context, ret_entered) == GM_CUDA_SUCCESS;
	gm_cuda_contexts_walked(contexts);
	return entered;
}

gm_cu_result gm_cuda_contexts_enter(
	struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered)
{
	const struct gm_cuda *cuda = contexts->cuda;
	gm_cu_ctx current = NULL;
	gm_cu_device device;
	gm_cu_result result;

	result = cuda->cuCtxGetCurrent(&current);
	if (result)
		return result;
	if (current && cuda->cuCtxGetDevice(&device) == GM_CUDA_SUCCESS &&
		device == contexts->device) {
		gm_cuda_contexts_relax(contexts, ret_entered);
		return GM_CUDA_SUCCESS;
	}
	if (enter_known(contexts, ret_entered))
		return GM_CUDA_SUCCESS;
	pthread_mutex_lock(&contexts->lock);
	if (!contexts->primary) {
		result = cuda->cuDevicePrimaryCtxRetain(&current, contexts->device);
		if (!result && add(contexts, current, primary_number(contexts)) < 0) {
			cuda->cuDevicePrimaryCtxRelease(contexts->device);
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (!result)
			contexts->primary = current;
	}
	current = contexts->primary;
	pthread_mutex_unlock(&contexts->lock);
	if (!result)
		result = cuda->cuCtxPushCurrent(current);
	if (result)
		return result;
	gm_cuda_contexts_relax(contexts, ret_entered);
	ret_entered->pushed = true;
	return GM_CUDA_SUCCESS;
}

/* ---- beginning and end */

int gm_cuda_contexts_get(
	const struct gm_cuda *cuda, gm_cu_device device, struct gm_cuda_contexts **ret_contexts)
{
	struct gm_cuda_contexts **place = &all[(unsigned)device % GM_LIMIT_DEVICES], *contexts;

	pthread_mutex_lock(&all_lock);
	contexts = *place;
	if (!contexts) {
		contexts = calloc(1, sizeof(*contexts));
		if (contexts) {
			contexts->cuda = cuda;
			contexts->device = device;
			pthread_mutex_init(&contexts->walking, NULL);
			pthread_mutex_init(&contexts->lock, NULL);
			pthread_cond_init(&contexts->asked_for, NULL);
			*place = contexts;
		}
	}
	if (contexts)
		contexts->refs++;
	pthread_mutex_unlock(&all_lock);
	if (!contexts)
		return -ENOMEM;
	/* Whoever uses memory of the GPU first has shown its context with that. */
	(void)gm_cuda_contexts_here(contexts);
	*ret_contexts = contexts;
	return 0;
}

struct gm_cuda_contexts *gm_cuda_contexts_ref(struct gm_cuda_contexts *contexts)
{
	pthread_mutex_lock(&all_lock);
	contexts->refs++;
	pthread_mutex_unlock(&all_lock);
	return contexts;
}

static void contexts_free(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;

	gm_cuda_contexts_walk(contexts);
	for (context = gm_cuda_contexts_first(contexts, &unused); context;
		context = context->next) {
		struct gm_cuda_entered entered;
		if (context->spare &&
			gm_cuda_context_enter(contexts, context, &entered) == GM_CUDA_SUCCESS) {
			gm_cuda_points_destroy(contexts->cuda, context);
			gm_cuda_contexts_leave(contexts, &entered);
		}
	}
	gm_cuda_contexts_walked(contexts);
	while ((context = contexts->list)) {
		contexts->list = context->next;
		gm_cuda_points_drop(context);
		gm_cuda_context_unref(context);
	}
	if (contexts->primary)
		contexts->cuda->cuDevicePrimaryCtxRelease(contexts->device);
	pthread_cond_destroy(&contexts->asked_for);
	pthread_mutex_destroy(&contexts->lock);
	pthread_mutex_destroy(&contexts->walking);
	free(contexts);
}

static bool put(struct gm_cuda_contexts *contexts, bool last_only)
{
	bool last;

	pthread_mutex_lock(&all_lock);
	last = contexts->refs == 1;
	if (last || !last_only)
		contexts->refs--;
	if (last)
		all[(unsigned)contexts->device % GM_LIMIT_DEVICES] = NULL;
	else if (!last_only)
		gm_cuda_wait_look(contexts); /* that may be the last one now */
	pthread_mutex_unlock(&all_lock);
	if (last)
		contexts_free(contexts);
	return last;
}

void gm_cuda_contexts_put(struct gm_cuda_contexts *contexts)
{
	if (contexts)
		(void)put(contexts, false);
}

bool gm_cuda_contexts_put_last(struct gm_cuda_contexts *contexts)
{
	return put(contexts, true);
}
