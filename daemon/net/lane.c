/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes. An epoll set is itself a descriptor that polls readable while one of its members is ready,
 * so the loop waits for lanes as it waits for sockets. The kernel puts a level-triggered member that
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

#include "common/limits.h"
#include "daemon/net/lane.h"

static void lane_on_ready(uv_poll_t *poll, int status, int events)
{
	struct gm_lane *lane = poll->data;
	struct epoll_event event;

	(void)events;
	if (status < 0 || epoll_wait(lane->epoll, &event, 1, 0) != 1)
		return;

	struct gm_lane_fd *fd = event.data.ptr;
	fd->ready(fd, event.events);
}

static void lane_on_idle(uv_idle_t *idle)
{
	struct gm_lanes *lanes = idle->data;

	for (size_t n = lanes->n_busy; n > 0 && lanes->busy; n--) {
		struct gm_lane *lane = lanes->busy;
		struct gm_lane_task *task = lane->tasks;

		/* To the end of the line, if the lane has more to do. */
		DL_DELETE(lanes->busy, lane);
		DL_APPEND(lanes->busy, lane);
		gm_lane_withdraw(task);
		task->run(task);
	}
}

void gm_lanes_init(struct gm_lanes *lanes, uv_loop_t *loop)
{
	memset(lanes, 0, sizeof(*lanes));
	lanes->loop = loop;
	uv_idle_init(loop, &lanes->idle); /* cannot fail */
	lanes->idle.data = lanes;
	lanes->idle_open = true;

	/* The kernel's bound counts what any process of this user has sent, so half of it is ours. One
	 * uid gets an eighth of that, and never less than one client may have on its way. */
	struct rlimit nofile;
	lanes->fds_max = getrlimit(RLIMIT_NOFILE, &nofile) == 0 ? nofile.rlim_cur / 2 : 512;
	lanes->fds_per_uid = lanes->fds_max / 8;
	if (lanes->fds_per_uid < GM_LIMIT_FDS_IN_FLIGHT)
		lanes->fds_per_uid = GM_LIMIT_FDS_IN_FLIGHT;
}

void gm_lanes_close(struct gm_lanes *lanes)
{
	if (lanes->idle_open)
		uv_close((uv_handle_t *)&lanes->idle, NULL);
	lanes->idle_open = false;
}

/* ---- lanes */

static void lane_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct gm_lane *gm_lane_find(struct gm_lanes *lanes, uint64_t key)
{
	struct gm_lane *lane;

	HASH_FIND(hh, lanes->all, &key, sizeof(key), lane);
	return lane;
}

static int lane_new(struct gm_lanes *lanes, uint64_t key, struct gm_lane **ret_lane)
{
	struct gm_lane *lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;

	lane->lanes = lanes;
	lane->key = key;
	lane->epoll = epoll_create1(EPOLL_CLOEXEC);
	int r = lane->epoll < 0 ? -errno : uv_poll_init(lanes->loop, &lane->poll, lane->epoll);
	if (r < 0) {
		if (lane->epoll >= 0)
			close(lane->epoll);
		free(lane);
		return r;
	}

	lane->poll.data = lane;
	r = uv_poll_start(&lane->poll, UV_READABLE, lane_on_ready);
	if (r == 0) {
		HASH_ADD(hh, lanes->all, key, sizeof(lane->key), lane);
		if (!lane->hh.tbl)
			r = -ENOMEM;
	}
	if (r < 0) {
		uv_close((uv_handle_t *)&lane->poll, lane_on_closed);
		close(lane->epoll);
		return r;
	}

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

	HASH_DELETE(hh, lane->lanes->all, lane);
	uv_close((uv_handle_t *)&lane->poll, lane_on_closed);
	close(lane->epoll);
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
	struct gm_lanes *lanes = lane->lanes;

	if (task->lane)
		return;
	task->lane = lane;
	if (!lane->tasks) {
		DL_APPEND(lanes->busy, lane);
		if (lanes->n_busy++ == 0)
			uv_idle_start(&lanes->idle, lane_on_idle);
	}
	DL_APPEND(lane->tasks, task);
}

void gm_lane_withdraw(struct gm_lane_task *task)
{
	struct gm_lane *lane = task->lane;

	if (!lane)
		return;
	task->lane = NULL;
	DL_DELETE(lane->tasks, task);
	if (lane->tasks)
		return;
	DL_DELETE(lane->lanes->busy, lane);
	if (--lane->lanes->n_busy == 0)
		uv_idle_stop(&lane->lanes->idle);
}
