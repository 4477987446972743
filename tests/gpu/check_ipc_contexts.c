/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The ipc transport in a program with several contexts on a GPU: the driver lets one of them at a
 * time open what is of one process, as all of the daemon's blocks are, and the program need not
 * know it. One source for the fake driver (make check) and a real GPU (make check-gpu).
 */

#include "tests/gpu/broker.h"

#define BLOCK (8 * MIB)

/* Current from here on. */
static gm_cu_ctx own_context(void)
{
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx context;
	if (gm_cuda_load(&cuda, why) < 0)
		GM_FAIL("%s", why);
	CU(cuda->cuCtxCreate(&context, 0, 0));
	return context;
}

static void copy_into(void *ptr, unsigned char value)
{
	unsigned char *bytes = malloc(BLOCK);
	GM_REQUIRE(bytes);
	memset(bytes, value, BLOCK);
	CU(cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)ptr, (gm_cu_ptr)(uintptr_t)bytes, BLOCK, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	free(bytes);
}

/* What a context writes the other one finds. A set is refused but where it was opened. */
static void use_in_both(void *ptr, gm_cu_ctx opened_in, gm_cu_ctx other, unsigned char value)
{
	CU(cuda->cuCtxPushCurrent(opened_in));
	fill(ptr, BLOCK, value, NULL);
	GM_REQUIRE(all(ptr, BLOCK, value, NULL));
	CU(cuda->cuCtxPushCurrent(other));
	GM_REQUIRE(all(ptr, BLOCK, value, NULL));
	copy_into(ptr, (unsigned char)(value + 1));
	GM_REQUIRE(all(ptr, BLOCK, (unsigned char)(value + 1), NULL));
	CU(cuda->cuCtxPopCurrent(NULL));
	GM_REQUIRE(all(ptr, BLOCK, (unsigned char)(value + 1), NULL));
	CU(cuda->cuCtxPopCurrent(NULL));
}

static void takes_turns(int channel, void *argument)
{
	gpumem_buffer *first, *second, *third;
	gm_cu_ctx own, primary, one, other;
	void *ptr;
	bool own_first = argument != NULL;
	join("turns");
	own = own_context();
	CU(cuda->cuCtxPopCurrent(NULL));
	use_gpu();
	CU(cuda->cuCtxGetCurrent(&primary));
	one = own_first ? own : primary;
	other = own_first ? primary : own;
	CU(cuda->cuCtxSetCurrent(one));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &first));
	use_in_both(gpumem_buffer_ptr(first), one, other, 0x10);
	CU(cuda->cuCtxSetCurrent(other));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &second));
	use_in_both(gpumem_buffer_ptr(second), one, other, 0x20);
	OK(gpumem_alloc(session, 0, BLOCK, NULL, NULL, &ptr));
	use_in_both(ptr, one, other, 0x30);
	CU(cuda->cuCtxSetCurrent(one));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &third));
	use_in_both(gpumem_buffer_ptr(third), one, other, 0x40);
	/* Neither heard of what the other did. */
	GM_REQUIRE(all(gpumem_buffer_ptr(first), BLOCK, 0x11, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(second), BLOCK, 0x21, NULL));
	GM_REQUIRE(all(ptr, BLOCK, 0x31, NULL));
	/* Given back by the context that did not take it. */
	gpumem_buffer_destroy(second);
	CU(cuda->cuCtxSetCurrent(other));
	gpumem_buffer_destroy(first);
	gpumem_buffer_destroy(third);
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
	gpumem_disconnect(session);
}

START_TEST(every_context_of_a_program_gets_memory_that_all_of_them_use)
{
	struct gm_worker worker;
	start_with(IPC_CONFIG);
	gm_worker_start(&worker, takes_turns, _i ? "" : NULL);
	gm_worker_join(&worker);
}
END_TEST

/* With a context goes what was opened in it; the others get memory all the same. */
static void survives(int channel, void *argument)
{
	gpumem_buffer *lost, *lost_too, *kept;
	gm_cu_ctx own, primary;
	join("survives");
	own = own_context();
	CU(cuda->cuCtxPopCurrent(NULL));
	use_gpu();
	CU(cuda->cuCtxGetCurrent(&primary));
	CU(cuda->cuCtxSetCurrent(own));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &lost));
	CU(cuda->cuCtxSetCurrent(primary));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &lost_too));
	CU(cuda->cuCtxDestroy(own));
	OK(create(BLOCK, GPUMEM_TRANSPORT_IPC, &kept));
	fill(gpumem_buffer_ptr(kept), BLOCK, 0x50, NULL);
	GM_REQUIRE(all(gpumem_buffer_ptr(kept), BLOCK, 0x50, NULL));
	gpumem_buffer_destroy(lost);
	gpumem_buffer_destroy(lost_too);
	GM_REQUIRE(all(gpumem_buffer_ptr(kept), BLOCK, 0x50, NULL));
	gpumem_buffer_destroy(kept);
	gpumem_disconnect(session);
}

START_TEST(when_a_context_that_opened_is_gone_another_one_opens)
{
	struct gm_worker worker;
	start_with(IPC_CONFIG);
	gm_worker_start(&worker, survives, NULL);
	gm_worker_join(&worker);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ipc transport in several contexts");
	TCase *t = tcase_create("contexts");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, tear_down);
	tcase_add_loop_test(t, every_context_of_a_program_gets_memory_that_all_of_them_use, 0, 2);
	tcase_add_test(t, when_a_context_that_opened_is_gone_another_one_opens);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return gm_tap_run(suite());
}
