/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PRELOAD_PLAY_H
#define GM_TESTS_GPU_PRELOAD_PLAY_H

/* What tests share that run the scenes of preload_actor under libgpumem-preload.so. */

#include "tests/gpu/preload_fixture.h"

struct play {
	const char *route, *scene;
	const char *env;    /* one more NAME=VALUE, or NULL */
	const char *output; /* where its stderr goes; NULL: as the test's */
	const char *socket; /* where it looks for the daemon; NULL: where it is */
	bool beside;        /* another library is preloaded, too */
	bool before;        /* before ours */
};

/* In the worker: becomes the program. */
static inline void act(int channel, void *argument)
{
	const struct play *play = argument;
	char preload[1024] = "", program[512];

	if (play->before) {
		built(preload, "tests/gpu", "libbeside.so");
		strcat(preload, ":");
	}
	built(preload + strlen(preload), "preload", "libgpumem-preload.so");
	built(program, "tests/gpu",
		strcmp(play->route, "linked") == 0 ? "preload_linked" : "preload_actor");
	prepare_program(channel);
	if (play->beside) {
		strcat(preload, ":");
		built(preload + strlen(preload), "tests/gpu", "libbeside.so");
	}
	setenv("LD_PRELOAD", preload, 1);
	setenv("GPUMEM_SOCKET", play->socket ? play->socket : daemon_.socket, 1);
	if (play->env)
		putenv((char *)play->env);
	if (play->output)
		redirect(play->output, STDERR_FILENO);
	execl(program, program, play->route, play->scene, (char *)NULL);
	GM_FAIL("cannot run %s: %s", program, strerror(errno));
}

/* Runs a scene until it shows what it holds, which is the daemon's. */
static inline void begin(struct gm_worker *worker, struct play *play)
{
	gm_worker_start(worker, act, play);
	gm_hear_word(worker->channel, 'h');
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= ACTOR_BYTES);
	GM_REQUIRE_EQ(f.clients, 1);
}

static inline void go_on(struct gm_worker *worker)
{
	gm_say_word(worker->channel, 'g');
}

static inline void play(const char *route, const char *scene, const char *env)
{
	struct play one = {.route = route, .scene = scene, .env = env};
	struct gm_worker worker;

	begin(&worker, &one);
	go_on(&worker);
	gm_worker_join(&worker);
}

static inline void start(void)
{
	start_with(CONFIG(""));
}

#endif
