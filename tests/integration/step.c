/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Ends a process between two steps (common/step.h), as a SIGKILL from outside would. Linked only into
 * programs of the test check_steps.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/step.h"
#include "tests/integration/step_table.h"

static struct gm_step_row *step_rows;

__attribute__((constructor)) static void step_begin(void)
{
	const char *path = getenv("GPUMEM_TEST_STEPS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	struct gm_step_tables *tables =
		mmap(NULL, sizeof(*tables), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (tables != MAP_FAILED)
		step_rows = strstr(program_invocation_short_name, "keeper") ? tables->keeper
									    : tables->daemon;
}

void gm_step(const char *name)
{
	for (struct gm_step_row *row = step_rows; row && row < step_rows + GM_STEP_ROWS; row++) {
		if (!row->name[0])
			strncpy(row->name, name, sizeof(row->name) - 1);
		if (strcmp(row->name, name) != 0)
			continue;
		if (++row->passes == row->fatal)
			kill(getpid(), SIGKILL);
		return;
	}
	if (step_rows)
		abort(); /* there are more steps than rows, or a name is too long */
}
