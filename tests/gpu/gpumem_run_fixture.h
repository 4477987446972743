/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_GPUMEM_RUN_FIXTURE_H
#define GM_TESTS_GPU_GPUMEM_RUN_FIXTURE_H

/* Runs gpumem-run as a user does. See preload_fixture.h. */

#include "tests/gpu/preload_fixture.h"

#define LIMIT       "64M"
#define LIMIT_BYTES (UINT64_C(64) << 20)

/* ---- running it */

struct command {
	const char *const *arguments; /* NULL-ended */
	const char *output;           /* where stdout and stderr go; NULL: as the test's */
	bool nowhere;                 /* no daemon listens where it looks */
	bool relative;                /* the library is named from the folder where it runs */
	const char *library;          /* GPUMEM_PRELOAD; NULL: the one that was built */
	const char *preloaded;        /* LD_PRELOAD before; %s is the library */
};

static inline void run(int channel, void *argument)
{
	const struct command *command = argument;
	char program[512], preload[512], actor[512];

	built(program, "run", "gpumem-run");
	built(preload, "preload", "libgpumem-preload.so");
	built(actor, "tests/gpu", "preload_actor");
	prepare_program(channel);
	setenv("GPUMEM_PRELOAD", preload, 1);
	if (command->relative) {
		*strrchr(preload, '/') = 0;
		GM_REQUIRE(chdir(preload) == 0);
		setenv("GPUMEM_PRELOAD", "./libgpumem-preload.so", 1);
	}
	if (command->library)
		setenv("GPUMEM_PRELOAD", command->library, 1);
	if (command->preloaded) {
		char before[1200];
		snprintf(before, sizeof before, "/nowhere%s%s", preload, command->preloaded);
		setenv("LD_PRELOAD", before, 1);
	}
	setenv("ACTOR", actor, 1);
	setenv("GPUMEM_SOCKET", command->nowhere ? "/nowhere/socket" : daemon_.socket, 1);
	if (command->output) {
		redirect(command->output, STDOUT_FILENO);
		redirect(command->output, STDERR_FILENO);
	}

	const char *arguments[32] = {program};
	for (size_t i = 0; command->arguments[i]; i++)
		arguments[i + 1] = command->arguments[i];
	execv(program, (char **)(uintptr_t)arguments);
	GM_FAIL("cannot run %s: %s", program, strerror(errno));
}

/* Runs it to its end: its exit status, and what it printed. */
static inline int outcome(const struct command *command, char text[4096])
{
	struct command quiet = *command;
	char output[128];
	struct gm_worker worker;

	gm_scratch_path("run", output, sizeof output);
	quiet.output = output;
	gm_worker_start(&worker, run, &quiet);
	int status = end_of(&worker);
	read_file(output, text, 4096);
	unlink(output);
	GM_REQUIRE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define ARGUMENTS(...) \
	(const char *const[]) \
	{ \
		__VA_ARGS__, NULL \
	}

#endif
