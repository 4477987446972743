/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text/message.h"
#include "preload/broker/preload_broker.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/cancel.h"
#include "common/clock.h"
#include "common/lock.h"
#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_plan.h"
#include "preload/preload.h"
#include "preload/driver/preload_contexts.h"
#include "preload/driver/preload_next.h"
#include "preload/broker/preload_pressure.h"
#include "preload/broker/preload_report.h"

/* The functions of the client library that are called here. X(function). */
#define BROKER_CLIENT(X) \
	X(gpumem_connect) \
	X(gpumem_count_passed) \
	X(gpumem_device_count) \
	X(gpumem_device_info) \
	X(gpumem_alloc) \
	X(gpumem_free) \
	X(gpumem_buffer_destroy) \
	X(gpumem_buffer_ptr) \
	X(gpumem_buffer_size) \
	X(gpumem_share_ptr) \
	X(gpumem_open_piece) \
	X(gpumem_chunk_create) \
	X(gpumem_chunk_fd) \
	X(gpumem_chunk_destroy) \
	X(gpumem_capture_begin) \
	X(gpumem_capture_end) \
	X(gpumem_capture_keep_out) \
	X(gpumem_capture_let_in) \
	X(gpumem_host_alloc) \
	X(gpumem_on_event) \
	X(gpumem_stats) \
	X(gpumem_trim) \
	X(gpumem_declare) \
	X(gpumem_undeclare) \
	X(gpumem_place_each) \
	X(gpumem_error_detail)

static struct broker_client {
#define BROKER_MEMBER(name) __typeof__(&name) name;
	BROKER_CLIENT(BROKER_MEMBER)
#undef BROKER_MEMBER
} broker_client;

enum broker_state {
	BROKER_NEW,
	BROKER_SESSION,
	BROKER_PLAIN, /* there is no daemon, and the program may run without */
};

#define BROKER_DEVICES 64

static struct gm_lock broker_lock = GM_LOCK_INITIALIZER(GM_LOCK_BROKER);
static _Atomic enum broker_state broker_state;
static _Atomic unsigned broker_beginning; /* threads that have the lock, or wait for it */
static atomic_bool broker_forked;
static gpumem_session *broker_session;
/* 0: not looked for; 1: the daemon does not have it; else the daemon's number + 2. */
static _Atomic uint32_t broker_numbers[BROKER_DEVICES];

static _Atomic uint64_t broker_untold; /* passed calls that the daemon does not know of */

/* ---- a daemon that is away */

/* How long a program waits for a daemon that restarts. The library waits as long, but no longer than a call may wait for
 * memory; and before there is a session, it waits only if it sees the daemon's keeper. */
#define BROKER_AWAY_NS (30 * GM_NS_PER_S)

/* Whether there is still time, and if so, lets a little of it go by. */
static bool broker_pause(uint64_t since_ns)
{
	const struct timespec pause = {.tv_nsec = 20 * GM_NS_PER_MS};

	if (gm_clock_ns() - since_ns >= BROKER_AWAY_NS)
		return false;
	(void)nanosleep(&pause, NULL);
	return true;
}

/* Whether a call that may have waited is to be made again. *since_ns begins as 0. */
static bool broker_again(gpumem_status status, uint64_t *since_ns)
{
	uint32_t wait_ms = gm_preload_settings()->wait_ms;

	if (__builtin_expect(status != GPUMEM_E_DISCONNECTED, 1))
		return false;
	/* How long the library has waited for the daemon. */
	uint64_t waited_ns = !wait_ms                    ? BROKER_AWAY_NS
			     : wait_ms == GPUMEM_NO_WAIT ? 0
							 : wait_ms * GM_NS_PER_MS;
	if (waited_ns >= BROKER_AWAY_NS)
		return false;
	if (!*since_ns)
		*since_ns = gm_clock_ns() - waited_ns;
	return broker_pause(*since_ns);
}

/* ---- captures */

/* How many captures of the program have begun, or are about to begin, and have not ended. */
static struct gm_lock broker_captures_lock = GM_LOCK_INITIALIZER(GM_LOCK_BROKER_CAPTURES);
static _Atomic unsigned broker_captures; /* written with the lock held */
static bool broker_captures_told;        /* the client library knows of each of them */

/* Tells the client library of the captures that began before there was a session. No capture ends meanwhile: the library
 * would hear of its end first. */
static void broker_captures_tell(void)
{
	gm_lock(&broker_captures_lock);
	for (unsigned i = 0, n = atomic_load(&broker_captures); i < n; i++)
		broker_client.gpumem_capture_begin();
	broker_captures_told = true;
	gm_lock_drop(&broker_captures_lock);
}

void gm_preload_capture_begin(void)
{
	gm_lock(&broker_captures_lock);
	atomic_fetch_add(&broker_captures, 1);
	bool tell = broker_captures_told;
	gm_lock_drop(&broker_captures_lock);

	/* The library may wait in this call. Captures of other threads may end meanwhile. */
	if (tell)
		broker_client.gpumem_capture_begin();
}

bool gm_preload_capture_end(void)
{
	gm_lock(&broker_captures_lock);
	if (broker_captures_told)
		broker_client.gpumem_capture_end();
	bool last = atomic_fetch_sub(&broker_captures, 1) == 1;
	gm_lock_drop(&broker_captures_lock);
	return last;
}

bool gm_preload_capturing(void)
{
	return atomic_load_explicit(&broker_captures, memory_order_acquire);
}

bool gm_preload_capture_keep_out(void)
{
	return broker_client.gpumem_capture_keep_out() == GPUMEM_OK;
}

void gm_preload_capture_let_in(void)
{
	broker_client.gpumem_capture_let_in();
}

/* ---- the session */

/* If the parent has used CUDA, the child cannot. Nobody captures in the child, whatever its parent's threads were doing. */
static void broker_after_fork(void)
{
	if (atomic_load(&broker_state) == BROKER_SESSION || atomic_load(&broker_beginning))
		atomic_store(&broker_forked, true);
	gm_lock_init(&broker_captures_lock, GM_LOCK_BROKER_CAPTURES);
	atomic_store(&broker_captures, 0);
	broker_captures_told = false;
	gm_preload_pressure_after_fork();
	gm_preload_report_after_fork();
}

static __attribute__((constructor)) void broker_prepare(void)
{
	pthread_atfork(NULL, NULL, broker_after_fork);
	gm_preload_report_begin();
}

/* Loads the client library, with the lock held. Tries it once: with glibc 2.36, a library that is loaded
 * again after dlopen() lacked memory crashes where it uses its thread-local variables. */
static bool broker_load(const char **ret_why)
{
	static bool tried;
	static char why[256]; /* it could not be loaded */
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {
#define BROKER_ROW(name) {#name, offsetof(struct broker_client, name)},
		BROKER_CLIENT(BROKER_ROW)
#undef BROKER_ROW
	};
	struct broker_client found;

	*ret_why = why;
	if (tried)
		return false;
	tried = true;
	void *library = dlopen("libgpumem-client.so.0", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
		void *fn = gm_driver_next_symbol(library, functions[i].name);
		if (!fn)
			library = NULL;
		else
			memcpy((char *)&found + functions[i].offset, &fn, sizeof fn);
	}

	/* An older library may have a part of them. */
	if (library) {
		broker_client = found;
	} else {
		const char *error = dlerror();
		snprintf(why, sizeof why, "%s",
			error ? error : "libgpumem-client.so.0 cannot be loaded");
	}
	return library;
}

static bool broker_connect(const char **ret_why)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;

	if (!broker_client.gpumem_connect && !broker_load(ret_why))
		return false;
	options.name = gm_preload_settings()->name;
	options.peers = 1; /* as memory of cuMemAlloc() after cuCtxEnablePeerAccess() */
	options.host_will_do = gm_preload_settings()->spill;
	const uint64_t since_ns = gm_clock_ns();
	gpumem_status status = broker_client.gpumem_connect(&options, &broker_session);
	/* gpumem-run has seen the daemon, so it restarts, also if its keeper cannot be seen from here. One that does not come back
	 * is not waited for again. */
	static bool waited;
	while (status == GPUMEM_E_DISCONNECTED && gm_preload_settings()->devices && !waited) {
		waited = !broker_pause(since_ns);
		if (!waited)
			status = broker_client.gpumem_connect(&options, &broker_session);
	}
	if (status) {
		*ret_why = broker_client.gpumem_error_detail();
		/* Nothing else would tell the user that a limit in the environment is not one. */
		if (status == GPUMEM_E_INVALID && !gm_preload_settings()->optional)
			gm_preload_report_tell(*ret_why);
		return false;
	}
	broker_captures_tell();
	(void)broker_client.gpumem_on_event(broker_session, gm_preload_pressure_event, NULL);
	return true;
}

/* With the lock held. */
static enum broker_state broker_try(void)
{
	const char *why = NULL;

	if (broker_connect(&why))
		return BROKER_SESSION;
	if (!gm_preload_settings()->optional) {
		gm_preload_report_why(why ? why : "libgpumem-client.so.0 cannot be loaded");
		return BROKER_NEW; /* the next call tries again */
	}
	char text[512];
	snprintf(text, sizeof text, "the program runs without gpumemd: %s", why ? why : "");
	gm_message("gpumem-run", text);
	return BROKER_PLAIN;
}

bool gm_preload_there(void)
{
	return atomic_load_explicit(&broker_state, memory_order_acquire) == BROKER_SESSION &&
	       !atomic_load_explicit(&broker_forked, memory_order_relaxed);
}

enum gm_preload_answer gm_preload_begin(void)
{
	if (__builtin_expect(gm_preload_there(), 1))
		return GM_BROKER_READY;
	if (gm_preload_settings()->off || atomic_load(&broker_forked) ||
		atomic_load(&broker_state) == BROKER_PLAIN)
		return GM_BROKER_ABSENT;

	GM_UNCANCELLED;
	atomic_fetch_add(&broker_beginning, 1);
	gm_lock(&broker_lock);
	enum broker_state state = atomic_load(&broker_state);
	if (state == BROKER_NEW) {
		state = broker_try();
		atomic_store_explicit(&broker_state, state, memory_order_release);
	}
	gm_lock_drop(&broker_lock);
	atomic_fetch_sub(&broker_beginning, 1);

	return state == BROKER_SESSION ? GM_BROKER_READY
	       : state == BROKER_PLAIN ? GM_BROKER_ABSENT
				       : GM_BROKER_REFUSED;
}

gm_cu_result gm_preload_refuse(void)
{
	gm_preload_report_refused();
	return GM_CUDA_ERROR_SYSTEM_NOT_READY;
}

/* ---- devices */

/* The number + 2 of the device with that UUID among the daemon's, or 1. 0: the daemon does not say. */
static uint32_t broker_find(const gm_cu_uuid *uuid)
{
	uint32_t n = 0, none = 1;

	if (broker_client.gpumem_device_count(broker_session, &n))
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
		if (broker_client.gpumem_device_info(broker_session, i, &info) != GPUMEM_OK)
			none = 0;
		else if (strcmp(info.backend, "cuda") == 0 &&
			 memcmp(info.uuid, uuid->bytes, sizeof info.uuid) == 0)
			return i + 2;
	}
	return none;
}

bool gm_preload_uuid(const gm_cu_uuid *uuid, uint32_t *ret_number)
{
	uint32_t found = broker_find(uuid);

	if (found < 2)
		return false;
	*ret_number = found - 2;
	return true;
}

bool gm_preload_serves(const gm_cu_uuid *uuid)
{
	const char *devices = gm_preload_settings()->devices;
	char text[sizeof "GPU-00000000-0000-0000-0000-000000000000"] = "GPU-", *at = text + 4;

	if (gm_preload_there())
		return broker_find(uuid) >= 2;
	if (!devices)
		return true;
	for (size_t i = 0; i < sizeof uuid->bytes; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			(unsigned char)uuid->bytes[i]);
	return strstr(devices, text);
}

bool gm_preload_device(const struct gm_driver *driver, gm_cu_device device, uint32_t *ret_number)
{
	gm_cu_uuid uuid;

	if (device < 0 || device >= BROKER_DEVICES)
		return false;
	uint32_t known = atomic_load_explicit(&broker_numbers[device], memory_order_relaxed);
	if (!known) {
		if (!driver->cuDeviceGetUuid_v2 || driver->cuDeviceGetUuid_v2(&uuid, device))
			return false;
		known = broker_find(&uuid);
		atomic_store_explicit(&broker_numbers[device], known, memory_order_relaxed);
	}
	if (known < 2)
		return false;

	*ret_number = known - 2;
	return true;
}

static _Atomic uint64_t broker_age = 1;

/* The context that gm_preload_current() last found in this thread. */
static GM_PRELOAD_THREAD struct {
	gm_cu_ctx ctx;
	gm_cu_ctx owner; /* of the memory */
	uint64_t age;
	uint32_t number;
} broker_here;

uint64_t gm_preload_age(void)
{
	return atomic_load_explicit(&broker_age, memory_order_acquire);
}

void gm_preload_grow_old(void)
{
	atomic_fetch_add_explicit(&broker_age, 1, memory_order_acq_rel);
}

/* The slow way: asks the driver for the device of the context, which is current. */
static __attribute__((noinline, cold)) bool broker_look(
	const struct gm_driver *driver, gm_cu_ctx ctx, uint64_t age)
{
	gm_cu_device device;
	uint32_t number;

	if (driver->cuCtxGetDevice(&device) || !gm_preload_device(driver, device, &number))
		return false;
	broker_here.ctx = ctx;
	broker_here.owner = gm_driver_contexts_owner(driver, ctx, device);
	broker_here.age = age;
	broker_here.number = number;
	return true;
}

bool gm_preload_current(const struct gm_driver *driver, gm_cu_ctx *ret_ctx, uint32_t *ret_number)
{
	uint64_t age = gm_preload_age();
	gm_cu_ctx ctx = NULL;

	if (driver->cuCtxGetCurrent(&ctx) || !ctx)
		return false;
	if ((broker_here.ctx != ctx || broker_here.age != age) && !broker_look(driver, ctx, age))
		return false;
	*ret_ctx = broker_here.owner;
	*ret_number = broker_here.number;
	return true;
}

/* ---- memory */

static gm_cu_result broker_result(gpumem_status status)
{
	switch (status) {
	case GPUMEM_OK:
		return GM_CUDA_SUCCESS;
	case GPUMEM_E_NO_MEMORY:
	case GPUMEM_E_LIMIT:
	case GPUMEM_E_TIMEOUT:
	case GPUMEM_E_DEADLOCK:
	case GPUMEM_E_HOST_MEMORY:
	case GPUMEM_E_INVALID: /* of all arguments, only the size can be: it is more than any memory */
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	case GPUMEM_E_UNSUPPORTED:
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	case GPUMEM_E_SYSTEM: /* as the driver, if it can open no file */
		return GM_CUDA_ERROR_OPERATING_SYSTEM;
	case GPUMEM_E_DENIED:
		return GM_CUDA_ERROR_NOT_PERMITTED;
	case GPUMEM_E_DISCONNECTED:
		return GM_CUDA_ERROR_SYSTEM_NOT_READY;
	case GPUMEM_E_FORKED:
		return GM_CUDA_ERROR_NOT_INITIALIZED;
	default:
		return GM_CUDA_ERROR_UNKNOWN;
	}
}

/* As the driver aligns: textures may be bound to memory of cuMemAlloc(). */
#define BROKER_ALIGNMENT 512

gm_cu_result gm_preload_alloc(
	uint32_t number, size_t bytes, gpumem_stream stream, gm_cu_ptr *ret_ptr)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;

	options.alignment = BROKER_ALIGNMENT;
	options.wait_ms = gm_preload_settings()->wait_ms;
	uint64_t since_ns = 0;
	gpumem_status status;
	do
		status = broker_client.gpumem_alloc(
			broker_session, number, bytes, stream, &options, &ptr);
	while (broker_again(status, &since_ns));
	if (status) {
		gm_preload_report_why(broker_client.gpumem_error_detail());
		return broker_result(status);
	}

	*ret_ptr = (gm_cu_ptr)(uintptr_t)ptr;
	return GM_CUDA_SUCCESS;
}

/* The allocation has waited for the device already, as long as it may. So it waits for host memory no longer than other
 * clients need to return what they do not use: reclaim_deadline, by default. 0 would mean as the daemon is configured. */
#define BROKER_SPILL_WAIT_MS 100

bool gm_preload_spill(size_t bytes, gm_cu_ptr *ret_ptr)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;

	if (!gm_preload_settings()->spill)
		return false;
	options.alignment = BROKER_ALIGNMENT;
	options.wait_ms = BROKER_SPILL_WAIT_MS;
	uint64_t since_ns = gm_clock_ns();
	gpumem_status status;
	do
		status = broker_client.gpumem_host_alloc(broker_session, bytes, &options, &ptr);
	while (status == GPUMEM_E_DISCONNECTED && broker_pause(since_ns));
	if (status) {
		gm_preload_report_why_host(broker_client.gpumem_error_detail());
		return false;
	}

	*ret_ptr = (gm_cu_ptr)(uintptr_t)ptr;
	return true;
}

void gm_preload_free(gm_cu_ptr ptr, gpumem_stream stream)
{
	/* It can fail only for pointers that are not the library's. */
	(void)broker_client.gpumem_free(broker_session, (void *)(uintptr_t)ptr, stream);
}

/* The driver's is page-aligned, but for small pieces. */
#define BROKER_HOST_ALIGNMENT 4096

bool gm_preload_host_alloc(size_t bytes, void **ret_ptr)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;

	options.alignment =
		bytes < BROKER_HOST_ALIGNMENT ? BROKER_ALIGNMENT : BROKER_HOST_ALIGNMENT;
	options.wait_ms = GPUMEM_NO_WAIT;
	return broker_client.gpumem_host_alloc(broker_session, bytes, &options, ret_ptr) ==
	       GPUMEM_OK;
}

gm_cu_result gm_preload_declare(uint32_t number, uint64_t bytes, bool *ret_charged)
{
	uint32_t wait_ms = gm_preload_settings()->wait_ms;
	uint64_t trimmed = 0, since_ns = 0;
	gpumem_status status;

	do
		status = broker_client.gpumem_declare(broker_session, number, bytes, wait_ms);
	while (broker_again(status, &since_ns));
	if (status)
		gm_preload_report_why(broker_client.gpumem_error_detail());

	/* What the library only caches may be what is in the way. */
	if (status && broker_result(status) == GM_CUDA_ERROR_OUT_OF_MEMORY &&
		broker_client.gpumem_trim(broker_session, &trimmed) == GPUMEM_OK && trimmed)
		status = broker_client.gpumem_declare(broker_session, number, bytes, wait_ms);
	if (status == GPUMEM_E_UNSUPPORTED) {
		*ret_charged = false;
		return GM_CUDA_SUCCESS;
	}
	if (status)
		gm_preload_report_refused();
	*ret_charged = !status;
	return broker_result(status);
}

void gm_preload_undeclare(uint32_t number, uint64_t bytes)
{
	(void)broker_client.gpumem_undeclare(broker_session, number, bytes);
}

uint64_t gm_preload_cached(uint32_t number)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;

	if (broker_client.gpumem_stats(broker_session, number, &stats))
		return 0;
	return stats.allocated > stats.in_use ? stats.allocated - stats.in_use : 0;
}

void gm_preload_trim(void)
{
	(void)broker_client.gpumem_trim(broker_session, NULL);
}

gm_cu_result gm_preload_chunk(uint32_t number, size_t bytes, gpumem_chunk **ret_chunk, int *ret_fd)
{
	gpumem_chunk_options options = GPUMEM_CHUNK_OPTIONS_INIT;

	options.wait_ms = gm_preload_settings()->wait_ms;
	uint64_t since_ns = 0;
	gpumem_status status;
	do
		status = broker_client.gpumem_chunk_create(
			broker_session, number, bytes, &options, ret_chunk, ret_fd);
	while (broker_again(status, &since_ns));
	if (status) {
		if (status != GPUMEM_E_UNSUPPORTED) {
			gm_preload_report_why(broker_client.gpumem_error_detail());
			gm_preload_report_refused();
		}
		return broker_result(status);
	}

	gm_preload_report_chunk(bytes);
	return GM_CUDA_SUCCESS;
}

gm_cu_result gm_preload_chunk_fd(gpumem_chunk *chunk, int *ret_fd)
{
	return broker_result(broker_client.gpumem_chunk_fd(chunk, ret_fd));
}

void gm_preload_chunk_end(gpumem_chunk *chunk)
{
	if (chunk)
		broker_client.gpumem_chunk_destroy(chunk);
}

gm_cu_result gm_preload_share(gm_cu_ptr ptr, gpumem_piece *ret_piece)
{
	return broker_result(broker_client.gpumem_share_ptr(
		broker_session, (const void *)(uintptr_t)ptr, ret_piece));
}

gm_cu_result gm_preload_open(const gpumem_piece *piece, gpumem_buffer **ret_buffer,
	gm_cu_ptr *ret_start, uint64_t *ret_bytes)
{
	gpumem_buffer *buffer;
	gpumem_status status = broker_client.gpumem_open_piece(broker_session, piece, &buffer);
	if (status == GPUMEM_E_NOT_FOUND)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if (status)
		return broker_result(status);

	*ret_start = (gm_cu_ptr)(uintptr_t)broker_client.gpumem_buffer_ptr(buffer);
	*ret_bytes = broker_client.gpumem_buffer_size(buffer);
	*ret_buffer = buffer;
	return GM_CUDA_SUCCESS;
}

void gm_preload_buffer_end(gpumem_buffer *buffer)
{
	if (buffer)
		broker_client.gpumem_buffer_destroy(buffer);
}

struct broker_asked {
	uint32_t number;
	bool found;
	uint64_t room;
};

static void broker_placement(void *user, const gpumem_placement *placement)
{
	struct broker_asked *asked = user;

	if (placement->device == asked->number) {
		asked->found = true;
		asked->room = placement->room;
	}
}

bool gm_preload_room(uint32_t number, uint64_t *ret_bytes)
{
	struct broker_asked asked = {.number = number};
	gpumem_stats_t stats = GPUMEM_STATS_INIT;

	if (broker_client.gpumem_place_each(broker_session, 1, broker_placement, &asked) ||
		!asked.found || broker_client.gpumem_stats(broker_session, number, &stats))
		return false;
	*ret_bytes = asked.room + stats.pooled;
	return true;
}

/* ---- the report */

void gm_preload_count_passed(enum gm_preload_call call)
{
	const struct gm_driver *driver = gm_driver();
	uint32_t number;
	gm_cu_ctx ctx;

	gm_preload_report_passed(call);
	atomic_fetch_add_explicit(&broker_untold, 1, memory_order_relaxed);
	if (!driver || !gm_preload_there() || !gm_preload_current(driver, &ctx, &number))
		return;
	uint64_t n = atomic_exchange_explicit(&broker_untold, 0, memory_order_relaxed);
	(void)broker_client.gpumem_count_passed(broker_session, number, n);
}

/* One line for each process that took memory. */
static __attribute__((destructor)) void broker_report(void)
{
	if (!atomic_load(&broker_forked))
		gm_preload_report_print();
}
