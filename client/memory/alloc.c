/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw pointers: gpumem_alloc() and gpumem_free() on the heap of a device.
 *
 * Besides the work of the heap, a warm call costs a few loads, among them: is this still the
 * process that connected, and is the library's thread already publishing the figures? It asks for
 * no pid, reads no clock, and takes no lock of the session.
 *
 * The library's thread lists large blocks in the client's page, if they live long enough. Only then
 * does freeing a block cost something for its row. A tag costs something at once.
 */
#include "client/memory/alloc.h"

#include <errno.h>
#include <string.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/retired.h"
#include "client/device/map_chunks.h"
#include "client/device/account_use.h"
#include "client/heap/arena.h"
#include "client/map/cuda_capture.h"
#include "client/map/map.h"
#include "client/memory/alloc_listing.h"
#include "client/memory/pinned.h"
#include "client/memory/supply.h"
#include "client/region/region_shrink.h"
#include "client/session/reconnect.h"
#include "client/grant/session_lease.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/status_table.h"

#define unlikely(x) __builtin_expect(!!(x), 0)

/* ---- the heap of a device */

/* NULL until gpumem_alloc() has made it. */
static inline struct gm_arena *alloc_arena(const struct gpumem_session *session, uint32_t device)
{
	return atomic_load_explicit(&session->device[device].arena, memory_order_acquire);
}

static gpumem_status alloc_arena_make(
	struct gpumem_session *session, uint32_t device, struct gm_arena **ret_arena)
{
	struct gm_session_device *d = &session->device[device];
	GM_UNCANCELLED;
	gpumem_status status = gm_map_chunks_open(session, device);
	if (status)
		return status;

	gm_lock(&session->lock);
	uint64_t decay_ms = session->decay_ms;
	gm_lock_drop(&session->lock);

	struct gm_arena_config config = {
		.ops = d->map,
		.backend = d->backend,
		.source = gm_supply_source(d->supply),
		.regions = d->info.transport == GPUMEM_TRANSPORT_IPC,
		.decay_ns = gm_u64_min(decay_ms, UINT64_MAX / 2 / GM_NS_PER_MS) * GM_NS_PER_MS,
		.wake = gm_session_wake,
		.wake_ctx = session,
	};
	struct gm_arena *arena, *other = NULL;
	int r = gm_arena_new(&config, &arena);
	if (r < 0)
		return gm_error(gm_status_from_errno(r), "cannot make a heap on device %u: %s%s",
			device, r == -ENOMEM ? "no address space: " : "",
			gm_map_chunks_error(d, r));

	/* Another thread may have been faster. */
	if (!atomic_compare_exchange_strong(&d->arena, &other, arena)) {
		gm_arena_free(arena);
		arena = other;
	}

	*ret_arena = arena;
	return GPUMEM_OK;
}

void gm_alloc_drop_all(struct gpumem_session *session)
{
	for (uint32_t i = 0; i < session->devices; i++)
		if (!gm_arena_free(atomic_exchange(&session->device[i].arena, NULL)))
			atomic_store(&session->kept, true);
}

uint64_t gm_alloc_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes)
{
	if (device >= session->devices)
		return 0;
	struct gm_arena *arena = alloc_arena(session, device);
	uint64_t returned = arena ? gm_arena_trim(arena, bytes) : 0;
	if (returned < bytes)
		returned += gm_region_trim(session, device, bytes - returned);
	(void)gm_page_publish_use(session, device);
	return returned;
}

uint64_t gm_alloc_tick(struct gpumem_session *session, uint64_t now_ns)
{
	gm_retired_settle(session, GM_RETIRED_THREAD);
	uint64_t next =
		gm_u64_min(gm_retired_next(session, now_ns), gm_region_tick(session, now_ns));

	for (uint32_t i = 0; i < session->devices; i++) {
		struct gm_arena *arena = alloc_arena(session, i);
		if (!arena)
			continue;
		next = gm_u64_min(next, gm_arena_tick(arena, now_ns));
		/* The device may have finished with freed memory, which can be returned from now
		 * on. */
		(void)gm_page_publish_use(session, i);
	}
	return next;
}

/* Frees a block, and its row if it has one. */
static inline int alloc_dealloc(struct gpumem_session *session, uint32_t device,
	struct gm_arena *arena, void *ptr, gpumem_stream stream)
{
	uint32_t row = 0;
	int r = gm_arena_dealloc(arena, ptr, stream, &row);
	if (unlikely(row) && r == 0)
		gm_session_pages_row_remove(&session->pages, device, row);
	return r;
}

/* ---- the calls */

gpumem_status gm_alloc_failed(const struct gpumem_session *session, uint32_t device, int outcome,
	gpumem_status source, uint64_t size)
{
	const struct gm_session_device *d = &session->device[device];

	if (outcome == GM_ARENA_E_SOURCE)
		return source;
	const char *text = gm_arena_text(outcome), *s = size == 1 ? "" : "s";
	if (outcome < 0 && outcome != -ENOMEM && outcome != -EPROTO)
		return gm_error(gm_arena_status(outcome), "cannot allocate %llu byte%s: %s: %s",
			(unsigned long long)size, s, text, gm_map_chunks_error(d, outcome));
	return gm_error(gm_arena_status(outcome), "cannot allocate %llu byte%s: %s",
		(unsigned long long)size, s, text ? text : "");
}

/* The graph that the stream is being captured into, or 0. */
static inline uint64_t alloc_graph_of(const struct gm_session_device *d, gpumem_stream stream)
{
	if (!stream || stream == GPUMEM_STREAM_ANY || stream == GPUMEM_STREAM_DONE)
		return 0;
	const struct gm_map_ops *map = atomic_load_explicit(&d->map, memory_order_acquire);
	return map && map->captured_into ? map->captured_into(d->backend, stream) : 0;
}

int gm_alloc_from_offer(
	struct gm_alloc_wanted *w, struct gm_supply_offer *offer, gpumem_status *ret_status)
{
	w->call.offer = offer;
	int r = gm_arena_alloc(w->arena, w->size, w->alignment, w->stream, w->flags, &w->call.base,
		&w->ptr, ret_status);
	w->call.offer = NULL;
	gm_supply_withdraw(offer);
	return r;
}

uint64_t gm_alloc_bytes(const struct gm_alloc_wanted *wanted)
{
	return wanted->size > SIZE_MAX - wanted->alignment ? wanted->size
							   : wanted->size + wanted->alignment;
}

/* Allocates out of what other threads have freed. */
static bool alloc_from_freed(void *ctx)
{
	struct gm_alloc_wanted *w = ctx;
	struct gm_supply_offer nothing = {.supply = w->supply};
	gpumem_status status;
	return gm_alloc_from_offer(w, &nothing, &status) == 0;
}

void gm_alloc_ask(struct gm_alloc_wanted *wanted, struct gm_session_ask_wanted *ret_asked)
{
	gm_supply_wanted(wanted->supply, &wanted->ask, ret_asked);
	ret_asked->what.bytes = gm_alloc_bytes(wanted);
	ret_asked->what.refused = &wanted->call.refused;
}

/* Allocates out of the chunks that came. As gm_alloc_answered(). */
static bool alloc_from_chunks(struct gpumem_session *session, uint32_t device,
	struct gm_alloc_wanted *wanted, struct gm_supply_offer *offer, gpumem_status *status)
{
	int outcome = gm_alloc_from_offer(wanted, offer, status);

	if (outcome == 0) {
		*status = GPUMEM_OK;
		return true;
	}
	if (outcome != GM_ARENA_E_SOURCE || *status != GPUMEM_E_NO_MEMORY) {
		*status = gm_alloc_failed(session, device, outcome, *status, wanted->size);
		return true;
	}
	if (gm_clock_ns() < wanted->end_ns)
		return false;
	*status = gm_error(GPUMEM_E_TIMEOUT,
		"cannot allocate %llu bytes: other threads took the memory first, "
		"and the time to wait is over",
		(unsigned long long)wanted->size);
	return true;
}

bool gm_alloc_answered(struct gpumem_session *session, uint32_t device,
	struct gm_alloc_wanted *wanted, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, gpumem_status *status)
{
	struct gm_supply_offer offer;

	if (gm_supply_lease_gone(wanted->supply, &wanted->ask, *status))
		return false;
	if (*status)
		return true;
	gm_supply_got(wanted->supply, lease, chunks, &offer);
	return alloc_from_chunks(session, device, wanted, &offer, status);
}

/* Whether time may help an allocation that the heap could not make: the source refused it because the device
 * is full or the daemon away, and the program waits. */
static bool alloc_may_wait(struct gpumem_session *session, const struct gm_alloc_wanted *wanted,
	int outcome, gpumem_status refusal)
{
	uint32_t wait_ms = wanted->call.wait_ms;

	if (outcome != GM_ARENA_E_SOURCE || wait_ms == GPUMEM_NO_WAIT)
		return false;
	if (refusal == GPUMEM_E_DISCONNECTED)
		return wanted->call.away;
	return (refusal == GPUMEM_E_NO_MEMORY || refusal == GPUMEM_E_LIMIT) &&
	       (wait_ms || gm_session_wait_ms(session));
}

/*
 * Allocates what the heap could not give at once: outcome and refusal say why. Waits as long as the caller or
 * the daemon's configuration allows. The memory may come from the daemon, or from another thread that frees
 * some, also while the daemon is away.
 */
static gpumem_status alloc_slowly(struct gpumem_session *session, uint32_t device,
	struct gm_alloc_wanted *wanted, int outcome, gpumem_status refusal)
{
	struct gm_wait_elsewhere elsewhere = {.session = session,
		.device = device,
		.bytes = wanted->size,
		.take = alloc_from_freed,
		.ctx = wanted};
	gpumem_status status;
	bool ended;
	GM_UNCANCELLED;

	if (!alloc_may_wait(session, wanted, outcome, refusal))
		return outcome == GM_ARENA_E_SOURCE && refusal == GPUMEM_E_DISCONNECTED &&
				       wanted->call.away
			       ? gm_reconnect_error(session)
			       : gm_alloc_failed(session, device, outcome, refusal, wanted->size);

	struct gm_session_ask_wanted asked = {
		.wait = gm_wait_elsewhere_wait(&elsewhere, wanted->call.wait_ms)};
	wanted->end_ns = asked.wait.mode == GM_WAIT_UNTIL
				 ? asked.wait.deadline_ns
				 : gm_clock_ns() + gm_wait_memory_ns(&asked.wait,
							   gm_session_wait_ms(session));
	do {
		struct gm_session_lease *lease = NULL;
		struct gm_session_chunk *chunks = NULL;

		gm_alloc_ask(wanted, &asked);
		status = gm_session_ask_obtain(session, &asked, &lease, &chunks);
		if (elsewhere.found) {
			struct gm_supply_offer offer;
			if (!status) {
				gm_supply_got(wanted->supply, lease, chunks, &offer);
				gm_supply_withdraw(&offer);
			}
			return GPUMEM_OK;
		}
		ended = gm_alloc_answered(session, device, wanted, lease, chunks, &status);
	} while (!ended);
	return status;
}

static gpumem_status alloc_no_memory_for_graph(void)
{
	return gm_error(GPUMEM_E_HOST_MEMORY, "no host memory to record what a graph uses");
}

/* The slow path after an allocation: something has to be published, or the session tracks everything. */
static __attribute__((noinline, cold)) void alloc_clean(
	struct gpumem_session *session, uint32_t device, void *ptr)
{
	gm_session_dirty_now(session);
	if (session->tracking)
		gm_alloc_listing_add(session, device, ptr);
}

static inline gpumem_status alloc_hand_over(
	struct gpumem_session *session, uint32_t device, gpumem_stream stream, void *ptr)
{
	uint64_t graph = alloc_graph_of(&session->device[device], stream);
	if (unlikely(graph) && gm_captures_add(&session->captures, ptr, device, graph) < 0)
		return alloc_no_memory_for_graph();
	if (gm_session_clean(session))
		alloc_clean(session, device, ptr);
	return GPUMEM_OK;
}

gpumem_status gm_alloc_hand_over(
	struct gpumem_session *session, uint32_t device, gpumem_stream stream, void *ptr)
{
	return alloc_hand_over(session, device, stream, ptr);
}

/* Checks what the program gave; *given must have its defaults. */
static inline gpumem_status alloc_check(
	size_t size, const gpumem_alloc_options *options, gpumem_alloc_options *given)
{
	if (unlikely(!size))
		return gm_error(GPUMEM_E_INVALID, "size must not be 0");
	if (!options)
		return GPUMEM_OK;
	gpumem_status status = gm_sized_in(given, sizeof(*given), options);
	return status ? status : gm_buffer_tag_check(given->tag);
}

/* Whether the block is listed in the page; only then does it keep its tag. */
static inline bool alloc_listed(const struct gpumem_session *session, size_t size)
{
	return size >= atomic_load_explicit(&session->track_from, memory_order_relaxed);
}

static inline gpumem_status alloc_take(struct gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, void **ret_ptr)
{
	gpumem_alloc_options given = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_status status = GPUMEM_OK;

	if (unlikely(!ret_ptr))
		return gm_error(GPUMEM_E_INVALID, "ret_ptr must not be NULL");
	status = alloc_check(size, options, &given);
	if (unlikely(status))
		return status;

	struct gm_arena *arena = alloc_arena(session, device);
	if (unlikely(!arena)) {
		status = alloc_arena_make(session, device, &arena);
		if (status)
			return status;
	}

	bool listed = alloc_listed(session, size);
	const char *tag = unlikely(given.tag && *given.tag) && listed ? given.tag : NULL;
	void *ptr;
	unsigned flags = listed ? GM_ARENA_LISTED : 0;
	struct gm_supply_call call = {.base.tag = tag, .wait_ms = given.wait_ms};
	int r = gm_arena_alloc(
		arena, size, given.alignment, stream, flags, &call.base, &ptr, &status);
	if (unlikely(r)) {
		struct gm_alloc_wanted wanted = {
			.arena = arena,
			.supply = session->device[device].supply,
			.size = size,
			.stream = stream,
			.alignment = given.alignment,
			.flags = flags,
			.call = call,
		};
		status = alloc_slowly(session, device, &wanted, r, status);
		if (status)
			return status;
		ptr = wanted.ptr;
	}

	status = alloc_hand_over(session, device, stream, ptr);
	if (unlikely(status)) {
		(void)alloc_dealloc(session, device, arena, ptr, GPUMEM_STREAM_ANY);
		return status;
	}
	*ret_ptr = ptr;
	return GPUMEM_OK;
}

static gpumem_status alloc_no_device(const struct gpumem_session *session, uint32_t device)
{
	if (device == GPUMEM_DEVICE_HOST)
		return gm_error(GPUMEM_E_INVALID,
			"pinned host memory is not ordered by streams, because the CPU uses it "
			"too: allocate it as host memory, without a stream");
	return gm_session_no_device(session, device);
}

gpumem_status gpumem_alloc(gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, void **ret_ptr)
{
	if (unlikely(!gm_session_ok(session)))
		return gm_session_refused(session);
	if (unlikely(device >= session->counted))
		return alloc_no_device(session, device);
	return alloc_take(session, device, size, stream, options, ret_ptr);
}

/* Allocates pinned memory of which each block is a buffer. */
static __attribute__((noinline)) gpumem_status alloc_apart(struct gpumem_session *session,
	uint32_t device, size_t size, const gpumem_alloc_options *options, void **ret_ptr)
{
	gpumem_alloc_options given = GPUMEM_ALLOC_OPTIONS_INIT;
	uint64_t endings = atomic_load(&session->buffers->endings);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);

	if (!status)
		status = gm_pinned_alloc(session, size, &given, ret_ptr);
	if (gm_buffer_end_retired(session, device, status, endings, &given.wait_ms))
		status = gm_pinned_alloc(session, size, &given, ret_ptr);
	return status;
}

gpumem_status gpumem_host_alloc(
	gpumem_session *session, size_t size, const gpumem_alloc_options *options, void **ret_ptr)
{
	uint32_t device;

	if (unlikely(!gm_session_ok(session)))
		return gm_session_refused(session);
	if (unlikely(!gm_session_find_device(session, GPUMEM_DEVICE_HOST, &device)))
		return gm_session_no_device(session, GPUMEM_DEVICE_HOST);
	gpumem_status status = gm_map_chunks_open(session, device);
	if (unlikely(status))
		return status;
	if (gm_pinned_apart(session, device) && ret_ptr && size)
		return alloc_apart(session, device, size, options, ret_ptr);
	/* Not ordered by a stream: the CPU may write at once, so no GPU may still use the block. */
	return alloc_take(session, device, size, GPUMEM_STREAM_ANY, options, ret_ptr);
}

gpumem_status gm_alloc_prepare(struct gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options,
	struct gm_alloc_wanted *ret_wanted, uint32_t *ret_wait_ms)
{
	gpumem_alloc_options given = GPUMEM_ALLOC_OPTIONS_INIT;

	if (device >= session->counted)
		return alloc_no_device(session, device);
	gpumem_status status = alloc_check(size, options, &given);
	if (status)
		return status;
	struct gm_arena *arena = alloc_arena(session, device);
	if (!arena)
		status = alloc_arena_make(session, device, &arena);
	if (status)
		return status;

	bool listed = alloc_listed(session, size);
	*ret_wanted = (struct gm_alloc_wanted){
		.arena = arena,
		.supply = session->device[device].supply,
		.size = size,
		.stream = stream,
		.alignment = given.alignment,
		.flags = listed ? GM_ARENA_LISTED : 0,
		.call.base.tag = given.tag && *given.tag && listed ? given.tag : NULL,
		.call.wait_ms = given.wait_ms,
	};
	*ret_wait_ms = given.wait_ms;
	return GPUMEM_OK;
}

void gm_alloc_undo(struct gpumem_session *session, uint32_t device, void *ptr)
{
	/* Nobody has used it, but it may have come to its stream from work that still does. */
	(void)alloc_dealloc(session, device, alloc_arena(session, device), ptr, GPUMEM_STREAM_ANY);
	gm_session_dirty_freed(session);
}

static gpumem_status alloc_free_failed(int outcome, const void *ptr)
{
	const char *text = gm_arena_text(outcome);
	return gm_error(gm_arena_status(outcome), "cannot free %p: %s", ptr,
		text ? text : strerror(outcome < 0 ? -outcome : 0));
}

/* Asks whether a graph uses a live block, which then stays in place (*ret_kept). */
static gpumem_status alloc_keep_for_graph(
	struct gpumem_session *session, uint32_t device, void *ptr, uint64_t graph, bool *ret_kept)
{
	int r = gm_captures_free(&session->captures, ptr, device, graph);
	if (r < 0)
		return alloc_no_memory_for_graph();
	if (r == GM_CAPTURE_E_FREED)
		return gm_error(GPUMEM_E_INVALID,
			"cannot free %p: it was freed before, and is kept only for a graph", ptr);
	*ret_kept = r == GM_CAPTURE_KEPT;
	return GPUMEM_OK;
}

static inline gpumem_status alloc_free_in_heap(struct gpumem_session *session, uint32_t device,
	struct gm_arena *arena, void *ptr, gpumem_stream stream)
{
	uint64_t graph = alloc_graph_of(&session->device[device], stream);
	if (unlikely(graph || gm_captures_any(&session->captures))) {
		bool kept = false;
		uint64_t size;
		int r = gm_arena_size(arena, ptr, &size);
		if (r)
			return alloc_free_failed(r, ptr);
		gpumem_status status = alloc_keep_for_graph(session, device, ptr, graph, &kept);
		if (status || kept)
			return status;
	}

	int r = alloc_dealloc(session, device, arena, ptr, stream);
	if (unlikely(r))
		return alloc_free_failed(r, ptr);
	gm_session_dirty_freed(session);
	return GPUMEM_OK;
}

/* For pinned memory, if each block is a buffer. Returns false if ptr is not such a block. */
static bool alloc_free_pinned(
	struct gpumem_session *session, void *ptr, gpumem_stream stream, gpumem_status *ret_status)
{
	uint32_t device = session->counted;

	if (!gm_pinned_apart(session, device))
		return false;
	uint64_t graph = alloc_graph_of(&session->device[device], stream);
	*ret_status = GPUMEM_OK;
	if ((graph || gm_captures_any(&session->captures)) && gm_pinned_holds(session, ptr)) {
		bool kept = false;
		*ret_status = alloc_keep_for_graph(session, device, ptr, graph, &kept);
		if (*ret_status || kept)
			return true;
	}
	return gm_pinned_free(session, ptr, stream);
}

/* Looks for ptr on the devices from first on, and frees it. */
static inline gpumem_status alloc_free(
	struct gpumem_session *session, uint32_t first, void *ptr, gpumem_stream stream)
{
	gpumem_status status;

	if (!ptr)
		return GPUMEM_OK;
	for (uint32_t i = first; i < session->devices; i++) {
		struct gm_arena *arena = alloc_arena(session, i);
		if (arena && gm_arena_holds(arena, ptr))
			return alloc_free_in_heap(session, i, arena, ptr, stream);
	}

	if (alloc_free_pinned(session, ptr, stream, &status))
		return status;
	return gm_error(GPUMEM_E_INVALID, "cannot free %p: this session has no %smemory there", ptr,
		first ? "pinned host " : "");
}

gpumem_status gpumem_free(gpumem_session *session, void *ptr, gpumem_stream stream)
{
	if (unlikely(!gm_session_ok(session)))
		return gm_session_refused(session);
	return alloc_free(session, 0, ptr, stream);
}

gpumem_status gpumem_host_free(gpumem_session *session, void *ptr)
{
	if (unlikely(!gm_session_ok(session)))
		return gm_session_refused(session);
	return alloc_free(session, session->counted, ptr, GPUMEM_STREAM_ANY);
}

/* ---- graphs */

void gpumem_capture_begin(void)
{
	gm_cuda_capture_begin();
}

void gpumem_capture_end(void)
{
	gm_cuda_capture_end();
}

gpumem_status gpumem_capture_keep_out(void)
{
	if (gm_cuda_capture_keep_out_announced())
		return GPUMEM_OK;
	return gm_error(GPUMEM_E_BUSY,
		"the program is capturing a stream into a graph; a wait for a context would invalidate "
		"the capture: end it first");
}

void gpumem_capture_let_in(void)
{
	gm_cuda_capture_let_in();
}

gpumem_status gpumem_graph_of(
	gpumem_session *session, uint32_t device, gpumem_stream stream, uint64_t *ret_graph)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_graph)
		return gm_error(GPUMEM_E_INVALID, "ret_graph must not be NULL");
	if (device == GPUMEM_DEVICE_HOST)
		return gm_error(GPUMEM_E_INVALID,
			"pinned host memory has no streams: name the device of the stream");
	if (device >= session->counted)
		return gm_session_no_device(session, device);
	gpumem_status status = gm_map_chunks_open(session, device);
	if (status)
		return status;
	*ret_graph = alloc_graph_of(&session->device[device], stream);
	return GPUMEM_OK;
}

static void alloc_free_of_graph(void *ctx, void *ptr, uint32_t device)
{
	struct gpumem_session *session = ctx;
	struct gm_arena *arena = alloc_arena(session, device);

	/* Launches of the graph may still be running, on any stream. */
	if (arena)
		(void)alloc_dealloc(session, device, arena, ptr, GPUMEM_STREAM_ANY);
	else
		(void)gm_pinned_free(session, ptr, GPUMEM_STREAM_ANY);
}

gpumem_status gpumem_graph_gone(gpumem_session *session, uint64_t graph)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!graph || !gm_captures_gone(&session->captures, graph, alloc_free_of_graph, session))
		return gm_error(GPUMEM_E_NOT_FOUND, "no memory is kept for graph %llu",
			(unsigned long long)graph);
	gm_session_dirty_freed(session);
	return GPUMEM_OK;
}

/* How long a trim waits for the device. */
#define ALLOC_TRIM_PATIENCE_NS (GM_NS_PER_MS)

gpumem_status gpumem_trim(gpumem_session *session, uint64_t *ret_bytes)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	uint64_t bytes = 0;
	GM_UNCANCELLED;
	gm_retired_settle(session, GM_RETIRED_HOST_WAIT);
	for (uint32_t i = 0; i < session->devices; i++) {
		struct gm_arena *arena = alloc_arena(session, i);
		if (arena)
			gm_arena_settle(arena, ALLOC_TRIM_PATIENCE_NS);
		bytes += gm_alloc_trim(session, i, UINT64_MAX);
	}
	if (ret_bytes)
		*ret_bytes = bytes;
	return GPUMEM_OK;
}

gpumem_status gpumem_stats(gpumem_session *session, uint32_t name, gpumem_stats_t *ret_stats)
{
	uint32_t device;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	if (!ret_stats)
		return gm_error(GPUMEM_E_INVALID, "ret_stats must not be NULL");
	gpumem_stats_t stats;
	gm_alloc_listing_publish(session, device);
	gm_region_recount(session, device);
	(void)gm_page_publish_use(session, device);
	gm_page_read_use(session, device, &stats);
	return gm_sized_out(ret_stats, &stats, sizeof(stats));
}
