/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_BROKER_FIXTURE_H
#define GM_TESTS_BROKER_FIXTURE_H

/*
 * A daemon of a test's own, as its own process in a folder of its own, with its socket, its
 * configuration and its log. Its readiness is waited for as a service manager does.
 */

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/unit/daemon/wire_client.h"
#include "tests/scratch.h"

#define MIB UINT64_C(0x100000)

static char folder[64], path[96], conf[96], gate[96];
static pid_t daemon_pid;
static int notify = -1;
static const char *const plain =
	"[gpumemd]\nbackend = host\nfraction = 1\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 0\n[device 0]\nsize = 256M\n";

static inline void write_file(const char *name, const char *text)
{
	FILE *out = fopen(name, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs(text, out), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static inline void setup(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	snprintf(conf, sizeof(conf), "%s/conf", folder);
	snprintf(gate, sizeof(gate), "%s/gate", folder);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder);
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(notify, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

/* Waits until the daemon tells its manager that. */
static inline void wait_for(const char *word)
{
	char text[512];
	do {
		ssize_t n = recv(notify, text, sizeof(text) - 1, 0);
		ck_assert_int_gt(n, 0);
		text[n] = '\0';
	} while (!strstr(text, word));
}

/* On that socket, with so many descriptors (0: as many as this process); its log is a file of that
 * name in the folder. */
static inline pid_t spawn(const char *socket_path, const char *log, rlim_t fds)
{
	const char *build = getenv("top_builddir");
	char program[4096], stderr_to[96];
	snprintf(stderr_to, sizeof(stderr_to), "%s/%s", folder, log);
	snprintf(program, sizeof(program), "%s/daemon/gpumemd", build ? build : ".");
	pid_t child = fork();
	if (child == 0) {
		const struct rlimit few = {fds, fds};
		int to = open(stderr_to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (to < 0 || dup2(to, STDERR_FILENO) < 0)
			_exit(99);
		if (fds && setrlimit(RLIMIT_NOFILE, &few) < 0)
			_exit(99);
		execl(program, program, "--config", conf, "--socket", socket_path, "-v",
			(char *)NULL);
		_exit(99);
	}
	return child;
}

static inline void start_with(const char *text, rlim_t fds)
{
	write_file(conf, text);
	daemon_pid = spawn(path, "log", fds);
	wait_for("READY=1");
}

static inline void start(void)
{
	start_with(plain, 0);
}

/* A backend that makes a chunk for each byte that is written to the gate. */
static inline void start_gated(void)
{
	ck_assert_int_eq(mkfifo(gate, 0600), 0);
	setenv("GPUMEM_TEST_HOST_GATE", gate, 1);
	start();
}

static inline bool log_says(const char *name, const char *what)
{
	char log[96], text[65536];
	snprintf(log, sizeof(log), "%s/%s", folder, name);
	FILE *in = fopen(log, "r");
	ck_assert_ptr_nonnull(in);
	size_t n = fread(text, 1, sizeof(text) - 1, in);
	fclose(in);
	text[n] = '\0';
	return strstr(text, what);
}

/* Ends as it was told to; under a sanitizer that also means that nothing was left. */
static inline void stop(void)
{
	int status;
	ck_assert_int_eq(kill(daemon_pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
	ck_assert_int_eq(access(path, F_OK), -1);
	daemon_pid = 0;
}

static inline void teardown(void)
{
	static const char *const names[] = {
		"socket", "socket.lock", "conf", "log", "log2", "notify", "generation", "gate"};
	if (daemon_pid)
		stop();
	gm_keeper_end(folder);
	close(notify);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char name[96];
		snprintf(name, sizeof(name), "%s/%s", folder, names[i]);
		unlink(name);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

/* Round trips until the device's figures are so: nobody sleeps, the daemon answers each. */
static inline void wait_until_charged(
	struct wire_client *observer, uint64_t leased, uint64_t quarantined)
{
	for (;;) {
		const Gm__Wire__Device *device = wire_status(observer)->devices[0];
		if (device->leased == leased && device->quarantined == quarantined)
			return;
	}
}

#endif
