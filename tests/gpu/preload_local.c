/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is linked with the driver, and looks for one of its functions in its own scope. */
#include <dlfcn.h>

#include "common/cuda/cuda_abi.h"

__attribute__((visibility("default"))) void *local_find(const char *name);
__attribute__((visibility("default"))) gm_cu_result local_init(void);

extern gm_cu_result cuInit(unsigned int flags);

void *local_find(const char *name)
{
	/* Not by a jump, which would make its caller the one who asks. */
	void *volatile found = dlsym(RTLD_DEFAULT, name);
	return found;
}

gm_cu_result local_init(void)
{
	return cuInit(0);
}
