/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of machine this is, according to the kernel. This file only reads; it decides
 * nothing. */
#include "common/system/platform.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <string.h>

const char *gm_platform_root(void)
{
	const char *root = getenv("GPUMEM_TEST_ROOT");

	return root ? root : "";
}

/* "Linux version 6.6.87.2-microsoft-standard-WSL2 (root@…) …". Kernels built for WSL keep one of
 * the two words in their release. The rest of the line is not searched, because it names the
 * compiler. */
bool gm_platform_is_wsl(const char *root)
{
	char path[PATH_MAX], line[512], release[256];
	bool wsl = false;
	FILE *file;

	if (snprintf(path, sizeof(path), "%s/proc/version", root) >= (int)sizeof(path))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fgets(line, sizeof(line), file) && sscanf(line, "Linux version %255s", release) == 1)
		wsl = strcasestr(release, "microsoft") || strcasestr(release, "WSL");
	fclose(file);
	return wsl;
}
