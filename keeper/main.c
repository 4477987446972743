/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpumem-keeper's command line. Exit status:
 *
 *   0  it ended because there was nothing to keep, or it was stopped; with --background: it listens
 *   1  it could not start
 *   2  wrong usage
 *   3  another keeper has the socket
 */
#include "autoconf.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/system/path.h"
#include "keeper/keeper.h"

enum { EXIT_USAGE = 2, EXIT_TAKEN = 3 };

static void usage(FILE *to)
{
	fputs("Usage: gpumem-keeper [OPTION]...\n"
	      "Holds the memory of gpumemd's clients while gpumemd restarts.\n"
	      "\n"
	      "  -s, --socket PATH  listen on PATH instead of " GM_SYSTEM_KEEPER "\n"
	      "  -b, --background   go to the background once it listens, and end when gpumemd\n"
	      "                     says that nothing is left to keep\n"
	      "      --hand-over    give what a keeper of an earlier version holds to systemd,\n"
	      "                     as this version does by itself; for ExecStop= of its unit\n"
	      "      --version      show the version\n"
	      "  -h, --help         show this help\n"
	      "\n"
	      "systemd runs gpumemd-keeper.service; elsewhere gpumemd starts the keeper by itself.\n"
	      "See gpumem-keeper(8).\n",
		to);
}

static const struct option long_options[] = {
	{"socket", required_argument, NULL, 's'},
	{"background", no_argument, NULL, 'b'},
	{"hand-over", no_argument, NULL, 'o'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* Each chunk needs a descriptor, and each client two. */
static void raise_fd_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * Goes on in a new process and a session of its own. The old process ends with the status that
 * report() gets: when the socket listens, or cannot. Returns the descriptor for report().
 */
static int go_to_background(void)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		char status = EXIT_FAILURE;
		close(ends[1]);
		while (read(ends[0], &status, 1) < 0 && errno == EINTR)
			;
		_exit(status);
	}

	close(ends[0]);
	(void)setsid();
	return ends[1];
}

/* Ends the process that waits. */
static void report(int fd, char status)
{
	while (fd >= 0 && write(fd, &status, 1) < 0 && errno == EINTR)
		;
}

/* Leaves the folder and the standard files of whoever started this. */
static void let_go(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (chdir("/") < 0 || null < 0)
		return;
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

/* Returns a descriptor that becomes readable when the keeper is to stop, or a negative errno. */
static int catch_signals(void)
{
	sigset_t stop;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (sigprocmask(SIG_SETMASK, &stop, NULL) < 0)
		return -errno;
	int fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* Leaves what the keeper on this path holds with the service manager. */
static int hand_over(const char *path)
{
	char why[GM_KEEPER_WHY];
	struct gm_keeper *keeper = NULL;
	int r = gm_keeper_fetch(path, &keeper, why);
	if (r == GM_KEEPER_E_NOT_NEEDED || r == -ENOENT || r == -ECONNREFUSED)
		return EXIT_SUCCESS;
	if (r == 0) {
		r = gm_keeper_leave(keeper);
		snprintf(
			why, sizeof(why), "the service manager does not take it: %s", strerror(-r));
	}
	gm_keeper_free(keeper);
	if (r == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "gpumem-keeper: cannot hand over what the keeper on %s holds: %s\n", path,
		why);
	return EXIT_FAILURE;
}

/* Ends the keeper: the service manager gets its items for the next one, or they are given up. */
static void leave(struct gm_keeper *keeper)
{
	unsigned n = gm_keeper_alone_with(keeper);
	int r = gm_keeper_leave(keeper);
	if (r == 0 && n)
		fprintf(stderr,
			"gpumem-keeper: stopped while there is no daemon; systemd has what clients hold (%u descriptors), and gives it to the next keeper if this is a restart\n",
			n);
	else if (r == -ENOTCONN && n)
		fprintf(stderr,
			"gpumem-keeper: stopped while there is no daemon, which gives up what clients hold (%u descriptors)\n",
			n);
	else if (r < 0 && r != -ENOTCONN)
		fprintf(stderr,
			"gpumem-keeper: cannot leave everything with systemd: %s; what it lacks is given up unless gpumemd runs\n",
			strerror(-r));
}

/* Says why the keeper ends, also to the service manager if that runs it. Returns the exit status. */
static int fail(bool background, const char *what, const char *path, const char *why)
{
	char text[GM_KEEPER_WHY + GM_PATH_BYTES + 64];

	snprintf(text, sizeof(text), "%s%s: %s", what, path, why);
	fprintf(stderr, "gpumem-keeper: %s\n", text);
	if (!background)
		gm_keeper_tell_failed(text);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	const char *path = GM_SYSTEM_KEEPER;
	bool background = false, handing_over = false;
	for (int c; (c = getopt_long(argc, argv, "s:bh", long_options, NULL)) != -1;) {
		switch (c) {
		case 's':
			path = optarg;
			break;
		case 'b':
			background = true;
			break;
		case 'o':
			handing_over = true;
			break;
		case 'V':
			puts("gpumem-keeper " PACKAGE_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			usage(stdout);
			return EXIT_SUCCESS;
		default:
			fputs("See 'gpumem-keeper --help'.\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gpumem-keeper: unexpected argument: %s\n", argv[optind]);
		fputs("See 'gpumem-keeper --help'.\n", stderr);
		return EXIT_USAGE;
	}

	raise_fd_limit();
	if (handing_over)
		return hand_over(path);
	GM_AUTO_FD int waits = background ? go_to_background() : -1;
	GM_AUTO_FD int stop = catch_signals();
	if (stop < 0 || (background && waits < 0))
		return fail(background, "cannot start", "", strerror(stop < 0 ? -stop : -waits));

	char why[GM_KEEPER_WHY];
	struct gm_keeper *keeper = NULL;
	int r = gm_keeper_new(path, &keeper, why);
	if (r < 0) {
		int status = r == -EADDRINUSE ? EXIT_TAKEN : EXIT_FAILURE;
		if (r == -ENOENT && !background && !getenv("NOTIFY_SOCKET"))
			strncat(why,
				"; nobody needs to start it: gpumemd starts its keeper, and makes the folder",
				sizeof(why) - strlen(why) - 1);
		fail(background, "cannot listen on ", path, why);
		report(waits, (char)status);
		return status;
	}

	r = background ? 0 : gm_keeper_take_left(keeper);
	if (r < 0)
		fprintf(stderr,
			"gpumem-keeper: cannot take all that the keeper before left: %s; is LimitNOFILE= lower than before?\n",
			strerror(-r));
	if (background)
		let_go();
	else
		gm_keeper_tell_ready();
	report(waits, EXIT_SUCCESS);
	waits = gm_close(waits);
	r = gm_keeper_serve(keeper, stop, !background);
	if (!background)
		leave(keeper);
	gm_keeper_free(keeper);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
