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
#include "common/cleanup.h"
#include "common/limits.h"
#include "daemon/net/lane.h"

/* How many ready users the kernel is asked for at a time. If more are ready, the kernel takes them
 * in turn. */
#define GM_LANE_USERS 64

static uint64_t lane_clock(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- whose turn it is */

static void lane_on_idle(uv_idle_t *idle)
{
	(void)idle;
}

/* Puts the lane behind those with the same virtual time, or before all if it had less. Most belong
 * to one end of the queue. */
static void lane_enter_queue(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;
	struct gm_lane *before = lanes->queue;

	if (lane->virtual_ns < lanes->virtual_ns) {
		lane->virtual_ns = lanes->virtual_ns;
		DL_PREPEND(lanes->queue, lane);
	} else if (!before || before->prev->virtual_ns <= lane->virtual_ns) {
		DL_APPEND(lanes->queue, lane);
	} else {
		while (before->virtual_ns <= lane->virtual_ns)
			before = before->next;
		DL_PREPEND_ELEM(lanes->queue, before, lane);
	}
	lane->queued = true;
	lanes->n_queued++;
}

static void lane_leave_queue(struct gm_lane *lane)
{
	if (!lane->queued)
		return;
	DL_DELETE(lane->lanes->queue, lane);
	lane->queued = false;
	lane->lanes->n_queued--;
}

/* Queues the lane if it has something to do and may do it. */
static void lane_queue(struct gm_lane *lane)
{
	if (!lane->queued && !lane->rest_until_ns && (lane->ready || lane->tasks))
		lane_enter_queue(lane);
}

/* Tells the loop's set whether to report the lane. This needs no memory, so it does not fail. */
static void lane_watch(const struct gm_lane *lane, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = lane->key};

	(void)epoll_ctl(lane->lanes->epoll, EPOLL_CTL_MOD, lane->epoll, &event);
}

static void lane_wake_loop(struct gm_lanes *lanes)
{
	if (lanes->queue)
		uv_idle_start(&lanes->idle, lane_on_idle);
	else
		uv_idle_stop(&lanes->idle);
}

static void lane_end_rest(struct gm_lane *lane)
{
	DL_DELETE(lane->lanes->resting, lane);
	lane->rest_until_ns = 0;
	lane->virtual_ns = 0; /* the rest has paid for the lead */
	lane_watch(lane, EPOLLIN);
	lane_queue(lane);
	lane_wake_loop(lane->lanes);
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

/* Puts a lane that has descriptors to rest. rest_until_ns is set. */
static void lane_enter_rest(struct gm_lane *lane)
{
	lane_leave_queue(lane);
	lane->ready = false;
	lane_watch(lane, 0);
	DL_APPEND(lane->lanes->resting, lane);
}

static void lane_begin_rest(struct gm_lane *lane, uint64_t excess_ns, uint64_t now_ns)
{
	bool rested = gm_lane_rests(lane);

	lane->rest_until_ns = now_ns + gm_min(excess_ns * GM_LANE_REST_FACTOR, GM_LANE_REST_MAX_NS);
	if (lane->left)
		return;
	if (!rested)
		lane_enter_rest(lane);
	/* It looks which rest ends first. */
	uv_timer_start(&lane->lanes->rest, lane_on_rest, 0, 0);
}

/* ---- users without a connection: what they owe */

static void lane_forget(struct gm_lane *lane)
{
	HASH_DELETE(hh, lane->lanes->left, lane);
	free(lane);
}

/* Whether the others have had as much of the loop as the user, and its rest is over. */
static bool lane_is_even(const struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;

	if (gm_lane_rests(lane))
		return lane->rest_until_ns <= lanes->clock(CLOCK_MONOTONIC);
	return lane->virtual_ns <= lanes->virtual_ns;
}

/* Keeps the account of a user that has no connection. Looks at two others each time, so that they
 * do not pile up. Without memory, frees it and returns NULL. */
static struct gm_lane *lane_keep(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;
	struct gm_lane *next = lanes->left;

	for (int i = 0; i < 2 && next; i++) {
		struct gm_lane *first = next;
		next = first->hh.next;
		if (lane_is_even(first))
			lane_forget(first);
	}
	lane->left = true;
	HASH_ADD(hh, lanes->left, key, sizeof(lane->key), lane);
	if (lane->hh.tbl)
		return lane;
	free(lane);
	return NULL;
}

static struct gm_lane *lane_alloc(struct gm_lanes *lanes, uint64_t key)
{
	struct gm_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return NULL;
	lane->lanes = lanes;
	lane->key = key;
	lane->epoll = -1;
	return lane;
}

static struct gm_lane *lane_find_left(struct gm_lanes *lanes, uint64_t key)
{
	struct gm_lane *lane;

	HASH_FIND(hh, lanes->left, &key, sizeof(key), lane);
	return lane;
}

/* Finds whom to charge. NULL: no memory. */
static struct gm_lane *lane_account(struct gm_lanes *lanes, uint64_t key)
{
	struct gm_lane *lane = gm_lane_find(lanes, key);

	if (!lane)
		lane = lane_find_left(lanes, key);
	if (lane)
		return lane;
	lane = lane_alloc(lanes, key);
	return lane ? lane_keep(lane) : NULL;
}

/* ---- who pays */

/* Charges the lane for spent_ns, which end at now_ns. Time in which the kernel ran other programs
 * on this CPU is not the user's fault and does not count. */
static void lane_charge(struct gm_lane *lane, uint64_t spent_ns, uint64_t now_ns)
{
	struct gm_lanes *lanes = lane->lanes;

	if (spent_ns > GM_LANE_TURN_NS)
		spent_ns = gm_min(spent_ns, lanes->clock(CLOCK_THREAD_CPUTIME_ID) - lanes->cpu_ns);
	if (lane->virtual_ns < lanes->virtual_ns)
		lane->virtual_ns = lanes->virtual_ns;
	lane->virtual_ns += spent_ns;
	uint64_t lead_ns = lane->virtual_ns - lanes->virtual_ns;
	if (lead_ns > GM_LANE_LEAD_NS && lane->key & (GM_LANE_ADMIN | GM_LANE_ENDS))
		lane->virtual_ns = lanes->virtual_ns + GM_LANE_LEAD_NS;
	else if (lead_ns > GM_LANE_LEAD_NS)
		lane_begin_rest(lane, lead_ns - GM_LANE_LEAD_NS, now_ns);
	if (lane->queued) { /* at another place */
		lane_leave_queue(lane);
		lane_enter_queue(lane);
	}
}

bool gm_lane_rests(const struct gm_lane *lane)
{
	return lane->rest_until_ns > 0;
}

uint64_t gm_lane_begin_work(struct gm_lanes *lanes)
{
	/* A turn has noted that at its beginning. */
	if (!lanes->serving && lanes->works == 0)
		lanes->cpu_ns = lanes->clock(CLOCK_THREAD_CPUTIME_ID);
	lanes->works++;
	return lanes->clock(CLOCK_MONOTONIC) - lanes->paid_ns;
}

/* Charges the lane for the time since then that nobody has paid for. NULL: nobody pays. */
static void lane_pay(
	struct gm_lanes *lanes, struct gm_lane *lane, uint64_t began_ns, uint64_t now_ns)
{
	uint64_t spent_ns = now_ns - lanes->paid_ns - began_ns;

	lanes->paid_ns += spent_ns;
	if (lane)
		lane_charge(lane, spent_ns, now_ns);
}

void gm_lane_end_work(struct gm_lane *lane, uint64_t began_ns)
{
	struct gm_lanes *lanes = lane->lanes;

	/* The user whose turn it is pays at the end of the turn. */
	if (--lanes->works == 0 && lanes->serving == lane)
		return;
	lane_pay(lanes, lane, began_ns, lanes->clock(CLOCK_MONOTONIC));
}

void gm_lane_end_work_of(struct gm_lanes *lanes, uint64_t key, uint64_t began_ns)
{
	struct gm_lane *lane = key == GM_LANE_NOBODY ? NULL : lane_account(lanes, key);

	lanes->works--;
	lane_pay(lanes, lane, began_ns, lanes->clock(CLOCK_MONOTONIC));
}

bool gm_lane_time_is_up(const struct gm_lane *lane)
{
	const struct gm_lanes *lanes = lane->lanes;

	return !lanes->serving ||
	       lanes->clock(CLOCK_MONOTONIC) - lanes->turn_ns >= GM_LANE_SLICE_NS;
}

/* ---- turns */

static void lane_run_task(struct gm_lane *lane)
{
	struct gm_lane_task *task = lane->tasks;

	lane->tasks_up = false;
	gm_lane_withdraw(task);
	task->run(task);
}

static void lane_deliver(struct gm_lane *lane)
{
	struct epoll_event event;

	lane->ready = false;
	lane->tasks_up = true;
	if (epoll_wait(lane->epoll, &event, 1, 0) == 1) {
		struct gm_lane_fd *fd = event.data.ptr;
		fd->ready(fd, event.events);
	}
}

/* Serves the first lane of the queue at now_ns. Returns its virtual time afterwards; UINT64_MAX:
 * it is gone. lowest_ns is the virtual time of a lane that was served before, and may be ready
 * again. */
static uint64_t lane_serve(struct gm_lanes *lanes, uint64_t lowest_ns, uint64_t *now_ns)
{
	struct gm_lane *lane = lanes->queue;

	lane_leave_queue(lane);
	lanes->virtual_ns = gm_max(lanes->virtual_ns, gm_min(lane->virtual_ns, lowest_ns));
	lanes->serving = lane;
	lanes->turn_ns = *now_ns;
	lanes->began_ns = *now_ns - lanes->paid_ns;
	if (lane->tasks && (lane->tasks_up || !lane->ready))
		lane_run_task(lane);
	else
		lane_deliver(lane);

	*now_ns = lanes->clock(CLOCK_MONOTONIC);
	if (lanes->serving != lane) /* the turn has ended the lane, which has paid */
		return UINT64_MAX;
	lane_pay(lanes, lane, lanes->began_ns, *now_ns);
	lanes->serving = NULL;
	lane_queue(lane);
	return gm_lane_rests(lane) ? UINT64_MAX : lane->virtual_ns;
}

/*
 * Serves lanes of the queue, each once at most, for a slice. Lanes that were served may be ready
 * again, and others may have become ready, which only the kernel knows. Hence no lane is served
 * here that is more than a turn ahead of one that was.
 */
static void lane_take_turns(struct gm_lanes *lanes)
{
	uint64_t now = lanes->clock(CLOCK_MONOTONIC), end = now + GM_LANE_SLICE_NS;
	uint64_t lowest = UINT64_MAX - GM_LANE_TURN_NS;

	lanes->cpu_ns = lanes->clock(CLOCK_THREAD_CPUTIME_ID);
	for (size_t n = lanes->n_queued; n > 0 && now < end && lanes->queue &&
					 lanes->queue->virtual_ns <= lowest + GM_LANE_TURN_NS;
		n--)
		lowest = gm_min(lowest, lane_serve(lanes, lowest, &now));
	lanes->serving = NULL;
}

static void lane_on_turns(uv_check_t *check)
{
	struct gm_lanes *lanes = check->data;

	if (!lanes->queue)
		return;
	lane_take_turns(lanes);
	lane_wake_loop(lanes);
}

static void lane_on_ready(uv_poll_t *poll, int status, int events)
{
	struct gm_lanes *lanes = poll->data;
	struct epoll_event ready[GM_LANE_USERS];

	(void)events;
	int n = status < 0 ? 0 : epoll_wait(lanes->epoll, ready, GM_LANE_USERS, 0);
	for (int i = 0; i < n; i++) {
		struct gm_lane *lane = gm_lane_find(lanes, ready[i].data.u64);
		lane->ready = true;
		lane_queue(lane);
	}
}

int gm_lanes_init(struct gm_lanes *lanes, uv_loop_t *loop, struct gm_user_table *users)
{
	memset(lanes, 0, sizeof(*lanes));
	lanes->users = users;
	lanes->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (lanes->epoll < 0)
		return -errno;
	int r = uv_poll_init(loop, &lanes->poll, lanes->epoll);
	if (r < 0) {
		close(lanes->epoll);
		return r;
	}

	lanes->poll.data = lanes;
	uv_check_init(loop, &lanes->turns); /* cannot fail, nor can the next two */
	lanes->turns.data = lanes;
	uv_idle_init(loop, &lanes->idle);
	uv_timer_init(loop, &lanes->rest);
	lanes->rest.data = lanes;
	lanes->clock = lane_clock;
	lanes->open = true;
	uv_check_start(&lanes->turns, lane_on_turns);
	r = uv_poll_start(&lanes->poll, UV_READABLE, lane_on_ready);
	if (r < 0)
		return r;

	/* The kernel's bound counts what any process of this user has sent, so half of it is ours. One
	 * uid gets an eighth of that, and never less than one client may have on its way. */
	struct rlimit nofile;
	uint64_t all = getrlimit(RLIMIT_NOFILE, &nofile) == 0 ? nofile.rlim_cur / 2 : 512;
	gm_user_table_bound_fds(users, gm_max(all / 8, GM_LIMIT_FDS_IN_FLIGHT), all);
	return 0;
}

void gm_lanes_close(struct gm_lanes *lanes)
{
	if (!lanes->open)
		return;
	uv_close((uv_handle_t *)&lanes->rest, NULL);
	uv_close((uv_handle_t *)&lanes->idle, NULL);
	uv_close((uv_handle_t *)&lanes->turns, NULL);
	uv_close((uv_handle_t *)&lanes->poll, NULL);
	while (lanes->left)
		lane_forget(lanes->left);
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

/* Returns why epoll_ctl() failed. ENOSPC: the daemon's user has as many watches as it may
 * (fs.epoll.max_user_watches). That is a shortage, like one of files, and says nothing about the
 * client. */
static int lane_error(void)
{
	return errno == ENOSPC ? -ENFILE : -errno;
}

/* Watches the descriptors of a lane that is in the table of all. */
static int lane_open(struct gm_lane *lane)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = lane->key};

	lane->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (lane->epoll < 0)
		return -errno;
	if (epoll_ctl(lane->lanes->epoll, EPOLL_CTL_ADD, lane->epoll, &event) < 0) {
		int r = lane_error();
		lane->epoll = gm_close(lane->epoll);
		return r;
	}
	if (!(lane->key & GM_LANE_ADMIN)) /* administrators' come out of their listener's reserve */
		gm_user_charge_add(&lane->set, 1);
	return 0;
}

static void lane_shut(struct gm_lane *lane)
{
	gm_user_charge_deinit(&lane->set);
	(void)epoll_ctl(lane->lanes->epoll, EPOLL_CTL_DEL, lane->epoll, NULL);
	lane->epoll = gm_close(lane->epoll);
}

/* Takes over what the user owes from before. */
static void lane_take_over(struct gm_lane *lane)
{
	struct gm_lanes *lanes = lane->lanes;
	struct gm_lane *left = lane_find_left(lanes, lane->key);

	if (!left)
		return;
	if (lane_is_even(left)) {
		lane_forget(left);
		return;
	}
	lane->virtual_ns = left->virtual_ns;
	lane->rest_until_ns = left->rest_until_ns;
	lane_forget(left);
	if (gm_lane_rests(lane)) {
		lane_enter_rest(lane);
		uv_timer_start(&lanes->rest, lane_on_rest, 0, 0);
	}
}

static int lane_new(struct gm_lanes *lanes, uint64_t key, struct gm_lane **ret_lane)
{
	struct gm_user *user = gm_user_get(lanes->users, (uid_t)key);
	struct gm_lane *lane = user ? lane_alloc(lanes, key) : NULL;
	if (!lane) {
		gm_user_unref(user);
		return -ENOMEM;
	}

	gm_user_charge_init(&lane->set, user, GM_USER_LANES);
	gm_user_unref(user);
	lane->user = user;
	int r = -ENOMEM;
	HASH_ADD(hh, lanes->all, key, sizeof(lane->key), lane);
	if (lane->hh.tbl) {
		r = lane_open(lane);
		if (r < 0)
			HASH_DELETE(hh, lanes->all, lane);
	}
	if (r < 0) {
		gm_user_charge_deinit(&lane->set);
		free(lane);
		return r;
	}

	lane_take_over(lane);
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

	struct gm_lanes *lanes = lane->lanes;
	if (lanes->serving == lane) {
		lane_pay(lanes, lane, lanes->began_ns, lanes->clock(CLOCK_MONOTONIC));
		lanes->serving = NULL;
	}
	if (gm_lane_rests(lane))
		DL_DELETE(lanes->resting, lane);
	lane_leave_queue(lane);
	HASH_DELETE(hh, lanes->all, lane);
	lane_shut(lane);
	if (lane_is_even(lane))
		free(lane);
	else
		lane_keep(lane);
}

/* ---- descriptors */

static int lane_control(struct gm_lane_fd *fd, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = fd};

	if (epoll_ctl(fd->lane->epoll, operation, fd->fd, &event) < 0)
		return lane_error();
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
	DL_APPEND(lane->tasks, task);
	/* After its turn, the lane that is being served is queued again. */
	if (lane != lane->lanes->serving)
		lane_queue(lane);
	if (!lane->lanes->serving)
		lane_wake_loop(lane->lanes);
}

void gm_lane_withdraw(struct gm_lane_task *task)
{
	struct gm_lane *lane = task->lane;

	if (!lane)
		return;
	task->lane = NULL;
	DL_DELETE(lane->tasks, task);
	if (!lane->tasks && !lane->ready)
		lane_leave_queue(lane);
}
