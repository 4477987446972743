/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_holder.h. The thread and its owner hold one reference each; the last to let go frees the
 * keeper.
 *
 * The thread must never wait for a context while a stream of the GPU is known to be captured: that
 * would break the capture. If a wait fails or cannot take place, the thread tries again when
 * somebody asks whether the number was reached.
 */
#include "client/map/cuda_holder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "common/stack.h"
#include "client/map/cuda_capture.h"

enum state { STARTING, KEEPING, FAILED };

struct gm_cuda_holder {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	gm_cu_ctx cu;
	bool primary;
	struct gm_lock lock; /* protects the rest */
	pthread_cond_t changed;
	enum state state;
	bool called; /* there may be something to do */
	bool over;   /* the owner is gone */
	unsigned refs;
	uint64_t asked, reached;
};

static void holder_unref(struct gm_cuda_holder *keeper)
{
	bool last;

	gm_lock(&keeper->lock);
	last = --keeper->refs == 0;
	gm_lock_drop(&keeper->lock);
	if (!last)
		return;
	pthread_cond_destroy(&keeper->changed);
	gm_lock_deinit(&keeper->lock);
	free(keeper);
}

/* ---- the thread */

static bool holder_take(const struct gm_cuda_holder *keeper)
{
	const struct gm_cuda *cuda = keeper->cuda;
	gm_cu_capture_mode mode = GM_CU_STREAM_CAPTURE_MODE_RELAXED;
	gm_cu_ctx same;

	if (keeper->primary && cuda->cuDevicePrimaryCtxRetain(&same, keeper->device))
		return false;
	if (cuda->cuCtxPushCurrent(keeper->cu)) {
		if (keeper->primary)
			cuda->cuDevicePrimaryCtxRelease(keeper->device);
		return false;
	}
	if (cuda->cuThreadExchangeStreamCaptureMode)
		cuda->cuThreadExchangeStreamCaptureMode(&mode);
	return true;
}

static void holder_let_go(const struct gm_cuda_holder *keeper)
{
	keeper->cuda->cuCtxPopCurrent(NULL);
	if (keeper->primary)
		keeper->cuda->cuDevicePrimaryCtxRelease(keeper->device);
}

/* Waits for everything that was launched before. false: the wait failed or could not take place. */
static bool holder_wait_for_all(const struct gm_cuda_holder *keeper)
{
	gm_cu_result result;

	if (!gm_cuda_capture_keep_out(keeper->cuda, keeper->device))
		return false;
	result = gm_cuda_captured(keeper->cuda, keeper->device, NULL)
			 ? GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
			 : keeper->cuda->cuCtxSynchronize();
	gm_cuda_capture_let_in();
	return result == GM_CUDA_SUCCESS || result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       result == GM_CUDA_ERROR_INVALID_CONTEXT;
}

static void *holder_run(void *ctx)
{
	struct gm_cuda_holder *keeper = ctx;
	bool kept = holder_take(keeper);

	gm_lock(&keeper->lock);
	keeper->state = kept ? KEEPING : FAILED;
	pthread_cond_broadcast(&keeper->changed);
	while (kept && !keeper->over) {
		uint64_t number = keeper->asked;
		bool good;

		if (!keeper->called) {
			gm_lock_wait(&keeper->lock, &keeper->changed);
			continue;
		}
		keeper->called = false;
		if (number == keeper->reached)
			continue;

		gm_lock_drop(&keeper->lock);
		good = holder_wait_for_all(keeper);
		gm_lock(&keeper->lock);
		if (good) {
			keeper->reached = number;
			keeper->called = keeper->called || keeper->asked != number;
		}
	}
	gm_lock_drop(&keeper->lock);

	if (kept)
		holder_let_go(keeper);
	holder_unref(keeper);
	return NULL;
}

static int holder_start(struct gm_cuda_holder *keeper)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t every, old;
	int r = gm_stack_attr_init(&attributes);

	if (r)
		return -r;

	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	r = pthread_create(&thread, &attributes, holder_run, keeper);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return -r;
}

/* ---- its owner */

int gm_cuda_holder_new(const struct gm_cuda *cuda, gm_cu_device device, gm_cu_ctx cu, bool primary,
	struct gm_cuda_holder **ret_keeper)
{
	GM_UNCANCELLED;
	struct gm_cuda_holder *keeper = calloc(1, sizeof(*keeper));
	bool kept;
	int r;

	if (!keeper)
		return -ENOMEM;

	keeper->cuda = cuda;
	keeper->device = device;
	keeper->cu = cu;
	keeper->primary = primary;
	keeper->refs = 2;
	gm_lock_init(&keeper->lock, GM_LOCK_LEAF);
	pthread_cond_init(&keeper->changed, NULL);

	r = holder_start(keeper);
	if (r < 0) {
		keeper->refs = 1;
		holder_unref(keeper);
		return r;
	}

	gm_lock(&keeper->lock);
	while (keeper->state == STARTING)
		gm_lock_wait(&keeper->lock, &keeper->changed);
	kept = keeper->state == KEEPING;
	gm_lock_drop(&keeper->lock);
	if (!kept) {
		holder_unref(keeper);
		return -EIO;
	}
	*ret_keeper = keeper;
	return 0;
}

/* Wakes the thread. The caller holds the lock. */
static void holder_call(struct gm_cuda_holder *keeper)
{
	keeper->called = true;
	pthread_cond_broadcast(&keeper->changed);
}

void gm_cuda_holder_free(struct gm_cuda_holder *keeper)
{
	if (!keeper)
		return;
	gm_lock(&keeper->lock);
	keeper->over = true;
	holder_call(keeper);
	gm_lock_drop(&keeper->lock);
	holder_unref(keeper);
}

uint64_t gm_cuda_holder_ask(struct gm_cuda_holder *keeper)
{
	uint64_t number;

	gm_lock(&keeper->lock);
	number = ++keeper->asked;
	holder_call(keeper);
	gm_lock_drop(&keeper->lock);
	return number;
}

bool gm_cuda_holder_reached(struct gm_cuda_holder *keeper, uint64_t number)
{
	bool reached;

	gm_lock(&keeper->lock);
	reached = keeper->reached >= number;
	if (!reached)
		holder_call(keeper);
	gm_lock_drop(&keeper->lock);
	return reached;
}
