/* SPDX-License-Identifier: Apache-2.0 */
/* See failing_malloc.h. It must never fail an allocation that the test did not ask to fail. */
#include "tests/unit/failing_malloc.h"

#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);

static __thread uint64_t countdown;
static __thread bool fired, paused;

static bool fails(void)
{
	if (paused || countdown == 0 || --countdown > 0)
		return false;
	fired = true;
	return true;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	return fails() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void failing_malloc_pause(bool now)
{
	paused = now;
}

void failing_malloc_arm(uint64_t n)
{
	countdown = n;
	fired = false;
}

bool failing_malloc_fired(void)
{
	bool was = fired;
	countdown = 0;
	fired = false;
	return was;
}
