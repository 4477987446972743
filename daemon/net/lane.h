/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LANE_H
#define GM_DAEMON_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

#include <uthash.h>

#include "daemon/user/user.h"

/*
 * Lanes share out the time of the loop among users, not connections. All sockets of one user are in
 * one epoll set, its lane, and all lanes are in another one, which the loop watches. On its turn, a
 * lane delivers one event or runs one task. Inside a lane the kernel takes the ready sockets
 * round-robin.
 *
 * The order is that of start-time fair queueing. Each lane has a virtual time, which grows by what
 * its turns take. The loop serves the ready lane with the lowest virtual time first. The virtual
 * time of a lane that becomes ready is at least that of the busy ones, so nobody saves up turns. A
 * user thus gets the same time of the loop with long requests as with short ones, and with 1,000
 * connections as with one; a user that asks less than the others waits for the turn that goes on,
 * and not for all of theirs.
 *
 * A turn cannot be interrupted. Work that may take longer than GM_LANE_TURN_NS is done in slices:
 * it stops when gm_lane_time_is_up(), and goes on in the user's next turn.
 *
 * How long a send takes is up to its receiver, and no slice bounds it. A lane whose virtual time is
 * more than GM_LANE_LEAD_NS ahead rests for GM_LANE_REST_FACTOR times the excess. While it rests,
 * the loop serves nothing of it. Then it goes on where it was. Administrators' lanes never rest:
 * their lead is cut. The same holds for a user's second lane, GM_LANE_ENDS, because others may wait for
 * the memory of a process that has ended.
 *
 * What a user owes outlives its connections: an account without a descriptor stays, one for each
 * user, until the others have had as much of the loop and the rest is over. Results of the
 * devices' threads are charged in the same way, also if the user has gone.
 *
 * libuv's own table of descriptors ends the program if it cannot grow. It knows one descriptor of
 * all lanes, so it need not.
 */
struct gm_inflight;
struct gm_lane_task;

/* Maximum length of a turn, and of the slice of it after which no more work is begun: what the
 * slice made still has to be packed and sent. In ns. */
#define GM_LANE_TURN_NS  UINT64_C(50000)
#define GM_LANE_SLICE_NS UINT64_C(20000)

/* Maximum lead of a lane that does not rest, in ns: more than the turns of all requests take. */
#define GM_LANE_LEAD_NS     UINT64_C(2000000)
#define GM_LANE_REST_FACTOR 8
#define GM_LANE_REST_MAX_NS UINT64_C(2000000000)

/* Embedded in gm_hub. */
struct gm_lanes {
	int epoll; /* has all lanes */
	uv_poll_t poll;
	struct gm_lane *all;  /* by key */
	struct gm_lane *left; /* by key: accounts of users without a lane */
	/* Lanes that are ready or have tasks, the lowest virtual time first, and of equal ones the
	 * one that came first. */
	struct gm_lane *queue;
	size_t n_queued;
	uint64_t virtual_ns; /* lowest virtual time of the busy lanes when the last turn began */
	uv_check_t turns;    /* serves the queue, after each poll */
	uv_idle_t idle;      /* runs while the queue has lanes, and keeps the loop from sleeping */
	struct gm_lane *resting;
	uv_timer_t rest; /* runs while lanes rest */
	bool open;
	/* The turn that goes on: whose it is, NULL if nobody's, and when it began. began_ns is the
	 * same as of gm_lane_begin_work(). cpu_ns is what this thread had used at some time before
	 * that, or before the outermost work outside of a turn. */
	struct gm_lane *serving;
	uint64_t turn_ns, began_ns, cpu_ns;
	uint64_t paid_ns;                /* time that was charged so far, to anybody */
	unsigned int works;              /* that have begun and not ended */
	uint64_t (*clock)(clockid_t id); /* in nanoseconds; tests have their own */
	struct gm_user_table *users;
};

/* A user's share of the loop's time. It exists while somebody holds a reference. */
struct gm_lane {
	struct gm_lanes *lanes;
	uint64_t key;
	struct gm_user *user;         /* NULL: it is an account only */
	struct gm_inflight *inflight; /* clients with descriptors on their way: inflight.c */
	/* private to lane.c */
	uint32_t refs;
	struct gm_user_charge set; /* of epoll */
	int epoll;
	struct gm_lane_task *tasks;
	bool ready;    /* the loop's set has reported it */
	bool tasks_up; /* its last turn was an event, so a task comes next */
	bool queued;
	bool left; /* it is an account only: in lanes->left, without references and descriptors */
	uint64_t virtual_ns;
	struct gm_lane *prev, *next; /* in lanes->queue or lanes->resting */
	uint64_t rest_until_ns;      /* 0: it does not rest */
	UT_hash_handle hh;
};

/* Bounds descriptors on their way by the process's RLIMIT_NOFILE. users must outlive the lanes. */
int gm_lanes_init(struct gm_lanes *lanes, uv_loop_t *loop, struct gm_user_table *users);
/* Closes the handles. All lanes must be gone. The loop must turn once more before the memory goes. */
void gm_lanes_close(struct gm_lanes *lanes);

/* A lane's key is the uid that pays (identity.h). Connections over the administrators' socket have this bit in it, so
 * that what a user does on the other socket does not delay them. */
#define GM_LANE_ADMIN (UINT64_C(1) << 32)
/* The ends of the user's processes, and the release of what they held, have this bit. Nothing is sent to the user on
 * such a turn. */
#define GM_LANE_ENDS (UINT64_C(1) << 33)
/* The key of no user: (uid_t)-1. */
#define GM_LANE_NOBODY UINT64_C(0xffffffff)

/* Returns the lane, or NULL if there is none. */
struct gm_lane *gm_lane_find(struct gm_lanes *lanes, uint64_t key);
/* Returns a reference to the lane, which is created if there is none. */
int gm_lane_get(struct gm_lanes *lanes, uint64_t key, struct gm_lane **ret_lane);
struct gm_lane *gm_lane_ref(struct gm_lane *lane);
/* lane may be NULL. */
void gm_lane_unref(struct gm_lane *lane);

/* Whether the lane rests. Then the daemon sends nothing to its user. How long a send takes is up to the user: during
 * it, the kernel wakes every waiter of the socket. */
bool gm_lane_rests(const struct gm_lane *lane);
/* Call these before and after work for a user outside of its turn, such as a send, so that the user
 * pays for it, whoever's turn it is. Works may be nested: each time is paid for once, by the
 * innermost. A user whose turn it is pays for work that is not nested at the end of the turn. The second one
 * is for a user that may have no lane, by the key of that. */
uint64_t gm_lane_begin_work(struct gm_lanes *lanes);
void gm_lane_end_work(struct gm_lane *lane, uint64_t began_ns);
void gm_lane_end_work_of(struct gm_lanes *lanes, uint64_t key, uint64_t began_ns);
/* Whether the turn that goes on has used up its slice. Then no more work is begun in it. Outside of
 * a turn, always. Work must make some progress before it asks. */
bool gm_lane_time_is_up(const struct gm_lane *lane);

/* Returns the slot in which the lane's user is charged: administrators' connections have slots of their own. */
static inline enum gm_user_slot gm_lane_slot(
	const struct gm_lane *lane, enum gm_user_slot slot, enum gm_user_slot admin)
{
	return lane->key & GM_LANE_ADMIN ? admin : slot;
}

/*
 * A descriptor in a lane, embedded in a struct of its owner. ready() gets EPOLLIN and its like;
 * EPOLLERR and EPOLLHUP come unasked. It may stop this descriptor or any other, and drop the lane.
 */
struct gm_lane_fd {
	struct gm_lane *lane;
	int fd;
	uint32_t events;
	void (*ready)(struct gm_lane_fd *fd, uint32_t events);
};
/* The lane must outlive the registration, which gm_lane_remove() ends. fd->fd, fd->events and
 * fd->ready are filled in. */
int gm_lane_add(struct gm_lane *lane, struct gm_lane_fd *fd);
int gm_lane_change(struct gm_lane_fd *fd, uint32_t events);
/* Must be called before the descriptor is closed. Does nothing if fd is not registered. */
void gm_lane_remove(struct gm_lane_fd *fd);

/*
 * Something to do on the lane's turn: for work that one client causes and another one's connection
 * has to carry, such as an event for 1,000 watchers. Embedded in a struct of its owner.
 */
struct gm_lane_task {
	void (*run)(struct gm_lane_task *task); /* may post the task again, or free it */
	struct gm_lane *lane;                   /* set while the task is posted */
	struct gm_lane_task *prev, *next;
};
/* Does nothing if the task is posted already. The lane must outlive the post. */
void gm_lane_post(struct gm_lane *lane, struct gm_lane_task *task);
/* Does nothing if the task is not posted. */
void gm_lane_withdraw(struct gm_lane_task *task);

#endif
