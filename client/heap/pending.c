/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps freed memory in one set per stream, and the events that say when it is free for everybody.
 * An event is recorded only when somebody could use the memory that waits, and one event then
 * covers all of it.
 *
 * The stream that freed a block may have it back at any time, because what it launches next runs
 * after what it launched before. Nobody else may have the block before an event has passed or the
 * new user's stream waits for it.
 *
 * This module must never wait. It asks the backend for a stream's number and a thread's context,
 * and must never call it otherwise.
 */
#include "autoconf.h"

#include "client/heap/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

gm_stream_key gm_pending_key(const struct gm_map_ops *ops, void *backend, gpumem_stream stream)
{
	uint64_t id, context = 0;

	if (stream == GPUMEM_STREAM_DONE)
		return GM_STREAM_DONE;
	if (ops->here)
		context = ops->here(backend);
	if (stream == NULL)
		return context < GM_STREAM_DEFAULTS ? GM_STREAM_DEFAULT - context : GM_STREAM_ANY;
	if (stream == GPUMEM_STREAM_ANY)
		return GM_STREAM_ANY;
	if (ops->stream_id(backend, stream, &id) < 0 || id > GM_STREAM_DEFAULT - GM_STREAM_DEFAULTS)
		return GM_STREAM_ANY;
	return id;
}

static struct gm_pending_set *pending_set_new(gm_stream_key key)
{
	struct gm_pending_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->key = key;
	gm_heap_bins_init(&set->bins, true);
	return set;
}

int gm_pending_init(struct gm_pending *pending)
{
	memset(pending, 0, sizeof(*pending));
	pending->epoch = 1;
	pending->list = GM_PENDING_LISTS;
	pending->settled_list = pending->list - 1;
	pending->sets[0] = pending_set_new(GM_STREAM_ANY);
	if (!pending->sets[0])
		return -ENOMEM;
	pending->n_sets = 1;
	return 0;
}

void gm_pending_deinit(struct gm_pending *pending)
{
	for (unsigned i = 0; i < pending->n_sets; i++)
		free(pending->sets[i]);
	memset(pending, 0, sizeof(*pending));
}

static bool pending_set_empty(const struct gm_pending_set *set)
{
	return set->bins.bytes == 0 && set->small_bytes == 0;
}

struct gm_pending_set *gm_pending_own(struct gm_pending *pending, gm_stream_key key)
{
	for (unsigned i = 1; i < pending->n_sets; i++) {
		if (pending->sets[i]->key == key)
			return pending->sets[i];
	}
	return NULL;
}

struct gm_pending_set *gm_pending_set(struct gm_pending *pending, gm_stream_key key)
{
	struct gm_pending_set *set;

	if (key == GM_STREAM_ANY)
		return pending->sets[0];
	set = gm_pending_own(pending, key);
	if (set)
		return set;

	for (unsigned i = 1; i < pending->n_sets; i++) {
		if (pending_set_empty(pending->sets[i])) {
			pending->sets[i]->key = key;
			return pending->sets[i];
		}
	}

	if (pending->n_sets == GM_PENDING_SETS)
		return pending->sets[0];
	set = pending_set_new(key);
	if (!set)
		return pending->sets[0];
	pending->sets[pending->n_sets++] = set;
	return set;
}

uint64_t gm_pending_bytes(const struct gm_pending *pending)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < pending->n_sets; i++)
		bytes += pending->sets[i]->bins.bytes + pending->sets[i]->small_bytes;
	return bytes;
}

/* ---- events */

/* Appends the small objects of a list, which is empty then, to those of another. */
static void pending_fold(
	struct gm_pending *pending, struct gm_small *small, uint64_t to, uint64_t from)
{
	for (unsigned i = 0; i < pending->n_sets; i++) {
		struct gm_pending_set *set = pending->sets[i];

		for (unsigned class = 0; class < GM_SMALL_CLASSES; class ++)
			gm_small_list_append(small, &set->small[to % GM_PENDING_LISTS][class],
				&set->small[from % GM_PENDING_LISTS][class]);
	}
}

bool gm_pending_record_begin(struct gm_pending *pending, bool replace, uint64_t *ret_epoch)
{
	if (!pending->open || pending->recording || (!replace && gm_pending_full(pending)))
		return false;
	pending->recording = true;
	*ret_epoch = pending->epoch++;
	pending->list++;
	pending->open = false;
	return true;
}

struct gm_map_event *gm_pending_record_end(struct gm_pending *pending, struct gm_small *small,
	uint64_t epoch, struct gm_map_event *event)
{
	struct gm_map_event *replaced = NULL;

	pending->recording = false;
	if (event) {
		if (gm_pending_full(pending)) {
			replaced = pending->events[--pending->n_events].event;
			/* The list that has just ended joins that of the replaced event, and the newest takes its place. */
			pending_fold(pending, small, pending->list - 2, pending->list - 1);
			pending_fold(pending, small, pending->list - 1, pending->list);
			pending->list--;
		}
		pending->events[pending->n_events].epoch = epoch;
		pending->events[pending->n_events].list = pending->list - 1;
		pending->events[pending->n_events].event = event;
		pending->n_events++;
		return replaced;
	}

	/* It is as if the epoch had not ended. Stamps in the bins may stay: they are below the
	 * epoch of the next event in any case. */
	pending->open = true;
	pending_fold(pending, small, pending->list - 1, pending->list);
	pending->list--;
	return NULL;
}

bool gm_pending_poll_begin(struct gm_pending *pending,
	struct gm_map_event *ret_events[GM_PENDING_EVENTS], unsigned *ret_n)
{
	if (pending->polling || pending->n_events == 0)
		return false;
	pending->polling = true;
	for (unsigned i = 0; i < pending->n_events; i++)
		ret_events[i] = pending->events[i].event;
	*ret_n = pending->n_events;
	return true;
}

void gm_pending_poll_end(struct gm_pending *pending, unsigned n, uint64_t *ret_epoch)
{
	pending->polling = false;
	*ret_epoch = n ? pending->events[n - 1].epoch : 0;
	if (n)
		pending->settled_list = pending->events[n - 1].list;
	pending->n_events -= n;
	memmove(&pending->events[0], &pending->events[n],
		pending->n_events * sizeof(pending->events[0]));
}

/* ---- memory that waits */

/* The last list that has nothing but what was freed in this epoch or before. */
static uint64_t pending_last_list(const struct gm_pending *pending, uint64_t epoch)
{
	uint64_t list = pending->settled_list;

	for (unsigned i = 0; i < pending->n_events && pending->events[i].epoch <= epoch; i++)
		list = pending->events[i].list;
	return list;
}

/* Empties a set of everything freed in this epoch or before: into another set, as if it were freed
 * there just now; with to NULL, to where it is free for everybody. Returns how many bytes. */
static uint64_t pending_move(struct gm_pending *pending, struct gm_pending_set *set, uint64_t epoch,
	struct gm_heap *heap, struct gm_small *small, struct gm_pending_set *to,
	struct gm_heap_bins *clean)
{
	uint64_t object, bytes = 0;

	while (set->bins.oldest && set->bins.oldest->stamp <= epoch) {
		bytes += set->bins.oldest->bytes;
		gm_heap_rebin(
			heap, set->bins.oldest, to ? &to->bins : clean, to ? pending->epoch : 0);
	}

	uint64_t last = pending_last_list(pending, epoch);
	for (uint64_t e = pending->list - GM_PENDING_LISTS + 1; set->small_bytes && e <= last;
		e++) {
		for (unsigned class = 0; class < GM_SMALL_CLASSES; class ++) {
			struct gm_small_list *list = &set->small[e % GM_PENDING_LISTS][class];

			while ((object = gm_small_list_pop(small, list))) {
				set->small_bytes -= gm_small_bytes(class);
				bytes += gm_small_bytes(class);
				if (to)
					gm_pending_put_small(pending, to, small, class, object);
				else
					gm_small_put(small, object);
			}
		}
	}
	return bytes;
}

uint64_t gm_pending_settle(struct gm_pending *pending, uint64_t epoch, struct gm_heap *heap,
	struct gm_heap_bins *clean, struct gm_small *small)
{
	uint64_t bytes = 0;

	pending->settled = epoch;
	for (unsigned i = 0; i < pending->n_sets; i++)
		bytes += pending_move(pending, pending->sets[i], epoch, heap, small, NULL, clean);
	return bytes;
}

struct gm_pending_set *gm_pending_gather(struct gm_pending *pending, gm_stream_key key,
	uint64_t epoch, struct gm_heap *heap, struct gm_small *small)
{
	struct gm_pending_set *to = gm_pending_set(pending, key);

	if (to == pending->sets[0])
		return NULL;
	pending->open = true;
	for (unsigned i = 0; i < pending->n_sets; i++)
		if (pending->sets[i] != to)
			(void)pending_move(pending, pending->sets[i], epoch, heap, small, to, NULL);
	return to;
}

void gm_pending_put_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class, uint64_t object)
{
	gm_small_list_push(small, &set->small[pending->list % GM_PENDING_LISTS][class], object);
	(void)gm_pending_stamp(pending);
	set->small_bytes += gm_small_bytes(class);
}

uint64_t gm_pending_take_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class)
{
	/* The newest first, because older ones will be free for everybody sooner. */
	for (uint64_t e = pending->list; set->small_bytes && e + GM_PENDING_LISTS > pending->list;
		e--) {
		uint64_t object =
			gm_small_list_pop(small, &set->small[e % GM_PENDING_LISTS][class]);

		if (object) {
			set->small_bytes -= gm_small_bytes(class);
			return object;
		}
	}
	return 0;
}
