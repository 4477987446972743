/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds libcuda.so.1 and libnvidia-ml.so.1 at run time and fills a table of function pointers.
 *
 * If the driver has cuGetProcAddress, that function is asked for each symbol, in the version whose
 * signature cuda_abi.h declares. Otherwise the library's symbol table is used. The libraries stay
 * loaded for the life of the process, because unloading the driver while threads run would crash
 * it.
 */
#include "common/cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda_symbol {
	const char *name;
	const char *exported;
	int version;
	bool needed;
	size_t offset;
};

static const struct cuda_symbol cuda_symbols[] = {
#define SYMBOL(name, symbol, version, needed, parameters) \
	{#name, symbol, version, needed, offsetof(struct gm_cuda, name)},
	GM_CU_FUNCTIONS(SYMBOL) GM_CU_OLD_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static const struct cuda_symbol nvml_symbols[] = {
#define SYMBOL(name, symbol, needed, parameters) \
	{#name, symbol, 0, needed, offsetof(struct gm_nvml, name)},
	GM_NVML_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

typedef gm_cu_result (*get_proc_fn)(const char *symbol, void **fn, int version, uint64_t flags);
typedef gm_cu_result (*get_proc_v2_fn)(
	const char *symbol, void **fn, int version, uint64_t flags, int *status);

struct cuda_library {
	void *handle;
	get_proc_fn get_proc;
	get_proc_v2_fn get_proc_v2;
};

/* Each library is loaded once per process. All callers get that one outcome. */
static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
static struct gm_cuda cuda_table;
static int cuda_result;
static enum gm_cuda_lack cuda_lack;
static char cuda_why[GM_CUDA_WHY_BYTES];
static pthread_once_t nvml_once = PTHREAD_ONCE_INIT;
static struct gm_nvml nvml_table;
static int nvml_result;
static char nvml_why[GM_CUDA_WHY_BYTES];

__attribute__((format(printf, 2, 3))) static int cuda_fail(
	char why[GM_CUDA_WHY_BYTES], const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, GM_CUDA_WHY_BYTES, format, args);
	va_end(args);
	return -ENODEV;
}

static void *cuda_find(const struct cuda_library *library, const struct cuda_symbol *symbol)
{
	void *fn = NULL;
	int status = 0;

	if (library->get_proc_v2 &&
		library->get_proc_v2(symbol->name, &fn, symbol->version,
			GM_CU_GET_PROC_ADDRESS_DEFAULT, &status) == GM_CUDA_SUCCESS &&
		fn)
		return fn;
	if (!library->get_proc_v2 && library->get_proc &&
		library->get_proc(symbol->name, &fn, symbol->version,
			GM_CU_GET_PROC_ADDRESS_DEFAULT) == GM_CUDA_SUCCESS &&
		fn)
		return fn;
	return dlsym(library->handle, symbol->exported);
}

/* Fills the table. Returns the first needed symbol that is missing, or NULL. */
static const char *cuda_fill(const struct cuda_library *library, const struct cuda_symbol *symbols,
	size_t n, void *table)
{
	for (size_t i = 0; i < n; i++) {
		void *fn = cuda_find(library, &symbols[i]);
		if (!fn && symbols[i].needed)
			return symbols[i].exported;
		memcpy((char *)table + symbols[i].offset, &fn, sizeof fn);
	}
	return NULL;
}

/* From this version on, the driver has everything that cuda_abi.h declares as needed. */
#define OLDEST 11040

/* The likely cause of an error of cuInit, or "" if none is known. */
static const char *cuda_cause(gm_cu_result result)
{
	switch (result) {
	case GM_CUDA_ERROR_STUB_LIBRARY:
		return ": this libcuda.so.1 is the Toolkit's stub, not the driver's";
	case GM_CUDA_ERROR_SYSTEM_NOT_READY:
		return ": on machines with NVSwitch, nvidia-fabricmanager must run";
	case GM_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return ": its library and its kernel module differ in version; a reboot loads the new module";
	case GM_CUDA_ERROR_OPERATING_SYSTEM:
	case GM_CUDA_ERROR_UNKNOWN:
		return ": /dev/nvidia-uvm may be missing, or not be open to this user";
	default:
		return "";
	}
}

static int cuda_no_device(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	cuda_lack = GM_CUDA_NO_DEVICE;
	if (visible)
		return cuda_fail(cuda_why,
			"the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE): CUDA_VISIBLE_DEVICES is \"%.60s\", which leaves none",
			visible);
	return cuda_fail(cuda_why,
		"the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE) that this process may use");
}

/* A missing library needs no details. Any other failure is reported in the loader's own words. */
static int cuda_no_library(void)
{
	const char *text = dlerror();

	cuda_lack = GM_CUDA_NO_DRIVER;
	if (text && strncmp(text, "libcuda.so.1: cannot open", 25) != 0)
		return cuda_fail(cuda_why, "libcuda.so.1 cannot be loaded: %.180s", text);
	return cuda_fail(cuda_why,
		"no NVIDIA driver: libcuda.so.1 cannot be loaded (in a container: run it with the GPU's driver mounted)");
}

static int cuda_load(void)
{
	struct cuda_library library = {0};
	const char *missing;
	gm_cu_result result;
	int count = 0;

	library.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library.handle)
		return cuda_no_library();
	cuda_lack = GM_CUDA_TOO_OLD;
	library.get_proc_v2 = (get_proc_v2_fn)dlsym(library.handle, "cuGetProcAddress_v2");
	library.get_proc = (get_proc_fn)dlsym(library.handle, "cuGetProcAddress");
	missing = cuda_fill(
		&library, cuda_symbols, sizeof cuda_symbols / sizeof *cuda_symbols, &cuda_table);
	if (missing)
		return cuda_fail(cuda_why,
			"the NVIDIA driver is too old: it has no %s; CUDA 11.4 (driver 470) or newer is needed",
			missing);
	cuda_lack = GM_CUDA_BROKEN;
	result = cuda_table.cuInit(0);
	if (result == GM_CUDA_ERROR_NO_DEVICE)
		return cuda_no_device();
	if (result != GM_CUDA_SUCCESS)
		return cuda_fail(cuda_why, "the NVIDIA driver does not start: %s%s",
			gm_cuda_error(&cuda_table, result), cuda_cause(result));
	result = cuda_table.cuDriverGetVersion(&cuda_table.driver_version);
	if (result == GM_CUDA_SUCCESS && cuda_table.driver_version < OLDEST) {
		cuda_lack = GM_CUDA_TOO_OLD;
		return cuda_fail(cuda_why,
			"the NVIDIA driver is too old: it has CUDA %d.%d; 11.4 (driver 470) or newer is needed",
			cuda_table.driver_version / 1000, cuda_table.driver_version % 1000 / 10);
	}

	if (result == GM_CUDA_SUCCESS)
		result = cuda_table.cuDeviceGetCount(&count);
	if (result != GM_CUDA_SUCCESS)
		return cuda_fail(cuda_why, "the NVIDIA driver does not answer: %s",
			gm_cuda_error(&cuda_table, result));
	if (count == 0)
		return cuda_no_device();
	cuda_lack = GM_CUDA_THERE;
	return 0;
}

static const char *cuda_nvml_cause(gm_nvml_return result)
{
	switch (result) {
	case GM_NVML_ERROR_DRIVER_NOT_LOADED:
		return ": the kernel module nvidia is not loaded";
	case GM_NVML_ERROR_LIB_RM_VERSION_MISMATCH:
		return ": its library and the kernel module differ in version; a reboot loads the new module";
	case GM_NVML_ERROR_NO_PERMISSION:
		return ": /dev/nvidiactl is not open to this user";
	default:
		return "";
	}
}

static int cuda_load_nvml(void)
{
	char text[GM_NVML_ERROR_TEXT];
	struct cuda_library library = {0};
	const char *missing;
	gm_nvml_return result;

	library.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library.handle)
		return cuda_fail(nvml_why, "no NVML: libnvidia-ml.so.1 cannot be loaded");
	missing = cuda_fill(
		&library, nvml_symbols, sizeof nvml_symbols / sizeof *nvml_symbols, &nvml_table);
	if (missing)
		return cuda_fail(nvml_why, "NVML is too old: it has no %s", missing);
	result = nvml_table.nvmlInit();
	if (result != GM_NVML_SUCCESS)
		return cuda_fail(nvml_why, "NVML does not start: %s%s", gm_nvml_error(result, text),
			cuda_nvml_cause(result));
	return 0;
}

static void cuda_first(void)
{
	cuda_result = cuda_load();
}

static void cuda_nvml_first(void)
{
	nvml_result = cuda_load_nvml();
}

int gm_cuda_load(const struct gm_cuda **ret_cuda, char why[GM_CUDA_WHY_BYTES])
{
	pthread_once(&cuda_once, cuda_first);
	if (cuda_result < 0) {
		memcpy(why, cuda_why, GM_CUDA_WHY_BYTES);
		return cuda_result;
	}

	*ret_cuda = &cuda_table;
	return 0;
}

enum gm_cuda_lack gm_cuda_lack(void)
{
	pthread_once(&cuda_once, cuda_first);
	return cuda_lack;
}

int gm_nvml_load(const struct gm_nvml **ret_nvml, char why[GM_CUDA_WHY_BYTES])
{
	pthread_once(&nvml_once, cuda_nvml_first);
	if (nvml_result < 0) {
		memcpy(why, nvml_why, GM_CUDA_WHY_BYTES);
		return nvml_result;
	}

	*ret_nvml = &nvml_table;
	return 0;
}

const char *gm_nvml_error(gm_nvml_return result, char text[GM_NVML_ERROR_TEXT])
{
	switch (result) {
#define NAME(name, value) \
	case value: \
		return #name;
		GM_NVML_VALUES(NAME)
#undef NAME
	}

	snprintf(text, GM_NVML_ERROR_TEXT, "NVML error %d", result);
	return text;
}

const char *gm_cuda_error(const struct gm_cuda *cuda, gm_cu_result result)
{
	const char *name = NULL;

	if (cuda->cuGetErrorName(result, &name) != GM_CUDA_SUCCESS || !name)
		return "an error the driver has no name for";
	return name;
}

int gm_cuda_errno(gm_cu_result result)
{
	switch (result) {
	case GM_CUDA_SUCCESS:
		return 0;
	case GM_CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case GM_CUDA_ERROR_NO_DEVICE:
	case GM_CUDA_ERROR_INVALID_DEVICE:
	case GM_CUDA_ERROR_DEVICE_UNAVAILABLE:
	case GM_CUDA_ERROR_ECC_UNCORRECTABLE:
	case GM_CUDA_ERROR_DEINITIALIZED:
	case GM_CUDA_ERROR_NOT_INITIALIZED:
		return -ENODEV;
	case GM_CUDA_ERROR_INVALID_VALUE:
	case GM_CUDA_ERROR_INVALID_HANDLE:
		return -EINVAL;
	case GM_CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	case GM_CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	default:
		return -EIO;
	}
}
