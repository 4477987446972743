/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_HEARD_H
#define GM_TESTS_UNIT_HEARD_H

/* The events of a session, waited for. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>

#include "gpumem/gpumem.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned counts[8];
	gpumem_event last[8];
	char text[256];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static inline void on_event(void *user, const gpumem_event *event)
{
	pthread_mutex_lock(&heard.lock);
	heard.counts[event->kind]++;
	heard.last[event->kind] = *event;
	if (event->text)
		snprintf(heard.text, sizeof(heard.text), "%s", event->text);
	pthread_cond_broadcast(&heard.changed);
	pthread_mutex_unlock(&heard.lock);
}

static inline void listen_to(gpumem_session *s)
{
	ck_assert_int_eq(gpumem_on_event(s, on_event, NULL), GPUMEM_OK);
}

static inline gpumem_event wait_event(gpumem_event_kind kind, unsigned n)
{
	pthread_mutex_lock(&heard.lock);
	while (heard.counts[kind] < n)
		pthread_cond_wait(&heard.changed, &heard.lock);
	gpumem_event event = heard.last[kind];
	pthread_mutex_unlock(&heard.lock);
	return event;
}

#endif
