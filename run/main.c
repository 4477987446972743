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
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/cuda/cuda_device.h"
#include "common/bounds.h"
#include "common/system/random.h"
#include "common/text/message.h"
#include "common/system/program.h"
#include "common/text/text.h"
#include "common/text/units.h"
#include "gpumem/gpumem.h"
#include "run/run.h"

#define MAIN_DEVICES_TEXT (GM_BOUND_DEVICES * GM_CUDA_UUID_TEXT)
#define MAIN_FILE_TEXT    48 /* "DEVICE:INODE" */

enum {
	EXIT_USAGE = 2,
	EXIT_NO_DAEMON = 3,
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
};

__attribute__((format(printf, 2, 3))) static int main_fail(int status, const char *format, ...)
{
	char text[1024], mended[sizeof(text) + 2 * GM_PROGRAM_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	gm_message("gpumem-run", gm_program_mend(text, mended, sizeof mended));
	return status;
}

/* ---- what is asked of the daemon before the program starts */

/* The GPUs that the program will see and gpumemd serves. */
struct main_device {
	bool asked;                    /* there is a daemon */
	bool host_only;                /* and it serves host memory */
	uint64_t total;                /* of the largest one; 0: there is none, or nobody knows */
	bool several_sizes;            /* and another one has less */
	char uuids[MAIN_DEVICES_TEXT]; /* with commas between them */
};

static void main_take(struct main_device *device, const gpumem_device_info_t *info)
{
	char uuid[GM_CUDA_UUID_TEXT];
	size_t n = strlen(device->uuids);

	device->several_sizes |= device->total && info->total != device->total;
	device->total = gm_u64_max(device->total, info->total);
	gm_cuda_uuid_text(info->uuid, false, uuid);
	snprintf(device->uuids + n, sizeof device->uuids - n, "%s%s", n ? "," : "", uuid);
}

/* The daemon serves GPUs or host memory, never both as numbered devices. */
static bool main_has_gpu(gpumem_session *session)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;

	return gpumem_device_info(session, 0, &info) == GPUMEM_OK &&
	       strcmp(info.backend, "cuda") == 0;
}

static int main_look(
	gpumem_session *session, const struct gm_run_options *options, struct main_device *ret)
{
	uint32_t n = 0;

	if (gpumem_device_count(session, &n))
		return main_fail(EXIT_FAILURE, "%s", gpumem_error_detail());
	if (options->device >= (int64_t)n && !main_has_gpu(session))
		return main_fail(EXIT_USAGE, "--device: there is no GPU %lld; gpumemd has none",
			(long long)options->device);
	if (options->device >= (int64_t)n)
		return main_fail(EXIT_USAGE,
			"--device: there is no GPU %lld; gpumemd has %u, numbered from 0 (see 'gpumemctl devices')",
			(long long)options->device, n);
	for (uint32_t i = 0; i < n; i++) {
		gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
		if ((options->device >= 0 && i != options->device) ||
			gpumem_device_info(session, i, &info))
			continue;
		if (strcmp(info.backend, "cuda") == 0)
			main_take(ret, &info);
		else if (options->device >= 0)
			return main_fail(EXIT_USAGE,
				"--device: device %u is not a GPU, but %s memory", i, info.backend);
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
	if (status == GPUMEM_E_INVALID)
		return main_fail(EXIT_USAGE, "%s", gpumem_error_detail());
	if (status && !options->optional)
		return main_fail(EXIT_NO_DAEMON,
			"%s (with --optional, the program runs without gpumemd)",
			gpumem_error_detail());
	if (status)
		return 0; /* the library says so when the program uses the GPU */

	ret_device->asked = true;
	ret_device->host_only = !main_has_gpu(session);
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
	/* On the plain driver, there is nobody to keep it. But the daemon may be back when the program allocates. */
	if (!options->limit_text || (!device->asked && !limit))
		return 0;
	if (!device->total && !limit)
		return main_fail(EXIT_USAGE, "--limit: gpumemd has no GPU to give %s of",
			options->limit_text);
	if (!limit && device->several_sizes)
		return main_fail(EXIT_USAGE,
			"--limit: the GPUs differ in size, and %s is a part of one: give a size, or "
			"choose a GPU with --device",
			options->limit_text);
	if (!limit)
		limit = (uint64_t)(options->fraction * (double)device->total);
	if (device->total && limit > device->total)
		return main_fail(EXIT_USAGE, "--limit: %s is more than %s has, which is %s",
			options->limit_text, device->several_sizes ? "the largest GPU" : "the GPU",
			gm_format_size(device->total, size));
	snprintf(text, GM_UNITS_TEXT, "%llu", (unsigned long long)limit);
	return 0;
}

/* ---- the environment of the program */

static int main_set(const char *name, const char *value)
{
	if (value && *value ? setenv(name, value, 1) : unsetenv(name))
		return main_fail(EXIT_FAILURE, "cannot set %s: %s", name, strerror(errno));
	return 0;
}

/* Whether a list with blanks and colons has this entry. */
static bool main_listed(const char *list, const char *entry)
{
	size_t n = strlen(entry);

	for (; *list; list += strcspn(list, " :")) {
		list += strspn(list, " :");
		if (strncmp(list, entry, n) == 0 && strcspn(list, " :") == n)
			return true;
	}
	return false;
}

/* Our library comes first, so that those which the user has preloaded see what it does. */
static int main_set_preload(void)
{
	const char *given = getenv("GPUMEM_PRELOAD"), *before = getenv("LD_PRELOAD");
	char path[PATH_MAX], why[GM_RUN_LIBRARY_WHY];

	bool named = given && *given;
	if (!named)
		given = GM_RUN_PRELOAD;
	/* The program may run in another folder. */
	if (!realpath(given, path) || access(path, R_OK) < 0)
		return main_fail(EXIT_FAILURE,
			"the library %s cannot be read: %s; run 'make install', or name the library in GPUMEM_PRELOAD",
			given, strerror(errno));
	const char *wrong = named ? gm_run_library_distrusts(path, why) : NULL;
	if (wrong)
		return main_fail(EXIT_FAILURE,
			"the library %s, which GPUMEM_PRELOAD names, is not used: %s", path, wrong);
	if (strpbrk(path, " :"))
		return main_fail(EXIT_FAILURE,
			"the library %s cannot be preloaded: its path has a blank or a colon",
			path);
	if (!before || !*before)
		return main_set("LD_PRELOAD", path);
	if (main_listed(before, path))
		return 0;

	GM_AUTO_FREE char *all = NULL;
	if (asprintf(&all, "%s:%s", path, before) < 0)
		return main_fail(EXIT_FAILURE, "no memory");
	return main_set("LD_PRELOAD", all);
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
	return main_set("GPUMEM_RUN", text);
}

/* Says which file stderr is, so that a program that has put another one in its place is not written to. "": it is closed. */
static void main_describe_stderr(char text[MAIN_FILE_TEXT])
{
	struct stat st;

	text[0] = 0;
	if (fstat(STDERR_FILENO, &st) == 0)
		snprintf(text, MAIN_FILE_TEXT, "%llu:%llu", (unsigned long long)st.st_dev,
			(unsigned long long)st.st_ino);
}

static int main_set_environment(
	const struct gm_run_options *options, const struct main_device *device)
{
	char limit[GM_UNITS_TEXT], priority[16], wait[16], own[MAIN_FILE_TEXT], pid[16];
	bool inside = getenv("GPUMEM_RUN") != NULL;
	int result = main_limit(options, device, limit);
	if (result)
		return result;

	/* The limit of the outer run holds for all that it started. */
	if (inside && (options->limit_text || options->priority))
		return main_fail(EXIT_USAGE,
			"this is part of another gpumem-run already, whose limit holds; leave out --limit and --priority");
	snprintf(priority, sizeof priority, "%d", options->priority);
	snprintf(wait, sizeof wait, "%u", options->wait_ms);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	main_describe_stderr(own);
	if (!inside) {
		result = main_set("GPUMEM_RUN_LIMIT", limit);
		if (!result)
			result = main_set(
				"GPUMEM_RUN_PRIORITY", options->priority ? priority : NULL);
		if (!result)
			result = main_set_run();
	}

	const char *const settings[][2] = {
		{"GPUMEM_RUN_WAIT", options->wait_given ? wait : NULL},
		{"GPUMEM_RUN_NAME", options->name},
		{"GPUMEM_RUN_SPILL", options->spill ? "1" : NULL},
		{"GPUMEM_RUN_OPTIONAL", options->optional ? "1" : NULL},
		{"GPUMEM_RUN_REPORT", options->report ? pid : NULL},
		{"GPUMEM_RUN_STDERR", options->quiet ? NULL : own},
		{"GPUMEM_RUN_SEE_ALL", options->see_all ? "1" : NULL},
		{"GPUMEM_RUN_DEVICES", device->uuids},
	};
	for (size_t i = 0; !result && i < sizeof settings / sizeof *settings; i++)
		result = main_set(settings[i][0], settings[i][1]);
	if (!result && options->socket)
		result = main_set("GPUMEM_SOCKET", options->socket);
	if (!result && options->device >= 0 && device->total)
		result = main_set("CUDA_VISIBLE_DEVICES", device->uuids);
	return result ? result : main_set_preload();
}

int main(int argc, char **argv)
{
	struct gm_run_options options;
	struct main_device device = {0};
	bool inside = getenv("GPUMEM_RUN") != NULL;
	char path[PATH_MAX];
	bool utf8;

	gm_text_init(&utf8);
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
	/* Once for a run, whose later processes may start gpumem-run again. */
	if (device.host_only && !options.quiet && !inside)
		(void)main_fail(0,
			"gpumemd has no GPU, so %s gets no memory from it, unless it uses gpumemd's own library",
			options.program[0]);
	r = gm_program_execute(path, options.program);
	return main_fail(r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, "cannot run %s: %s",
		path, strerror(-r));
}
