/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the signatures of NVML in common/cuda/cuda_abi.h against nvml.h: our names for the types are
 * made NVIDIA's here, and then each function's type must be the very same. The exported symbol must
 * be the one that nvml.h's macros lead to, or a newer version of it: an older Toolkit knows no
 * better.
 */
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cuda/nvml_signatures.h"

typedef nvmlReturn_t gm_nvml_return;
typedef nvmlEnableState_t gm_nvml_enable;
typedef nvmlDevice_t gm_nvml_device;
typedef nvmlMemory_t gm_nvml_memory;
typedef nvmlProcessInfo_t gm_nvml_process;
#define GM_NVML_ABI_TYPES_GIVEN
#include "common/cuda/cuda_abi.h"

#define SAME_SIGNATURE(name, symbol, needed, parameters) \
	_Static_assert( \
		__builtin_types_compatible_p(__typeof__(&name), nvmlReturn_t(*) parameters), \
		"signature of " #name);
GM_NVML_FUNCTIONS(SAME_SIGNATURE)

#define TEXT_OF(expanded) #expanded
#define TEXT(name)        TEXT_OF(name)

static const struct {
	const char *name, *ours, *theirs;
} symbols[] = {
#define PAIR(name, symbol, needed, parameters) {#name, symbol, TEXT(name)},
	GM_NVML_FUNCTIONS(PAIR)};
const size_t check_nvml_signatures_n = sizeof symbols / sizeof *symbols;

/* 3 for nvmlX_v3, 1 for nvmlX, 0 for a symbol of another function. */
static int version(const char *name, const char *symbol)
{
	size_t n = strlen(name);

	if (strncmp(name, symbol, n) != 0)
		return 0;
	if (!symbol[n])
		return 1;
	return strncmp(symbol + n, "_v", 2) == 0 ? atoi(symbol + n + 2) : 0;
}

int check_nvml_signatures(size_t first)
{
	int failed = 0;

	for (size_t i = 0; i < check_nvml_signatures_n; i++) {
		int ours = version(symbols[i].name, symbols[i].ours);
		int theirs = version(symbols[i].name, symbols[i].theirs);
		int good = theirs > 0 && theirs <= ours;
		failed |= !good;
		printf("%sok %zu - %s has the signature of nvml.h, which leads to %s\n",
			good ? "" : "not ", first + i, symbols[i].ours, symbols[i].theirs);
	}
	return failed;
}
