/* SPDX-License-Identifier: Apache-2.0 */

/* Host memory as devices: real memfds, held against everything a client could try with one. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/backend/backend.h"
#include "daemon/backend/backend_ram.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"

#define MIB UINT64_C(0x100000)

static const struct gm_backend_seen someone = {.domain = 1, .payer_uid = 1000};
static const struct gm_backend_ops *ops = &gm_backend_host;
static void *backend;
static uint32_t devices;
static char why[256];

static void open_with(uint64_t first, uint64_t second)
{
	struct gm_backend_config config = {.size = {first, second}};
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), 0);
}

static void teardown(void)
{
	ops->close(backend);
	backend = NULL;
}

static struct gm_backend_handle create(uint32_t device, uint64_t bytes)
{
	struct gm_backend_handle handle;
	ck_assert_int_eq(
		ops->create(backend, device, GM_TRANSPORT_FD, bytes, &someone, &handle), 0);
	ck_assert_int_ge(handle.fd, 0);
	return handle;
}

static uint64_t free_of(uint32_t device)
{
	uint64_t bytes;
	ck_assert_int_eq(ops->memory_free(backend, device, &bytes), 0);
	return bytes;
}

START_TEST(a_chunk_has_its_size_and_cannot_be_resized_or_unsealed)
{
	open_with(64 * MIB, 0);
	struct gm_backend_handle handle = create(0, 2 * MIB);
	struct stat st;
	ck_assert_int_eq(fstat(handle.fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 2 * MIB);
	ck_assert_int_eq(st.st_blocks, 0); /* sparse */
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(fcntl(handle.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(ftruncate(handle.fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(handle.fd, (off_t)(4 * MIB)), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(errno, EPERM);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ck_assert_int_eq(handle.fd, -1);
}
END_TEST

START_TEST(a_device_never_holds_more_than_its_size)
{
	open_with(8 * MIB, 0);
	struct gm_backend_handle first = create(0, 4 * MIB), second = create(0, 4 * MIB), third;
	ck_assert_uint_eq(free_of(0), 0);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &third), -ENOMEM);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, UINT64_C(1) << 63, &someone, &third),
		-ENOMEM);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 4 * MIB, &someone, &first);
	ck_assert_uint_eq(free_of(0), 4 * MIB);
	third = create(0, 2 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 4 * MIB, &someone, &second);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &third);
	ck_assert_uint_eq(free_of(0), 8 * MIB);
	/* Twice is once. */
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &third);
	ck_assert_uint_eq(free_of(0), 8 * MIB);
}
END_TEST

START_TEST(devices_are_separate_and_known_by_different_uuids)
{
	struct gm_backend_device first, second;
	open_with(8 * MIB, 4 * MIB);
	ck_assert_uint_eq(devices, 2);
	ops->device_info(backend, 0, &first);
	ops->device_info(backend, 1, &second);
	ck_assert_uint_eq(first.total, 8 * MIB);
	ck_assert_uint_eq(second.total, 4 * MIB);
	ck_assert(memcmp(first.uuid, second.uuid, sizeof(first.uuid)) != 0);
	ck_assert(first.transport_fd && !first.transport_ipc);
	struct gm_backend_handle handle = create(1, 4 * MIB);
	ck_assert_uint_eq(free_of(0), 8 * MIB);
	ck_assert_uint_eq(free_of(1), 0);
	ops->destroy(backend, 1, GM_TRANSPORT_FD, 4 * MIB, &someone, &handle);
}
END_TEST

START_TEST(a_gap_between_devices_is_refused)
{
	struct gm_backend_config config = {.size = {MIB, 0, MIB}};
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "device 1"));
	backend = NULL;
}
END_TEST

START_TEST(the_default_size_is_whole_chunks_and_at_most_a_quarter_of_the_ram)
{
	uint64_t size = gm_backend_ram_quarter();
	ck_assert_uint_ge(size, GM_CHUNK_MIN);
	ck_assert_uint_eq(size % GM_CHUNK_MIN, 0);
	ck_assert_uint_le(
		size, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4);
	open_with(0, 0);
	struct gm_backend_device info;
	ops->device_info(backend, 0, &info);
	ck_assert_uint_eq(devices, 1);
	ck_assert_uint_eq(info.total, size);
}
END_TEST

START_TEST(there_is_no_ipc_transport)
{
	struct gm_backend_handle handle;
	open_with(8 * MIB, 0);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &handle), -EOPNOTSUPP);
	ck_assert_uint_eq(free_of(0), 8 * MIB);
}
END_TEST

START_TEST(a_chunk_is_adopted_with_its_contents_only_if_it_is_what_it_should_be)
{
	open_with(8 * MIB, 0);
	struct gm_backend_handle handle = create(0, 2 * MIB), adopted;
	ck_assert_int_eq(pwrite(handle.fd, "data", 4, 0), 4);
	int fd = dup(handle.fd);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ck_assert_int_eq(ops->adopt(backend, 0, fd, 4 * MIB, &adopted), -EINVAL);
	ck_assert_int_eq(ops->adopt(backend, 0, fd, 2 * MIB, &adopted), 0);
	ck_assert_uint_eq(free_of(0), 6 * MIB);
	char text[4];
	ck_assert_int_eq(pread(adopted.fd, text, 4, 0), 4);
	ck_assert_mem_eq(text, "data", 4);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &adopted);

	int unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(unsealed, (off_t)(2 * MIB)), 0);
	ck_assert_int_eq(ops->adopt(backend, 0, unsealed, 2 * MIB, &adopted), -EINVAL);
	close(unsealed);
	ck_assert_uint_eq(free_of(0), 8 * MIB);
}
END_TEST

START_TEST(a_read_only_fd_cannot_be_mapped_for_writing)
{
	open_with(8 * MIB, 0);
	struct gm_backend_handle handle = create(0, 2 * MIB);
	int fd;
	ck_assert_int_eq(ops->open_fd(backend, &handle, true, &fd), 0);
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(mprotect(at, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(errno, EACCES);
	munmap(at, 4096);
	close(fd);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
}
END_TEST

START_TEST(a_chunk_is_emptied_unless_somebody_has_it)
{
	open_with(64 * MIB, 0);
	struct gm_backend_handle handle = create(0, 2 * MIB);
	char text[4] = "";
	int fd;
	ck_assert_int_eq(ops->open_fd(backend, &handle, false, &fd), 0);
	ck_assert_int_eq(pwrite(fd, "data", 4, 0), 4);
	ck_assert_int_eq(pwrite(fd, "more", 4, MIB), 4);
	ops->discard(backend, &handle, 0, 2 * MIB);
	ck_assert_int_eq(pread(handle.fd, text, 4, 0), 4);
	ck_assert_mem_eq(text, "data", 4);
	close(fd);
	ops->prepare(backend, &handle);
	ops->discard(backend, &handle, 0, MIB);
	ck_assert_int_eq(pread(handle.fd, text, 4, 0), 4);
	ck_assert_mem_eq(text, "\0\0\0\0", 4);
	ck_assert_int_eq(pread(handle.fd, text, 4, MIB), 4);
	ck_assert_mem_eq(text, "more", 4);
	ops->discard(backend, &handle, MIB, MIB);
	ck_assert_int_eq(pread(handle.fd, text, 4, MIB), 4);
	ck_assert_mem_eq(text, "\0\0\0\0", 4);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
}
END_TEST

START_TEST(a_prepared_chunk_is_sent_by_the_fd_that_was_opened_before)
{
	open_with(64 * MIB, 0);
	unsigned before = open_fds();
	struct gm_backend_handle handle = create(0, 2 * MIB);
	int fd, plain;

	ops->prepare(backend, &handle);
	ck_assert_uint_eq(open_fds(), before + 2);
	/* Twice is as good as once. */
	ops->prepare(backend, &handle);
	ck_assert_uint_eq(open_fds(), before + 2);
	ck_assert_int_eq(ops->open_fd(backend, &handle, true, &plain), 0);
	ck_assert_int_eq(fcntl(plain, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_uint_eq(open_fds(), before + 3);
	close(plain);
	ck_assert_int_eq(ops->open_fd(backend, &handle, false, &fd), 0);
	ck_assert_uint_eq(open_fds(), before + 2);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	/* It is an open file of its own, so it is seen. */
	ck_assert(ops->in_use(backend, &handle));
	close(fd);
	ck_assert(!ops->in_use(backend, &handle));

	/* What was prepared and not sent is nobody's. */
	ops->prepare(backend, &handle);
	ck_assert(!ops->in_use(backend, &handle));
	ops->prepare(backend, &handle);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(the_process_at_its_fd_limit_gets_an_error_and_keeps_its_account)
{
	open_with(64 * MIB, 0);
	const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
	int fds[64], n = 0;
	struct gm_backend_handle handle;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), -EMFILE);
	ck_assert_uint_eq(free_of(0), 64 * MIB);
	while (n > 0)
		close(fds[--n]);
	handle = create(0, 2 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
}
END_TEST

START_TEST(the_creation_a_test_chose_fails)
{
	struct gm_backend_handle first, second, third;
	setenv("GPUMEM_TEST_HOST_FAIL", "2", 1);
	open_with(64 * MIB, 0);
	first = create(0, 2 * MIB);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &second), -ENOMEM);
	third = create(0, 2 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &first);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &third);
	ops->close(backend);
	setenv("GPUMEM_TEST_HOST_FAIL", "1+", 1);
	open_with(64 * MIB, 0);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &first), -ENOMEM);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &first), -ENOMEM);
	ops->close(backend);
	backend = NULL;
	static const char *const nonsense[] = {
		"0", "x", "+", "-1", "1++", "9999999999999999999999"};
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		struct gm_backend_config config = {.size = {MIB}};
		setenv("GPUMEM_TEST_HOST_FAIL", nonsense[i], 1);
		ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -EINVAL);
	}
	backend = NULL;
}
END_TEST

static void *create_on_thread(void *arg)
{
	struct gm_backend_handle *handle = arg;
	return (void *)(intptr_t)ops->create(
		backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, handle);
}

START_TEST(a_creation_waits_at_the_gate_until_it_is_let_through)
{
	char folder[64], path[96];
	gm_scratch_folder(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/gate", folder);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	setenv("GPUMEM_TEST_HOST_GATE", path, 1);
	open_with(64 * MIB, 0);
	struct gm_backend_handle handle;
	pthread_t thread;
	void *result;
	ck_assert_int_eq(pthread_create(&thread, NULL, create_on_thread, &handle), 0);
	ck_assert_int_eq(pthread_tryjoin_np(thread, &result), EBUSY);
	ck_assert_uint_eq(free_of(0), 64 * MIB);
	int gate = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(write(gate, "x", 1), 1);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	close(gate);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_host");
	TCase *tests = tcase_create("backend_host");
	tcase_add_checked_fixture(tests, NULL, teardown);
	tcase_add_test(tests, a_chunk_has_its_size_and_cannot_be_resized_or_unsealed);
	tcase_add_test(tests, a_device_never_holds_more_than_its_size);
	tcase_add_test(tests, devices_are_separate_and_known_by_different_uuids);
	tcase_add_test(tests, a_gap_between_devices_is_refused);
	tcase_add_test(tests, the_default_size_is_whole_chunks_and_at_most_a_quarter_of_the_ram);
	tcase_add_test(tests, there_is_no_ipc_transport);
	tcase_add_test(tests, a_chunk_is_adopted_with_its_contents_only_if_it_is_what_it_should_be);
	tcase_add_test(tests, a_read_only_fd_cannot_be_mapped_for_writing);
	tcase_add_test(tests, a_chunk_is_emptied_unless_somebody_has_it);
	tcase_add_test(tests, a_prepared_chunk_is_sent_by_the_fd_that_was_opened_before);
	tcase_add_test(tests, the_process_at_its_fd_limit_gets_an_error_and_keeps_its_account);
	tcase_add_test(tests, the_creation_a_test_chose_fails);
	tcase_add_test(tests, a_creation_waits_at_the_gate_until_it_is_let_through);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
