/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RUN_RUN_H
#define GM_RUN_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * gpumem-run starts a program with libgpumem-preload.so in front of the CUDA driver, and tells that
 * library by the environment what the user wants (preload/preload.h). It becomes the program: there is
 * no process of its own afterwards. It must never know the driver.
 */

/* ---- run_options.c: the command line */

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

/* ---- run_program.c: the program that is to run, where it is, and whether a library can be put into it */

/* Finds it as a shell would. -ENOENT; -EACCES: it cannot be executed; -ENAMETOOLONG. */
int gm_program_find(const char *name, char *path, size_t room);

/* Why the dynamic linker would not load a library of ours into it, as the end of a sentence that begins
 * with its path; NULL: it would, or nobody knows. */
const char *gm_program_closed(const char *path);

/* Becomes the program. A script that names no interpreter runs in the shell, as with execvp(3). Returns only on error: a
 * negative errno. */
int gm_program_execute(const char *path, char *const argv[]);

/* ---- run_library.c: the library that the environment names */

#define GM_RUN_LIBRARY_WHY (PATH_MAX + 64)

/*
 * Why the library must not run in the program, or NULL. sudo -E keeps the variable, and the caller's code must not run as root. So
 * nobody but root, the effective user, the owner of gpumem-run and their groups may be able to put another file in its place, now or
 * later. path has no links, as realpath() makes it.
 */
const char *gm_run_library_distrusts(const char *path, char why[GM_RUN_LIBRARY_WHY]);

#endif
