/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_USER_H
#define GM_CTL_USER_H

#include <stdint.h>
#include <sys/types.h>

/* Users by name, and other small things on the way to being shown. */

#define GM_USER_TEXT 64
/* The user's name, else the number. Remembers the last few. */
const char *gm_user_name(uid_t uid, char text[GM_USER_TEXT]);

static inline uint64_t gm_ms_to_ns(uint64_t ms)
{
	return ms > UINT64_MAX / 1000000 ? UINT64_MAX : ms * 1000000;
}

#endif
