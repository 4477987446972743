/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Clients that leave what others may not have yet: what was freed may be in use by the GPU still,
 * and is not taken away under it; what the driver does not unmap does not go back. See broker.h.
 */

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/gpu/broker.h"

#define BYTES (4 * MIB)

static _Atomic bool left;

/* Whether the library's own thread is there, which ends first when a session does. */
static bool listens(void)
{
	char path[64], name[16];
	bool found = false;
	DIR *tasks = opendir("/proc/self/task");
	GM_REQUIRE(tasks);
	for (struct dirent *task; (task = readdir(tasks));) {
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task->d_name);
		FILE *file = fopen(path, "re");
		if (!file)
			continue;
		found = found || (fgets(name, sizeof(name), file) && !strcmp(name, "gpumem\n"));
		fclose(file);
	}
	closedir(tasks);
	return found;
}

/* Lets the GPU go on when the session is past its beginning of the end. Who does not wait has ended
 * by then, or does so soon. */
static void *open_gate_at_last(void *unused)
{
	while (listens())
		sched_yield();
	for (int i = 0; i < 10000 && !left; i++)
		sched_yield();
	open_gate();
	return NULL;
}

enum how { ON_ITS_STREAM, ON_ANY, SMALL, BATCH, PINNED, HOWS };

static void leave_at_work(int channel, void *argument)
{
	const enum how how = *(const int *)argument;
	uint64_t bytes = how == SMALL ? 512 : BYTES;
	pthread_t thread;
	void *ptr = NULL;
	gpumem_batch *batch = NULL;
	const gpumem_batch_entry two[2] = {{bytes, 0, NULL}, {bytes, 0, NULL}};
	join("leaving");
	use_gpu();
	gm_cu_stream stream = stream_new();
	if (how == PINNED)
		OK(gpumem_host_alloc(session, bytes, NULL, &ptr));
	else if (how == BATCH)
		OK(gpumem_batch_create(session, 0, two, 2, NULL, &batch));
	else
		OK(gpumem_alloc(session, 0, bytes, stream, NULL, &ptr));
	keep_busy(stream);
	fill(batch ? gpumem_batch_ptr(batch, 0) : ptr, bytes, 1, stream);
	if (batch)
		OK(gpumem_batch_free_entry(batch, 0, stream));
	else
		OK(gpumem_free(session, ptr, how == ON_ANY ? GPUMEM_STREAM_ANY : stream));
	GM_REQUIRE(pthread_create(&thread, NULL, open_gate_at_last, NULL) == 0);
	gpumem_disconnect(session);
	left = true;
	/* It had its memory to the end. */
	CU(cuda->cuStreamSynchronize(stream));
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
}

START_TEST(what_was_freed_under_the_gpus_work_is_there_until_that_is_over)
{
	int how = _i % HOWS;
	if (_i < HOWS)
		start_with(CONFIG(""));
	else if (how == PINNED)
		start_with(CONFIG("host_memory = memfd\n"));
	else
		start_with(IPC_CONFIG);
	one_worker(leave_at_work, &how);
	tear_down();
}
END_TEST

static void leave_in_a_capture(int channel, void *argument)
{
	void *ptr;
	join("capturing");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(gpumem_alloc(session, 0, BYTES, NULL, NULL, &ptr));
	begin_capture(stream);
	uint64_t graph;
	OK(gpumem_graph_of(session, 0, stream, &graph));
	/* Not before: until the library knows of the capture, its thread may break it by an event.
	 */
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
	/* No event can be had, and nothing waits for one. */
	gpumem_disconnect(session);
	(void)end_capture(stream);
}

START_TEST(who_leaves_while_a_stream_is_captured_does_not_wait_for_ever)
{
	start_with(CONFIG(""));
	one_worker(leave_in_a_capture, NULL);
	tear_down();
}
END_TEST

/* ---- memory that the driver does not unmap */

enum what { BUFFER, IPC_BUFFER, HEAP, IPC_HEAP, WHATS };

static void keep(int channel, void *argument)
{
	const enum what what = *(const int *)argument;
	gpumem_buffer *buffer;
	void *ptr;
	setenv("GPUMEM_FAKE_FAIL", "cuMemUnmap:0:999,cuIpcCloseMemHandle:0:999", 1);
	join("keeping");
	if (what == BUFFER || what == IPC_BUFFER) {
		OK(create(BYTES, what == BUFFER ? GPUMEM_TRANSPORT_FD : GPUMEM_TRANSPORT_IPC,
			&buffer));
		gpumem_buffer_destroy(buffer);
	} else {
		OK(gpumem_alloc(session, 0, BYTES, NULL, NULL, &ptr));
		OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	}
	OK(gpumem_trim(session, NULL));
	gm_text_say_word(channel, 't');
	gm_hear_word(channel, 'd');
	gpumem_disconnect(session);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
}

START_TEST(what_cannot_be_unmapped_goes_to_nobody_while_the_process_lives)
{
	int what = _i;
	struct gm_worker worker;
	start_with(what == IPC_HEAP ? IPC_CONFIG : CONFIG(""));
	gm_worker_start(&worker, keep, &what);
	gm_hear_word(worker.channel, 't');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, BYTES);
	gm_text_say_word(worker.channel, 'd');
	gm_hear_word(worker.channel, 'd');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, BYTES);
	end_worker(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined == 0);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leave");
	TCase *tc = tcase_create("leave");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(
		tc, what_was_freed_under_the_gpus_work_is_there_until_that_is_over, 0, 2 * HOWS);
	tcase_add_test(tc, who_leaves_while_a_stream_is_captured_does_not_wait_for_ever);
	/* The driver has to fail when told. */
	if (getenv("GPUMEM_FAKE_DIR"))
		tcase_add_loop_test(tc,
			what_cannot_be_unmapped_goes_to_nobody_while_the_process_lives, 0, WHATS);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
