/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins and unpins evictable buffers, and brings evicted ones back. This file promises that a buffer keeps
 * its content if it cannot be brought back, and that it is brought back to the same address. It must
 * never hold a lock while content is copied. Unpinning never waits.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/evict_private.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/map_chunks.h"
#include "client/device/spill.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "client/grant/session_ask.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/status_table.h"
#include "gpumem/gpumem_evict.h"

#define AWAIT_NS (GM_NS_PER_MS / 5)

/* ---- bringing a buffer back */

/* A pin of a buffer whose content is in host memory. The buffer is COMING. */
struct buffer_pin {
	struct gpumem_buffer *buffer;
	struct gpumem_session *session;
	struct gm_session_device *d;
	const gpumem_pin_options *options;
	uint64_t until_ns; /* when it has waited long enough; UINT64_MAX: never */
	bool restore; /* by the library's thread: the buffer is not pinned, and nothing is waited for */
	struct gm_session_lease *lease; /* device memory for it */
	struct gm_session_chunk *chunks;
};

/* Whether the buffer may stay in host memory, and can. */
static bool pin_host_ok(const struct buffer_pin *pin)
{
	return pin->options->flags & GPUMEM_PIN_HOST_OK && pin->buffer->evict.spill->direct;
}

/* Whether the options of a pin forbid it to wait. */
static bool pin_hurries(const gpumem_pin_options *options)
{
	return !options->wait_ms || options->wait_ms == GPUMEM_NO_WAIT;
}

/* When a pin with these options has waited long enough. */
static uint64_t pin_end_of_wait(struct gpumem_session *session, const gpumem_pin_options *options)
{
	uint64_t ms = pin_hurries(options) ? 0 : options->wait_ms;

	if (ms == GPUMEM_WAIT_FOREVER)
		return UINT64_MAX;
	if (!options->wait_ms && !(options->flags & GPUMEM_PIN_HOST_OK))
		ms = gm_session_wait_ms(session);
	return gm_clock_ns() + ms * GM_NS_PER_MS;
}

/* How a pin waits for device memory: for what is left of its time. */
static struct gm_wait pin_wait(const struct buffer_pin *pin, struct gm_wait_elsewhere *elsewhere)
{
	uint64_t left_ns = gm_u64_minus(pin->until_ns, gm_clock_ns());
	uint32_t ms = pin->options->wait_ms;

	if (pin->restore)
		return (struct gm_wait){.mode = GM_WAIT_NOT};
	/* The buffer can be used where it is: nobody is asked to make room, and nothing is waited for. */
	if (pin_hurries(pin->options) && pin_host_ok(pin))
		return (struct gm_wait){.mode = GM_WAIT_AT_ONCE};
	if (!pin_hurries(pin->options) && ms != GPUMEM_WAIT_FOREVER)
		ms = (uint32_t)gm_u64_max(left_ns / GM_NS_PER_MS, 1);
	return gm_wait_elsewhere_wait(elsewhere, ms);
}

/* Leases device memory. */
static gpumem_status pin_lease(struct buffer_pin *pin)
{
	struct gpumem_buffer *buffer = pin->buffer;
	struct gm_wait_elsewhere elsewhere = {.session = pin->session, .device = buffer->device};
	char tag[sizeof(buffer->tag)];

	/* The pin may need memory of buffers that the program has just destroyed. */
	gm_retired_settle(pin->session, GM_RETIRED_NO_WAIT);
	const struct gm_wait wait = pin_wait(pin, &elsewhere);

	gm_lock(&pin->session->lock);
	memcpy(tag, buffer->tag, sizeof(tag));
	gm_lock_drop(&pin->session->lock);
	const struct gm_lease_what what = {
		.device = buffer->device,
		.bytes = buffer->size,
		.transport = GM_TRANSPORT_FD,
		.tag = tag,
		.for_others = buffer->wish.for_others,
	};
	return gm_session_lease_take(pin->session, &what, &wait, &pin->lease, &pin->chunks);
}

/* Maps the device memory and copies the content. On error, *ret_stuck: it is still mapped. */
static gpumem_status pin_fill(struct buffer_pin *pin, uint64_t *ret_mapped, bool *ret_stuck)
{
	struct gpumem_buffer *buffer = pin->buffer;
	const struct gm_session_device *d = pin->d;
	gpumem_status status = gm_spill_lift(buffer->evict.spill);
	uint64_t mapped = 0;

	*ret_stuck = false;
	if (status)
		return status;
	int r = gm_map_chunks_add_chunks(
		d, buffer->addr, buffer->room, pin->chunks, &mapped, ret_stuck);
	if (r < 0) {
		bool known = r == -ENOMEM || r == -ENOBUFS;
		return gm_error(known ? gm_status_from_errno(r) : GPUMEM_E_SYSTEM,
			"cannot map device memory for an evicted buffer: %.200s",
			gm_map_chunks_error(d, r));
	}

	status = gm_spill_in(buffer->evict.spill, buffer->addr);
	if (status)
		*ret_stuck = d->map->unmap(d->backend, buffer->addr, mapped) < 0;
	else
		*ret_mapped = mapped;
	return status;
}

/* The buffer has device memory again, with its content. Unless the library has moved it, it is pinned. */
static void pin_finish(struct buffer_pin *pin, uint64_t mapped)
{
	struct gpumem_buffer *buffer = pin->buffer;
	struct gpumem_session *session = pin->session;
	struct gm_spill *spill = buffer->evict.spill;
	const struct gm_session_chunk *chunk;
	uint32_t device = buffer->device;

	gm_lock(&session->lock);
	gm_evict_count(buffer, false);
	buffer->evict.spill = NULL;
	buffer->lease = pin->lease;
	buffer->parts = pin->chunks;
	buffer->bytes = buffer->mapped = mapped;
	LL_COUNT(buffer->parts, chunk, buffer->chunks);
	gm_evict_count(buffer, true);
	buffer->evict.pins += !pin->restore;
	gm_evict_move_ended(buffer, GM_EVICT_HERE);
	gm_lock_drop(&session->lock);

	gm_spill_drop(spill);
	(void)gm_page_publish_use(session, session->counted);
	(void)gm_page_publish_use(session, device);
}

/* The device memory cannot be had or used. Keeps the sentence. */
static void pin_undo(struct buffer_pin *pin, bool stuck)
{
	char text[GM_ERROR_BYTES];

	if (!pin->lease)
		return;
	snprintf(text, sizeof(text), "%s", gm_error_text());
	/* The daemon keeps a chunk back that somebody still has open. */
	gm_session_chunks_free(pin->chunks);
	if (stuck)
		atomic_store(&pin->session->kept, true);
	else
		gm_session_lease_give(pin->session, pin->lease);
	gm_error(GPUMEM_OK, "%s", text);
}

/* The content stays in host memory. If the program allows that, the buffer is pinned there. */
static gpumem_status pin_stay(struct buffer_pin *pin, gpumem_status status, bool stuck)
{
	struct gpumem_buffer *buffer = pin->buffer;
	struct gm_spill *spill = buffer->evict.spill;

	pin_undo(pin, stuck);
	bool under = spill->under != NULL;
	if (pin_host_ok(pin) && !under && !stuck)
		under = gm_spill_lay_under(spill, buffer->addr, buffer->room) == GPUMEM_OK;
	bool pinned = under && pin_host_ok(pin);

	gm_lock(&pin->session->lock);
	buffer->evict.pins += pinned;
	gm_evict_move_ended(buffer, under ? GM_EVICT_UNDER : GM_EVICT_AWAY);
	gm_lock_drop(&pin->session->lock);
	return pinned ? GPUMEM_OK : status;
}

/* The program may have used the host memory, on streams. Waits for them, unless it may stay there. Returns
 * as gm_evict_idle(). */
static int pin_await_idle(struct buffer_pin *pin)
{
	int idle;

	while ((idle = gm_evict_idle(pin->buffer)) == 0 && !pin_host_ok(pin) && !pin->restore)
		nanosleep(&(struct timespec){.tv_nsec = AWAIT_NS}, NULL);
	return idle;
}

/* Whether a buffer that can be used where it is should stay there, because the device is full. Others are
 * not asked for memory each time it is pinned. */
static bool pin_is_settled(const struct buffer_pin *pin)
{
	const struct gpumem_buffer *buffer = pin->buffer;

	return pin_host_ok(pin) && pin_hurries(pin->options) && buffer->evict.spill->under &&
	       gm_evict_room(pin->session, buffer->device) < buffer->size;
}

/* All that is left to do takes no longer than copying the content. */
static void pin_waits_no_more(struct buffer_pin *pin)
{
	gm_lock(&pin->session->lock);
	pin->buffer->evict.waits = false;
	gm_lock_drop(&pin->session->lock);
}

/* *ret_busy: the buffer stays, because the device still uses it. */
static gpumem_status pin_bring(struct buffer_pin *pin, bool *ret_busy)
{
	uint64_t mapped = 0;
	bool stuck = false;

	int idle = pin_is_settled(pin) ? 0 : pin_await_idle(pin);
	*ret_busy = idle == 0;
	if (idle <= 0)
		return pin_stay(
			pin, idle < 0 ? gm_evict_idle_error(pin->buffer, idle) : GPUMEM_OK, false);
	gpumem_status status = pin_lease(pin);
	pin_waits_no_more(pin);
	if (!status)
		status = pin_fill(pin, &mapped, &stuck);
	if (status)
		return pin_stay(pin, status, stuck);
	pin_finish(pin, mapped);
	return GPUMEM_OK;
}

/* ---- pinning */

/* Pins the buffer where it is, if it can be used there. The session is locked. */
static bool pin_in_place(struct gpumem_buffer *buffer, const gpumem_pin_options *options)
{
	struct gm_evict *e = &buffer->evict;
	bool shared = e->state == GM_EVICT_UNDER && (e->pins || e->holds) &&
		      options->flags & GPUMEM_PIN_HOST_OK;

	if (e->state != GM_EVICT_HERE && !shared)
		return false;
	e->pins++;
	gm_evict_changed(buffer);
	return true;
}

/* Waits while another thread moves the buffer: at most as long as that takes, and until then if that thread
 * waits for something itself. Returns false if it still does. The session is locked. */
static bool pin_await_move(struct gpumem_buffer *buffer, uint64_t until_ns)
{
	struct gpumem_session *session = buffer->session;
	struct gm_evict *e = &buffer->evict;

	while (gm_evict_moves(buffer)) {
		if (e->waits && gm_clock_ns() >= until_ns)
			return false;
		e->recalled = true;
		(void)gm_lock_wait_until(
			&session->lock, &session->changed, e->waits ? until_ns : UINT64_MAX);
	}
	return true;
}

static gpumem_status pin_too_late(const gpumem_pin_options *options)
{
	return gm_error(pin_hurries(options) ? GPUMEM_E_BUSY : GPUMEM_E_TIMEOUT,
		"another thread pins the buffer, and waits for device memory or for the work that "
		"uses the buffer");
}

static gpumem_status pin_run(struct gpumem_buffer *buffer, const gpumem_pin_options *options)
{
	struct gpumem_session *session = buffer->session;
	struct buffer_pin pin = {
		.buffer = buffer,
		.session = session,
		.d = &session->device[buffer->device],
		.options = options,
		.until_ns = pin_end_of_wait(session, options),
	};

	gm_lock(&session->lock);
	bool late = !pin_await_move(buffer, pin.until_ns);
	bool pinned = !late && pin_in_place(buffer, options);
	bool busy = !pinned && (buffer->evict.pins || buffer->evict.holds);
	if (!late && !pinned && !busy) {
		buffer->evict.state = GM_EVICT_COMING;
		buffer->evict.waits = true;
	}
	gm_lock_drop(&session->lock);

	if (pinned)
		return GPUMEM_OK;
	if (late)
		return pin_too_late(options);
	if (busy)
		return gm_error(GPUMEM_E_BUSY,
			"the buffer is pinned in host memory, and cannot move before it is unpinned");
	return pin_bring(&pin, &busy);
}

gpumem_status gpumem_buffer_pin(
	gpumem_buffer *buffer, const gpumem_pin_options *options, gpumem_location *ret_location)
{
	gpumem_pin_options given = GPUMEM_PIN_OPTIONS_INIT;
	GM_UNCANCELLED;

	gpumem_status status = gm_evict_check(buffer);
	if (!status)
		status = gm_sized_in(&given, sizeof(given), options);
	if (!status && given.flags & ~(uint32_t)GPUMEM_PIN_HOST_OK)
		status = gm_error(GPUMEM_E_INVALID, "flags 0x%x are not known", given.flags);
	if (!status)
		status = pin_run(buffer, &given);
	if (status)
		return status;

	(void)gm_page_publish_use(buffer->session, buffer->device);
	if (ret_location)
		*ret_location = gpumem_buffer_location(buffer);
	return GPUMEM_OK;
}

/* ---- by hand */

/* Claims an evicted buffer that is not pinned: that of the row, or (0) any that comes later in the list
 * than the one of the last call. The session is locked. */
static struct gpumem_buffer *pin_claim_evicted(
	struct gpumem_session *session, uint32_t device, uint32_t row, uint64_t round)
{
	struct gpumem_buffer *buffer;

	DL_FOREACH (session->buffers->first, buffer) {
		struct gm_evict *e = &buffer->evict;
		bool there = e->state == GM_EVICT_AWAY ||
			     (e->state == GM_EVICT_UNDER && !e->pins && !e->holds);
		if (!there || buffer->device != device || e->round == round ||
			(row && buffer->row != row))
			continue;
		e->round = round;
		e->state = GM_EVICT_COMING;
		return buffer;
	}
	return NULL;
}

gpumem_status gm_evict_bring(struct gpumem_buffer *buffer, bool *ret_busy)
{
	static const gpumem_pin_options none = GPUMEM_PIN_OPTIONS_INIT;
	struct gpumem_session *session = buffer->session;
	struct buffer_pin pin = {
		.buffer = buffer,
		.session = session,
		.d = &session->device[buffer->device],
		.options = &none,
		.restore = true,
	};

	return pin_bring(&pin, ret_busy);
}

void gm_evict_restore(struct gpumem_session *session, uint32_t device, uint32_t row)
{
	uint64_t round = ++session->spill_rounds;
	gpumem_status status = GPUMEM_OK;
	bool busy;

	gm_evict_call_off(session, device, row);
	/* The driver may fail for one buffer and still bring back the next. */
	while (!status || status == GPUMEM_E_SYSTEM) {
		gm_lock(&session->lock);
		struct gpumem_buffer *buffer = pin_claim_evicted(session, device, row, round);
		gm_lock_drop(&session->lock);
		if (!buffer)
			break;
		status = gm_evict_bring(buffer, &busy);
	}
}

gpumem_location gpumem_buffer_location(const gpumem_buffer *buffer)
{
	if (!buffer)
		return GPUMEM_LOCATION_DEVICE;
	if (buffer->device >= buffer->session->counted)
		return GPUMEM_LOCATION_HOST;
	gm_lock(&buffer->session->lock);
	bool host = buffer->evict.spill != NULL;
	gm_lock_drop(&buffer->session->lock);
	return host ? GPUMEM_LOCATION_HOST : GPUMEM_LOCATION_DEVICE;
}

/* ---- unpinning */

static gpumem_status pin_end_capturing(void)
{
	return gm_error(GPUMEM_E_BUSY,
		"the stream is being captured into a graph, which uses the buffer whenever it is "
		"launched: unpin the buffer after the last launch");
}

static gpumem_status pin_end_refused(void)
{
	return gm_error(GPUMEM_E_INVALID,
		"the buffer is not pinned: it was unpinned more often than it was pinned");
}

/* Records an event after the work that uses the buffer. NULL: no work does. */
static gpumem_status pin_end_record(
	struct gpumem_buffer *buffer, gpumem_stream stream, struct gm_map_event **ret_event)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];

	*ret_event = NULL;
	if (stream == GPUMEM_STREAM_DONE || !d->map->record)
		return GPUMEM_OK;
	if (d->map->here)
		(void)d->map->here(d->backend);
	bool any = stream == GPUMEM_STREAM_ANY;
	if (stream && !any && d->map->captured_into && d->map->captured_into(d->backend, stream))
		return pin_end_capturing();

	int r = any ? d->map->record(d->backend, ret_event)
		    : d->map->record_on(d->backend, stream, ret_event);
	if (r == -EAGAIN)
		return pin_end_capturing();
	if (r < 0)
		return gm_error(GPUMEM_E_SYSTEM,
			"cannot record the work on the buffer, so it stays pinned: %.200s",
			gm_map_chunks_error(d, r));
	return GPUMEM_OK;
}

/* Takes the events out, if there are many and no other thread does the same. The buffer stays where it is
 * until pin_end_put_events(). The session is locked. */
static size_t pin_end_take_events(
	struct gpumem_buffer *buffer, struct gm_map_event *ret_events[2 * GM_EVICT_EVENTS])
{
	struct gm_evict *e = &buffer->evict;

	if (e->n_events < GM_EVICT_EVENTS || e->taken || !e->pins)
		return 0;
	memcpy(ret_events, e->events, e->n_events * sizeof(*ret_events));
	e->taken = e->n_events;
	e->n_events = 0;
	e->holds++;
	return e->taken;
}

static void pin_end_put_events(
	struct gpumem_buffer *buffer, struct gm_map_event *const *events, size_t n)
{
	struct gm_evict *e = &buffer->evict;

	gm_lock(&buffer->session->lock);
	memcpy(&e->events[e->n_events], events, n * sizeof(*events));
	e->n_events += n;
	e->taken = 0;
	e->holds--;
	gm_evict_changed(buffer);
	gm_lock_drop(&buffer->session->lock);
}

/* If there are many events, gets rid of those that have passed. */
static void pin_end_tidy_events(struct gpumem_buffer *buffer)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	struct gm_map_event *events[2 * GM_EVICT_EVENTS];
	size_t left = 0;

	gm_lock(&buffer->session->lock);
	size_t n = pin_end_take_events(buffer, events);
	gm_lock_drop(&buffer->session->lock);
	if (!n)
		return;

	for (size_t i = 0; i < n; i++)
		if (gm_map_take_passed(d->map, d->backend, &events[i]) != 1)
			events[left++] = events[i];
	pin_end_put_events(buffer, events, left);
}

/* Adds the event. Returns false if there are too many. The session is locked. */
static bool pin_end_add_event(struct gpumem_buffer *buffer, struct gm_map_event *event)
{
	struct gm_evict *e = &buffer->evict;

	if (!event)
		return true;
	if (e->n_events + e->taken >= 2 * GM_EVICT_EVENTS)
		return false;
	e->events[e->n_events++] = event;
	e->added++;
	return true;
}

/* One event for all streams takes the place of those that the buffer has, which are older. Returns them,
 * to be forgotten without the lock. The session is locked. */
static size_t pin_end_replace_events(struct gpumem_buffer *buffer, struct gm_map_event *event,
	struct gm_map_event *ret_old[2 * GM_EVICT_EVENTS])
{
	struct gm_evict *e = &buffer->evict;
	size_t n = e->n_events;

	memcpy(ret_old, e->events, n * sizeof(*ret_old));
	e->events[0] = event;
	e->n_events = 1;
	e->added++;
	return n;
}

/* The library's thread may have waited for this to move the buffer to the device. The session is locked. */
static void pin_end_note(struct gpumem_buffer *buffer)
{
	struct gm_session_device *d = &buffer->session->device[buffer->device];

	if (!d->relieved || !buffer->wish.cpu_ok || buffer->evict.pins || !buffer->evict.spill)
		return;
	d->return_due = true;
	gm_session_wake(buffer->session);
}

/* Unpins the buffer. Returns false if so many streams have not finished yet that their events have no
 * place. */
static bool pin_end_try(
	struct gpumem_buffer *buffer, gpumem_stream stream, gpumem_status *ret_status)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_session_device *d = &session->device[buffer->device];
	struct gm_evict *e = &buffer->evict;
	struct gm_map_event *event, *useless[2 * GM_EVICT_EVENTS];
	size_t n = 0;

	pin_end_tidy_events(buffer);
	gm_lock(&session->lock);
	uint64_t before = e->added;
	gm_lock_drop(&session->lock);
	*ret_status = pin_end_record(buffer, stream, &event);
	if (*ret_status)
		return true;

	gm_lock(&session->lock);
	bool pinned = e->pins > 0, added = pinned && pin_end_add_event(buffer, event);
	/* An event that another thread has added meanwhile may be newer than this one, and those that another
	 * thread has taken come back. */
	if (pinned && !added && stream == GPUMEM_STREAM_ANY && e->added == before && !e->taken) {
		n = pin_end_replace_events(buffer, event, useless);
		added = true;
	}
	if (added) {
		e->pins--;
		gm_evict_changed(buffer);
		pin_end_note(buffer);
	} else if (event) {
		useless[n++] = event;
	}
	gm_lock_drop(&session->lock);

	while (n)
		d->map->forget(d->backend, useless[--n]);
	if (!pinned)
		*ret_status = pin_end_refused();
	return added || !pinned;
}

static gpumem_status pin_end(struct gpumem_buffer *buffer, gpumem_stream stream)
{
	gpumem_status status;

	/* If there are too many streams, all of them will do. */
	while (!pin_end_try(buffer, stream, &status))
		stream = GPUMEM_STREAM_ANY;
	return status;
}

gpumem_status gpumem_buffer_unpin(gpumem_buffer *buffer, gpumem_stream stream)
{
	GM_UNCANCELLED;
	gpumem_status status = gm_evict_check(buffer);

	if (status)
		return status;
	gm_lock(&buffer->session->lock);
	bool pinned = buffer->evict.pins > 0;
	gm_lock_drop(&buffer->session->lock);
	if (!pinned)
		return pin_end_refused();

	status = pin_end(buffer, stream);
	if (!status)
		(void)gm_page_publish_use(buffer->session, buffer->device);
	return status;
}
