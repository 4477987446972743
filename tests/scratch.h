/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_SCRATCH_H
#define GM_TESTS_SCRATCH_H

#include <stddef.h>

/*
 * Names under /tmp for what a test makes there. Whatever has such a name is removed when the test
 * program ends, even if the test that made it failed or was killed: that one was a child of the
 * program. With GPUMEM_TEST_KEEP in the environment it all stays, to be looked at.
 */

/* A name that nothing has, of this process and for that purpose. */
void gm_scratch_path(const char *purpose, char *path, size_t room);
/* Makes a folder. Ends the process if that cannot be. */
void gm_scratch_folder(char *path, size_t room);

#endif
