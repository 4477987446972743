/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a program that looks for the driver's functions finds ours.
 *
 * A linked program finds them because a preloaded library comes first in the search. dlsym() is
 * answered here for the names in preload_calls.h, if the program would have found the driver's function
 * there. A library that stands in for the driver, too, and is preloaded before this one, is found first. All
 * other names go to the next dlsym(), with the caller's own return address, so that
 * RTLD_NEXT means what the caller meant. cuGetProcAddress() is asked first, whichever version a program
 * has; what it returns is replaced if it is a function that we stand in for.
 *
 * The client library and the driver itself are never answered: they get the driver's functions.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "preload/preload.h"
#include "preload/driver/preload_driver.h"
#include "preload/driver/preload_next.h"

/* dlsym() goes on to the next library. */
#define FORWARD ((void *)(intptr_t)-1)

static const struct lookup_row {
	const char *symbol, *name;
	int version;
	uint64_t flags;
	void *hook;
	size_t offset; /* of the driver's function in struct gm_driver */
} lookup_rows[] = {
#define LOOKUP_ROW(symbol, name, version, flags, parameters) \
	{#symbol, name, version, flags, (void *)symbol, offsetof(struct gm_driver, symbol)},
	GM_PRELOAD_CALLS(LOOKUP_ROW)
#undef LOOKUP_ROW
};

#define LOOKUP_ROWS (sizeof lookup_rows / sizeof *lookup_rows)

/* ---- dlsym() */

/* Called by the code below, which then reads gm_driver_next_dlsym. */
__attribute__((visibility("hidden"), used)) void *gm_lookup_dlsym(
	void *handle, const char *name, void *caller);

/*
 * dlsym() itself. The next dlsym() looks at its return address to know who asks, so it must be jumped
 * to with everything as it was, which C cannot say.
 */
#if defined(__x86_64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	movq (%rsp), %rdx\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call gm_lookup_dlsym\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	cmpq $-1, %rax\n"
	"	je 1f\n"
	"	ret\n"
	"1:	jmp *gm_driver_next_dlsym(%rip)\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	hint #34\n"
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	mov x2, x30\n"
	"	bl gm_lookup_dlsym\n"
	"	mov x9, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	.cfi_restore 29\n"
	"	.cfi_restore 30\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cmn x9, #1\n"
	"	b.eq 1f\n"
	"	mov x0, x9\n"
	"	ret\n"
	"1:	adrp x16, gm_driver_next_dlsym\n"
	"	ldr x16, [x16, #:lo12:gm_driver_next_dlsym]\n"
	"	br x16\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n");
#else
#error "dlsym() must be written for this architecture"
#endif

/* Of a function of the driver. NULL: nothing stands in for it. */
static const struct lookup_row *lookup_row(const char *symbol)
{
	if (symbol[0] == 'c' && symbol[1] == 'u')
		for (size_t i = 0; i < LOOKUP_ROWS; i++)
			if (strcmp(lookup_rows[i].symbol, symbol) == 0)
				return &lookup_rows[i];
	return NULL;
}

/* What stands in for a function of NVML. NULL: nothing. */
static void *lookup_nvml(const char *symbol)
{
#define LOOKUP_NVML(nvml, parameters) \
	if (symbol[0] == 'n' && strcmp(symbol, #nvml) == 0) \
		return (void *)nvml;
	GM_PRELOAD_NVML_CALLS(LOOKUP_NVML)
#undef LOOKUP_NVML
	return NULL;
}

static bool lookup_begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Whether the code at this address wants the driver itself. */
static bool lookup_exempt(const void *caller)
{
	Dl_info info;

	if (!dladdr(caller, &info) || !info.dli_fname)
		return false;
	const char *file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	return lookup_begins(file, "libcuda.so") || lookup_begins(file, "libgpumem-client.so");
}

/* What a library finds that was loaded for itself alone, with what it needs. */
static void *lookup_local(gm_driver_next_fn next, const struct link_map *library, const char *name)
{
	void *handle, *found;

	if (!library || !*library->l_name ||
		!(handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD)))
		return NULL;
	found = next(handle, name);
	dlclose(handle);
	return found;
}

/* Whether a search that begins after a library comes to this one first. */
static bool lookup_next_is_us(
	gm_driver_next_fn next, const struct link_map *library, const char *name)
{
	struct link_map *own, *has;
	Dl_info info;

	if (!library || !dladdr1((void *)lookup_rows, &info, (void **)&own, RTLD_DL_LINKMAP))
		return false;
	for (library = library->l_next; library && library != own; library = library->l_next) {
		void *found = lookup_local(next, library, name);
		if (found && dladdr1(found, &info, (void **)&has, RTLD_DL_LINKMAP) &&
			has == library)
			return false;
	}
	return library;
}

/*
 * What the caller would find: our own function, if it comes first and there is another one behind it; NULL, if
 * there is none at all; or a function of somebody else.
 */
static void *lookup_found(
	gm_driver_next_fn next, const char *name, void *hook, void *handle, const void *caller)
{
	struct link_map *library = NULL;
	Dl_info info;

	if ((handle == RTLD_DEFAULT || handle == RTLD_NEXT) &&
		!dladdr1(caller, &info, (void **)&library, RTLD_DL_LINKMAP))
		library = NULL;
	if (handle == RTLD_NEXT && !lookup_next_is_us(next, library, name))
		return FORWARD;

	void *found = handle == RTLD_NEXT ? hook : next(handle, name);
	if (found != hook)
		return found;
	found = next(RTLD_NEXT, name);
	if (!found && handle == RTLD_DEFAULT) {
		found = lookup_local(next, library, name);
		if (!found)
			(void)next(RTLD_NEXT, name); /* so that dlerror() has something to say */
	}
	return found && !lookup_exempt(caller) ? hook : found;
}

void *gm_lookup_dlsym(void *handle, const char *name, void *caller)
{
	gm_driver_next_fn next = gm_driver_next();

	const struct lookup_row *row = name ? lookup_row(name) : NULL;
	void *hook = row ? row->hook : name ? lookup_nvml(name) : NULL;
	if (!hook || gm_preload_settings()->off)
		return FORWARD;

	void *found = lookup_found(next, name, hook, handle, caller), *own = NULL;
	if (!found || found == FORWARD || found == hook)
		return found;

	/* Of other functions, only the driver's and NVML's are replaced: neither those of a library which stands in
	 * for them, too, nor those of a second driver in a namespace of its own. */
	const struct gm_driver *driver = row ? gm_driver() : NULL;
	if (driver)
		memcpy(&own, (const char *)driver + row->offset, sizeof own);
	else if (!row)
		own = gm_driver_next_loaded("libnvidia-ml.so.1", name);
	return found == own && !lookup_exempt(caller) ? hook : found;
}

/* ---- cuGetProcAddress() */

/* The driver's function of a row, as its cuGetProcAddress() returns it. */
static void *lookup_asked(const struct gm_driver *driver, const struct lookup_row *row)
{
	gm_cu_query_result status;
	void *fn = NULL;

	if (driver->cuGetProcAddress_v2)
		(void)driver->cuGetProcAddress_v2(
			row->name, &fn, row->version, row->flags, &status);
	else if (driver->cuGetProcAddress)
		(void)driver->cuGetProcAddress(row->name, &fn, row->version, row->flags);
	return fn;
}

/* Since CUDA 11.4, one of these names also means a function that has a name of its own. */
static bool lookup_is_named(const struct lookup_row *row, const char *name)
{
	return strcmp(row->name, name) == 0 ||
	       (strcmp(row->name, "cuGraphInstantiateWithFlags") == 0 &&
		       strcmp(name, "cuGraphInstantiate") == 0);
}

/*
 * Our function for what cuGetProcAddress() has returned, or that itself. The driver decides which
 * version of a call a program means. So what it returned is compared with what it returns for the
 * versions that we have: a later version, with parameters that we do not know, is left alone.
 */
static void *lookup_replace(const struct gm_driver *driver, const char *name, void *fn)
{
	for (size_t i = 0; i < LOOKUP_ROWS; i++) {
		const struct lookup_row *row = &lookup_rows[i];
		if (!lookup_is_named(row, name))
			continue;

		void *exported;
		memcpy(&exported, (const char *)driver + row->offset, sizeof exported);
		if (fn == exported || fn == lookup_asked(driver, row))
			return row->hook;
	}
	return fn;
}

static void lookup_answer(const struct gm_driver *driver, const char *name, void **fn)
{
	if (fn && *fn && name && !gm_preload_settings()->off)
		*fn = lookup_replace(driver, name, *fn);
}

gm_cu_result cuGetProcAddress(const char *name, void **fn, int version, gm_cu_u64 flags)
{
	GM_DRIVER_OR_RETURN(driver, cuGetProcAddress);
	gm_cu_result result = driver->cuGetProcAddress(name, fn, version, flags);

	if (result == GM_CUDA_SUCCESS)
		lookup_answer(driver, name, fn);
	return result;
}

gm_cu_result cuGetProcAddress_v2(
	const char *name, void **fn, int version, gm_cu_u64 flags, gm_cu_query_result *status)
{
	GM_DRIVER_OR_RETURN(driver, cuGetProcAddress_v2);
	gm_cu_result result = driver->cuGetProcAddress_v2(name, fn, version, flags, status);

	if (result == GM_CUDA_SUCCESS)
		lookup_answer(driver, name, fn);
	return result;
}
