/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_ASKER_H
#define GM_TESTS_UNIT_ASKER_H

/* A thread that makes one call of the library, and what came of it. Comes after session_fixture.h,
 * and that after gpumem_session.h. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "client/session/gpumem_session.h"
#include "gpumem/gpumem.h"

struct asker {
	gpumem_status (*ask)(struct asker *asker);
	size_t size;
	uint32_t wait_ms;
	gpumem_token token;
	gpumem_buffer *buffer; /* in or out */
	void *ptr;             /* out */
	gpumem_status status;
	char detail[GM_ERROR_BYTES];
	pthread_t thread;
};

static inline void *asker_run(void *ctx)
{
	struct asker *asker = ctx;
	asker->status = asker->ask(asker);
	snprintf(asker->detail, sizeof(asker->detail), "%s", gpumem_error_detail());
	return NULL;
}

static inline void asker_start(struct asker *asker)
{
	ck_assert_int_eq(pthread_create(&asker->thread, NULL, asker_run, asker), 0);
}

static inline void asker_join(struct asker *asker)
{
	ck_assert_int_eq(pthread_join(asker->thread, NULL), 0);
}

/* The call succeeded. */
static inline void asker_done(struct asker *asker)
{
	asker_join(asker);
	if (asker->status)
		ck_abort_msg("%d: %s", (int)asker->status, asker->detail);
}

/* Waits until so many requests wait for the daemon. */
static inline void await_waiting(gpumem_session *s, unsigned n)
{
	for (;;) {
		gm_lock(&s->lock);
		unsigned waiting = s->waiting;
		gm_lock_drop(&s->lock);
		if (waiting >= n)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

/* ---- the calls */

static inline gpumem_status ask_buffer(struct asker *asker)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.wait_ms = asker->wait_ms;
	return gpumem_buffer_create(session, 0, asker->size, &options, &asker->buffer);
}

static inline gpumem_status ask_alloc(struct asker *asker)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.wait_ms = asker->wait_ms;
	return gpumem_alloc(session, 0, asker->size, NULL, &options, &asker->ptr);
}

static inline gpumem_status ask_share(struct asker *asker)
{
	return gpumem_share(asker->buffer, NULL, &asker->token);
}

static inline gpumem_status ask_unshare(struct asker *asker)
{
	return gpumem_unshare(asker->buffer);
}

static inline gpumem_status ask_open(struct asker *asker)
{
	return gpumem_open(session, &asker->token, &asker->buffer);
}

#endif
