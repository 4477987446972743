/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IDENTITY_H
#define GM_DAEMON_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Who is at the other end of a socket, as the kernel says; nothing here comes from the client's
 * own words. */

#define GM_CGROUP_UNIT_BYTES      256
#define GM_CGROUP_CONTAINER_BYTES 128
#define GM_CGROUP_SCOPE_BYTES     1024

/* What the path of a cgroup tells. */
struct gm_cgroup {
	char unit[GM_CGROUP_UNIT_BYTES];           /* the system manager's unit; "": none */
	char container[GM_CGROUP_CONTAINER_BYTES]; /* its id or name, for people; "": in none */
	/* The path down to the container: two containers never have the same one, even where one
	 * was given another's name. "" when in none. */
	char scope[GM_CGROUP_SCOPE_BYTES];
};

/*
 * Reads the text of /proc/PID/cgroup, v1, v2 or mixed. Of nested containers the outermost counts:
 * what is inside it was named by its own root, who could name it like a neighbour. A path that is
 * too long to be told apart from another gives -ENAMETOOLONG.
 */
int gm_cgroup_parse(const char *text, struct gm_cgroup *ret);

/* One process, seen once; what holds it shares it. */
struct gm_identity {
	unsigned int references;
	pid_t pid; /* 0: not visible from here (another pid namespace) */
	uid_t uid;
	gid_t gid;
	int pidfd;
	gid_t *groups; /* supplementary ones */
	size_t n_groups;
	struct gm_cgroup cgroup;
	char command[16 * 4];   /* printable */
	bool own_pid_namespace; /* it is in the daemon's */
	bool confined;          /* its container could not be told: it shares memory with nobody */
};

/* 0, or a negative errno and a sentence: who cannot be identified is refused. -ENOMEM, -EMFILE and
 * -ENFILE say nothing of the client: the daemon lacked what it takes to find out. */
int gm_identity_read(int socket, struct gm_identity **ret_identity, char why[256]);
struct gm_identity *gm_identity_ref(struct gm_identity *identity);
void gm_identity_unref(struct gm_identity *identity);

/* Root, the daemon's own user or a member of the group (-1: there is none), and in the daemon's pid
 * namespace. */
bool gm_identity_may_administer(
	const struct gm_identity *identity, uid_t daemon_uid, gid_t admin_group);
/* The same user, in the same container. Where that cannot be told: no. */
bool gm_identity_same_owner(const struct gm_identity *a, const struct gm_identity *b);
/* Whether the process has ended. */
bool gm_identity_dead(const struct gm_identity *identity);

/*
 * A pidfd of a process that is known by its number and its user, for kernels before 6.5, which
 * cannot give a socket's own. -ESRCH: there is none, or it is another one by now.
 */
int gm_identity_pin(pid_t pid, uid_t uid, int *ret_pidfd);

/* For tests: how many numbers the NSpid line of a /proc/PID/status has; 0 without one. */
size_t gm_identity_pid_depth(const char *status);

#endif
