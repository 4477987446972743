/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver where no real one is its measure (run it with tests/fake/with-fake-gpu -n 2):
 * what kills a process on a GPU or is undefined there, and what takes two GPUs. All else is in the
 * conformance suite, which runs on both. Each test is a process of its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "tests/tap.h"

#define M        ((size_t)2 << 20)
#define DEVICE   GM_CU_MEM_LOCATION_TYPE_DEVICE
#define HOST     GM_CU_MEM_LOCATION_TYPE_HOST_NUMA
#define RW       GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define CU(call) ck_assert_int_eq(cuda->call, GM_CUDA_SUCCESS)

static const struct gm_cuda *cuda;

static void load(void)
{
	char why[GM_CUDA_WHY_BYTES];

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
}

static gm_cu_ctx use_device(int device)
{
	gm_cu_ctx context;

	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	return context;
}

static gm_cu_mem create(int location)
{
	gm_cu_prop prop = {
		.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = location}};
	gm_cu_mem mem;

	CU(cuMemCreate(&mem, M, &prop, 0));
	return mem;
}

/* Two chunks side by side, which device 0 may use. */
static gm_cu_ptr side_by_side(int first, int second, int flags)
{
	gm_cu_access access = {.location = {.type = DEVICE}, .flags = flags};
	gm_cu_ptr va;

	CU(cuMemAddressReserve(&va, 2 * M, 0, 0, 0));
	CU(cuMemMap(va, M, 0, create(first), 0));
	CU(cuMemMap(va + M, M, 0, create(second), 0));
	CU(cuMemSetAccess(va, 2 * M, &access, 1));
	return va;
}

/* ---- what ends the program */

/* Runs fn in a process, which must be aborted by the driver, with a line that says in which call
 * and why. */
static void ends(void (*fn)(int), int arg, const char *call, const char *cause)
{
	char text[4096] = "";
	size_t n = 0;
	ssize_t got;
	int status, pair[2];
	pid_t pid;

	ck_assert_int_eq(pipe(pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		dup2(pair[1], STDERR_FILENO);
		load();
		use_device(0);
		fn(arg);
		_exit(0);
	}
	close(pair[1]);
	while ((got = read(pair[0], text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)got;
	close(pair[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
		"the program ended with wait status %x", (unsigned)status);
	ck_assert_msg(strstr(text, "fake driver: ") && strstr(text, call) && strstr(text, cause),
		"it said: %s", text);
}

static void copy_across(int arg)
{
	gm_cu_ptr mixed = arg & 1 ? side_by_side(HOST, DEVICE, RW) : side_by_side(DEVICE, HOST, RW);
	gm_cu_ptr plain;

	CU(cuMemAlloc(&plain, 2 * M));
	CU(cuMemsetD8Async(mixed, 1, 2 * M, NULL)); /* a set may */
	CU(cuStreamSynchronize(NULL));
	cuda->cuMemcpyAsync(arg & 2 ? mixed : plain, arg & 2 ? plain : mixed, 2 * M, NULL);
}

START_TEST(a_copy_across_a_host_chunk_and_a_device_chunk_ends_the_program)
{
	ends(copy_across, _i, "cuMemcpyAsync", "border");
}
END_TEST

static void use_ended_stream(int arg)
{
	gm_cu_capture_status status;
	gm_cu_stream stream;

	CU(cuStreamCreate(&stream, 0));
	CU(cuStreamDestroy(stream));
	switch (arg) {
	case 0:
		cuda->cuStreamSynchronize(stream);
		break;
	case 1:
		cuda->cuStreamIsCapturing(stream, &status);
		break;
	case 2:
		cuda->cuStreamDestroy(stream);
	}
}

START_TEST(a_stream_used_after_its_end_ends_the_program)
{
	static const char *const calls[] = {
		"cuStreamSynchronize", "cuStreamIsCapturing", "cuStreamDestroy"};

	ends(use_ended_stream, _i, calls[_i], "destroyed");
}
END_TEST

static void use_ended_event(int arg)
{
	gm_cu_event event;

	CU(cuEventCreate(&event, GM_CU_EVENT_DISABLE_TIMING));
	CU(cuEventDestroy(event));
	switch (arg) {
	case 0:
		cuda->cuEventQuery(event);
		break;
	case 1:
		cuda->cuEventRecord(event, NULL);
		break;
	case 2:
		cuda->cuEventDestroy(event);
	}
}

START_TEST(an_event_used_after_its_end_ends_the_program)
{
	static const char *const calls[] = {"cuEventQuery", "cuEventRecord", "cuEventDestroy"};

	ends(use_ended_event, _i, calls[_i], "destroyed");
}
END_TEST

/* An event goes with its context. */
static void use_event_of_ended_context(int arg)
{
	gm_cu_event event;

	(void)arg;
	CU(cuEventCreate(&event, GM_CU_EVENT_DISABLE_TIMING));
	CU(cuDevicePrimaryCtxRelease(0));
	cuda->cuEventQuery(event);
}

static void release_twice(int arg)
{
	gm_cu_mem mem = create(DEVICE);

	(void)arg;
	CU(cuMemRelease(mem));
	cuda->cuMemRelease(mem);
}

static void push_for_ever(int arg)
{
	gm_cu_ctx context = use_device(0);

	(void)arg;
	while (cuda->cuCtxPushCurrent(context) == GM_CUDA_SUCCESS)
		;
}

static void push_ended_context(int arg)
{
	gm_cu_ctx context;

	(void)arg;
	CU(cuCtxCreate(&context, 0, 0));
	CU(cuCtxDestroy(context));
	cuda->cuCtxPushCurrent(context);
}

START_TEST(what_is_undefined_ends_the_program)
{
	ends(use_event_of_ended_context, 0, "cuEventQuery", "destroyed");
	ends(release_twice, 0, "cuMemRelease", "released");
	ends(push_ended_context, 0, "cuCtxPushCurrent", "destroyed");
	ends(push_for_ever, 0, "cuCtxPushCurrent", "not popped");
}
END_TEST

/* ---- what makes a context fail */

START_TEST(writing_to_what_may_be_read_only_makes_the_context_fail)
{
	gm_cu_ptr va, plain;

	load();
	use_device(0);
	va = side_by_side(DEVICE, DEVICE, GM_CU_MEM_ACCESS_FLAGS_PROT_READ);
	CU(cuMemAlloc(&plain, 2 * M));
	CU(cuMemcpyAsync(plain, va, 2 * M, NULL));
	CU(cuStreamSynchronize(NULL));
	if (_i)
		cuda->cuMemcpyAsync(va, plain, 2 * M, NULL);
	else
		cuda->cuMemsetD8Async(va, 1, 2 * M, NULL);
	ck_assert_int_eq(cuda->cuStreamSynchronize(NULL), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cuda->cuMemsetD8Async(plain, 1, M, NULL), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

static sem_t gate, past;

static void wait_at_gate(void *unused)
{
	(void)unused;
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

static void say_past(void *unused)
{
	(void)unused;
	sem_post(&past);
}

/* Seen on a GPU, where nobody can know that an error is there without a call that tells of it. */
START_TEST(what_is_free_is_told_until_another_call_tells_of_the_error)
{
	size_t free_bytes, total;
	gm_cu_stream stream;
	gm_cu_ptr va;

	load();
	use_device(0);
	sem_init(&gate, 0, 0);
	sem_init(&past, 0, 0);
	va = side_by_side(DEVICE, DEVICE, RW);
	CU(cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cuLaunchHostFunc(stream, wait_at_gate, NULL));
	CU(cuMemsetD8Async(va, 1, M, stream));
	CU(cuLaunchHostFunc(stream, say_past, NULL));
	CU(cuMemUnmap(va, M));
	sem_post(&gate);
	while (sem_wait(&past) < 0 && errno == EINTR)
		;
	CU(cuMemGetInfo(&free_bytes, &total));
	ck_assert_int_eq(cuda->cuMemAlloc(&va, M), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cuda->cuMemGetInfo(&free_bytes, &total), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(work_beyond_an_allocation_is_refused)
{
	gm_cu_ptr plain, other;

	load();
	use_device(0);
	CU(cuMemAlloc(&plain, M));
	CU(cuMemAlloc(&other, 2 * M));
	ck_assert_int_eq(cuda->cuMemsetD8Async(plain, 1, M + 1, NULL), GM_CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuda->cuMemcpyAsync(other, plain, 2 * M, NULL), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cuMemcpyAsync(other + M, plain, M, NULL));
	CU(cuStreamSynchronize(NULL));
}
END_TEST

/* ---- two devices */

START_TEST(an_event_belongs_to_the_device_it_was_made_on)
{
	gm_cu_ctx first, second;
	gm_cu_stream stream;
	gm_cu_event event;

	load();
	first = use_device(0);
	CU(cuEventCreate(&event, GM_CU_EVENT_DISABLE_TIMING));
	second = use_device(1);
	CU(cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	ck_assert_int_eq(cuda->cuEventRecord(event, stream), GM_CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuda->cuEventRecord(event, NULL), GM_CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuda->cuCtxRecordEvent(second, event), GM_CUDA_ERROR_INVALID_HANDLE);
	CU(cuCtxRecordEvent(first, event));
	CU(cuStreamWaitEvent(stream, event, 0)); /* any may wait for it */
	CU(cuStreamSynchronize(stream));
	CU(cuCtxSetCurrent(first));
	CU(cuEventRecord(event, NULL));
}
END_TEST

START_TEST(a_context_event_covers_its_device_and_no_other)
{
	gm_cu_result (*begin)(gm_cu_stream, int);
	gm_cu_result (*end)(gm_cu_stream, void **);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *graph = NULL;
	gm_cu_ctx first;
	gm_cu_stream stream;
	gm_cu_event event;

	load();
	*(void **)&begin = dlsym(library, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(library, "cuStreamEndCapture");
	first = use_device(0);
	CU(cuEventCreate(&event, GM_CU_EVENT_DISABLE_TIMING));
	use_device(1);
	CU(cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	ck_assert_int_eq(begin(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	CU(cuCtxRecordEvent(first, event));
	ck_assert_int_eq(end(stream, &graph), 0);
}
END_TEST

/* A process that has memory of device 1 until the pipe's other end is closed. */
static void owner(int out, int in)
{
	gm_cu_ipc_mem handle;
	gm_cu_ptr ptr;
	char byte;

	load();
	use_device(1);
	CU(cuMemAlloc(&ptr, M));
	CU(cuIpcGetMemHandle(&handle, ptr));
	ck_assert_int_eq(write(out, &handle, sizeof handle), sizeof handle);
	_exit(read(in, &byte, 1) == 0 ? 0 : 1);
}

START_TEST(an_ipc_handle_opens_where_its_device_is_seen_and_reached)
{
	static const struct {
		const char *name, *value;
		int result;
	} cases[] = {
		{"GPUMEM_FAKE_WITHOUT", "", GM_CUDA_SUCCESS},
		{"GPUMEM_FAKE_WITHOUT", "p2p", GM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
		{"GPUMEM_FAKE_WITHOUT", "ipc", GM_CUDA_ERROR_NOT_SUPPORTED},
		{"CUDA_VISIBLE_DEVICES", "0", GM_CUDA_ERROR_INVALID_DEVICE},
	};
	gm_cu_ipc_mem handle;
	int from[2], to[2], status;
	gm_cu_ptr ptr;
	pid_t pid;

	ck_assert_int_eq(pipe(from), 0);
	ck_assert_int_eq(pipe(to), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(to[1]);
		owner(from[1], to[0]);
	}
	close(to[0]);
	close(from[1]);
	ck_assert_int_eq(read(from[0], &handle, sizeof handle), sizeof handle);
	setenv(cases[_i].name, cases[_i].value, 1);
	load();
	use_device(0);
	ck_assert_int_eq(
		cuda->cuIpcOpenMemHandle(&ptr, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		cases[_i].result);
	close(to[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- forks */

static atomic_bool enough;

static void *call_for_ever(void *unused)
{
	int n;

	(void)unused;
	while (!atomic_load(&enough))
		CU(cuDeviceGetCount(&n));
	return NULL;
}

/* The other thread may be anywhere in the driver when a child is made. */
START_TEST(a_child_forked_amid_calls_of_another_thread_is_refused_and_does_not_hang)
{
	pthread_t thread;
	int status = 0;

	load();
	ck_assert_int_eq(pthread_create(&thread, NULL, call_for_ever, NULL), 0);
	for (int i = 0; i < 500 && status == 0; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			int n;
			alarm(5);
			_exit(cuda->cuDeviceGetCount(&n) != GM_CUDA_ERROR_NOT_INITIALIZED);
		}
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	atomic_store(&enough, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fake");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_loop_test(
		tcase, a_copy_across_a_host_chunk_and_a_device_chunk_ends_the_program, 0, 4);
	tcase_add_loop_test(tcase, a_stream_used_after_its_end_ends_the_program, 0, 3);
	tcase_add_loop_test(tcase, an_event_used_after_its_end_ends_the_program, 0, 3);
	tcase_add_test(tcase, what_is_undefined_ends_the_program);
	tcase_add_loop_test(tcase, writing_to_what_may_be_read_only_makes_the_context_fail, 0, 2);
	tcase_add_test(tcase, what_is_free_is_told_until_another_call_tells_of_the_error);
	tcase_add_test(tcase, work_beyond_an_allocation_is_refused);
	tcase_add_test(tcase, an_event_belongs_to_the_device_it_was_made_on);
	tcase_add_test(tcase, a_context_event_covers_its_device_and_no_other);
	tcase_add_loop_test(tcase, an_ipc_handle_opens_where_its_device_is_seen_and_reached, 0, 4);
	tcase_add_test(
		tcase, a_child_forked_amid_calls_of_another_thread_is_refused_and_does_not_hang);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
