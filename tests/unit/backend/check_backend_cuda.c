/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's cuda backend: chunks by fd, what a device has free, who else uses it, and what went
 * wrong there. Over the fake driver: see backend_cuda_fixture.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "tests/unit/backend/backend_cuda_fixture.h"

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
	struct gm_backend_handle handle;
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
	FILE *files[200];
	char path[256];
	size_t n;

	open_it();
	/* Written down as the fake driver does it, for one process under many names. */
	for (int i = 0; i < 200; i++) {
		const int64_t use[2] = {1000 + i, 1};
		snprintf(path, sizeof path, "%s/gpu0.use/%d.%d", getenv("GPUMEM_FAKE_DIR"),
			(int)getpid(), i);
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		files[i] = fopen(path, "w");
		ck_assert_ptr_nonnull(files[i]);
		ck_assert_uint_eq(fwrite(use, sizeof use, 1, files[i]), 1);
		ck_assert_int_eq(fflush(files[i]), 0);
		ck_assert_int_eq(fcntl(fileno(files[i]), F_OFD_SETLK, &lock), 0);
	}
	ck_assert_int_eq(ops->processes(backend, 0, &list, &n), 0);
	ck_assert_uint_eq(n, 200);
	free(list);
	for (int i = 0; i < 200; i++)
		fclose(files[i]);
	snprintf(path, sizeof path, "rm -r %s/gpu0.use/*", getenv("GPUMEM_FAKE_DIR"));
	ck_assert_int_eq(system(path), 0);
	ops->close(backend);
}
END_TEST

START_TEST(the_last_trouble_is_kept_and_a_full_device_is_none)
{
	char text[GM_BACKEND_TROUBLE];
	struct gm_backend_handle handle;
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

START_TEST(an_fd_chunk_takes_memory_and_no_context_and_gives_it_back)
{
	struct gm_backend_handle handle;
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
	struct gm_backend_handle handle;
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
	struct gm_backend_handle handle = {.fd = 12345};
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

START_TEST(a_chunk_is_adopted_by_its_fd_and_nonsense_is_not)
{
	struct gm_backend_handle handle, adopted;
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
	struct gm_backend_handle handle;
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
	struct gm_backend_handle handle;

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
	struct gm_backend_handle handle;

	setenv("GPUMEM_FAKE_WITHOUT", "rdma", 1);
	open_it();
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(without_nvml_it_works_and_has_no_figure)
{
	struct gm_backend_handle handle;
	uint64_t bytes;

	setenv("GPUMEM_FAKE_WITHOUT", "nvml", 1);
	open_it();
	ck_assert_int_eq(ops->memory_free(backend, 0, &bytes), -EOPNOTSUPP);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

START_TEST(a_gpu_that_nvml_does_not_know_works_and_has_no_figure)
{
	struct gm_backend_device info;
	struct gm_backend_process *list;
	struct gm_backend_handle handle;
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

int main(void)
{
	Suite *suite = suite_create("backend_cuda");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, devices_are_described);
	tcase_add_test(tcase, others_are_listed_with_what_they_use);
	tcase_add_test(tcase, more_others_than_expected_are_listed_all_the_same);
	tcase_add_test(tcase, the_last_trouble_is_kept_and_a_full_device_is_none);
	tcase_add_test(tcase, an_fd_chunk_takes_memory_and_no_context_and_gives_it_back);
	tcase_add_test(tcase, a_full_device_is_out_of_memory_and_stays_usable);
	tcase_add_test(tcase, a_failed_export_leaks_nothing);
	tcase_add_test(tcase, a_chunk_is_adopted_by_its_fd_and_nonsense_is_not);
	tcase_add_test(tcase, a_lost_device_fails_and_the_other_one_goes_on);
	tcase_add_loop_test(
		tcase, chunks_are_made_for_sharing_by_fd_and_for_rdma_where_the_device_can, 0, 2);
	tcase_add_test(tcase, without_rdma_chunks_are_made_all_the_same);
	tcase_add_test(tcase, without_nvml_it_works_and_has_no_figure);
	tcase_add_test(tcase, a_gpu_that_nvml_does_not_know_works_and_has_no_figure);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
