/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts of the fake driver: contexts of their own, whose work is also that of the device's primary one. A
 * device has one resource, and all of it is given.
 */
#include "tests/fake/stream.h"

/* As large as the driver has it. */
struct fake_resource {
	char bytes[144];
};

FAKE_API gm_cu_result cuDeviceGetDevResource(
	gm_cu_device number, struct fake_resource *resource, int type);
FAKE_API gm_cu_result cuDeviceGetDevResource(
	gm_cu_device number, struct fake_resource *resource, int type)
{
	FAKE_ENTER("cuDeviceGetDevResource");
	if (!fake_get_device(number))
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!resource || type != 1)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*resource = (struct fake_resource){{(char)type}};
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDevResourceGenerateDesc(
	void **description, struct fake_resource *resources, unsigned int n);
FAKE_API gm_cu_result cuDevResourceGenerateDesc(
	void **description, struct fake_resource *resources, unsigned int n)
{
	static char all;

	FAKE_ENTER("cuDevResourceGenerateDesc");
	if (!description || !resources || n != 1)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*description = &all;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuGreenCtxCreate(
	gm_cu_ctx *green, void *description, gm_cu_device number, unsigned int flags);
FAKE_API gm_cu_result cuGreenCtxCreate(
	gm_cu_ctx *green, void *description, gm_cu_device number, unsigned int flags)
{
	FAKE_ENTER("cuGreenCtxCreate");
	if (!green || !description || flags != 1)
		return GM_CUDA_ERROR_INVALID_VALUE;
	return fake_green_new(green, number);
}

FAKE_API gm_cu_result cuCtxFromGreenCtx(gm_cu_ctx *ctx, gm_cu_ctx green);
FAKE_API gm_cu_result cuCtxFromGreenCtx(gm_cu_ctx *ctx, gm_cu_ctx green)
{
	struct fake_device *device;
	gm_cu_result result;
	int unused;

	FAKE_ENTER("cuCtxFromGreenCtx");
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_check_context(green, &device, &unused);
	if (!result)
		*ctx = green;
	return result;
}

FAKE_API gm_cu_result cuGreenCtxDestroy(gm_cu_ctx green);
FAKE_API gm_cu_result cuGreenCtxDestroy(gm_cu_ctx green)
{
	FAKE_ENTER("cuGreenCtxDestroy");
	return fake_green_end(green);
}
