/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the driver's functions in the libcuda.so.1 that the program has loaded. Two threads that come
 * first at the same time find the same.
 */
#include "preload/preload_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "preload/preload_next.h"

static const struct driver_symbol {
	const char *symbol;
	size_t offset;
} driver_symbols[] = {
#define DRIVER_CALL(symbol, name, version, flags, parameters) \
	{#symbol, offsetof(struct gm_driver, symbol)},
	GM_PRELOAD_CALLS(DRIVER_CALL)
#undef DRIVER_CALL
#define DRIVER_USED(symbol, parameters) {#symbol, offsetof(struct gm_driver, symbol)},
		GM_PRELOAD_USED(DRIVER_USED)
#undef DRIVER_USED
};

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gm_driver driver_table;
static atomic_bool driver_found;

static __attribute__((noinline, cold)) const struct gm_driver *driver_find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return NULL;

	pthread_mutex_lock(&driver_lock);
	if (!atomic_load(&driver_found)) {
		for (size_t i = 0; i < sizeof driver_symbols / sizeof *driver_symbols; i++) {
			void *fn = gm_next_symbol(library, driver_symbols[i].symbol);
			memcpy((char *)&driver_table + driver_symbols[i].offset, &fn, sizeof fn);
		}
		atomic_store_explicit(&driver_found, true, memory_order_release);
	}
	pthread_mutex_unlock(&driver_lock);
	return &driver_table;
}

const struct gm_driver *gm_driver(void)
{
	if (__builtin_expect(atomic_load_explicit(&driver_found, memory_order_acquire), 1))
		return &driver_table;
	return driver_find();
}
