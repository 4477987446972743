/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_HARNESS_H
#define GM_TESTS_INTEGRATION_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "tests/sanitized.h"

/*
 * A private gpumemd for a test or a benchmark: the built binary, a folder of its own under /tmp
 * (scratch.h), a socket in it, and nothing shared with any other daemon. Readiness is what the
 * daemon itself says on NOTIFY_SOCKET. Nothing here decides an outcome by time: every wait is for
 * an event or a condition, and the one deadline (GM_PATIENCE_MS) only turns a hang into a failure.
 */

#define GM_PATIENCE_MS 60000

/*
 * GPUMEM_TEST_BACKEND=cuda: the daemon runs on the cuda backend, over the fake driver
 * (tests/variants). The size that a configuration gives a device is then the fake
 * GPU's, and what holds up the host backend or makes it fail does so to cuMemCreate. Device
 * pointers cannot be read by the CPU there: see device.h.
 */
bool gm_on_gpu(void);

/* Says where and what on stderr and ends the process (a worker by _exit, a test by exit). */
_Noreturn void gm_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define GM_FAIL(...) gm_fail(__FILE__, __LINE__, __VA_ARGS__)
#define GM_REQUIRE(condition) \
	do { \
		if (!(condition)) \
			GM_FAIL("not so: %s", #condition); \
	} while (0)
#define GM_REQUIRE_EQ(a, b) \
	do { \
		long long gm_a_ = (long long)(a), gm_b_ = (long long)(b); \
		if (gm_a_ != gm_b_) \
			GM_FAIL("%s is %lld, %s is %lld", #a, gm_a_, #b, gm_b_); \
	} while (0)

struct gm_daemon_options {
	const char *config;        /* text of gpumemd.conf; NULL: GM_DAEMON_CONFIG */
	const char *socket;        /* NULL: one in the private folder */
	const char *const *args;   /* further arguments, NULL-ended; may be NULL */
	const char *const *env;    /* "NAME=value", NULL-ended; may be NULL */
	rlim_t nofile, as;         /* 0: as the test has it */
	uid_t uid;                 /* 0: as the test is */
	const char *const *runner; /* what runs the daemon (valgrind …), NULL-ended; may be NULL */
	/* As a service manager passes them; names as in LISTEN_FDNAMES, or NULL. */
	const int *passed;
	size_t n_passed;
	const char *passed_names;
};

/* One host device of 1 GiB, all of it to be handed out and pooled, no reserve; no pinned memory. */
#define GM_DAEMON_CONFIG GM_DAEMON_CONFIG_WITH("", "1G")
/* The same with further lines of the general section, and another size. */
#define GM_DAEMON_CONFIG_WITH(general, device_size) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"host_limit = 0\n" general "[device 0]\nsize = " device_size "\n"

struct gm_daemon {
	char folder[64];
	char socket[256];
	char config[96];
	char log[96];
	pid_t pid;  /* 0: not running */
	int pidfd;  /* -1: not running */
	int notify; /* the socket that the daemon's READY=1 comes to */
	struct gm_daemon_options options;
	bool own_socket; /* it lies in the folder */
};

/* Makes the folder and starts the daemon; returns when it is ready. options may be NULL. */
void gm_daemon_start(struct gm_daemon *daemon, const struct gm_daemon_options *options);
/* The same without a start: for tests that start by themselves. */
void gm_daemon_prepare(struct gm_daemon *daemon, const struct gm_daemon_options *options);
/* Starts a prepared, stopped or killed one. Returns its exit status as waitpid() gives it if it
 * ended before it was ready, else -1. */
int gm_daemon_spawn(struct gm_daemon *daemon);
/* Writes the configuration anew. */
void gm_daemon_configure(struct gm_daemon *daemon, const char *config);
/* The same (NULL: it is as it was), and has it read again; returns when that is done. */
void gm_daemon_reload(struct gm_daemon *daemon, const char *config);
void gm_daemon_signal(struct gm_daemon *daemon, int signal);
/* Waits for the next message on NOTIFY_SOCKET that contains text. */
void gm_daemon_await_notice(struct gm_daemon *daemon, const char *text);
/* Waits for the end of the process; its status as waitpid() gives it. */
int gm_daemon_wait(struct gm_daemon *daemon);
/* SIGKILL; the folder stays, gm_daemon_spawn() starts a new one on it. */
void gm_daemon_kill(struct gm_daemon *daemon);
/* SIGTERM: must end with status 0 (a sanitizer's report does not) and leave no file; the folder
 * goes. */
void gm_daemon_stop(struct gm_daemon *daemon);
/* What the daemon has logged so far; malloc'ed. */
char *gm_daemon_log(const struct gm_daemon *daemon);
/* How often these words are in it. */
size_t gm_daemon_said(const struct gm_daemon *daemon, const char *words);
/* Resident set and CPU time of the daemon so far. */
uint64_t gm_daemon_rss(const struct gm_daemon *daemon);
uint64_t gm_daemon_cpu_ns(const struct gm_daemon *daemon);
/* How many fds the daemon has open. */
size_t gm_daemon_fds(const struct gm_daemon *daemon);

/* Returns the daemon's name for the user of this process: "user ann", or "user 1000" without a name. */
const char *gm_own_user(void);

/* This process becomes one of a user who is nobody special, and stays so. Only root can. */
#define GM_STRANGER 64999
void gm_become_stranger(void);
/* The same if this process may. Without users, a test's processes are all of one. */
void gm_become_stranger_if_possible(void);

/*
 * Asks again and again, with growing pauses, until the condition holds; fails the test when it does
 * not within GM_PATIENCE_MS. For what the daemon cannot tell by an event.
 */
#define GM_UNTIL(condition) \
	do { \
		struct gm_patience gm_p_ = {0}; \
		while (!(condition)) \
			gm_patience_wait(&gm_p_, __FILE__, __LINE__, #condition); \
	} while (0)
struct gm_patience {
	uint64_t started_ns;
	uint64_t pause_ns;
};
void gm_patience_wait(
	struct gm_patience *patience, const char *file, int line, const char *condition);

uint64_t gm_monotonic_ns(void);

/*
 * A worker: a forked process that runs fn, and talks to the test over a socket pair in whole
 * messages. It dies with the test. fn's end is status 0; a failed GM_REQUIRE in it is 1.
 */
struct gm_worker {
	pid_t pid;
	int channel; /* the test's end; fn gets the other */
};
typedef void (*gm_worker_fn)(int channel, void *argument);
void gm_worker_start(struct gm_worker *worker, gm_worker_fn fn, void *argument);
/* Waits for the end and requires status 0. */
void gm_worker_join(struct gm_worker *worker);
/* SIGKILL and reap. */
void gm_worker_kill(struct gm_worker *worker);
/* One message; both ends. gm_hear fails on end of file and on another length. */
void gm_text_say(int channel, const void *bytes, size_t n);
void gm_hear(int channel, void *bytes, size_t n);
/* A word is a message of one byte: "I am there now", "go on". */
void gm_text_say_word(int channel, char word);
void gm_hear_word(int channel, char word);

#endif
