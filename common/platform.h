/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_PLATFORM_H
#define GM_COMMON_PLATFORM_H

#include <stdbool.h>

/* What kind of machine this is. */

/* A prefix for /proc, /dev and the like: "", or $GPUMEM_TEST_ROOT, which tests set. */
const char *gm_platform_root(void);
/* Whether the version string of the kernel says that this is the Windows Subsystem for Linux. */
bool gm_platform_is_wsl(const char *root);

#endif
