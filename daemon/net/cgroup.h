/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CGROUP_H
#define GM_DAEMON_CGROUP_H

#include <stdbool.h>

#define GM_CGROUP_UNIT_BYTES      256
#define GM_CGROUP_CONTAINER_BYTES 128
#define GM_CGROUP_SCOPE_BYTES     1024

/* What the daemon learns from the cgroup path of a process. */
struct gm_cgroup {
	char unit[GM_CGROUP_UNIT_BYTES]; /* the system manager's unit; "": none */
	/* Its id or name, for people, or its path where the name proves nothing; "": in none. */
	char container[GM_CGROUP_CONTAINER_BYTES];
	/* The path down to the container; "": in none. Two containers never have the same one, even
	 * if one was given the name of the other. */
	char scope[GM_CGROUP_SCOPE_BYTES];
	/* The container's name proves nothing: its folder lies below a unit, whose user may have
	 * made it with any name, or the name was cut. */
	bool name_is_loose;
};

/* The name of the container in limits: its name, or its path where the name proves nothing; "": none. */
const char *gm_cgroup_limit_name(const struct gm_cgroup *cgroup);

/*
 * Parses the text of /proc/PID/cgroup: v1, v2 or mixed. Of nested containers the outermost counts,
 * because the root user of a container can give the ones inside it any name. Returns 0, or
 * -ENAMETOOLONG: the path is too long to be told apart from another.
 */
int gm_cgroup_parse(const char *text, struct gm_cgroup *ret);

#endif
