/* SPDX-License-Identifier: Apache-2.0 */
/* Another preloaded library: it stands in for a function, and finds the next one as such libraries do. */
#include <dlfcn.h>
#include <unistd.h>

__attribute__((visibility("default"))) pid_t getppid(void);
__attribute__((visibility("default"))) int beside_calls(void);

static int calls;

pid_t getppid(void)
{
	pid_t (*next)(void);

	calls++;
	*(void **)&next = dlsym(RTLD_NEXT, "getppid");
	return next();
}

int beside_calls(void)
{
	return calls;
}
