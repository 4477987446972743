/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RUN_OPTIONS_H
#define GM_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * gpumem-run starts a program with libgpumem-preload.so in front of the CUDA driver, and tells that
 * library by the environment what the user wants (preload/preload.h). It becomes the program: there is
 * no process of its own afterwards. It must never know the driver.
 *
 * This file: the command line.
 */

struct gm_run_options {
	const char *limit_text; /* NULL: no limit */
	uint64_t limit;         /* bytes; 0: it is the fraction */
	double fraction;        /* of the device */
	const char *name;       /* NULL: the program's */
	int32_t priority;
	bool wait_given;
	bool spill;
	uint32_t wait_ms;
	int64_t device;     /* -1: all */
	const char *socket; /* NULL: as the client library finds it */
	bool optional;
	bool report;
	bool quiet;
	bool see_all;
	char **program; /* with its arguments, NULL-ended */
};

enum gm_run_parsed {
	GM_RUN_GO,
	GM_RUN_DONE,  /* --help or --version was answered */
	GM_RUN_WRONG, /* a message on stderr says why */
};
enum gm_run_parsed gm_run_parse(int argc, char **argv, struct gm_run_options *ret_options);

#endif
