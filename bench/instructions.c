/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Answers the same question as bench/scale, but free of noise: how many instructions does the
 * daemon execute for a lease and its return? Compares 10,000 leases with one, 1,000 clients with
 * one, a client under three limits with a client under none, and a daemon that writes records for the
 * next one with a daemon that has no keeper and writes none.
 *
 * Valgrind (callgrind) counts the instructions. Two runs that differ only in the number of requests
 * give the cost of one. The time in the kernel, which is most of a request on the host, is not
 * included.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/integration/raw.h"

#define LEASES  10000
#define CLIENTS 1000
#define CALLS   1000

static const char config[] = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
			     "[device 0]\nsize = 32G\n[device 1]\nsize = 32G\n";
/* The clients are called "raw". */
static const char limits[] = "[limit uid:%u]\nmax = 16G\nguarantee = 1G\npriority = 3\n"
			     "[limit gid:%u]\nmax = 16G\n[limit client:raw]\nmax = 16G\n"
			     "[limit uid:64999]\nguarantee = 1G\n";
/* Counts from reading a packet to sending its answer. How often the loop runs is chance. */
static const char *const valgrind[] = {"valgrind", "--tool=callgrind",
	"--callgrind-out-file=/dev/null", "--toggle-collect=gm_serve_dispatch_packet", NULL};

/* The clients, leases and limits that the daemon has while one client leases and returns. */
struct scene {
	size_t leases, clients;
	bool limited;
	bool unkept; /* the daemon has no keeper, so it writes no records */
};

/* Makes a socket that the daemon is passed. Its name has no folder, so the daemon knows no place for
 * a keeper's socket beside it. */
static int bind_without_folder(const struct gm_daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	char run[128];
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(run, sizeof(run), "%s/run", daemon->folder);
	GM_REQUIRE(here >= 0 && fd >= 0 && chdir(run) == 0);
	GM_REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(listen(fd, 8) == 0 && fchdir(here) == 0);
	close(here);
	return fd;
}

static void serve(struct gm_daemon *daemon, const struct scene *scene, size_t calls)
{
	struct gm_raw *raws = calloc(scene->clients, sizeof(*raws));
	struct gm_raw_lease lease;

	GM_REQUIRE(raws);
	for (size_t i = 0; i < scene->clients; i++)
		gm_raw_join(&raws[i], daemon);
	for (size_t i = 0; i < scene->leases; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(&raws[i % scene->clients], i & 1, GM_CHUNK_MIN, &lease),
			GPUMEM_OK);
		gm_raw_lease_clear(&lease);
	}
	for (size_t i = 0; i < calls; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(&raws[0], &lease), GPUMEM_OK);
	}
	gm_daemon_signal(daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(daemon), 0);
	for (size_t i = 0; i < scene->clients; i++)
		gm_raw_close(&raws[i]);
	free(raws);
}

/* All instructions of a daemon that serves the given number of leases and returns. */
static double count(const struct scene *scene, size_t calls)
{
	struct gm_daemon daemon;
	char text[1024];
	int fd = -1;

	int n = snprintf(text, sizeof(text), "%s", config);
	if (scene->limited)
		snprintf(text + n, sizeof(text) - (size_t)n, limits, getuid(), getgid());
	gm_daemon_prepare(&daemon, &(struct gm_daemon_options){.config = text, .runner = valgrind});
	if (scene->unkept) {
		fd = bind_without_folder(&daemon);
		daemon.options.passed = &fd;
		daemon.options.n_passed = 1;
	}
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	serve(&daemon, scene, calls);

	char *log = gm_daemon_log(&daemon);
	const char *at = strstr(log, "Collected :");
	GM_REQUIRE(at);
	double instructions = strtod(at + strlen("Collected :"), NULL);
	free(log);
	if (scene->unkept) {
		close(fd);
		unlink(daemon.socket);
	}
	gm_daemon_stop(&daemon);
	return instructions;
}

static double per_call(struct scene scene)
{
	return (count(&scene, 2 * CALLS) - count(&scene, CALLS)) / CALLS;
}

int main(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	gm_print_title(
		"Instructions of the daemon per lease and return, with much against little to "
		"look after");
	if (system("valgrind --version >/dev/null 2>&1") != 0) {
		printf("  not measured: valgrind is not installed\n");
		return 0;
	}
	struct scene few = {.leases = 1, .clients = 1};
	struct scene limited = {.leases = 1, .clients = 1, .limited = true};
	struct scene unkept = {.leases = 1, .clients = 1, .unkept = true};
	struct scene leases = {.leases = LEASES, .clients = 1};
	struct scene clients = {.leases = CLIENTS, .clients = CLIENTS};
	double plain = per_call(few);
	gm_print_ratio("with records, against none", plain, per_call(unkept), "", 1.1);
	gm_print_ratio(
		"one client with 10,000 leases, against 1", per_call(leases), plain, "", 1.0);
	gm_print_ratio("1,000 clients, against 1", per_call(clients), plain, "", 1.0);
	gm_print_ratio(
		"a client under three limits, against none", per_call(limited), plain, "", 1.0);
	return 0;
}
