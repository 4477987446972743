/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins and ends a session, and answers what needs no message.
 *
 * The end first unmaps everything and then says goodbye: only after the goodbye may the daemon give
 * the memory to another process. If something could not be unmapped, no goodbye is sent. A forked
 * child ends nothing, because it has only copies.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/device/map_chunks.h"
#include "client/copy/copy_slots.h"
#include "client/device/retired.h"
#include "client/memory/alloc.h"
#include "client/memory/alloc_lists.h"
#include "client/memory/alloc_managed.h"
#include "client/memory/pinned.h"
#include "client/memory/supply.h"
#include "client/region/region.h"
#include "client/region/region_shrink.h"
#include "client/request/request_list.h"
#include "client/session/reconnect.h"
#include "client/session/gpumem_session.h"
#include "client/grant/session_resumption.h"
#include "client/grant/lease_returns.h"
#include "client/session/session_call.h"
#include "client/grant/session_lease.h"
#include "client/session/session_stacks.h"
#include "client/grant/lease_unclaimed.h"
#include "client/thread.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/system/path.h"
#include "common/status_table.h"
#include "common/text/units.h"
#include "common/wire/seqpacket.h"

#define TIMEOUT_MS 10000

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *gpumem_version(void)
{
	return TEXT(GPUMEM_VERSION_MAJOR) "." TEXT(GPUMEM_VERSION_MINOR) "." TEXT(
		GPUMEM_VERSION_PATCH);
}

/* ---- the end */

static void connect_say_goodbye(struct gpumem_session *session, struct gm_conn *conn)
{
	Gm__Wire__Goodbye body = GM__WIRE__GOODBYE__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GOODBYE, goodbye, &body);
	/* If it fails, there is nothing more to do. */
	(void)gm_session_tell_with(session, conn, &packet, &session->goodbye);
}

/* Makes what the folders above client/session keep in the session. */
static int connect_make_lists(struct gpumem_session *session)
{
	int r = gm_retired_init(session);

	if (r == 0)
		r = gm_buffer_list_init(session);
	if (r == 0)
		r = gm_alloc_lists_init(session);
	if (r == 0)
		r = gm_copy_limit_init(session);
	return r ? r : gm_region_list_init(session);
}

/* Frees it. It is empty, or was not made. */
static void connect_free_lists(struct gpumem_session *session)
{
	gm_region_drop_all(session);
	gm_copy_limit_deinit(session);
	gm_alloc_lists_deinit(session);
	gm_buffer_list_deinit(session);
	gm_retired_deinit(session);
}

/* Also frees half-built sessions. */
static void connect_session_free(struct gpumem_session *session)
{
	if (!session)
		return;
	gm_thread_stop(session);
	gm_lock(&session->lock);
	session->state = GM_SESSION_CLOSED;
	struct gm_conn *conn = gm_steal_ptr(&session->conn);
	struct gm_conn *greeting = gm_steal_ptr(&session->greeting);
	pthread_cond_broadcast(&session->changed);
	gm_lock_drop(&session->lock);
	gm_conn_unref(greeting);

	gm_requests_deinit(session);
	if (session->report && session->devices)
		gm_alloc_leaks_report(session);
	gm_alloc_batch_drop_all(session);
	gm_region_drop_all(session);
	gm_pinned_drop_all(session);
	gm_retired_end_all(session);
	gm_buffer_drop_all(session);
	gm_alloc_managed_drop_all(session);
	gm_alloc_raw_chunk_drop_all(session);
	gm_alloc_drop_all(session);
	/* Without a goodbye, the daemon keeps the memory aside while this process lives and has its
	 * page. */
	if (atomic_load(&session->kept))
		gm_session_pages_keep(&session->pages);
	else if (conn)
		connect_say_goodbye(session, conn);
	if (conn)
		gm_conn_unref(conn);

	/* The connection is gone, so no late answer can add to these lists. */
	gm_lease_unclaimed_drop(session);
	gm_lease_returns_drop(session);
	struct gm_session_lease *lease, *tmp;
	DL_FOREACH_SAFE (session->leases, lease, tmp)
		free(lease);
	for (uint32_t i = 0; i < session->devices; i++) {
		gm_supply_free(session->device[i].supply);
		gm_map_chunks_close(&session->device[i]);
	}

	gm_session_pages_deinit(&session->pages);
	gm_close(session->wakeup);
	gm_close(session->wake);
	pthread_cond_destroy(&session->changed);
	gm_lock_deinit(&session->lock);
	gm_lock_deinit(&session->declaring);
	gm_lock_deinit(&session->flushing);
	gm_lock_deinit(&session->opening);
	connect_free_lists(session);
	gm_captures_deinit(&session->captures);
	free(session);
}

void gpumem_disconnect(gpumem_session *session)
{
	GM_UNCANCELLED;

	if (!session)
		return;
	if (!gm_session_ok(session)) {
		(void)gm_session_refused(session);
		return;
	}

	if (gm_thread_inside(session)) {
		(void)gm_error(GPUMEM_E_BUSY,
			"gpumem_disconnect() cannot be called from the event function: call it "
			"from another thread");
		return;
	}

	connect_session_free(session);
}

/* ---- the beginning */

static gpumem_status connect_session_new(struct gpumem_session **ret_session)
{
	struct gpumem_session *session = calloc(1, sizeof(*session));
	if (!session || connect_make_lists(session) < 0) {
		if (session)
			connect_free_lists(session);
		free(session);
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a session");
	}
	session->wakeup = -1;
	session->resume = gm_session_resumption;
	session->trim_regions = gm_region_trim;
	gm_cond_init(&session->changed);
	gm_lock_init(&session->lock, GM_LOCK_SESSION);
	gm_lock_init(&session->flushing, GM_LOCK_FLUSHING);
	gm_lock_init(&session->declaring, GM_LOCK_DECLARING);
	gm_lock_init(&session->opening, GM_LOCK_OPENING);
	gm_captures_init(&session->captures);
	gm_session_pages_init(&session->pages);
	session->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = session->wake < 0 ? -errno : gm_fork_mark(&session->mark);
	if (r == 0)
		r = gm_requests_init(session);
	if (r < 0) {
		connect_session_free(session);
		return gm_error(
			gm_status_from_errno(r), "cannot create a session: %s", strerror(-r));
	}

	*ret_session = session;
	return GPUMEM_OK;
}

static gpumem_status connect_find_socket(struct gpumem_session *session, const char *given)
{
	const char *why = "the socket that was given";
	int r = 0;

	if (given)
		snprintf(session->path, sizeof(session->path), "%s", given);
	else
		r = gm_path_client_socket(session->path, &why);
	if (r < 0)
		return gm_error(gm_status_from_errno(r),
			"cannot tell where gpumemd listens: %s; set GPUMEM_SOCKET", strerror(-r));
	if (strlen(session->path) > GM_BOUND_SOCKET_PATH_BYTES)
		return gm_error(GPUMEM_E_INVALID,
			"the socket path %.40s… (%s) is longer than %d bytes: use a shorter one",
			session->path, why, GM_BOUND_SOCKET_PATH_BYTES);
	snprintf(session->why, sizeof(session->why), "%s", why);
	return GPUMEM_OK;
}

/* The name that was given to gpumem-run; NULL: none. */
static const char *connect_run_name(void)
{
	const char *name = secure_getenv("GPUMEM_RUN_NAME");

	return name && *name && gm_name_ok(name) ? name : NULL;
}

static gpumem_status connect_find_name(struct gpumem_session *session, const char *given)
{
	if (given && !gm_name_ok(given))
		return gm_error(GPUMEM_E_INVALID,
			"the client's name must be printable UTF-8 of at most %d bytes",
			GM_BOUND_NAME_BYTES);
	/* A process that gives itself no name has the one that was given to gpumem-run. */
	const char *name = given ? given : connect_run_name();
	if (!name)
		name = program_invocation_short_name;
	if (gm_name_ok(name))
		snprintf(session->name, sizeof(session->name), "%s", name);
	return GPUMEM_OK;
}

/*
 * All processes below a gpumem-run are one owner to the daemon, whether they use this library by
 * themselves or by the preloaded one. What gpumem-run says about them is in the environment; without it,
 * there is no run. A value that makes no sense is an error, because without it a limit would not hold.
 */
#define RUN_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static gpumem_status connect_find_run(struct gpumem_session *session)
{
	const char *run = secure_getenv("GPUMEM_RUN"), *max = secure_getenv("GPUMEM_RUN_LIMIT"),
		   *priority = secure_getenv("GPUMEM_RUN_PRIORITY"), *name = connect_run_name();
	uint64_t value;

	if (!run)
		return GPUMEM_OK;
	if (!*run || strlen(run) > GM_BOUND_RUN_BYTES || run[strspn(run, RUN_LETTERS)])
		return gm_error(GPUMEM_E_INVALID,
			"the environment variable GPUMEM_RUN must be 1 to %d letters and digits, and is "
			"'%.40s'",
			GM_BOUND_RUN_BYTES, run);
	snprintf(session->run, sizeof(session->run), "%s", run);
	snprintf(session->run_name, sizeof(session->run_name), "%s", name ? name : "");

	if (max && gm_parse_u64(max, &value) < 0)
		return gm_error(GPUMEM_E_INVALID,
			"the environment variable GPUMEM_RUN_LIMIT must be a number of bytes, and is "
			"'%.40s'",
			max);
	if (max)
		session->run_max = value;

	bool minus = priority && *priority == '-';
	if (priority && (gm_parse_u64(priority + minus, &value) < 0 || (value && !minus) ||
				value > GM_PRIORITY_MAX))
		return gm_error(GPUMEM_E_INVALID,
			"the environment variable GPUMEM_RUN_PRIORITY must be a number from -%d to 0, "
			"and is '%.40s'",
			(int)GM_PRIORITY_MAX, priority);
	if (priority)
		session->run_priority = -(int32_t)value;
	return GPUMEM_OK;
}

/* Decides how the session tracks memory: as the program says, or else its environment. */
static gpumem_status connect_find_tracking(struct gpumem_session *session, gpumem_track given)
{
	const char *text = secure_getenv("GPUMEM_TRACK");

	if (given == GPUMEM_TRACK_AUTO && text && *text) {
		if (strcmp(text, "all") != 0 && strcmp(text, "stacks") != 0)
			return gm_error(GPUMEM_E_INVALID,
				"the environment variable GPUMEM_TRACK must be all or stacks, and "
				"is %.40s",
				text);
		given = *text == 'a' ? GPUMEM_TRACK_ALL : GPUMEM_TRACK_STACKS;
	}

	switch (given) {
	case GPUMEM_TRACK_AUTO:
		break;
	case GPUMEM_TRACK_ALL:
		session->tracking = GM_SESSION_TRACK_ALL;
		break;
	case GPUMEM_TRACK_STACKS:
		session->tracking = GM_SESSION_TRACK_STACKS;
		break;
	default:
		return gm_error(GPUMEM_E_INVALID, "there is no way of tracking %d", (int)given);
	}
	session->report = session->tracking != GM_SESSION_TRACK_LATER;
	return GPUMEM_OK;
}

/* Begins to track. The daemon may want stacks of programs that do not ask for them. */
static gpumem_status connect_begin_tracking(
	struct gpumem_session *session, const struct gm_conn_hello *hello)
{
	struct gm_session_pages *pages = &session->pages;

	if (!session->report && hello->track == GM_TRACK_STACKS)
		session->tracking = GM_SESSION_TRACK_STACKS;
	pages->own_rows = session->report;
	if (session->tracking != GM_SESSION_TRACK_STACKS || !pages->noted)
		return GPUMEM_OK;
	pages->stacks = gm_session_stacks_new(pages->client);
	return pages->stacks ? GPUMEM_OK
			     : gm_error(GPUMEM_E_HOST_MEMORY, "no memory for call stacks");
}

static gpumem_status connect_set_up_devices(struct gpumem_session *session)
{
	gpumem_device_info_t infos[GM_BOUND_DEVICES];
	uint32_t n = 0;
	/* Via the connection, because it is the whole try that is repeated if the daemon is away. */
	gpumem_status status = gm_session_devices(session, session->conn, infos, &n);
	if (status)
		return status;
	for (uint32_t i = 0; i < n; i++) {
		struct gm_session_device *d = &session->device[i];
		d->info = infos[i];
		session->devices = i + 1;
		session->counted += d->info.number != GPUMEM_DEVICE_HOST;
		int r = gm_supply_new(
			session, i, d->info.transport == GPUMEM_TRANSPORT_IPC, &d->supply);
		if (r < 0)
			return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a device");
	}
	return GPUMEM_OK;
}

static gpumem_status connect_greet(struct gpumem_session *session)
{
	struct gm_conn_hello hello;
	bool refused;
	gpumem_status status = gm_session_hello(session, true, 0, &hello, &refused);
	if (status)
		return status;

	int r = gm_session_pages_map(&session->pages, hello.daemon_page, hello.client_page);
	if (r < 0) {
		gm_conn_hello_deinit(&hello);
		return gm_error(r == -EBADMSG ? GPUMEM_E_PROTOCOL : gm_status_from_errno(r),
			"the pages that gpumemd at %s sent cannot be used: %s", session->path,
			strerror(-r));
	}

	status = connect_begin_tracking(session, &hello);
	gm_session_adopt(session, &hello);
	if (!status)
		status = connect_set_up_devices(session);
	if (!status) {
		r = gm_thread_start(session, gm_steal_fd(&session->wakeup));
		if (r < 0)
			status = gm_error(gm_status_from_errno(r),
				"cannot start the library's thread: %s", strerror(-r));
	}

	gm_conn_hello_deinit(&hello);
	return status;
}

/* Whether the daemon at the path restarts, as far as one can see: its keeper is there. */
static bool connect_expects(const char *path)
{
	char keeper[GM_PATH_BYTES];

	return gm_path_keeper_socket(path, keeper) == 0 && gm_seqpacket_is_bound(keeper);
}

/* Connects once. *ret_expected is always written: whether it failed because the daemon is away, and will come back. */
static gpumem_status connect_try(const gpumem_connect_options *given,
	struct gpumem_session **ret_session, bool *ret_expected)
{
	struct gpumem_session *session = NULL;

	*ret_expected = false;
	gpumem_status status = connect_session_new(&session);
	if (status)
		return status;

	session->peers = given->peers != 0;
	session->host_will_do = given->host_will_do != 0;
	session->away_ns = given->away_ms * GM_NS_PER_MS;
	session->timeout_ns = (given->timeout_ms ? given->timeout_ms : TIMEOUT_MS) * GM_NS_PER_MS;
	status = connect_find_socket(session, given->socket);
	if (!status)
		status = connect_find_name(session, given->name);
	if (!status)
		status = connect_find_tracking(session, given->track);
	if (!status)
		status = connect_find_run(session);
	if (!status)
		status = connect_greet(session);
	if (status) {
		char text[GM_ERROR_BYTES];
		snprintf(text, sizeof(text), "%s", gm_error_text());
		*ret_expected = status == GPUMEM_E_DISCONNECTED && connect_expects(session->path);
		connect_session_free(session);
		return gm_error(status, "%s", text);
	}

	*ret_session = session;
	return GPUMEM_OK;
}

/* Lets some time go by before the next try, as a session does that waits for the daemon. Returns false if it is end_ns. */
static bool connect_pause(struct gm_backoff *backoff, uint64_t end_ns)
{
	uint64_t now = gm_clock_ns();

	if (now >= end_ns)
		return false;
	gm_reconnect_back_off(backoff, now);
	uint64_t until_ns = gm_u64_min(backoff->until_ns, end_ns);
	while (gm_clock_ns() < until_ns)
		(void)poll(NULL, 0, gm_clock_poll_ms(until_ns));
	return true;
}

gpumem_status gpumem_connect(const gpumem_connect_options *options, gpumem_session **ret_session)
{
	gpumem_connect_options given = GPUMEM_CONNECT_OPTIONS_INIT;
	uint64_t began = gm_clock_ns();
	struct gm_backoff backoff = {0};
	bool expected, waited = false;
	GM_UNCANCELLED;

	if (!ret_session)
		return gm_error(GPUMEM_E_INVALID, "ret_session must not be NULL");
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;

	uint64_t end_ns = began + given.away_ms * GM_NS_PER_MS;
	for (;;) {
		status = connect_try(&given, ret_session, &expected);
		if (!expected || !connect_pause(&backoff, end_ns))
			break;
		waited = true;
	}
	if (!status || !waited)
		return status;

	char text[GM_ERROR_BYTES], time[GM_UNITS_TEXT];
	snprintf(text, sizeof(text), "%s", gm_error_text());
	return gm_error(status, "waited %s for gpumemd to come back: %s",
		gm_format_duration(gm_clock_ns() - began, time), text);
}

/* ---- what is known without a message */

gpumem_status gpumem_device_count(gpumem_session *session, uint32_t *ret_count)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_count)
		return gm_error(GPUMEM_E_INVALID, "ret_count must not be NULL");
	*ret_count = session->counted;
	return GPUMEM_OK;
}

gpumem_status gpumem_device_info(
	gpumem_session *session, uint32_t name, gpumem_device_info_t *ret_info)
{
	uint32_t device;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	if (!ret_info)
		return gm_error(GPUMEM_E_INVALID, "ret_info must not be NULL");
	gpumem_device_info_t info = session->device[device].info;
	struct gm_page_device page;
	if (gm_session_pages_device(&session->pages, device, &page) == 0) {
		info.capacity = page.capacity;
		info.available = page.available;
	}
	return gm_sized_out(ret_info, &info, sizeof(info));
}

gpumem_status gpumem_pressure(
	gpumem_session *session, uint32_t name, double *ret_pressure, gpumem_level *ret_level)
{
	uint32_t device;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	struct gm_session_device *d = &session->device[device];
	struct gm_page_device page;
	/* If the daemon died while it wrote, the value that was read before stays. */
	if (gm_session_pages_device(&session->pages, device, &page) == 0)
		atomic_store_explicit(&d->pressure, (uint64_t)page.level << 32 | page.pressure_ppm,
			memory_order_relaxed);
	uint64_t value = atomic_load_explicit(&d->pressure, memory_order_relaxed);
	uint32_t ppm = (uint32_t)value, level = (uint32_t)(value >> 32);
	if (ret_pressure)
		*ret_pressure = (double)gm_u64_min(ppm, 1000000) / 1e6;
	if (ret_level)
		*ret_level = (gpumem_level)gm_u64_min(level, GPUMEM_LEVEL_CRITICAL);
	return GPUMEM_OK;
}
