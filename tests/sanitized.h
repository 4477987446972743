/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_SANITIZED_H
#define GM_TESTS_SANITIZED_H

#include <stdbool.h>

/* Whether the build has sanitizers (their memory and time need room). */
static inline bool gm_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return true;
#else
	return false;
#endif
#else
	return false;
#endif
}

#endif
