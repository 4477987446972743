/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory: made, shared and refused, without a context; and plain allocations. See
 * conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <unistd.h>

static void creating_and_exporting_needs_no_context(void)
{
	struct puppet owner = conform_begin(false), user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	int fd = conform_export(&owner, handle);
	struct puppet_answer imported = conform_import(&user, fd);
	uint64_t va;

	conform_expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	va = conform_place(&user, imported.value, FULL);
	OK(&user, SET, .a = va, .b = FULL, .c = 0x5a);
	conform_value("bytes read back", OK(&user, COUNT, .a = va, .b = FULL, .c = 0x5a), FULL);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end(
		"memory is created and exported without a context, and used in another process");
}

static void sizes_that_are_not_whole_are_refused(void)
{
	struct puppet p = conform_begin(true);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, CREATE, .a = MIB, .b = 0, .c = 1);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, CREATE, .a = 0, .b = 0, .c = 1);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, RESERVE, .a = 0);
	puppet_stop(&p);
	conform_end("sizes that are not whole multiples of the granularity are refused");
}

static void more_than_there_is_is_out_of_memory(void)
{
	struct puppet p = conform_begin(true);
	uint64_t before = PUPPET(&p, NVML_FREE, .a = 0).value2;

	GIVES(GM_CUDA_ERROR_OUT_OF_MEMORY, &p, CREATE, .a = (before * 2) & ~(2 * MIB - 1), .b = 0,
		.c = 1);
	GIVES(GM_CUDA_ERROR_OUT_OF_MEMORY, &p, ALLOC, .a = before * 2);
	puppet_stop(&p);
	conform_end("more than the device has is refused as out of memory");
}

static void an_importer_cannot_export(void)
{
	struct puppet owner = conform_begin(false), user = conform_begin(false);
	int fd = conform_export(&owner, OK(&owner, CREATE, .a = 2 * MIB, .b = 0, .c = 1));
	struct puppet_answer imported = conform_import(&user, fd);

	conform_expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &user, EXPORT, .a = imported.value);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("an importer cannot export again");
}

static void what_was_not_made_for_it_cannot_be_exported(void)
{
	struct puppet p = conform_begin(false);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 0);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, EXPORT, .a = handle);
	puppet_stop(&p);
	conform_end("memory that was not made for it cannot be exported");
}

static void a_foreign_fd_is_refused(void)
{
	struct puppet p = conform_begin(false);
	int pair[2];

	if (pipe(pair) == 0) {
		int result = conform_import(&p, pair[0]).result;
		conform_true("importing a pipe fails", result != GM_CUDA_SUCCESS);
		close(pair[0]);
		close(pair[1]);
	}
	puppet_stop(&p);
	conform_end("an fd that is no memory is refused");
}

static void fresh_memory_is_zero(void)
{
	struct puppet dirty = conform_begin(true), watcher = conform_begin(false), clean;
	uint64_t before = conform_free(&watcher);
	uint64_t va = conform_place(&dirty, OK(&dirty, CREATE, .a = FULL, .b = 0, .c = 1), FULL);

	OK(&dirty, SET, .a = va, .b = FULL, .c = 0xff);
	OK(&dirty, SYNC, .a = 0);
	puppet_kill(&dirty);
	conform_true("its memory came back", conform_comes_back(&watcher, before));
	clean = conform_begin(true);
	va = conform_place(&clean, OK(&clean, CREATE, .a = FULL, .b = 0, .c = 1), FULL);
	conform_value("zero bytes", OK(&clean, COUNT, .a = va, .b = FULL, .c = 0), FULL);
	va = OK(&clean, ALLOC, .a = FULL);
	conform_value("zero bytes of a plain allocation",
		OK(&clean, COUNT, .a = va, .b = FULL, .c = 0), FULL);
	puppet_stop(&clean);
	puppet_stop(&watcher);
	conform_end("fresh memory is zero, also after another process filled the device and died");
}

static void exported_fds_close_on_exec(void)
{
	struct puppet p = conform_begin(false);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);

	conform_value("FD_CLOEXEC", OK(&p, FD_FLAGS, .a = handle), 1);
	puppet_stop(&p);
	conform_end("an exported fd is closed on exec");
}

static void plain_memory_is_freed_once_and_as_it_was_made(void)
{
	struct puppet p = conform_begin(true);
	uint64_t ptr = OK(&p, ALLOC, .a = 4 * MIB);
	uint64_t va = conform_place(&p, OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ALLOC, .a = 0);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, FREE, .a = ptr + 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, FREE, .a = va);
	OK(&p, FREE, .a = ptr);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, FREE, .a = ptr);
	BELIEVED(GM_CUDA_SUCCESS, &p, FREE, .a = 0);
	ptr = OK(&p, ALLOC, .a = 2 * MIB);
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = ptr, .b = 2 * MIB + 1, .c = 1);
	puppet_stop(&p);
	conform_end("a plain allocation is freed once, by its own address");
}

static void a_device_that_is_not_there_is_refused(void)
{
	struct puppet p = conform_begin(false);

	GIVES(GM_CUDA_ERROR_INVALID_DEVICE, &p, ATTRIBUTE,
		.a = GM_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, .b = 99);
	GIVES(GM_CUDA_ERROR_INVALID_DEVICE, &p, CONTEXT, .a = 99);
	FAILS(GM_CUDA_ERROR_INVALID_DEVICE, &p, CREATE, .a = 2 * MIB, .b = 99, .c = 1);
	puppet_stop(&p);
	conform_end("a device that is not there is refused");
}

void conform_memory(void)
{
	creating_and_exporting_needs_no_context();
	sizes_that_are_not_whole_are_refused();
	more_than_there_is_is_out_of_memory();
	an_importer_cannot_export();
	what_was_not_made_for_it_cannot_be_exported();
	a_foreign_fd_is_refused();
	fresh_memory_is_zero();
	exported_fds_close_on_exec();
	plain_memory_is_freed_once_and_as_it_was_made();
	a_device_that_is_not_there_is_refused();
}
