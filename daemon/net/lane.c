/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes. An epoll set is itself a descriptor that polls readable while one of its members is ready,
 * so one set can wait for lanes as a lane waits for sockets. The kernel puts a level-triggered member that
 * it has reported at the end of the set's ready list; asking for one event at a time therefore takes
 * the members in turn, at a cost that does not depend on how many are ready.
 *
 * Only one event is taken per call, and its member is called at once. So no member can be freed
 * between the kernel's answer and its call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/limits.h"
#include "daemon/net/lane.h"

/* How many users the loop serves in one turn. If more are ready, the kernel takes them in turn. */
#define GM_LANE_USERS 64

static uint64_t lane_clock(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- whose turn it is */

static void lane_on_idle(uv_idle_t *idle);

static void lane_enter_busy(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;

	DL_APPEND(lanes->busy, lane);
	if (lanes->n_busy++ == 0)
		uv_idle_start(&lanes->idle, lane_on_idle);
}

static void lane_leave_busy(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;

	DL_DELETE(lanes->busy, lane);
	if (--lanes->n_busy == 0)
		uv_idle_stop(&lanes->idle);
}

/* Tells the loop's set whether to report the lane. This needs no memory, so it does not fail. */
static void lane_watch(const struct gm_lane *lane, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = lane->key};

	(void)epoll_ctl(lane->lanes->epoll, EPOLL_CTL_MOD, lane->epoll, &event);
}

static void lane_end_rest(struct gm_lane *lane)
{
	DL_DELETE(lane->lanes->resting, lane);
	lane->rest_until_ns = 0;
	lane_watch(lane, EPOLLIN);
	if (lane->tasks)
		lane_enter_busy(lane);
}

static void lane_on_rest(uv_timer_t *timer)
{
	struct gm_lanes *lanes = timer->data;
	uint64_t now = lanes->clock(CLOCK_MONOTONIC), first = UINT64_MAX;
	struct gm_lane *lane, *next;

	DL_FOREACH_SAFE (lanes->resting, lane, next) {
		if (lane->rest_until_ns <= now)
			lane_end_rest(lane);
		else if (lane->rest_until_ns < first)
			first = lane->rest_until_ns;
	}
	if (lanes->resting)
		uv_timer_start(timer, lane_on_rest, (first - now) / 1000000 + 1, 0);
}

/* Makes the lane rest if spent_ns, which end at now_ns, were too long. Time in which the kernel ran
 * other programs on this CPU is not the user's fault and does not count. */
static void lane_charge(struct gm_lane *lane, uint64_t spent_ns, uint64_t now_ns)
{
	struct gm_lanes *lanes = lane->lanes;

	if (spent_ns <= GM_LANE_TURN_NS || (lane->key & GM_LANE_ADMIN))
		return;
	uint64_t ran_ns = lanes->clock(CLOCK_THREAD_CPUTIME_ID) - lanes->cpu_ns;
	if (spent_ns > ran_ns)
		spent_ns = ran_ns;
	if (spent_ns <= GM_LANE_TURN_NS)
		return;

	uint64_t rest_ns = (spent_ns - GM_LANE_TURN_NS) * GM_LANE_REST_FACTOR;
	if (rest_ns > GM_LANE_REST_MAX_NS)
		rest_ns = GM_LANE_REST_MAX_NS;
	if (!lane->rest_until_ns) {
		if (lane->tasks)
			lane_leave_busy(lane);
		lane_watch(lane, 0);
		DL_APPEND(lanes->resting, lane);
	}
	lane->rest_until_ns = now_ns + rest_ns;
	uv_timer_start(&lanes->rest, lane_on_rest, 0, 0); /* it looks which rest ends first */
}

static void lane_begin_turn(struct gm_lane *lane)
{
	lane->lanes->serving = lane;
	lane->lanes->began_ns = lane->lanes->clock(CLOCK_MONOTONIC);
}

static void lane_end_turn(struct gm_lanes *lanes)
{
	uint64_t now = lanes->clock(CLOCK_MONOTONIC);

	if (lanes->serving) /* the turn may have ended the lane */
		lane_charge(lanes->serving, now - lanes->began_ns, now);
	lanes->serving = NULL;
}

bool gm_lane_rests(const struct gm_lane *lane)
{
	return lane->rest_until_ns > 0;
}

uint64_t gm_lane_begin_send(const struct gm_lane *lane)
{
	const struct gm_lanes *lanes = lane->lanes;

	/* A send to the user whose turn it is counts as a part of the turn. */
	return lane == lanes->serving ? lanes->began_ns : lanes->clock(CLOCK_MONOTONIC);
}

void gm_lane_end_send(struct gm_lane *lane, uint64_t began_ns)
{
	struct gm_lanes *lanes = lane->lanes;
	uint64_t now = lanes->clock(CLOCK_MONOTONIC);

	lane_charge(lane, now - began_ns, now);
	if (lane != lanes->serving)
		lanes->began_ns += now - began_ns;
}

static void lane_serve(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;
	struct epoll_event event;

	lane_begin_turn(lane);
	if (epoll_wait(lane->epoll, &event, 1, 0) == 1) {
		struct gm_lane_fd *fd = event.data.ptr;
		fd->ready(fd, event.events);
	}
	lane_end_turn(lanes);
}

static void lane_on_ready(uv_poll_t *poll, int status, int events)
{
	struct gm_lanes *lanes = poll->data;
	struct epoll_event ready[GM_LANE_USERS];

	(void)events;
	int n = status < 0 ? 0 : epoll_wait(lanes->epoll, ready, GM_LANE_USERS, 0);
	lanes->cpu_ns = lanes->clock(CLOCK_THREAD_CPUTIME_ID);
	/* An event may end lanes, or make others rest, so they are looked up by their keys. */
	for (int i = 0; i < n; i++) {
		struct gm_lane *lane = gm_lane_find(lanes, ready[i].data.u64);
		if (lane && !gm_lane_rests(lane))
			lane_serve(lane);
	}
}

static void lane_on_idle(uv_idle_t *idle)
{
	struct gm_lanes *lanes = idle->data;

	lanes->cpu_ns = lanes->clock(CLOCK_THREAD_CPUTIME_ID);
	for (size_t n = lanes->n_busy; n > 0 && lanes->busy; n--) {
		struct gm_lane *lane = lanes->busy;
		struct gm_lane_task *task = lane->tasks;

		/* To the end of the line, if the lane has more to do. */
		DL_DELETE(lanes->busy, lane);
		DL_APPEND(lanes->busy, lane);
		lane_begin_turn(lane);
		gm_lane_withdraw(task);
		task->run(task);
		lane_end_turn(lanes);
	}
}

int gm_lanes_init(struct gm_lanes *lanes, uv_loop_t *loop)
{
	memset(lanes, 0, sizeof(*lanes));
	lanes->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (lanes->epoll < 0)
		return -errno;
	int r = uv_poll_init(loop, &lanes->poll, lanes->epoll);
	if (r < 0) {
		close(lanes->epoll);
		return r;
	}

	lanes->poll.data = lanes;
	uv_idle_init(loop, &lanes->idle); /* cannot fail */
	lanes->idle.data = lanes;
	uv_timer_init(loop, &lanes->rest); /* neither can this */
	lanes->rest.data = lanes;
	lanes->clock = lane_clock;
	lanes->open = true;
	r = uv_poll_start(&lanes->poll, UV_READABLE, lane_on_ready);
	if (r < 0)
		return r;

	lanes->unbounded = GM_FD_BUDGET_NONE;
	lanes->budget = &lanes->unbounded;

	/* The kernel's bound counts what any process of this user has sent, so half of it is ours. One
	 * uid gets an eighth of that, and never less than one client may have on its way. */
	struct rlimit nofile;
	lanes->fds_max = getrlimit(RLIMIT_NOFILE, &nofile) == 0 ? nofile.rlim_cur / 2 : 512;
	lanes->fds_per_uid = lanes->fds_max / 8;
	if (lanes->fds_per_uid < GM_LIMIT_FDS_IN_FLIGHT)
		lanes->fds_per_uid = GM_LIMIT_FDS_IN_FLIGHT;
	return 0;
}

void gm_lanes_close(struct gm_lanes *lanes)
{
	if (!lanes->open)
		return;
	uv_close((uv_handle_t *)&lanes->rest, NULL);
	uv_close((uv_handle_t *)&lanes->idle, NULL);
	uv_close((uv_handle_t *)&lanes->poll, NULL);
	close(lanes->epoll);
	lanes->open = false;
}

/* ---- lanes */

struct gm_lane *gm_lane_find(struct gm_lanes *lanes, uint64_t key)
{
	struct gm_lane *lane;

	HASH_FIND(hh, lanes->all, &key, sizeof(key), lane);
	return lane;
}

/* Counts n more descriptors. Those of administrators come out of their listener's reserve. */
static void lane_count_fds(const struct gm_lane *lane, int n)
{
	if (lane->key & GM_LANE_ADMIN)
		return;
	if (n > 0)
		gm_fd_budget_connect(lane->lanes->budget, (uint64_t)n);
	else
		gm_fd_budget_disconnect(lane->lanes->budget, (uint64_t)-n);
}

static int lane_new(struct gm_lanes *lanes, uint64_t key, struct gm_lane **ret_lane)
{
	struct gm_lane *lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;

	lane->lanes = lanes;
	lane->key = key;
	lane->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (lane->epoll < 0) {
		int error = errno;
		free(lane);
		return -error;
	}

	HASH_ADD(hh, lanes->all, key, sizeof(lane->key), lane);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = key};
	int r = !lane->hh.tbl                                                     ? -ENOMEM
		: epoll_ctl(lanes->epoll, EPOLL_CTL_ADD, lane->epoll, &event) < 0 ? -errno
										  : 0;
	if (r < 0) {
		if (lane->hh.tbl)
			HASH_DELETE(hh, lanes->all, lane);
		close(lane->epoll);
		free(lane);
		return r;
	}

	lane_count_fds(lane, 1);
	*ret_lane = lane;
	return 0;
}

int gm_lane_get(struct gm_lanes *lanes, uint64_t key, struct gm_lane **ret_lane)
{
	struct gm_lane *lane = gm_lane_find(lanes, key);
	int r = lane ? 0 : lane_new(lanes, key, &lane);

	if (r == 0)
		*ret_lane = gm_lane_ref(lane);
	return r;
}

struct gm_lane *gm_lane_ref(struct gm_lane *lane)
{
	lane->refs++;
	return lane;
}

void gm_lane_unref(struct gm_lane *lane)
{
	if (!lane || --lane->refs > 0)
		return;

	if (gm_lane_rests(lane))
		DL_DELETE(lane->lanes->resting, lane);
	if (lane->lanes->serving == lane)
		lane->lanes->serving = NULL;
	HASH_DELETE(hh, lane->lanes->all, lane);
	lane_count_fds(lane, -1);
	(void)epoll_ctl(lane->lanes->epoll, EPOLL_CTL_DEL, lane->epoll, NULL);
	close(lane->epoll);
	free(lane);
}

/* ---- what a user has open */

/* Counts a connection for each client that has none. */
static uint64_t lane_connection_fds(uint32_t connections, uint32_t clients)
{
	return (uint64_t)gm_max(connections, clients) * GM_LANE_CONNECTION_FDS;
}

static bool lane_may_open(const struct gm_lanes *lanes, const struct gm_lane *lane, uint64_t n)
{
	uint64_t own = 0;

	if (lane)
		own = 1 + lane_connection_fds(lane->connections, lane->clients) +
		      (uint64_t)lane->clients * GM_LANE_SESSION_FDS;
	return gm_fd_budget_allows_connection(lanes->budget, own, n);
}

bool gm_lane_awaits_clients(const struct gm_lane *lane)
{
	return lane && lane->connections < lane->clients;
}

bool gm_lane_may_connect(const struct gm_lanes *lanes, const struct gm_lane *lane)
{
	return gm_lane_awaits_clients(lane) ||
	       lane_may_open(lanes, lane, GM_LANE_CONNECTION_FDS + (lane ? 0 : 1));
}

bool gm_lane_may_join(const struct gm_lanes *lanes, const struct gm_lane *lane)
{
	uint64_t more = lane_connection_fds(lane->connections, lane->clients + 1) -
			lane_connection_fds(lane->connections, lane->clients);

	return lane_may_open(lanes, lane, GM_LANE_SESSION_FDS + more);
}

void gm_lane_connected(struct gm_lane *lane)
{
	if (lane->connections++ >= lane->clients)
		lane_count_fds(lane, GM_LANE_CONNECTION_FDS);
}

void gm_lane_disconnected(struct gm_lane *lane)
{
	if (--lane->connections >= lane->clients)
		lane_count_fds(lane, -GM_LANE_CONNECTION_FDS);
}

void gm_lane_joined(struct gm_lane *lane)
{
	bool without = lane->clients++ >= lane->connections;

	lane_count_fds(lane, GM_LANE_SESSION_FDS + (without ? GM_LANE_CONNECTION_FDS : 0));
}

void gm_lane_left(struct gm_lane *lane)
{
	bool without = --lane->clients >= lane->connections;

	lane_count_fds(lane, -GM_LANE_SESSION_FDS - (without ? GM_LANE_CONNECTION_FDS : 0));
}

/* ---- descriptors */

static int lane_control(struct gm_lane_fd *fd, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = fd};

	if (epoll_ctl(fd->lane->epoll, operation, fd->fd, &event) < 0)
		return -errno;
	fd->events = events;
	return 0;
}

int gm_lane_add(struct gm_lane *lane, struct gm_lane_fd *fd)
{
	fd->lane = lane;
	int r = lane_control(fd, EPOLL_CTL_ADD, fd->events);
	if (r < 0)
		fd->lane = NULL;
	return r;
}

int gm_lane_change(struct gm_lane_fd *fd, uint32_t events)
{
	return events == fd->events ? 0 : lane_control(fd, EPOLL_CTL_MOD, events);
}

void gm_lane_remove(struct gm_lane_fd *fd)
{
	if (!fd->lane)
		return;
	(void)lane_control(fd, EPOLL_CTL_DEL, 0);
	fd->lane = NULL;
}

/* ---- tasks */

void gm_lane_post(struct gm_lane *lane, struct gm_lane_task *task)
{
	if (task->lane)
		return;
	task->lane = lane;
	if (!lane->tasks && !gm_lane_rests(lane))
		lane_enter_busy(lane);
	DL_APPEND(lane->tasks, task);
}

void gm_lane_withdraw(struct gm_lane_task *task)
{
	struct gm_lane *lane = task->lane;

	if (!lane)
		return;
	task->lane = NULL;
	DL_DELETE(lane->tasks, task);
	if (!lane->tasks && !gm_lane_rests(lane))
		lane_leave_busy(lane);
}
