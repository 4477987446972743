/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpumem-run. Exit status, if the program does not run:
 *
 *   1    the library is missing, or something else failed
 *   2    wrong use
 *   3    gpumemd cannot be reached
 *   126  the program cannot be executed, or no library can be put into it
 *   127  there is no such program
 *
 * Otherwise it is the program's own.
 */
#include "autoconf.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cuda_device.h"
#include "common/random.h"
#include "common/units.h"
#include "gpumem/gpumem.h"
#include "run/run_options.h"
#include "run/run_program.h"

enum {
	EXIT_USAGE = 2,
	EXIT_NO_DAEMON = 3,
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
};

__attribute__((format(printf, 2, 3))) static int main_fail(int status, const char *format, ...)
{
	va_list args;

	fputs("gpumem-run: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return status;
}

/* ---- what is asked of the daemon before the program starts */

/* The smallest device that the program will see, and its UUID if it is to see one only. */
struct main_device {
	uint64_t total; /* 0: nobody knows */
	char uuid[GM_CUDA_UUID_TEXT];
};

static int main_look(
	gpumem_session *session, const struct gm_run_options *options, struct main_device *ret)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	uint32_t n = 0;

	ret->total = 0;
	if (gpumem_device_count(session, &n))
		return main_fail(EXIT_FAILURE, "%s", gpumem_error_detail());
	if (options->device >= (int64_t)n)
		return main_fail(EXIT_USAGE,
			"--device: there is no device %lld; gpumemd has %u, numbered from 0",
			(long long)options->device, n);
	for (uint32_t i = 0; i < n; i++) {
		if ((options->device >= 0 && i != options->device) ||
			gpumem_device_info(session, i, &info))
			continue;
		if (!ret->total || info.total < ret->total)
			ret->total = info.total;
		gm_cuda_uuid_text(info.uuid, false, ret->uuid);
	}
	return 0;
}

/* Connects, looks at the devices and leaves again. Without a daemon, *ret_device stays empty. */
static int main_ask(const struct gm_run_options *options, struct main_device *ret_device)
{
	gpumem_connect_options connect = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session;

	connect.socket = options->socket;
	connect.name = "gpumem-run";
	gpumem_status status = gpumem_connect(&connect, &session);
	if (status && !options->optional)
		return main_fail(EXIT_NO_DAEMON,
			"%s (with --optional, the program runs without gpumemd)",
			gpumem_error_detail());
	if (status)
		return 0; /* the library says so when the program uses the GPU */

	int result = main_look(session, options, ret_device);
	gpumem_disconnect(session);
	return result;
}

/* The limit in bytes, in digits. "": none, or it cannot be known. */
static int main_limit(const struct gm_run_options *options, const struct main_device *device,
	char text[GM_UNITS_TEXT])
{
	char size[GM_UNITS_TEXT];
	uint64_t limit = options->limit;

	text[0] = 0;
	/* On the plain driver, there is nobody to keep it. */
	if (!options->limit_text || !device->total)
		return 0;
	if (!limit)
		limit = (uint64_t)(options->fraction * (double)device->total);
	if (limit > device->total)
		return main_fail(EXIT_USAGE, "--limit: %s is more than the GPU has, which is %s",
			options->limit_text, gm_format_size(device->total, size));
	snprintf(text, GM_UNITS_TEXT, "%llu", (unsigned long long)limit);
	return 0;
}

/* ---- the environment of the program */

/* Our library comes first, so that those which the user has preloaded see what it does. */
static int main_set_preload(void)
{
	const char *path = getenv("GPUMEM_PRELOAD"), *before = getenv("LD_PRELOAD");
	char all[2 * PATH_MAX];

	if (!path || !*path)
		path = GM_RUN_PRELOAD;
	if (access(path, R_OK) < 0)
		return main_fail(
			EXIT_FAILURE, "the library %s cannot be read: %s", path, strerror(errno));
	if (strpbrk(path, " :"))
		return main_fail(EXIT_FAILURE,
			"the library %s cannot be preloaded: its path has a blank or a colon",
			path);
	if (before && strstr(before, path))
		return 0;
	int n = snprintf(all, sizeof all, "%s%s%s", path, before && *before ? ":" : "",
		before ? before : "");
	if (n < 0 || (size_t)n >= sizeof all)
		return main_fail(EXIT_FAILURE, "LD_PRELOAD is too long");
	setenv("LD_PRELOAD", all, 1);
	return 0;
}

static void main_set(const char *name, const char *value)
{
	if (value && *value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* All processes of the run have its name, which nobody else has chosen. */
static int main_set_run(void)
{
	unsigned char bytes[8];
	char text[2 * sizeof bytes + 1];
	int r = gm_random(bytes, sizeof bytes);

	if (r < 0)
		return main_fail(EXIT_FAILURE, "no random numbers: %s", strerror(-r));
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	setenv("GPUMEM_RUN", text, 1);
	return 0;
}

static int main_set_environment(
	const struct gm_run_options *options, const struct main_device *device)
{
	char limit[GM_UNITS_TEXT], priority[16], wait[16];
	bool inside = getenv("GPUMEM_RUN") != NULL;
	int result = main_limit(options, device, limit);
	if (result)
		return result;

	/* The limit of the outer run holds for all that it started. */
	if (inside && (options->limit_text || options->priority))
		return main_fail(EXIT_USAGE,
			"this is part of another gpumem-run already, whose limit holds; leave out --limit and --priority");
	if (!inside) {
		snprintf(priority, sizeof priority, "%d", options->priority);
		main_set("GPUMEM_RUN_LIMIT", limit);
		main_set("GPUMEM_RUN_PRIORITY", options->priority ? priority : NULL);
		result = main_set_run();
		if (result)
			return result;
	}

	snprintf(wait, sizeof wait, "%u", options->wait_ms);
	main_set("GPUMEM_RUN_WAIT", options->wait_ms ? wait : NULL);
	main_set("GPUMEM_RUN_NAME", options->name);
	main_set("GPUMEM_RUN_OPTIONAL", options->optional ? "1" : NULL);
	main_set("GPUMEM_RUN_REPORT", options->report ? "1" : NULL);
	main_set("GPUMEM_RUN_SEE_ALL", options->see_all ? "1" : NULL);
	if (options->socket)
		setenv("GPUMEM_SOCKET", options->socket, 1);
	if (options->device >= 0 && *device->uuid)
		setenv("CUDA_VISIBLE_DEVICES", device->uuid, 1);
	return main_set_preload();
}

int main(int argc, char **argv)
{
	struct gm_run_options options;
	struct main_device device = {0};
	char path[PATH_MAX];

	switch (gm_run_parse(argc, argv, &options)) {
	case GM_RUN_DONE:
		return 0;
	case GM_RUN_WRONG:
		return EXIT_USAGE;
	case GM_RUN_GO:
		break;
	}

	int r = gm_program_find(options.program[0], path, sizeof path);
	if (r < 0)
		return main_fail(r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE,
			"cannot run %s: %s", options.program[0],
			r == -ENOENT ? "there is no such program" : strerror(-r));
	const char *closed = gm_program_closed(path);
	if (closed)
		return main_fail(EXIT_NOT_EXECUTABLE, "%s %s", path, closed);

	int result = main_ask(&options, &device);
	if (!result)
		result = main_set_environment(&options, &device);
	if (result)
		return result;
	execv(path, options.program);
	return main_fail(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE,
		"cannot run %s: %s", path, strerror(errno));
}
