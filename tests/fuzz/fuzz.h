/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FUZZ_H
#define GM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* One input. Called by libFuzzer (--enable-fuzzers), or for each file of a corpus by replay.c,
 * which is a part of make check in any build. Does not return if something is wrong. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
