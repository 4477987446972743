/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's half of the cuda backend over the fake driver (run it with tests/fake/with-fake-gpu
 * -n 2): each operation, each call of the driver that can fail in it, and that a program finds its
 * thread as it was. Each test is a process of its own, so what it puts into the environment is set
 * before the driver is loaded.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/map/map_cuda.h"
#include "client/map/map_pinned.h"
#include "client/map/map_control.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/map/map_cuda_fixture.h"
#include "tests/unit/map/map_fixture.h"

/* Memory of device 0, as the daemon hands it over. */
static int chunk(void)
{
	return chunk_of(GM_CU_MEM_LOCATION_TYPE_DEVICE);
}

static char *reserve(void)
{
	return reserve_in(map, 4);
}

static void map_at(void *addr)
{
	map_in(map, addr, chunk());
}

static gm_cu_ctx current(void)
{
	gm_cu_ctx context = (gm_cu_ctx)1;

	ck_assert_int_eq(cuda->cuCtxGetCurrent(&context), 0);
	return context;
}

static int get(void *at)
{
	unsigned char byte = 0;

	ck_assert_int_eq(
		cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)&byte, (gm_cu_ptr)(uintptr_t)at, 1, NULL),
		0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(NULL), 0);
	return byte;
}

/* ---- memory */

START_TEST(chunks_are_mapped_side_by_side_moved_and_unmapped)
{
	open_it();
	use(0);
	char *addr = reserve();

	map_at(addr);
	map_at(addr + M);
	ck_assert_int_ne(set(addr, 2 * M, 1), 0); /* no access yet */
	ck_assert_int_eq(ops->access(map, addr, 2 * M, false), 0);
	ck_assert_int_eq(set(addr, 2 * M, 7), 0);
	ck_assert_int_eq(get(addr + 2 * M - 1), 7);
	ck_assert_int_eq(ops->move(map, addr, addr + 3 * M, M), 0);
	ck_assert_int_ne(set(addr, M, 1), 0);
	ck_assert_int_eq(ops->access(map, addr + 3 * M, M, true), 0);
	ck_assert_int_eq(get(addr + 3 * M), 7);
	ck_assert_int_eq(ops->unmap(map, addr + M, M), 0);
	ck_assert_int_ne(set(addr + M, M, 1), 0);
	ops->unreserve(map, addr, 4 * M); /* with a chunk in it */
	ck_assert_int_ne(cuda->cuMemAddressFree((gm_cu_ptr)(uintptr_t)addr, 4 * M), 0);
	ops->close(map);
}
END_TEST

START_TEST(what_is_no_handle_is_refused_without_a_word_of_the_driver)
{
	uint8_t handle[GM_IPC_HANDLE_BYTES] = {0};

	setenv("GPUMEM_FAKE_FAIL", "cuMemUnmap:1:999", 1);
	open_it();
	char *addr = reserve();
	ck_assert_int_eq(ops->unmap(map, addr, M), -EIO);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_UNKNOWN");
	ck_assert_int_eq(ops->map(map, addr, M, -1), -EOPNOTSUPP);
	ck_assert_str_eq(ops->error(), "");
	void *there;
	ck_assert_int_eq(ops->attach(map, handle, &there), -EINVAL);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_INVALID_VALUE");
	ck_assert_int_eq(ops->detach(map, addr), -ENOENT);
	ck_assert_str_eq(ops->error(), "");
	int fds[2];
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_lt(ops->map(map, addr, M, fds[0]), 0);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_INVALID_VALUE");
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
}
END_TEST

/* ---- the program's thread */

START_TEST(a_thread_without_a_context_has_none_afterwards)
{
	open_it();
	ck_assert_ptr_null(current());
	char *addr = reserve();
	ck_assert_ptr_null(current());
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	ck_assert_ptr_null(current());
	ck_assert_int_eq(ops->unmap(map, addr, M), 0);
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
	ck_assert_ptr_null(current());
}
END_TEST

START_TEST(the_programs_own_context_stays_current)
{
	open_it();
	gm_cu_ctx mine = context_on(_i);
	ck_assert_int_eq(cuda->cuCtxSetCurrent(mine), 0);
	char *addr = reserve();
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	struct gm_map_event *event;
	ck_assert_int_eq(ops->record(map, &event), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ck_assert_ptr_eq(current(), mine);
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
	ck_assert_ptr_eq(current(), mine);
	/* Nothing was pushed and left. */
	ck_assert_int_eq(cuda->cuCtxPopCurrent(NULL), 0);
	ck_assert_ptr_null(current());
}
END_TEST

START_TEST(the_threads_capture_mode_is_as_it_was)
{
	gm_cu_capture_mode mode = 1; /* of this thread alone */

	open_it();
	ck_assert_int_eq(cuda->cuThreadExchangeStreamCaptureMode(&mode), 0);
	char *addr = reserve();
	map_at(addr);
	ops->unreserve(map, addr, 4 * M);
	mode = 0;
	ck_assert_int_eq(cuda->cuThreadExchangeStreamCaptureMode(&mode), 0);
	ck_assert_int_eq(mode, 1);
	ops->close(map);
}
END_TEST

static gm_cu_result see(const struct gm_cuda *given, void *arg)
{
	gm_cu_device *device = arg;

	ck_assert_ptr_eq(given, cuda);
	return given->cuCtxGetDevice(device);
}

static gm_cu_result refuse(const struct gm_cuda *given, void *arg)
{
	return GM_CUDA_ERROR_NOT_PERMITTED;
}

START_TEST(a_call_of_others_runs_in_a_context_of_the_device)
{
	gm_cu_device device = -1;

	open_it();
	ck_assert_int_eq(gm_map_cuda_call(map, see, &device), 0);
	ck_assert_int_eq(device, 0);
	ck_assert_ptr_null(current());
	ck_assert_int_eq(gm_map_cuda_call(map, refuse, NULL), -EPERM);
	ck_assert_str_eq(gm_map_cuda_error(), "CUDA_ERROR_NOT_PERMITTED");
	ops->close(map);
}
END_TEST

/* ---- failures, call by call */

enum op {
	RESERVE,
	MAP,
	ACCESS,
	MOVE,
	UNMAP,
	RECORD,
	RECORD_ON,
	PASSED,
	ORDER,
	POST,
	AWAIT,
	WORD_OPEN,
	STREAM_ID,
	CALL
};

static const struct {
	const char *call;
	enum op op;
} failures[] = {
	{"cuCtxGetCurrent", RESERVE},
	{"cuDevicePrimaryCtxRetain", RESERVE},
	{"cuCtxPushCurrent", RESERVE},
	{"cuMemAddressReserve", RESERVE},
	{"cuCtxGetCurrent", MAP},
	{"cuMemImportFromShareableHandle", MAP},
	{"cuMemMap", MAP},
	{"cuCtxPushCurrent", ACCESS},
	{"cuMemSetAccess", ACCESS},
	{"cuCtxPushCurrent", MOVE},
	{"cuMemRetainAllocationHandle", MOVE},
	{"cuMemMap", MOVE},
	{"cuMemUnmap", MOVE},
	{"cuCtxPushCurrent", UNMAP},
	{"cuMemUnmap", UNMAP},
	{"cuCtxPushCurrent", RECORD},
	{"cuEventCreate", RECORD},
	{"cuCtxRecordEvent", RECORD},
	{"cuCtxPushCurrent", RECORD_ON},
	{"cuCtxPushCurrent", PASSED},
	{"cuEventQuery", PASSED},
	{"cuCtxPushCurrent", ORDER},
	{"cuStreamWaitEvent", ORDER},
	{"cuCtxPushCurrent", POST},
	{"cuStreamWriteValue64", POST},
	{"cuCtxPushCurrent", AWAIT},
	{"cuStreamWaitValue64", AWAIT},
	{"cuCtxPushCurrent", WORD_OPEN},
	{"cuMemHostRegister", WORD_OPEN},
	{"cuMemHostGetDevicePointer", WORD_OPEN},
	{"cuStreamGetId", STREAM_ID},
	{"cuCtxPushCurrent", CALL},
};

static int open_word(int fd)
{
	struct gm_map_control *word;
	int r = ops->word_open(map, fd, false, &word);
	if (r == 0)
		ops->word_close(map, word);
	return r;
}

static struct gm_map_control *tried;

static int perform(enum op op, char *addr, int fd, gpumem_stream stream, struct gm_map_event *event)
{
	gm_cu_device device;
	void *other;
	uint64_t id;

	switch (op) {
	case RESERVE:
		return ops->reserve(map, M, &other);
	case MAP:
		return ops->map(map, addr + M, M, fd);
	case ACCESS:
		return ops->access(map, addr, M, false);
	case MOVE:
		return ops->move(map, addr, addr + 2 * M, M);
	case UNMAP:
		return ops->unmap(map, addr, M);
	case RECORD:
		return record();
	case RECORD_ON:
		return record_on(stream);
	case POST:
		return ops->post(map, stream, tried, 1);
	case AWAIT:
		return ops->await(map, stream, tried, 1);
	case WORD_OPEN:
		return open_word(fd);
	case PASSED:
		return ops->passed(map, event);
	case ORDER:
		return ops->order(map, stream, event);
	case STREAM_ID:
		return ops->stream_id(map, stream, &id);
	case CALL:
		return gm_map_cuda_call(map, see, &device);
	}
	return 0;
}

START_TEST(a_driver_out_of_memory_is_not_the_host_out_of_memory)
{
	struct gm_map_event *event;
	void *addr;

	/* But for address space, of which less may be had. */
	open_it();
	setenv("GPUMEM_FAKE_FAIL", "cuDevicePrimaryCtxRetain:0:2", 1);
	ck_assert_int_eq(ops->reserve(map, M, &addr), -ENOBUFS);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_OUT_OF_MEMORY");
	setenv("GPUMEM_FAKE_FAIL", "cuMemAddressReserve:0:2", 1);
	ck_assert_int_eq(ops->reserve(map, M, &addr), -ENOMEM);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_OUT_OF_MEMORY");
	setenv("GPUMEM_FAKE_FAIL", "cuMemMap:0:2,cuMemSetAccess:0:2,cuEventCreate:0:2", 1);
	addr = reserve();
	int fd = chunk();
	ck_assert_int_eq(ops->map(map, addr, M, fd), -ENOBUFS);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_OUT_OF_MEMORY");
	close(fd);
	ck_assert_int_eq(ops->access(map, addr, M, false), -ENOBUFS);
	ck_assert_int_eq(ops->record(map, &event), -ENOBUFS);
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
}
END_TEST

START_TEST(a_call_that_fails_is_named_and_leaves_all_as_it_was)
{
	enum op op = failures[_i].op;
	struct gm_map_event *event = NULL;
	gpumem_stream stream;
	char plan[64];
	char *addr = NULL;

	open_it();
	use(0);
	stream = stream_new();
	int fd = op == WORD_OPEN ? word_fd() : chunk();
	tried = op == POST || op == AWAIT ? word_new() : NULL;
	if (op != RESERVE) {
		addr = reserve();
		map_at(addr);
		ck_assert_int_eq(ops->access(map, addr, M, false), 0);
		ck_assert_int_eq(set(addr, M, 9), 0);
	}
	if (op == PASSED || op == ORDER)
		ck_assert_int_eq(ops->record(map, &event), 0);
	/* Without a context of its own, so that one must be made current. */
	ck_assert_int_eq(cuda->cuCtxPopCurrent(NULL), 0);
	/* A chunk that could not be unmapped there is unmapped here: that must work. */
	snprintf(plan, sizeof plan, "%s:%d:999", failures[_i].call,
		strcmp(failures[_i].call, "cuMemUnmap") == 0);
	setenv("GPUMEM_FAKE_FAIL", plan, 1);
	ck_assert_int_eq(perform(op, addr, fd, stream, event), -EIO);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_UNKNOWN");
	unsetenv("GPUMEM_FAKE_FAIL");
	ck_assert_ptr_null(current());
	if (addr) {
		/* What was mapped is there as before. */
		use(0);
		ck_assert_int_eq(get(addr + M - 1), 9);
		ck_assert_int_eq(cuda->cuCtxPopCurrent(NULL), 0);
	}
	/* And once the driver works, it is done. */
	ck_assert_int_ge(perform(op, addr, fd, stream, event), 0);
	close(fd);
	if (event)
		ops->forget(map, event);
	ops->close(map);
}
END_TEST

/* ---- which device */

START_TEST(a_device_that_the_process_does_not_see_is_not_found)
{
	uint8_t none[GM_UUID_BYTES] = {1, 2, 3};

	load();
	ck_assert_int_eq(gm_map_cuda_new(none, &map, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_VISIBLE_DEVICES"));
	setenv("GPUMEM_FAKE_FAIL", "cuDeviceGetCount:0:999", 1);
	ck_assert_int_eq(gm_map_cuda_new(uuids[0], &map, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_ERROR_UNKNOWN"));
}
END_TEST

START_TEST(a_child_of_a_process_that_had_started_cuda_is_told_so)
{
	struct gm_map_pinned *pinned;
	int status, r;

	load();
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		r = gm_map_cuda_new(uuids[0], &map, why);
		if (r != -ENODEV || !strstr(why, "fork()"))
			_exit(1);
		*why = '\0';
		r = gm_map_pinned_new(false, &pinned, why);
		_exit(r != -ENODEV || !strstr(why, "fork()") ? 2 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(without_a_driver_the_reason_is_told)
{
	uint8_t any[GM_UUID_BYTES] = {0};

	setenv("GPUMEM_FAKE_FAIL", "cuInit:0:100", 1);
	ck_assert_int_eq(gm_map_cuda_new(any, &map, why), -ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_ERROR_NO_DEVICE"));
}
END_TEST

START_TEST(peers_are_given_access_where_they_can_reach_it)
{
	uint8_t none[GM_UUID_BYTES] = {1, 2, 3};

	if (_i)
		setenv("GPUMEM_FAKE_WITHOUT", "p2p", 1);
	open_it();
	ck_assert_int_eq(gm_map_cuda_add_peer(map, none), -ENODEV);
	ck_assert_int_eq(gm_map_cuda_add_peer(map, uuids[0]), 0); /* itself */
	ck_assert_int_eq(gm_map_cuda_add_peer(map, uuids[1]), _i ? -EOPNOTSUPP : 0);
	ck_assert_int_eq(gm_map_cuda_add_peer(map, uuids[1]), _i ? -EOPNOTSUPP : 0);
	char *addr = reserve();
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	use(1);
	ck_assert_int_eq(set(addr, M, 3), _i ? GM_CUDA_ERROR_INVALID_VALUE : 0);
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
}
END_TEST

START_TEST(closing_when_the_driver_is_gone_only_frees)
{
	struct gm_map_event *event;

	open_it();
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	setenv("GPUMEM_FAKE_FAIL", "cuCtxGetCurrent:0:4,cuDevicePrimaryCtxRelease:0:4", 1);
	ops->close(map);
	gm_map_cuda_ops()->close(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map_cuda");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, chunks_are_mapped_side_by_side_moved_and_unmapped);
	tcase_add_test(tcase, what_is_no_handle_is_refused_without_a_word_of_the_driver);
	tcase_add_test(tcase, a_thread_without_a_context_has_none_afterwards);
	tcase_add_loop_test(tcase, the_programs_own_context_stays_current, 0, 2);
	tcase_add_test(tcase, the_threads_capture_mode_is_as_it_was);
	tcase_add_test(tcase, a_call_of_others_runs_in_a_context_of_the_device);
	tcase_add_test(tcase, a_driver_out_of_memory_is_not_the_host_out_of_memory);
	tcase_add_loop_test(tcase, a_call_that_fails_is_named_and_leaves_all_as_it_was, 0,
		(int)(sizeof failures / sizeof *failures));
	tcase_add_test(tcase, a_device_that_the_process_does_not_see_is_not_found);
	tcase_add_test(tcase, a_child_of_a_process_that_had_started_cuda_is_told_so);
	tcase_add_test(tcase, without_a_driver_the_reason_is_told);
	tcase_add_loop_test(tcase, peers_are_given_access_where_they_can_reach_it, 0, 2);
	tcase_add_test(tcase, closing_when_the_driver_is_gone_only_frees);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
