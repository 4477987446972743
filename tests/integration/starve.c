/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* See starve.h. It must never fail an allocation that the test did not ask to fail. */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/starve.h"

#define STARVE_EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);

static struct gm_starve *_Atomic starve;

__attribute__((constructor)) static void starve_begin(void)
{
	const char *path = getenv(GM_STARVE_FILE);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof(struct gm_starve), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		atomic_store(&starve, at);
}

/* Counts one down, unless it is 0. */
static bool starve_take(_Atomic uint64_t *count)
{
	uint64_t n = atomic_load(count);
	while (n > 0)
		if (atomic_compare_exchange_weak(count, &n, n - 1))
			return true;
	return false;
}

static bool starve_fails(void)
{
	struct gm_starve *now = atomic_load(&starve);
	if (!now || atomic_load(&now->fail) == 0 || starve_take(&now->skip) ||
		!starve_take(&now->fail))
		return false;
	atomic_fetch_add(&now->failed, 1);
	errno = ENOMEM;
	return true;
}

STARVE_EXPORT void *malloc(size_t n)
{
	return starve_fails() ? NULL : __libc_malloc(n);
}

STARVE_EXPORT void *calloc(size_t n, size_t m)
{
	return starve_fails() ? NULL : __libc_calloc(n, m);
}

STARVE_EXPORT void *realloc(void *p, size_t n)
{
	return starve_fails() ? NULL : __libc_realloc(p, n);
}
