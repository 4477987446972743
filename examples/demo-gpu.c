/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few calls to the CUDA driver that the demo's worker needs. The types of the driver's
 * interface are spelled out, so that the demo can be built without the Toolkit.
 */

#include "demo-gpu.h"

#include <dlfcn.h>
#include <string.h>

static int (*copy_async)(unsigned long long to, unsigned long long from, size_t n, void *stream);
static int (*synchronize)(void);

const char *demo_gpu_start(const uint8_t uuid[16])
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *context;
	int count = 0, device;
	char found[16];

	if (!driver)
		return "libcuda.so.1 cannot be loaded";
	int (*init)(unsigned) = dlsym(driver, "cuInit");
	int (*get_count)(int *) = dlsym(driver, "cuDeviceGetCount");
	int (*get)(int *, int) = dlsym(driver, "cuDeviceGet");
	int (*get_uuid)(void *, int) = dlsym(driver, "cuDeviceGetUuid_v2");
	int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
	int (*set_current)(void *) = dlsym(driver, "cuCtxSetCurrent");
	copy_async = dlsym(driver, "cuMemcpyAsync");
	synchronize = dlsym(driver, "cuCtxSynchronize");
	if (!init || !get_count || !get || !get_uuid || !retain || !set_current || !copy_async ||
		!synchronize)
		return "the driver is too old";
	if (init(0) || get_count(&count))
		return "cuInit failed";
	for (int i = 0; i < count; i++) {
		if (get(&device, i) || get_uuid(found, device) ||
			memcmp(found, uuid, sizeof(found)) != 0)
			continue;
		if (retain(&context, device) || set_current(context))
			return "no context can be made on the device";
		return NULL;
	}
	return "the driver does not show the device to this process";
}

const char *demo_gpu_copy(void *to, const void *from, size_t n)
{
	if (copy_async((uintptr_t)to, (uintptr_t)from, n, NULL) || synchronize())
		return "copying failed";
	return NULL;
}
