/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What we rely on in the driver, as tests that run on a real GPU and on the fake driver alike: one
 * source, the same outcomes. Where they differ, the fake is wrong. The broker's design rests on
 * these facts; when a driver breaks one of them, this says so first.
 *
 * The sizes are small, so that they fit a fake device of 512 MiB.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cuda_abi.h"
#include "tests/gpu/puppet.h"

#define MIB  ((uint64_t)1 << 20)
#define RW   GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define FULL (64 * MIB)

static int tests, failures, wrong_here;

static void test_end(const char *name)
{
	tests++;
	failures += wrong_here != 0;
	printf("%sok %d - %s\n", wrong_here ? "not " : "", tests, name);
	fflush(stdout);
	wrong_here = 0;
}

/* The outcome of a call. */
static void expect(const char *what, int result, int wanted)
{
	if (result == wanted)
		return;
	wrong_here++;
	printf("# %s: %s", what, puppet_result_name(result));
	printf(", wanted %s\n", puppet_result_name(wanted));
}

static void expect_value(const char *what, uint64_t value, uint64_t wanted)
{
	if (value == wanted)
		return;
	wrong_here++;
	printf("# %s: %llu, wanted %llu\n", what, (unsigned long long)value,
		(unsigned long long)wanted);
}

static void expect_true(const char *what, bool truth)
{
	if (truth)
		return;
	wrong_here++;
	printf("# not so: %s\n", what);
}

#define OK(p, op, ...) \
	({ \
		struct puppet_answer answer_ = PUPPET(p, op, __VA_ARGS__); \
		expect(#op, answer_.result, GM_CUDA_SUCCESS); \
		answer_.value; \
	})
#define GIVES(wanted, p, op, ...) \
	expect(#op " " #__VA_ARGS__, PUPPET(p, op, __VA_ARGS__).result, wanted)

/* A puppet that has begun; with a context where asked. */
static struct puppet begin(bool context)
{
	struct puppet p = puppet_start(0);

	OK(&p, INIT, .a = 0);
	if (context)
		OK(&p, CONTEXT, .a = 0);
	return p;
}

/* Reserves, maps and opens a handle for the device. */
static uint64_t map_at(struct puppet *p, uint64_t handle, uint64_t bytes)
{
	uint64_t va = OK(p, RESERVE, .a = bytes);

	OK(p, MAP, .a = va, .b = bytes, .c = handle);
	OK(p, ACCESS, .a = va, .b = bytes, .c = RW, .d = 0);
	return va;
}

static int export_fd(struct puppet *p, uint64_t handle)
{
	int fd = -1;
	struct puppet_answer answer =
		puppet_do(p, &(struct puppet_call){.op = PUPPET_EXPORT, .a = handle}, -1, &fd);

	expect("EXPORT", answer.result, GM_CUDA_SUCCESS);
	return fd;
}

static struct puppet_answer import_fd(struct puppet *p, int fd)
{
	return puppet_do(p, &(struct puppet_call){.op = PUPPET_IMPORT}, fd, NULL);
}

/* What the device has free, as one that uses it no further sees it. */
static uint64_t free_now(struct puppet *watcher)
{
	return OK(watcher, NVML_FREE, .a = 0);
}

/* Memory comes back some time after the end of a process: waits, with a bound, for at least that
 * much. */
static bool comes_back(struct puppet *watcher, uint64_t wanted)
{
	for (int i = 0; i < 500; i++) {
		if (free_now(watcher) >= wanted)
			return true;
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	}
	printf("# free is %llu, wanted %llu\n", (unsigned long long)free_now(watcher),
		(unsigned long long)wanted);
	return false;
}

/* ---- physical memory without a context */

static void creating_and_exporting_needs_no_context(void)
{
	struct puppet owner = begin(false), user = begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	int fd = export_fd(&owner, handle);
	struct puppet_answer imported = import_fd(&user, fd);
	uint64_t va;

	expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	va = map_at(&user, imported.value, FULL);
	OK(&user, SET, .a = va, .b = FULL, .c = 0x5a);
	expect_value("bytes read back", OK(&user, COUNT, .a = va, .b = FULL, .c = 0x5a), FULL);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	test_end("memory is created and exported without a context, and used in another process");
}

static void sizes_that_are_not_whole_are_refused(void)
{
	struct puppet p = begin(true);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, CREATE, .a = MIB, .b = 0, .c = 1);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, CREATE, .a = 0, .b = 0, .c = 1);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, RESERVE, .a = 0);
	puppet_stop(&p);
	test_end("sizes that are not whole multiples of the granularity are refused");
}

static void more_than_there_is_is_out_of_memory(void)
{
	struct puppet p = begin(true);
	uint64_t before = PUPPET(&p, NVML_FREE, .a = 0).value2;

	GIVES(GM_CUDA_ERROR_OUT_OF_MEMORY, &p, CREATE, .a = (before * 2) & ~(2 * MIB - 1), .b = 0,
		.c = 1);
	GIVES(GM_CUDA_ERROR_OUT_OF_MEMORY, &p, ALLOC, .a = before * 2);
	puppet_stop(&p);
	test_end("more than the device has is refused as out of memory");
}

static void an_importer_cannot_export(void)
{
	struct puppet owner = begin(false), user = begin(false);
	int fd = export_fd(&owner, OK(&owner, CREATE, .a = 2 * MIB, .b = 0, .c = 1));
	struct puppet_answer imported = import_fd(&user, fd);

	expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &user, EXPORT, .a = imported.value);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	test_end("an importer cannot export again");
}

static void what_was_not_made_for_it_cannot_be_exported(void)
{
	struct puppet p = begin(false);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 0);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, EXPORT, .a = handle);
	puppet_stop(&p);
	test_end("memory that was not made for it cannot be exported");
}

static void a_foreign_fd_is_refused(void)
{
	struct puppet p = begin(false);
	int pair[2];

	if (pipe(pair) == 0) {
		int result = import_fd(&p, pair[0]).result;
		expect_true("importing a pipe fails", result != GM_CUDA_SUCCESS);
		close(pair[0]);
		close(pair[1]);
	}
	puppet_stop(&p);
	test_end("an fd that is no memory is refused");
}

static void fresh_memory_is_zero(void)
{
	struct puppet dirty = begin(true), watcher = begin(false), clean;
	uint64_t before = free_now(&watcher);
	uint64_t va = map_at(&dirty, OK(&dirty, CREATE, .a = FULL, .b = 0, .c = 1), FULL);

	OK(&dirty, SET, .a = va, .b = FULL, .c = 0xff);
	OK(&dirty, SYNC, .a = 0);
	puppet_kill(&dirty);
	expect_true("its memory came back", comes_back(&watcher, before));
	clean = begin(true);
	va = map_at(&clean, OK(&clean, CREATE, .a = FULL, .b = 0, .c = 1), FULL);
	expect_value("zero bytes", OK(&clean, COUNT, .a = va, .b = FULL, .c = 0), FULL);
	va = OK(&clean, ALLOC, .a = FULL);
	expect_value("zero bytes of a plain allocation",
		OK(&clean, COUNT, .a = va, .b = FULL, .c = 0), FULL);
	puppet_stop(&clean);
	puppet_stop(&watcher);
	test_end("fresh memory is zero, also after another process filled the device and died");
}

/* ---- life and death */

static void memory_outlives_its_maker_in_an_fd(void)
{
	struct puppet owner = begin(true), next = begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	uint64_t va = map_at(&owner, handle, FULL);
	int fd = export_fd(&owner, handle); /* this process never used CUDA */
	struct puppet_answer imported;

	OK(&owner, SET, .a = va, .b = FULL, .c = 0x77);
	OK(&owner, SYNC, .a = 0);
	puppet_kill(&owner);
	imported = import_fd(&next, fd);
	expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	va = map_at(&next, imported.value, FULL);
	expect_value("bytes kept", OK(&next, COUNT, .a = va, .b = FULL, .c = 0x77), FULL);
	close(fd);
	puppet_stop(&next);
	test_end("memory outlives its maker in an fd held by a process that never used CUDA");
}

static void a_client_computes_on_after_the_owner_died(void)
{
	struct puppet owner = begin(false), user = begin(true);
	int fd = export_fd(&owner, OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1));
	uint64_t va = map_at(&user, import_fd(&user, fd).value, FULL);

	close(fd);
	OK(&user, SET, .a = va, .b = FULL, .c = 1);
	puppet_kill(&owner);
	expect_value("bytes kept", OK(&user, COUNT, .a = va, .b = FULL, .c = 1), FULL);
	OK(&user, SET, .a = va, .b = FULL, .c = 2);
	expect_value("bytes written after", OK(&user, COUNT, .a = va, .b = FULL, .c = 2), FULL);
	puppet_stop(&user);
	test_end("a client reads and writes on after the owner was killed");
}

static void nothing_comes_back_while_somebody_maps_it(void)
{
	struct puppet watcher = begin(false), owner = begin(false), user = begin(true);
	uint64_t before = free_now(&watcher);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	int fd = export_fd(&owner, handle);
	uint64_t imported = import_fd(&user, fd).value;
	uint64_t va = map_at(&user, imported, FULL);

	close(fd);
	OK(&user, RELEASE, .a = imported);
	OK(&owner, RELEASE, .a = handle);
	expect_true("still used", free_now(&watcher) <= before - FULL);
	OK(&user, UNMAP, .a = va, .b = FULL);
	expect_true("back after the unmap", comes_back(&watcher, before));
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	test_end("released memory comes back only when the last mapping is gone");
}

static void a_forked_child_keeps_its_dead_parents_memory(void)
{
	struct puppet watcher = begin(false), user;
	uint64_t before = free_now(&watcher);
	pid_t child;

	user = begin(true);
	map_at(&user, OK(&user, CREATE, .a = FULL, .b = 0, .c = 1), FULL);
	child = (pid_t)OK(&user, FORK, .a = 0);
	puppet_kill(&user);
	expect_true("the child keeps it used", free_now(&watcher) <= before - FULL);
	kill(child, SIGKILL);
	expect_true("back when the child ended too", comes_back(&watcher, before));
	puppet_stop(&watcher);
	test_end("a forked child keeps its dead parent's memory used until it ends");
}

static void a_forked_child_cannot_call_the_driver(void)
{
	struct puppet p = begin(true);

	GIVES(GM_CUDA_ERROR_NOT_INITIALIZED, &p, FORK_CALL, .a = 0);
	puppet_stop(&p);
	test_end("a forked child's calls fail as not initialised");
}

/* ---- mapping */

static void mapping_follows_the_rules(void)
{
	struct puppet p = begin(true);
	uint64_t a = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	uint64_t b = OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1);
	uint64_t va = OK(&p, RESERVE, .a = 16 * MIB);

	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	GIVES(GM_CUDA_SUCCESS, &p, UNMAP, .a = va, .b = 2 * MIB); /* holds nothing: no error */
	OK(&p, MAP, .a = va, .b = 2 * MIB, .c = a);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, MAP, .a = va, .b = 4 * MIB, .c = b);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, SET, .a = va, .b = 2 * MIB, .c = 1);
	OK(&p, MAP, .a = va + 2 * MIB, .b = 4 * MIB, .c = b);
	OK(&p, ACCESS, .a = va, .b = 6 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 6 * MIB, .c = 9);
	expect_value("set over the border of two chunks",
		OK(&p, COUNT, .a = va, .b = 6 * MIB, .c = 9), 6 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, ACCESS, .a = va, .b = 8 * MIB, .c = RW, .d = 0);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, UNRESERVE, .a = va, .b = 16 * MIB);
	OK(&p, MAP, .a = va + 8 * MIB, .b = 2 * MIB, .c = a); /* once more, elsewhere */
	OK(&p, ACCESS, .a = va + 8 * MIB, .b = 2 * MIB, .c = RW, .d = 0);
	expect_value("the same memory at both places",
		OK(&p, COUNT, .a = va + 8 * MIB, .b = 2 * MIB, .c = 9), 2 * MIB);
	OK(&p, UNMAP, .a = va, .b = 6 * MIB); /* two at once */
	OK(&p, UNMAP, .a = va + 8 * MIB, .b = 2 * MIB);
	OK(&p, UNRESERVE, .a = va, .b = 16 * MIB);
	puppet_stop(&p);
	test_end("mapping, access and unmapping follow the rules");
}

static void a_mapped_chunk_can_be_moved(void)
{
	struct puppet p = begin(true);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), again;
	uint64_t va = OK(&p, RESERVE, .a = 8 * MIB);

	OK(&p, MAP, .a = va, .b = 2 * MIB, .c = handle);
	OK(&p, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 0x33);
	OK(&p, SYNC, .a = 0);
	OK(&p, RELEASE, .a = handle); /* the mapping keeps it */
	again = OK(&p, RETAIN, .a = va);
	OK(&p, UNMAP, .a = va, .b = 2 * MIB);
	OK(&p, MAP, .a = va + 4 * MIB, .b = 2 * MIB, .c = again);
	OK(&p, ACCESS, .a = va + 4 * MIB, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&p, RELEASE, .a = again);
	expect_value("the bytes moved along",
		OK(&p, COUNT, .a = va + 4 * MIB, .b = 2 * MIB, .c = 0x33), 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, RETAIN, .a = va);
	puppet_stop(&p);
	test_end("a chunk whose handle was released can be moved by retaining it from its address");
}

static void host_chunks_serve_cpu_and_gpu(void)
{
	struct puppet owner = begin(false), user = begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = 4 * MIB, .b = (uint64_t)-1, .c = 1);
	int fd = export_fd(&owner, handle);
	uint64_t imported = import_fd(&user, fd).value;
	uint64_t va = OK(&user, RESERVE, .a = 8 * MIB);
	uint64_t device = OK(&user, CREATE, .a = 4 * MIB, .b = 0, .c = 1);

	close(fd);
	OK(&user, MAP, .a = va, .b = 4 * MIB, .c = imported);
	OK(&user, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = 0);
	OK(&user, ACCESS, .a = va, .b = 4 * MIB, .c = RW, .d = (uint64_t)-1);
	OK(&user, SET, .a = va, .b = 4 * MIB, .c = 0x44);
	OK(&user, SYNC, .a = 0);
	expect_value("what the GPU wrote, read by the CPU",
		OK(&user, CPU_COUNT, .a = va, .b = 4 * MIB, .c = 0x44), 4 * MIB);
	OK(&user, MAP, .a = va + 4 * MIB, .b = 4 * MIB, .c = device);
	OK(&user, ACCESS, .a = va + 4 * MIB, .b = 4 * MIB, .c = RW, .d = 0);
	/* One set may cross the border. One copy may not: the driver takes the whole for host
	 * memory, and the process dies. */
	OK(&user, SET, .a = va, .b = 8 * MIB, .c = 0x45);
	expect_value(
		"the host's half", OK(&user, COUNT, .a = va, .b = 4 * MIB, .c = 0x45), 4 * MIB);
	expect_value("the device's half",
		OK(&user, COUNT, .a = va + 4 * MIB, .b = 4 * MIB, .c = 0x45), 4 * MIB);
	GIVES(GM_CUDA_ERROR_NOT_SUPPORTED, &user, ACCESS, .a = va + 4 * MIB, .b = 4 * MIB, .c = RW,
		.d = (uint64_t)-1);
	puppet_stop(&user);
	puppet_stop(&owner);
	test_end(
		"host chunks serve CPU and GPU, side by side with device chunks; the CPU cannot have those");
}

static void the_importer_chooses_its_access(void)
{
	struct puppet owner = begin(false), user = begin(true);
	int fd = export_fd(&owner, OK(&owner, CREATE, .a = 2 * MIB, .b = 0, .c = 1));
	uint64_t va = map_at(&user, import_fd(&user, fd).value, 2 * MIB);

	OK(&user, ACCESS, .a = va, .b = 2 * MIB, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READ, .d = 0);
	OK(&user, ACCESS, .a = va, .b = 2 * MIB, .c = RW, .d = 0);
	OK(&user, SET, .a = va, .b = 2 * MIB, .c = 4);
	OK(&user, SYNC, .a = 0);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	test_end("the importer chooses its own access");
}

/* ---- streams and events */

static void events_pass_when_their_work_is_done(void)
{
	struct puppet p = begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t on_s, on_t, on_all, after;

	OK(&p, BUSY, .a = s);
	on_s = OK(&p, EVENT, .a = s);
	on_t = OK(&p, EVENT, .a = t);
	on_all = OK(&p, CONTEXT_EVENT, .a = 0);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_s);
	OK(&p, SYNC, .a = t);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_t);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_all);
	OK(&p, WAIT_EVENT, .a = t, .b = on_s);
	after = OK(&p, EVENT, .a = t);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = after);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = t);
	OK(&p, SYNC, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = after);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_all);
	puppet_stop(&p);
	test_end("events pass when the work before them is done, and order other streams");
}

static void stream_ids_are_not_reused(void)
{
	struct puppet p = begin(true);
	uint64_t seen[8], stream, legacy = OK(&p, STREAM_ID, .a = 0);

	for (int i = 0; i < 8; i++) {
		stream = OK(&p, STREAM_NEW, .a = 0);
		seen[i] = OK(&p, STREAM_ID, .a = stream);
		OK(&p, STREAM_END, .a = stream);
		expect_true("differs from the default stream's", seen[i] != legacy);
		for (int j = 0; j < i; j++)
			expect_true("differs from an ended stream's", seen[i] != seen[j]);
	}
	expect_value("the default stream by either name",
		OK(&p, STREAM_ID, .a = GM_CU_STREAM_LEGACY), legacy);
	puppet_stop(&p);
	test_end("a stream's id is not given to another stream");
}

static void unmapping_does_not_wait_and_freeing_does(void)
{
	struct puppet p = begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t va = map_at(&p, OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);
	uint64_t plain = OK(&p, ALLOC, .a = 2 * MIB);

	OK(&p, BUSY, .a = s);
	OK(&p, UNMAP, .a = va, .b = 2 * MIB); /* would hang here if it waited */
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);
	OK(&p, FREE, .a = plain);
	puppet_stop(&p);
	test_end("unmapping does not wait for a busy stream");
}

static void capture_is_seen(void)
{
	struct puppet p = begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	expect_value("before", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	OK(&p, CAPTURE, .a = s);
	expect_value("during", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(&p, CAPTURE_END, .a = s);
	expect_value("after", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	puppet_stop(&p);
	test_end("a stream says that it is being captured");
}

static void a_context_event_breaks_a_capture(void)
{
	struct puppet p = begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	OK(&p, CAPTURE, .a = s);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, CONTEXT_EVENT, .a = 0);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	expect_value("after", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	puppet_stop(&p);
	test_end("an event on the whole context is refused during a capture, and breaks it");
}

static void asking_a_captured_stream_for_its_id_breaks_the_capture(void)
{
	struct puppet p = begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	OK(&p, CAPTURE, .a = s);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, STREAM_ID, .a = s);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	test_end("asking a captured stream for its id is refused, and breaks the capture");
}

/* ---- ipc */

static void ipc_handles_open_in_other_processes(void)
{
	struct puppet owner = begin(true), user = begin(true);
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), there, again;
	struct puppet_answer handle = PUPPET(&owner, IPC_GET, .a = ptr);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN};
	struct puppet_answer answer;

	expect("IPC_GET", handle.result, GM_CUDA_SUCCESS);
	memcpy(open.blob, handle.blob, sizeof open.blob);
	OK(&owner, SET, .a = ptr, .b = FULL, .c = 0x21);
	OK(&owner, SYNC, .a = 0);
	answer = puppet_do(&user, &open, -1, NULL);
	expect("IPC_OPEN", answer.result, GM_CUDA_SUCCESS);
	there = answer.value;
	expect_value("bytes seen", OK(&user, COUNT, .a = there, .b = FULL, .c = 0x21), FULL);
	answer = puppet_do(&user, &open, -1, NULL);
	expect("IPC_OPEN again", answer.result, GM_CUDA_SUCCESS);
	/* The client's tables count in steps of 2 MiB. */
	expect_value("its address, past a multiple of 2 MiB", there % ((uint64_t)2 << 20), 0);
	again = answer.value;
	expect_value("the same address the second time", again, there);
	OK(&user, IPC_CLOSE, .a = there);
	expect_value("open until the last close",
		OK(&user, COUNT, .a = there, .b = FULL, .c = 0x21), FULL);
	OK(&user, IPC_CLOSE, .a = again);
	expect("IPC_OPEN in the owner", puppet_do(&owner, &open, -1, NULL).result,
		GM_CUDA_ERROR_INVALID_CONTEXT);
	puppet_stop(&user);
	puppet_stop(&owner);
	test_end(
		"an IPC handle opens in another process, twice at one address, and not in its own");
}

static void an_ipc_client_computes_on_after_the_owner_died(void)
{
	struct puppet watcher = begin(false), owner = begin(true), user = begin(true);
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), there;
	struct puppet_call open = {.op = PUPPET_IPC_OPEN};
	uint64_t used;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	there = puppet_do(&user, &open, -1, NULL).value;
	OK(&user, SET, .a = there, .b = FULL, .c = 3);
	OK(&user, SYNC, .a = 0);
	used = free_now(&watcher);
	puppet_kill(&owner);
	expect_value("bytes kept", OK(&user, COUNT, .a = there, .b = FULL, .c = 3), FULL);
	OK(&user, SET, .a = there, .b = FULL, .c = 4);
	expect_value("bytes written after", OK(&user, COUNT, .a = there, .b = FULL, .c = 4), FULL);
	puppet_stop(&user);
	expect_true("back when both are gone", comes_back(&watcher, used + FULL));
	puppet_stop(&watcher);
	test_end("an ipc client reads and writes on after the owner was killed");
}

static void ipc_nonsense_is_refused(void)
{
	struct puppet user = begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN};

	memset(open.blob, 0xab, sizeof open.blob);
	expect_true("a handle of nonsense fails",
		puppet_do(&user, &open, -1, NULL).result != GM_CUDA_SUCCESS);
	puppet_stop(&user);
	test_end("an IPC handle of nonsense is refused");
}

/* ---- figures */

static void nvml_and_the_driver_agree(void)
{
	struct puppet p = begin(true);
	struct puppet_answer driver = PUPPET(&p, MEM_INFO, .a = 0);
	struct puppet_answer nvml = PUPPET(&p, NVML_FREE, .a = 0);

	expect("MEM_INFO", driver.result, GM_CUDA_SUCCESS);
	expect("NVML_FREE", nvml.result, GM_CUDA_SUCCESS);
	expect_value("free", nvml.value, driver.value);
	expect_true("NVML's total counts more", nvml.value2 > driver.value2);
	puppet_stop(&p);
	test_end("NVML's free is the driver's, its total is more than can be had");
}

static void a_context_costs_memory(void)
{
	struct puppet watcher = begin(false), p = begin(false);
	uint64_t before = free_now(&watcher);

	OK(&p, CONTEXT, .a = 0);
	expect_true("less is free", free_now(&watcher) < before);
	puppet_stop(&p);
	expect_true("and comes back", comes_back(&watcher, before));
	puppet_stop(&watcher);
	test_end("a context costs device memory, which comes back with the process's end");
}

static bool listed(struct puppet *watcher, const struct puppet *p)
{
	return PUPPET(watcher, NVML_PROCESS, .a = 0, .b = (uint64_t)p->pid).value2;
}

static uint64_t said_of(struct puppet *watcher, const struct puppet *p)
{
	return OK(watcher, NVML_PROCESS, .a = 0, .b = (uint64_t)p->pid);
}

/* So what NVML says of a client is what it uses besides the broker's memory. */
static void nvml_counts_a_process_for_what_it_made_and_not_for_what_it_imports(void)
{
	struct puppet watcher = begin(false), owner = begin(false), user = begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1), context, imported, va;
	int fd = export_fd(&owner, handle);

	expect_true("without a context it is not listed", !listed(&watcher, &owner));
	context = said_of(&watcher, &user);
	expect_true("with one it is", listed(&watcher, &user) && context > 0);
	imported = import_fd(&user, fd).value;
	va = OK(&user, RESERVE, .a = FULL);
	OK(&user, MAP, .a = va, .b = FULL, .c = imported);
	OK(&user, ACCESS, .a = va, .b = FULL, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE, .d = 0);
	expect_value("after mapping another's memory", said_of(&watcher, &user), context);
	OK(&user, ALLOC, .a = FULL);
	expect_value("after allocating", said_of(&watcher, &user), context + FULL);
	OK(&user, CREATE, .a = FULL, .b = 0, .c = 1);
	expect_value("after creating", said_of(&watcher, &user), context + 2 * FULL);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	test_end(
		"NVML lists processes with a context, and counts what they made, not what they import");
}

static void exported_fds_close_on_exec(void)
{
	struct puppet p = begin(false);
	uint64_t handle = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);

	expect_value("FD_CLOEXEC", OK(&p, FD_FLAGS, .a = handle), 1);
	puppet_stop(&p);
	test_end("an exported fd is closed on exec");
}

int main(int argc, char **argv)
{
	puppet_main(argc, argv);
	creating_and_exporting_needs_no_context();
	sizes_that_are_not_whole_are_refused();
	more_than_there_is_is_out_of_memory();
	an_importer_cannot_export();
	what_was_not_made_for_it_cannot_be_exported();
	a_foreign_fd_is_refused();
	fresh_memory_is_zero();
	memory_outlives_its_maker_in_an_fd();
	a_client_computes_on_after_the_owner_died();
	nothing_comes_back_while_somebody_maps_it();
	a_forked_child_keeps_its_dead_parents_memory();
	a_forked_child_cannot_call_the_driver();
	mapping_follows_the_rules();
	a_mapped_chunk_can_be_moved();
	host_chunks_serve_cpu_and_gpu();
	the_importer_chooses_its_access();
	events_pass_when_their_work_is_done();
	stream_ids_are_not_reused();
	unmapping_does_not_wait_and_freeing_does();
	capture_is_seen();
	a_context_event_breaks_a_capture();
	asking_a_captured_stream_for_its_id_breaks_the_capture();
	ipc_handles_open_in_other_processes();
	an_ipc_client_computes_on_after_the_owner_died();
	ipc_nonsense_is_refused();
	nvml_and_the_driver_agree();
	a_context_costs_memory();
	nvml_counts_a_process_for_what_it_made_and_not_for_what_it_imports();
	exported_fds_close_on_exec();
	printf("1..%d\n", tests);
	return failures != 0;
}
