/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Other ways to memory than the descriptor that the daemon sent: /proc, a path without an open file,
 * and another process's descriptors. Nobody of another uid gets at a chunk, and whoever keeps a way to
 * a chunk that was returned keeps no memory that is not charged to its uid.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322
#define BYTES (8 * GM_CHUNK_MIN)

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

static void become(uid_t uid)
{
	GM_REQUIRE(setgid(uid) == 0 && setuid(uid) == 0);
}

static void trim(void)
{
	struct gm_raw raw;
	Gm__Wire__Trim all = GM__WIRE__TRIM__INIT;
	all.all_devices = true;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &all)), GPUMEM_OK);
	gm_raw_close(&raw);
}

static int open_fd_of(pid_t pid, int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	int r = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	return r < 0 ? -errno : r;
}

/* Leases one chunk, and fills it. */
static void take(struct gm_raw *raw, struct gm_raw_lease *lease)
{
	gm_raw_join(raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, BYTES, lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease->n, 1);
	gm_alloc_raw_chunk_fill(&lease->chunks[0], 0x5a);
}

static void end_raw(struct gm_raw *raw)
{
	GM_REQUIRE_EQ(gm_raw_goodbye(raw), GPUMEM_OK);
	gm_raw_close(raw);
}

/* ---- a path, without an open file */

static uint64_t allocated(int fd)
{
	struct stat st;
	GM_REQUIRE(fstat(fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}

static void keep_a_path(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	become(UID_A);
	take(&raw, &lease);
	int path = open_fd_of(getpid(), lease.chunks[0].fd, O_PATH);
	GM_REQUIRE(path >= 0);
	GM_REQUIRE_EQ(allocated(path), BYTES);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);

	/* It leads nowhere: the memory is the daemon's. */
	GM_REQUIRE_EQ(open_fd_of(getpid(), path, O_RDWR), -EACCES);
	GM_REQUIRE_EQ(open_fd_of(getpid(), path, O_RDONLY), -EACCES);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 't');
	GM_UNTIL(allocated(path) == 0);
	close(path);
	end_raw(&raw);
}

START_TEST(a_path_to_memory_that_was_destroyed_keeps_none_of_it)
{
	struct gm_worker worker;
	gm_worker_start(&worker, keep_a_path, NULL);
	gm_hear_word(worker.channel, 'r');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).orphaned, 0);
	trim();
	gm_text_say_word(worker.channel, 't');
	gm_worker_join(&worker);
}
END_TEST

/* ---- who has it */

/* Leaves a child that keeps its memory mapped. */
static void leave_a_child(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	take(&raw, &lease);
	GM_REQUIRE(gm_raw_map(&lease.chunks[0], true) != MAP_FAILED);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		char word;
		gm_raw_lease_clear(&lease);
		(void)!recv(channel, &word, 1, MSG_PEEK);
		_exit(0);
	}
	gm_text_say(channel, &child, sizeof(child));
}

START_TEST(the_doctor_names_the_process_that_has_what_is_orphaned)
{
	struct gm_worker worker;
	const char *build = getenv("top_builddir");
	char command[1024], text[16384], pid[48];
	pid_t child;
	gm_worker_start(&worker, leave_a_child, NULL);
	gm_hear(worker.channel, &child, sizeof(child));
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == BYTES);

	snprintf(command, sizeof(command), "%s/ctl/gpumemctl --socket %s --json doctor",
		build ? build : ".", daemon_.socket);
	FILE *doctor = popen(command, "r");
	GM_REQUIRE(doctor);
	size_t n = fread(text, 1, sizeof(text) - 1, doctor);
	(void)pclose(doctor); /* other checks may fail here */
	text[n] = '\0';
	snprintf(pid, sizeof(pid), "16.0M cannot be freed yet: pid %d (", (int)child);
	const char *found = strstr(text, pid);
	if (!found || !strstr(found, "maps 16.0M"))
		GM_FAIL("no '%s' in: %s", pid,
			strstr(text, "\"orphaned\"") ? strstr(text, "\"orphaned\"")
						     : "no such row");

	shutdown(worker.channel, SHUT_RDWR); /* ends the child */
	gm_worker_join(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == 0);
}
END_TEST

/* ---- descriptors of another process */

struct place {
	pid_t pid;
	int fd;
};

/* Says where its chunk is, and returns it when it is told to. */
static void hold(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	become(UID_A);
	/* As after exec: a process that changed its uid is hidden from all but root. */
	GM_REQUIRE(prctl(PR_SET_DUMPABLE, 1) == 0);
	take(&raw, &lease);
	struct place place = {getpid(), lease.chunks[0].fd};
	gm_text_say(channel, &place, sizeof(place));
	gm_hear_word(channel, 'r');
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'e');
	end_raw(&raw);
}

static int get_fd(pid_t pid, int fd)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	GM_REQUIRE(pidfd >= 0);
	int got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	int error = errno;
	close(pidfd);
	return got < 0 ? -error : got;
}

static void try_from_outside(int channel, void *argument)
{
	const struct place *place = argument;
	static const int flags[] = {O_RDONLY, O_RDWR, O_PATH};
	become(UID_B);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		GM_REQUIRE_EQ(open_fd_of(place->pid, place->fd, flags[i]), -EACCES);
		for (int fd = 0; fd < 64; fd++)
			GM_REQUIRE_EQ(open_fd_of(daemon_.pid, fd, flags[i]), -EACCES);
	}
	GM_REQUIRE_EQ(get_fd(place->pid, place->fd), -EPERM);
	GM_REQUIRE_EQ(get_fd(daemon_.pid, 3), -EPERM);
}

START_TEST(another_user_gets_at_no_chunk_and_keeps_none_out_of_the_pool)
{
	struct gm_worker holder, stranger;
	struct place place;
	gm_worker_start(&holder, hold, NULL);
	gm_hear(holder.channel, &place, sizeof(place));
	gm_worker_start(&stranger, try_from_outside, &place);
	gm_worker_join(&stranger);
	gm_text_say_word(holder.channel, 'r');
	gm_hear_word(holder.channel, 'r');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).orphaned, 0);
	GM_REQUIRE(gm_figures_now(&daemon_).pooled >= BYTES);
	gm_text_say_word(holder.channel, 'e');
	gm_worker_join(&holder);
}
END_TEST

/* A process of the same user takes a copy of the descriptor, as a debugger may. */
static void copy_fd(int channel, void *argument)
{
	const struct place *place = argument;
	become(UID_A);
	GM_REQUIRE_EQ(open_fd_of(place->pid, place->fd, O_RDWR), -EACCES);
	int fd = get_fd(place->pid, place->fd);
	gm_text_say(channel, &fd, sizeof(fd));
	if (fd < 0)
		return;
	gm_hear_word(channel, 'e');
	close(fd);
}

START_TEST(what_a_process_of_the_same_user_keeps_is_charged_to_that_user)
{
	struct gm_worker holder, copier;
	struct place place;
	int fd;
	gm_worker_start(&holder, hold, NULL);
	gm_hear(holder.channel, &place, sizeof(place));
	gm_worker_start(&copier, copy_fd, &place);
	gm_hear(copier.channel, &fd, sizeof(fd));
	gm_text_say_word(holder.channel, 'r');
	gm_hear_word(holder.channel, 'r');
	/* Where the kernel lets nobody do that (Yama), nothing is orphaned. */
	uint64_t kept = fd >= 0 ? BYTES : 0;
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).orphaned, kept);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), kept);
	if (fd >= 0)
		gm_text_say_word(copier.channel, 'e');
	gm_worker_join(&copier);
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 0);
	gm_text_say_word(holder.channel, 'e');
	gm_worker_join(&holder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reach");
	TCase *tcase = tcase_create("reach");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_doctor_names_the_process_that_has_what_is_orphaned);
	if (GM_TAP_WITH_USERS(a_path_to_memory_that_was_destroyed_keeps_none_of_it))
		tcase_add_test(tcase, a_path_to_memory_that_was_destroyed_keeps_none_of_it);
	if (GM_TAP_WITH_USERS(another_user_gets_at_no_chunk_and_keeps_none_out_of_the_pool))
		tcase_add_test(tcase, another_user_gets_at_no_chunk_and_keeps_none_out_of_the_pool);
	if (GM_TAP_WITH_USERS(what_a_process_of_the_same_user_keeps_is_charged_to_that_user))
		tcase_add_test(
			tcase, what_a_process_of_the_same_user_keeps_is_charged_to_that_user);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
