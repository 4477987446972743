/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the driver and NVML (run it with tests/fake/with-fake-gpu -n 2): with and without them,
 * and with libraries that are not what they should be. Where libraries are looked for is settled
 * when a program starts, so each test starts this program anew and hears what it found.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static char self[PATH_MAX];
static char folder[64];
static char said[1024]; /* by the program that was started */

/* ---- in the program that is started */

static int say_what_is_found(void)
{
	char why[GM_CUDA_WHY_BYTES];
	const struct gm_cuda *cuda, *again;
	const struct gm_nvml *nvml;
	int count = 0;

	if (gm_cuda_load(&cuda, why) < 0)
		printf("cuda: %s\n", why);
	else if (gm_cuda_load(&again, why) < 0 || again != cuda || cuda->cuDeviceGetCount(&count))
		printf("cuda: not the same twice\n");
	else
		printf("cuda: %d devices, version %d, %s, %s, %s\n", count, cuda->driver_version,
			gm_cuda_error(cuda, GM_CUDA_ERROR_OUT_OF_MEMORY),
			gm_cuda_error(cuda, 54321), cuda->cuStreamGetId ? "ids" : "no ids");
	if (gm_nvml_load(&nvml, why) < 0)
		printf("nvml: %s\n", why);
	else
		printf("nvml: there\n");
	return 0;
}

/* ---- in the test */

static const char *fake_library(const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/lib/%s", getenv("GPUMEM_FAKE_DIR"), name);
	return path;
}

static void set_up(void)
{
	gm_scratch_folder(folder, sizeof folder);
}

/* Under that name the program will find that file. */
static void put(const char *name, const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	ck_assert_int_eq(symlink(file, path), 0);
}

/* Starts the program with libraries from the folder alone; what it says goes to said. */
static void start(void)
{
	int ends[2], status;
	size_t n = 0;
	ssize_t got;

	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setenv("LD_LIBRARY_PATH", folder, 1);
		dup2(ends[1], STDOUT_FILENO);
		execl(self, self, "say", NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0)
		n += (size_t)got;
	close(ends[0]);
	said[n] = '\0';
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(
		WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x: %s", status, said);
}

#define SAYS(text) ck_assert_msg(strstr(said, text) != NULL, "\"%s\" is not in: %s", text, said)

static void put_both(void)
{
	char path[PATH_MAX];

	put("libcuda.so.1", fake_library("libcuda.so.1", path));
	put("libnvidia-ml.so.1", fake_library("libnvidia-ml.so.1", path));
}

START_TEST(both_are_found_once)
{
	put_both();
	start();
	SAYS("cuda: 2 devices, version 13000, CUDA_ERROR_OUT_OF_MEMORY, an error the driver has no name for, ids\n");
	SAYS("nvml: there\n");
}
END_TEST

START_TEST(a_driver_with_the_first_form_of_get_proc_address_is_used_through_it)
{
	char path[PATH_MAX];

	setenv("GPUMEM_FAKE_DRIVER", fake_library("libcuda.so.1", path), 1);
	put("libcuda.so.1", fake_library("libcuda-old.so.1", path));
	start();
	SAYS("cuda: 2 devices, version 13000");
}
END_TEST

START_TEST(what_is_there_under_its_own_name_is_found_without_get_proc_address)
{
	char path[PATH_MAX];

	/* It answers that it knows nothing of a function that is newer than the driver is. */
	setenv("GPUMEM_FAKE_VERSION", "11040", 1);
	put("libcuda.so.1", fake_library("libcuda.so.1", path));
	start();
	SAYS("cuda: 2 devices, version 11040");
	SAYS("no ids");
}
END_TEST

START_TEST(without_libraries_it_is_said_which_one_is_missing)
{
	/* Where the loader knows the real ones they cannot be taken away. */
	if (system("PATH=/sbin:/usr/sbin:$PATH ldconfig -p 2>/dev/null | grep -q libcuda.so.1") ==
		0)
		return;
	start();
	SAYS("cuda: no NVIDIA driver: libcuda.so.1 cannot be loaded (in a container:");
	SAYS("nvml: no NVML: libnvidia-ml.so.1 cannot be loaded\n");
}
END_TEST

START_TEST(a_library_that_cannot_be_loaded_is_told_in_the_loaders_words)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("no library at all\n", file);
	ck_assert_int_eq(fclose(file), 0);
	start();
	SAYS("cuda: libcuda.so.1 cannot be loaded: ");
	SAYS("too short");
}
END_TEST

START_TEST(libraries_without_what_is_needed_are_too_old)
{
	char path[PATH_MAX];

	/* Each is a library, and not the right one. */
	put("libcuda.so.1", fake_library("libnvidia-ml.so.1", path));
	put("libnvidia-ml.so.1", fake_library("libcuda.so.1", path));
	start();
	SAYS("cuda: the NVIDIA driver is too old: it has no cuInit; CUDA 11.4 (driver 470) or newer is needed\n");
	SAYS("nvml: NVML is too old: it has no nvmlInit_v2\n");
}
END_TEST

START_TEST(a_driver_that_does_not_start_is_told_with_the_cause_where_one_is_known)
{
	static const struct {
		const char *plan, *says;
	} rows[] = {
		{"cuInit:0:34", "CUDA_ERROR_STUB_LIBRARY: this libcuda.so.1 is the Toolkit's stub"},
		{"cuInit:0:802", "CUDA_ERROR_SYSTEM_NOT_READY: on machines with NVSwitch"},
		{"cuInit:0:803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: its library and its kernel"},
		{"cuInit:0:304", "CUDA_ERROR_OPERATING_SYSTEM: /dev/nvidia-uvm may be missing"},
		{"cuInit:0:46",
			"cuda: the NVIDIA driver does not start: CUDA_ERROR_DEVICE_UNAVAILABLE\n"},
		{"cuInit:0:100", "cuda: the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE)"},
		{"cuDeviceGetCount:0:999", "does not answer: CUDA_ERROR_UNKNOWN"},
	};

	ck_assert_int_lt(_i, (int)(sizeof rows / sizeof *rows));
	setenv("GPUMEM_FAKE_FAIL", rows[_i].plan, 1);
	put_both();
	start();
	SAYS(rows[_i].says);
}
END_TEST

START_TEST(nvml_that_does_not_start_is_told_with_its_name_for_it)
{
	setenv("GPUMEM_FAKE_WITHOUT", "nvml", 1);
	put_both();
	start();
	SAYS("nvml: NVML does not start: NVML_ERROR_DRIVER_NOT_LOADED: the kernel module");
}
END_TEST

START_TEST(every_error_of_the_driver_has_one_of_ours)
{
	static const struct {
		gm_cu_result result;
		int error;
	} rows[] = {
		{GM_CUDA_SUCCESS, 0},
		{GM_CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM},
		{GM_CUDA_ERROR_NO_DEVICE, -ENODEV},
		{GM_CUDA_ERROR_INVALID_DEVICE, -ENODEV},
		{GM_CUDA_ERROR_DEVICE_UNAVAILABLE, -ENODEV},
		{GM_CUDA_ERROR_ECC_UNCORRECTABLE, -ENODEV},
		{GM_CUDA_ERROR_DEINITIALIZED, -ENODEV},
		{GM_CUDA_ERROR_NOT_INITIALIZED, -ENODEV},
		{GM_CUDA_ERROR_INVALID_VALUE, -EINVAL},
		{GM_CUDA_ERROR_INVALID_HANDLE, -EINVAL},
		{GM_CUDA_ERROR_NOT_SUPPORTED, -EOPNOTSUPP},
		{GM_CUDA_ERROR_NOT_PERMITTED, -EPERM},
		{GM_CUDA_ERROR_UNKNOWN, -EIO},
		{54321, -EIO},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		ck_assert_int_eq(gm_cuda_errno(rows[i].result), rows[i].error);
}
END_TEST

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "say") == 0)
		return say_what_is_found();
	if (!getenv("GPUMEM_FAKE_DIR") || !realpath("/proc/self/exe", self)) {
		printf("1..0 # SKIP needs the fake driver\n");
		return 0;
	}
	Suite *suite = suite_create("cuda");
	TCase *tests = tcase_create("cuda");
	tcase_add_checked_fixture(tests, set_up, NULL);
	tcase_add_test(tests, both_are_found_once);
	tcase_add_test(tests, a_driver_with_the_first_form_of_get_proc_address_is_used_through_it);
	tcase_add_test(tests, what_is_there_under_its_own_name_is_found_without_get_proc_address);
	tcase_add_test(tests, without_libraries_it_is_said_which_one_is_missing);
	tcase_add_test(tests, a_library_that_cannot_be_loaded_is_told_in_the_loaders_words);
	tcase_add_test(tests, libraries_without_what_is_needed_are_too_old);
	tcase_add_loop_test(tests,
		a_driver_that_does_not_start_is_told_with_the_cause_where_one_is_known, 0, 7);
	tcase_add_test(tests, nvml_that_does_not_start_is_told_with_its_name_for_it);
	tcase_add_test(tests, every_error_of_the_driver_has_one_of_ours);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
