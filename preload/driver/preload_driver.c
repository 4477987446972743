/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the driver's functions in the libcuda.so.1 that the program has loaded. Two threads that come
 * first at the same time find the same.
 */
#include "preload/driver/preload_driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "preload/driver/preload_next.h"

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

static _Atomic(struct gm_driver *) driver_found;

/* Without a lock, which a child of fork() could find locked. */
static __attribute__((noinline, cold)) const struct gm_driver *driver_find(void)
{
	static struct gm_driver first;
	static atomic_flag first_taken = ATOMIC_FLAG_INIT;
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct gm_driver *driver = NULL, *other = NULL;

	/* Without memory, a program would get the driver's own functions, and pass by gpumemd. */
	if (library)
		driver = atomic_flag_test_and_set(&first_taken) ? malloc(sizeof *driver) : &first;
	if (!driver)
		return NULL;

	for (size_t i = 0; i < sizeof driver_symbols / sizeof *driver_symbols; i++) {
		void *fn = gm_driver_next_symbol(library, driver_symbols[i].symbol);
		memcpy((char *)driver + driver_symbols[i].offset, &fn, sizeof fn);
	}
	if (atomic_compare_exchange_strong(&driver_found, &other, driver))
		return driver;
	if (driver != &first)
		free(driver);
	return other;
}

const struct gm_driver *gm_driver(void)
{
	const struct gm_driver *driver = atomic_load_explicit(&driver_found, memory_order_acquire);

	return __builtin_expect(driver != NULL, 1) ? driver : driver_find();
}
