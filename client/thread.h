/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_THREAD_H
#define GM_CLIENT_THREAD_H

#include "client/session/gpumem_session.h"

/*
 * The files right in client/ promise a session's life: connect.c begins and ends it, and one thread
 * of the library's own (thread.c) keeps it going in between. They must never know how memory is
 * mapped or divided up: they only say when that is to begin, to be tidied up, and to end.
 *
 * The thread listens for events and for the end of the connection, resumes the session, returns
 * what no other thread returns, completes requests that were begun, releases waits for signals of
 * processes that are gone, drives the decay of the heaps, and publishes figures. When there is nothing
 * to do, it sleeps without a timeout. It blocks all signals.
 */
struct gm_thread;

/* Takes ownership of the wakeup, even on error. On error, returns a negative errno. */
int gm_thread_start(struct gpumem_session *session, int wakeup);
/* When this returns, the thread has ended. */
void gm_thread_stop(struct gpumem_session *session);

/* Whether the caller runs on that thread, which must not wait for itself. */
bool gm_thread_inside(struct gpumem_session *session);

#endif
