/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_STARVE_H
#define GM_TESTS_INTEGRATION_STARVE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Memory that fails when told, in a whole process: libstarve.so, by LD_PRELOAD, stands in for malloc,
 * calloc and realloc of the program and of all its libraries. What it does is in a file that the test
 * maps, too. GM_STARVE_FILE names the file.
 */
#define GM_STARVE_FILE "GPUMEM_TEST_STARVE"

struct gm_starve {
	_Atomic uint64_t skip;   /* so many allocations succeed first */
	_Atomic uint64_t fail;   /* so many fail then */
	_Atomic uint64_t failed; /* so many have failed */
};

#endif
