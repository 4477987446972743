/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LANE_H
#define GM_DAEMON_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

#include <uthash.h>

#include "common/fd_budget.h"

/*
 * Lanes make the loop serve users in turn, not connections. All sockets of one user are in one epoll
 * set, its lane, and all lanes are in another one, which the loop watches. In each turn of the loop
 * a lane delivers one event and runs one task. So a user with 1,000 busy connections gets one packet
 * served, then every other user gets one. Inside a lane the kernel takes the ready sockets in turn.
 *
 * A user pays for long turns: a lane whose turn took more than GM_LANE_TURN_NS rests for
 * GM_LANE_REST_FACTOR times the excess. While it rests, the loop serves nothing of it; the ends of
 * its processes wait, too. Then it goes on where it was. Administrators' lanes never rest.
 *
 * libuv's own table of descriptors ends the program if it cannot grow. It knows one descriptor of
 * all lanes, so it need not.
 */
struct gm_inflight;
struct gm_lane_task;

/* The longest turns of ordinary requests take about half of that: a slice of a Return. */
#define GM_LANE_TURN_NS     UINT64_C(2000000)
#define GM_LANE_REST_FACTOR 8
#define GM_LANE_REST_MAX_NS UINT64_C(2000000000)

/* Embedded in gm_hub. */
struct gm_lanes {
	int epoll; /* has all lanes */
	uv_poll_t poll;
	struct gm_lane *all;  /* by key */
	struct gm_lane *busy; /* those with tasks, in the order of their turns */
	size_t n_busy;
	uv_idle_t idle; /* runs while there are tasks */
	struct gm_lane *resting;
	uv_timer_t rest; /* runs while lanes rest */
	bool open;
	/* The turn that goes on: whose it is, NULL if nobody's, and when it began. cpu_ns is what this
	 * thread had used at some time before that. */
	struct gm_lane *serving;
	uint64_t began_ns, cpu_ns;
	uint64_t (*clock)(clockid_t id); /* in nanoseconds; tests have their own */
	/* Descriptors on their way to clients: how many there are, how many there may be, and how
	 * many of one user (inflight.c). */
	uint64_t fds_unread, fds_max, fds_per_uid;
	uint64_t bytes_unread; /* of answers (unread.c) */
	/* Counts the descriptors of connections and sessions. Never NULL; the daemon puts its own account, which
	 * has a bound, here before the first connection. */
	struct gm_fd_budget *budget, unbounded;
};

/* One user. It exists while somebody holds a reference. */
struct gm_lane {
	struct gm_lanes *lanes;
	uint64_t key;
	uint32_t connections;         /* gm_lane_connected() counts them */
	uint32_t clients;             /* gm_lane_joined() does: the quarantined ones included */
	struct gm_inflight *inflight; /* clients with descriptors on their way: inflight.c */
	uint64_t fds_unread;
	uint64_t bytes_unread; /* of answers (unread.c) */
	/* private to lane.c */
	uint32_t refs;
	int epoll;
	struct gm_lane_task *tasks;
	struct gm_lane *prev, *next; /* in lanes->busy or lanes->resting */
	uint64_t rest_until_ns;      /* 0: it does not rest */
	UT_hash_handle hh;
};

/* The bounds on descriptors follow from the process's RLIMIT_NOFILE. */
int gm_lanes_init(struct gm_lanes *lanes, uv_loop_t *loop);
/* Closes the handles. All lanes must be gone. The loop must turn once more before the memory goes. */
void gm_lanes_close(struct gm_lanes *lanes);

/* A lane's key is the uid that pays (identity.h). Connections over the administrators' socket have this bit in it, so
 * that what a user does on the other socket does not delay them. */
#define GM_LANE_ADMIN (UINT64_C(1) << 32)

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
/* Call these before and after a send, so that the receiver's lane pays for it, whoever's turn it is. */
uint64_t gm_lane_begin_send(const struct gm_lane *lane);
void gm_lane_end_send(struct gm_lane *lane, uint64_t began_ns);

/* How many descriptors a connection has: its socket and its pidfd. And a session: its bell, the
 * client's page and, once it was resumed, the page before. A session in quarantine has no bell, but keeps
 * the pidfd. */
#define GM_LANE_CONNECTION_FDS 2
#define GM_LANE_SESSION_FDS    3
/* A client in quarantine keeps room for its connection. Otherwise other clients could take that room after a
 * restart, and the client could not resume its session. */

/* Whether the user has fewer connections than clients, so that a client may want to resume its session. lane may be
 * NULL. */
bool gm_lane_awaits_clients(const struct gm_lane *lane);
/* Whether the user's descriptors allow a further connection. lane: NULL if the user has none yet. */
bool gm_lane_may_connect(const struct gm_lanes *lanes, const struct gm_lane *lane);
/* The same for a further session of one that is connected. */
bool gm_lane_may_join(const struct gm_lanes *lanes, const struct gm_lane *lane);
/* Count connections and sessions, with their descriptors. */
void gm_lane_connected(struct gm_lane *lane);
void gm_lane_disconnected(struct gm_lane *lane);
void gm_lane_joined(struct gm_lane *lane);
void gm_lane_left(struct gm_lane *lane);

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
