/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_LEAVING_H
#define GM_CLIENT_DEVICE_LEAVING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"

/*
 * Memory that is freed while the device may still use it: pinned buffers, batches, the content of evicted
 * buffers in registered host memory. It leaves when all work is done that was launched before, on any stream.
 *
 * Nothing uses a patient leaver any more. But the driver would wait for all launched work if it left, so it stays
 * until no work is under way.
 *
 * (The LEAVING of gpumem_buffer.h is something else: the move of a buffer to host memory.)
 */

/* Embedded in what leaves. */
struct gm_leaver {
	const struct gm_session_device *device;
	struct gm_map_event
		*event; /* passes when the device has finished; NULL: not recorded yet */
	bool patient;   /* the owner's, set before gm_leaving_add() */
	/* The owner's: called by whoever got the leaver from one of the functions below. */
	void (*left)(struct gm_leaver *leaver);
	struct gm_leaver *next;
};

/* Whether work could be under way when the program frees memory of this device. If not, nothing has
 * to wait here. */
bool gm_leaving_needed(const struct gm_session_device *device);
/* Never waits. The session owns the leaver until gm_leaving_take() or gm_leaving_await() returns
 * it. */
void gm_leaving_add(struct gpumem_session *session, struct gm_leaver *leaver,
	const struct gm_session_device *device);
/* Makes a leaver that the session owns wait for the work that was launched since, too. No other thread may
 * be in gm_leaving_take(). */
void gm_leaving_renew(struct gm_leaver *leaver);
/* Returns a list of those that the device has finished with. Must be called by one thread at a
 * time. */
struct gm_leaver *gm_leaving_take(struct gpumem_session *session);
/* Takes back a patient leaver for which fits() returns true, or returns NULL if the session has none. This function locks the
 * session before it calls fits(), which must not lock it again. */
struct gm_leaver *gm_leaving_take_back(struct gpumem_session *session,
	bool (*fits)(const struct gm_leaver *leaver, const void *ctx), const void *ctx);
/* Returns a list of all patient leavers, whatever work is under way. */
struct gm_leaver *gm_leaving_take_patient(struct gpumem_session *session);
/* When to look again, or UINT64_MAX if nothing is leaving. */
uint64_t gm_leaving_next(struct gpumem_session *session, uint64_t now_ns);
/* Waits until the device has finished with all of them, if an event can be recorded, and returns
 * them. Does not wait for the sake of patient ones. */
struct gm_leaver *gm_leaving_await(struct gpumem_session *session);

#endif
