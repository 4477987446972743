/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_NET_HUB_FLOW_H
#define GM_DAEMON_NET_HUB_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

#include <uthash.h>

#include "daemon/user/user.h"

/*
 * Flows share out the time of the loop among users, not connections. All sockets of one user are in
 * one epoll set, its flow, and all flows are in another one, which the loop watches. On its turn, a
 * flow delivers one event or runs one task. Inside a flow the kernel takes the ready sockets
 * round-robin.
 *
 * The order is that of start-time fair queueing. Each flow has a virtual time, which grows by what
 * its turns take. The loop serves the ready flow with the lowest virtual time first. The virtual
 * time of a flow that becomes ready is at least that of the busy ones, so nobody saves up turns. A
 * user thus gets the same time of the loop with long requests as with short ones, and with 1,000
 * connections as with one; a user that asks less than the others waits for the turn that goes on,
 * and not for all of theirs.
 *
 * A turn cannot be interrupted. Work that may take longer than GM_HUB_FLOW_QUANTUM_NS is done in slices:
 * it stops when gm_hub_flow_time_is_up(), and goes on in the user's next turn.
 *
 * How long a send takes is up to its receiver, and no slice bounds it. A flow whose virtual time is
 * more than GM_HUB_FLOW_LEAD_NS ahead rests for GM_HUB_FLOW_REST_FACTOR times the excess. While it rests,
 * the loop serves nothing of it. Then it goes on where it was. Administrators' flows never rest:
 * their lead is cut. The same holds for a user's second flow, GM_HUB_FLOW_ENDS, because others may wait for
 * the memory of a process that has ended.
 *
 * What a user owes outlives its connections: an account without a descriptor stays, one for each
 * user, until the others have had as much of the loop and the rest is over. Results of the
 * devices' threads are charged in the same way, also if the user has gone.
 *
 * libuv's own table of descriptors ends the program if it cannot grow. It knows one descriptor of
 * all flows, so it need not.
 */
struct gm_peer_inflight;
struct gm_hub_flow_task;

/* Maximum length of a turn, and of the slice of it after which no more work is begun: what the
 * slice made still has to be packed and sent. In ns. */
#define GM_HUB_FLOW_QUANTUM_NS UINT64_C(50000)
#define GM_HUB_FLOW_SLICE_NS   UINT64_C(20000)

/* Maximum lead of a flow that does not rest, in ns: more than the turns of all requests take. */
#define GM_HUB_FLOW_LEAD_NS     UINT64_C(2000000)
#define GM_HUB_FLOW_REST_FACTOR 8
#define GM_HUB_FLOW_REST_MAX_NS UINT64_C(2000000000)

/* Embedded in gm_hub. */
struct gm_hub_flows {
	int epoll; /* has all flows */
	uv_poll_t poll;
	struct gm_hub_flow *all;  /* by key */
	struct gm_hub_flow *left; /* by key: accounts of users without a flow */
	/* Flows that are ready or have tasks, the lowest virtual time first, and of equal ones the
	 * one that came first. */
	struct gm_hub_flow *queue;
	size_t n_queued;
	uint64_t virtual_ns; /* lowest virtual time of the busy flows when the last turn began */
	uv_check_t turns;    /* serves the queue, after each poll */
	uv_idle_t idle;      /* runs while the queue has flows, and keeps the loop from sleeping */
	struct gm_hub_flow *resting;
	uv_timer_t rest; /* runs while flows rest */
	bool open;
	/* The turn that goes on: whose it is, NULL if nobody's, and when it began. began_ns is the
	 * same as of gm_hub_flow_begin_work(). cpu_ns is what this thread had used at some time before
	 * that, or before the outermost work outside of a turn. */
	struct gm_hub_flow *serving;
	uint64_t turn_ns, began_ns, cpu_ns;
	uint64_t paid_ns;                /* time that was charged so far, to anybody */
	unsigned int works;              /* that have begun and not ended */
	uint64_t (*clock)(clockid_t id); /* in nanoseconds; tests have their own */
	struct gm_user_table *users;
};

/* A user's share of the loop's time. It exists while somebody holds a reference. */
struct gm_hub_flow {
	struct gm_hub_flows *flows;
	uint64_t key;
	struct gm_user *user; /* NULL: it is an account only */
	struct gm_peer_inflight
		*inflight; /* clients with descriptors on their way: peer_inflight.c */
	/* private to hub_flow.c */
	uint32_t refs;
	struct gm_user_charge set; /* of epoll */
	int epoll;
	struct gm_hub_flow_task *tasks;
	bool ready;    /* the loop's set has reported it */
	bool tasks_up; /* its last turn was an event, so a task comes next */
	bool queued;
	bool left; /* it is an account only: in flows->left, without references and descriptors */
	uint64_t virtual_ns;
	struct gm_hub_flow *prev, *next; /* in flows->queue or flows->resting */
	uint64_t rest_until_ns;          /* 0: it does not rest */
	UT_hash_handle hh;
};

/* Bounds descriptors on their way by the process's RLIMIT_NOFILE. users must outlive the flows. */
int gm_hub_flows_init(struct gm_hub_flows *flows, uv_loop_t *loop, struct gm_user_table *users);
/* Closes the handles. All flows must be gone. The loop must turn once more before the memory goes. */
void gm_hub_flows_close(struct gm_hub_flows *flows);

/* A flow's key is the uid that pays (identity.h). Connections over the administrators' socket have this bit in it, so
 * that what a user does on the other socket does not delay them. */
#define GM_HUB_FLOW_ADMIN (UINT64_C(1) << 32)
/* The ends of the user's processes, and the release of what they held, have this bit. Nothing is sent to the user on
 * such a turn. */
#define GM_HUB_FLOW_ENDS (UINT64_C(1) << 33)
/* The key of no user: (uid_t)-1. */
#define GM_HUB_FLOW_NOBODY UINT64_C(0xffffffff)

/* Returns the flow, or NULL if there is none. */
struct gm_hub_flow *gm_hub_flow_find(struct gm_hub_flows *flows, uint64_t key);
/* Returns a reference to the flow, which is created if there is none. */
int gm_hub_flow_get(struct gm_hub_flows *flows, uint64_t key, struct gm_hub_flow **ret_flow);
struct gm_hub_flow *gm_hub_flow_ref(struct gm_hub_flow *flow);
/* flow may be NULL. */
void gm_hub_flow_unref(struct gm_hub_flow *flow);

/* Whether the flow rests. Then the daemon sends nothing to its user. How long a send takes is up to the user: during
 * it, the kernel wakes every waiter of the socket. */
bool gm_hub_flow_rests(const struct gm_hub_flow *flow);
/* Call these before and after work for a user outside of its turn, such as a send, so that the user
 * pays for it, whoever's turn it is. Works may be nested: each time is paid for once, by the
 * innermost. A user whose turn it is pays for work that is not nested at the end of the turn. The second one
 * is for a user that may have no flow, by the key of that. */
uint64_t gm_hub_flow_begin_work(struct gm_hub_flows *flows);
void gm_hub_flow_end_work(struct gm_hub_flow *flow, uint64_t began_ns);
void gm_hub_flow_end_work_of(struct gm_hub_flows *flows, uint64_t key, uint64_t began_ns);
/* Whether the turn that goes on has used up its slice. Then no more work is begun in it. Outside of
 * a turn, always. Work must make some progress before it asks. */
bool gm_hub_flow_time_is_up(const struct gm_hub_flow *flow);

/* Returns the slot in which the flow's user is charged: administrators' connections have slots of their own. */
static inline enum gm_user_slot gm_hub_flow_slot(
	const struct gm_hub_flow *flow, enum gm_user_slot slot, enum gm_user_slot admin)
{
	return flow->key & GM_HUB_FLOW_ADMIN ? admin : slot;
}

/*
 * A descriptor in a flow, embedded in a struct of its owner. ready() gets EPOLLIN and its like;
 * EPOLLERR and EPOLLHUP come unasked. It may stop this descriptor or any other, and drop the flow.
 */
struct gm_hub_flow_fd {
	struct gm_hub_flow *flow;
	int fd;
	uint32_t events;
	void (*ready)(struct gm_hub_flow_fd *fd, uint32_t events);
};
/* The flow must outlive the registration, which gm_hub_flow_remove() ends. fd->fd, fd->events and
 * fd->ready are filled in. */
int gm_hub_flow_add(struct gm_hub_flow *flow, struct gm_hub_flow_fd *fd);
int gm_hub_flow_change(struct gm_hub_flow_fd *fd, uint32_t events);
/* Must be called before the descriptor is closed. Does nothing if fd is not registered. */
void gm_hub_flow_remove(struct gm_hub_flow_fd *fd);

/*
 * Something to do on the flow's turn: for work that one client causes and another one's connection
 * has to carry, such as an event for 1,000 watchers. Embedded in a struct of its owner.
 */
struct gm_hub_flow_task {
	void (*run)(struct gm_hub_flow_task *task); /* may post the task again, or free it */
	struct gm_hub_flow *flow;                   /* set while the task is posted */
	struct gm_hub_flow_task *prev, *next;
};
/* Does nothing if the task is posted already. The flow must outlive the post. */
void gm_hub_flow_post(struct gm_hub_flow *flow, struct gm_hub_flow_task *task);
/* Does nothing if the task is not posted. */
void gm_hub_flow_withdraw(struct gm_hub_flow_task *task);

#endif
