/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What streams of the fake driver do to memory: sets, copies, calls. A range is looked at when the
 * work is submitted, and refused as the real driver refuses it, which is not the same for a set and
 * for a copy; and again when the work is done, where memory that is gone makes the context fail.
 */
#include "tests/fake/stream.h"

#include <string.h>
#include <time.h>

#include <utlist.h>

/* ---- doing it */

/* The bytes behind a device address, and how many of them lie in one piece; host addresses stand
 * for themselves. NULL: the device cannot do that there. */
static char *reach(gm_cu_ptr ptr, size_t want, int device, bool write, size_t *ret_n)
{
	struct fake_reservation *reservation;
	struct fake_map *map = fake_map_find((uintptr_t)ptr);

	if (map) {
		size_t left = map->size - ((uintptr_t)ptr - map->va);
		if (!((write ? map->device_write : map->device_access) & 1u << device))
			return NULL;
		*ret_n = want < left ? want : left;
		return map->shadow + ((uintptr_t)ptr - map->va);
	}
	DL_FOREACH (fake.reservations, reservation)
		if (ptr >= reservation->va && ptr < reservation->va + reservation->size)
			return NULL;
	*ret_n = want;
	return (char *)(uintptr_t)ptr;
}

static bool set_bytes(const struct fake_op *op)
{
	size_t piece;

	for (size_t done = 0; done < op->n; done += piece) {
		char *at = reach(op->to + done, op->n - done, op->device, true, &piece);
		if (!at)
			return false;
		memset(at, op->value, piece);
	}
	return true;
}

static bool copy_bytes(const struct fake_op *op)
{
	size_t piece, from_piece;

	for (size_t done = 0; done < op->n; done += piece) {
		size_t left = op->n - done;
		char *to = reach(op->to + done, left, op->device, true, &piece);
		char *from = reach(op->from + done, left, op->device, false, &from_piece);
		if (!to || !from)
			return false;
		if (from_piece < piece)
			piece = from_piece;
		memmove(to, from, piece);
	}
	return true;
}

static bool write_word(const struct fake_op *op)
{
	size_t piece;
	char *at = reach(op->to, sizeof op->word, op->device, true, &piece);

	if (at)
		__atomic_store_n((gm_cu_u64 *)(void *)at, op->word, __ATOMIC_RELEASE);
	return at;
}

/* Whether the word is there. Other processes write it, too. */
static bool word_reached(const struct fake_op *op, bool *ret_ok)
{
	size_t piece;
	const char *at = reach(op->to, sizeof op->word, op->device, false, &piece);

	*ret_ok = at;
	return !at ||
	       (int64_t)(__atomic_load_n((const gm_cu_u64 *)(const void *)at, __ATOMIC_ACQUIRE) -
			 op->word) >= 0;
}

static bool await_word(const struct fake_op *op)
{
	bool reached, ok;

	for (;;) {
		pthread_mutex_lock(&fake.lock);
		reached = word_reached(op, &ok);
		pthread_mutex_unlock(&fake.lock);
		if (reached)
			return ok;
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
}

static void work_failed(void)
{
	__atomic_store_n(&fake.sticky, GM_CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
}

void fake_perform(const struct fake_op *op)
{
	bool ok = true;

	if (op->kind == FAKE_CALL)
		op->fn(op->user);
	if (op->kind == FAKE_AWAIT_WORD && !await_word(op))
		work_failed();
	if (op->kind != FAKE_SET && op->kind != FAKE_COPY && op->kind != FAKE_WRITE_WORD)
		return;
	pthread_mutex_lock(&fake.lock);
	if (op->kind == FAKE_SET)
		ok = set_bytes(op);
	else if (op->kind == FAKE_COPY)
		ok = copy_bytes(op);
	else
		ok = write_word(op);
	if (!ok)
		work_failed();
	pthread_mutex_unlock(&fake.lock);
}

/* ---- looking at ranges */

/* What the driver takes memory for. */
enum kind {
	NOWHERE, /* reserved, and nothing is mapped; or no access for the device */
	PAGEABLE,
	REGISTERED, /* or allocated by cuMemHostAlloc */
	PLAIN,      /* by cuMemAlloc, or opened by an IPC handle */
	DEVICE,     /* a chunk of a device, by cuMemMap */
	HOST,       /* a chunk of host memory, likewise */
};

/* Of what kind the memory at an address is, and how far that one piece goes; with the lock held. */
static enum kind kind_at(gm_cu_ptr ptr, size_t want, int device, size_t *ret_n)
{
	struct fake_reservation *reservation;
	struct fake_map *map = fake_map_find((uintptr_t)ptr);
	enum kind kind;

	*ret_n = want;
	if (map) {
		size_t left = map->size - ((uintptr_t)ptr - map->va);
		*ret_n = want < left ? want : left;
		kind = map->plain ? PLAIN : map->mem->device < 0 ? HOST : DEVICE;
		return map->device_access & 1u << device ? kind : NOWHERE;
	}
	DL_FOREACH (fake.reservations, reservation) {
		if (ptr >= reservation->va && ptr < reservation->va + reservation->size)
			return NOWHERE;
		if (reservation->va > ptr && reservation->va - ptr < want)
			want = (size_t)(reservation->va - ptr);
	}
	return fake_host_find((uintptr_t)ptr, want, ret_n) ? REGISTERED : PAGEABLE;
}

/* A set may go over the border of a host chunk and a device chunk, and of two device chunks, but
 * not of two host chunks. Everything else has to be one piece. */
static bool set_border_ok(enum kind a, enum kind b)
{
	return (a == DEVICE && (b == DEVICE || b == HOST)) || (a == HOST && b == DEVICE);
}

/* A copy may go over borders within one kind of chunk. Over a host and a device chunk the driver
 * takes the whole for the one that it begins with, and the process dies. */
static bool copy_border_ok(enum kind a, enum kind b)
{
	if ((a == HOST && b == DEVICE) || (a == DEVICE && b == HOST))
		fake_undefined("a copy across the border of a host chunk and a device chunk");
	return a == b && (a == DEVICE || a == HOST);
}

static bool range_ok(gm_cu_ptr ptr, size_t n, int device, bool set)
{
	enum kind kind, before = NOWHERE;
	bool ok = true;
	size_t piece;

	pthread_mutex_lock(&fake.lock);
	for (size_t done = 0; done < n && ok; done += piece) {
		kind = kind_at(ptr + done, n - done, device, &piece);
		ok = kind != NOWHERE && !(set && kind == PAGEABLE);
		if (ok && done)
			ok = set ? set_border_ok(before, kind) : copy_border_ok(before, kind);
		before = kind;
	}
	pthread_mutex_unlock(&fake.lock);
	return ok;
}

/* A set is refused in a context that did not open the memory by its IPC handle; kernels and copies
 * reach it. */
static bool opened_elsewhere(gm_cu_ptr ptr, int context)
{
	struct fake_map *map;
	bool elsewhere;

	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	elsewhere = map && map->plain && map->mem->imported && map->context != context;
	pthread_mutex_unlock(&fake.lock);
	return elsewhere;
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuMemsetD8Async(
	gm_cu_ptr to, unsigned char value, size_t n, gm_cu_stream stream);
FAKE_API gm_cu_result cuMemsetD8Async(
	gm_cu_ptr to, unsigned char value, size_t n, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;
	int number, context;

	FAKE_ENTER("cuMemsetD8Async");
	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	number = (int)(device - fake.device);
	if (opened_elsewhere(to, context) || !range_ok(to, n, number, true))
		return GM_CUDA_ERROR_INVALID_VALUE;
	return fake_submit(stream,
		&(struct fake_op){
			.kind = FAKE_SET, .device = number, .to = to, .value = value, .n = n});
}

/* The driver copies pageable memory with the thread that calls, but for a little on the way to a device,
 * which it puts aside. */
#define ASIDE ((size_t)64 << 10)

static bool is_staged(gm_cu_ptr to, gm_cu_ptr from, size_t n, int device)
{
	enum kind to_kind, from_kind;
	size_t piece;

	if (!n)
		return false;
	pthread_mutex_lock(&fake.lock);
	to_kind = kind_at(to, 1, device, &piece);
	from_kind = kind_at(from, 1, device, &piece);
	pthread_mutex_unlock(&fake.lock);
	return to_kind == PAGEABLE || (from_kind == PAGEABLE && n > ASIDE);
}

FAKE_API gm_cu_result cuMemcpyAsync(gm_cu_ptr to, gm_cu_ptr from, size_t n, gm_cu_stream stream);
FAKE_API gm_cu_result cuMemcpyAsync(gm_cu_ptr to, gm_cu_ptr from, size_t n, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;
	int number, context;

	FAKE_ENTER("cuMemcpyAsync");
	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	number = (int)(device - fake.device);
	if (!range_ok(to, n, number, false) || !range_ok(from, n, number, false))
		return GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_op op = {.kind = FAKE_COPY, .device = number, .to = to, .from = from, .n = n};
	return is_staged(to, from, n, number) ? fake_submit_staged(stream, &op)
					      : fake_submit(stream, &op);
}

/* Returns when the copy is done. Only programs outside of the broker call it. */
FAKE_API gm_cu_result cuMemcpyHtoD_v2(gm_cu_ptr to, const void *from, size_t n);
FAKE_API gm_cu_result cuMemcpyHtoD_v2(gm_cu_ptr to, const void *from, size_t n)
{
	gm_cu_result result;

	FAKE_ENTER("cuMemcpyHtoD");
	result = cuMemcpyAsync(to, (gm_cu_ptr)(uintptr_t)from, n, NULL);
	if (result)
		return result;
	fake_streams_await(fake_context());
	return fake_sticky();
}

/* Of all attributes, the type of the memory. Pageable memory is unknown to the driver. */
#define OF_CONTEXT 1 /* CU_POINTER_ATTRIBUTE_CONTEXT */

/* Only of host memory. */
static gm_cu_result get_context(gm_cu_ctx *ctx, gm_cu_ptr ptr)
{
	int context = 0;
	uintptr_t va;
	size_t size;

	pthread_mutex_lock(&fake.lock);
	bool found = fake_host_range((uintptr_t)ptr, &va, &size, &context);
	pthread_mutex_unlock(&fake.lock);
	if (!found)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ctx = fake_context_handle(context);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuPointerGetAttribute(
	void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr);
FAKE_API gm_cu_result cuPointerGetAttribute(
	void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr)
{
	struct fake_device *device;
	gm_cu_result result;
	struct fake_map *map;
	enum kind kind;
	size_t piece;

	FAKE_ENTER("cuPointerGetAttribute");
	if (data && attribute == OF_CONTEXT)
		return get_context(data, ptr);
	if (!data || (attribute != GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
			     attribute != GM_CU_POINTER_ATTRIBUTE_BUFFER_ID))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (map)
		kind = map->plain ? PLAIN : map->mem->device < 0 ? HOST : DEVICE;
	else
		kind = kind_at(ptr, 1, (int)(device - fake.device), &piece);
	/* Only memory that programs allocate by itself needs an id here. */
	uint64_t id = map ? map->mem->id : fake_managed_id((uintptr_t)ptr);
	pthread_mutex_unlock(&fake.lock);
	if (kind == NOWHERE || kind == PAGEABLE)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (attribute == GM_CU_POINTER_ATTRIBUTE_BUFFER_ID) {
		*(unsigned long long *)data = id;
		return GM_CUDA_SUCCESS;
	}
	*(unsigned int *)data = kind == REGISTERED || kind == HOST ? GM_CU_MEMORYTYPE_HOST
								   : GM_CU_MEMORYTYPE_DEVICE;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuLaunchHostFunc(gm_cu_stream stream, gm_cu_host_fn fn, void *user);
FAKE_API gm_cu_result cuLaunchHostFunc(gm_cu_stream stream, gm_cu_host_fn fn, void *user)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuLaunchHostFunc");
	if (!fn)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	return fake_submit(stream, &(struct fake_op){.kind = FAKE_CALL, .fn = fn, .user = user});
}

/* ---- words that streams write and wait for */

static gm_cu_result submit_word(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 word, unsigned int flags, enum fake_kind kind)
{
	struct fake_device *device;
	gm_cu_result result;
	int number, context;

	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	number = (int)(device - fake.device);
	if (fake_without("memops"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if (flags || !at || at % sizeof word || !range_ok(at, sizeof word, number, true))
		return GM_CUDA_ERROR_INVALID_VALUE;
	return fake_submit(
		stream, &(struct fake_op){.kind = kind, .device = number, .to = at, .word = word});
}

FAKE_API gm_cu_result cuStreamWaitValue64_v2(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 value, unsigned int flags);
FAKE_API gm_cu_result cuStreamWaitValue64_v2(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 value, unsigned int flags)
{
	FAKE_ENTER("cuStreamWaitValue64");
	return submit_word(stream, at, value, flags, FAKE_AWAIT_WORD);
}

FAKE_API gm_cu_result cuStreamWriteValue64_v2(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 value, unsigned int flags);
FAKE_API gm_cu_result cuStreamWriteValue64_v2(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 value, unsigned int flags)
{
	FAKE_ENTER("cuStreamWriteValue64");
	return submit_word(stream, at, value, flags, FAKE_WRITE_WORD);
}
