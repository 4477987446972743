/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for whole contexts, where the driver has no event for that (before CUDA 12.5). One thread
 * per GPU does it, made when it is first needed, so that nobody else ever waits: it waits for each
 * context that is known, and then everything is over that was launched when it began. What is asked
 * for meanwhile is its next round.
 *
 * It must never wait for a context of which a stream is known to be captured: that would break the
 * capture. A round that fails is tried again when somebody asks for what it should have brought.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "client/cuda_event.h"

/* All known contexts, each with a reference. -ENOMEM. */
static int snapshot(
	struct gm_cuda_contexts *contexts, struct gm_cuda_context ***ret_list, size_t *ret_n)
{
	struct gm_cuda_context *context, **list;
	gm_cu_result result;
	size_t n = 0;

	gm_cuda_contexts_walk(contexts);
	context = gm_cuda_contexts_first(contexts, &result);
	for (struct gm_cuda_context *c = context; c; c = c->next)
		n++;
	list = calloc(n + 1, sizeof(struct gm_cuda_context *));
	if (list && !result)
		for (n = 0; context; context = context->next) {
			context->refs++;
			list[n++] = context;
		}
	gm_cuda_contexts_walked(contexts);
	if (!list || result) {
		free(list);
		return -ENOMEM;
	}
	*ret_list = list;
	*ret_n = n;
	return 0;
}

/* Whether all that was launched in the context before is over. */
static bool wait_for(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r;

	gm_cuda_contexts_walk(contexts);
	r = gm_cuda_context_enter(contexts, context, &entered);
	gm_cuda_contexts_walked(contexts);
	if (r)
		return r == GM_CUDA_CONTEXT_GONE;
	/* As late as can be: it breaks a capture in the context. */
	if (gm_cuda_event_capturing(contexts)) {
		gm_cuda_contexts_leave(contexts, &entered);
		return false;
	}
	result = contexts->cuda->cuCtxSynchronize();
	gm_cuda_contexts_leave(contexts, &entered);
	gm_cuda_contexts_walk(contexts);
	if (gm_cuda_context_ended(contexts, context, result))
		result = GM_CUDA_SUCCESS;
	gm_cuda_contexts_walked(contexts);
	return result == GM_CUDA_SUCCESS;
}

static bool wait_round(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context **list;
	bool good = true;
	size_t n;

	if (snapshot(contexts, &list, &n) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		good = good && wait_for(contexts, list[i]);
	gm_cuda_contexts_walk(contexts);
	for (size_t i = 0; i < n; i++)
		gm_cuda_context_unref(list[i]);
	gm_cuda_contexts_walked(contexts);
	free(list);
	return good;
}

static void *run(void *ctx)
{
	struct gm_cuda_contexts *contexts = ctx;

	for (;;) {
		uint64_t number;
		bool good;
		pthread_mutex_lock(&contexts->lock);
		while (!contexts->called)
			pthread_cond_wait(&contexts->asked_for, &contexts->lock);
		contexts->called = false;
		number = contexts->asked;
		good = number == contexts->done;
		pthread_mutex_unlock(&contexts->lock);
		if (gm_cuda_contexts_put_last(contexts))
			return NULL;
		if (good || !wait_round(contexts))
			continue;
		pthread_mutex_lock(&contexts->lock);
		contexts->done = number;
		contexts->called = contexts->called || contexts->asked != number;
		pthread_mutex_unlock(&contexts->lock);
	}
}

/* The thread has the caller's reference then. */
static int start(struct gm_cuda_contexts *contexts)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t every, old;
	int r = pthread_attr_init(&attributes);

	if (r)
		return -r;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	r = pthread_create(&thread, &attributes, run, contexts);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return -r;
}

/* One thread is there, or comes. */
static int ensure(struct gm_cuda_contexts *contexts)
{
	bool there;
	int r;

	pthread_mutex_lock(&contexts->lock);
	there = contexts->waiter;
	contexts->waiter = true;
	pthread_mutex_unlock(&contexts->lock);
	if (there)
		return 0;
	r = start(gm_cuda_contexts_ref(contexts));
	if (r < 0) {
		gm_cuda_contexts_put(contexts);
		pthread_mutex_lock(&contexts->lock);
		contexts->waiter = false;
		pthread_mutex_unlock(&contexts->lock);
	}
	return r;
}

gm_cu_result gm_cuda_wait_ask(struct gm_cuda_contexts *contexts, uint64_t *ret_number)
{
	if (ensure(contexts) < 0)
		return GM_CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_lock(&contexts->lock);
	contexts->called = true;
	*ret_number = ++contexts->asked;
	pthread_cond_signal(&contexts->asked_for);
	pthread_mutex_unlock(&contexts->lock);
	return GM_CUDA_SUCCESS;
}

bool gm_cuda_wait_reached(struct gm_cuda_contexts *contexts, uint64_t number)
{
	bool reached;

	pthread_mutex_lock(&contexts->lock);
	reached = contexts->done >= number;
	if (!reached) {
		contexts->called = true;
		pthread_cond_signal(&contexts->asked_for);
	}
	pthread_mutex_unlock(&contexts->lock);
	return reached;
}

void gm_cuda_wait_look(struct gm_cuda_contexts *contexts)
{
	pthread_mutex_lock(&contexts->lock);
	contexts->called = true;
	pthread_cond_signal(&contexts->asked_for);
	pthread_mutex_unlock(&contexts->lock);
}
