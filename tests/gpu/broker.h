/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_BROKER_H
#define GM_TESTS_GPU_BROKER_H

/*
 * What tests of the whole broker on GPUs share: a private daemon on the cuda backend, and workers
 * that pass a buffer on, hold one, or watch the device. The test itself never touches CUDA, so that
 * it may fork workers at any time; memory is set and read by the driver, in the worker that holds
 * it (worker.h).
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321

static struct gm_daemon daemon_;

/* Sizes that fit a fake device of 512 MiB and do not hurt a real one. */
#define CONFIG(general) "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 8M\n" general
#define IPC_CONFIG      "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\ntransport = ipc\n"

static inline void start_with(const char *config)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .args = args});
}

static inline bool nothing_is_held(void)
{
	struct gm_figures f = gm_figures_now(&daemon_);
	return f.leased + f.quarantined + f.admitted + f.orphaned == 0;
}

/* The memory of a process that has ended is released on several turns of the loop. */
static inline void tear_down(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(nothing_is_held());
	gm_daemon_stop(&daemon_);
}

static inline uint64_t leased_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.leased;
}

/* In a worker. */
static inline void join(const char *name)
{
	join_at(daemon_.socket, name);
}

static inline gpumem_status create(uint64_t bytes, gpumem_transport transport, gpumem_buffer **ret)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.transport = transport;
	return gpumem_buffer_create(session, 0, bytes, &options, ret);
}

static inline gpumem_status create_for_others(
	uint64_t bytes, gpumem_transport transport, gpumem_buffer **ret)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.transport = transport;
	options.flags = GPUMEM_BUFFER_FOR_OTHERS;
	return gpumem_buffer_create(session, 0, bytes, &options, ret);
}

/* ---- a buffer that goes from one process to another */

#define PASSED (48 * MIB)

struct passing {
	gpumem_transport transport;
	bool other_uid;
};

/* A buffer that was not made for others cannot be shared with them. */
static inline void require_no_old_data(const gpumem_share_options *options)
{
	gpumem_buffer *buffer;
	gpumem_token token;
	OK(create(2 * MIB, GPUMEM_TRANSPORT_AUTO, &buffer));
	GM_REQUIRE_EQ(gpumem_share(buffer, options, &token), GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE(strstr(gpumem_error_detail(), "create it for others") != NULL);
	gpumem_buffer_destroy(buffer);
}

static inline void maker(int channel, void *argument)
{
	const struct passing *passing = argument;
	gpumem_buffer *buffer;
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_token token;
	if (passing->other_uid) {
		options.audience = GPUMEM_AUDIENCE_UID;
		options.id = UID_A;
	}
	join("maker");
	use_gpu();
	OK(create_for_others(PASSED, passing->transport, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_transport(buffer), passing->transport);
	fill(gpumem_buffer_ptr(buffer), PASSED, 0x11, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	if (passing->other_uid) {
		GM_REQUIRE_EQ(gpumem_share(buffer, &options, &token), GPUMEM_E_UNSUPPORTED);
		options.flags = GPUMEM_READERS_CAN_WRITE;
		require_no_old_data(&options);
	}
	OK(gpumem_share(buffer, &options, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'r');
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), PASSED, 0x22, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

static inline void opener(int channel, void *argument)
{
	const struct passing *passing = argument;
	gpumem_buffer *buffer;
	gpumem_token token;
	if (passing->other_uid)
		become(UID_A);
	gm_hear(channel, &token, sizeof(token));
	join("opener");
	use_gpu();
	OK(gpumem_open(session, &token, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), PASSED);
	GM_REQUIRE_EQ(gpumem_buffer_transport(buffer), passing->transport);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), PASSED, 0x11, NULL));
	gm_text_say_word(channel, 'o');
	gm_hear_word(channel, 'w');
	fill(gpumem_buffer_ptr(buffer), PASSED, 0x22, NULL);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), PASSED, 0x22, NULL));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* Both are started; the opener has read what the maker wrote, and has not written yet. */
static inline void begin_passing(struct passing *passing, struct gm_worker *a, struct gm_worker *b)
{
	gpumem_token token;
	gm_worker_start(a, maker, passing);
	gm_worker_start(b, opener, passing);
	gm_hear(a->channel, &token, sizeof(token));
	gm_text_say(b->channel, &token, sizeof(token));
	gm_hear_word(b->channel, 'o');
}

static inline void pass_a_buffer(gpumem_transport transport, bool other_uid)
{
	struct passing passing = {transport, other_uid};
	struct gm_worker a, b;
	begin_passing(&passing, &a, &b);
	gm_text_say_word(b.channel, 'w');
	gm_worker_join(&b);
	gm_text_say_word(a.channel, 'r');
	gm_worker_join(&a);
}

/* ---- who holds memory through what happens to others */

#define HELD (96 * MIB)

/* Says which child it has (0: none; one by any argument). */
static inline void holder(int channel, void *argument)
{
	void *ptr, *more;
	join("holder");
	use_gpu();
	OK(gpumem_alloc(session, 0, HELD, NULL, NULL, &ptr));
	fill(ptr, HELD, 0x33, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
	pid_t child = 0;
	if (argument) {
		child = fork();
		if (child == 0)
			for (;;)
				pause();
	}
	gm_text_say(channel, &child, sizeof(child));
	gm_hear_word(channel, 'g');
	/* Whatever happened meanwhile, the memory is as it was. */
	GM_REQUIRE(all(ptr, HELD, 0x33, NULL));
	fill(ptr, HELD, 0x34, NULL);
	GM_REQUIRE(all(ptr, HELD, 0x34, NULL));
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "it is back"))
		if (gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &more) == GPUMEM_OK)
			break;
	fill(more, 64 * MIB, 0x35, NULL);
	GM_REQUIRE(all(more, 64 * MIB, 0x35, NULL));
	GM_REQUIRE(all(ptr, HELD, 0x34, NULL));
	OK(gpumem_free(session, more, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

static inline pid_t start_holder(struct gm_worker *hold, void *with_child)
{
	pid_t child;
	gm_worker_start(hold, holder, with_child);
	gm_hear(hold->channel, &child, sizeof(child));
	return child;
}

/* It goes on computing while the daemon is dead, and gets more of the next one. */
static inline void outlive_the_daemon(void)
{
	struct gm_worker hold;
	start_holder(&hold, NULL);
	gm_daemon_kill(&daemon_);
	gm_text_say_word(hold.channel, 'g');
	gm_hear_word(hold.channel, 'd');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_text_say_word(hold.channel, 'e');
	gm_worker_join(&hold);
}

/* ---- what is free on the device, as a process with a context sees it */

static inline void watcher(int channel, void *argument)
{
	use_gpu();
	for (;;) {
		char word;
		uint64_t bytes;
		gm_hear(channel, &word, 1);
		if (word == 'e')
			return;
		bytes = free_on_device();
		gm_text_say(channel, &bytes, sizeof(bytes));
	}
}

static inline uint64_t ask_free(struct gm_worker *worker)
{
	uint64_t bytes;
	gm_text_say_word(worker->channel, 'f');
	gm_hear(worker->channel, &bytes, sizeof(bytes));
	return bytes;
}

/* Runs a worker and restarts the daemon twice meanwhile: when the worker says 'r'. The worker hears 'd' when
 * the next daemon runs. */
static inline void run_in_restarts(void (*fn)(int channel, void *argument))
{
	struct gm_worker worker;
	gm_worker_start(&worker, fn, NULL);
	for (int i = 0; i < 2; i++) {
		gm_hear_word(worker.channel, 'r');
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		gm_text_say_word(worker.channel, 'd');
	}
	gm_worker_join(&worker);
}

/* A worker that holds memory is killed: it is free on the device again, but for the slack. */
static inline void kill_a_holder(uint64_t slack)
{
	struct gm_worker watch, hold;
	gm_worker_start(&watch, watcher, NULL);
	uint64_t before = ask_free(&watch);
	start_holder(&hold, NULL);
	GM_REQUIRE(ask_free(&watch) <= before - HELD);
	gm_worker_kill(&hold);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_UNTIL(ask_free(&watch) + slack >= before);
	end_worker(&watch);
}

#endif
