/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds our declarations of NVML (common/cuda/cuda_abi.h) against NVIDIA's own, where nvml.h is
 * installed. Sizes, offsets and values: here. Signatures: nvml_signatures.c. All of it is
 * decided by the compiler, but for the names of the exported symbols.
 */
#include <nvml.h>
#include <stddef.h>
#include <stdio.h>

#include "common/cuda/cuda_abi.h"
#include "tests/unit/cuda/nvml_signatures.h"

#define SAME_SIZE(ours, theirs) \
	_Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), \
		"size of " #ours)
#define SAME_OFFSET(ours, a, theirs, b) \
	_Static_assert(offsetof(ours, a) == offsetof(theirs, b), "offset of " #ours "." #a)

SAME_SIZE(gm_nvml_return, nvmlReturn_t);
SAME_SIZE(gm_nvml_enable, nvmlEnableState_t);
SAME_SIZE(gm_nvml_device, nvmlDevice_t);
SAME_SIZE(gm_nvml_memory, nvmlMemory_t);
SAME_OFFSET(gm_nvml_memory, total, nvmlMemory_t, total);
SAME_OFFSET(gm_nvml_memory, free, nvmlMemory_t, free);
SAME_OFFSET(gm_nvml_memory, used, nvmlMemory_t, used);
SAME_SIZE(gm_nvml_memory_v2, nvmlMemory_v2_t);
SAME_OFFSET(gm_nvml_memory_v2, total, nvmlMemory_v2_t, total);
SAME_OFFSET(gm_nvml_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME_OFFSET(gm_nvml_memory_v2, free, nvmlMemory_v2_t, free);
SAME_OFFSET(gm_nvml_memory_v2, used, nvmlMemory_v2_t, used);
SAME_SIZE(gm_nvml_process, nvmlProcessInfo_t);
SAME_OFFSET(gm_nvml_process, pid, nvmlProcessInfo_t, pid);
SAME_OFFSET(gm_nvml_process, used, nvmlProcessInfo_t, usedGpuMemory);
SAME_OFFSET(gm_nvml_process, gpu_instance, nvmlProcessInfo_t, gpuInstanceId);
SAME_OFFSET(gm_nvml_process, compute_instance, nvmlProcessInfo_t, computeInstanceId);

#define SAME_VALUE(name, value) _Static_assert((long)(name) == (long)(value), #name);
GM_NVML_VALUES(SAME_VALUE)
_Static_assert(
	(uint64_t)(NVML_VALUE_NOT_AVAILABLE) == GM_NVML_USED_UNKNOWN, "a use that is not told");

int main(void)
{
	printf("1..%zu\n", check_nvml_signatures_n + 1);
	printf("ok 1 - values, sizes, alignments and offsets are those of nvml.h\n");
	return check_nvml_signatures(2);
}
