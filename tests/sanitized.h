/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_SANITIZED_H
#define GM_TESTS_SANITIZED_H

#include <stdbool.h>

/*
 * Returns whether this is a build with address or thread sanitizer, which takes several times the time and memory. What a test
 * repeats to meet rare states is repeated less often there: a memory error shows whenever its place is reached.
 */
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
