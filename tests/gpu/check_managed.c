/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Managed memory on a GPU: the device and the CPU see the same bytes, what the driver counts of it is
 * not foreign, and whatever the driver refuses gives its charge back. See broker.h.
 */

#include "gpumem/gpumem_managed.h"
#include "tests/gpu/broker.h"

#define BYTES (64 * MIB)

static uint64_t declared(void)
{
	uint64_t bytes;
	OK(gpumem_declared(session, 0, &bytes));
	return bytes;
}

static gpumem_managed *make(uint64_t bytes)
{
	gpumem_managed *managed;
	OK(gpumem_managed_create(session, 0, bytes, NULL, &managed));
	return managed;
}

/* Moves it, if the platform lets a program do that, and waits for that. */
static bool moves(gpumem_managed *managed, gpumem_managed_place place)
{
	gpumem_status status = gpumem_managed_prefetch(managed, 0, BYTES, place, NULL);
	if (status == GPUMEM_E_UNSUPPORTED)
		return false;
	OK(status);
	CU(cuda->cuStreamSynchronize(NULL));
	return true;
}

/* ---- both sides see it */

static void user(int channel, void *argument)
{
	(void)channel;
	(void)argument;
	join("user");
	use_gpu();
	gpumem_managed *managed = make(BYTES);
	unsigned char *p = gpumem_managed_ptr(managed);
	memset(p, 0x11, BYTES);
	bool moved = moves(managed, GPUMEM_MANAGED_ON_DEVICE);
	GM_REQUIRE(all(p, BYTES, 0x11, NULL));
	fill(p, BYTES, 0x22, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	GM_REQUIRE(p[0] == 0x22 && memcmp(p, p + 1, BYTES - 1) == 0);

	if (moved) {
		GM_REQUIRE(moves(managed, GPUMEM_MANAGED_ON_HOST));
		OK(gpumem_managed_advise(
			managed, 0, BYTES, GPUMEM_MANAGED_READ_MOSTLY, GPUMEM_MANAGED_ON_DEVICE));
		OK(gpumem_managed_advise(
			managed, 0, BYTES, GPUMEM_MANAGED_PREFER, GPUMEM_MANAGED_ON_DEVICE));
		OK(gpumem_managed_advise(
			managed, 0, BYTES, GPUMEM_MANAGED_ACCESSED_BY, GPUMEM_MANAGED_ON_HOST));
		GM_REQUIRE(moves(managed, GPUMEM_MANAGED_ON_DEVICE));
	}
	GM_REQUIRE(all(p, BYTES, 0x22, NULL));

	/* It may be destroyed while the device still uses it. */
	fill(p, BYTES, 0x33, NULL);
	gpumem_managed_destroy(managed);
	GM_UNTIL(declared() == 0);
	/* And is gone with the session, if nobody destroys it. */
	managed = make(BYTES);
	fill(gpumem_managed_ptr(managed), BYTES, 0x44, NULL);
	gpumem_disconnect(session);
}

START_TEST(the_cpu_and_the_device_see_the_same_bytes)
{
	start_with(CONFIG(""));
	one_worker(user, NULL);
	tear_down();
}
END_TEST

/* Its context ends, and with it the memory. Another allocation may then have its address, and is not
 * ours to free. */
static void survivor(int channel, void *argument)
{
	enum { OTHERS = 4 };
	gm_cu_ptr other[OTHERS];
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx context, next;
	(void)channel;
	(void)argument;
	join("survivor");
	if (gm_cuda_load(&cuda, why) < 0)
		GM_FAIL("%s", why);
	CU(cuda->cuCtxCreate(&context, 0, 0));
	gpumem_managed *managed = make(BYTES);
	uintptr_t addr = (uintptr_t)gpumem_managed_ptr(managed);
	CU(cuda->cuCtxDestroy(context));
	CU(cuda->cuCtxCreate(&next, 0, 0));
	bool reused = false;
	for (int i = 0; i < OTHERS; i++) {
		CU(cuda->cuMemAllocManaged(&other[i], BYTES, GM_CU_MEM_ATTACH_GLOBAL));
		reused |= other[i] == addr;
	}
	if (!reused)
		printf("# the address was not used again\n");

	gpumem_managed_destroy(managed);
	GM_UNTIL(declared() == 0);
	for (int i = 0; i < OTHERS; i++) {
		memset((void *)(uintptr_t)other[i], i, BYTES);
		CU(cuda->cuMemAdvise(other[i], BYTES, GM_CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
		CU(cuda->cuMemFree(other[i]));
	}
	gpumem_disconnect(session);
}

START_TEST(what_has_the_address_of_memory_that_went_with_its_context_is_left_alone)
{
	start_with(CONFIG(""));
	one_worker(survivor, NULL);
	tear_down();
}
END_TEST

/* ---- the books */

/* Has memory on the device, and says whether it could be moved there. */
static void managed_holder(int channel, void *argument)
{
	(void)argument;
	join("managed_holder");
	use_gpu();
	gpumem_managed *managed = make(BYTES);
	memset(gpumem_managed_ptr(managed), 1, BYTES);
	fill(gpumem_managed_ptr(managed), BYTES, 0x55, NULL);
	(void)moves(managed, GPUMEM_MANAGED_ON_DEVICE);
	CU(cuda->cuStreamSynchronize(NULL));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_managed_destroy(managed);
	GM_UNTIL(declared() == 0);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

/* The driver counts it for the process: the context, and what is on the device. */
START_TEST(what_the_driver_counts_is_not_foreign_as_well)
{
	struct gm_worker worker;
	start_with(CONFIG(""));
	gm_worker_start(&worker, managed_holder, NULL);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).declared, BYTES);
	GM_UNTIL(gm_figures_now(&daemon_).declared_seen == BYTES);
	/* Nothing is counted twice: all parts make the total. */
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased + f.quarantined + f.pooled + f.foreign + f.declared_seen + f.free <=
		   f.total);

	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).declared, BYTES);
	GM_UNTIL(gm_figures_now(&daemon_).declared_seen == BYTES);

	gm_text_say_word(worker.channel, 'e');
	gm_hear_word(worker.channel, 'd');
	GM_UNTIL(gm_figures_now(&daemon_).declared == 0);
	end_worker(&worker);
	tear_down();
}
END_TEST

START_TEST(a_killed_process_is_charged_no_more)
{
	struct gm_worker worker;
	start_with(CONFIG(""));
	gm_worker_start(&worker, managed_holder, NULL);
	gm_hear_word(worker.channel, 'h');
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).declared == 0);
	tear_down();
}
END_TEST

/* ---- only on the fake driver: it can be made to refuse, and to be slow */

static void unlucky(int channel, void *argument)
{
	(void)channel;
	gpumem_managed *managed = NULL;
	setenv("GPUMEM_FAKE_FAIL", argument, 1);
	join("unlucky");
	use_gpu();
	GM_REQUIRE_EQ(gpumem_managed_create(session, 0, BYTES, NULL, &managed), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gpumem_error_detail(), "CUDA_ERROR_OUT_OF_MEMORY"));
	GM_REQUIRE(!managed);
	GM_REQUIRE_EQ(declared(), 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).declared, 0);
	managed = make(BYTES);
	gpumem_managed_destroy(managed);
	gpumem_disconnect(session);
}

static void without(int channel, void *argument)
{
	(void)channel;
	gpumem_managed *managed = NULL;
	setenv("GPUMEM_FAKE_WITHOUT", argument, 1);
	join("without");
	use_gpu();
	REFUSED(gpumem_managed_create(session, 0, BYTES, NULL, &managed), GPUMEM_E_UNSUPPORTED,
		"cannot make managed memory");
	GM_REQUIRE_EQ(declared(), 0);
	gpumem_disconnect(session);
}

static void immovable(int channel, void *argument)
{
	(void)channel;
	setenv("GPUMEM_FAKE_WITHOUT", argument, 1);
	join("immovable");
	use_gpu();
	gpumem_managed *managed = make(BYTES);
	GM_REQUIRE(!moves(managed, GPUMEM_MANAGED_ON_DEVICE));
	gpumem_managed_destroy(managed);
	gpumem_disconnect(session);
}

START_TEST(what_the_driver_refuses_is_not_charged)
{
	start_with(CONFIG(""));
	one_worker(unlucky, (void *)"cuMemAllocManaged:1:2");
	one_worker(without, (void *)"managed");
	one_worker(immovable, (void *)"concurrent");
	tear_down();
}
END_TEST

/* Has the pool full, declares most of the device, and makes the memory at once. */
static void hasty(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gm_cu_ptr ptr;
	(void)channel;
	(void)argument;
	join("hasty");
	use_gpu();
	OK(gpumem_buffer_create(session, 0, 384 * MIB, NULL, &buffer));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).pooled == 384 * MIB);
	OK(gpumem_declare(session, 0, 384 * MIB, 0));
	CU(cuda->cuMemAlloc(&ptr, 384 * MIB));
	CU(cuda->cuMemFree(ptr));
	gpumem_disconnect(session);
}

START_TEST(the_room_is_there_when_a_declaration_is_answered)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	const char *env[] = {"GPUMEM_FAKE_DELAY=cuMemRelease:100000", NULL};
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = "[gpumemd]\nfraction = 0.9\nmin_free = 0\nreserve = 0\n"
					    "max_pool = 100%\npressure_critical = 1.0\n",
				  .args = args,
				  .env = env});
	one_worker(hasty, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("managed");
	TCase *tc = tcase_create("managed");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, the_cpu_and_the_device_see_the_same_bytes);
	tcase_add_test(tc, what_has_the_address_of_memory_that_went_with_its_context_is_left_alone);
	tcase_add_test(tc, what_the_driver_counts_is_not_foreign_as_well);
	tcase_add_test(tc, a_killed_process_is_charged_no_more);
	if (getenv("GPUMEM_FAKE_DIR")) {
		tcase_add_test(tc, what_the_driver_refuses_is_not_charged);
		tcase_add_test(tc, the_room_is_there_when_a_declaration_is_answered);
	}
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
