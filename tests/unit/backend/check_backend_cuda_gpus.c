/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs the daemon's cuda backend finds, by what each can hand memory over, and what is said
 * where there is none or the driver does not start. Over the fake driver: see
 * backend_cuda_fixture.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bound.h"
#include "tests/scratch.h"
#include "tests/unit/backend/backend_cuda_fixture.h"

/* How many devices are there, and the last one's name. */
static void sees(const char *visible, uint32_t n, const char *last)
{
	struct gm_backend_device info;

	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	open_it();
	ck_assert_uint_eq(devices, n);
	ops->device_info(backend, n - 1, &info);
	ck_assert_str_eq(info.name, last);
	ops->close(backend);
}

START_TEST(visible_devices_are_respected)
{
	sees("1", 1, "Fake GPU 1");
}
END_TEST

START_TEST(a_device_that_is_visible_twice_is_one)
{
	sees("1,1,0", 2, "Fake GPU 0");
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
	static const int gpus[] = {GM_BOUND_DEVICES - 1, GM_BOUND_DEVICES, GM_BOUND_DEVICES + 1};
	struct gm_backend_device info;

	GM_BOUND_TEST(DEVICES);
	with_gpus(gpus[_i], open_with_pinned);
	ck_assert_uint_eq(devices, GM_BOUND_DEVICES);
	ops->device_info(backend, GM_BOUND_DEVICES - 1, &info);
	ck_assert(info.pinned == (_i == 0));
	ops->device_info(backend, GM_BOUND_DEVICES - 2, &info);
	ck_assert_str_eq(info.name, "Fake GPU 14");
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

START_TEST(how_far_the_cpu_sees_managed_memory_follows_from_the_driver)
{
	static const struct {
		const char *without;
		enum gm_backend_visibility visibility;
	} cases[] = {
		{"", GM_BACKEND_VISIBILITY_SYSTEM},
		{"pageable", GM_BACKEND_VISIBILITY_SYSTEM},
		{"concurrent", GM_BACKEND_VISIBILITY_SYSTEM},
		{"pageable,concurrent", GM_BACKEND_VISIBILITY_DEVICE},
		{"pageable,managed", GM_BACKEND_VISIBILITY_EXPLICIT},
		{"pageable,concurrent,managed", GM_BACKEND_VISIBILITY_EXPLICIT},
	};
	struct gm_backend_device info;

	setenv("GPUMEM_FAKE_WITHOUT", cases[_i].without, 1);
	open_it();
	ops->device_info(backend, 0, &info);
	ck_assert_int_eq(info.visibility, cases[_i].visibility);
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

START_TEST(a_device_that_cannot_be_read_is_not_served_and_the_other_one_is)
{
	static const char *const plans[] = {"cuDeviceGet:1:999", "cuDeviceGetName:1:999",
		"cuDeviceGetUuid:2:999", "cuDeviceTotalMem:1:999", "cuDeviceGetPCIBusId:2:999"};
	struct gm_backend_device info;
	struct gm_backend_handle handle;

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
	struct gm_backend_handle handle;
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

START_TEST(a_driver_that_stops_answering_is_said_so)
{
	struct gm_backend_config config = {0};

	setenv("GPUMEM_FAKE_FAIL", _i ? "cuDeviceGetCount:2:999" : "cuDeviceGetCount:1:999", 1);
	ck_assert_int_eq(ops->open(&config, &backend, &devices, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "does not answer: CUDA_ERROR_UNKNOWN"));
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
	static char root[64];
	char path[96];

	gm_scratch_folder(root, sizeof root);
	snprintf(path, sizeof path, "%s/proc", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/proc/version", root);
	FILE *file = fopen(path, "w");
	fputs("Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc)\n", file);
	fclose(file);
	setenv("GPUMEM_TEST_ROOT", root, 1);
	open_it();
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
	/* Whatever the driver says about it. */
	ck_assert_int_eq(info.visibility, GM_BACKEND_VISIBILITY_DEVICE);
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
	Suite *suite = suite_create("backend_gpus");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, visible_devices_are_respected);
	tcase_add_loop_test(
		tcase, a_mig_instance_is_found_by_its_own_uuid_and_measured_by_it, 0, 2);
	tcase_add_test(tcase, what_a_device_cannot_do_is_known);
	tcase_add_test(tcase, a_device_without_ipc_says_so);
	tcase_add_loop_test(
		tcase, how_far_the_cpu_sees_managed_memory_follows_from_the_driver, 0, 6);
	tcase_add_test(tcase, an_older_driver_that_cannot_say_is_taken_to_have_ipc);
	tcase_add_loop_test(tcase,
		of_more_gpus_than_there_are_numbers_the_first_are_served_and_none_is_pinned, 0, 3);
	tcase_add_loop_test(
		tcase, a_device_that_cannot_be_read_is_not_served_and_the_other_one_is, 0, 5);
	tcase_add_loop_test(tcase, devices_that_cannot_be_read_are_no_devices, 0, 5);
	tcase_add_test(tcase, a_device_that_is_visible_twice_is_one);
	tcase_add_loop_test(
		tcase, whichever_attribute_cannot_be_read_it_is_taken_for_absent, 1, 24);
	tcase_add_loop_test(tcase, a_driver_that_stops_answering_is_said_so, 0, 2);
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
