/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IDENTITY_H
#define GM_DAEMON_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/cgroup.h"

/* The process at the other end of a socket, as the kernel describes it. Nothing here comes from
 * what the client says of itself. */

/* The uid as which the kernel shows every user that the user namespace of this process does not have. */
#define GM_OVERFLOW_UID 65534

/* One process, as it was when it connected. Counted by references. */
struct gm_identity {
	struct gm_identity *process; /* whose pidfd it is; NULL: its own */
	gid_t *groups;               /* the supplementary ones */
	unsigned int references;
	pid_t pid; /* 0: not visible from here (another pid namespace) */
	/* Two uids that must not be mixed up. uid is the user of the process, and decides who may see, open, resume
	 * and administer what. payer_uid is the user that pays: the owner of the subordinate uids (subuid.h) to which
	 * uid belongs, or uid itself. All bounds, turns and limits of users go by it. It never changes. */
	uid_t uid;
	uid_t payer_uid;
	gid_t gid;
	int pidfd;
	uint32_t n_groups;
	unsigned long long started; /* in the kernel's ticks since the boot; 0: not known */
	struct gm_cgroup cgroup;
	char command[16 * 4]; /* printable */
	/* Of gm_identity_go_on(): its next step, and how many numbers the process has, one in each of its pid
	 * namespaces. */
	uint8_t step;
	uint16_t depth;
	bool own_pid_namespace; /* it is in the daemon's pid namespace */
	bool confined;          /* its container is not known: it shares memory with nobody */
};

/* Identifies the process at the other end. On error, returns a negative errno, and why says why the
 * client must be refused. -ENOMEM, -EMFILE and -ENFILE are the daemon's own shortage and say
 * nothing about the client. It pays for itself, unless the caller knows better. */
int gm_identity_read(int socket, struct gm_identity **ret_identity, char why[256]);
/* The same in steps of some 10 microseconds. After gm_identity_begin(), only uid, gid, groups and pidfd
 * are known. gm_identity_go_on() returns 1 if there is more to do, 0 at the end, or a negative errno as
 * above. The caller owns the identity in any case. */
int gm_identity_begin(int socket, struct gm_identity **ret_identity, char why[256]);
int gm_identity_go_on(struct gm_identity *identity, char why[256]);
/* When the process of this number began, as above, and whether it has ended and is only not reaped yet.
 * -ESRCH: there is no process of this number. Any other error: that is not known. */
int gm_identity_number(pid_t pid, unsigned long long *ret_began, bool *ret_ended);
/*
 * Makes the identity of a process that an earlier daemon saw, and takes ownership of the pidfd (-1: it
 * is lost). known has everything but the pidfd and the groups. The process must have the same number
 * and start time still; start_time is 0 if that daemon could not read it. -ESRCH: the process has ended, or cannot be told from
 * another one. -EACCES or -EOVERFLOW, as gm_identity_sees_others(): it lives, and its memory must not be given up. -ENOMEM, -EMFILE, …
 */
int gm_identity_restore(const struct gm_identity *known, unsigned long long start_time, int pidfd,
	struct gm_identity **ret_identity);
/*
 * Whether this daemon sees the processes of all users: 0. -EACCES: its /proc hides those of other users. -EOVERFLOW: its user
 * namespace has so few users that it shows the others as one, GM_OVERFLOW_UID.
 */
int gm_identity_sees_others(void);
struct gm_identity *gm_identity_ref(struct gm_identity *identity);
void gm_identity_unref(struct gm_identity *identity);
/* Both are known to be of one process: identity gives up its pidfd and uses that of same. */
void gm_identity_share(struct gm_identity *identity, struct gm_identity *same);

/* Whether the process is in the daemon's pid namespace and belongs to root, to the daemon's own
 * user or to a member of the group (-1: there is none). */
bool gm_identity_has_role(const struct gm_identity *identity, uid_t daemon_uid, gid_t group);
/* Whether both belong to the same user in the same container; false if that is not known. */
bool gm_identity_same_owner(const struct gm_identity *a, const struct gm_identity *b);
/* Whether the process has ended. */
bool gm_identity_dead(const struct gm_identity *identity);
/* Whether the process is about to end: it has no memory any more. false if that is not known. */
bool gm_identity_exiting(const struct gm_identity *identity);

/* The next one is here for tests: a recent kernel does not need it. */

/*
 * Opens a pidfd for a process that is known by its number and its user. Kernels before 6.5 need it,
 * because they have no SO_PEERPIDFD. Returns 0, a negative errno, or -ESRCH: there is no such
 * process, or the number belongs to another one by now.
 */
int gm_identity_pin(pid_t pid, uid_t uid, int *ret_pidfd);

#endif
