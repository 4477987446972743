/* SPDX-License-Identifier: Apache-2.0 */

/* Who a client is: cgroup paths as the container runtimes write them, and real processes. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/tenant/domain.h"
#include "daemon/net/identity.h"
#include "tests/bound.h"
#include "tests/tap.h"

#define ID  "3f29b6aa0b7ac52dbd5bb6d8e0a5b6ac1c0a3bd6b5a6e7d1a9a8f7c6b5d4e3f2"
#define ID2 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* container NULL: the name proves nothing, and the path is shown. */
static const struct sample {
	const char *text, *unit, *container, *scope;
} samples[] = {
	/* no container */
	{"0::/\n", "", "", ""},
	{"0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope", "", ""},
	{"0::/system.slice/ssh.service\n", "ssh.service", "", ""},
	{"0::/system.slice/system-getty.slice/getty@tty1.service\n", "getty@tty1.service", "", ""},
	/* what a user's manager runs was named by the user: the system's unit counts */
	{"0::/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service\n",
		"user@1000.service", "", ""},
	{"0::/init.scope\n", "init.scope", "", ""},
	{"", "", "", ""},
	{"nonsense\n::\n:\n0:\n", "", "", ""},
	/* docker */
	{"0::/system.slice/docker-" ID ".scope\n", "", ID, "/system.slice/docker-" ID ".scope"},
	{"12:memory:/docker/" ID "\n1:name=systemd:/docker/" ID "\n0::/system.slice/x.service\n",
		"x.service", ID, "/docker/" ID},
	/* podman, as root and as a user; its monitor is outside */
	{"0::/machine.slice/libpod-" ID ".scope/container\n", "", ID,
		"/machine.slice/libpod-" ID ".scope"},
	{"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope\n",
		"user@1000.service", NULL,
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope"},
	{"0::/machine.slice/libpod-conmon-" ID ".scope\n", "libpod-conmon-" ID ".scope", "", ""},
	{"11:pids:/libpod_parent/libpod-" ID "\n", "", ID, "/libpod_parent/libpod-" ID},
	/* Kubernetes: systemd and plain cgroups, containerd and cri-o */
	{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b.slice/"
	 "cri-containerd-" ID ".scope\n",
		"", ID,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b.slice/"
		"cri-containerd-" ID ".scope"},
	{"0::/kubepods.slice/kubepods-pod1a2b.slice/crio-" ID ".scope\n", "", ID,
		"/kubepods.slice/kubepods-pod1a2b.slice/crio-" ID ".scope"},
	{"4:memory:/kubepods/besteffort/pod2c48913c-b29f-11e7-9350-020968147796/" ID "\n", "", ID,
		"/kubepods/besteffort/pod2c48913c-b29f-11e7-9350-020968147796/" ID},
	{"0::/system.slice/containerd.service/kubepods-besteffort-pod1a2b.slice:cri-containerd:" ID
	 "\n",
		"containerd.service", NULL,
		"/system.slice/containerd.service/kubepods-besteffort-pod1a2b.slice:cri-containerd:" ID},
	{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b.slice/odd\n", "",
		"kubepods-burstable-pod1a2b.slice",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b.slice"},
	/* nerdctl, ECS */
	{"0::/default/" ID "\n", "", ID, "/default/" ID},
	{"0::/system.slice/nerdctl-" ID ".scope\n", "", ID, "/system.slice/nerdctl-" ID ".scope"},
	{"7:cpu:/ecs/task-1/" ID "\n", "", ID, "/ecs/task-1/" ID},
	/* lxc, old and new; its monitor is outside */
	{"9:memory:/lxc/web/init.scope\n", "", "web", "/lxc/web"},
	{"0::/lxc.payload.web/system.slice/cron.service\n", "", "web", "/lxc.payload.web"},
	{"0::/lxc.payload/web\n", "", "web", "/lxc.payload/web"},
	{"0::/lxc.monitor.web\n", "", "", ""},
	/* systemd-nspawn; a virtual machine's emulator runs on the host */
	{"0::/machine.slice/systemd-nspawn@deb12.service/payload/init.scope\n", "", "deb12",
		"/machine.slice/systemd-nspawn@deb12.service"},
	{"0::/machine.slice/machine-my\\x2dbox.scope\n", "", "my-box",
		"/machine.slice/machine-my\\x2dbox.scope"},
	{"0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope\n", "machine-qemu-1-vm.scope", "", ""},
	/* nested: the outermost counts, whatever was named inside */
	{"0::/system.slice/docker-" ID ".scope/docker/" ID2 "\n", "", ID,
		"/system.slice/docker-" ID ".scope"},
	{"0::/lxc.payload.a/lxc.payload.b\n", "", "a", "/lxc.payload.a"},
	/* not quite an id */
	{"0::/docker-3f29.scope\n", "docker-3f29.scope", "", ""},
	{"0::/system.slice/docker-" ID "0.scope\n", "docker-" ID "0.scope", "", ""},
	/* made up: somebody else's id, in a folder of the user's own; and bytes that are no text */
	{"0::/system.slice/bob.service/docker/" ID "\n", "bob.service", NULL,
		"/system.slice/bob.service/docker/" ID},
	{"0::/system.slice/bob.service/lxc/prod\n", "bob.service",
		"/system.slice/bob.service/lxc/prod", "/system.slice/bob.service/lxc/prod"},
	{"0::/system.slice/bob.service/lxc/\xff\n", "bob.service",
		"/system.slice/bob.service/lxc/?", "/system.slice/bob.service/lxc/\xff"},
	/* control characters do not get through */
	{"0::/lxc/we\x01\x1b[1mb\n", "", "we??[1mb", "/lxc/we\x01\x1b[1mb"},
};

START_TEST(every_runtimes_paths_are_understood)
{
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		struct gm_cgroup got;
		ck_assert_int_eq(gm_cgroup_parse(samples[i].text, &got), 0);
		ck_assert_msg(strcmp(got.unit, samples[i].unit) == 0, "%s: unit %s, not %s",
			samples[i].text, got.unit, samples[i].unit);
		char shown[GM_CGROUP_CONTAINER_BYTES];
		snprintf(shown, sizeof(shown), "%s",
			samples[i].container ? samples[i].container : samples[i].scope);
		ck_assert_msg(strcmp(got.container, shown) == 0, "%s: container %s, not %s",
			samples[i].text, got.container, shown);
		ck_assert_msg(strcmp(got.scope, samples[i].scope) == 0, "%s: scope %s, not %s",
			samples[i].text, got.scope, samples[i].scope);
	}
}
END_TEST

/* A user to whom systemd delegated a cgroup can make folders in it, with any names. */
START_TEST(a_limits_container_is_not_one_that_a_user_named_like_it)
{
#define BOX "4f2d1c0b9a8f7e6d5c4b3a2918070605f4e3d2c1b0a9988776655443322110ff"
	static const struct {
		const char *text, *name;
	} boxes[] = {
		{"0::/docker/" BOX "\n", BOX},
		{"0::/system.slice/docker-" BOX ".scope\n", BOX},
		{"0::/lxc/web\n", "web"},
		{"0::/system.slice/systemd-nspawn@web.service/payload\n", "web"},
		{"0::/user.slice/user-1000.slice/user@1000.service/docker-" BOX ".scope\n",
			"/user.slice/user-1000.slice/user@1000.service/docker-" BOX ".scope"},
		{"0::/system.slice/bob.service/lxc/web\n", "/system.slice/bob.service/lxc/web"},
		{"0::/user.slice/user-1000.slice/session-3.scope/lxc/web\n",
			"/user.slice/user-1000.slice/session-3.scope/lxc/web"},
		{"0::/user.slice\n", ""},
	};
#undef BOX

	for (size_t i = 0; i < sizeof(boxes) / sizeof(*boxes); i++) {
		struct gm_cgroup got;
		ck_assert_int_eq(gm_cgroup_parse(boxes[i].text, &got), 0);
		ck_assert_str_eq(gm_cgroup_limit_name(&got), boxes[i].name);
	}

	/* Nor one whose name was cut to the same. */
	struct gm_cgroup got;
	char text[512] = "0::/lxc/";
	memset(text + strlen(text), 'n', 200);
	ck_assert_int_eq(gm_cgroup_parse(text, &got), 0);
	ck_assert_str_eq(gm_cgroup_limit_name(&got), text + strlen("0::"));
}
END_TEST

START_TEST(a_path_too_long_to_be_told_from_another_is_an_error)
{
	char text[3 * GM_CGROUP_SCOPE_BYTES];
	struct gm_cgroup got;
	memset(text, 'a', sizeof(text));
	memcpy(text, "0::/", 4);
	strcpy(text + GM_CGROUP_SCOPE_BYTES, "/lxc/x\n");
	ck_assert_int_eq(gm_cgroup_parse(text, &got), -ENAMETOOLONG);
	/* A container's name that does not fit is cut: it is for people. */
	memset(text, 'a', sizeof(text));
	memcpy(text, "0::/lxc/", 8);
	text[8 + GM_CGROUP_CONTAINER_BYTES + 50] = '\0';
	ck_assert_int_eq(gm_cgroup_parse(text, &got), 0);
	ck_assert_uint_eq(strlen(got.container), GM_CGROUP_CONTAINER_BYTES - 1);
}
END_TEST

/* Has as many supplementary groups as there can be. */
static void take_all_groups(void)
{
	static gid_t groups[65536];

	for (size_t i = 0; i < 65536; i++)
		groups[i] = (gid_t)(2000000000 + i);
	if (setgroups(65536, groups) < 0)
		_exit(1);
}

/* A child at the other end of a socket pair: it waits for a byte, then ends. */
static pid_t child_that(void (*prepares)(void), int ends[2])
{
	/* The credentials are those of who made the pair, so the child makes it: by listening. */
	int pipes[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		int pair[2];
		char byte = 'x';
		struct iovec data = {.iov_base = &byte, .iov_len = 1};
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		struct msghdr message = {.msg_iov = &data,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes)};
		if (prepares)
			prepares();
		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
			_exit(1);
		memset(&control, 0, sizeof(control));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &pair[0], sizeof(int));
		if (sendmsg(pipes[1], &message, 0) != 1)
			_exit(1);
		_exit(read(pair[1], &byte, 1) == 1 ? 0 : 1);
	}
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	ck_assert_int_eq(recvmsg(pipes[0], &message, 0), 1);
	memcpy(&ends[0], CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	close(pipes[0]);
	close(pipes[1]);
	return child;
}

static pid_t child_at(int ends[2])
{
	return child_that(NULL, ends);
}

START_TEST(a_process_is_identified_and_its_end_is_seen)
{
	int ends[2];
	char why[256] = "";
	struct gm_identity *identity;
	pid_t child = child_at(ends);
	ck_assert_msg(gm_identity_read(ends[0], &identity, why) == 0, "%s", why);
	ck_assert_int_eq(identity->pid, child);
	ck_assert_uint_eq(identity->uid, getuid());
	ck_assert_uint_eq(identity->gid, getgid());
	ck_assert_int_ge(identity->pidfd, 0);
	ck_assert(identity->own_pid_namespace);
	ck_assert(strlen(identity->command) > 0);
	ck_assert(!gm_identity_dead(identity));
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(gm_identity_dead(identity));
	struct gm_identity *again;
	ck_assert_int_lt(gm_identity_read(ends[0], &again, why), 0);
	ck_assert_str_ne(why, "");
	ck_assert_ptr_eq(gm_identity_ref(identity), identity);
	gm_identity_unref(identity);
	gm_identity_unref(identity);
	gm_identity_unref(NULL);
	close(ends[0]);
}
END_TEST

START_TEST(a_moment_without_descriptors_costs_a_client_no_rights)
{
	int ends[2];
	char why[256] = "";
	struct gm_identity *identity;
	struct rlimit before, limit;
	pid_t child = child_at(ends);
	int refused = 0, lowest = dup(ends[0]);
	ck_assert_int_ge(lowest, 0);
	close(lowest);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	/* One more each time: it is refused for want of them, or seen as what it is. */
	for (rlim_t left = 0; left < 4; left++) {
		limit = before;
		limit.rlim_cur = (rlim_t)lowest + left;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		int r = gm_identity_read(ends[0], &identity, why);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
		if (r < 0) {
			ck_assert_int_eq(r, -EMFILE);
			ck_assert_ptr_nonnull(strstr(why, "LimitNOFILE"));
			refused++;
			continue;
		}
		ck_assert_int_eq(identity->pid, child);
		ck_assert(identity->own_pid_namespace);
		ck_assert(!identity->confined);
		ck_assert(strlen(identity->command) > 0);
		gm_identity_unref(identity);
	}
	ck_assert_int_ge(refused, 2); /* without a pidfd, and with nothing but a pidfd */
	ck_assert_int_lt(refused, 4);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	close(ends[0]);
}
END_TEST

/* How many groups of a process are seen if it has so many; -1: other ones than it has. */
static int groups_seen_of(size_t n)
{
	static gid_t groups[GM_BOUND_GROUPS + 1];
	pid_t child = fork();
	if (child == 0) {
		struct gm_identity *identity;
		int ends[2];
		char why[256];

		for (size_t i = 0; i < n; i++)
			groups[i] = (gid_t)(5000 + i);
		if (setgroups(n, groups) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0 ||
			gm_identity_read(ends[0], &identity, why) < 0)
			_exit(1);
		if (identity->n_groups == 0)
			_exit(2);
		_exit(identity->n_groups == n &&
					memcmp(identity->groups, groups, n * sizeof(gid_t)) == 0
				? 3
				: 4);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) > 1);
	return WEXITSTATUS(status) == 2 ? 0 : WEXITSTATUS(status) == 3 ? (int)n : -1;
}

START_TEST(a_process_has_no_more_groups_than_are_kept)
{
	GM_BOUND_TEST(GROUPS);
	ck_assert_int_eq(groups_seen_of(0), 0);
	ck_assert_int_eq(groups_seen_of(1), 1);
	ck_assert_int_eq(groups_seen_of(GM_BOUND_GROUPS), GM_BOUND_GROUPS);
	ck_assert_int_eq(groups_seen_of(GM_BOUND_GROUPS + 1), 0);
}
END_TEST

/* The kernel writes all of them to /proc/PID/status, which is then far too long to be read. */
START_TEST(very_many_groups_hide_nothing_else)
{
	int ends[2];
	char why[256] = "";
	struct gm_identity *identity;
	pid_t child = child_that(take_all_groups, ends);
	ck_assert_msg(gm_identity_read(ends[0], &identity, why) == 0, "%s", why);
	ck_assert_int_eq(identity->pid, child);
	ck_assert(identity->own_pid_namespace);
	ck_assert_uint_eq(identity->n_groups, 0);
	gm_identity_unref(identity);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	close(ends[0]);
}
END_TEST

START_TEST(a_process_is_pinned_by_its_number_only_if_it_is_its_users)
{
	int ends[2], pidfd = -1;
	pid_t child = child_at(ends);
	ck_assert_int_eq(gm_identity_pin(child, getuid(), &pidfd), 0);
	struct gm_identity who = {.pidfd = pidfd};
	ck_assert(!gm_identity_dead(&who));
	if (getuid() != 0)
		ck_assert_int_eq(gm_identity_pin(child, getuid() + 1, &pidfd), -ESRCH);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(gm_identity_dead(&who));
	close(who.pidfd);
	ck_assert_int_eq(gm_identity_pin(child, getuid(), &pidfd), -ESRCH);
	close(ends[0]);
}
END_TEST

START_TEST(a_process_is_found_again_only_if_it_is_the_same)
{
	int ends[2], others[2];
	char why[256] = "";
	struct gm_identity *known, *other, *again;
	pid_t child = child_at(ends), another = child_at(others);
	ck_assert_msg(gm_identity_read(ends[0], &known, why) == 0, "%s", why);
	ck_assert_msg(gm_identity_read(others[0], &other, why) == 0, "%s", why);
	unsigned long long start = known->started;
	ck_assert_uint_gt(start, 0);

	/* With its pidfd, and without. */
	for (int i = 0; i < 2; i++) {
		int pidfd = i == 0 ? dup(known->pidfd) : -1;
		ck_assert_int_eq(gm_identity_restore(known, start, pidfd, &again), 0);
		ck_assert_int_eq(again->pid, child);
		ck_assert_uint_eq(again->uid, known->uid);
		ck_assert_str_eq(again->command, known->command);
		ck_assert(!gm_identity_dead(again));
		gm_identity_unref(again);
	}

	/* Another start time, another process's pidfd, something that is no pidfd, and nothing to
	 * go by. */
	ck_assert_int_eq(gm_identity_restore(known, start + 1, -1, &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(known, start + 1, dup(known->pidfd), &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(known, start, dup(other->pidfd), &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(known, start, dup(ends[0]), &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(known, 0, -1, &again), -ESRCH);
	struct gm_identity invisible = {.pid = 0, .uid = getuid()};
	ck_assert_int_eq(gm_identity_restore(&invisible, start, -1, &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(&invisible, start, dup(ends[0]), &again), -ESRCH);

	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(gm_identity_restore(known, start, dup(known->pidfd), &again), -ESRCH);
	ck_assert_int_eq(gm_identity_restore(known, start, -1, &again), -ESRCH);
	ck_assert_int_eq(kill(another, SIGKILL), 0);
	ck_assert_int_eq(waitpid(another, NULL, 0), another);
	gm_identity_unref(known);
	gm_identity_unref(other);
	close(ends[0]);
	close(others[0]);
}
END_TEST

/* Runs a check in a child, in namespaces of its own. Returns what the check returns as its exit status. */
static int in_namespaces(int flags, int (*check)(void *ctx), void *ctx)
{
	int status;
	uid_t uid = geteuid();
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		char map[64];
		if (uid != 0 || flags & CLONE_NEWUSER) {
			snprintf(map, sizeof(map), "0 %u 1", (unsigned int)uid);
			int fd = unshare(CLONE_NEWUSER) < 0 ? -1
							    : open("/proc/self/uid_map", O_WRONLY);
			if (fd < 0 || write(fd, map, strlen(map)) < 0)
				_exit(77);
			close(fd);
		}
		if (flags & CLONE_NEWNS &&
			(unshare(CLONE_NEWNS) < 0 ||
				mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
			_exit(77);
		_exit(check(ctx));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status), "status %x", status);
	return WEXITSTATUS(status);
}

static int restore_hidden(void *ctx)
{
	struct gm_identity *known = ctx, *again = NULL;
	char path[32];
	snprintf(path, sizeof(path), "/proc/%d", (int)known->pid);
	if (mount("tmpfs", path, "tmpfs", 0, NULL) < 0)
		return 77;
	known->uid = geteuid();
	if (gm_identity_restore(known, known->started, dup(known->pidfd), &again) != -EACCES)
		return 1;
	/* The daemon that saw it connect could not see more. */
	if (gm_identity_restore(known, 0, dup(known->pidfd), &again) != 0 ||
		again->pid != known->pid)
		return 2;
	if (kill(known->pid, SIGKILL) < 0)
		return 3;
	while (!gm_identity_dead(known))
		;
	return gm_identity_restore(known, known->started, dup(known->pidfd), &again) == -ESRCH ? 0
											       : 4;
}

START_TEST(a_process_that_lives_and_is_hidden_is_not_taken_for_one_that_ended)
{
	int ends[2];
	char why[256] = "";
	struct gm_identity *known;
	pid_t child = child_at(ends);
	ck_assert_msg(gm_identity_read(ends[0], &known, why) == 0, "%s", why);
	ck_assert_int_eq(in_namespaces(CLONE_NEWNS, restore_hidden, known), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	gm_identity_unref(known);
	close(ends[0]);
}
END_TEST

static int restore_unmapped(void *ctx)
{
	struct gm_identity *known = ctx, *again = NULL;
	if (gm_identity_sees_others() != -EOVERFLOW)
		return 1;
	known->uid = 4711;
	if (gm_identity_restore(known, known->started, dup(known->pidfd), &again) != -EOVERFLOW)
		return 2;
	known->uid = 0;
	return gm_identity_restore(known, known->started, dup(known->pidfd), &again) == 0 ? 0 : 3;
}

START_TEST(a_process_whose_user_has_no_number_here_is_not_taken_for_another)
{
	int ends[2];
	char why[256] = "";
	struct gm_identity *known;
	pid_t child = child_at(ends);
	ck_assert_msg(gm_identity_read(ends[0], &known, why) == 0, "%s", why);
	ck_assert_int_eq(in_namespaces(CLONE_NEWUSER, restore_unmapped, known), 0);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	gm_identity_unref(known);
	close(ends[0]);
}
END_TEST

START_TEST(administration_needs_a_right_and_the_daemons_pid_namespace)
{
	gid_t groups[] = {7, 42};
	struct gm_identity who = {.uid = 1000,
		.gid = 1000,
		.groups = groups,
		.n_groups = 2,
		.own_pid_namespace = true};
	ck_assert(!gm_identity_has_role(&who, 5, 99));
	ck_assert(!gm_identity_has_role(&who, 5, (gid_t)-1));
	ck_assert(gm_identity_has_role(&who, 1000, 99));
	ck_assert(gm_identity_has_role(&who, 5, 42));
	ck_assert(gm_identity_has_role(&who, 5, 1000));
	who.own_pid_namespace = false;
	ck_assert(!gm_identity_has_role(&who, 1000, 42));
	who.uid = 0; /* root in a container is nobody special */
	ck_assert(!gm_identity_has_role(&who, 5, 99));
	who.own_pid_namespace = true;
	ck_assert(gm_identity_has_role(&who, 5, 99));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("identity");
	TCase *tests = tcase_create("identity");
	tcase_add_test(tests, a_limits_container_is_not_one_that_a_user_named_like_it);
	tcase_add_test(tests, every_runtimes_paths_are_understood);
	tcase_add_test(tests, a_path_too_long_to_be_told_from_another_is_an_error);
	tcase_add_test(tests, a_process_is_identified_and_its_end_is_seen);
	tcase_add_test(tests, a_moment_without_descriptors_costs_a_client_no_rights);
	if (GM_TAP_WITH_USERS(a_process_has_no_more_groups_than_are_kept))
		tcase_add_test(tests, a_process_has_no_more_groups_than_are_kept);
	if (GM_TAP_WITH_USERS(very_many_groups_hide_nothing_else))
		tcase_add_test(tests, very_many_groups_hide_nothing_else);
	tcase_add_test(tests, a_process_is_pinned_by_its_number_only_if_it_is_its_users);
	tcase_add_test(tests, a_process_is_found_again_only_if_it_is_the_same);
	if (GM_TAP_WITH_USERS(a_process_that_lives_and_is_hidden_is_not_taken_for_one_that_ended))
		tcase_add_test(
			tests, a_process_that_lives_and_is_hidden_is_not_taken_for_one_that_ended);
	if (GM_TAP_WITH_USERS(a_process_whose_user_has_no_number_here_is_not_taken_for_another))
		tcase_add_test(
			tests, a_process_whose_user_has_no_number_here_is_not_taken_for_another);
	tcase_add_test(tests, administration_needs_a_right_and_the_daemons_pid_namespace);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
