/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_RETIRED_H
#define GM_CLIENT_DEVICE_RETIRED_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"

/*
 * The retire list: what is freed and cannot be given back yet, because the device may still use the memory, or
 * because the driver would wait. Freed memory of the heap waits in client/heap/pending.h instead.
 *
 * Unmapping memory during a copy would crash the program, and the driver needs hundreds of microseconds to
 * unmap a large buffer. A thread that frees memory therefore only adds an item. The library's thread, or the
 * next thread that needs memory, ends the item.
 */

/* The condition under which an item may end. */
enum gm_retired_when {
	GM_RETIRED_READY, /* nothing uses the item */
	GM_RETIRED_EVENT, /* the work that was launched before is done, on every stream */
	GM_RETIRED_IDLE, /* no work is under way: nothing uses the item, but the driver would wait */
};

/* Permission of a caller to let the driver wait for launched work; a later value includes the earlier ones. */
enum gm_retired_may {
	GM_RETIRED_NO_WAIT,
	GM_RETIRED_HOST_WAIT, /* for registered host memory, which the caller needs */
	GM_RETIRED_THREAD,    /* the library's thread: also for managed memory */
	GM_RETIRED_LAST,      /* the end of the session: every item ends */
};

/* One retired thing. Embedded in it. */
struct gm_retired {
	const struct gm_session_device *device;
	struct gm_map_event *event; /* NULL: not recorded yet */
	enum gm_retired_when when;
	/* The owner's. Gives the memory back and frees the owner, or returns false: the item is ready, but would
	 * need more than the permission. The function may add the item again, and returns true then. */
	bool (*end)(struct gm_retired *item, enum gm_retired_may may);
	struct gm_retired *next;
};

/* The items of a session. */
struct gm_retired_list {
	struct gm_retired *items; /* of the session's lock */
	_Atomic uint64_t n;       /* items, with those that a thread has taken out */
	struct gm_lock settling;  /* held while items are unmapped and given back */
	struct gm_lock unpinning; /* held while those are for which the driver waits */
};

/* Makes the session's list. On error, returns -ENOMEM. */
int gm_retired_init(struct gpumem_session *session);
/* Frees the list, which is empty or was not made. */
void gm_retired_deinit(struct gpumem_session *session);

/* Whether work could be under way when the program frees memory of this device. If not, nothing has to wait
 * for an event. */
bool gm_retired_needed(const struct gm_session_device *device);
/* Adds an item to the session's list, which owns the item from now on. Never waits. */
void gm_retired_add(struct gpumem_session *session, struct gm_retired *item,
	const struct gm_session_device *device, enum gm_retired_when when);
/* Makes an item of GM_RETIRED_EVENT wait also for the work that was launched since. The session's settling is held. */
void gm_retired_renew(struct gm_retired *item);
/* Takes back an item of GM_RETIRED_IDLE for which fits() returns true, or returns NULL if there is none. This
 * function locks the session before it calls fits(), which must not lock the session again. */
struct gm_retired *gm_retired_take_back(struct gpumem_session *session,
	bool (*fits)(const struct gm_retired *item, const void *ctx), const void *ctx);
/*
 * Ends the items whose condition holds, as far as the permission goes. When this function returns, the daemon has
 * everything that was ready before the call and ends without waiting, also what another thread was working on. An
 * evictable buffer that is being moved ends a moment later.
 *
 * If the list is empty, the call costs one load.
 */
void gm_retired_settle(struct gpumem_session *session, enum gm_retired_may may);
/* Ends all items of GM_RETIRED_IDLE although the driver may wait for all launched work. Returns whether there were any. */
bool gm_retired_end_idle(struct gpumem_session *session);
/* Ends every item, for the end of the session. Waits until the device has finished with them, if an event can be
 * recorded. */
void gm_retired_end_all(struct gpumem_session *session);
/* Returns when to call gm_retired_settle() again, or UINT64_MAX if the list is empty. */
uint64_t gm_retired_next(struct gpumem_session *session, uint64_t now_ns);

#endif
