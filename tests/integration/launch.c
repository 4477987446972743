/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "tests/integration/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST_ARGUMENTS 64
#define MOST_VARIABLES 512
#define FIRST_PASSED   3

extern char **environ;

struct gm_launch {
	const struct gm_daemon *daemon;
	const char *argv[MOST_ARGUMENTS + 1];
	char *env[MOST_VARIABLES + 1];
	size_t n_env;
	char *listen_pid; /* the variable, without its value; NULL: no descriptors are passed */
};

/* ---- before the fork */

static const char *launch_binary(void)
{
	static char path[4096];
	const char *named = getenv("GPUMEMD");
	if (named)
		return named;
	const char *top = getenv("top_builddir");
	snprintf(path, sizeof(path), "%s/gpumemd", top ? top : ".");
	if (access(path, X_OK) != 0)
		snprintf(path, sizeof(path), "%s/daemon/gpumemd", top ? top : ".");
	return path;
}

static void launch_add_arguments(struct gm_launch *launch, size_t *n, const char *const *arguments)
{
	for (size_t i = 0; arguments && arguments[i]; i++) {
		GM_REQUIRE(*n < MOST_ARGUMENTS);
		launch->argv[(*n)++] = arguments[i];
	}
}

/* The place of a variable "NAME=value" in the environment, or n_env. */
static size_t launch_find(const struct gm_launch *launch, const char *variable)
{
	size_t name = strcspn(variable, "="), i = 0;
	while (i < launch->n_env &&
		(strncmp(launch->env[i], variable, name) != 0 || launch->env[i][name] != '='))
		i++;
	return i;
}

static void launch_unset(struct gm_launch *launch, const char *name)
{
	size_t i = launch_find(launch, name);
	if (i == launch->n_env)
		return;
	free(launch->env[i]);
	launch->env[i] = launch->env[--launch->n_env];
}

/* Returns the variable, as the daemon gets it. */
static char *launch_set(struct gm_launch *launch, const char *name, const char *value)
{
	char *variable;

	launch_unset(launch, name);
	GM_REQUIRE(launch->n_env < MOST_VARIABLES);
	GM_REQUIRE(asprintf(&variable, "%s=%s", name, value) > 0);
	launch->env[launch->n_env++] = variable;
	return variable;
}

/* What a test sets for the host backend, in the fake driver's words. */
static void launch_set_for_fake(struct gm_launch *launch, const char *name, const char *value)
{
	char text[256];
	if (strcmp(name, "GPUMEM_TEST_HOST_GATE") == 0) {
		snprintf(text, sizeof(text), "cuMemCreate:%s", value);
		launch_set(launch, "GPUMEM_FAKE_GATE", text);
	} else if (strcmp(name, "GPUMEM_TEST_HOST_FAIL") == 0) {
		snprintf(text, sizeof(text), "cuMemCreate:%s:2", value);
		launch_set(launch, "GPUMEM_FAKE_FAIL", text);
	}
}

static void launch_set_of_test(struct gm_launch *launch, const char *variable)
{
	char *name = strdup(variable);
	GM_REQUIRE(name);
	char *value = strchr(name, '=');
	GM_REQUIRE(value);
	*value++ = '\0';
	launch_set(launch, name, value);
	if (gm_on_gpu())
		launch_set_for_fake(launch, name, value);
	free(name);
}

static void launch_set_passed(struct gm_launch *launch)
{
	const struct gm_daemon_options *o = &launch->daemon->options;
	char text[32];

	snprintf(text, sizeof(text), "%zu", o->n_passed);
	launch_set(launch, "LISTEN_FDS", text);
	/* The child fills its pid in. */
	launch->listen_pid = launch_set(launch, "LISTEN_PID", "0000000000");
	if (o->passed_names)
		launch_set(launch, "LISTEN_FDNAMES", o->passed_names);
}

static void launch_make_environment(struct gm_launch *launch)
{
	static const char *const not_for_it[] = {
		"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC"};
	const struct gm_daemon *daemon = launch->daemon;
	char notify[96];

	for (char **variable = environ; *variable; variable++) {
		GM_REQUIRE(launch->n_env < MOST_VARIABLES);
		launch->env[launch->n_env] = strdup(*variable);
		GM_REQUIRE(launch->env[launch->n_env++]);
	}
	for (size_t i = 0; i < sizeof(not_for_it) / sizeof(*not_for_it); i++)
		launch_unset(launch, not_for_it[i]);
	snprintf(notify, sizeof(notify), "%s/notify", daemon->folder);
	launch_set(launch, "NOTIFY_SOCKET", notify);
	for (size_t i = 0; daemon->options.env && daemon->options.env[i]; i++)
		launch_set_of_test(launch, daemon->options.env[i]);
	if (daemon->options.n_passed)
		launch_set_passed(launch);
	launch->env[launch->n_env] = NULL;
}

struct gm_launch *gm_launch_new(const struct gm_daemon *daemon)
{
	const struct gm_daemon_options *o = &daemon->options;
	const char *const own[] = {launch_binary(), "--config", daemon->config, "--socket",
		daemon->socket, "--backend", gm_on_gpu() ? "cuda" : "host", NULL};
	struct gm_launch *launch = calloc(1, sizeof(*launch));
	size_t n = 0;

	GM_REQUIRE(launch);
	launch->daemon = daemon;
	launch_add_arguments(launch, &n, o->runner);
	launch_add_arguments(launch, &n, own);
	launch_add_arguments(launch, &n, o->args);
	launch_make_environment(launch);
	return launch;
}

void gm_launch_free(struct gm_launch *launch)
{
	for (size_t i = 0; i < launch->n_env; i++)
		free(launch->env[i]);
	free(launch);
}

/* ---- in the child */

static void launch_set_rlimit(int resource, rlim_t value)
{
	struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
	if (value && setrlimit(resource, &limit) != 0)
		_exit(126);
}

static void launch_pass(const struct gm_launch *launch)
{
	const struct gm_daemon_options *o = &launch->daemon->options;
	/* Out of the way first: one may be where another is to be. */
	int copies[16];
	if (o->n_passed > sizeof(copies) / sizeof(*copies))
		_exit(126);
	for (size_t i = 0; i < o->n_passed; i++)
		copies[i] = fcntl(o->passed[i], F_DUPFD_CLOEXEC, FIRST_PASSED + (int)o->n_passed);
	for (size_t i = 0; i < o->n_passed; i++)
		if (copies[i] < 0 || dup2(copies[i], FIRST_PASSED + (int)i) < 0)
			_exit(126);
	if (launch->listen_pid)
		sprintf(launch->listen_pid, "LISTEN_PID=%d", (int)getpid());
}

void gm_launch_exec(struct gm_launch *launch, pid_t parent)
{
	const struct gm_daemon *daemon = launch->daemon;
	const struct gm_daemon_options *o = &daemon->options;

	int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
		_exit(126);
	launch_pass(launch);
	launch_set_rlimit(RLIMIT_NOFILE, o->nofile);
	launch_set_rlimit(RLIMIT_AS, o->as);
	if (o->uid && (setgid(o->uid) != 0 || setuid(o->uid) != 0))
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	execvpe(launch->argv[0], (char **)launch->argv, launch->env);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", launch->argv[0], strerror(errno));
	_exit(127);
}
