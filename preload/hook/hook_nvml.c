/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML says about the memory of a GPU: as the driver does (hook_figures.c), the size is the limit, and
 * what is free is what the program could have. Begins no session: programs ask NVML about GPUs that
 * they will never use.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "preload/preload.h"
#include "preload/broker/preload_broker.h"
#include "preload/driver/preload_next.h"

/* Of NVML itself, which the program has loaded: otherwise nobody would be here. NULL: it lacks that. */
static void *nvml_find(const char *symbol)
{
	return gm_driver_next_loaded("libnvidia-ml.so.1", symbol);
}

/* ---- which device it is */

static int nvml_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "GPU-f46b6500-…" */
static bool nvml_parse(const char *text, gm_cu_uuid *ret_uuid)
{
	unsigned n = 0;

	for (text += strcspn(text, "-"); *text && n < 32; text++) {
		int digit = nvml_digit(*text);
		if (digit < 0)
			continue;
		char *byte = &ret_uuid->bytes[n++ / 2];
		*byte = (char)(n % 2 ? digit << 4 : *byte | digit);
	}
	return n == 32;
}

static bool nvml_uuid(gm_nvml_device device, gm_cu_uuid *ret_uuid)
{
	gm_nvml_return (*get_uuid)(gm_nvml_device, char *, unsigned int);
	char text[96] = "";

	*(void **)&get_uuid = nvml_find("nvmlDeviceGetUUID");
	return get_uuid && get_uuid(device, text, sizeof text) == GM_NVML_SUCCESS &&
	       nvml_parse(text, ret_uuid);
}

/* ---- the figures */

/* Returns whether the size is the limit's. The figures of a device that the daemon does not serve are NVML's. */
static bool nvml_answer(
	gm_nvml_device device, unsigned long long *total, unsigned long long *free_bytes)
{
	const struct gm_preload_settings *settings = gm_preload_settings();
	gm_cu_uuid uuid;
	uint32_t number;
	uint64_t room;

	if (settings->see_all)
		return false;
	bool known = nvml_uuid(device, &uuid);
	if (known && !gm_preload_serves(&uuid))
		return false;
	bool limited = settings->limit < *total;
	if (limited)
		*total = settings->limit;
	if (known && gm_preload_there() && gm_preload_uuid(&uuid, &number) &&
		gm_preload_room(number, &room))
		*free_bytes = room;
	if (*free_bytes > *total)
		*free_bytes = *total;
	return limited;
}

gm_nvml_return nvmlDeviceGetMemoryInfo(gm_nvml_device device, gm_nvml_memory *memory)
{
	gm_nvml_return (*next)(gm_nvml_device, gm_nvml_memory *);

	*(void **)&next = nvml_find("nvmlDeviceGetMemoryInfo");
	if (!next)
		return GM_NVML_ERROR_FUNCTION_NOT_FOUND;
	gm_nvml_return result = next(device, memory);
	if (result)
		return result;
	(void)nvml_answer(device, &memory->total, &memory->free);
	memory->used = memory->total - memory->free;
	return result;
}

/* Here what nobody can have stands by itself. It is no part of a limit. */
gm_nvml_return nvmlDeviceGetMemoryInfo_v2(gm_nvml_device device, gm_nvml_memory_v2 *memory)
{
	gm_nvml_return (*next)(gm_nvml_device, gm_nvml_memory_v2 *);

	*(void **)&next = nvml_find("nvmlDeviceGetMemoryInfo_v2");
	if (!next)
		return GM_NVML_ERROR_FUNCTION_NOT_FOUND;
	gm_nvml_return result = next(device, memory);
	if (result)
		return result;
	if (nvml_answer(device, &memory->total, &memory->free))
		memory->reserved = 0;
	if (memory->free > memory->total - memory->reserved)
		memory->free = memory->total - memory->reserved;
	memory->used = memory->total - memory->reserved - memory->free;
	return result;
}
