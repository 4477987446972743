/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses a GPU, over an NVML of the test's own: two lists of processes, which grow, contradict
 * each other or cannot be had.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/backend/backend_nvml.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

#define MOST 200

struct listing {
	gm_nvml_process rows[MOST];
	unsigned int n;
	gm_nvml_return result; /* instead of a list */
	bool endless;          /* never fits, however much room there is */
	unsigned int calls;
};

static struct listing compute, graphics;
static struct gm_nvml nvml;
static gm_nvml_device device = (gm_nvml_device)&compute; /* whatever it is, it is passed on */
static struct gm_backend_process *list;
static size_t n;
static struct gm_backend_nvml_failure failure;

static gm_nvml_return answer(struct listing *from, unsigned int *room, gm_nvml_process *rows)
{
	from->calls++;
	if (from->result)
		return from->result;
	if (from->endless || from->n > *room) {
		*room = from->endless ? *room + 1 : from->n;
		return GM_NVML_ERROR_INSUFFICIENT_SIZE;
	}
	memcpy(rows, from->rows, from->n * sizeof(*rows));
	*room = from->n;
	return GM_NVML_SUCCESS;
}

static gm_nvml_return compute_list(
	gm_nvml_device of, unsigned int *room, gm_nvml_process *processes)
{
	if (of != device)
		abort();
	return answer(&compute, room, processes);
}

static gm_nvml_return graphics_list(
	gm_nvml_device of, unsigned int *room, gm_nvml_process *processes)
{
	if (of != device)
		abort();
	return answer(&graphics, room, processes);
}

static void set_up(void)
{
	nvml.nvmlDeviceGetComputeRunningProcesses = compute_list;
	nvml.nvmlDeviceGetGraphicsRunningProcesses = graphics_list;
}

static void add(struct listing *to, unsigned int pid, unsigned long long bytes)
{
	to->rows[to->n].pid = pid;
	to->rows[to->n++].used = bytes;
}

static int ask(void)
{
	list = NULL;
	n = 0;
	return gm_backend_nvml_processes(&nvml, device, &list, &n, &failure);
}

static uint64_t used_by(pid_t pid)
{
	size_t found = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		if (list[i].pid == pid) {
			bytes = list[i].bytes;
			found++;
		}
	ck_assert_uint_eq(found, 1);
	return bytes;
}

START_TEST(a_process_in_both_lists_is_one_with_the_larger_figure)
{
	add(&compute, 1, 100);
	add(&compute, 2, 200);
	add(&compute, 3, GM_NVML_USED_UNKNOWN);
	add(&compute, 4, 400);
	add(&compute, 5, GM_NVML_USED_UNKNOWN);
	add(&graphics, 2, 200);
	add(&graphics, 1, 150);
	add(&graphics, 3, 300);
	add(&graphics, 4, GM_NVML_USED_UNKNOWN);
	add(&graphics, 5, GM_NVML_USED_UNKNOWN);
	add(&graphics, 6, 600);
	ck_assert_int_eq(ask(), 0);
	ck_assert_uint_eq(n, 6);
	ck_assert_uint_eq(used_by(1), 150);
	ck_assert_uint_eq(used_by(2), 200);
	ck_assert_uint_eq(used_by(3), 300);
	ck_assert_uint_eq(used_by(4), 400);
	ck_assert_uint_eq(used_by(5), GM_BACKEND_UNKNOWN);
	ck_assert_uint_eq(used_by(6), 600);
	free(list);
}
END_TEST

START_TEST(nobody_is_an_empty_list)
{
	ck_assert_int_eq(ask(), 0);
	ck_assert_uint_eq(n, 0);
	free(list);
}
END_TEST

START_TEST(a_list_that_is_longer_than_expected_is_asked_for_again_and_read_whole)
{
	for (unsigned int i = 0; i < MOST; i++) {
		add(&compute, 1000 + i, i);
		add(&graphics, 2000 + i, i);
	}
	ck_assert_int_eq(ask(), 0);
	ck_assert_uint_eq(n, 2 * MOST);
	ck_assert_uint_eq(used_by(1000 + MOST - 1), MOST - 1);
	ck_assert_uint_eq(used_by(2000), 0);
	ck_assert_uint_eq(compute.calls, 2);
	free(list);
}
END_TEST

START_TEST(a_list_without_end_is_given_up)
{
	struct listing *endless = _i ? &graphics : &compute;

	endless->endless = true;
	ck_assert_int_eq(ask(), -EIO);
	ck_assert_int_eq(failure.result, GM_NVML_ERROR_INSUFFICIENT_SIZE);
	ck_assert_str_eq(failure.call, _i ? "nvmlDeviceGetGraphicsRunningProcesses"
					  : "nvmlDeviceGetComputeRunningProcesses");
	ck_assert_uint_lt(endless->calls, 32);
}
END_TEST

START_TEST(what_went_wrong_is_told_by_its_call)
{
	(_i ? &graphics : &compute)->result = GM_NVML_ERROR_GPU_IS_LOST;
	ck_assert_int_eq(ask(), -EIO);
	ck_assert_int_eq(failure.result, GM_NVML_ERROR_GPU_IS_LOST);
	ck_assert_str_eq(failure.call, _i ? "nvmlDeviceGetGraphicsRunningProcesses"
					  : "nvmlDeviceGetComputeRunningProcesses");
}
END_TEST

START_TEST(a_device_that_cannot_draw_has_one_list)
{
	add(&compute, 7, 70);
	if (_i)
		nvml.nvmlDeviceGetGraphicsRunningProcesses = NULL;
	else
		graphics.result = GM_NVML_ERROR_NOT_SUPPORTED;
	ck_assert_int_eq(ask(), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(used_by(7), 70);
	free(list);
}
END_TEST

START_TEST(where_nvml_does_not_tell_of_processes_that_is_the_answer)
{
	if (_i)
		nvml.nvmlDeviceGetComputeRunningProcesses = NULL;
	else
		compute.result = GM_NVML_ERROR_NOT_SUPPORTED;
	ck_assert_int_eq(ask(), -EOPNOTSUPP);
}
END_TEST

START_TEST(whichever_allocation_fails_it_is_told_and_nothing_is_lost)
{
	uint64_t at = 0;
	bool fired;

	for (unsigned int i = 0; i < MOST; i++) {
		add(&compute, 1000 + i, i);
		add(&graphics, 1000 + i, i);
	}
	do {
		failing_malloc_arm(++at);
		int r = ask();
		fired = failing_malloc_fired();
		ck_assert_int_eq(r, fired ? -ENOMEM : 0);
		free(list);
	} while (fired);
	ck_assert_uint_eq(at, 6); /* two for each list, one for both */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_nvml");
	TCase *tests = tcase_create("processes");

	tcase_add_checked_fixture(tests, set_up, NULL);
	tcase_add_test(tests, a_process_in_both_lists_is_one_with_the_larger_figure);
	tcase_add_test(tests, nobody_is_an_empty_list);
	tcase_add_test(
		tests, a_list_that_is_longer_than_expected_is_asked_for_again_and_read_whole);
	tcase_add_loop_test(tests, a_list_without_end_is_given_up, 0, 2);
	tcase_add_loop_test(tests, what_went_wrong_is_told_by_its_call, 0, 2);
	tcase_add_loop_test(tests, a_device_that_cannot_draw_has_one_list, 0, 2);
	tcase_add_loop_test(tests, where_nvml_does_not_tell_of_processes_that_is_the_answer, 0, 2);
	tcase_add_test(tests, whichever_allocation_fails_it_is_told_and_nothing_is_lost);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
