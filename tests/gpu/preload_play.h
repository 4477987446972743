/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PRELOAD_PLAY_H
#define GM_TESTS_GPU_PRELOAD_PLAY_H

/* What tests share that run the scenes of preload_actor under libgpumem-preload.so. */

#include <sys/stat.h>

#include "tests/gpu/preload_fixture.h"

struct play {
	const char *route, *scene;
	const char *env;    /* one more NAME=VALUE, or NULL */
	const char *output; /* where its stderr goes; NULL: as the test's */
	const char *socket; /* where it looks for the daemon; NULL: where it is */
	bool beside;        /* another library is preloaded, too */
	bool before;        /* before ours */
	/* Has the dynamic linker load these libraries, which have colons between them; NULL: by LD_PRELOAD */
	void (*put)(const char *libraries);
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
	if (play->put)
		play->put(preload);
	else
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
	gm_text_say_word(worker->channel, 'g');
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

/* ---- programs with more rights than their user */

struct secure {
	char program[256];
	/* As in struct play; NULL: the program loads the library itself */
	void (*put)(const char *libraries);
};

static inline void act_secure(int channel, void *argument)
{
	const struct secure *secure = argument;
	const char *fake = getenv("GPUMEM_FAKE_DIR");
	char library[512], driver[512] = "libcuda.so.1";

	built(library, "preload", "libgpumem-preload.so");
	if (fake)
		snprintf(driver, sizeof driver, "%s/lib/libcuda.so.1", fake);
	prepare_program(channel);
	setenv("SECURE_LIBRARY", realpath(library, NULL), 1);
	setenv("SECURE_DRIVER", driver, 1);
	setenv("GPUMEM_SOCKET", daemon_.socket, 1);
	setenv("GPUMEM_RUN", "limited", 1);
	setenv("GPUMEM_RUN_LIMIT", "1048576", 1);
	if (secure->put)
		secure->put(getenv("SECURE_LIBRARY"));
	GM_REQUIRE(setgid(UID_A) == 0 && setuid(UID_A) == 0);
	execl(secure->program, secure->program, "none", "secure", (char *)NULL);
	GM_FAIL("cannot run %s: %s", secure->program, strerror(errno));
}

/* Copies a program, so that the copy runs with the rights of its owner. */
static inline void make_setuid(const char *program, char path[256])
{
	const char *fake = getenv("GPUMEM_FAKE_DIR");
	char block[65536];
	ssize_t n;

	snprintf(path, 256, "%s/setuid-XXXXXX", fake ? fake : "/tmp");
	int to = mkostemp(path, O_CLOEXEC), from = open(program, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(to >= 0 && from >= 0);
	while ((n = read(from, block, sizeof block)) > 0)
		GM_REQUIRE(write(to, block, (size_t)n) == n);
	GM_REQUIRE(n == 0 && fchmod(to, 04755) == 0);
	close(from);
	close(to);
}

/* Plays the actor as such a program: no call of it is changed, and it has no session. */
static inline void play_secure(void (*put)(const char *libraries))
{
	struct secure secure = {.put = put};
	struct gm_worker worker;
	char actor[512], word;

	built(actor, "tests/gpu", "preload_actor");
	make_setuid(actor, secure.program);
	gm_worker_start(&worker, act_secure, &secure);
	gm_hear(worker.channel, &word, 1);
	/* 'n': the file system is one on which no program has the rights of its owner. */
	if (word == 's') {
		gm_hear_word(worker.channel, 'i');
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 0);
		go_on(&worker);
	}
	gm_worker_join(&worker);
	unlink(secure.program);
}

#endif
