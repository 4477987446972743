/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Weights that stay, on GPUs: what one process loaded, others find after it was killed, byte for byte; and a loader that
 * is killed half way leaves no memory behind. See broker.h.
 */

#include "tests/gpu/broker.h"
#include "tests/integration/weights_fixture.h"

static char folder[128];

static gpumem_session *weights_join(const char *name)
{
	join(name);
	return session;
}

static void begin(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	start_with(CONFIG("host_limit = 96M\n"));
}

/* Reads a tensor as a program would: with the driver, at its pointer, in a context of the process. */
static void reads_with_the_driver(int channel, void *argument)
{
	uint8_t seed = *(const uint8_t *)argument, bytes[MODEL_ODD_BYTES];
	gpumem_weights *weights = NULL;

	join("reader");
	use_gpu();
	OK(gpumem_weights_attach(session, "llama", 0, &weights));
	const gpumem_weights_tensor *tensor = gpumem_weights_find(weights, "odd.3");
	GM_REQUIRE(tensor && tensor->bytes == sizeof(bytes));
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)bytes, (gm_cu_ptr)(uintptr_t)tensor->ptr,
		sizeof(bytes), NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	for (size_t i = 0; i < sizeof(bytes); i++)
		GM_REQUIRE_EQ(bytes[i], model_byte(3 * MODEL_ODD_BYTES + i, seed));
	gpumem_weights_detach(weights);
	gpumem_disconnect(session);
}

START_TEST(weights_outlive_their_loader_byte_for_byte)
{
	struct gm_worker one, two;
	uint8_t seed = 5;

	begin();
	weights_write(folder, seed);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, seed, 0, true}), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_REQUIRE_EQ(weights_start_reader(&one, &seed), 1);
	GM_REQUIRE_EQ(weights_start_reader(&two, &seed), 1);
	weights_in_process(reads_with_the_driver, &seed);
	weights_end(&one);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	weights_end(&two);
	GM_REQUIRE_EQ(weights_start_reader(&one, &seed), 1);
	weights_end(&one);
	weights_in_process(weights_remover, NULL);
	tear_down();
}
END_TEST

START_TEST(a_reader_keeps_its_version_while_the_next_is_published)
{
	struct gm_worker old, new;
	uint8_t first = 1, second = 2;

	begin();
	weights_write(folder, first);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, first, 0, false}), 1);
	GM_REQUIRE_EQ(weights_start_reader(&old, &first), 1);
	weights_write(folder, second);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, second, 1, false}), 2);
	GM_REQUIRE_EQ(weights_start_reader(&new, &second), 2);
	weights_end(&old);
	weights_in_process(weights_remover, NULL);
	weights_end(&new);
	tear_down();
}
END_TEST

START_TEST(a_loader_that_is_killed_half_way_leaves_no_memory)
{
	struct gm_worker loader;
	uint8_t seed = 7;

	begin();
	weights_write(folder, seed);
	gm_worker_start(&loader, weights_half_loader, folder);
	gm_hear_word(loader.channel, 'h');
	gm_worker_kill(&loader);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	/* The next one finds its place, and no name. */
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, seed, 0, false}), 1);
	weights_in_process(weights_remover, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weights on GPUs");
	TCase *tc = tcase_create("weights");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, weights_outlive_their_loader_byte_for_byte);
	tcase_add_test(tc, a_reader_keeps_its_version_while_the_next_is_published);
	tcase_add_test(tc, a_loader_that_is_killed_half_way_leaves_no_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
