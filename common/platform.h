/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_PLATFORM_H
#define GM_COMMON_PLATFORM_H

#include <stdbool.h>

/* What kind of machine this is. */

/* What stands before /proc, /dev and the like: "", or for tests what $GPUMEM_TEST_ROOT says. */
const char *gm_platform_root(void);
/* Whether the kernel is that of the Windows Subsystem for Linux, by its version string. */
bool gm_platform_is_wsl(const char *root);

#endif
