/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_SUBUIDS_H
#define GM_TESTS_INTEGRATION_SUBUIDS_H

#include <stdio.h>
#include <sys/stat.h>

#include "tests/integration/harness.h"
#include "tests/scratch.h"

/* A daemon that has other users and subordinate uids than this machine. */

#define GM_SUBUIDS_ANN 64998

static inline void gm_subuids_write(const char *folder, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/etc/%s", folder, name);
	FILE *file = fopen(path, "w");
	GM_REQUIRE(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* What the environment of such a daemon needs. There are the users ann and root, and these lines in
 * /etc/subuid. A later call changes the lines, for the next reload. */
static inline const char *gm_subuids_env(const char *lines)
{
	static char folder[128], env[160];

	if (!folder[0]) {
		char etc[160];
		gm_scratch_folder(folder, sizeof(folder));
		snprintf(etc, sizeof(etc), "%s/etc", folder);
		GM_REQUIRE_EQ(mkdir(etc, 0755), 0);
		gm_subuids_write(
			folder, "passwd", "root:x:0:0::/:/bin/sh\nann:x:64998:64998::/:/bin/sh\n");
		snprintf(env, sizeof(env), "GPUMEM_TEST_ROOT=%s", folder);
	}
	gm_subuids_write(folder, "subuid", lines);
	return env;
}

#endif
