/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/driver/preload_next.h"

#include <dlfcn.h>
#include <stddef.h>

/* Only ever set to one value. */
_Atomic(gm_driver_next_fn) gm_driver_next_dlsym;

/* In the version that the architecture began with, or that of C libraries that are all in one file. */
static gm_driver_next_fn next_libc(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	void *fn = NULL;

	for (size_t i = 0; i < sizeof versions / sizeof *versions && !fn; i++)
		fn = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	return (gm_driver_next_fn)fn;
}

gm_driver_next_fn gm_driver_next(void)
{
	gm_driver_next_fn next = atomic_load_explicit(&gm_driver_next_dlsym, memory_order_relaxed);
	if (next)
		return next;

	gm_driver_next_fn libc = next_libc();
	if (!libc)
		__builtin_trap(); /* there is no such C library */
	next = (gm_driver_next_fn)libc(RTLD_NEXT, "dlsym");
	if (!next)
		next = libc;
	atomic_store_explicit(&gm_driver_next_dlsym, next, memory_order_relaxed);
	return next;
}

void *gm_driver_next_symbol(void *handle, const char *name)
{
	return gm_driver_next()(handle, name);
}

void *gm_driver_next_loaded(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	void *found = handle ? gm_driver_next_symbol(handle, name) : NULL;

	if (handle)
		dlclose(handle);
	return found;
}
