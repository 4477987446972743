/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpumemd's command line. It reads the configuration, raises the limit on file descriptors as far
 * as it may, and runs the broker. Exit status:
 *
 *   0  it was stopped, or the configuration is valid
 *   1  it could not start
 *   2  wrong usage
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
#include <unistd.h>

#include "common/text/closest.h"
#include "common/log.h"
#include "common/system/memfd.h"
#include "daemon/broker.h"
#include "daemon/config/config.h"
#include "daemon/config/config_keys.h"
#include "daemon/config/config_machine.h"
#include "daemon/config/config_value.h"
#include "daemon/log_thread.h"
#include "daemon/service.h"

enum { EXIT_USAGE = 2 };

static void usage(FILE *to)
{
	fputs("Usage: gpumemd [OPTION]...\n"
	      "The GPU memory broker: owns device memory and leases it to local processes.\n"
	      "\n"
	      "  -c, --config FILE     read FILE instead of the default configuration\n"
	      "  -s, --socket PATH     listen on PATH instead of the configured socket\n"
	      "  -b, --backend NAME    use auto, cuda or host instead of the configured backend\n"
	      "      --check-config    check the configuration, say what is wrong or\n"
	      "                        which files have no mistakes, and exit\n"
	      "  -f, --foreground      stay in the foreground (gpumemd always does)\n"
	      "  -v, --verbose         also log what happens to clients\n"
	      "      --version         show the version\n"
	      "  -h, --help            show this help\n"
	      "\n"
	      "An ordinary user's daemon listens on $XDG_RUNTIME_DIR/gpumemd/socket, or on\n"
	      "/tmp/gpumemd-UID/socket if that variable is not set. See gpumemd(8).\n",
		to);
}

/*
 * Opens /dev/null for each standard file that is missing. Otherwise the next files would take their
 * numbers, and log lines would go to clients or into the loop's own pipe.
 */
static int open_standard_files(void)
{
	int fd;
	do {
		fd = open("/dev/null", O_RDWR);
		if (fd < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}

/* Every client needs a few descriptors, and every chunk one. */
static void raise_fd_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		gm_log(GM_LOG_WARNING, "cannot raise the limit on file descriptors: %m");
}

/* --backend takes the same words as the key in the configuration. */
static bool is_backend(const char *name, char why[GM_CONFIG_WHY_BYTES])
{
	struct gm_config_value value;
	return gm_config_value_parse(gm_config_key(GM_CONFIG_KEY_BACKEND), name, &value, why) == 0;
}

static void complain(const char *error)
{
	fprintf(stderr, "%s%s", error ? error : "gpumemd: out of memory",
		error && *error && error[strlen(error) - 1] == '\n' ? "" : "\n");
}

/* Says which files have no mistakes: with a path of no file, that there is none. */
static void report_clean(const struct gm_config_report *report)
{
	const char *files = report->files ? report->files : "";

	if (!*files && report->path)
		printf("%s: there is no such file, so every key has its default\n", report->path);
	for (const char *end; *files; files = *end ? end + 1 : end) {
		end = files + strcspn(files, "\n");
		printf("%.*s: no mistakes\n", (int)(end - files), files);
	}
}

/* Checks the configuration against this machine, and says what is wrong. Returns the exit status. */
static int check_config(const char *path, const struct gm_config_known *known, bool says_files)
{
	struct gm_config_report report;
	struct gm_config *config = NULL;
	char *unchecked = NULL;
	int r = gm_config_machine_read(path, known, &config, &report, &unchecked);
	const struct gm_config *said = config ? config : report.rest;
	if (r < 0)
		complain(report.errors);
	if (said && *said->warnings)
		complain(said->warnings);
	if (unchecked)
		complain(unchecked);
	if (r == 0 && says_files)
		report_clean(&report);
	free(unchecked);
	gm_config_report_deinit(&report);
	gm_config_free(config);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

enum { CHECK_CONFIG = 256, SHOW_VERSION };
static const struct option long_options[] = {
	{"config", required_argument, NULL, 'c'},
	{"socket", required_argument, NULL, 's'},
	{"backend", required_argument, NULL, 'b'},
	{"check-config", no_argument, NULL, CHECK_CONFIG},
	{"foreground", no_argument, NULL, 'f'},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, SHOW_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* Says what is wrong with the command line, to the service manager as well. Returns the exit status. */
static int refuse_usage(const char *what, const char *why)
{
	char text[GM_CONFIG_WHY_BYTES + 256];

	snprintf(text, sizeof(text), "%s%s", what, why);
	fprintf(stderr, "gpumemd: %s\nSee 'gpumemd --help'.\n", text);
	gm_service_failed(text);
	return EXIT_USAGE;
}

/* getopt has said what is wrong with the word. Says what may have been meant. */
static void suggest_option(const char *word)
{
	const char *names[sizeof(long_options) / sizeof(*long_options)];
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		names[i] = long_options[i].name;

	const char *closest = strncmp(word, "--", 2) ? NULL : gm_closest(word + 2, names);
	if (closest && strcmp(closest, word + 2))
		fprintf(stderr, "Did you mean '--%s'? ", closest);
	fputs("See 'gpumemd --help'.\n", stderr);
}

/* Runs the daemon, or does what else the command line says. Returns the exit status. */
static int run(int argc, char **argv, struct gm_broker_options *options)
{
	bool check = false;
	for (int c; (c = getopt_long(argc, argv, "c:s:b:fvh", long_options, NULL)) != -1;) {
		switch (c) {
		case 'c':
			options->config_path = optarg;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'b':
			options->backend = optarg;
			break;
		case CHECK_CONFIG:
			check = true;
			break;
		case 'f':
			break;
		case 'v':
			gm_log_set_level(GM_LOG_DEBUG);
			break;
		case SHOW_VERSION:
			puts("gpumemd " PACKAGE_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			usage(stdout);
			return EXIT_SUCCESS;
		default:
			suggest_option(argv[optind - 1]);
			gm_service_failed("wrong option on the command line");
			return EXIT_USAGE;
		}
	}

	if (optind < argc)
		return refuse_usage("unexpected argument: ", argv[optind]);
	if (options->socket && !*options->socket)
		return refuse_usage("--socket needs a path", "");

	char why[GM_CONFIG_WHY_BYTES];
	if (options->backend && !is_backend(options->backend, why))
		return refuse_usage("--backend: ", why);

	const struct gm_config_known known = {
		.backend = options->backend,
		.listens = !options->socket && options->passed->socket < 0 &&
			   !options->passed->unclear,
	};
	if (check)
		return check_config(options->config_path, &known, true);
	struct gm_config *config = NULL;
	char *error = NULL;
	if (gm_config_load_for(options->config_path, &known, &config, &error) < 0) {
		/* The same words as those of a check, which also looks at the devices. */
		if (check_config(options->config_path, &known, false) == EXIT_SUCCESS)
			complain(error);
		gm_service_failed(error);
		free(error);
		return GM_BROKER_EXIT_CONFIG;
	}

	int r = gm_log_thread_start();
	if (r < 0) {
		gm_log(GM_LOG_ERROR, "cannot start the thread that writes the log: %s",
			strerror(-r));
		gm_service_failed(NULL);
		gm_config_free(config);
		return EXIT_FAILURE;
	}

	if (!gm_memfd_can_tell())
		gm_log(GM_LOG_WARNING,
			"this kernel does not tell who has memory open, so memory that a process keeps after its client returned it is not noticed");
	r = gm_broker_run(options, config);
	gm_log_thread_stop();
	return gm_broker_exit_status(r);
}

int main(int argc, char **argv)
{
	int r = open_standard_files();
	if (r < 0) {
		fprintf(stderr, "gpumemd: cannot open /dev/null: %s\n", strerror(-r));
		return EXIT_FAILURE;
	}

	gm_service_init_log();
	signal(SIGPIPE, SIG_IGN);
	/* The kernel sends it when a lease is broken; see common/system/memfd.h. */
	signal(SIGIO, SIG_IGN);
	/* A memfd that would pass RLIMIT_FSIZE: the call fails with EFBIG, which is handled. */
	signal(SIGXFSZ, SIG_IGN);
	raise_fd_limit();

	struct gm_service_passed passed;
	gm_service_take_passed(&passed);
	struct gm_broker_options options = {.passed = &passed};
	int status = run(argc, argv, &options);
	/* After these, systemd does not start the daemon again, and closes what it has stored. */
	if ((status == EXIT_USAGE || status == GM_BROKER_EXIT_CONFIG) &&
		gm_broker_store_forward(&options) < 0)
		status = EXIT_FAILURE;
	free(passed.left);
	return status;
}
