/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory, arrays and mipmaps. The driver makes them; the daemon is asked before, and charges the
 * run (preload_charges.h). A thread that were cancelled in the driver's call would lose the charge.
 */
#include <stdint.h>

#include "common/cancel.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_charges.h"

/* Of CUDA_ARRAY3D_DESCRIPTOR. Arrays of these kinds get their memory elsewhere. */
#define DECLARED_SPARSE   0x40
#define DECLARED_DEFERRED 0x80
#define DECLARED_LAYERED  0x01
#define DECLARED_CUBEMAP  0x04

/* The driver takes whole pages: large ones for large things. */
#define DECLARED_PAGE       ((uint64_t)64 << 10)
#define DECLARED_LARGE_PAGE ((uint64_t)2 << 20)

static uint64_t declared_round(uint64_t bytes)
{
	uint64_t page = bytes < DECLARED_LARGE_PAGE / 2 ? DECLARED_PAGE : DECLARED_LARGE_PAGE;
	return bytes > UINT64_MAX - page ? UINT64_MAX : (bytes + page - 1) / page * page;
}

/* ---- managed memory */

gm_cu_result cuMemAllocManaged(gm_cu_ptr *ptr, size_t bytes, unsigned int flags)
{
	GM_DRIVER_OR_RETURN(driver, cuMemAllocManaged);
	uint64_t whole = (bytes + DECLARED_LARGE_PAGE - 1) & ~(DECLARED_LARGE_PAGE - 1);
	struct gm_preload_charge charge;

	/* The driver says what is wrong. */
	if (!ptr || !bytes || whole < bytes)
		return driver->cuMemAllocManaged(ptr, bytes, flags);
	GM_UNCANCELLED;
	gm_cu_result result =
		gm_preload_charges_begin(driver, GM_CALL_cuMemAllocManaged, whole, &charge);
	if (result)
		return result;
	result = driver->cuMemAllocManaged(ptr, bytes, flags);
	gm_preload_charges_settle(&charge, result ? 0 : *ptr);
	return result;
}

/* ---- arrays */

/* Half bytes of one channel of a texel; of all channels, where the format packs them. */
static uint64_t declared_format(int format)
{
	switch (format) {
	case 0x01: /* 8 bits, unsigned and signed */
	case 0x08:
		return 2;
	case 0x02: /* 16 bits, and halves */
	case 0x09:
	case 0x10:
		return 4;
	case 0xb0: /* NV12: its second plane has a quarter of the texels, and two bytes each */
		return 3;
	case 0x91: /* BC1 and BC4: 8 bytes for 16 texels */
	case 0x92:
	case 0x97:
	case 0x98:
		return 1;
	default:
		break;
	}
	if (format > 0x92 && format <= 0x9e) /* other block formats: 16 bytes for 16 texels */
		return 2;
	if (format >= 0xc0 && format <= 0xcb) /* normalised ones, of 8 and of 16 bits */
		return (format - 0xc0) % 6 < 3 ? 2 : 4;
	return 8;
}

static uint64_t declared_at_least_1(uint64_t n)
{
	return n ? n : 1;
}

/* What the texels of all levels need. */
static uint64_t declared_texels(const gm_cu_array *array, unsigned int levels)
{
	bool layers = array->flags & (DECLARED_LAYERED | DECLARED_CUBEMAP);
	bool packed = array->format >= 0x91 && array->format <= 0xb0;
	uint64_t channels = packed ? 1 : declared_at_least_1(array->channels), sum = 0;

	for (unsigned int i = 0; i < levels && i < 64; i++) {
		uint64_t width = declared_at_least_1(array->width >> i);
		uint64_t height = declared_at_least_1(array->height >> i);
		uint64_t depth = declared_at_least_1(layers ? array->depth : array->depth >> i);
		uint64_t bytes = declared_format(array->format) * channels;
		if (__builtin_mul_overflow(bytes, width, &bytes) ||
			__builtin_mul_overflow(bytes, height, &bytes) ||
			__builtin_mul_overflow(bytes, depth, &bytes) ||
			__builtin_add_overflow(sum, bytes, &sum))
			return UINT64_MAX;
	}
	return sum / 2 + sum % 2;
}

/* Asks the driver how much an array needs: it says so of one that has no memory yet. false: it does not. */
static bool declared_ask(
	const struct gm_driver *driver, const gm_cu_array *array, uint64_t *ret_bytes)
{
	gm_cu_array twin = *array;
	gm_cu_array_needs needs = {0};
	gm_cu_device device;
	void *made = NULL;

	twin.flags |= DECLARED_DEFERRED;
	if (!driver->cuArrayGetMemoryRequirements || !driver->cuArrayDestroy ||
		driver->cuCtxGetDevice(&device) || driver->cuArray3DCreate_v2(&made, &twin))
		return false;
	gm_cu_result result = driver->cuArrayGetMemoryRequirements(&needs, made, device);
	(void)driver->cuArrayDestroy(made);
	*ret_bytes = needs.size;
	return result == GM_CUDA_SUCCESS && needs.size;
}

static uint64_t declared_array(
	const struct gm_driver *driver, const gm_cu_array *array, unsigned int levels)
{
	uint64_t bytes;

	if (array->flags & (DECLARED_SPARSE | DECLARED_DEFERRED))
		return 0;
	if (levels != 1 || gm_preload_begin() != GM_BROKER_READY ||
		!declared_ask(driver, array, &bytes))
		bytes = declared_texels(array, levels);
	return declared_round(bytes);
}

gm_cu_result cuArrayCreate_v2(void **array, const gm_cu_array_2d *description)
{
	GM_DRIVER_OR_RETURN(driver, cuArrayCreate_v2);
	struct gm_preload_charge charge;

	if (!array || !description)
		return driver->cuArrayCreate_v2(array, description);
	GM_UNCANCELLED;
	const gm_cu_array full = {.width = description->width,
		.height = description->height,
		.format = description->format,
		.channels = description->channels};
	gm_cu_result result = gm_preload_charges_begin(
		driver, GM_CALL_cuArrayCreate_v2, declared_array(driver, &full, 1), &charge);
	if (result)
		return result;
	result = driver->cuArrayCreate_v2(array, description);
	gm_preload_charges_settle(&charge, result ? 0 : (uintptr_t)*array);
	return result;
}

gm_cu_result cuArray3DCreate_v2(void **array, const gm_cu_array *description)
{
	GM_DRIVER_OR_RETURN(driver, cuArray3DCreate_v2);
	struct gm_preload_charge charge;

	if (!array || !description)
		return driver->cuArray3DCreate_v2(array, description);
	GM_UNCANCELLED;
	gm_cu_result result = gm_preload_charges_begin(driver, GM_CALL_cuArray3DCreate_v2,
		declared_array(driver, description, 1), &charge);
	if (result)
		return result;
	result = driver->cuArray3DCreate_v2(array, description);
	gm_preload_charges_settle(&charge, result ? 0 : (uintptr_t)*array);
	return result;
}

gm_cu_result cuMipmappedArrayCreate(
	void **array, const gm_cu_array *description, unsigned int levels)
{
	GM_DRIVER_OR_RETURN(driver, cuMipmappedArrayCreate);
	struct gm_preload_charge charge;

	if (!array || !description)
		return driver->cuMipmappedArrayCreate(array, description, levels);
	GM_UNCANCELLED;
	gm_cu_result result = gm_preload_charges_begin(driver, GM_CALL_cuMipmappedArrayCreate,
		declared_array(driver, description, levels), &charge);
	if (result)
		return result;
	result = driver->cuMipmappedArrayCreate(array, description, levels);
	gm_preload_charges_settle(&charge, result ? 0 : (uintptr_t)*array);
	return result;
}

#define DECLARED_DESTROY(symbol) \
	gm_cu_result symbol(void *array) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		struct gm_preload_charge charge = gm_preload_charges_take((uintptr_t)array); \
		gm_cu_result result = driver->symbol(array); \
		gm_preload_charges_settle(&charge, result ? (uintptr_t)array : 0); \
		return result; \
	}

DECLARED_DESTROY(cuArrayDestroy)
DECLARED_DESTROY(cuMipmappedArrayDestroy)
