/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of machine this is, according to the kernel. This file only reads; it decides
 * nothing. */
#include "common/system/platform.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <string.h>
#include <unistd.h>

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

/* ---- units */

static void platform_read_unit(
	const char *path, const char *key, void (*fn)(void *ctx, const char *value), void *ctx)
{
	FILE *file = fopen(path, "re");
	size_t n = strlen(key);
	char line[2048];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		const char *at = line + strspn(line, " \t");
		line[strcspn(line, "\r\n")] = '\0';
		if (!strncmp(at, key, n) && at[n] == '=')
			fn(ctx, at + n + 1);
	}
	fclose(file);
}

bool gm_platform_unit(const char *root, const char *unit, const char *key,
	void (*fn)(void *ctx, const char *value), void *ctx)
{
	static const char *const folders[] = {"/etc/systemd/system", "/run/systemd/system",
		"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"};
	size_t n = sizeof(folders) / sizeof(*folders);
	char path[PATH_MAX];
	bool there = false;

	for (size_t i = 0; i < n && !there; i++) {
		snprintf(path, sizeof(path), "%s%s/%s", root, folders[i], unit);
		there = access(path, F_OK) == 0;
		if (there)
			platform_read_unit(path, key, fn, ctx);
	}

	/* The drop-ins of the first folder override those of the others. */
	for (size_t i = n; there && i-- > 0;) {
		glob_t found = {0};

		snprintf(path, sizeof(path), "%s%s/%s.d/*.conf", root, folders[i], unit);
		if (glob(path, 0, NULL, &found) == 0)
			for (size_t j = 0; j < found.gl_pathc; j++)
				platform_read_unit(found.gl_pathv[j], key, fn, ctx);
		globfree(&found);
	}
	return there;
}
