/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs simulations (sim.h), one after another, each from a seed of its own. At the first violation it prints the
 * shortest list of steps that it finds with the same violation, and exits with 1.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

#define STEPS_MOST 100000
/* A run that takes longer hangs. A part of one that hangs is not worth as long a wait. */
#define RUN_SECONDS  60
#define PART_SECONDS 3

/* How a run ended, in memory that the run's process shares with its parent. */
static struct outcome {
	uint64_t seed, step, ns, grants, refusals, deaths, adopted;
	char where[64]; /* of the violation; "": there is none */
	char what[256];
} * outcome;

void sim_say(const struct sim *sim, const char *format, ...)
{
	va_list args;
	if (!sim->trace)
		return;
	va_start(args, format);
	printf("%5zu  %3" PRIu64 ".%03" PRIu64 " s  ", sim->at, sim->now / 1000000000,
		sim->now / 1000000 % 1000);
	vprintf(format, args);
	putchar('\n');
	va_end(args);
}

void sim_fail(const struct sim *sim, const char *file, int line, const char *format, ...)
{
	va_list args;
	const char *slash = strrchr(file, '/');
	va_start(args, format);
	outcome->step = sim->at;
	snprintf(outcome->where, sizeof(outcome->where), "%s:%d", slash ? slash + 1 : file, line);
	vsnprintf(outcome->what, sizeof(outcome->what), format, args);
	va_end(args);
	if (sim->trace) {
		printf("%5zu  violation: %s (%s)\n", sim->at, outcome->what, outcome->where);
		fflush(stdout);
	}
	_exit(1);
}

/* ---- one run */

/* The process loses its connection before it hears the answer, comes back, and sends the packet again. */
static void do_again(struct sim *sim, const struct step *step)
{
	sim_say(sim, "and does not hear the answer");
	sim_daemon_settle(sim);
	if (!sim->frozen)
		sim_clients_hear(sim); /* of what was sent before */
	if (!sim->frozen)
		sim_client_part(sim, sim->proc);
	if (!sim->frozen)
		sim_client_resume(sim, sim->proc, false);
	sim->again = true;
	if (!sim->frozen)
		sim_step_run(sim, step);
}

static void run_step(struct sim *sim, const struct step *step)
{
	sim->op = ++sim->last_request;
	sim->again = sim->settled = false;
	sim->deaf = sim_step_repeats(step) && step->a >> 28 == 0;
	sim->proc = -1;
	sim->lease = sim->frees = 0;
	sim->n_ids = 0;
	sim->keeper_full = sim->store_full = false;
	memset(sim->worked, 0, sizeof(sim->worked));
	sim_step_run(sim, step);
	if (!sim->frozen && sim->deaf && !sim->settled && sim->proc >= 0)
		do_again(sim, step);
	if (!sim->frozen) {
		sim->settled = true;
		sim_daemon_settle(sim);
	}
	for (int deaths = 0; sim->frozen; deaths++) {
		SIM_MUST(sim, deaths < 4, "the daemon dies again and again");
		sim_say(sim, "the daemon dies while it does that");
		sim->deaf = false;
		sim_daemon_restart(sim);
		sim_clients_resume(sim);
		sim_clients_hear(sim);
		sim->again = true;
		sim_client_doubt(sim);
		if (!sim->settled)
			sim_step_run(sim, step);
		sim_daemon_settle(sim);
	}
	sim_clients_hear(sim);
	sim_check(sim);
}

static void run(uint64_t seed, const struct step *steps, size_t n, bool trace)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	if (!sim)
		abort();
	sim->seed = seed;
	sim->steps = steps;
	sim->n_steps = n;
	sim->trace = trace;
	sim->trace_records = trace && getenv("SIM_RECORDS");
	sim->random = seed * 2 + 1;
	sim->parting = -1;
	for (int i = 0; i < SIM_ITEMS; i++)
		sim->items[i].fd = -1;
	for (int i = 0; i < SIM_LEASES; i++)
		sim->leases[i].name = sim->leases[i].maker = -1;
	for (uint32_t u = 0; u < SIM_UIDS; u++) {
		for (uint32_t d = 0; d < SIM_DEVICES; d++)
			sim->limits[d][u].max = UINT64_MAX;
		for (unsigned k = 0; k < SIM_NAMES; k++)
			sim->names[u][k].lease = -1;
	}
	sim_daemon_start(sim);
	for (sim->at = 0; sim->at < n; sim->at++) {
		outcome->step = sim->at;
		run_step(sim, &steps[sim->at]);
	}
	sim->die_after = 0;
	sim_clients_leave(sim);
	sim_clients_hear(sim);
	sim_daemon_end(sim);
	outcome->ns += sim->now;
	outcome->grants += sim->grants;
	outcome->refusals += sim->refusals;
	outcome->deaths += sim->deaths;
	outcome->adopted += sim->adopted;
	sim_model_free(sim);
	free(sim);
}

static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void draw(uint64_t seed, struct step *steps, size_t n)
{
	uint64_t state = seed;
	for (size_t i = 0; i < n; i++) {
		uint64_t one = mix(&state), two = mix(&state);
		steps[i] = (struct step){.kind = sim_step_draw((uint32_t)(one >> 32)),
			.a = (uint32_t)one,
			.b = (uint32_t)(two >> 32),
			.c = (uint32_t)two};
	}
}

/* Runs the list in a process of its own. Returns whether it ended without a violation. */
static bool run_apart(
	uint64_t seed, const struct step *steps, size_t n, bool trace, unsigned seconds)
{
	int status;
	fflush(NULL);
	outcome->where[0] = '\0';
	pid_t pid = fork();
	if (pid < 0) {
		perror("sim: fork");
		exit(2);
	}
	if (pid == 0) {
		if (!trace && !freopen("/dev/null", "w", stderr))
			_exit(2);
		alarm(seconds); /* one that hangs is a violation, too */
		run(seed, steps, n, trace);
		fflush(NULL);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	if (!outcome->where[0]) {
		snprintf(outcome->where, sizeof(outcome->where), "%s",
			WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit");
		snprintf(outcome->what, sizeof(outcome->what), "the process ended");
	}
	return false;
}

/* ---- a violation */

/* Leaves out steps as long as the violation stays the same one. Returns how many are left. */
static size_t shorten(uint64_t seed, struct step *steps, size_t n)
{
	char where[sizeof(outcome->where)];
	struct step *part = calloc(n, sizeof(*part));
	if (!part)
		abort();
	memcpy(where, outcome->where, sizeof(where));
	n = outcome->step + 1 < n ? outcome->step + 1 : n;
	for (size_t size = n / 2; size > 0; size = size > 1 ? size / 2 : 0) {
		for (size_t from = 0; from < n;) {
			size_t gone = size < n - from ? size : n - from;
			memcpy(part, steps, from * sizeof(*part));
			memcpy(part + from, steps + from + gone, (n - from - gone) * sizeof(*part));
			if (!run_apart(seed, part, n - gone, false, PART_SECONDS) &&
				!strcmp(where, outcome->where)) {
				n -= gone;
				memcpy(steps, part, n * sizeof(*part));
			} else {
				from += gone;
			}
		}
	}
	free(part);
	return n;
}

static int report(uint64_t seed, struct step *steps, size_t n)
{
	printf("seed %" PRIu64 ", step %" PRIu64 ": %s (%s)\n", seed, outcome->step, outcome->what,
		outcome->where);
	n = shorten(seed, steps, n);
	printf("The same with %zu steps:\n", n);
	(void)run_apart(seed, steps, n, true, PART_SECONDS);
	for (size_t i = 0; i < n; i++)
		printf("  {%u, %u, %u, %u}, /* %s */\n", steps[i].kind, steps[i].a, steps[i].b,
			steps[i].c, sim_step_name(steps[i].kind));
	printf("To see all of it: tests/sim/sim --seed %" PRIu64 " --trace\n", seed);
	return 1;
}

static void usage(FILE *out)
{
	fputs("usage: sim [--seed N] [--seeds N | --seconds S] [--steps N] [--trace]\n\n"
	      "Simulates the daemon and its clients, and stops at the first violation of an invariant.\n\n"
	      "  --seed N      the first seed (default: 1)\n"
	      "  --seeds N     how many seeds (default: 1000; with --trace: 1)\n"
	      "  --seconds S   goes on with further seeds for so long\n"
	      "  --steps N     steps of each run (default: 400)\n"
	      "  --trace       prints what happens\n",
		out);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
		{"seeds", required_argument, NULL, 'n'}, {"seconds", required_argument, NULL, 't'},
		{"steps", required_argument, NULL, 'k'}, {"trace", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	uint64_t seed = 1, seeds = 0, steps = 400;
	time_t seconds = 0, began = time(NULL);
	bool trace = false;
	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 0;
		switch (c) {
		case 's':
			seed = value;
			break;
		case 'n':
			seeds = value;
			break;
		case 't':
			seconds = (time_t)value;
			break;
		case 'k':
			steps = value;
			break;
		case 'v':
			trace = true;
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc || steps < 1 || steps > STEPS_MOST) {
		usage(stderr);
		return 2;
	}
	if (!seeds)
		seeds = seconds ? UINT64_MAX : trace ? 1 : 1000;
	struct step *list = calloc(steps, sizeof(*list));
	outcome = mmap(
		NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!list || outcome == MAP_FAILED)
		return 2;

	uint64_t n = 0;
	for (; n < seeds && (!seconds || time(NULL) - began < seconds); n++) {
		draw(seed + n, list, steps);
		if (!run_apart(seed + n, list, steps, trace, RUN_SECONDS))
			return report(seed + n, list, steps);
	}
	printf("%" PRIu64 " seeds, %" PRIu64 " days; %" PRIu64 " grants, %" PRIu64
	       " refusals, %" PRIu64 " deaths of the daemon, %" PRIu64
	       " leases adopted: no violation\n",
		n, outcome->ns / UINT64_C(86400000000000), outcome->grants, outcome->refusals,
		outcome->deaths, outcome->adopted);
	free(list);
	return 0;
}
