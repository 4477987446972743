/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_SIGNALS_H
#define GM_CLIENT_MEMORY_SIGNALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"
#include "common/control.h"
#include "gpumem/gpumem.h"

struct gm_session_lease;

/* The signals of a buffer, as this process has them. buffer_signal.c says how they work. */
struct gm_signals {
	struct gm_control *control; /* NULL: none. On a GPU, only streams reach it */
	void *addr;                 /* of a writable mapping for it; NULL: it is in the buffer's */
	uint64_t bytes;             /* of that mapping */
	pthread_mutex_t lock;       /* protects sent, and keeps signals in order */
	uint64_t sent;              /* the last value */
	_Atomic uint32_t waiting;   /* threads that wait on the host */
	_Atomic bool orphaned;      /* the maker is gone, so no signal will come */
	bool released;              /* every wait was released; for the library's thread */
};

void gm_signals_init(struct gm_signals *signals);
void gm_signals_deinit(struct gm_signals *signals);

/* Whether a buffer with signals can be made on the device, by that transport. */
gpumem_status gm_signals_check(
	const struct gpumem_session *session, uint32_t device, gpumem_transport transport);
/* Prepares the signals of a lease that is mapped at an address, if it has them. If this process made
 * it, they begin at 0. */
gpumem_status gm_signals_begin(struct gm_signals *signals, const struct gm_session_device *device,
	const struct gm_session_lease *lease, void *addr, uint64_t bytes);
/* The sentence for an errno of a map operation on signals. */
gpumem_status gm_signals_failed(
	const struct gm_session_device *device, int error, const char *what);

/* An atomic word of the control block, as the map operations take it. */
static inline uint64_t *gm_signals_word(_Atomic uint64_t *word)
{
	return (uint64_t *)word;
}

#endif
