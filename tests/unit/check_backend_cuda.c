/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's cuda backend over the fake driver (run it with tests/fake/with-fake-gpu -n 2). Each
 * test is a process of its own, so what it puts into the environment is set before the driver is
 * loaded.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda.h"
#include "daemon/backend_cuda.h"
#include "tests/limit.h"
#include "tests/tap.h"

#define MIB ((uint64_t)1 << 20)

static const struct gm_seen someone = {.domain = 1, .uid = 1000};
static const struct gm_backend_ops *ops = &gm_backend_cuda;
static void *backend;
static uint32_t devices;
static char why[256];

static void open_it(void)
{
	struct gm_backend_config config = {0};
	int r = ops->open(&config, &backend, &devices, why);

	ck_assert_msg(r == 0, "open: %d, %s", r, why);
}

static uint64_t free_of(uint32_t device)
{
	uint64_t bytes = 0;

	ck_assert_int_eq(ops->memory_free(backend, device, &bytes), 0);
	return bytes;
}

START_TEST(devices_are_described)
{
	struct gm_backend_device a, b;

	open_it();
	ck_assert_uint_eq(devices, 2);
	ops->device_info(backend, 0, &a);
	ops->device_info(backend, 1, &b);
	ck_assert_str_eq(a.name, "Fake GPU 0");
	ck_assert_str_eq(a.pci, "0000:A0:00.0");
	ck_assert_uint_eq(a.total, 512 * MIB);
	ck_assert(a.transport_fd && a.transport_ipc);
	ck_assert(memcmp(a.uuid, b.uuid, sizeof a.uuid) != 0);
	ops->close(backend);
}
END_TEST

/* Forks before the driver is loaded here: a process of its own that has a context and so much. */
static pid_t start_other(uint32_t device, uint64_t bytes)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		const struct gm_cuda *cuda;
		gm_cu_ctx context;
		gm_cu_ptr ptr;
		if (gm_cuda_load(&cuda, why) < 0 ||
			cuda->cuDevicePrimaryCtxRetain(&context, (int)device) ||
			cuda->cuCtxSetCurrent(context) || cuda->cuMemAlloc(&ptr, bytes))
			_exit(1);
		(void)!write(ready[1], "r", 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

START_TEST(others_are_listed_with_what_they_use)
{
	struct gm_backend_process *list;
	struct gm_handle handle;
	size_t n;
	pid_t other = start_other(1, 32 * MIB);

	open_it();
	ck_assert_int_eq(ops->create(backend, 1, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(ops->processes(backend, 1, &list, &n), 0);
	/* We have no context and are not there. */
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(list[0].pid, other);
	ck_assert_uint_eq(list[0].bytes, (1 + 16 + 32) * MIB);
	free(list);
	ck_assert_int_eq(ops->processes(backend, 0, &list, &n), 0);
	ck_assert_uint_eq(n, 0);
	free(list);
	ck_assert_int_eq(kill(other, SIGKILL), 0);
	ck_assert_int_eq(waitpid(other, NULL, 0), other);
	ck_assert_int_eq(ops->processes(backend, 1, &list, &n), 0);
	ck_assert_uint_eq(n, 0);
	free(list);
	ops->destroy(backend, 1, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(more_others_than_expected_are_listed_all_the_same)
{
	struct gm_backend_process *list;
	char path[256];
	size_t n;

	open_it();
	/* Written down as the fake driver does it, for one process under many names. */
	for (int i = 0; i < 200; i++) {
		const int64_t use[2] = {1000 + i, 1};
		snprintf(path, sizeof path, "%s/gpu0.use/%d.%d", getenv("GPUMEM_FAKE_DIR"),
			(int)getpid(), i);
		FILE *file = fopen(path, "w");
		ck_assert_ptr_nonnull(file);
		ck_assert_uint_eq(fwrite(use, sizeof use, 1, file), 1);
		fclose(file);
	}
	ck_assert_int_eq(ops->processes(backend, 0, &list, &n), 0);
	ck_assert_uint_eq(n, 200);
	free(list);
	snprintf(path, sizeof path, "rm -r %s/gpu0.use/*", getenv("GPUMEM_FAKE_DIR"));
	ck_assert_int_eq(system(path), 0);
	ops->close(backend);
}
END_TEST

START_TEST(the_last_trouble_is_kept_and_a_full_device_is_none)
{
	char text[GM_BACKEND_TROUBLE];
	struct gm_handle handle;
	uint64_t when = 0, bytes;

	setenv("GPUMEM_FAKE_FAIL", "cuMemExportToShareableHandle:1:999", 1);
	open_it();
	ck_assert(!ops->trouble(backend, 0, text, &when));
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, (uint64_t)4096 * MIB, &someone, &handle),
		-ENOMEM);
	ck_assert(!ops->trouble(backend, 0, text, &when));
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), -EIO);
	ck_assert(ops->trouble(backend, 0, text, &when));
	ck_assert_str_eq(text, "cuMemExportToShareableHandle: CUDA_ERROR_UNKNOWN");
	ck_assert_uint_gt(when, 0);
	ck_assert(!ops->trouble(backend, 1, text, &when));
	char path[256];
	snprintf(path, sizeof path, "%s/gpu1.lost", getenv("GPUMEM_FAKE_DIR"));
	fclose(fopen(path, "w"));
	ck_assert_int_eq(ops->memory_free(backend, 1, &bytes), -ENODEV);
	unlink(path);
	ck_assert(ops->trouble(backend, 1, text, &when));
	ck_assert_str_eq(text, "nvmlDeviceGetMemoryInfo: NVML_ERROR_GPU_IS_LOST");
	ops->close(backend);
}
END_TEST

START_TEST(visible_devices_are_respected)
{
	struct gm_backend_device info;

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	open_it();
	ck_assert_uint_eq(devices, 1);
	ops->device_info(backend, 0, &info);
	ck_assert_str_eq(info.name, "Fake GPU 1");
	ops->close(backend);
}
END_TEST

static void set_mig(int device, bool on)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/gpu%d.mig", getenv("GPUMEM_FAKE_DIR"), device);
	if (on)
		fclose(fopen(path, "w"));
	else
		unlink(path);
}

/* Where MIG is on, the driver tells the instance's UUID, which is not the GPU's, and NVML knows
 * instances by a name of another kind. */
START_TEST(a_mig_instance_is_found_by_its_own_uuid_and_measured_by_it)
{
	static const char instance[] = "MIG-f46b6500-6770-756d-656d-640000000101";
	struct gm_backend_process *list;
	struct gm_backend_device info;
	uint64_t bytes;
	size_t n;

	set_mig(0, true);
	set_mig(1, true);
	if (_i)
		setenv("CUDA_VISIBLE_DEVICES", instance, 1);
	open_it();
	set_mig(0, false);
	set_mig(1, false);
	/* Of two a process sees one, whichever it names. */
	ck_assert_uint_eq(devices, 1);
	ops->device_info(backend, 0, &info);
	ck_assert_str_eq(info.name, _i ? "Fake GPU 1" : "Fake GPU 0");
	ck_assert(info.mig);
	ck_assert(info.measured);
	ck_assert_int_eq(ops->memory_free(backend, 0, &bytes), 0);
	ck_assert_uint_eq(bytes, (512 - 1) * MIB);
	ck_assert_int_eq(ops->processes(backend, 0, &list, &n), 0);
	free(list);
	ops->close(backend);
}
END_TEST

START_TEST(an_fd_chunk_takes_memory_and_no_context_and_gives_it_back)
{
	struct gm_handle handle;
	struct stat st;
	uint64_t before;

	open_it();
	before = free_of(0);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(fstat(handle.fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 64 * MIB);
	ck_assert_uint_eq(free_of(0), before - 64 * MIB); /* a context would cost more */
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle);
	ck_assert_int_eq(handle.fd, -1);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(a_full_device_is_out_of_memory_and_stays_usable)
{
	struct gm_handle handle;
	uint64_t before;

	open_it();
	before = free_of(0);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 1024 * MIB, &someone, &handle), -ENOMEM);
	ck_assert_uint_eq(free_of(0), before);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_failed_export_leaks_nothing)
{
	struct gm_handle handle = {.fd = 12345};
	uint64_t before;

	setenv("GPUMEM_FAKE_FAIL", "cuMemExportToShareableHandle:1:304", 1);
	open_it();
	before = free_of(0);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle), -EIO);
	ck_assert_int_eq(handle.fd, 12345); /* unwritten on failure */
	ck_assert_uint_eq(free_of(0), before);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 64 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(an_ipc_block_makes_the_context_and_the_last_one_takes_it_along)
{
	struct gm_handle a, b;
	uint8_t empty[GM_IPC_HANDLE_BYTES] = {0};
	uint64_t before;

	open_it();
	before = free_of(0);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &a), 0);
	ck_assert_uint_lt(free_of(0), before - 4 * MIB);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &b), 0);
	ck_assert(memcmp(a.ipc, empty, sizeof empty) != 0);
	ck_assert(memcmp(a.ipc, b.ipc, sizeof empty) != 0);
	ck_assert_int_eq(a.fd, -1);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &a);
	ck_assert_uint_lt(free_of(0), before - 4 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &b);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(a_failed_ipc_block_leaves_neither_memory_nor_context)
{
	static const char *const plans[] = {
		"cuDevicePrimaryCtxRetain:1:2", "cuMemAlloc:1:2", "cuIpcGetMemHandle:1:304"};
	struct gm_handle handle;
	uint64_t before;

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	open_it();
	before = free_of(0);
	ck_assert_int_lt(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ck_assert_uint_eq(free_of(0), before);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(a_chunk_is_adopted_by_its_fd_and_nonsense_is_not)
{
	struct gm_handle handle, adopted;
	int fds[2];

	open_it();
	ck_assert_int_eq(ops->create(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(ops->adopt(backend, 1, handle.fd, 2 * MIB, &adopted), 0);
	ck_assert_int_eq(adopted.fd, handle.fd);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_lt(ops->adopt(backend, 1, fds[0], 2 * MIB, &adopted), 0);
	close(fds[0]);
	close(fds[1]);
	ops->destroy(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_lost_device_fails_and_the_other_one_goes_on)
{
	struct gm_handle handle;
	char mark[4200];
	uint64_t bytes;

	open_it();
	snprintf(mark, sizeof mark, "%s/gpu0.lost", getenv("GPUMEM_FAKE_DIR"));
	fclose(fopen(mark, "w"));
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), -ENODEV);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &handle), -ENODEV);
	ck_assert_int_lt(ops->memory_free(backend, 0, &bytes), 0);
	ck_assert_int_eq(ops->create(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	unlink(mark);
	ops->close(backend);
}
END_TEST

START_TEST(what_a_device_cannot_do_is_known)
{
	struct gm_backend_device info;

	setenv("GPUMEM_FAKE_WITHOUT", "fd,rdma", 1);
	open_it();
	ops->device_info(backend, 0, &info);
	ck_assert(!info.transport_fd);
	ck_assert(info.transport_ipc);
	ops->close(backend);
}
END_TEST

START_TEST(a_device_without_ipc_says_so)
{
	struct gm_backend_device info;

	setenv("GPUMEM_FAKE_WITHOUT", "ipc", 1);
	open_it();
	ops->device_info(backend, 0, &info);
	ck_assert(info.transport_fd);
	ck_assert(!info.transport_ipc);
	ops->close(backend);
}
END_TEST

/* The attribute that tells is younger than what it tells of. */
START_TEST(an_older_driver_that_cannot_say_is_taken_to_have_ipc)
{
	struct gm_backend_device info;

	setenv("GPUMEM_FAKE_VERSION", "11040", 1);
	open_it();
	ops->device_info(backend, 0, &info);
	ck_assert(info.transport_ipc);
	ops->close(backend);
}
END_TEST

/* Between the backend and the driver: what it asks memory with. */
static gm_cu_result (*real_create)(
	gm_cu_mem *handle, size_t bytes, const gm_cu_prop *prop, unsigned long long flags);
static gm_cu_prop asked_with;

static gm_cu_result spy_create(
	gm_cu_mem *handle, size_t bytes, const gm_cu_prop *prop, unsigned long long flags)
{
	asked_with = *prop;
	return real_create(handle, bytes, prop, flags);
}

START_TEST(chunks_are_made_for_sharing_by_fd_and_for_rdma_where_the_device_can)
{
	const struct gm_cuda *cuda;
	struct gm_handle handle;

	if (_i)
		setenv("GPUMEM_FAKE_WITHOUT", "rdma", 1);
	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	real_create = cuda->cuMemCreate;
	((struct gm_cuda *)cuda)->cuMemCreate = spy_create;
	open_it();
	ck_assert_int_eq(ops->create(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(asked_with.type, GM_CU_MEM_ALLOCATION_TYPE_PINNED);
	ck_assert_int_eq(
		asked_with.requested_handle_types, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	ck_assert_int_eq(asked_with.location.type, GM_CU_MEM_LOCATION_TYPE_DEVICE);
	ck_assert_int_eq(asked_with.location.id, 1);
	ck_assert_uint_eq(asked_with.alloc_flags.gpu_direct_rdma_capable, _i ? 0 : 1);
	ops->destroy(backend, 1, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(without_rdma_chunks_are_made_all_the_same)
{
	struct gm_handle handle;

	setenv("GPUMEM_FAKE_WITHOUT", "rdma", 1);
	open_it();
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(without_nvml_it_works_and_has_no_figure)
{
	struct gm_handle handle;
	uint64_t bytes;

	setenv("GPUMEM_FAKE_WITHOUT", "nvml", 1);
	open_it();
	ck_assert_int_eq(ops->memory_free(backend, 0, &bytes), -EOPNOTSUPP);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

static void open_pinned(void)
{
	struct gm_backend_config config = {.host_limit = 16 * MIB};
	int r = ops->open(&config, &backend, &devices, why);

	ck_assert_msg(r == 0, "open: %d, %s", r, why);
	ck_assert_uint_eq(devices, 3);
}

/* The kinds of pinned memory: the driver's own; memfds, because a GPU cannot share the driver's;
 * memfds, because a test wants them. */
enum { OWN, CANNOT, MAY_NOT, KINDS };

static void be_of_kind(int kind)
{
	if (kind == CANNOT)
		setenv("GPUMEM_FAKE_WITHOUT", "hostnuma", 1);
	if (kind == MAY_NOT)
		setenv("GPUMEM_TEST_PINNED", "memfd", 1);
}

static bool imports(int fd)
{
	const struct gm_cuda *cuda;
	gm_cu_mem mem;

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	if (cuda->cuMemImportFromShareableHandle(
		    &mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return false;
	ck_assert_int_eq(cuda->cuMemRelease(mem), 0);
	return true;
}

START_TEST(pinned_memory_is_the_last_device_and_takes_nothing_from_a_gpu)
{
	struct gm_backend_device info;
	struct gm_backend_process *list = (void *)1;
	struct gm_handle handle;
	struct stat st;
	uint64_t before;
	size_t n = 1;

	be_of_kind(_i);
	open_pinned();
	ops->device_info(backend, 2, &info);
	ck_assert(info.pinned && info.transport_fd && !info.transport_ipc && !info.measured);
	ck_assert_str_eq(info.name, GM_BACKEND_PINNED_NAME);
	ck_assert_uint_eq(info.total, 16 * MIB);
	if (_i == OWN)
		ck_assert_ptr_null(info.mapping); /* the backend's own half of it */
	else
		ck_assert_str_eq(info.mapping, "host");
	before = free_of(0);
	ck_assert_uint_eq(before, (512 - 1) * MIB); /* nothing is left of a trial, either */

	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(fstat(handle.fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 8 * MIB);
	ck_assert(fcntl(handle.fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(imports(handle.fd) == (_i == OWN));
	if (_i != OWN)
		ck_assert(fcntl(handle.fd, F_GET_SEALS) & F_SEAL_SHRINK);
	ck_assert_uint_eq(free_of(2), 8 * MIB);
	ck_assert_uint_eq(free_of(0), before);
	/* Nobody else takes from the limit. */
	ck_assert_int_eq(ops->processes(backend, 2, &list, &n), 0);
	ck_assert_ptr_null(list);
	ck_assert_uint_eq(n, 0);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle);
	ck_assert_int_eq(handle.fd, -1);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	/* A handle that is empty is nobody's to give back twice. */
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ops->close(backend);
}
END_TEST

START_TEST(pinned_memory_goes_to_its_limit_and_no_further)
{
	struct gm_handle handles[4], one = {.fd = 12345};

	be_of_kind(_i);
	open_pinned();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(
			ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handles[i]),
			0);
	ck_assert_uint_eq(free_of(2), 0);
	ck_assert_int_eq(
		ops->create(backend, 2, GM_TRANSPORT_FD, 2 * MIB, &someone, &one), -ENOMEM);
	ck_assert_int_eq(one.fd, 12345); /* unwritten on failure */
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handles[1]);
	ck_assert_int_eq(
		ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &one), -ENOMEM);
	ck_assert_int_eq(
		ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handles[1]), 0);
	for (int i = 0; i < 4; i++)
		ops->destroy(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handles[i]);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ops->close(backend);
}
END_TEST

static size_t count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

START_TEST(pinned_memory_that_fails_halfway_is_not_counted_and_leaves_nothing)
{
	/* The first of each is the trial at the start. */
	static const struct {
		const char *plan;
		int error;
		const char *trouble;
	} rows[] = {
		{"cuMemCreate:3:2", -ENOMEM, NULL},
		{"cuMemCreate:3:100", -ENODEV, "cuMemCreate: CUDA_ERROR_NO_DEVICE"},
		{"cuMemExportToShareableHandle:3:999", -EIO,
			"cuMemExportToShareableHandle: CUDA_ERROR_UNKNOWN"},
		{"cuMemExportToShareableHandle:3:801", -EOPNOTSUPP,
			"cuMemExportToShareableHandle: CUDA_ERROR_NOT_SUPPORTED"},
	};
	char text[GM_BACKEND_TROUBLE];
	struct gm_handle first, handle = {.fd = 12345};
	uint64_t when;

	setenv("GPUMEM_FAKE_FAIL", rows[_i].plan, 1);
	open_pinned();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &first), 0);
	size_t fds = count_fds();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle),
		rows[_i].error);
	ck_assert_int_eq(handle.fd, 12345);
	ck_assert_uint_eq(free_of(2), 12 * MIB);
	ck_assert_uint_eq(count_fds(), fds);
	/* It is the pinned memory's trouble, and no GPU's. */
	ck_assert(ops->trouble(backend, 2, text, &when) == !!rows[_i].trouble);
	if (rows[_i].trouble)
		ck_assert_str_eq(text, rows[_i].trouble);
	ck_assert(!ops->trouble(backend, 0, text, &when));
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &first);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ops->close(backend);
}
END_TEST

START_TEST(a_pinned_memfd_for_which_there_is_no_descriptor_is_not_counted)
{
	struct rlimit few, before;
	struct gm_handle handle;

	be_of_kind(CANNOT);
	open_pinned();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	int r = ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ops->close(backend);
}
END_TEST

START_TEST(without_a_host_limit_there_is_no_pinned_memory)
{
	struct gm_backend_device info;

	open_it();
	ck_assert_uint_eq(devices, 2);
	for (uint32_t i = 0; i < devices; i++) {
		ops->device_info(backend, i, &info);
		ck_assert(!info.pinned);
	}
	ops->close(backend);
}
END_TEST

/* Devices beside the two there are, while the backend opens. */
static void with_gpus(int n, void (*fn)(void))
{
	char path[4200];

	for (int i = 2; i < n; i++) {
		snprintf(path, sizeof path, "%s/gpu%d", getenv("GPUMEM_FAKE_DIR"), i);
		ck_assert_int_eq(mkdir(path, 0755), 0);
		ck_assert_int_eq(mount("tmpfs", path, "tmpfs", 0, "size=4m"), 0);
	}
	fn();
	for (int i = 2; i < n; i++) {
		snprintf(path, sizeof path, "%s/gpu%d", getenv("GPUMEM_FAKE_DIR"), i);
		ck_assert_int_eq(umount2(path, MNT_DETACH), 0);
		ck_assert_int_eq(rmdir(path), 0);
	}
}

static void open_with_pinned(void)
{
	struct gm_backend_config config = {.host_limit = 16 * MIB};
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), 0);
}

START_TEST(of_more_gpus_than_there_are_numbers_the_first_are_served_and_none_is_pinned)
{
	static const int gpus[] = {GM_LIMIT_DEVICES - 1, GM_LIMIT_DEVICES, GM_LIMIT_DEVICES + 1};
	struct gm_backend_device info;

	GM_LIMIT_TEST(DEVICES);
	with_gpus(gpus[_i], open_with_pinned);
	ck_assert_uint_eq(devices, GM_LIMIT_DEVICES);
	ops->device_info(backend, GM_LIMIT_DEVICES - 1, &info);
	ck_assert(info.pinned == (_i == 0));
	ops->device_info(backend, GM_LIMIT_DEVICES - 2, &info);
	ck_assert_str_eq(info.name, "Fake GPU 14");
	ops->close(backend);
}
END_TEST

START_TEST(pinned_memory_is_adopted_within_its_limit)
{
	struct gm_handle handle, adopted;
	uint64_t bytes;
	int fds[2];

	if (_i)
		setenv("GPUMEM_FAKE_WITHOUT", "hostnuma", 1);
	open_pinned();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(
		ops->create(backend, 2, GM_TRANSPORT_FD, 16 * MIB, &someone, &adopted), -ENOMEM);
	int again = dup(handle.fd);
	ck_assert_int_eq(ops->adopt(backend, 2, again, 8 * MIB, &adopted), 0);
	ck_assert_int_eq(ops->memory_free(backend, 2, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(ops->adopt(backend, 2, handle.fd, 8 * MIB, &adopted), -ENOMEM);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &adopted);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_lt(ops->adopt(backend, 2, fds[0], 8 * MIB, &adopted), 0);
	ck_assert_int_eq(ops->memory_free(backend, 2, &bytes), 0);
	ck_assert_uint_eq(bytes, 8 * MIB);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_driver_that_shares_no_pinned_memory_is_found_out_at_the_start)
{
	struct gm_backend_device info;
	struct gm_handle handle;

	setenv("GPUMEM_FAKE_FAIL", "cuMemExportToShareableHandle:1:801", 1);
	open_pinned();
	ops->device_info(backend, 2, &info);
	ck_assert_str_eq(info.mapping, "host"); /* memfds, which clients register */
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_device_that_cannot_be_read_is_not_served_and_the_other_one_is)
{
	static const char *const plans[] = {"cuDeviceGet:1:999", "cuDeviceGetName:1:999",
		"cuDeviceGetUuid:2:999", "cuDeviceTotalMem:1:999", "cuDeviceGetPCIBusId:2:999"};
	struct gm_backend_device info;
	struct gm_handle handle;

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	open_it();
	ck_assert_uint_eq(devices, 1);
	ops->device_info(backend, 0, &info);
	ck_assert_str_eq(info.name, strstr(plans[_i], ":1:") ? "Fake GPU 1" : "Fake GPU 0");
	/* And it is this one that chunks are made on. */
	uint64_t before = free_of(0);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ck_assert_uint_eq(free_of(0), before - 2 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_device_that_is_visible_twice_is_one)
{
	struct gm_backend_device info;

	setenv("CUDA_VISIBLE_DEVICES", "1,1,0", 1);
	open_it();
	ck_assert_uint_eq(devices, 2);
	ops->device_info(backend, 1, &info);
	ck_assert_str_eq(info.name, "Fake GPU 0");
	ops->close(backend);
}
END_TEST

START_TEST(devices_that_cannot_be_read_are_no_devices)
{
	static const char *const plans[] = {"cuDeviceGet:0:999", "cuDeviceGetName:0:999",
		"cuDeviceGetUuid:0:999", "cuDeviceTotalMem:0:999", "cuDeviceGetPCIBusId:0:999"};
	struct gm_backend_config config = {0};

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_ERROR_UNKNOWN"));
}
END_TEST

START_TEST(whichever_attribute_cannot_be_read_it_is_taken_for_absent)
{
	struct gm_backend_config config = {.host_limit = 16 * MIB};
	struct gm_backend_device info;
	struct gm_handle handle;
	char plan[64];

	snprintf(plan, sizeof plan, "cuDeviceGetAttribute:%d:999", _i);
	setenv("GPUMEM_FAKE_FAIL", plan, 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), 0);
	ck_assert_uint_eq(devices, 3);
	for (uint32_t i = 0; i < devices; i++) {
		ops->device_info(backend, i, &info);
		ck_assert(info.transport_fd || info.transport_ipc);
		enum gm_transport transport =
			info.transport_fd ? GM_TRANSPORT_FD : GM_TRANSPORT_IPC;
		ck_assert_int_eq(ops->create(backend, i, transport, 2 * MIB, &someone, &handle), 0);
		ops->destroy(backend, i, transport, 2 * MIB, &someone, &handle);
	}
	ops->close(backend);
}
END_TEST

START_TEST(a_gpu_that_nvml_does_not_know_works_and_has_no_figure)
{
	struct gm_backend_device info;
	struct gm_backend_process *list;
	struct gm_handle handle;
	uint64_t bytes;
	size_t n;

	setenv("GPUMEM_FAKE_WITHOUT", "uuid", 1);
	open_it();
	ops->device_info(backend, 0, &info);
	ck_assert(!info.measured);
	ck_assert_int_eq(ops->memory_free(backend, 0, &bytes), -EOPNOTSUPP);
	ck_assert_int_eq(ops->processes(backend, 0, &list, &n), -EOPNOTSUPP);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_driver_that_stops_answering_is_said_so)
{
	struct gm_backend_config config = {0};

	setenv("GPUMEM_FAKE_FAIL", _i ? "cuDeviceGetCount:2:999" : "cuDeviceGetCount:1:999", 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "does not answer: CUDA_ERROR_UNKNOWN"));
}
END_TEST

START_TEST(an_ipc_block_that_cannot_be_freed_is_trouble_and_no_more)
{
	char text[GM_BACKEND_TROUBLE];
	struct gm_handle handle;
	uint64_t when;

	setenv("GPUMEM_FAKE_FAIL", _i ? "cuCtxPushCurrent:2:999" : "cuMemFree:1:999", 1);
	open_it();
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ck_assert(ops->trouble(backend, 0, text, &when));
	ck_assert_ptr_nonnull(strstr(text, "CUDA_ERROR_UNKNOWN"));
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(no_device_is_said_with_a_reason)
{
	struct gm_backend_config config = {0};

	unsetenv("GPUMEM_FAKE_DIR");
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_ERROR_NO_DEVICE"));
}
END_TEST

START_TEST(devices_that_are_not_visible_are_said_with_the_variable_that_hides_them)
{
	static const char *const nonsense[] = {"", "nonsense", "7", "-1", "GPU-0123"};
	struct gm_backend_config config = {0};

	setenv("CUDA_VISIBLE_DEVICES", nonsense[_i], 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "finds no GPU"));
	char named[64];
	snprintf(named, sizeof named, "CUDA_VISIBLE_DEVICES is \"%s\"", nonsense[_i]);
	ck_assert_ptr_nonnull(strstr(why, named));
}
END_TEST

START_TEST(a_driver_that_does_not_start_is_said_with_what_may_be_behind_it)
{
	static const struct {
		int result;
		const char *name, *says;
	} known[] = {
		{34, "CUDA_ERROR_STUB_LIBRARY", "stub"},
		{304, "CUDA_ERROR_OPERATING_SYSTEM", "/dev/nvidia-uvm"},
		{802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"},
		{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"},
		{999, "CUDA_ERROR_UNKNOWN", "/dev/nvidia-uvm"},
	};
	struct gm_backend_config config = {0};
	char plan[32];

	snprintf(plan, sizeof plan, "cuInit:0:%d", known[_i].result);
	setenv("GPUMEM_FAKE_FAIL", plan, 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, known[_i].name));
	ck_assert_ptr_nonnull(strstr(why, known[_i].says));
}
END_TEST

START_TEST(a_driver_below_the_oldest_is_said_with_its_version)
{
	struct gm_backend_config config = {0};

	setenv("GPUMEM_FAKE_VERSION", "11030", 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA 11.3; 11.4 (driver 470) or newer"));
}
END_TEST

/* A /proc/version as WSL2 has it, below a root of its own. */
static void be_wsl(void)
{
	static char root[] = "/tmp/gpumem-root-XXXXXX";
	char path[64];

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(path, sizeof path, "%s/proc", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/proc/version", root);
	FILE *file = fopen(path, "w");
	fputs("Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc)\n", file);
	fclose(file);
	setenv("GPUMEM_TEST_ROOT", root, 1);
	open_it();
	unlink(path);
	snprintf(path, sizeof path, "%s/proc", root);
	rmdir(path);
	rmdir(root);
}

START_TEST(on_wsl_the_fd_transport_is_tried_and_ipc_left_alone)
{
	struct gm_backend_device info;
	uint64_t before;

	be_wsl();
	ops->device_info(backend, 0, &info);
	ck_assert(info.transport_fd && !info.transport_ipc);
	ck_assert_str_eq(info.ipc_why, "on WSL2 the handles do not open");
	ck_assert_str_eq(info.fd_why, "");
	before = free_of(0);
	ck_assert_uint_eq(before, (512 - 1) * MIB); /* nothing is left of the trial */
	ops->close(backend);
}
END_TEST

START_TEST(on_wsl_ipc_is_what_remains_when_the_trial_fails)
{
	struct gm_backend_device info;

	setenv("GPUMEM_FAKE_FAIL", _i ? "cuMemExportToShareableHandle:0:1" : "cuMemCreate:0:101",
		1);
	be_wsl();
	ops->device_info(backend, 0, &info);
	ck_assert(!info.transport_fd && info.transport_ipc);
	ck_assert_str_eq(info.fd_why, _i ? "cuMemExportToShareableHandle: CUDA_ERROR_INVALID_VALUE"
					 : "cuMemCreate: CUDA_ERROR_INVALID_DEVICE");
	ck_assert_uint_eq(free_of(0), (512 - 1) * MIB);
	ops->close(backend);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_cuda");
	TCase *tcase = tcase_create("fake driver");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, devices_are_described);
	tcase_add_test(tcase, visible_devices_are_respected);
	tcase_add_loop_test(
		tcase, a_mig_instance_is_found_by_its_own_uuid_and_measured_by_it, 0, 2);
	tcase_add_test(tcase, others_are_listed_with_what_they_use);
	tcase_add_test(tcase, more_others_than_expected_are_listed_all_the_same);
	tcase_add_test(tcase, the_last_trouble_is_kept_and_a_full_device_is_none);
	tcase_add_test(tcase, an_fd_chunk_takes_memory_and_no_context_and_gives_it_back);
	tcase_add_test(tcase, a_full_device_is_out_of_memory_and_stays_usable);
	tcase_add_test(tcase, a_failed_export_leaks_nothing);
	tcase_add_test(tcase, an_ipc_block_makes_the_context_and_the_last_one_takes_it_along);
	tcase_add_loop_test(tcase, a_failed_ipc_block_leaves_neither_memory_nor_context, 0, 3);
	tcase_add_test(tcase, a_chunk_is_adopted_by_its_fd_and_nonsense_is_not);
	tcase_add_test(tcase, a_lost_device_fails_and_the_other_one_goes_on);
	tcase_add_test(tcase, what_a_device_cannot_do_is_known);
	tcase_add_test(tcase, a_device_without_ipc_says_so);
	tcase_add_test(tcase, an_older_driver_that_cannot_say_is_taken_to_have_ipc);
	tcase_add_loop_test(
		tcase, chunks_are_made_for_sharing_by_fd_and_for_rdma_where_the_device_can, 0, 2);
	tcase_add_test(tcase, without_rdma_chunks_are_made_all_the_same);
	tcase_add_test(tcase, without_nvml_it_works_and_has_no_figure);
	tcase_add_loop_test(
		tcase, pinned_memory_is_the_last_device_and_takes_nothing_from_a_gpu, 0, KINDS);
	tcase_add_loop_test(tcase, pinned_memory_goes_to_its_limit_and_no_further, 0, KINDS);
	tcase_add_loop_test(
		tcase, pinned_memory_that_fails_halfway_is_not_counted_and_leaves_nothing, 0, 4);
	tcase_add_test(tcase, a_pinned_memfd_for_which_there_is_no_descriptor_is_not_counted);
	tcase_add_test(tcase, without_a_host_limit_there_is_no_pinned_memory);
	tcase_add_loop_test(tcase,
		of_more_gpus_than_there_are_numbers_the_first_are_served_and_none_is_pinned, 0, 3);
	tcase_add_loop_test(tcase, pinned_memory_is_adopted_within_its_limit, 0, 2);
	tcase_add_test(tcase, a_driver_that_shares_no_pinned_memory_is_found_out_at_the_start);
	tcase_add_loop_test(
		tcase, a_device_that_cannot_be_read_is_not_served_and_the_other_one_is, 0, 5);
	tcase_add_loop_test(tcase, devices_that_cannot_be_read_are_no_devices, 0, 5);
	tcase_add_test(tcase, a_device_that_is_visible_twice_is_one);
	tcase_add_loop_test(
		tcase, whichever_attribute_cannot_be_read_it_is_taken_for_absent, 1, 24);
	tcase_add_test(tcase, a_gpu_that_nvml_does_not_know_works_and_has_no_figure);
	tcase_add_loop_test(tcase, a_driver_that_stops_answering_is_said_so, 0, 2);
	tcase_add_loop_test(tcase, an_ipc_block_that_cannot_be_freed_is_trouble_and_no_more, 0, 2);
	tcase_add_test(tcase, no_device_is_said_with_a_reason);
	tcase_add_loop_test(tcase,
		devices_that_are_not_visible_are_said_with_the_variable_that_hides_them, 0, 5);
	tcase_add_loop_test(
		tcase, a_driver_that_does_not_start_is_said_with_what_may_be_behind_it, 0, 5);
	tcase_add_test(tcase, a_driver_below_the_oldest_is_said_with_its_version);
	tcase_add_test(tcase, on_wsl_the_fd_transport_is_tried_and_ipc_left_alone);
	tcase_add_loop_test(tcase, on_wsl_ipc_is_what_remains_when_the_trial_fails, 0, 2);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
