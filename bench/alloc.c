/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Measures a warm pair of gpumem_alloc() and gpumem_free() in one thread against malloc() and
 * free() of the same size: first in nanoseconds, then in instructions.
 *
 * Reading the clock costs as much as a pair, so small groups of pairs are timed, and the median
 * group counts. Instructions are free of noise. Valgrind (callgrind) counts them, if it is
 * installed: two runs of this program that differ only in the number of pairs give the cost of one.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

#define GROUP  64
#define GROUPS 4000
#define ROUNDS 7

static gpumem_session *session;

static void ours(size_t size)
{
	void *p;
	if (gpumem_alloc(session, 0, size, NULL, NULL, &p) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
	gpumem_free(session, p, NULL);
}

static void ours_tagged(size_t size)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *p;
	options.tag = "bench";
	if (gpumem_alloc(session, 0, size, NULL, &options, &p) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
	gpumem_free(session, p, NULL);
}

static void theirs(size_t size)
{
	/* volatile, so that the compiler does not remove the pair. */
	void *volatile p = malloc(size);
	if (!p)
		GM_FAIL("malloc");
	free(p);
}

static double p50_ns(void (*pair)(size_t size), size_t size)
{
	static double samples[GROUPS];
	for (size_t i = 0; i < GROUPS; i++) {
		uint64_t start = gm_monotonic_ns();
		for (size_t k = 0; k < GROUP; k++)
			pair(size);
		samples[i] = (double)(gm_monotonic_ns() - start) / GROUP;
	}
	return gm_percentile(samples, GROUPS, 50);
}

/* ---- instructions */

#define COUNTED 20000

static void join(const char *socket)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = socket;
	options.name = "bench";
	if (gpumem_connect(&options, &session) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
}

/* Valgrind runs this: the given number of pairs, and nothing else that depends on it. */
static int be_counted(const char *socket, size_t size, size_t pairs)
{
	join(socket);
	for (size_t i = 0; i < pairs; i++)
		ours(size);
	gpumem_disconnect(session);
	return 0;
}

static double count(const char *socket, size_t size, size_t pairs)
{
	char command[1024], line[256];
	double instructions = -1;
	/* The running program and not argv[0], which may be libtool's wrapper. */
	char self[512] = "";
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		GM_FAIL("readlink");
	snprintf(command, sizeof(command),
		"valgrind --tool=callgrind --callgrind-out-file=/dev/null %s %s %zu %zu 2>&1", self,
		socket, size, pairs);
	FILE *run = popen(command, "r");
	GM_REQUIRE(run);
	while (fgets(line, sizeof(line), run)) {
		const char *at = strstr(line, "Collected :");
		if (at)
			instructions = strtod(at + strlen("Collected :"), NULL);
	}
	if (pclose(run) != 0 || instructions < 0)
		GM_FAIL("nothing was counted by %s", command);
	return instructions;
}

static void measure_instructions(const size_t *sizes, const char *const *names, size_t n)
{
	struct gm_daemon daemon;
	gm_print_title("The same in instructions of the client's");
	if (system("valgrind --version >/dev/null 2>&1") != 0) {
		printf("  not measured: valgrind is not installed\n");
		return;
	}
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG});
	for (size_t s = 0; s < n; s++)
		printf("  %-45s %9.0f\n", names[s],
			(count(daemon.socket, sizes[s], 2 * COUNTED) -
				count(daemon.socket, sizes[s], COUNTED)) /
				COUNTED);
	gm_daemon_stop(&daemon);
}

/* ---- time */

static void measure(const char *config, void (*pair)(size_t size), const size_t *sizes,
	const char *const *names, size_t n)
{
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = config});
	join(daemon.socket);
	for (size_t s = 0; s < n; s++) {
		double a[ROUNDS], b[ROUNDS];
		p50_ns(pair, sizes[s]);
		for (size_t r = 0; r < ROUNDS; r++) {
			a[r] = p50_ns(pair, sizes[s]);
			b[r] = p50_ns(theirs, sizes[s]);
		}
		gm_print_ratio(names[s], gm_median(a, ROUNDS), gm_median(b, ROUNDS), "ns", -1);
	}
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon);
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return be_counted(argv[1], strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	static const size_t sizes[] = {512, 4096, 65536, 1 << 20, 8 << 20, 64 << 20};
	static const char *const names[] = {"512 B", "4 KiB", "64 KiB", "1 MiB", "8 MiB", "64 MiB"};
	static const char *const unlisted[] = {"64 MiB, track = off"};
	static const char *const tagged[] = {"1 MiB, with a tag"};
	gm_print_title("gpumem_alloc and gpumem_free, warm, one thread, against malloc and free "
		       "(asked: at most 100 ns)");
	measure(GM_DAEMON_CONFIG, ours, sizes, names, 6);
	/* The cost of being listed for gpumemctl buffers, without and with a tag. */
	measure(GM_DAEMON_CONFIG_WITH("track = off\n", "1G"), ours, sizes + 5, unlisted, 1);
	measure(GM_DAEMON_CONFIG, ours_tagged, sizes + 3, tagged, 1);
	measure_instructions(sizes, names, 6);
	return 0;
}
