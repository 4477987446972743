/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Private daemons and worker processes for tests and benchmarks.
 *
 * Promises that whatever it starts ends with the process that started it, that a daemon which does
 * not end cleanly (status, signal, sanitizer report) fails its test, and that a failing test shows
 * the daemon's log. Must never touch a daemon that it did not start.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/harness.h"
#include "tests/integration/launch.h"
#include "tests/scratch.h"

/* The daemons of this process that run, for the log of a failing test. */
#define MOST_DAEMONS 8
static struct gm_daemon *running[MOST_DAEMONS];
static pid_t worker_of; /* in a worker: the test's pid */

static void print_log(const struct gm_daemon *daemon)
{
	char *log = gm_daemon_log(daemon);
	if (log && log[0])
		fprintf(stderr, "# ---- log of the daemon in %s\n%s# ----\n", daemon->folder, log);
	free(log);
}

/* Ends the daemons and keepers of a test that failed: what they hold is missing in the next test. */
static void end_running(void)
{
	char run[sizeof(running[0]->folder) + 8];
	for (size_t i = 0; i < MOST_DAEMONS; i++) {
		if (!running[i])
			continue;
		if (running[i]->pid > 0 && kill(running[i]->pid, SIGKILL) == 0)
			waitpid(running[i]->pid, NULL, 0);
		snprintf(run, sizeof(run), "%s/run", running[i]->folder);
		gm_keeper_end(run);
	}
}

void gm_fail(const char *file, int line, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	char text[1024];
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "# %s:%d: %s\n", file, line, text);
	if (worker_of)
		_exit(1);
	for (size_t i = 0; i < MOST_DAEMONS; i++) {
		if (running[i])
			print_log(running[i]);
	}
	end_running();
	exit(1);
}

uint64_t gm_monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void gm_patience_wait(
	struct gm_patience *patience, const char *file, int line, const char *condition)
{
	uint64_t now = gm_monotonic_ns();
	if (!patience->started_ns) {
		patience->started_ns = now;
		patience->pause_ns = 100000;
	}
	if (now - patience->started_ns > GM_PATIENCE_MS * UINT64_C(1000000))
		gm_fail(file, line, "never became so: %s", condition);
	struct timespec pause = {.tv_nsec = (long)patience->pause_ns};
	nanosleep(&pause, NULL);
	if (patience->pause_ns < 50000000)
		patience->pause_ns *= 2;
}

/* ---- on a fake GPU */

bool gm_on_gpu(void)
{
	const char *backend = getenv("GPUMEM_TEST_BACKEND");
	return backend && strcmp(backend, "cuda") == 0;
}

/* A fake GPU is a file system: each gets the size that the configuration says. */
static void size_fake_gpus(const struct gm_daemon *daemon)
{
	char line[256], path[4200], option[64], size[32];
	unsigned number = 0;
	FILE *f = fopen(daemon->config, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "[device %u]", &number) == 1 ||
			sscanf(line, "size = %31[0-9KMG]", size) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/gpu%u", getenv("GPUMEM_FAKE_DIR"), number);
		snprintf(option, sizeof(option), "size=%s", size);
		if (access(path, F_OK) != 0)
			continue; /* a device that is not there is for the daemon to say */
		if (mount("tmpfs", path, "tmpfs", MS_REMOUNT, option) != 0)
			GM_FAIL("%s of %s: %s", path, option, strerror(errno));
	}
	if (f)
		fclose(f);
}

/* ---- daemons */

static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void note_running(struct gm_daemon *daemon, bool on)
{
	for (size_t i = 0; i < MOST_DAEMONS; i++) {
		if (running[i] == daemon)
			running[i] = NULL;
	}
	for (size_t i = 0; on && i < MOST_DAEMONS; i++) {
		if (!running[i]) {
			running[i] = daemon;
			return;
		}
	}
}

void gm_daemon_configure(struct gm_daemon *daemon, const char *config)
{
	FILE *f = fopen(daemon->config, "we");
	GM_REQUIRE(f);
	GM_REQUIRE(fputs(config, f) >= 0);
	GM_REQUIRE(fclose(f) == 0);
}

static void make_notify_socket(struct gm_daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", daemon->folder);
	daemon->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	GM_REQUIRE(daemon->notify >= 0);
	GM_REQUIRE(bind(daemon->notify, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(chmod(address.sun_path, 0777) == 0);
}

void gm_daemon_prepare(struct gm_daemon *daemon, const struct gm_daemon_options *options)
{
	*daemon = (struct gm_daemon){.pidfd = -1, .notify = -1};
	if (options)
		daemon->options = *options;
	gm_scratch_folder(daemon->folder, sizeof(daemon->folder));
	/* Workers of other uids must get at the socket. */
	GM_REQUIRE(chmod(daemon->folder, 0755) == 0);
	char run[96];
	snprintf(run, sizeof(run), "%s/run", daemon->folder);
	GM_REQUIRE(mkdir(run, 0755) == 0 && chmod(run, 0755) == 0); /* whatever the umask */
	if (daemon->options.uid)
		GM_REQUIRE(chown(run, daemon->options.uid, (gid_t)-1) == 0);
	snprintf(daemon->config, sizeof(daemon->config), "%s/gpumemd.conf", daemon->folder);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->folder);
	daemon->own_socket = !daemon->options.socket;
	if (daemon->own_socket)
		snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", run);
	else
		snprintf(daemon->socket, sizeof(daemon->socket), "%s", daemon->options.socket);
	gm_daemon_configure(
		daemon, daemon->options.config ? daemon->options.config : GM_DAEMON_CONFIG);
	make_notify_socket(daemon);
}

/* A datagram into text: true. The daemon ended: false. */
static bool next_notice(struct gm_daemon *daemon, char *text, size_t room)
{
	struct pollfd fds[2] = {
		{.fd = daemon->notify, .events = POLLIN}, {.fd = daemon->pidfd, .events = POLLIN}};
	int n = poll(fds, 2, GM_PATIENCE_MS);
	if (n == 0)
		GM_FAIL("the daemon said nothing");
	GM_REQUIRE(n > 0);
	if (!(fds[0].revents & POLLIN))
		return false;
	ssize_t got = recv(daemon->notify, text, room - 1, 0);
	GM_REQUIRE(got >= 0);
	text[got] = '\0';
	return true;
}

int gm_daemon_spawn(struct gm_daemon *daemon)
{
	pid_t parent = getpid();
	fflush(NULL);
	if (gm_on_gpu())
		size_fake_gpus(daemon);
	struct gm_launch *launch = gm_launch_new(daemon);
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0)
		gm_launch_exec(launch, parent);
	gm_launch_free(launch);
	daemon->pid = pid;
	daemon->pidfd = open_pidfd(pid);
	GM_REQUIRE(daemon->pidfd >= 0);
	fcntl(daemon->pidfd, F_SETFD, FD_CLOEXEC);
	note_running(daemon, true);
	char text[4096];
	while (next_notice(daemon, text, sizeof(text))) {
		if (strstr(text, "READY=1"))
			return -1;
	}
	return gm_daemon_wait(daemon);
}

void gm_daemon_start(struct gm_daemon *daemon, const struct gm_daemon_options *options)
{
	gm_daemon_prepare(daemon, options);
	if (gm_daemon_spawn(daemon) != -1) {
		print_log(daemon);
		GM_FAIL("the daemon did not start");
	}
}

void gm_daemon_signal(struct gm_daemon *daemon, int signal)
{
	GM_REQUIRE(daemon->pid > 0 && kill(daemon->pid, signal) == 0);
}

void gm_daemon_await_notice(struct gm_daemon *daemon, const char *text)
{
	char notice[4096];
	do {
		if (!next_notice(daemon, notice, sizeof(notice)))
			GM_FAIL("the daemon ended and never said %s", text);
	} while (!strstr(notice, text));
}

void gm_daemon_reload(struct gm_daemon *daemon, const char *config)
{
	if (config)
		gm_daemon_configure(daemon, config);
	gm_daemon_signal(daemon, SIGHUP);
	gm_daemon_await_notice(daemon, "RELOADING=1");
	gm_daemon_await_notice(daemon, "READY=1");
}

int gm_daemon_wait(struct gm_daemon *daemon)
{
	struct pollfd fd = {.fd = daemon->pidfd, .events = POLLIN};
	if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
		GM_FAIL("the daemon did not end");
	int status;
	GM_REQUIRE(waitpid(daemon->pid, &status, 0) == daemon->pid);
	close(daemon->pidfd);
	daemon->pidfd = -1;
	daemon->pid = 0;
	return status;
}

void gm_daemon_kill(struct gm_daemon *daemon)
{
	gm_daemon_signal(daemon, SIGKILL);
	gm_daemon_wait(daemon);
}

static void require_empty(const char *folder)
{
	DIR *d = opendir(folder);
	GM_REQUIRE(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			GM_FAIL("%s/%s was left behind", folder, e->d_name);
	}
	closedir(d);
}

void gm_daemon_stop(struct gm_daemon *daemon)
{
	if (daemon->pid) {
		gm_daemon_signal(daemon, SIGTERM);
		int status = gm_daemon_wait(daemon);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			GM_FAIL("the daemon ended with wait status %#x", (unsigned)status);
	}
	char path[128];
	snprintf(path, sizeof(path), "%s/run", daemon->folder);
	gm_keeper_end(path);
	/* The one thing that a daemon leaves for the next one: which ids it may not give again. */
	snprintf(path, sizeof(path), "%s/run/generation", daemon->folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/run", daemon->folder);
	require_empty(path);
	GM_REQUIRE(rmdir(path) == 0);
	note_running(daemon, false);
	close(daemon->notify);
	daemon->notify = -1;
	snprintf(path, sizeof(path), "%s/notify", daemon->folder);
	unlink(path);
	unlink(daemon->config);
	unlink(daemon->log);
	if (rmdir(daemon->folder) != 0)
		require_empty(daemon->folder);
}

char *gm_daemon_log(const struct gm_daemon *daemon)
{
	FILE *f = fopen(daemon->log, "re");
	char *text = calloc(1, 1);
	size_t used = 0;
	char part[4096];
	size_t n;
	while (f && text && (n = fread(part, 1, sizeof(part), f)) > 0) {
		char *longer = realloc(text, used + n + 1);
		if (!longer)
			break;
		text = longer;
		memcpy(text + used, part, n);
		used += n;
		text[used] = '\0';
	}
	if (f)
		fclose(f);
	return text;
}

size_t gm_daemon_said(const struct gm_daemon *daemon, const char *words)
{
	char *log = gm_daemon_log(daemon);
	size_t n = 0;
	GM_REQUIRE(log);
	for (const char *at = log; (at = strstr(at, words)); at++)
		n++;
	free(log);
	return n;
}

const char *gm_own_user(void)
{
	static char text[64];
	const struct passwd *entry = getpwuid(getuid());

	if (entry)
		snprintf(text, sizeof(text), "user %.48s", entry->pw_name);
	else
		snprintf(text, sizeof(text), "user %u", getuid());
	return text;
}

void gm_become_stranger(void)
{
	GM_REQUIRE(setgid(GM_STRANGER) == 0 && setuid(GM_STRANGER) == 0);
}

void gm_become_stranger_if_possible(void)
{
	if (setgid(GM_STRANGER) == 0)
		GM_REQUIRE(setuid(GM_STRANGER) == 0);
}

uint64_t gm_daemon_rss(const struct gm_daemon *daemon)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/statm", (int)daemon->pid);
	FILE *f = fopen(path, "re");
	unsigned long size, resident;
	GM_REQUIRE(f && fscanf(f, "%lu %lu", &size, &resident) == 2);
	fclose(f);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t gm_daemon_cpu_ns(const struct gm_daemon *daemon)
{
	clockid_t clock;
	struct timespec t;
	GM_REQUIRE(clock_getcpuclockid(daemon->pid, &clock) == 0);
	GM_REQUIRE(clock_gettime(clock, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

size_t gm_daemon_fds(const struct gm_daemon *daemon)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon->pid);
	DIR *d = opendir(path);
	GM_REQUIRE(d);
	size_t n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* ---- workers */

void gm_worker_start(struct gm_worker *worker, gm_worker_fn fn, void *argument)
{
	int ends[2];
	GM_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	pid_t parent = getpid();
	fflush(NULL);
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0) {
		worker_of = parent;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(ends[0]);
		fn(ends[1], argument);
#ifdef GM_COVERAGE
		exit(0); /* writes down what it ran */
#else
		_exit(0);
#endif
	}
	close(ends[1]);
	*worker = (struct gm_worker){.pid = pid, .channel = ends[0]};
}

/* Prints the name of each thread of a process and the kernel function in which it waits. */
static void print_threads(pid_t pid)
{
	char path[64 + 2 * NAME_MAX], line[64];
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	for (struct dirent *e; tasks && (e = readdir(tasks));) {
		if (e->d_name[0] == '.')
			continue;
		fprintf(stderr, "# thread %s:", e->d_name);
		static const char *const files[] = {"comm", "wchan", "syscall"};
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
			snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)pid, e->d_name,
				files[i]);
			FILE *f = fopen(path, "re");
			if (f && fgets(line, sizeof(line), f))
				fprintf(stderr, " %.*s", (int)strcspn(line, "\n"), line);
			if (f)
				fclose(f);
		}
		fputc('\n', stderr);
	}
	if (tasks)
		closedir(tasks);
}

static int reap(struct gm_worker *worker)
{
	int pidfd = open_pidfd(worker->pid);
	struct pollfd fd = {.fd = pidfd, .events = POLLIN};
	if (pidfd < 0 || poll(&fd, 1, GM_PATIENCE_MS) != 1) {
		print_threads(worker->pid);
		GM_FAIL("a worker did not end");
	}
	close(pidfd);
	int status;
	GM_REQUIRE(waitpid(worker->pid, &status, 0) == worker->pid);
	close(worker->channel);
	*worker = (struct gm_worker){.channel = -1};
	return status;
}

void gm_worker_join(struct gm_worker *worker)
{
	int status = reap(worker);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		GM_FAIL("a worker ended with wait status %#x", (unsigned)status);
}

void gm_worker_kill(struct gm_worker *worker)
{
	GM_REQUIRE(kill(worker->pid, SIGKILL) == 0);
	reap(worker);
}

void gm_text_say(int channel, const void *bytes, size_t n)
{
	GM_REQUIRE(send(channel, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

void gm_hear(int channel, void *bytes, size_t n)
{
	struct pollfd fd = {.fd = channel, .events = POLLIN};
	if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
		GM_FAIL("the other side said nothing");
	ssize_t got = recv(channel, bytes, n, 0);
	if (got != (ssize_t)n)
		GM_FAIL("heard %zd bytes, not %zu", got, n);
}

void gm_text_say_word(int channel, char word)
{
	gm_text_say(channel, &word, 1);
}

void gm_hear_word(int channel, char word)
{
	char heard;
	gm_hear(channel, &heard, 1);
	if (heard != word)
		GM_FAIL("heard '%c', not '%c'", heard, word);
}
