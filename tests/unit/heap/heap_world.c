/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for an arena: plain memory, a table of chunks, streams whose work the test finishes. It
 * is strict, so that the arena's promises to its backend and its source are tested by every test.
 */
#include "autoconf.h"

#include "tests/unit/heap/heap_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/bounds.h"

struct gm_map_event {
	uint64_t launched[WORLD_STREAMS];
};

#define demand(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

static int world_reserve(void *ctx, uint64_t bytes, void **ret_addr)
{
	struct world *w = ctx;
	uint8_t *addr;
	uint64_t skip;

	if (bytes > w->reserve_max)
		return -ENOMEM;
	addr = mmap(NULL, bytes + GM_CHUNK_MIN, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED)
		return -ENOMEM;
	skip = -(uintptr_t)addr & (GM_CHUNK_MIN - 1);
	if (skip)
		munmap(addr, skip);
	if (skip < GM_CHUNK_MIN)
		munmap(addr + skip + bytes, GM_CHUNK_MIN - skip);
	w->base = (uintptr_t)(addr + skip);
	w->reserved = bytes;
	*ret_addr = addr + skip;
	return 0;
}

static void world_unreserve(void *ctx, void *addr, uint64_t bytes)
{
	struct world *w = ctx;

	demand((uint64_t)(uintptr_t)addr == w->base && bytes == w->reserved);
	munmap(addr, bytes);
	w->reserved = 0;
}

static struct world_chunk *chunk_at(struct world *w, uint64_t addr)
{
	for (uint64_t i = 1; i < w->next_id; i++) {
		struct world_chunk *c = &w->chunks[i];
		if (c->addr && addr >= c->addr && addr < c->addr + c->bytes)
			return c;
	}
	return NULL;
}

static bool place_free(struct world *w, uint64_t addr, uint64_t bytes)
{
	for (uint64_t i = 1; i < w->next_id; i++) {
		struct world_chunk *c = &w->chunks[i];
		if (c->addr && addr < c->addr + c->bytes && c->addr < addr + bytes)
			return false;
	}
	return addr >= w->base && addr + bytes <= w->base + w->reserved && addr % GM_CHUNK_MIN == 0;
}

static bool fails(unsigned *counter)
{
	if (!*counter)
		return false;
	--*counter;
	return true;
}

static int world_map(void *ctx, void *addr, uint64_t bytes, int fd)
{
	struct world *w = ctx;
	uint64_t id = 0;
	int r = 0;

	/* The fd stands for the chunk: its number is written in the file's position. */
	demand(fd >= 0);
	id = (uint64_t)lseek(fd, 0, SEEK_CUR);
	pthread_mutex_lock(&w->lock);
	demand(id > 0 && id < w->next_id);
	demand(w->chunks[id].out && !w->chunks[id].addr && w->chunks[id].bytes == bytes);
	demand(place_free(w, (uintptr_t)addr, bytes));
	w->maps++;
	if (fails(&w->fail_map))
		r = -EIO;
	else
		w->chunks[id].addr = (uintptr_t)addr;
	w->chunks[id].access = false;
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int world_access(void *ctx, void *addr, uint64_t bytes, bool read_only)
{
	struct world *w = ctx;
	uint64_t at = (uintptr_t)addr, end = at + bytes;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	if (fails(&w->fail_access))
		r = -EIO;
	while (r == 0 && at < end) {
		struct world_chunk *c = chunk_at(w, at);
		demand(c && c->addr == at);
		c->access = true;
		at += c->bytes;
	}
	demand(r || at == end);
	if (r == 0 && mprotect(addr, bytes, PROT_READ | PROT_WRITE) < 0)
		r = -errno;
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int seal(void *addr, uint64_t bytes)
{
	void *p = mmap(addr, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return p == MAP_FAILED ? -errno : 0;
}

static int world_move(void *ctx, void *from, void *to, uint64_t bytes)
{
	struct world *w = ctx;
	struct world_chunk *c;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	c = chunk_at(w, (uintptr_t)from);
	demand(c && c->addr == (uintptr_t)from && c->bytes == bytes);
	demand(place_free(w, (uintptr_t)to, bytes));
	if (fails(&w->fail_move)) {
		r = -EIO;
	} else {
		if (w->leaving)
			w->leaving(w, (uintptr_t)from, bytes);
		r = seal(from, bytes);
		c->addr = (uintptr_t)to;
		c->access = false;
		w->moves++;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int world_unmap(void *ctx, void *addr, uint64_t bytes)
{
	struct world *w = ctx;
	struct world_chunk *c;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	c = chunk_at(w, (uintptr_t)addr);
	demand(c && c->addr == (uintptr_t)addr && c->bytes == bytes);
	if (fails(&w->fail_unmap)) {
		r = -EIO;
	} else {
		if (w->leaving)
			w->leaving(w, (uintptr_t)addr, bytes);
		r = seal(addr, bytes);
		c->addr = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* ---- regions */

static int world_attach(void *ctx, const uint8_t *handle, void **ret_addr)
{
	struct world *w = ctx;
	uint64_t id;
	int r = 0;

	memcpy(&id, handle, sizeof(id));
	pthread_mutex_lock(&w->lock);
	demand(id > 0 && id < w->next_id);
	demand(w->chunks[id].out && !w->chunks[id].addr);
	if (fails(&w->fail_map)) {
		r = -EIO;
	} else if (w->open_as) {
		demand(w->chunks[w->open_as].addr);
		*ret_addr = (void *)(uintptr_t)w->chunks[w->open_as].addr;
		w->opened_as++;
	} else {
		if (!w->next_addr)
			w->next_addr = UINT64_C(0x7e0000000000);
		w->chunks[id].addr = w->next_addr;
		w->chunks[id].access = true;
		w->next_addr += w->chunks[id].bytes;
		*ret_addr = (void *)(uintptr_t)w->chunks[id].addr;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int world_detach(void *ctx, void *addr)
{
	struct world *w = ctx;
	struct world_chunk *c;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	c = chunk_at(w, (uintptr_t)addr);
	demand(c && c->addr == (uintptr_t)addr);
	if (fails(&w->fail_unmap)) {
		r = -EIO;
	} else if (w->opened_as && c == &w->chunks[w->open_as]) {
		w->opened_as--;
	} else {
		if (w->leaving)
			w->leaving(w, c->addr, c->bytes);
		c->addr = 0;
	}
	pthread_mutex_unlock(&w->lock);
	if (r == 0 && w->closed)
		w->closed(w, (uintptr_t)addr);
	return r;
}

/* ---- streams */

static unsigned number(gpumem_stream stream)
{
	return (unsigned)((uintptr_t)stream / 0x1000);
}

/* Waits while *hold. The lock is held. */
static void hold_here(struct world *w, const bool *hold, unsigned *in)
{
	(*in)++;
	pthread_cond_broadcast(&w->changed);
	while (*hold)
		pthread_cond_wait(&w->changed, &w->lock);
	(*in)--;
}

static int world_record(void *ctx, struct gm_map_event **ret_event)
{
	struct world *w = ctx;
	struct gm_map_event *event;

	pthread_mutex_lock(&w->lock);
	w->records++;
	if (fails(&w->fail_record)) {
		pthread_mutex_unlock(&w->lock);
		return -EBUSY;
	}
	event = calloc(1, sizeof(*event));
	if (event) {
		for (unsigned i = 0; i < WORLD_STREAMS; i++)
			event->launched[i] = w->launched[i];
		w->events++;
	}
	hold_here(w, &w->hold_records, &w->in_record);
	pthread_mutex_unlock(&w->lock);
	*ret_event = event;
	return event ? 0 : -ENOMEM;
}

static int world_passed(void *ctx, struct gm_map_event *event)
{
	struct world *w = ctx;
	int r = 1;

	pthread_mutex_lock(&w->lock);
	w->queries++;
	hold_here(w, &w->hold_queries, &w->in_query);
	for (unsigned i = 0; i < WORLD_STREAMS; i++) {
		if (w->done[i] < event->launched[i])
			r = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int world_order(void *ctx, gpumem_stream stream, struct gm_map_event *event)
{
	struct world *w = ctx;
	unsigned s = number(stream);

	pthread_mutex_lock(&w->lock);
	demand(s < WORLD_STREAMS);
	w->orders++;
	for (unsigned i = 0; i < WORLD_STREAMS; i++) {
		if (w->behind[s][i] < event->launched[i])
			w->behind[s][i] = event->launched[i];
	}
	pthread_mutex_unlock(&w->lock);
	return 0;
}

static void world_forget(void *ctx, struct gm_map_event *event)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	demand(w->events > 0);
	w->events--;
	pthread_mutex_unlock(&w->lock);
	free(event);
}

static int world_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id)
{
	/* The default stream and the special ones need no number. */
	demand(stream != NULL && number(stream) < WORLD_STREAMS);
	*ret_id = number(stream);
	return 0;
}

void world_launch(struct world *w, unsigned stream)
{
	pthread_mutex_lock(&w->lock);
	w->launched[stream]++;
	pthread_mutex_unlock(&w->lock);
}

void world_finish(struct world *w, unsigned stream)
{
	pthread_mutex_lock(&w->lock);
	w->done[stream] = w->launched[stream];
	pthread_mutex_unlock(&w->lock);
}

void world_finish_all(struct world *w)
{
	for (unsigned i = 0; i < WORLD_STREAMS; i++)
		world_finish(w, i);
}

/* ---- the source */

static uint64_t world_most(void *ctx)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	uint64_t most = w->most ? w->most : UINT64_MAX;
	pthread_mutex_unlock(&w->lock);
	return most;
}

static uint64_t world_room(void *ctx)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	uint64_t room = w->tells_room ? w->capacity - w->granted : UINT64_MAX;
	pthread_mutex_unlock(&w->lock);
	return room;
}

static gpumem_status world_get(void *ctx, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n)
{
	struct world *w = ctx;
	struct gm_heap_source_chunk *chunks;
	uint64_t min = w->chunk_min ? w->chunk_min : GM_CHUNK_MIN;
	uint64_t most = w->chunk_most ? w->chunk_most : GM_CHUNK_MAX;
	gpumem_status status = GPUMEM_OK;
	size_t n = 0;

	demand(bytes > 0 && bytes % GM_CHUNK_MIN == 0);
	pthread_mutex_lock(&w->lock);
	w->gets++;
	w->last_get = bytes;
	if (bytes > w->largest_get)
		w->largest_get = bytes;
	w->in_get++;
	pthread_cond_broadcast(&w->changed);
	while (w->hold_gets && bytes >= w->hold_from)
		pthread_cond_wait(&w->changed, &w->lock);
	w->in_get--;
	bytes = (bytes + min - 1) / min * min;
	if (fails(&w->fail_gets))
		status = w->fail_status;
	else if (bytes > w->capacity - w->granted)
		status = GPUMEM_E_NO_MEMORY;
	if (status != GPUMEM_OK) {
		pthread_mutex_unlock(&w->lock);
		return status;
	}
	chunks = calloc(bytes / min, sizeof(*chunks));
	demand(chunks != NULL);
	if (w->regions) {
		uint64_t id = w->next_id++;
		demand(id < WORLD_CHUNKS);
		w->chunks[id] = (struct world_chunk){.bytes = bytes, .out = true};
		w->granted += bytes;
		chunks[n] = (struct gm_heap_source_chunk){.id = id, .bytes = bytes, .fd = -1};
		memcpy(chunks[n++].ipc, &id, sizeof(id));
		bytes = 0;
	}
	for (uint64_t size = most; bytes; size /= 2) {
		for (; bytes >= size; bytes -= size) {
			uint64_t id = w->next_id++;
			demand(id < WORLD_CHUNKS);
			w->chunks[id] = (struct world_chunk){.bytes = size, .out = true};
			w->granted += size;
			chunks[n].id = id;
			chunks[n].bytes = size;
			chunks[n].fd = memfd_create("chunk", MFD_CLOEXEC);
			demand(chunks[n].fd >= 0);
			demand(lseek(chunks[n].fd, (off_t)id, SEEK_SET) == (off_t)id);
			n++;
		}
	}
	pthread_mutex_unlock(&w->lock);
	*ret_chunks = chunks;
	*ret_n = n;
	return GPUMEM_OK;
}

static void world_put(void *ctx, const uint64_t *ids, size_t n)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->in_put++;
	pthread_cond_broadcast(&w->changed);
	while (w->hold_puts)
		pthread_cond_wait(&w->changed, &w->lock);
	w->in_put--;
	for (size_t i = 0; i < n; i++) {
		struct world_chunk *c = &w->chunks[ids[i]];
		demand(ids[i] > 0 && ids[i] < w->next_id);
		demand(c->out && !c->addr);
		c->out = false;
		w->granted -= c->bytes;
		w->puts++;
	}
	pthread_mutex_unlock(&w->lock);
}

void world_release_gets(struct world *w)
{
	pthread_mutex_lock(&w->lock);
	w->hold_gets = false;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

void world_await_gets(struct world *w, unsigned n)
{
	pthread_mutex_lock(&w->lock);
	while (w->in_get < n)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void world_await_asked(struct world *w, uint64_t gets)
{
	pthread_mutex_lock(&w->lock);
	while (w->gets < gets)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void world_release_puts(struct world *w)
{
	pthread_mutex_lock(&w->lock);
	w->hold_puts = false;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

void world_await_puts(struct world *w, unsigned n)
{
	pthread_mutex_lock(&w->lock);
	while (w->in_put < n)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void world_release(struct world *w, bool *hold)
{
	pthread_mutex_lock(&w->lock);
	*hold = false;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void world_await(struct world *w, const unsigned *in, unsigned n)
{
	pthread_mutex_lock(&w->lock);
	while (*in < n)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void world_release_records(struct world *w)
{
	world_release(w, &w->hold_records);
}

void world_await_records(struct world *w, unsigned n)
{
	world_await(w, &w->in_record, n);
}

void world_release_queries(struct world *w)
{
	world_release(w, &w->hold_queries);
}

void world_await_queries(struct world *w, unsigned n)
{
	world_await(w, &w->in_query, n);
}

/* ---- the whole */

void world_init(struct world *w, bool streams, uint64_t capacity)
{
	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->capacity = capacity;
	w->fail_status = GPUMEM_E_NO_MEMORY;
	w->next_id = 1;
	w->reserve_max = UINT64_C(8) << 30;
	w->ops = (struct gm_map_ops){
		.name = "world",
		.reserve = world_reserve,
		.unreserve = world_unreserve,
		.map = world_map,
		.access = world_access,
		.move = world_move,
		.unmap = world_unmap,
		.attach = world_attach,
		.detach = world_detach,
		.record = streams ? world_record : NULL,
		.passed = world_passed,
		.order = world_order,
		.forget = world_forget,
		.stream_id = world_stream_id,
	};
	w->source = (struct gm_heap_source){
		.ctx = w,
		.get = world_get,
		.room = world_room,
		.most = world_most,
		.put = world_put,
	};
}

void world_deinit(struct world *w)
{
	demand(w->granted == 0);
	demand(w->events == 0);
	demand(w->reserved == 0);
	for (uint64_t i = 1; i < w->next_id; i++)
		demand(!w->chunks[i].out && !w->chunks[i].addr);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

static void count_wake(void *ctx)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->wakes++;
	pthread_mutex_unlock(&w->lock);
}

struct gm_arena *world_arena(struct world *w, uint64_t decay_ns)
{
	struct gm_arena_config config = {
		.ops = &w->ops,
		.backend = w,
		.source = w->source,
		.regions = w->regions,
		.decay_ns = decay_ns,
		.wake = count_wake,
		.wake_ctx = w,
	};
	struct gm_arena *arena = NULL;

	demand(gm_arena_new(&config, &arena) == 0);
	return arena;
}
