/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_SIGNALS_H
#define GM_CLIENT_BUFFER_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"
#include "common/lock.h"
#include "gpumem/gpumem.h"

struct gm_session_lease;

/* The signals of a buffer, as this process has them. buffer_signal.c says how they work. */
struct gm_signals {
	struct gm_map_control *word; /* NULL: none */
	struct gm_lock lock;         /* protects sent, and keeps signals in order */
	uint64_t sent;               /* the last value */
	_Atomic uint32_t waiting;    /* threads that wait on the host */
	_Atomic bool orphaned;       /* the maker is gone, so no signal will come */
	bool released;               /* every wait was released; for the library's thread */
};

void gm_signals_init(struct gm_signals *signals);
void gm_signals_deinit(struct gm_signals *signals);

/* Whether a buffer with signals can be made on the device, by that transport. */
gpumem_status gm_signals_check(
	const struct gpumem_session *session, uint32_t device, gpumem_transport transport);
/* Prepares the signals of a lease, if it has them. Takes the fd of its control block. */
gpumem_status gm_signals_begin(struct gm_signals *signals, const struct gm_session_device *device,
	struct gm_session_lease *lease);
/* Ends the signals. No stream may use them any more, and no thread may wait. Never waits for the device. */
void gm_signals_end(struct gm_signals *signals, const struct gm_session_device *device);
/* Ends what closed signals left behind with the driver. For the library's thread: it may wait for the device,
 * but never for a signal, nor for a kernel that runs until the program sends it a message. */
void gm_signals_settle(struct gpumem_session *session);
/* Between these two calls, a kernel may run in this process until the program sends it a message (client/ring). */
void gm_signals_kernel_begins(void);
void gm_signals_kernel_ends(void);
/* Whether one may run now. Then the driver ends no registration: it would wait for the kernel. */
bool gm_signals_kernel_runs(void);
/* The sentence for an errno of a map operation on signals. */
gpumem_status gm_signals_failed(
	const struct gm_session_device *device, int error, const char *what);

#endif
