/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_H
#define GM_PRELOAD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * libgpumem-preload.so puts a program that knows nothing of gpumemd under it: it stands between the
 * program and the CUDA driver, and takes device memory from the daemon. It must never know messages or
 * the inside of the client library, which it loads at run time and calls by its public functions.
 *
 * What it promises:
 *   - A program reaches its functions however it looks for the driver's: linked, by dlopen() and
 *     dlsym(), and by every version of cuGetProcAddress() (preload_lookup.c).
 *   - A call that it does not know goes to the driver untouched. A call that it knows is one row in
 *     preload_calls.h.
 *   - A program that never calls for device memory pays nothing: no library is loaded, no daemon is
 *     asked, and no thread is started before the first such call (preload_broker.h).
 *   - In a program with more rights than its user (AT_SECURE) it does nothing.
 *   - A forked child does not use its parent's session: its calls go to the driver.
 *   - It prints nothing, unless gpumem-run asks for it, or a limit in the environment is not one.
 *
 * It is a convenience and not a security boundary: a program that wants to can reach the driver by
 * other ways.
 */

/*
 * What gpumem-run tells the library, in the environment. All of it may be missing: the library can be
 * used without gpumem-run.
 *   GPUMEM_RUN_NAME      the client's name; else the program's
 *   GPUMEM_RUN_LIMIT     bytes; what the program is told to be the size of each GPU
 *   GPUMEM_RUN_WAIT      milliseconds that an allocation may wait if the device is full, 0: GPUMEM_NO_WAIT; else as
 *                        the daemon's configuration says
 *   GPUMEM_RUN_DEVICES   the UUIDs of the GPUs that gpumemd serves, with commas between them
 *   GPUMEM_RUN_SPILL     1: what the device has no room for comes from pinned host memory
 *   GPUMEM_RUN_OPTIONAL  1: without a daemon the program runs on the plain driver
 *   GPUMEM_RUN_SEE_ALL   1: the program is told the driver's own figures
 *   GPUMEM_RUN_REPORT    says on stderr, when the program ends, what went where. 1, or the process that says it even if
 *                        it has called for no memory
 *   GPUMEM_RUN_STDERR    the device and the inode of gpumem-run's stderr, as "1:2". The first refusal is told there, if
 *                        it is still the program's stderr
 * And what only the user sets:
 *   GPUMEM_ON_PRESSURE   the signal that the process gets under pressure (preload_pressure.h)
 */
struct gm_preload_settings {
	const char *name;    /* NULL: none was given */
	uint64_t limit;      /* UINT64_MAX: none was given */
	uint32_t wait_ms;    /* as the client library takes it */
	const char *devices; /* UUIDs of those that the daemon serves; NULL: nobody has said */
	int signal;          /* under pressure; 0: none */
	bool spill;
	bool optional;
	bool see_all;
	bool report;
	bool tells;             /* the first refusal is told on this stderr: */
	uint64_t stderr_device; /* st_dev */
	uint64_t stderr_inode;  /* st_ino */
	uint64_t reporter;      /* the process that reports also that there is nothing to report */
	bool off;               /* this process must not be touched */
};

/* Of variables that each thread has for itself. The library is there from the start of the program, so that they
 * need no call to be found. */
#define GM_PRELOAD_THREAD __thread __attribute__((tls_model("initial-exec")))

/* Read when first asked for, and the same from then on. Thread-safe. */
const struct gm_preload_settings *gm_preload_settings(void);

#endif
