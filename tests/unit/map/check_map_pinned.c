/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory in a client, over the fake driver (run it with tests/fake/with-fake-gpu -n 2),
 * in both of its kinds: each operation, events on several GPUs, and each call that can fail. Each
 * test is a process of its own, so what it puts into the environment is set before the driver is
 * loaded.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/map/map_pinned.h"
#include "tests/tap.h"
#include "tests/unit/map/map_fixture.h"

enum { OWN, MEMFD, KINDS };

static struct gm_map_pinned *map;
static bool memfd;

static void open_it(int kind)
{
	memfd = kind == MEMFD;
	ops = gm_map_pinned_ops(memfd);
	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	ck_assert_int_eq(gm_map_pinned_new(memfd, &map, why), 0);
	ck_assert(ops->whole == memfd);
}

/* As the daemon hands it over. */
static int chunk(void)
{
	if (memfd) {
		int fd = memfd_create("chunk", MFD_CLOEXEC);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(ftruncate(fd, (off_t)M), 0);
		return fd;
	}
	return chunk_of(GM_CU_MEM_LOCATION_TYPE_HOST_NUMA);
}

static char *reserve(uint64_t chunks)
{
	return reserve_in(map, chunks);
}

static void map_at(void *addr)
{
	map_in(map, addr, chunk());
}

static bool has_context(int device)
{
	unsigned int flags;
	int active = 0;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxGetState(device, &flags, &active), 0);
	return active;
}

START_TEST(the_cpu_and_every_gpu_see_the_same_bytes_at_the_same_address)
{
	open_it(_i);
	use(0);
	char *addr = reserve(4);

	map_at(addr);
	map_at(addr + M);
	ck_assert_int_eq(ops->access(map, addr, 2 * M, false), 0);
	for (int device = 0; device < 2; device++) {
		use(device);
		ck_assert_int_eq(set(addr, M, (unsigned char)(10 + device)), 0);
		ck_assert_int_eq(addr[0], 10 + device);
		ck_assert_int_eq(addr[M - 1], 10 + device);
	}
	addr[2 * M - 1] = 77;
	ck_assert_int_eq(ops->unmap(map, addr, 2 * M), 0);
	/* The place can be used again, and is other memory then. */
	map_at(addr + M);
	ck_assert_int_eq(ops->access(map, addr + M, M, false), 0);
	ck_assert_int_eq(addr[2 * M - 1], 0);
	/* What is still mapped goes with the reservation. */
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
}
END_TEST

START_TEST(a_chunk_moves_where_it_is_mapped_by_itself_and_stays_where_it_is_registered_with_others)
{
	open_it(_i);
	use(0);
	char *addr = reserve(4);

	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	if (memfd) {
		ck_assert_int_eq(ops->move(map, addr, addr + 2 * M, M), -EOPNOTSUPP);
		addr[0] = 1; /* and is as it was */
		ck_assert_int_eq(set(addr, M, 2), 0);
	} else {
		ck_assert_int_eq(ops->move(map, addr, addr + 2 * M, M), 0);
		ck_assert_int_ne(set(addr, M, 1), 0);
		ck_assert_int_eq(ops->access(map, addr + 2 * M, M, false), 0);
		ck_assert_int_eq(set(addr + 2 * M, M, 3), 0);
		ck_assert_int_eq(addr[3 * M - 1], 3);
	}
	ops->unreserve(map, addr, 4 * M);
	ops->close(map);
}
END_TEST

/* ---- events */

START_TEST(an_event_passes_when_every_gpu_in_use_is_through)
{
	struct gm_map_event *event;

	open_it(_i);
	ck_assert_int_eq(sem_init(&gate, 0, 0), 0);
	use(1);
	gm_cu_stream busy = stream_new();
	ck_assert_int_eq(cuda->cuLaunchHostFunc(busy, wait_at_gate, NULL), 0);
	use(0); /* the other one is busy, this one is not */
	ck_assert_int_eq(ops->record(map, &event), 0);
	ck_assert_int_eq(ops->passed(map, event), 0);

	/* What is ordered behind it waits for the other GPU. */
	gm_cu_stream behind = stream_new();
	ck_assert_int_eq(ops->order(map, behind, event), 0);
	ck_assert_int_eq(cuda->cuStreamQuery(behind), GM_CUDA_ERROR_NOT_READY);
	sem_post(&gate);
	ck_assert_int_eq(cuda->cuStreamSynchronize(behind), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->forget(map, NULL);
	ops->close(map);
}
END_TEST

START_TEST(no_context_is_made_on_a_gpu_that_the_program_does_not_use)
{
	struct gm_map_event *event;
	uint64_t a, b;

	open_it(_i);
	ck_assert(!has_context(0) && !has_context(1));
	/* Nothing is under way anywhere. */
	ck_assert_int_eq(ops->record(map, &event), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ck_assert(!has_context(0) && !has_context(1));
	use(1);
	gm_cu_stream stream = stream_new();
	ck_assert_int_eq(ops->record(map, &event), 0);
	ck_assert_int_eq(ops->stream_id(map, stream, &a), 0);
	ck_assert_int_eq(ops->stream_id(map, stream_new(), &b), 0);
	ck_assert_uint_ne(a, b);
	ops->forget(map, event);
	char *addr = reserve(2);
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	ck_assert(!has_context(0));
	ops->unreserve(map, addr, 2 * M);
	ops->close(map);
}
END_TEST

START_TEST(a_thread_without_a_context_is_served_in_the_name_of_a_gpu_that_has_one)
{
	open_it(_i);
	use(1);
	ck_assert_int_eq(cuda->cuCtxSetCurrent(NULL), 0);
	char *addr = reserve(2);
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	addr[0] = 5;
	ck_assert(!has_context(0));
	ops->unreserve(map, addr, 2 * M);
	ops->close(map);
}
END_TEST

/* ---- what fails */

START_TEST(an_event_that_cannot_be_recorded_everywhere_leaves_nothing)
{
	struct gm_map_event *event = (struct gm_map_event *)1;

	/* On the first GPU it can be. */
	setenv("GPUMEM_FAKE_FAIL", "cuCtxRecordEvent:2:999", 1);
	open_it(_i);
	use(1);
	use(0);
	ck_assert_int_lt(ops->record(map, &event), 0);
	ck_assert_ptr_eq(event, (struct gm_map_event *)1); /* unwritten on failure */
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_UNKNOWN");
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(access_that_is_refused_leaves_the_place_to_others)
{
	setenv("GPUMEM_FAKE_FAIL", _i == OWN ? "cuMemSetAccess:1:1" : "cuMemHostRegister:1:2", 1);
	open_it(_i);
	use(0);
	char *addr = reserve(2);
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), _i == OWN ? -EINVAL : -ENOBUFS);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	ck_assert_int_eq(set(addr, M, 4), 0);
	ops->unreserve(map, addr, 2 * M);
	ops->close(map);
}
END_TEST

START_TEST(memory_that_is_only_read_is_registered_and_cannot_be_written_by_the_cpu)
{
	open_it(MEMFD);
	use(0);
	char *addr = reserve(2);
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, true), 0);
	ck_assert_int_eq(addr[0], 0);
	/* The kernel is asked in our stead. */
	FILE *zero = fopen("/dev/zero", "r");
	ck_assert_int_eq(read(fileno(zero), addr, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	fclose(zero);
	ops->unreserve(map, addr, 2 * M);
	ops->close(map);
}
END_TEST

START_TEST(a_gpu_that_cannot_be_asked_is_left_out_and_without_any_it_is_said)
{
	static const struct {
		const char *variable, *value;
		int result;
	} rows[] = {
		{"GPUMEM_FAKE_FAIL", "cuDeviceGet:1:999", 0},
		{"GPUMEM_FAKE_FAIL", "cuDeviceGetUuid:1:999", 0},
		{"GPUMEM_FAKE_FAIL", "cuDeviceGetAttribute:1:999", 0},
		{"GPUMEM_FAKE_FAIL", "cuDeviceGetAttribute:0:999", -ENODEV},
		{"GPUMEM_FAKE_WITHOUT", "hostnuma", -ENODEV},
		{"GPUMEM_FAKE_FAIL", "cuDeviceGetCount:2:999", -ENODEV},
		{"GPUMEM_FAKE_FAIL", "cuDeviceGetCount:1:999", -ENODEV}, /* no driver to speak of */
	};

	ck_assert_int_lt(_i, (int)(sizeof rows / sizeof *rows));
	setenv(rows[_i].variable, rows[_i].value, 1);
	ck_assert_int_eq(gm_map_pinned_new(false, &map, why), rows[_i].result);
	if (rows[_i].result < 0) {
		ck_assert_uint_gt(strlen(why), 0);
		return;
	}
	ops = gm_map_pinned_ops(false);
	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	char *addr = reserve(2);
	map_at(addr);
	ck_assert_int_eq(ops->access(map, addr, M, false), 0);
	addr[0] = 9;
	use(1);
	ck_assert_int_eq(set(addr, M, 6), 0);
	ops->unreserve(map, addr, 2 * M);
	ops->close(map);
}
END_TEST

START_TEST(nothing_is_closed_twice)
{
	gm_map_pinned_ops(false)->close(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map_pinned");
	TCase *tests = tcase_create("fake driver");

	tcase_add_loop_test(
		tests, the_cpu_and_every_gpu_see_the_same_bytes_at_the_same_address, 0, KINDS);
	tcase_add_loop_test(tests,
		a_chunk_moves_where_it_is_mapped_by_itself_and_stays_where_it_is_registered_with_others,
		0, KINDS);
	tcase_add_loop_test(tests, an_event_passes_when_every_gpu_in_use_is_through, 0, KINDS);
	tcase_add_loop_test(
		tests, no_context_is_made_on_a_gpu_that_the_program_does_not_use, 0, KINDS);
	tcase_add_loop_test(tests,
		a_thread_without_a_context_is_served_in_the_name_of_a_gpu_that_has_one, 0, KINDS);
	tcase_add_loop_test(
		tests, an_event_that_cannot_be_recorded_everywhere_leaves_nothing, 0, KINDS);
	tcase_add_loop_test(tests, access_that_is_refused_leaves_the_place_to_others, 0, KINDS);
	tcase_add_test(
		tests, memory_that_is_only_read_is_registered_and_cannot_be_written_by_the_cpu);
	tcase_add_loop_test(
		tests, a_gpu_that_cannot_be_asked_is_left_out_and_without_any_it_is_said, 0, 7);
	tcase_add_test(tests, nothing_is_closed_twice);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
