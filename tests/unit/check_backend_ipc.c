/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the ipc transport as the daemon's cuda backend makes them: their context, and where
 * they lie. Over the fake driver: see backend_cuda_fixture.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda.h"
#include "common/limits.h"
#include "tests/unit/backend_cuda_fixture.h"
#include "tests/unit/failing_malloc.h"

static const struct gm_seen another = {.domain = 2, .uid = 1001};

static struct gm_handle make(uint32_t device, uint64_t bytes, const struct gm_seen *seen)
{
	struct gm_handle handle;

	ck_assert_int_eq(ops->create(backend, device, GM_TRANSPORT_IPC, bytes, seen, &handle), 0);
	return handle;
}

static void unmake(
	uint32_t device, uint64_t bytes, const struct gm_seen *seen, struct gm_handle *handle)
{
	ops->destroy(backend, device, GM_TRANSPORT_IPC, bytes, seen, handle);
}

START_TEST(an_ipc_block_makes_the_context_and_the_last_one_takes_it_along)
{
	struct gm_handle a, b;
	uint8_t empty[GM_IPC_HANDLE_BYTES] = {0};
	uint64_t before;

	open_it();
	before = free_of(0);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &a), 0);
	ck_assert_uint_lt(free_of(0), before - 4 * MIB);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &b), 0);
	ck_assert(memcmp(a.ipc, empty, sizeof empty) != 0);
	ck_assert(memcmp(a.ipc, b.ipc, sizeof empty) != 0);
	ck_assert_int_eq(a.fd, -1);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &a);
	ck_assert_uint_lt(free_of(0), before - 4 * MIB);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &b);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(a_failed_ipc_block_leaves_neither_memory_nor_context)
{
	static const char *const plans[] = {
		"cuDevicePrimaryCtxRetain:1:2", "cuMemAlloc:1:2", "cuIpcGetMemHandle:1:304"};
	struct gm_handle handle;
	uint64_t before;

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	open_it();
	before = free_of(0);
	ck_assert_int_lt(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ck_assert_uint_eq(free_of(0), before);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(an_ipc_block_that_cannot_be_freed_is_trouble_and_no_more)
{
	char text[GM_BACKEND_TROUBLE];
	struct gm_handle handle;
	uint64_t when;

	setenv("GPUMEM_FAKE_FAIL", _i ? "cuCtxPushCurrent:2:999" : "cuMemFree:1:999", 1);
	open_it();
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ck_assert(ops->trouble(backend, 0, text, &when));
	ck_assert_ptr_nonnull(strstr(text, "CUDA_ERROR_UNKNOWN"));
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_IPC, 4 * MIB, &someone, &handle);
	ops->close(backend);
}
END_TEST

static bool apart(const struct gm_handle *a, const struct gm_handle *b, uint64_t bytes)
{
	return a->native + bytes <= b->native || b->native + bytes <= a->native;
}

/* The context goes with each block here; a handle of an earlier one is as good. The second time the
 * driver reserves nothing. */
START_TEST(a_block_lies_where_its_domain_had_one_and_never_where_another_had)
{
	struct gm_handle first, other, again;

	if (_i)
		setenv("GPUMEM_FAKE_FAIL", "cuMemAddressReserve:0:801", 1);
	open_it();
	uint64_t before = free_of(0);
	first = make(0, 8 * MIB, &someone);
	unmake(0, 8 * MIB, &someone, &first);
	for (uint32_t device = 0; device < 2; device++) {
		other = make(device, 8 * MIB, &another);
		ck_assert(apart(&first, &other, 8 * MIB));
		unmake(device, 8 * MIB, &another, &other);
	}
	again = make(0, 8 * MIB, &someone);
	ck_assert(apart(&again, &other, 8 * MIB));
	if (!_i)
		ck_assert_uint_eq(again.native, first.native);
	unmake(0, 8 * MIB, &someone, &again);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(where_a_handle_could_not_be_had_the_place_stays_its_domains)
{
	struct gm_handle first, other;

	setenv("GPUMEM_FAKE_FAIL", "cuIpcGetMemHandle:2:304", 1);
	open_it();
	first = make(0, 8 * MIB, &someone);
	unmake(0, 8 * MIB, &someone, &first);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 8 * MIB, &someone, &other), -EIO);
	other = make(0, 8 * MIB, &another);
	ck_assert(apart(&first, &other, 8 * MIB));
	unmake(0, 8 * MIB, &another, &other);
	ops->close(backend);
}
END_TEST

/* ---- between the backend and the driver */

static struct gm_cuda *table(void)
{
	const struct gm_cuda *cuda;

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	return (struct gm_cuda *)cuda;
}

static struct gm_cuda real;
static int reservations;

static gm_cu_result spy_reserve(
	gm_cu_ptr *ptr, size_t bytes, size_t alignment, gm_cu_ptr hint, unsigned long long flags)
{
	gm_cu_result result = real.cuMemAddressReserve(ptr, bytes, alignment, hint, flags);

	reservations += !result;
	return result;
}

static gm_cu_result spy_unreserve(gm_cu_ptr ptr, size_t bytes)
{
	gm_cu_result result = real.cuMemAddressFree(ptr, bytes);

	reservations -= !result;
	return result;
}

START_TEST(every_reservation_ends_with_the_backend)
{
	struct gm_handle handle;
	struct gm_cuda *cuda = table();

	real = *cuda;
	cuda->cuMemAddressReserve = spy_reserve;
	cuda->cuMemAddressFree = spy_unreserve;
	open_it();
	for (gm_domain domain = 1; domain < 20; domain++) {
		struct gm_seen seen = {.domain = domain, .uid = 1000};
		handle = make(domain % 2, 4 * MIB, &seen);
		unmake(domain % 2, 4 * MIB, &seen, &handle);
	}
	ck_assert_int_eq(reservations, 19);
	ops->close(backend);
	ck_assert_int_eq(reservations, 0);
}
END_TEST

/* Memory whose places never lie side by side, of which there is no end. */
static gm_cu_ptr next_place = (gm_cu_ptr)1 << 40;

static gm_cu_result apart_alloc(gm_cu_ptr *ptr, size_t bytes)
{
	*ptr = next_place;
	next_place += 2 * bytes;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_free(gm_cu_ptr ptr)
{
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_reserve(
	gm_cu_ptr *ptr, size_t bytes, size_t alignment, gm_cu_ptr hint, unsigned long long flags)
{
	*ptr = hint;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_unreserve(gm_cu_ptr ptr, size_t bytes)
{
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_handle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	memset(handle, 1, sizeof *handle);
	return GM_CUDA_SUCCESS;
}

START_TEST(a_uid_that_left_too_many_places_behind_gets_no_block_but_by_fd_and_others_do)
{
	struct gm_cuda *cuda = table();
	struct gm_handle handle;
	char text[GM_BACKEND_TROUBLE];
	uint64_t when;

	cuda->cuMemAlloc = apart_alloc;
	cuda->cuMemFree = any_free;
	cuda->cuMemAddressReserve = any_reserve;
	cuda->cuMemAddressFree = any_unreserve;
	cuda->cuIpcGetMemHandle = any_handle;
	open_it();
	struct gm_handle keep = make(0, 2 * MIB, &another); /* so that the context stays */
	for (gm_domain domain = 10; domain < 10 + GM_LIMIT_IPC_RANGES_PER_UID; domain++) {
		struct gm_seen seen = {.domain = domain, .uid = 1000};
		handle = make(0, 2 * MIB, &seen);
		unmake(0, 2 * MIB, &seen, &handle);
	}
	handle.fd = 12345;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(
			ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &handle),
			-EDQUOT);
	ck_assert_int_eq(handle.fd, 12345);                /* unwritten on failure */
	ck_assert(!ops->trouble(backend, 0, text, &when)); /* it is not the device's */
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	handle = make(0, 2 * MIB, &another);
	unmake(0, 2 * MIB, &another, &handle);
	unmake(0, 2 * MIB, &another, &keep);
	ops->close(backend);
}
END_TEST

START_TEST(without_host_memory_there_is_no_block_and_nothing_is_lost)
{
	struct gm_backend_config config = {0};
	struct gm_handle handle;

	table(); /* loaded before memory fails */
	for (uint64_t n = 1; n < 3; n++) {
		failing_malloc_arm(n);
		int r = ops->open(&config, &backend, &devices, why);
		ck_assert(failing_malloc_fired());
		ck_assert_int_eq(r, -ENOMEM);
	}
	open_it();
	uint64_t before = free_of(0);
	failing_malloc_arm(1);
	int r = ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &handle);
	ck_assert(failing_malloc_fired());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

/* ---- two devices at a time */

#define ROUNDS 60

static void *on_a_device(void *arg)
{
	const struct gm_seen *seen = arg;
	uint32_t device = seen == &another;
	uint64_t *places = calloc(ROUNDS, sizeof *places);

	for (int i = 0; i < ROUNDS; i++) {
		struct gm_handle a = make(device, 2 * MIB, seen), b = make(device, 4 * MIB, seen);
		places[i] = a.native;
		unmake(device, 2 * MIB, seen, &a);
		unmake(device, 4 * MIB, seen, &b);
	}
	return places;
}

START_TEST(two_devices_at_a_time_never_get_one_anothers_places)
{
	pthread_t threads[2];
	uint64_t *places[2];

	open_it();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, on_a_device,
					 (void *)(i ? &another : &someone)),
			0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], (void **)&places[i]);
	for (int i = 0; i < ROUNDS; i++)
		for (int j = 0; j < ROUNDS; j++)
			ck_assert_uint_ne(places[0][i], places[1][j]);
	free(places[0]);
	free(places[1]);
	ops->close(backend);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_ipc");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, an_ipc_block_makes_the_context_and_the_last_one_takes_it_along);
	tcase_add_loop_test(tcase, a_failed_ipc_block_leaves_neither_memory_nor_context, 0, 3);
	tcase_add_loop_test(tcase, an_ipc_block_that_cannot_be_freed_is_trouble_and_no_more, 0, 2);
	tcase_add_loop_test(
		tcase, a_block_lies_where_its_domain_had_one_and_never_where_another_had, 0, 2);
	tcase_add_test(tcase, where_a_handle_could_not_be_had_the_place_stays_its_domains);
	tcase_add_test(tcase, every_reservation_ends_with_the_backend);
	tcase_add_test(tcase,
		a_uid_that_left_too_many_places_behind_gets_no_block_but_by_fd_and_others_do);
	tcase_add_test(tcase, without_host_memory_there_is_no_block_and_nothing_is_lost);
	tcase_add_test(tcase, two_devices_at_a_time_never_get_one_anothers_places);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
