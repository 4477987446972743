/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory of the daemon's cuda backend, in each of its kinds. Over the fake driver: see
 * backend_cuda_fixture.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "daemon/backend/backend_ram.h"
#include "tests/unit/backend/backend_cuda_fixture.h"
#include "tests/unit/open_fds.h"

static enum gm_backend_host_memory wanted;

static void open_pinned(void)
{
	struct gm_backend_config config = {.host_limit = 16 * MIB, .host_memory = wanted};
	int r = ops->open(&config, &backend, &devices, why);

	ck_assert_msg(r == 0, "open: %d, %s", r, why);
	ck_assert_uint_eq(devices, 3);
}

/* The kinds of pinned memory: the driver's own; memfds, because a GPU cannot share the driver's;
 * memfds, because the configuration says so. */
enum { OWN, CANNOT, WANTED, KINDS };

static void be_of_kind(int kind)
{
	if (kind == CANNOT)
		setenv("GPUMEM_FAKE_WITHOUT", "hostnuma", 1);
	wanted = kind == WANTED ? GM_BACKEND_HOST_MEMORY_MEMFD : GM_BACKEND_HOST_MEMORY_AUTO;
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
	struct gm_backend_handle handle;
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
	if (_i != OWN) {
		ck_assert(fcntl(handle.fd, F_GET_SEALS) & F_SEAL_SHRINK);
		/* All of it is there: who touches it later cannot fail. */
		ck_assert_uint_eq((uint64_t)st.st_blocks * 512, 8 * MIB);
	}
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
	struct gm_backend_handle handles[4], one = {.fd = 12345};

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
	struct gm_backend_handle first, handle = {.fd = 12345};
	uint64_t when;

	setenv("GPUMEM_FAKE_FAIL", rows[_i].plan, 1);
	open_pinned();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &first), 0);
	unsigned fds = open_fds();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle),
		rows[_i].error);
	ck_assert_int_eq(handle.fd, 12345);
	ck_assert_uint_eq(free_of(2), 12 * MIB);
	ck_assert_uint_eq(open_fds(), fds);
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

/* What a creation gives to a daemon that has nothing left of a resource. */
static int create_without(int resource, struct gm_backend_handle *handle)
{
	struct rlimit none, before;

	ck_assert_int_eq(getrlimit(resource, &before), 0);
	none = before;
	none.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(resource, &none), 0);
	int r = ops->create(backend, 2, GM_TRANSPORT_FD, 4 * MIB, &someone, handle);
	ck_assert_int_eq(setrlimit(resource, &before), 0);
	return r;
}

START_TEST(a_pinned_memfd_for_which_there_is_no_descriptor_is_not_counted)
{
	struct gm_backend_handle handle;

	be_of_kind(CANNOT);
	open_pinned();
	ck_assert_int_eq(create_without(RLIMIT_NOFILE, &handle), -EMFILE);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ops->close(backend);
}
END_TEST

START_TEST(a_pinned_memfd_that_cannot_be_filled_is_not_counted_and_leaves_nothing)
{
	struct gm_backend_handle handle = {.fd = 12345};

	be_of_kind(WANTED);
	open_pinned();
	unsigned fds = open_fds();
	ck_assert_int_eq(create_without(RLIMIT_AS, &handle), -ENOMEM);
	ck_assert_int_eq(handle.fd, 12345);
	ck_assert_uint_eq(free_of(2), 16 * MIB);
	ck_assert_uint_eq(open_fds(), fds);
	ops->close(backend);
}
END_TEST

START_TEST(of_memfds_no_more_is_given_out_than_the_daemon_may_have)
{
	struct gm_backend_config config = {.host_limit = GM_LEASE_BYTES_MAX};
	struct gm_backend_device info;

	be_of_kind(_i);
	config.host_memory = wanted;
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), 0);
	ops->device_info(backend, 2, &info);
	if (_i == OWN) { /* the driver says what it has no more of */
		ck_assert_uint_eq(info.total, GM_LEASE_BYTES_MAX);
	} else {
		ck_assert_uint_eq(info.total, gm_backend_ram_own());
		ck_assert_uint_le(info.total, gm_backend_ram_total());
		ck_assert_uint_le(info.total,
			(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
	}
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

START_TEST(pinned_memory_is_adopted_even_past_its_limit)
{
	struct gm_backend_handle handle, adopted;
	uint64_t bytes;
	int fds[2];

	be_of_kind(_i);
	open_pinned();
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle), 0);
	ck_assert_int_eq(
		ops->create(backend, 2, GM_TRANSPORT_FD, 16 * MIB, &someone, &adopted), -ENOMEM);
	int again = dup(handle.fd);
	ck_assert_int_eq(ops->adopt(backend, 2, again, 8 * MIB, &adopted), 0);
	ck_assert_int_eq(ops->memory_free(backend, 2, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);

	/* The limit may have been higher when it was made. */
	struct gm_backend_handle third;
	ck_assert_int_eq(ops->adopt(backend, 2, dup(handle.fd), 8 * MIB, &third), 0);
	ck_assert_int_eq(ops->memory_free(backend, 2, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &third);
	ck_assert_int_eq(ops->memory_free(backend, 2, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
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
	struct gm_backend_handle handle;

	setenv("GPUMEM_FAKE_FAIL", "cuMemExportToShareableHandle:1:801", 1);
	open_pinned();
	ops->device_info(backend, 2, &info);
	ck_assert_str_eq(info.mapping, "host"); /* memfds, which clients register */
	ck_assert_int_eq(ops->create(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 2, GM_TRANSPORT_FD, 8 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_pinned");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_loop_test(
		tcase, pinned_memory_is_the_last_device_and_takes_nothing_from_a_gpu, 0, KINDS);
	tcase_add_loop_test(tcase, pinned_memory_goes_to_its_limit_and_no_further, 0, KINDS);
	tcase_add_loop_test(
		tcase, pinned_memory_that_fails_halfway_is_not_counted_and_leaves_nothing, 0, 4);
	tcase_add_test(tcase, a_pinned_memfd_for_which_there_is_no_descriptor_is_not_counted);
	tcase_add_test(
		tcase, a_pinned_memfd_that_cannot_be_filled_is_not_counted_and_leaves_nothing);
	tcase_add_loop_test(
		tcase, of_memfds_no_more_is_given_out_than_the_daemon_may_have, 0, KINDS);
	tcase_add_test(tcase, without_a_host_limit_there_is_no_pinned_memory);
	tcase_add_loop_test(tcase, pinned_memory_is_adopted_even_past_its_limit, 0, KINDS);
	tcase_add_test(tcase, a_driver_that_shares_no_pinned_memory_is_found_out_at_the_start);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
