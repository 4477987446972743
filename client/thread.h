/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_EVENTS_H
#define GM_CLIENT_EVENTS_H

#include "client/session/gpumem_session.h"

/*
 * The library's one thread per session: listens for events and for the end of the connection, takes
 * it up again, returns what nobody waits for, drives the heaps' decay and publishes figures.
 * Sleeps without a timeout when there is nothing to do. All signals are blocked in it.
 */
struct gm_thread;

/* Takes the socket, also on failure. A negative errno. */
int gm_thread_start(struct gpumem_session *session, int socket);
/* When it returns, the thread has ended. */
void gm_thread_stop(struct gpumem_session *session);

/* Whether the caller is that thread: then it may not end itself. */
bool gm_thread_inside(struct gpumem_session *session);

#endif
