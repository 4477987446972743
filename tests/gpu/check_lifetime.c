/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Lifetime by scope on a GPU: GPUMEM_AUTO_SESSION, _BUFFER and _BATCH free what a function leaves behind, on
 * its way out by an error, too, a batch also while the GPU still works with it. Then the program in C++ with
 * its cases of gpumem.hpp. See broker.h.
 */

#include "tests/gpu/broker.h"

#define BYTES (8 * MIB)

/* Takes everything, lets a stream work with the batch, and fails. */
static gpumem_status fail_half_way(gm_cu_stream stream)
{
	static const gpumem_batch_entry entries[] = {{.bytes = BYTES}, {.bytes = BYTES}};
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	GPUMEM_AUTO_SESSION gpumem_session *own = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *never = NULL;
	GPUMEM_AUTO_BATCH gpumem_batch *batch = NULL;

	options.socket = daemon_.socket;
	OK(gpumem_connect(&options, &own));
	OK(gpumem_buffer_create(own, 0, BYTES, NULL, &buffer));
	OK(gpumem_batch_create(own, 0, entries, 2, NULL, &batch));
	fill(gpumem_buffer_ptr(buffer), BYTES, 1, stream);
	/* A batch may be destroyed while work uses it, a buffer may not. */
	CU(cuda->cuStreamSynchronize(stream));
	fill(gpumem_batch_ptr(batch, 1), BYTES, 2, stream);
	return gpumem_buffer_create(own, 0, UINT64_C(1) << 45, NULL, &never);
}

static void scoped(int channel, void *argument)
{
	(void)channel;
	(void)argument;
	use_gpu();
	gm_cu_stream stream = stream_new();
	for (unsigned i = 0; i < 20; i++)
		GM_REQUIRE(fail_half_way(stream) != GPUMEM_OK);
	/* The work went on and harmed nobody. */
	CU(cuda->cuStreamSynchronize(stream));
}

/* tear_down() requires that the daemon has everything back. */
START_TEST(what_a_scope_leaves_behind_is_freed)
{
	start_with(CONFIG(""));
	one_worker(scoped, NULL);
	tear_down();
}
END_TEST

static void in_cxx(int channel, void *argument)
{
	const char *build = getenv("top_builddir"), *name = argument;
	char path[512];

	(void)channel;
	snprintf(path, sizeof(path), "%s/tests/integration/%s", build ? build : ".", name);
	GM_REQUIRE(setenv("GPUMEM_SOCKET", daemon_.socket, 1) == 0);
	execl(path, name, (char *)NULL);
	GM_FAIL("cannot start %s: %s", path, strerror(errno));
}

/* It prints a line for each case, and ends with 1 if one of them failed. */
START_TEST(programs_in_cxx_pass_their_cases)
{
	static const char *const names[] = {"hpp_worker", "hpp_worker_plain"};

	start_with("[gpumemd]\nfraction = 0.9\nmin_free = 0\nreserve = 0\nhost_limit = 64M\n");
	one_worker(in_cxx, (void *)names[_i]);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lifetime");
	TCase *tc = tcase_create("lifetime");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_a_scope_leaves_behind_is_freed);
#ifdef GM_HAVE_CXX
	tcase_add_loop_test(tc, programs_in_cxx_pass_their_cases, 0, 2);
#else
	(void)programs_in_cxx_pass_their_cases;
#endif
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
