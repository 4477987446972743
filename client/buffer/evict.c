/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See evict.h. This file moves buffers to host memory; buffer_pin.c brings them back. It promises that a
 * buffer keeps its content whatever fails, that device memory is unmapped only when no work uses it and
 * the content is in host memory, and that it goes back only after that. It must never hold a lock while
 * content is copied, and never wait for work of the program's.
 */
#include "client/buffer/evict.h"

#include <string.h>
#include <utlist.h>

#include "client/buffer/evict_private.h"
#include "client/device/map_chunks.h"
#include "client/device/spill.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "gpumem/gpumem_evict.h"

/* How soon to look again at buffers that the device still uses. */
#define LOOK_NS (5 * GM_NS_PER_MS)
/* The daemon asks again if it still wants memory after so long. */
#define WANTED_NS (10 * GM_NS_PER_S)

/* ---- what the buffer counts for */

static struct gm_session_device *evict_device(const struct gpumem_buffer *buffer)
{
	return &buffer->session->device[buffer->device];
}

void gm_evict_changed(struct gpumem_buffer *buffer)
{
	struct gm_session_device *d = evict_device(buffer);
	struct gm_evict *e = &buffer->evict;
	bool host = e->state == GM_EVICT_AWAY || e->state == GM_EVICT_UNDER;

	if (!e->able)
		return;
	bool offers = e->state == GM_EVICT_HERE && !e->pins && !e->holds && !e->shared && !e->ended;
	uint64_t bytes = offers ? buffer->bytes : 0;
	if (bytes && !e->offered)
		DL_APPEND2(d->evictables, buffer, evict.prev, evict.next);
	else if (!bytes && e->offered)
		DL_DELETE2(d->evictables, buffer, evict.prev, evict.next);
	d->evictable += bytes - e->offered;
	e->offered = bytes;
	if (!bytes && e->state != GM_EVICT_LEAVING)
		e->asked_until_ns = 0;

	bytes = e->spill && !e->ended ? buffer->size : 0;
	d->in_host += bytes - e->in_host;
	e->in_host = bytes;

	if (!e->ended)
		gm_session_pages_row_place(&buffer->session->pages, buffer->row,
			GM_PAGE_PLACE_EVICTABLE | (e->pins ? GM_PAGE_PLACE_PINNED : 0) |
				(host ? GM_PAGE_PLACE_HOST : 0) |
				(e->shared ? GM_PAGE_PLACE_SHARED : 0));
}

uint32_t gm_evict_place(const struct gpumem_buffer *buffer, uint64_t *ret_bytes)
{
	const struct gm_spill *spill = buffer->evict.spill;

	*ret_bytes = spill ? spill->mapped : buffer->bytes;
	return spill ? buffer->session->counted : buffer->device;
}

void gm_evict_count(struct gpumem_buffer *buffer, bool more)
{
	uint64_t bytes, sign = more ? 1 : UINT64_MAX;
	struct gm_session_device *d = &buffer->session->device[gm_evict_place(buffer, &bytes)];

	if (!buffer->counted)
		return;
	d->buffer_in_use += sign * buffer->size;
	d->buffers += sign;
	d->buffer_held += sign * bytes;
	if (!more)
		d->buffer_returns += buffer->chunks;
	else
		d->buffer_misses++;
}

void gm_evict_move_ended(struct gpumem_buffer *buffer, enum gm_evict_state state)
{
	struct gpumem_session *session = buffer->session;

	buffer->evict.state = state;
	buffer->evict.recalled = buffer->evict.waits = false;
	gm_evict_changed(buffer);
	pthread_cond_broadcast(&session->changed);
	/* The library's thread, which frees it, has seen that it was being moved. */
	if (buffer->evict.ended)
		gm_session_wake(session);
}

/* ---- the rest of the folder */

gpumem_status gm_evict_check(const struct gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (!buffer->evict.able)
		return gm_error(
			GPUMEM_E_UNSUPPORTED, "the buffer is not evictable: create one that is");
	return GPUMEM_OK;
}

gpumem_status gm_evict_use(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	struct gm_evict *e = &buffer->evict;
	gpumem_status status = GPUMEM_OK;

	if (!e->able)
		return GPUMEM_OK;
	gm_lock(&session->lock);
	if (!e->pins || (e->state != GM_EVICT_HERE && e->state != GM_EVICT_UNDER))
		status = gm_error(
			GPUMEM_E_BUSY, "an evictable buffer must be pinned for this: pin it first");
	else
		e->holds++;
	gm_lock_drop(&session->lock);
	return status;
}

void gm_evict_release(struct gpumem_buffer *buffer)
{
	if (!buffer->evict.able)
		return;
	gm_lock(&buffer->session->lock);
	buffer->evict.holds--;
	gm_evict_changed(buffer);
	gm_lock_drop(&buffer->session->lock);
}

gpumem_status gm_evict_hold(struct gpumem_buffer *buffer)
{
	gpumem_status status = gm_evict_use(buffer);
	if (status)
		return status;

	/* Now it stays where it is. */
	gm_lock(&buffer->session->lock);
	bool here = buffer->evict.state == GM_EVICT_HERE;
	gm_lock_drop(&buffer->session->lock);
	if (here)
		return GPUMEM_OK;
	gm_evict_release(buffer);
	return gm_error(GPUMEM_E_BUSY,
		"the buffer lies in host memory: unpin it, then pin it on its device only");
}

bool gm_evict_note_shared(struct gpumem_buffer *buffer, bool shared)
{
	gm_lock(&buffer->session->lock);
	bool before = buffer->evict.shared;
	buffer->evict.shared = shared;
	gm_evict_changed(buffer);
	gm_lock_drop(&buffer->session->lock);
	return before;
}

void gm_evict_relist(struct gpumem_buffer *buffer)
{
	gm_evict_changed(buffer);
}

void gm_evict_end(struct gpumem_buffer *buffer)
{
	buffer->evict.ended = true;
	gm_evict_changed(buffer);
}

bool gm_evict_moves(const struct gpumem_buffer *buffer)
{
	return buffer->evict.state == GM_EVICT_LEAVING || buffer->evict.state == GM_EVICT_COMING;
}

void gm_evict_drop(struct gpumem_buffer *buffer, bool told)
{
	const struct gm_session_device *d = evict_device(buffer);
	struct gm_evict *e = &buffer->evict;

	while (e->n_events)
		d->map->forget(d->backend, e->events[--e->n_events]);
	if (told)
		gm_spill_drop(e->spill);
	else
		gm_spill_forget(e->spill);
	e->spill = NULL;
}

uint64_t gm_evict_room(const struct gpumem_session *session, uint32_t device)
{
	const struct gm_session_pages *pages = &session->pages;
	struct gm_page_device page;

	if (pages->daemon->header.version < 2 || gm_session_pages_device(pages, device, &page) < 0)
		return 0;
	return page.room;
}

/* ---- moving out */

int gm_evict_idle(struct gpumem_buffer *buffer)
{
	const struct gm_session_device *d = evict_device(buffer);
	struct gm_evict *e = &buffer->evict;
	size_t left = 0;
	int error = 0;

	for (size_t i = 0; i < e->n_events; i++) {
		int r = gm_map_take_passed(d->map, d->backend, &e->events[i]);
		if (r != 1)
			e->events[left++] = e->events[i];
		error = r < 0 ? r : error;
	}
	e->n_events = left;
	return error ? error : left == 0;
}

gpumem_status gm_evict_idle_error(const struct gpumem_buffer *buffer, int r)
{
	return gm_error(GPUMEM_E_SYSTEM,
		"the driver does not say whether the work on the buffer is done: %.200s",
		gm_map_chunks_error(evict_device(buffer), r));
}

/* Claims a buffer for a move. The session is locked. */
static gpumem_status evict_claim(struct gpumem_buffer *buffer)
{
	struct gm_evict *e = &buffer->evict;

	if (e->pins || e->holds)
		return gm_error(GPUMEM_E_BUSY,
			"the buffer is pinned by this process: unpin it before it is evicted");
	if (e->state != GM_EVICT_HERE)
		return gm_error(GPUMEM_E_BUSY, "the buffer is being moved by another thread");
	e->state = GM_EVICT_LEAVING;
	gm_evict_changed(buffer);
	return GPUMEM_OK;
}

/* The buffer stays where it is, for this reason. */
static void evict_stay(struct gpumem_buffer *buffer, gpumem_status why)
{
	gm_lock(&buffer->session->lock);
	if (why != GPUMEM_E_BUSY)
		buffer->evict.asked_until_ns = 0;
	gm_evict_move_ended(buffer, GM_EVICT_HERE);
	gm_lock_drop(&buffer->session->lock);
}

/* Whether somebody wants the buffer where it is, or nobody wants it any more. */
static bool evict_called_off(struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->lock);
	bool off = buffer->evict.recalled || buffer->evict.ended;
	gm_lock_drop(&buffer->session->lock);
	return off;
}

/* Copies the content of a claimed buffer and unmaps the device memory. */
static gpumem_status evict_copy(
	struct gpumem_buffer *buffer, const struct gm_wait *wait, struct gm_spill **ret_spill)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_session_device *d = evict_device(buffer);
	char tag[sizeof(buffer->tag)];
	struct gm_spill *spill;

	gm_lock(&session->lock);
	memcpy(tag, buffer->tag, sizeof(tag));
	gm_lock_drop(&session->lock);
	gpumem_status status = gm_spill_out(
		session, buffer->device, buffer->addr, buffer->size, tag, wait, &spill);
	if (status)
		return status;

	if (evict_called_off(buffer)) {
		gm_spill_drop(spill);
		return gm_error(GPUMEM_E_CANCELLED, "the buffer was pinned or destroyed meanwhile");
	}
	int r = d->map->unmap(d->backend, buffer->addr, buffer->mapped);
	if (r < 0) {
		status = gm_error(GPUMEM_E_SYSTEM, "the driver does not unmap the buffer: %.200s",
			gm_map_chunks_error(d, r));
		gm_spill_drop(spill);
		return status;
	}
	*ret_spill = spill;
	return GPUMEM_OK;
}

/* The content is in host memory, and the device memory is not mapped any more: gives that back. The
 * buffer may be gone afterwards. */
static uint64_t evict_give(struct gpumem_buffer *buffer, struct gm_spill *spill)
{
	struct gpumem_session *session = buffer->session;
	struct gm_session_lease *lease = buffer->lease;
	struct gm_session_chunk *parts = buffer->parts;
	uint32_t device = buffer->device;
	uint64_t bytes = buffer->bytes;

	spill->cpu = buffer->wish.cpu_ok;
	gm_lock(&session->lock);
	gm_evict_count(buffer, false);
	buffer->lease = NULL;
	buffer->parts = NULL;
	buffer->bytes = buffer->mapped = 0;
	buffer->chunks = 0;
	buffer->evict.spill = spill;
	gm_evict_count(buffer, true);
	gm_evict_move_ended(buffer, GM_EVICT_AWAY);
	gm_lock_drop(&session->lock);

	gm_session_chunks_free(parts);
	gm_session_lease_give(session, lease);
	(void)gm_page_publish_use(session, session->counted);
	(void)gm_page_publish_use(session, device);
	return bytes;
}

/* Whether a part that was cut off has not gone back yet. (buffer_retired.c calls this file.) */
static bool evict_has_tail(const struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->retired->settling);
	bool has = buffer->tail != NULL;
	gm_lock_drop(&buffer->session->retired->settling);
	return has;
}

/* Evicts a claimed buffer. */
static gpumem_status evict_out(
	struct gpumem_buffer *buffer, const struct gm_wait *wait, uint64_t *ret_bytes)
{
	struct gm_spill *spill = NULL;
	gpumem_status status;

	int idle = gm_evict_idle(buffer);
	if (idle < 0)
		status = gm_evict_idle_error(buffer, idle);
	else if (!idle || evict_has_tail(buffer))
		status = gm_error(GPUMEM_E_BUSY, "the device still uses the buffer");
	else
		status = evict_copy(buffer, wait, &spill);
	if (status) {
		evict_stay(buffer, status);
		return status;
	}
	*ret_bytes = evict_give(buffer, spill);
	return GPUMEM_OK;
}

/* Others may have the buffer. Asks the daemon, which alone knows. */
static gpumem_status evict_check_shared(struct gpumem_buffer *buffer)
{
	gpumem_status status =
		gm_session_lease_set_size(buffer->session, buffer->lease, buffer->size);
	if (status)
		return status;
	gm_lock(&buffer->session->lock);
	buffer->evict.shared = false;
	gm_lock_drop(&buffer->session->lock);
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_evict(gpumem_buffer *buffer)
{
	GM_UNCANCELLED;
	const struct gm_wait wait = {.mode = GM_WAIT_AS_CONFIGURED};
	gpumem_status status = gm_evict_check(buffer);

	if (status)
		return status;
	struct gpumem_session *session = buffer->session;
	gm_lock(&session->lock);
	enum gm_evict_state state = buffer->evict.state;
	bool there = state == GM_EVICT_AWAY || (state == GM_EVICT_UNDER && !buffer->evict.pins);
	if (!there)
		status = evict_claim(buffer);
	bool shared = buffer->evict.shared;
	gm_lock_drop(&session->lock);
	if (there || status)
		return status;

	status = shared ? evict_check_shared(buffer) : GPUMEM_OK;
	if (status) {
		evict_stay(buffer, status);
		return status;
	}
	uint64_t bytes;
	return evict_out(buffer, &wait, &bytes);
}

/* ---- what the daemon wants */

/* The library's thread must not wait: it is the one that resumes the session, and that answers the
 * daemon. */
static const struct gm_wait without_waiting = {.mode = GM_WAIT_NOT};

void gm_evict_want(struct gpumem_session *session, uint32_t device, uint64_t bytes)
{
	struct gm_session_device *d = &session->device[device];

	d->spill_wanted = gm_u64_max(d->spill_wanted, bytes);
	d->spill_until_ns = gm_clock_ns() + WANTED_NS;
}

/* Claims the buffer that was not used for longest and was not tried in this round. */
static struct gpumem_buffer *evict_claim_next(
	struct gpumem_session *session, struct gm_session_device *d, uint64_t round)
{
	gm_lock(&session->lock);
	struct gpumem_buffer *buffer = d->evictables;
	/* A buffer that stays goes to the end of the list. */
	if (buffer && (buffer->evict.round == round || evict_claim(buffer)))
		buffer = NULL;
	if (buffer)
		buffer->evict.round = round;
	gm_lock_drop(&session->lock);
	return buffer;
}

/* Claims a buffer that somebody asked for by hand and that was not tried in this round. */
static struct gpumem_buffer *evict_claim_asked(struct gpumem_session *session,
	struct gm_session_device *d, uint64_t round, uint64_t now_ns)
{
	struct gpumem_buffer *buffer;

	gm_lock(&session->lock);
	DL_FOREACH2 (d->evictables, buffer, evict.next) {
		struct gm_evict *e = &buffer->evict;
		if (e->round == round || !e->asked_until_ns)
			continue;
		e->round = round;
		if (now_ns < e->asked_until_ns && !evict_claim(buffer))
			break;
		e->asked_until_ns = 0;
	}
	gm_lock_drop(&session->lock);
	return buffer;
}

/* Whether another buffer may fare better. */
static bool evict_worth_trying(gpumem_status status)
{
	return status == GPUMEM_OK || status == GPUMEM_E_BUSY || status == GPUMEM_E_CANCELLED ||
	       status == GPUMEM_E_SYSTEM;
}

/* Evicts a claimed buffer, and adds what went back. Sets *busy if the device still uses the buffer. */
static gpumem_status evict_claimed(struct gpumem_buffer *buffer, uint64_t *sum, bool *busy)
{
	uint64_t bytes = 0;
	gpumem_status status = evict_out(buffer, &without_waiting, &bytes);

	*busy = *busy || status == GPUMEM_E_BUSY;
	*sum += bytes;
	return status;
}

/* Evicts buffers of one device. Returns how much went back; *ret_busy: the device still uses some. */
static uint64_t evict_some(
	struct gpumem_session *session, uint32_t device, uint64_t round, bool *ret_busy)
{
	struct gm_session_device *d = &session->device[device];
	gpumem_status status = GPUMEM_OK;
	uint64_t sum = 0;

	*ret_busy = false;
	while (sum < d->spill_wanted && evict_worth_trying(status)) {
		struct gpumem_buffer *buffer = evict_claim_next(session, d, round);
		if (!buffer)
			break;
		status = evict_claimed(buffer, &sum, ret_busy);
	}
	*ret_busy = *ret_busy && evict_worth_trying(status);
	return sum;
}

/* Evicts the buffers that somebody asked for by hand. Returns how much went back; *ret_busy: the device
 * still uses some. */
static uint64_t evict_asked(
	struct gpumem_session *session, uint32_t device, uint64_t now_ns, bool *ret_busy)
{
	struct gm_session_device *d = &session->device[device];
	uint64_t round = ++session->spill_rounds, sum = 0;
	gpumem_status status = GPUMEM_OK;

	while (evict_worth_trying(status)) {
		struct gpumem_buffer *buffer = evict_claim_asked(session, d, round, now_ns);
		if (!buffer)
			break;
		status = evict_claimed(buffer, &sum, ret_busy);
	}
	return sum;
}

/* The part of gm_evict_step() for one device. Returns whether to look again soon. */
static bool evict_step_device(
	struct gpumem_session *session, uint32_t device, uint64_t now_ns, uint64_t *sum)
{
	struct gm_session_device *d = &session->device[device];
	bool busy_asked = false, busy = false;

	*sum += evict_asked(session, device, now_ns, &busy_asked);
	if (d->spill_wanted) {
		uint64_t bytes = evict_some(session, device, ++session->spill_rounds, &busy);
		*sum += bytes;
		d->spill_wanted = gm_u64_minus(d->spill_wanted, bytes);
	}

	if (!busy || now_ns >= d->spill_until_ns)
		d->spill_wanted = 0;
	return busy_asked || d->spill_wanted;
}

uint64_t gm_evict_step(struct gpumem_session *session, uint64_t now_ns, uint64_t *ret_bytes)
{
	uint64_t sum = 0;
	bool again = false;

	for (uint32_t i = 0; i < session->counted; i++)
		again = evict_step_device(session, i, now_ns, &sum) || again;
	if (ret_bytes)
		*ret_bytes = sum;
	return again ? now_ns + LOOK_NS : UINT64_MAX;
}

/* Notes that the buffer of this row is to go as soon as it can, or (until_ns is 0) not any more; row 0: all
 * buffers of the device. */
static void evict_ask(
	struct gpumem_session *session, uint32_t device, uint32_t row, uint64_t until_ns)
{
	struct gpumem_buffer *buffer;

	gm_lock(&session->lock);
	DL_FOREACH2 (session->device[device].evictables, buffer, evict.next)
		if (!row || buffer->row == row)
			buffer->evict.asked_until_ns = until_ns;
	gm_lock_drop(&session->lock);
}

uint64_t gm_evict_by_hand(struct gpumem_session *session, uint32_t device, uint32_t row)
{
	uint64_t now_ns = gm_clock_ns();

	evict_ask(session, device, row, now_ns + WANTED_NS);
	return gm_evict_step(session, now_ns, NULL);
}

void gm_evict_call_off(struct gpumem_session *session, uint32_t device, uint32_t row)
{
	evict_ask(session, device, row, 0);
}
