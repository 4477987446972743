/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the ipc transport as the daemon's cuda backend makes them: their context, and what old
 * handles are kept from. Over the fake driver: see backend_cuda_fixture.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/cuda/cuda.h"
#include "common/bounds.h"
#include "common/log.h"
#include "tests/bound.h"
#include "tests/unit/backend/backend_cuda_fixture.h"
#include "tests/unit/failing_malloc.h"

static const struct gm_backend_seen another = {.domain = 2, .payer_uid = 1001};

static struct gm_backend_handle make(
	uint32_t device, uint64_t bytes, const struct gm_backend_seen *seen)
{
	struct gm_backend_handle handle;

	ck_assert_int_eq(ops->create(backend, device, GM_TRANSPORT_IPC, bytes, seen, &handle), 0);
	return handle;
}

static void unmake(uint32_t device, uint64_t bytes, const struct gm_backend_seen *seen,
	struct gm_backend_handle *handle)
{
	ops->destroy(backend, device, GM_TRANSPORT_IPC, bytes, seen, handle);
}

START_TEST(an_ipc_block_makes_the_context_and_the_last_one_takes_it_along)
{
	struct gm_backend_handle a, b;
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
	static const char *const plans[] = {"cuDevicePrimaryCtxRetain:1:2", "cuCtxPushCurrent:1:2",
		"cuMemAlloc:1:2", "cuIpcGetMemHandle:1:304"};
	struct gm_backend_handle handle;
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
	struct gm_backend_handle handle;
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

/* Of the driver's number: daemon/backend/ipc_blocks.c. */
static bool same_number(const struct gm_backend_handle *a, const struct gm_backend_handle *b)
{
	return memcmp(a->ipc + 48, b->ipc + 48, 8) == 0;
}

/* The context goes with each block here; a handle of an earlier one is as good. */
START_TEST(a_block_never_has_a_number_that_another_domain_had)
{
	struct gm_backend_handle first, other, again;

	open_it();
	uint64_t before = free_of(0);
	first = make(0, 8 * MIB, &someone);
	unmake(0, 8 * MIB, &someone, &first);
	for (uint32_t device = 0; device < 2; device++) {
		other = make(device, 8 * MIB, &another);
		ck_assert(!same_number(&first, &other));
		unmake(device, 8 * MIB, &another, &other);
	}
	/* Its own may come again. */
	again = make(0, 8 * MIB, &someone);
	ck_assert(!same_number(&again, &other));
	unmake(0, 8 * MIB, &someone, &again);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

START_TEST(a_number_that_several_had_is_nobodys)
{
	struct gm_backend_seen both = someone;
	struct gm_backend_handle first, again;

	open_it();
	first = make(0, 8 * MIB, &someone);
	both.several = true;
	unmake(0, 8 * MIB, &both, &first);
	again = make(0, 8 * MIB, &someone);
	ck_assert(!same_number(&first, &again));
	unmake(0, 8 * MIB, &someone, &again);
	ops->close(backend);
}
END_TEST

START_TEST(a_number_that_nobody_had_is_anybodys)
{
	static const struct gm_backend_seen nobody = {.domain = GM_DOMAIN_FRESH, .payer_uid = 1000};
	struct gm_backend_handle keep, first, other;

	open_it();
	keep = make(0, 8 * MIB, &someone); /* so that the context stays */
	for (int i = 0; i < 2; i++) {
		first = make(0, 8 * MIB, &nobody);
		unmake(0, 8 * MIB, &nobody, &first);
	}
	other = make(0, 8 * MIB, &another);
	ck_assert(same_number(&first, &other));
	unmake(0, 8 * MIB, &another, &other);
	/* Nor is it nobody's any more. */
	first = make(0, 8 * MIB, &nobody);
	ck_assert(!same_number(&first, &other));
	unmake(0, 8 * MIB, &nobody, &first);
	unmake(0, 8 * MIB, &someone, &keep);
	ops->close(backend);
}
END_TEST

START_TEST(a_page_that_the_driver_does_not_take_fails_the_block)
{
	struct gm_backend_handle first, other;
	char text[GM_BACKEND_TROUBLE];
	uint64_t when;

	setenv("GPUMEM_FAKE_FAIL", "cuMemHostRegister:1:999", 1);
	open_it();
	uint64_t before = free_of(0);
	first = make(0, 8 * MIB, &someone);
	unmake(0, 8 * MIB, &someone, &first);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 8 * MIB, &another, &other), -EIO);
	ck_assert(ops->trouble(backend, 0, text, &when));
	ck_assert_ptr_nonnull(strstr(text, "cuMemHostRegister"));
	ck_assert_uint_eq(free_of(0), before);
	other = make(0, 8 * MIB, &another);
	ck_assert(!same_number(&first, &other));
	unmake(0, 8 * MIB, &another, &other);
	ops->close(backend);
}
END_TEST

/* How often the operator was told, and what. */
static int told;
static char line[512];

static void hear(enum gm_log_level level, const char *text, const char *const *fields)
{
	(void)fields;
	if (level != GM_LOG_WARNING)
		return;
	told++;
	snprintf(line, sizeof line, "%s", text);
}

static struct gm_cuda *table(void)
{
	const struct gm_cuda *cuda;

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	return (struct gm_cuda *)cuda;
}

/* Memory whose numbers never come again. */
static uint64_t next_number;

static gm_cu_result new_handle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	(void)ptr;
	memset(handle, 1, sizeof *handle);
	memcpy((char *)handle + 48, &next_number, sizeof next_number);
	next_number++;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_alloc(gm_cu_ptr *ptr, size_t bytes)
{
	(void)bytes;
	*ptr = (gm_cu_ptr)1 << 40;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result any_free(gm_cu_ptr ptr)
{
	(void)ptr;
	return GM_CUDA_SUCCESS;
}

START_TEST(a_uid_that_had_too_many_numbers_gets_no_block_but_by_fd_and_others_do)
{
	GM_BOUND_TEST(IPC_NUMBERS_PER_UID);
	struct gm_cuda *cuda = table();
	struct gm_backend_handle handle;
	char text[GM_BACKEND_TROUBLE];
	uint64_t when;

	cuda->cuMemAlloc = any_alloc;
	cuda->cuMemFree = any_free;
	cuda->cuIpcGetMemHandle = new_handle;
	open_it();
	struct gm_backend_handle keep = make(0, 2 * MIB, &another); /* so that the context stays */
	for (gm_domain domain = 10; domain < 10 + GM_BOUND_IPC_NUMBERS_PER_UID; domain++) {
		struct gm_backend_seen seen = {.domain = domain, .payer_uid = 1000};
		handle = make(0, 2 * MIB, &seen);
		unmake(0, 2 * MIB, &seen, &handle);
	}
	handle.fd = 12345;
	gm_log_set_sink(hear);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(
			ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &handle),
			-EDQUOT);
	ck_assert_int_eq(told, 1); /* once, with what to do */
	ck_assert_ptr_nonnull(strstr(line, "user 1000"));
	ck_assert_ptr_nonnull(strstr(line, "fd transport"));
	ck_assert_int_eq(handle.fd, 12345);                /* unwritten on failure */
	ck_assert(!ops->trouble(backend, 0, text, &when)); /* it is not the device's */
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle), 0);
	ops->destroy(backend, 0, GM_TRANSPORT_FD, 2 * MIB, &someone, &handle);
	handle = make(0, 2 * MIB, &another);
	unmake(0, 2 * MIB, &another, &handle);
	/* Their own come again. */
	next_number = 1;
	struct gm_backend_seen seen = {.domain = 10, .payer_uid = 1000};
	handle = make(0, 2 * MIB, &seen);
	unmake(0, 2 * MIB, &seen, &handle);
	unmake(0, 2 * MIB, &another, &keep);
	ops->close(backend);
}
END_TEST

START_TEST(users_leave_numbers_to_others)
{
	GM_BOUND_TEST(IPC_NUMBERS);
	struct gm_cuda *cuda = table();
	struct gm_backend_handle handle;
	uint64_t all = 1, own = 0;

	cuda->cuMemAlloc = any_alloc;
	cuda->cuMemFree = any_free;
	cuda->cuIpcGetMemHandle = new_handle;
	open_it();
	gm_log_set_sink(hear);
	struct gm_backend_handle keep = make(0, 2 * MIB, &another);
	for (uid_t uid = 2000; uid < 2020; uid++, all += own) {
		struct gm_backend_seen seen = {.domain = uid, .payer_uid = uid};
		for (own = 0;; own++) {
			/* A domain's own number would come again. */
			seen.domain += 1000;
			if (ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &seen, &handle) < 0)
				break;
			unmake(0, 2 * MIB, &seen, &handle);
		}
		ck_assert_uint_eq(own, gm_u64_min(GM_BOUND_IPC_NUMBERS_PER_UID,
					       (GM_BOUND_IPC_NUMBERS - all + 1) / 2));
		ck_assert_uint_gt(own, 0);
	}
	unmake(0, 2 * MIB, &another, &keep);
	ops->close(backend);
}
END_TEST

/* As it would be if the number stood elsewhere. */
static gm_cu_result one_handle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	(void)ptr;
	memset(handle, 1, sizeof *handle);
	return GM_CUDA_SUCCESS;
}

START_TEST(a_driver_whose_numbers_are_not_understood_serves_one_domain_one_block_at_a_time)
{
	struct gm_backend_handle handle, other;

	table()->cuIpcGetMemHandle = one_handle;
	open_it();
	gm_log_set_sink(hear);
	handle = make(0, 2 * MIB, &someone);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, &other), -EDQUOT);
	unmake(0, 2 * MIB, &someone, &handle);
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &another, &other), -EDQUOT);
	ck_assert_int_eq(told, 1); /* however often somebody asks */
	ck_assert_ptr_nonnull(strstr(line, "device 0"));
	ck_assert_ptr_nonnull(strstr(line, "fd transport, or restart gpumemd"));
	handle = make(0, 2 * MIB, &someone);
	unmake(0, 2 * MIB, &someone, &handle);
	/* It worked meanwhile: that is news again. */
	ck_assert_int_eq(
		ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &another, &other), -EDQUOT);
	ck_assert_int_eq(told, 2);
	ops->close(backend);
}
END_TEST

/* ---- a driver with more numbers than the fake has files: the one freed last comes next */

#define LARGE (64 * 1024 * MIB)

static uint64_t stock[2 * GM_BOUND_IPC_NUMBERS_PER_UID];
static size_t n_stock;
static uint64_t fresh_number = 1;
static int larges, pages;

static uint64_t stock_take(void)
{
	return n_stock ? stock[--n_stock] : fresh_number++;
}

static gm_cu_result stock_alloc(gm_cu_ptr *ptr, size_t bytes)
{
	larges += bytes == LARGE;
	*ptr = stock_take() << 21;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result stock_free(gm_cu_ptr ptr)
{
	stock[n_stock++] = ptr >> 21;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result stock_handle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	uint64_t number = ptr >> 21;

	memset(handle, 1, sizeof *handle);
	memcpy((char *)handle + 48, &number, sizeof number);
	return GM_CUDA_SUCCESS;
}

static gm_cu_result stock_register(void *ptr, size_t bytes, unsigned int flags)
{
	(void)bytes;
	(void)flags;
	*(uint64_t *)ptr = stock_take();
	pages++;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result stock_unregister(void *ptr)
{
	stock[n_stock++] = *(uint64_t *)ptr;
	return GM_CUDA_SUCCESS;
}

/* Whether the context stays meanwhile or not; and what is large is not made again and again only to
 * see its number. */
START_TEST(others_get_a_block_whatever_one_uid_has_left_behind)
{
	static struct gm_backend_handle left[GM_BOUND_IPC_NUMBERS_PER_UID];
	struct gm_cuda *cuda = table();
	const size_t n = GM_BOUND_IPC_NUMBERS_PER_UID;

	cuda->cuMemAlloc = stock_alloc;
	cuda->cuMemFree = stock_free;
	cuda->cuIpcGetMemHandle = stock_handle;
	cuda->cuMemHostRegister = stock_register;
	cuda->cuMemHostUnregister = stock_unregister;
	open_it();
	for (size_t i = 0; i < n; i++)
		left[i] = make(0, 2 * MIB, &someone);
	for (size_t i = _i ? 1 : 0; i < n; i++)
		unmake(0, 2 * MIB, &someone, &left[i]);
	/* The uid itself has had its share, and nothing is done for it in vain. */
	struct gm_backend_seen anew = {.domain = 3, .payer_uid = someone.payer_uid};
	struct gm_backend_handle other;
	gm_log_set_sink(hear);
	ck_assert_int_eq(ops->create(backend, 0, GM_TRANSPORT_IPC, LARGE, &anew, &other), -EDQUOT);
	ck_assert_int_eq(pages, 0);
	ck_assert_int_eq(larges, 1);
	larges = 0;
	other = make(0, LARGE, &another);
	for (size_t i = 0; i < n; i++)
		ck_assert(!same_number(&other, &left[i]));
	ck_assert_int_le(larges, 2);
	unmake(0, LARGE, &another, &other);
	if (_i)
		unmake(0, 2 * MIB, &someone, &left[0]);
	ops->close(backend);
}
END_TEST

/* ---- what a page costs is given back with the context */

static struct gm_cuda real;
static int registered;

static gm_cu_result spy_register(void *ptr, size_t bytes, unsigned int flags)
{
	gm_cu_result result = real.cuMemHostRegister(ptr, bytes, flags);

	registered += !result;
	return result;
}

static gm_cu_result spy_unregister(void *ptr)
{
	gm_cu_result result = real.cuMemHostUnregister(ptr);

	registered -= !result;
	return result;
}

START_TEST(every_page_ends_with_the_context)
{
	struct gm_cuda *cuda = table();
	struct gm_backend_handle handle, keep;

	real = *cuda;
	cuda->cuMemHostRegister = spy_register;
	cuda->cuMemHostUnregister = spy_unregister;
	open_it();
	keep = make(0, 4 * MIB, &someone);
	for (gm_domain domain = 10; domain < 30; domain++) {
		struct gm_backend_seen seen = {.domain = domain, .payer_uid = 1000};
		handle = make(0, 4 * MIB, &seen);
		unmake(0, 4 * MIB, &seen, &handle);
	}
	ck_assert_int_eq(registered, 19); /* each but the first found a number that was another's */
	unmake(0, 4 * MIB, &someone, &keep);
	ck_assert_int_eq(registered, 0);
	ops->close(backend);
}
END_TEST

/* Fails each allocation of a block in turn, until none is left to fail: how many there were, and
 * one. With a new backend each time: every time the first block of all. */
static uint64_t fail_each(bool anew, struct gm_backend_handle *ret)
{
	uint64_t before = free_of(0);

	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		int r = ops->create(backend, 0, GM_TRANSPORT_IPC, 2 * MIB, &someone, ret);
		if (!failing_malloc_fired()) {
			ck_assert_int_eq(r, 0);
			return n;
		}
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_uint_eq(free_of(0), before);
		if (anew) {
			/* Nothing is left in a table that another one would meet. */
			ops->close(backend);
			open_it();
		}
	}
}

START_TEST(without_host_memory_there_is_no_block_and_nothing_is_lost)
{
	struct gm_backend_config config = {0};
	struct gm_backend_handle handle, first;
	uint64_t n;

	table(); /* loaded before memory fails */
	for (n = 1; n < 3; n++) {
		failing_malloc_arm(n);
		int r = ops->open(&config, &backend, &devices, why);
		ck_assert(failing_malloc_fired());
		ck_assert_int_eq(r, -ENOMEM);
	}
	open_it();
	uint64_t before = free_of(0);
	first = make(0, 2 * MIB, &another);
	unmake(0, 2 * MIB, &another, &first);
	ck_assert_uint_ge(fail_each(false, &handle), 4); /* a page, who pays, a number */
	unmake(0, 2 * MIB, &someone, &handle);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

/* The tables themselves are made with the first block. */
START_TEST(the_first_block_of_all_without_host_memory_is_refused_and_no_more)
{
	struct gm_backend_handle handle;

	open_it();
	uint64_t before = free_of(0);
	/* Who pays and a number, and two pieces of memory for each table. */
	ck_assert_uint_ge(fail_each(true, &handle), 7);
	unmake(0, 2 * MIB, &someone, &handle);
	ck_assert_uint_eq(free_of(0), before);
	ops->close(backend);
}
END_TEST

/* ---- two devices at a time */

#define ROUNDS 60

static void *on_a_device(void *arg)
{
	const struct gm_backend_seen *seen = arg;
	uint32_t device = seen == &another;
	struct gm_backend_handle *had = calloc(ROUNDS, sizeof *had);

	for (int i = 0; i < ROUNDS; i++) {
		struct gm_backend_handle other = make(device, 2 * MIB, seen);
		had[i] = make(device, 4 * MIB, seen);
		unmake(device, 2 * MIB, seen, &other);
		unmake(device, 4 * MIB, seen, &had[i]);
	}
	return had;
}

START_TEST(two_devices_at_a_time_never_get_one_anothers_numbers)
{
	pthread_t threads[2];
	struct gm_backend_handle *had[2];

	open_it();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, on_a_device,
					 (void *)(i ? &another : &someone)),
			0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], (void **)&had[i]);
	for (int i = 0; i < ROUNDS; i++)
		for (int j = 0; j < ROUNDS; j++)
			ck_assert(!same_number(&had[0][i], &had[1][j]));
	free(had[0]);
	free(had[1]);
	ops->close(backend);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_ipc");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, an_ipc_block_makes_the_context_and_the_last_one_takes_it_along);
	tcase_add_loop_test(tcase, a_failed_ipc_block_leaves_neither_memory_nor_context, 0, 4);
	tcase_add_loop_test(tcase, an_ipc_block_that_cannot_be_freed_is_trouble_and_no_more, 0, 2);
	tcase_add_test(tcase, a_block_never_has_a_number_that_another_domain_had);
	tcase_add_test(tcase, a_number_that_several_had_is_nobodys);
	tcase_add_test(tcase, a_number_that_nobody_had_is_anybodys);
	tcase_add_test(tcase, a_page_that_the_driver_does_not_take_fails_the_block);
	tcase_add_test(
		tcase, a_uid_that_had_too_many_numbers_gets_no_block_but_by_fd_and_others_do);
	tcase_add_test(tcase, users_leave_numbers_to_others);
	tcase_add_test(tcase,
		a_driver_whose_numbers_are_not_understood_serves_one_domain_one_block_at_a_time);
	tcase_add_loop_test(tcase, others_get_a_block_whatever_one_uid_has_left_behind, 0, 2);
	tcase_add_test(tcase, every_page_ends_with_the_context);
	tcase_add_test(tcase, without_host_memory_there_is_no_block_and_nothing_is_lost);
	tcase_add_test(tcase, the_first_block_of_all_without_host_memory_is_refused_and_no_more);
	tcase_add_test(tcase, two_devices_at_a_time_never_get_one_anothers_numbers);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
