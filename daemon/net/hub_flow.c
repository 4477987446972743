/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows. An epoll set is itself a descriptor that polls readable while one of its members is ready,
 * so one set can wait for flows as a flow waits for sockets. The kernel puts a level-triggered member that
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
#include "common/bounds.h"
#include "daemon/net/hub_flow.h"

/* How many ready users the kernel is asked for at a time. If more are ready, the kernel takes them
 * in turn. */
#define GM_HUB_FLOW_USERS 64

static uint64_t hub_flow_clock(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- whose turn it is */

static void hub_flow_on_idle(uv_idle_t *idle)
{
	(void)idle;
}

/* Puts the flow behind those with the same virtual time, or before all if it had less. Most belong
 * to one end of the queue. */
static void hub_flow_enter_queue(struct gm_hub_flow *flow)
{
	struct gm_hub_flows *flows = flow->flows;
	struct gm_hub_flow *before = flows->queue;

	if (flow->virtual_ns < flows->virtual_ns) {
		flow->virtual_ns = flows->virtual_ns;
		DL_PREPEND(flows->queue, flow);
	} else if (!before || before->prev->virtual_ns <= flow->virtual_ns) {
		DL_APPEND(flows->queue, flow);
	} else {
		while (before->virtual_ns <= flow->virtual_ns)
			before = before->next;
		DL_PREPEND_ELEM(flows->queue, before, flow);
	}
	flow->queued = true;
	flows->n_queued++;
}

static void hub_flow_leave_queue(struct gm_hub_flow *flow)
{
	if (!flow->queued)
		return;
	DL_DELETE(flow->flows->queue, flow);
	flow->queued = false;
	flow->flows->n_queued--;
}

/* Queues the flow if it has something to do and may do it. */
static void hub_flow_queue(struct gm_hub_flow *flow)
{
	if (!flow->queued && !flow->rest_until_ns && (flow->ready || flow->tasks))
		hub_flow_enter_queue(flow);
}

/* Tells the loop's set whether to report the flow. This needs no memory, so it does not fail. */
static void hub_flow_watch(const struct gm_hub_flow *flow, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = flow->key};

	(void)epoll_ctl(flow->flows->epoll, EPOLL_CTL_MOD, flow->epoll, &event);
}

static void hub_flow_wake_loop(struct gm_hub_flows *flows)
{
	if (flows->queue)
		uv_idle_start(&flows->idle, hub_flow_on_idle);
	else
		uv_idle_stop(&flows->idle);
}

static void hub_flow_end_rest(struct gm_hub_flow *flow)
{
	DL_DELETE(flow->flows->resting, flow);
	flow->rest_until_ns = 0;
	flow->virtual_ns = 0; /* the rest has paid for the lead */
	hub_flow_watch(flow, EPOLLIN);
	hub_flow_queue(flow);
	hub_flow_wake_loop(flow->flows);
}

static void hub_flow_on_rest(uv_timer_t *timer)
{
	struct gm_hub_flows *flows = timer->data;
	uint64_t now = flows->clock(CLOCK_MONOTONIC), first = UINT64_MAX;
	struct gm_hub_flow *flow, *next;

	DL_FOREACH_SAFE (flows->resting, flow, next) {
		if (flow->rest_until_ns <= now)
			hub_flow_end_rest(flow);
		else if (flow->rest_until_ns < first)
			first = flow->rest_until_ns;
	}
	if (flows->resting)
		uv_timer_start(timer, hub_flow_on_rest, (first - now) / 1000000 + 1, 0);
}

/* Puts a flow that has descriptors to rest. rest_until_ns is set. */
static void hub_flow_enter_rest(struct gm_hub_flow *flow)
{
	hub_flow_leave_queue(flow);
	flow->ready = false;
	hub_flow_watch(flow, 0);
	DL_APPEND(flow->flows->resting, flow);
}

static void hub_flow_begin_rest(struct gm_hub_flow *flow, uint64_t excess_ns, uint64_t now_ns)
{
	bool rested = gm_hub_flow_rests(flow);

	flow->rest_until_ns =
		now_ns + gm_u64_min(excess_ns * GM_HUB_FLOW_REST_FACTOR, GM_HUB_FLOW_REST_MAX_NS);
	if (flow->left)
		return;
	if (!rested)
		hub_flow_enter_rest(flow);
	/* It looks which rest ends first. */
	uv_timer_start(&flow->flows->rest, hub_flow_on_rest, 0, 0);
}

/* ---- users without a connection: what they owe */

static void hub_flow_forget(struct gm_hub_flow *flow)
{
	HASH_DELETE(hh, flow->flows->left, flow);
	free(flow);
}

/* Whether the others have had as much of the loop as the user, and its rest is over. */
static bool hub_flow_is_even(const struct gm_hub_flow *flow)
{
	struct gm_hub_flows *flows = flow->flows;

	if (gm_hub_flow_rests(flow))
		return flow->rest_until_ns <= flows->clock(CLOCK_MONOTONIC);
	return flow->virtual_ns <= flows->virtual_ns;
}

/* Keeps the account of a user that has no connection. Looks at two others each time, so that they
 * do not pile up. Without memory, frees it and returns NULL. */
static struct gm_hub_flow *hub_flow_keep(struct gm_hub_flow *flow)
{
	struct gm_hub_flows *flows = flow->flows;
	struct gm_hub_flow *next = flows->left;

	for (int i = 0; i < 2 && next; i++) {
		struct gm_hub_flow *first = next;
		next = first->hh.next;
		if (hub_flow_is_even(first))
			hub_flow_forget(first);
	}
	flow->left = true;
	HASH_ADD(hh, flows->left, key, sizeof(flow->key), flow);
	if (flow->hh.tbl)
		return flow;
	free(flow);
	return NULL;
}

static struct gm_hub_flow *hub_flow_alloc(struct gm_hub_flows *flows, uint64_t key)
{
	struct gm_hub_flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		return NULL;
	flow->flows = flows;
	flow->key = key;
	flow->epoll = -1;
	return flow;
}

static struct gm_hub_flow *hub_flow_find_left(struct gm_hub_flows *flows, uint64_t key)
{
	struct gm_hub_flow *flow;

	HASH_FIND(hh, flows->left, &key, sizeof(key), flow);
	return flow;
}

/* Finds whom to charge. NULL: no memory. */
static struct gm_hub_flow *hub_flow_account(struct gm_hub_flows *flows, uint64_t key)
{
	struct gm_hub_flow *flow = gm_hub_flow_find(flows, key);

	if (!flow)
		flow = hub_flow_find_left(flows, key);
	if (flow)
		return flow;
	flow = hub_flow_alloc(flows, key);
	return flow ? hub_flow_keep(flow) : NULL;
}

/* ---- who pays */

/* Charges the flow for spent_ns, which end at now_ns. Time in which the kernel ran other programs
 * on this CPU is not the user's fault and does not count. */
static void hub_flow_charge(struct gm_hub_flow *flow, uint64_t spent_ns, uint64_t now_ns)
{
	struct gm_hub_flows *flows = flow->flows;

	if (spent_ns > GM_HUB_FLOW_QUANTUM_NS)
		spent_ns =
			gm_u64_min(spent_ns, flows->clock(CLOCK_THREAD_CPUTIME_ID) - flows->cpu_ns);
	if (flow->virtual_ns < flows->virtual_ns)
		flow->virtual_ns = flows->virtual_ns;
	flow->virtual_ns += spent_ns;
	uint64_t lead_ns = flow->virtual_ns - flows->virtual_ns;
	if (lead_ns > GM_HUB_FLOW_LEAD_NS && flow->key & (GM_HUB_FLOW_ADMIN | GM_HUB_FLOW_ENDS))
		flow->virtual_ns = flows->virtual_ns + GM_HUB_FLOW_LEAD_NS;
	else if (lead_ns > GM_HUB_FLOW_LEAD_NS)
		hub_flow_begin_rest(flow, lead_ns - GM_HUB_FLOW_LEAD_NS, now_ns);
	if (flow->queued) { /* at another place */
		hub_flow_leave_queue(flow);
		hub_flow_enter_queue(flow);
	}
}

bool gm_hub_flow_rests(const struct gm_hub_flow *flow)
{
	return flow->rest_until_ns > 0;
}

uint64_t gm_hub_flow_begin_work(struct gm_hub_flows *flows)
{
	/* A turn has noted that at its beginning. */
	if (!flows->serving && flows->works == 0)
		flows->cpu_ns = flows->clock(CLOCK_THREAD_CPUTIME_ID);
	flows->works++;
	return flows->clock(CLOCK_MONOTONIC) - flows->paid_ns;
}

/* Charges the flow for the time since then that nobody has paid for. NULL: nobody pays. */
static void hub_flow_pay(
	struct gm_hub_flows *flows, struct gm_hub_flow *flow, uint64_t began_ns, uint64_t now_ns)
{
	uint64_t spent_ns = now_ns - flows->paid_ns - began_ns;

	flows->paid_ns += spent_ns;
	if (flow)
		hub_flow_charge(flow, spent_ns, now_ns);
}

void gm_hub_flow_end_work(struct gm_hub_flow *flow, uint64_t began_ns)
{
	struct gm_hub_flows *flows = flow->flows;

	/* The user whose turn it is pays at the end of the turn. */
	if (--flows->works == 0 && flows->serving == flow)
		return;
	hub_flow_pay(flows, flow, began_ns, flows->clock(CLOCK_MONOTONIC));
}

void gm_hub_flow_end_work_of(struct gm_hub_flows *flows, uint64_t key, uint64_t began_ns)
{
	struct gm_hub_flow *flow = key == GM_HUB_FLOW_NOBODY ? NULL : hub_flow_account(flows, key);

	flows->works--;
	hub_flow_pay(flows, flow, began_ns, flows->clock(CLOCK_MONOTONIC));
}

bool gm_hub_flow_time_is_up(const struct gm_hub_flow *flow)
{
	const struct gm_hub_flows *flows = flow->flows;

	return !flows->serving ||
	       flows->clock(CLOCK_MONOTONIC) - flows->turn_ns >= GM_HUB_FLOW_SLICE_NS;
}

/* ---- turns */

static void hub_flow_run_task(struct gm_hub_flow *flow)
{
	struct gm_hub_flow_task *task = flow->tasks;

	flow->tasks_up = false;
	gm_hub_flow_withdraw(task);
	task->run(task);
}

static void hub_flow_deliver(struct gm_hub_flow *flow)
{
	struct epoll_event event;

	flow->ready = false;
	flow->tasks_up = true;
	if (epoll_wait(flow->epoll, &event, 1, 0) == 1) {
		struct gm_hub_flow_fd *fd = event.data.ptr;
		fd->ready(fd, event.events);
	}
}

/* Serves the first flow of the queue at now_ns. Returns its virtual time afterwards; UINT64_MAX:
 * it is gone. lowest_ns is the virtual time of a flow that was served before, and may be ready
 * again. */
static uint64_t hub_flow_serve(struct gm_hub_flows *flows, uint64_t lowest_ns, uint64_t *now_ns)
{
	struct gm_hub_flow *flow = flows->queue;

	hub_flow_leave_queue(flow);
	flows->virtual_ns = gm_u64_max(flows->virtual_ns, gm_u64_min(flow->virtual_ns, lowest_ns));
	flows->serving = flow;
	flows->turn_ns = *now_ns;
	flows->began_ns = *now_ns - flows->paid_ns;
	if (flow->tasks && (flow->tasks_up || !flow->ready))
		hub_flow_run_task(flow);
	else
		hub_flow_deliver(flow);

	*now_ns = flows->clock(CLOCK_MONOTONIC);
	if (flows->serving != flow) /* the turn has ended the flow, which has paid */
		return UINT64_MAX;
	hub_flow_pay(flows, flow, flows->began_ns, *now_ns);
	flows->serving = NULL;
	hub_flow_queue(flow);
	return gm_hub_flow_rests(flow) ? UINT64_MAX : flow->virtual_ns;
}

/*
 * Serves flows of the queue, each once at most, for a slice. Flows that were served may be ready
 * again, and others may have become ready, which only the kernel knows. Hence no flow is served
 * here that is more than a turn ahead of one that was.
 */
static void hub_flow_take_turns(struct gm_hub_flows *flows)
{
	uint64_t now = flows->clock(CLOCK_MONOTONIC), end = now + GM_HUB_FLOW_SLICE_NS;
	uint64_t lowest = UINT64_MAX - GM_HUB_FLOW_QUANTUM_NS;

	flows->cpu_ns = flows->clock(CLOCK_THREAD_CPUTIME_ID);
	for (size_t n = flows->n_queued;
		n > 0 && now < end && flows->queue &&
		flows->queue->virtual_ns <= lowest + GM_HUB_FLOW_QUANTUM_NS;
		n--)
		lowest = gm_u64_min(lowest, hub_flow_serve(flows, lowest, &now));
	flows->serving = NULL;
}

static void hub_flow_on_turns(uv_check_t *check)
{
	struct gm_hub_flows *flows = check->data;

	if (!flows->queue)
		return;
	hub_flow_take_turns(flows);
	hub_flow_wake_loop(flows);
}

static void hub_flow_on_ready(uv_poll_t *poll, int status, int events)
{
	struct gm_hub_flows *flows = poll->data;
	struct epoll_event ready[GM_HUB_FLOW_USERS];

	(void)events;
	int n = status < 0 ? 0 : epoll_wait(flows->epoll, ready, GM_HUB_FLOW_USERS, 0);
	for (int i = 0; i < n; i++) {
		struct gm_hub_flow *flow = gm_hub_flow_find(flows, ready[i].data.u64);
		flow->ready = true;
		hub_flow_queue(flow);
	}
}

int gm_hub_flows_init(struct gm_hub_flows *flows, uv_loop_t *loop, struct gm_user_table *users)
{
	memset(flows, 0, sizeof(*flows));
	flows->users = users;
	flows->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (flows->epoll < 0)
		return -errno;
	int r = uv_poll_init(loop, &flows->poll, flows->epoll);
	if (r < 0) {
		close(flows->epoll);
		return r;
	}

	flows->poll.data = flows;
	uv_check_init(loop, &flows->turns); /* cannot fail, nor can the next two */
	flows->turns.data = flows;
	uv_idle_init(loop, &flows->idle);
	uv_timer_init(loop, &flows->rest);
	flows->rest.data = flows;
	flows->clock = hub_flow_clock;
	flows->open = true;
	uv_check_start(&flows->turns, hub_flow_on_turns);
	r = uv_poll_start(&flows->poll, UV_READABLE, hub_flow_on_ready);
	if (r < 0)
		return r;

	/* The kernel's bound counts what any process of this user has sent, so half of it is ours. One
	 * uid gets an eighth of that, and never less than one client may have on its way. */
	struct rlimit nofile;
	uint64_t all = getrlimit(RLIMIT_NOFILE, &nofile) == 0 ? nofile.rlim_cur / 2 : 512;
	gm_user_table_bound_fds(users, gm_u64_max(all / 8, GM_BOUND_FDS_IN_FLIGHT), all);
	return 0;
}

void gm_hub_flows_close(struct gm_hub_flows *flows)
{
	if (!flows->open)
		return;
	uv_close((uv_handle_t *)&flows->rest, NULL);
	uv_close((uv_handle_t *)&flows->idle, NULL);
	uv_close((uv_handle_t *)&flows->turns, NULL);
	uv_close((uv_handle_t *)&flows->poll, NULL);
	while (flows->left)
		hub_flow_forget(flows->left);
	close(flows->epoll);
	flows->open = false;
}

/* ---- flows */

struct gm_hub_flow *gm_hub_flow_find(struct gm_hub_flows *flows, uint64_t key)
{
	struct gm_hub_flow *flow;

	HASH_FIND(hh, flows->all, &key, sizeof(key), flow);
	return flow;
}

/* Returns why epoll_ctl() failed. ENOSPC: the daemon's user has as many watches as it may
 * (fs.epoll.max_user_watches). That is a shortage, like one of files, and says nothing about the
 * client. */
static int hub_flow_error(void)
{
	return errno == ENOSPC ? -ENFILE : -errno;
}

/* Watches the descriptors of a flow that is in the table of all. */
static int hub_flow_open(struct gm_hub_flow *flow)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = flow->key};

	flow->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (flow->epoll < 0)
		return -errno;
	if (epoll_ctl(flow->flows->epoll, EPOLL_CTL_ADD, flow->epoll, &event) < 0) {
		int r = hub_flow_error();
		flow->epoll = gm_close(flow->epoll);
		return r;
	}
	if (!(flow->key &
		    GM_HUB_FLOW_ADMIN)) /* administrators' come out of their listener's reserve */
		gm_user_charge_add(&flow->set, 1);
	return 0;
}

static void hub_flow_shut(struct gm_hub_flow *flow)
{
	gm_user_charge_deinit(&flow->set);
	(void)epoll_ctl(flow->flows->epoll, EPOLL_CTL_DEL, flow->epoll, NULL);
	flow->epoll = gm_close(flow->epoll);
}

/* Takes over what the user owes from before. */
static void hub_flow_take_over(struct gm_hub_flow *flow)
{
	struct gm_hub_flows *flows = flow->flows;
	struct gm_hub_flow *left = hub_flow_find_left(flows, flow->key);

	if (!left)
		return;
	if (hub_flow_is_even(left)) {
		hub_flow_forget(left);
		return;
	}
	flow->virtual_ns = left->virtual_ns;
	flow->rest_until_ns = left->rest_until_ns;
	hub_flow_forget(left);
	if (gm_hub_flow_rests(flow)) {
		hub_flow_enter_rest(flow);
		uv_timer_start(&flows->rest, hub_flow_on_rest, 0, 0);
	}
}

static int hub_flow_new(struct gm_hub_flows *flows, uint64_t key, struct gm_hub_flow **ret_flow)
{
	struct gm_user *user = gm_user_get(flows->users, (uid_t)key);
	struct gm_hub_flow *flow = user ? hub_flow_alloc(flows, key) : NULL;
	if (!flow) {
		gm_user_unref(user);
		return -ENOMEM;
	}

	gm_user_charge_init(&flow->set, user, GM_USER_FLOWS);
	gm_user_unref(user);
	flow->user = user;
	int r = -ENOMEM;
	HASH_ADD(hh, flows->all, key, sizeof(flow->key), flow);
	if (flow->hh.tbl) {
		r = hub_flow_open(flow);
		if (r < 0)
			HASH_DELETE(hh, flows->all, flow);
	}
	if (r < 0) {
		gm_user_charge_deinit(&flow->set);
		free(flow);
		return r;
	}

	hub_flow_take_over(flow);
	*ret_flow = flow;
	return 0;
}

int gm_hub_flow_get(struct gm_hub_flows *flows, uint64_t key, struct gm_hub_flow **ret_flow)
{
	struct gm_hub_flow *flow = gm_hub_flow_find(flows, key);
	int r = flow ? 0 : hub_flow_new(flows, key, &flow);

	if (r == 0)
		*ret_flow = gm_hub_flow_ref(flow);
	return r;
}

struct gm_hub_flow *gm_hub_flow_ref(struct gm_hub_flow *flow)
{
	flow->refs++;
	return flow;
}

void gm_hub_flow_unref(struct gm_hub_flow *flow)
{
	if (!flow || --flow->refs > 0)
		return;

	struct gm_hub_flows *flows = flow->flows;
	if (flows->serving == flow) {
		hub_flow_pay(flows, flow, flows->began_ns, flows->clock(CLOCK_MONOTONIC));
		flows->serving = NULL;
	}
	if (gm_hub_flow_rests(flow))
		DL_DELETE(flows->resting, flow);
	hub_flow_leave_queue(flow);
	HASH_DELETE(hh, flows->all, flow);
	hub_flow_shut(flow);
	if (hub_flow_is_even(flow))
		free(flow);
	else
		hub_flow_keep(flow);
}

/* ---- descriptors */

static int hub_flow_control(struct gm_hub_flow_fd *fd, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = fd};

	if (epoll_ctl(fd->flow->epoll, operation, fd->fd, &event) < 0)
		return hub_flow_error();
	fd->events = events;
	return 0;
}

int gm_hub_flow_add(struct gm_hub_flow *flow, struct gm_hub_flow_fd *fd)
{
	fd->flow = flow;
	int r = hub_flow_control(fd, EPOLL_CTL_ADD, fd->events);
	if (r < 0)
		fd->flow = NULL;
	return r;
}

int gm_hub_flow_change(struct gm_hub_flow_fd *fd, uint32_t events)
{
	return events == fd->events ? 0 : hub_flow_control(fd, EPOLL_CTL_MOD, events);
}

void gm_hub_flow_remove(struct gm_hub_flow_fd *fd)
{
	if (!fd->flow)
		return;
	(void)hub_flow_control(fd, EPOLL_CTL_DEL, 0);
	fd->flow = NULL;
}

/* ---- tasks */

void gm_hub_flow_post(struct gm_hub_flow *flow, struct gm_hub_flow_task *task)
{
	if (task->flow)
		return;
	task->flow = flow;
	DL_APPEND(flow->tasks, task);
	/* After its turn, the flow that is being served is queued again. */
	if (flow != flow->flows->serving)
		hub_flow_queue(flow);
	if (!flow->flows->serving)
		hub_flow_wake_loop(flow->flows);
}

void gm_hub_flow_withdraw(struct gm_hub_flow_task *task)
{
	struct gm_hub_flow *flow = task->flow;

	if (!flow)
		return;
	task->flow = NULL;
	DL_DELETE(flow->tasks, task);
	if (!flow->tasks && !flow->ready)
		hub_flow_leave_queue(flow);
}
