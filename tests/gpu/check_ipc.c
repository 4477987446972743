/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The ipc transport, end to end: blocks of the daemon's, opened by workers that compute in them.
 * One source for the fake driver (make check) and a real GPU (make check-gpu). What only the fake
 * can be told to do (a device without a transport, a handle that does not open) is left out on a
 * real one.
 */

#include <fcntl.h>

#include "tests/gpu/broker.h"

/* What a driver may keep for itself when contexts come and go. Less than any block here. */
#define SLACK ((fake_driver() ? 16 : 40) * MIB)

static bool fake_driver(void)
{
	return getenv("GPUMEM_FAKE_DIR") != NULL;
}

static void start_without(const char *what)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	char text[64];
	snprintf(text, sizeof(text), "GPUMEM_FAKE_WITHOUT=%s", what);
	const char *const env[] = {text, NULL};
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){.config = CONFIG(""), .args = args, .env = env});
}

/* ---- memory that another process sees */

START_TEST(what_one_process_computes_another_finds_and_changes)
{
	start_with(CONFIG(""));
	pass_a_buffer(GPUMEM_TRANSPORT_IPC, _i);
}
END_TEST

START_TEST(a_shared_block_outlives_its_killed_maker)
{
	struct passing passing = {.transport = GPUMEM_TRANSPORT_IPC};
	struct gm_worker watch, a, b;
	start_with(IPC_CONFIG);
	gm_worker_start(&watch, watcher, NULL);
	uint64_t before = ask_free(&watch);
	begin_passing(&passing, &a, &b);
	gm_worker_kill(&a);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= PASSED); /* the opener pays now */
	gm_text_say_word(b.channel, 'w');
	gm_worker_join(&b);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	/* Its maker did not say that it closed it: it is not pooled. The context goes with it. */
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	GM_UNTIL(ask_free(&watch) + SLACK >= before);
	end_worker(&watch);
}
END_TEST

/* ---- the raw handle */

static void giver(int channel, void *argument)
{
	gpumem_buffer *buffer, *other;
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	join("giver");
	use_gpu();
	OK(create(8 * MIB, GPUMEM_TRANSPORT_FD, &other));
	REFUSED(gpumem_buffer_ipc_handle(other, handle), GPUMEM_E_UNSUPPORTED, "transport ipc");
	REFUSED(gpumem_buffer_ipc_handle(NULL, handle), GPUMEM_E_INVALID,
		"buffer must not be NULL");
	gpumem_buffer_destroy(other);
	OK(create(8 * MIB, GPUMEM_TRANSPORT_IPC, &buffer));
	REFUSED(gpumem_buffer_ipc_handle(buffer, NULL), GPUMEM_E_INVALID,
		"ret_handle must not be NULL");
	OK(gpumem_buffer_ipc_handle(buffer, handle));
	fill(gpumem_buffer_ptr(buffer), 8 * MIB, 0x55, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	gm_text_say(channel, handle, sizeof(handle));
	gm_hear_word(channel, 'r');
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), 8 * MIB, 0x66, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* A program that has never heard of gpumemd. */
static void stranger(int channel, void *argument)
{
	gm_cu_ipc_mem handle;
	gm_cu_ptr ptr;
	if (argument)
		become(UID_A);
	gm_hear(channel, &handle, sizeof(handle));
	use_gpu();
	CU(cuda->cuIpcOpenMemHandle(&ptr, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	GM_REQUIRE(all((void *)(uintptr_t)ptr, 8 * MIB, 0x55, NULL));
	fill((void *)(uintptr_t)ptr, 8 * MIB, 0x66, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	CU(cuda->cuIpcCloseMemHandle(ptr));
}

START_TEST(a_plain_program_opens_the_raw_handle)
{
	struct gm_worker a, b;
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	start_with(CONFIG(""));
	gm_worker_start(&a, giver, NULL);
	gm_hear(a.channel, handle, sizeof(handle));
	gm_worker_start(&b, stranger, _i ? "" : NULL);
	gm_text_say(b.channel, handle, sizeof(handle));
	gm_worker_join(&b);
	gm_text_say_word(a.channel, 'r');
	gm_worker_join(&a);
}
END_TEST

/* ---- the examples */

/* The first line that a program prints; the rest is read to its end. Returns its exit status. */
static int first_line(const char *program, const char *argument, char line[256])
{
	char command[1024], rest[256];
	snprintf(command, sizeof(command), "%s/examples/%s %s", getenv("top_builddir"), program,
		argument);
	FILE *out = popen(command, "r");
	GM_REQUIRE(out);
	line[0] = '\0';
	if (fgets(line, 256, out))
		while (fgets(rest, sizeof(rest), out))
			;
	int status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Opens a buffer's handle with the example that knows nothing of gpumemd. */
static void displayer(int channel, void *argument)
{
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	char text[2 * sizeof(handle) + 1], line[256];
	gpumem_buffer *buffer;
	join("displayer");
	use_gpu();
	OK(create(8 * MIB, GPUMEM_TRANSPORT_IPC, &buffer));
	fill(gpumem_buffer_ptr(buffer), 8 * MIB, 0x55, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	OK(gpumem_buffer_ipc_handle(buffer, handle));
	for (size_t i = 0; i < sizeof(handle); i++)
		snprintf(text + 2 * i, 3, "%02x", handle[i]);
	GM_REQUIRE_EQ(first_line("ipc_open", text, line), 0);
	GM_REQUIRE(strcmp(line, "55 55 55 55 55 55 55 55 55 55 55 55 55 55 55 55\n") == 0);
	text[0] = 'x';
	GM_REQUIRE_EQ(first_line("ipc_open", text, line), 2);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(the_example_opens_a_raw_handle)
{
	start_with(CONFIG(""));
	one_worker(displayer, NULL);
}
END_TEST

static void copier(int channel, void *argument)
{
	char line[256];
	GM_REQUIRE(setenv("GPUMEM_SOCKET", daemon_.socket, 1) == 0);
	GM_REQUIRE_EQ(first_line("copy", "2>&1", line), 0);
	GM_REQUIRE(strstr(line, "\"hello\" at 0x") == line);
}

START_TEST(the_example_copies_to_the_gpu_and_back)
{
	start_with(CONFIG(""));
	one_worker(copier, NULL);
}
END_TEST

/* A kernel's results, read by the other example. The fake driver runs no kernels. */
static void computer(int channel, void *argument)
{
	char command[1024], line[256] = "", handle[256] = "";
	int in[2];
	GM_REQUIRE(setenv("GPUMEM_SOCKET", daemon_.socket, 1) == 0);
	if (fake_driver()) {
		GM_REQUIRE_EQ(first_line("cuda_worker", "2>&1", line), 1);
		GM_REQUIRE(strstr(line, "no kernels"));
		return;
	}
	GM_REQUIRE_EQ(first_line("cuda_worker", "", line), 0);
	GM_REQUIRE(strstr(line, "1000000 numbers"));
	/* It keeps its buffer until its input ends. */
	GM_REQUIRE(pipe2(in, O_CLOEXEC) == 0 && dup2(in[0], 0) == 0);
	snprintf(command, sizeof(command), "%s/examples/cuda_worker --ipc", getenv("top_builddir"));
	FILE *out = popen(command, "r");
	GM_REQUIRE(out && fgets(line, sizeof(line), out) && fgets(handle, sizeof(handle), out));
	handle[strcspn(handle, "\n")] = '\0';
	GM_REQUIRE_EQ(first_line("ipc_open", handle, line), 0);
	GM_REQUIRE(strcmp(line, "00 00 80 3f 00 00 40 40 00 00 a0 40 00 00 e0 40\n") == 0);
	close(in[1]);
	GM_REQUIRE_EQ(pclose(out), 0);
}

START_TEST(the_example_computes_in_memory_of_the_broker)
{
	start_with(CONFIG(""));
	one_worker(computer, NULL);
}
END_TEST

/* ---- opened once */

static void twice(int channel, void *argument)
{
	gpumem_buffer *first, *again, *once_more;
	gpumem_session *other;
	gpumem_token token;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	join("twice");
	use_gpu();
	/* Of all openings but the first the driver must not hear. */
	GM_REQUIRE(setenv("GPUMEM_FAKE_FAIL", "cuIpcOpenMemHandle:2:1", 1) == 0);
	OK(create(8 * MIB, GPUMEM_TRANSPORT_IPC, &first));
	OK(gpumem_share(first, NULL, &token));
	OK(gpumem_open(session, &token, &again));
	options.socket = daemon_.socket;
	OK(gpumem_connect(&options, &other));
	OK(gpumem_open(other, &token, &once_more));
	GM_REQUIRE(gpumem_buffer_ptr(again) == gpumem_buffer_ptr(first));
	GM_REQUIRE(gpumem_buffer_ptr(once_more) == gpumem_buffer_ptr(first));
	void *ptr = gpumem_buffer_ptr(first);
	fill(ptr, 8 * MIB, 0x77, NULL);
	/* In whichever order they go, the last one finds it as it was. */
	gpumem_buffer_destroy(first);
	gpumem_disconnect(session);
	GM_REQUIRE(all(ptr, 8 * MIB, 0x77, NULL));
	gpumem_disconnect(other);
}

START_TEST(a_block_is_opened_once_in_a_process)
{
	start_with(CONFIG(""));
	one_worker(twice, NULL);
}
END_TEST

/* ---- what cannot be had */

static void refused(int channel, void *argument)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_buffer *buffer = NULL;
	const char *lacks = argument;
	bool no_fd = strcmp(lacks, "fd") == 0;
	gpumem_transport asked = no_fd ? GPUMEM_TRANSPORT_FD : GPUMEM_TRANSPORT_IPC;
	gpumem_transport has = no_fd ? GPUMEM_TRANSPORT_IPC : GPUMEM_TRANSPORT_FD;
	join("refused");
	OK(gpumem_device_info(session, 0, &info));
	GM_REQUIRE_EQ(info.transport, has);
	GM_REQUIRE_EQ(info.transports, UINT32_C(1) << has);
	REFUSED(create(8 * MIB, asked, &buffer), GPUMEM_E_UNSUPPORTED,
		no_fd ? "no fd transport: the driver says that it cannot; ask for ipc"
		      : "no ipc transport: the driver says that it cannot; ask for fd");
	REFUSED(create(8 * MIB, (gpumem_transport)7, &buffer), GPUMEM_E_INVALID, "transport 7");
	GM_REQUIRE(!buffer);
	OK(create(8 * MIB, GPUMEM_TRANSPORT_AUTO, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_transport(buffer), has);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_transport_that_the_device_lacks_is_refused_with_the_reason)
{
	start_without(_i ? "ipc" : "fd");
	one_worker(refused, _i ? "ipc" : "fd");
}
END_TEST

static void misled(int channel, void *argument)
{
	join("misled");
	gpumem_buffer *buffer;
	void *ptr;
	REFUSED(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr), GPUMEM_E_UNSUPPORTED,
		"transport = auto");
	REFUSED(create(8 * MIB, GPUMEM_TRANSPORT_AUTO, &buffer), GPUMEM_E_UNSUPPORTED,
		"transport = auto");
	gpumem_disconnect(session);
}

START_TEST(a_configured_transport_that_the_device_lacks_is_named_as_the_cause)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	static const char *const env[] = {"GPUMEM_FAKE_WITHOUT=ipc", NULL};
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){.config = IPC_CONFIG, .args = args, .env = env});
	one_worker(misled, NULL);
}
END_TEST

static void unlucky(int channel, void *argument)
{
	gpumem_buffer *buffer;
	void *ptr;
	join("unlucky");
	use_gpu();
	GM_REQUIRE(setenv("GPUMEM_FAKE_FAIL", "cuIpcOpenMemHandle:0:205", 1) == 0);
	REFUSED(create(8 * MIB, GPUMEM_TRANSPORT_IPC, &buffer), GPUMEM_E_SYSTEM,
		"CUDA_ERROR_MAP_FAILED");
	REFUSED(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr), GPUMEM_E_SYSTEM,
		"CUDA_ERROR_MAP_FAILED");
	REFUSED(gpumem_alloc(session, 0, 64, NULL, NULL, &ptr), GPUMEM_E_SYSTEM,
		"CUDA_ERROR_MAP_FAILED");
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'g');
	GM_REQUIRE(unsetenv("GPUMEM_FAKE_FAIL") == 0);
	OK(create(8 * MIB, GPUMEM_TRANSPORT_IPC, &buffer));
	OK(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr));
	fill(ptr, 8 * MIB, 0x12, NULL);
	GM_REQUIRE(all(ptr, 8 * MIB, 0x12, NULL));
	gpumem_disconnect(session);
}

START_TEST(a_handle_that_does_not_open_is_an_error_with_the_drivers_word_and_goes_back)
{
	struct gm_worker worker;
	start_with(IPC_CONFIG);
	gm_worker_start(&worker, unlucky, NULL);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
}
END_TEST

/* ---- the heap */

#define BLOCKS 64

static void allocator(int channel, void *argument)
{
	static const uint64_t sizes[] = {1, 256, 4096, 32 * 1024, 100000, MIB, 3 * MIB, 9 * MIB};
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	void *ptr[BLOCKS];
	uint64_t bytes;
	join("allocator");
	use_gpu();
	OK(gpumem_device_info(session, 0, &info));
	GM_REQUIRE_EQ(info.transport, GPUMEM_TRANSPORT_IPC);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
			bytes = sizes[i % 8];
			options.alignment = i == 6 ? 8 * MIB : 0;
			OK(gpumem_alloc(session, 0, bytes, NULL, &options, &ptr[i]));
			GM_REQUIRE((uintptr_t)ptr[i] % (i == 6 ? 8 * MIB : 256) == 0);
			fill(ptr[i], bytes, (unsigned char)(i + 1), NULL);
		}
		for (int i = 0; i < BLOCKS; i++)
			GM_REQUIRE(all(ptr[i], sizes[i % 8], (unsigned char)(i + 1), NULL));
		REFUSED(gpumem_free(session, (char *)ptr[7] + MIB, NULL), GPUMEM_E_INVALID,
			"inside a block");
		REFUSED(gpumem_free(session, &stats, NULL), GPUMEM_E_INVALID,
			"this session has no memory");
		for (int i = 0; i < BLOCKS; i++)
			OK(gpumem_free(session, ptr[i], NULL));
	}
	/* What was freed is used again, and all of it goes back. */
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE(stats.allocated < 4 * 120 * MIB && stats.hits > stats.misses);
	CU(cuda->cuStreamSynchronize(NULL));
	GM_REQUIRE(give_all_back() > 0);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

START_TEST(allocating_works_on_a_device_without_the_fd_transport)
{
	struct gm_worker worker;
	if (_i)
		start_without("fd");
	else
		start_with(IPC_CONFIG);
	gm_worker_start(&worker, allocator, NULL);
	gm_hear_word(worker.channel, 'd');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
}
END_TEST

static void filler(int channel, void *argument)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	void *ptr[512], *large;
	unsigned n = 0;
	join("filler");
	use_gpu();
	OK(gpumem_device_info(session, 0, &info));
	uint64_t bytes = info.capacity / 48 / MIB * MIB;
	gpumem_status status;
	for (;;) {
		status = gpumem_alloc(session, 0, bytes, NULL, NULL, &ptr[n]);
		if (status || ++n == 512)
			break;
	}
	GM_REQUIRE_EQ(status, GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(n >= 16);
	for (unsigned i = 0; i < n; i++)
		fill(ptr[i], bytes, (unsigned char)i, NULL);
	for (unsigned i = 0; i < n; i += 7)
		GM_REQUIRE(all((char *)ptr[i] + bytes - MIB, MIB, (unsigned char)i, NULL));
	for (unsigned i = 0; i < n; i++)
		OK(gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE));
	/* Half of it in one piece: none of the regions here is large enough, so they go back. */
	OK(gpumem_alloc(session, 0, bytes * 20, NULL, NULL, &large));
	OK(gpumem_free(session, large, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

START_TEST(what_is_free_in_small_regions_can_be_had_in_one_piece)
{
	start_with(IPC_CONFIG);
	one_worker(filler, NULL);
}
END_TEST

static void freer(int channel, void *argument)
{
	void *ptr, *other;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	join("freer");
	use_gpu();
	gm_cu_stream busy = stream_new(), idle = stream_new();
	OK(gpumem_alloc(session, 0, 8 * MIB, busy, NULL, &ptr));
	keep_busy(busy);
	fill(ptr, 8 * MIB, 0xaa, busy);
	OK(gpumem_free(session, ptr, busy)); /* would hang here if it waited */
	OK(gpumem_alloc(session, 0, 8 * MIB, idle, NULL, &other));
	fill(other, 8 * MIB, 0xbb, idle);
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE(stats.allocated >= 16 * MIB);
	open_gate();
	CU(cuda->cuStreamSynchronize(busy));
	GM_REQUIRE(all(other, 8 * MIB, 0xbb, idle));
	OK(gpumem_free(session, other, idle));
	give_all_back();
	gpumem_disconnect(session);
}

START_TEST(freeing_does_not_wait_and_regions_go_after_their_last_use)
{
	start_with(IPC_CONFIG);
	one_worker(freer, NULL);
}
END_TEST

static void both(int channel, void *argument)
{
	uint32_t count;
	void *a[8], *b[8];
	join("both");
	OK(gpumem_device_count(session, &count));
	GM_REQUIRE(count >= 2);
	use_gpu();
	/* Regions of two devices lie among one another. */
	for (int i = 0; i < 8; i++) {
		OK(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &a[i]));
		OK(gpumem_alloc(session, 1, 3 * MIB, NULL, NULL, &b[i]));
	}
	for (int i = 0; i < 8; i++) {
		gpumem_stats_t stats = GPUMEM_STATS_INIT;
		OK(gpumem_free(session, b[i], GPUMEM_STREAM_DONE));
		OK(gpumem_stats(session, 1, &stats));
		GM_REQUIRE_EQ(stats.active_buffers, 7 - i);
		OK(gpumem_stats(session, 0, &stats));
		GM_REQUIRE_EQ(stats.active_buffers, 8);
	}
	for (int i = 0; i < 8; i++)
		OK(gpumem_free(session, a[i], GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

START_TEST(pointers_of_two_devices_are_told_apart)
{
	start_with(IPC_CONFIG);
	one_worker(both, NULL);
}
END_TEST

/* ---- life and death */

START_TEST(a_killed_workers_block_is_free_on_the_device)
{
	start_with(IPC_CONFIG);
	kill_a_holder(SLACK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
}
END_TEST

START_TEST(workers_compute_on_while_the_daemon_is_dead)
{
	start_with(IPC_CONFIG);
	outlive_the_daemon();
}
END_TEST

static void reuser(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("reuser");
	use_gpu();
	/* Five eighths of a doubling: the class above it is what is pooled. */
	for (int i = 0; i < 3; i++) {
		OK(create(33 * MIB, GPUMEM_TRANSPORT_IPC, &buffer));
		gpumem_buffer_destroy(buffer);
		gm_text_say_word(channel, 'd');
		gm_hear_word(channel, 'n');
	}
	gpumem_disconnect(session);
}

START_TEST(a_returned_block_is_pooled_by_its_class_and_used_again)
{
	struct gm_worker worker;
	start_with(CONFIG(""));
	uint64_t fresh = gm_figures_now(&daemon_).pooled;
	gm_worker_start(&worker, reuser, NULL);
	for (int i = 0; i < 3; i++) {
		gm_hear_word(worker.channel, 'd');
		GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
		/* 40 MiB, once, however often; the reserve of the other transport aside. */
		GM_REQUIRE(gm_figures_now(&daemon_).pooled >= 40 * MIB);
		GM_REQUIRE(gm_figures_now(&daemon_).pooled <= fresh + 8 * MIB + 40 * MIB);
		gm_text_say_word(worker.channel, 'n');
	}
	gm_worker_join(&worker);
}
END_TEST

static void sizer(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("sizer");
	use_gpu();
	uint64_t before = free_on_device();
	OK(create(32 * MIB, GPUMEM_TRANSPORT_IPC, &buffer));
	/* The block, and the context that the daemon made for it. */
	GM_REQUIRE(free_on_device() + 40 * MIB <= before);
	gpumem_buffer_destroy(buffer);
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "all is back"))
		if (free_on_device() + SLACK >= before)
			break;
	gpumem_disconnect(session);
}

START_TEST(the_daemons_context_goes_with_the_last_block)
{
	start_with(CONFIG("trust = client\n"));
	one_worker(sizer, NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ipc transport on GPUs");
	TCase *t = tcase_create("ipc");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, tear_down);
	/* The second round of these is with a process of another user. */
	tcase_add_loop_test(t, what_one_process_computes_another_finds_and_changes, 0,
		1 + GM_TAP_WITH_USERS(what_one_process_computes_another_finds_and_changes));
	tcase_add_test(t, a_shared_block_outlives_its_killed_maker);
	tcase_add_loop_test(t, a_plain_program_opens_the_raw_handle, 0,
		1 + GM_TAP_WITH_USERS(a_plain_program_opens_the_raw_handle));
	tcase_add_test(t, the_example_opens_a_raw_handle);
	tcase_add_test(t, the_example_copies_to_the_gpu_and_back);
	tcase_add_test(t, the_example_computes_in_memory_of_the_broker);
	tcase_add_test(t, a_block_is_opened_once_in_a_process);
	tcase_add_loop_test(
		t, allocating_works_on_a_device_without_the_fd_transport, 0, fake_driver() ? 2 : 1);
	tcase_add_test(t, what_is_free_in_small_regions_can_be_had_in_one_piece);
	tcase_add_test(t, freeing_does_not_wait_and_regions_go_after_their_last_use);
	tcase_add_test(t, a_killed_workers_block_is_free_on_the_device);
	tcase_add_test(t, workers_compute_on_while_the_daemon_is_dead);
	tcase_add_test(t, a_returned_block_is_pooled_by_its_class_and_used_again);
	tcase_add_test(t, the_daemons_context_goes_with_the_last_block);
	/* What takes a driver that can be told to fail, or a second GPU, is not run elsewhere: it
	 * would count as passed. */
	if (fake_driver()) {
		tcase_add_loop_test(
			t, a_transport_that_the_device_lacks_is_refused_with_the_reason, 0, 2);
		tcase_add_test(
			t, a_configured_transport_that_the_device_lacks_is_named_as_the_cause);
		tcase_add_test(t,
			a_handle_that_does_not_open_is_an_error_with_the_drivers_word_and_goes_back);
		tcase_add_test(t, pointers_of_two_devices_are_told_apart);
	}
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return gm_tap_run(suite());
}
