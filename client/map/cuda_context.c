/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_context.h. The library knows a context without owning it, so every use may find that the
 * context was destroyed. Finding that out safely needs a keeper. Each context gets one when it is
 * met, because only then is it certainly alive. The primary context is retained instead. After a
 * reset it comes back at the same handle, which is noticed if the driver numbers contexts.
 *
 * This module must never make a primary context if the program has a context of its own, and never
 * leave a context current that was not.
 */
#include "client/map/cuda_context.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "client/map/cuda_holder.h"

/* Smaller numbers belong to primary contexts: the number of the device. */
static _Atomic uint64_t next_number = UINT64_C(1) << 20;
/* How often a context, a set or a note of a GPU beside one was forgotten. When this changes, each
 * thread shows its context again. */
static _Atomic uint64_t left;

static struct gm_lock all_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct gm_cuda_contexts *all;

/* What context_show() last found in this thread. */
static __thread struct {
	const struct gm_cuda_contexts *contexts;
	gm_cu_ctx cu;
	uint64_t left; /* at that time; another set may lie at the same address now */
	uint64_t number;
} seen;

static uint64_t context_primary_number(const struct gm_cuda_contexts *contexts)
{
	return (uint64_t)(unsigned)contexts->device;
}

/* ---- the list */

/* NULL: the context is not known. The caller holds lock. */
static struct gm_cuda_context *context_find(struct gm_cuda_contexts *contexts, gm_cu_ctx cu)
{
	struct gm_cuda_context *context;

	LL_SEARCH_SCALAR(contexts->list, context, cu, cu);
	return context;
}

static gm_cu_result context_ask_id(
	const struct gm_cuda *cuda, gm_cu_ctx cu, unsigned long long *ret_id)
{
	unsigned int version;

	*ret_id = 0;
	return cuda->cuCtxGetId ? cuda->cuCtxGetId(cu, ret_id)
				: cuda->cuCtxGetApiVersion(cu, &version);
}

/* Adds a context that is certainly alive to the list. The caller holds lock. -ENOMEM, or an error
 * of gm_cuda_holder_new(). */
static int context_add(
	struct gm_cuda_contexts *contexts, gm_cu_ctx cu, uint64_t number, bool primary)
{
	struct gm_cuda_context *context = calloc(1, sizeof(*context));
	int r = 0;

	if (!context)
		return -ENOMEM;
	context->cu = cu;
	context->number = number;
	context->refs = 1;
	if (context_ask_id(contexts->cuda, cu, &context->id))
		context->id = 0;

	if (!primary || !contexts->cuda->cuCtxRecordEvent)
		r = gm_cuda_holder_new(
			contexts->cuda, contexts->device, cu, primary, &context->keeper);
	if (r < 0) {
		free(context);
		return r;
	}

	LL_PREPEND(contexts->list, context);
	return 0;
}

/* Retains the primary context, which makes it if need be, and adds it to the list. The caller holds
 * lock. */
static gm_cu_result context_retain_primary(struct gm_cuda_contexts *contexts)
{
	gm_cu_result result;
	gm_cu_ctx cu;

	result = contexts->cuda->cuDevicePrimaryCtxRetain(&cu, contexts->device);
	if (result)
		return result;

	if (!context_find(contexts, cu) &&
		context_add(contexts, cu, context_primary_number(contexts), true) < 0) {
		contexts->cuda->cuDevicePrimaryCtxRelease(contexts->device);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}

	contexts->primary = cu;
	contexts->retained++;
	return GM_CUDA_SUCCESS;
}

/* Retains the primary context if it is active, so that it is known. The caller holds lock. */
static gm_cu_result context_know_primary(struct gm_cuda_contexts *contexts)
{
	unsigned int flags;
	gm_cu_result result;
	int active = 0;

	if (contexts->primary)
		return GM_CUDA_SUCCESS;
	result = contexts->cuda->cuDevicePrimaryCtxGetState(contexts->device, &flags, &active);
	return result || !active ? result : context_retain_primary(contexts);
}

struct gm_cuda_context *gm_cuda_contexts_first(
	struct gm_cuda_contexts *contexts, gm_cu_result *ret_result)
{
	struct gm_cuda_context *first;

	gm_lock(&contexts->lock);
	*ret_result = context_know_primary(contexts);
	if (contexts->blind)
		*ret_result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	first = contexts->list;
	gm_lock_drop(&contexts->lock);
	return first;
}

void gm_cuda_context_unref(struct gm_cuda_context *context)
{
	if (--context->refs == 0)
		free(context);
}

void gm_cuda_contexts_walk(struct gm_cuda_contexts *contexts)
{
	gm_lock(&contexts->walking);
}

void gm_cuda_contexts_walked(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;

	while ((context = contexts->gone)) {
		contexts->gone = context->next_gone;
		gm_cuda_context_unref(context);
	}
	gm_lock_drop(&contexts->walking);
}

/* Forgets the spare points: their events went with the context. The caller holds walking. */
static void context_drop_spare(struct gm_cuda_context *context)
{
	struct gm_cuda_point *point;

	while ((point = context->spare)) {
		context->spare = point->next;
		free(point);
	}
}

/* Removes a context from the list. Leaves its next untouched, because somebody may be going through
 * the list. The caller holds walking. */
static void context_end(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context)
{
	if (context->gone)
		return;
	context->gone = true;
	context_drop_spare(context);

	gm_lock(&contexts->lock);
	LL_DELETE(contexts->list, context);
	if (contexts->primary == context->cu)
		contexts->primary = NULL;
	atomic_fetch_add_explicit(&left, 1, memory_order_release);
	gm_lock_drop(&contexts->lock);

	/* Once the keeper lets go, the driver may give the handle to a new context. */
	gm_cuda_holder_free(context->keeper);
	context->keeper = NULL;
	LL_PREPEND2(contexts->gone, context, next_gone);
}

bool gm_cuda_context_ended(
	struct gm_cuda_contexts *contexts, struct gm_cuda_context *context, gm_cu_result result)
{
	if (result != GM_CUDA_ERROR_CONTEXT_IS_DESTROYED && result != GM_CUDA_ERROR_INVALID_CONTEXT)
		return false;
	context_end(contexts, context);
	return true;
}

/* ---- the sets of all GPUs */

/* Finds or makes the set of a GPU. The caller holds all_lock. NULL: no memory. */
static struct gm_cuda_contexts *context_set_of(const struct gm_cuda *cuda, gm_cu_device device)
{
	struct gm_cuda_contexts *contexts;

	LL_SEARCH_SCALAR2(all, contexts, device, device, next_set);
	if (contexts)
		return contexts;

	contexts = calloc(1, sizeof(*contexts));
	if (!contexts)
		return NULL;
	contexts->cuda = cuda;
	contexts->device = device;
	gm_lock_init(&contexts->walking, GM_LOCK_CONTEXTS_WALKING);
	gm_lock_init(&contexts->lock, GM_LOCK_CONTEXTS);
	LL_PREPEND2(all, contexts, next_set);
	return contexts;
}

/* Drops one reference to a set. true: it has left the list of sets, and the caller frees it after
 * letting go of all_lock. The caller holds all_lock. */
static bool context_set_unref(struct gm_cuda_contexts *contexts)
{
	if (--contexts->refs)
		return false;
	LL_DELETE2(all, contexts, next_set);
	atomic_fetch_add_explicit(&left, 1, memory_order_release);
	return true;
}

/* Notes another GPU beside this one and returns its set. NULL: there is no memory to note it, and
 * no event covers everything from now on. */
static struct gm_cuda_contexts *context_beside(
	struct gm_cuda_contexts *contexts, gm_cu_device device)
{
	struct gm_cuda_beside *at;
	struct gm_cuda_contexts *other = NULL;

	gm_lock(&all_lock);
	for (at = contexts->beside; at && at->contexts->device != device; at = at->next)
		;
	if (at) {
		other = at->contexts;
	} else if ((at = calloc(1, sizeof(*at)))) {
		other = context_set_of(contexts->cuda, device);
		if (other) {
			other->refs++;
			at->contexts = other;
			at->next = contexts->beside;
			contexts->beside = at;
		} else {
			free(at);
		}
	}
	gm_lock_drop(&all_lock);

	if (!other) {
		gm_lock(&contexts->lock);
		contexts->blind = true;
		gm_lock_drop(&contexts->lock);
	}
	return other;
}

/* ---- which context a thread is in */

/* Lets go of destroyed contexts: each has a thread, and nobody else may ever look at it. */
static void context_forget_ended(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;

	gm_cuda_contexts_walk(contexts);
	for (context = gm_cuda_contexts_first(contexts, &unused); context; context = context->next)
		(void)gm_cuda_context_look(contexts, context);
	gm_cuda_contexts_walked(contexts);
}

/* Notes a context of this GPU, which is current, and returns its number. */
static uint64_t context_note(struct gm_cuda_contexts *contexts, gm_cu_ctx cu)
{
	struct gm_cuda_context *context;
	uint64_t number;
	bool known;

	gm_lock(&contexts->lock);
	known = context_find(contexts, cu) != NULL;
	gm_lock_drop(&contexts->lock);
	if (!known)
		context_forget_ended(contexts);

	gm_lock(&contexts->lock);
	/* First, because this may be the primary context. */
	(void)context_know_primary(contexts);
	context = context_find(contexts, cu);
	if (context) {
		number = context->number;
	} else {
		number = atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed);
		if (context_add(contexts, cu, number, false) < 0)
			contexts->blind = true;
	}
	gm_lock_drop(&contexts->lock);
	return number;
}

/* Notes the calling thread's context, of whatever GPU it is. */
static uint64_t context_show(struct gm_cuda_contexts *contexts, gm_cu_ctx cu)
{
	uint64_t before = atomic_load_explicit(&left, memory_order_acquire);
	uint64_t number = GM_CUDA_CONTEXT_BESIDE;
	struct gm_cuda_contexts *owner = contexts;
	unsigned long long id;
	gm_cu_device device;
	GM_UNCANCELLED; /* the driver is called with locks held below */

	if (contexts->cuda->cuCtxGetDevice(&device) || context_ask_id(contexts->cuda, cu, &id))
		return context_primary_number(contexts); /* destroyed, but still current here */

	if (device != contexts->device)
		owner = context_beside(contexts, device);
	if (owner == contexts)
		number = context_note(contexts, cu);
	else if (owner)
		(void)context_note(owner, cu);

	seen.contexts = contexts;
	seen.cu = cu;
	seen.left = before;
	seen.number = number;
	return number;
}

uint64_t gm_cuda_contexts_here(struct gm_cuda_contexts *contexts)
{
	gm_cu_ctx cu = NULL;

	if (contexts->cuda->cuCtxGetCurrent(&cu) || !cu)
		return context_primary_number(contexts);
	if (seen.contexts == contexts && seen.cu == cu &&
		seen.left == atomic_load_explicit(&left, memory_order_acquire))
		return seen.number;
	return context_show(contexts, cu);
}

bool gm_cuda_contexts_any(struct gm_cuda_contexts *contexts)
{
	bool any;

	gm_lock(&contexts->lock);
	(void)context_know_primary(contexts);
	any = contexts->list != NULL;
	gm_lock_drop(&contexts->lock);
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

/* In its default mode, the driver would refuse many calls while any thread captures a stream, and
 * they would break the capture. */
void gm_cuda_contexts_relax(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered)
{
	*ret_entered = (struct gm_cuda_entered){.mode = GM_CU_STREAM_CAPTURE_MODE_RELAXED};
	ret_entered->exchanged = contexts->cuda->cuThreadExchangeStreamCaptureMode &&
				 contexts->cuda->cuThreadExchangeStreamCaptureMode(
					 &ret_entered->mode) == GM_CUDA_SUCCESS;
}

int gm_cuda_context_look(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context)
{
	unsigned long long id;
	gm_cu_result result;

	if (context->gone)
		return GM_CUDA_CONTEXT_GONE;
	result = context_ask_id(contexts->cuda, context->cu, &id);
	if (result)
		return gm_cuda_context_ended(contexts, context, result) ? GM_CUDA_CONTEXT_GONE
									: (int)result;
	if (id != context->id) {
		/* This is a new context at the same handle: nothing of the old one is left. */
		context_drop_spare(context);
		context->generation++;
		context->id = id;
	}
	return GM_CUDA_SUCCESS;
}

int gm_cuda_context_enter(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_entered *ret_entered)
{
	const struct gm_cuda *cuda = contexts->cuda;
	gm_cu_ctx current = NULL;
	gm_cu_result result;
	int r = gm_cuda_context_look(contexts, context);

	if (r)
		return r;
	result = cuda->cuCtxGetCurrent(&current);
	if (result)
		return (int)result;

	gm_cuda_contexts_relax(contexts, ret_entered);
	if (current != context->cu) {
		result = cuda->cuCtxPushCurrent(context->cu);
		ret_entered->pushed = !result;
	}
	if (!result)
		return GM_CUDA_SUCCESS;

	gm_cuda_contexts_leave(contexts, ret_entered);
	return gm_cuda_context_ended(contexts, context, result) ? GM_CUDA_CONTEXT_GONE
								: (int)result;
}

bool gm_cuda_context_safe(
	const struct gm_cuda_contexts *contexts, const struct gm_cuda_context *context)
{
	gm_cu_ctx current = NULL;

	return !context->keeper || (contexts->cuda->cuCtxGetCurrent(&current) == GM_CUDA_SUCCESS &&
					   current == context->cu);
}

int gm_cuda_contexts_enter_number(
	struct gm_cuda_contexts *contexts, uint64_t number, struct gm_cuda_entered *ret_entered)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;
	int r = GM_CUDA_CONTEXT_GONE;

	gm_cuda_contexts_walk(contexts);
	context = gm_cuda_contexts_first(contexts, &unused);
	LL_SEARCH_SCALAR(context, context, number, number);
	if (context)
		r = gm_cuda_context_enter(contexts, context, ret_entered);
	gm_cuda_contexts_walked(contexts);
	return r;
}

/* Enters any known context. Returns false if no context is known. */
static bool context_enter_known(
	struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered)
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
	if (context_enter_known(contexts, ret_entered))
		return GM_CUDA_SUCCESS;

	gm_lock(&contexts->lock);
	if (!contexts->primary)
		result = context_retain_primary(contexts);
	current = contexts->primary;
	gm_lock_drop(&contexts->lock);
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
	struct gm_cuda_contexts *contexts;
	gm_cu_ctx current = NULL;
	gm_cu_device here;

	gm_lock(&all_lock);
	contexts = context_set_of(cuda, device);
	if (contexts) {
		contexts->users++;
		contexts->refs++;
	}
	gm_lock_drop(&all_lock);
	if (!contexts)
		return -ENOMEM;

	/* A thread that starts to use the GPU's memory thereby shows its context. */
	if (cuda->cuCtxGetCurrent(&current) == GM_CUDA_SUCCESS && current &&
		cuda->cuCtxGetDevice(&here) == GM_CUDA_SUCCESS && here == device)
		(void)gm_cuda_contexts_here(contexts);
	*ret_contexts = contexts;
	return 0;
}

static void context_free_all(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;

	gm_cuda_contexts_walk(contexts);
	for (context = gm_cuda_contexts_first(contexts, &unused); context;
		context = context->next) {
		struct gm_cuda_entered entered;

		if (context->spare && gm_cuda_context_safe(contexts, context) &&
			gm_cuda_context_enter(contexts, context, &entered) == GM_CUDA_SUCCESS) {
			for (struct gm_cuda_point *point = context->spare; point;
				point = point->next)
				contexts->cuda->cuEventDestroy(point->cu);
			gm_cuda_contexts_leave(contexts, &entered);
		}
	}
	gm_cuda_contexts_walked(contexts);

	while ((context = contexts->list)) {
		contexts->list = context->next;
		context_drop_spare(context);
		gm_cuda_holder_free(context->keeper);
		gm_cuda_context_unref(context);
	}

	while (contexts->retained--)
		contexts->cuda->cuDevicePrimaryCtxRelease(contexts->device);
	gm_lock_deinit(&contexts->lock);
	gm_lock_deinit(&contexts->walking);
	free(contexts);
}

void gm_cuda_contexts_put(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_contexts *gone = NULL;
	struct gm_cuda_beside *at = NULL;

	if (!contexts)
		return;

	gm_lock(&all_lock);
	if (--contexts->users == 0) {
		at = atomic_exchange(&contexts->beside, NULL);
		atomic_fetch_add_explicit(&left, 1, memory_order_release);
	}
	while (at) {
		struct gm_cuda_beside *next = at->next;

		if (context_set_unref(at->contexts))
			LL_PREPEND2(gone, at->contexts, next_set);
		free(at);
		at = next;
	}
	if (context_set_unref(contexts))
		LL_PREPEND2(gone, contexts, next_set);
	gm_lock_drop(&all_lock);

	while ((contexts = gone)) {
		gone = contexts->next_set;
		context_free_all(contexts);
	}
}
