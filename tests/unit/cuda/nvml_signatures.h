/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVML_SIGNATURES_H
#define NVML_SIGNATURES_H

#include <stddef.h>

extern const size_t check_nvml_signatures_n;
/* A line of TAP for each function, from this number on. 0, or 1 if one failed. */
int check_nvml_signatures(size_t first);

#endif
