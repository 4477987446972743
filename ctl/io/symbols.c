/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Symbols of addresses, by libdw of elfutils, in a child process. The child sends one record for each
 * address through a pipe. The parent believes nothing but their size: the texts are cut where they must
 * end, and the writers clean them.
 */
#include "ctl/io/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef HAVE_LIBDW
#include <elfutils/libdwfl.h>
#endif

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/message.h"

#define FIND_NS (20 * GM_NS_PER_S)
#define FIND_S  20
/* How long a child that was killed may take to end. */
#define END_NS (2 * GM_NS_PER_S)
#define NOBODY 65534
/* Where the child writes. It has no other descriptors but the standard ones. */
#define ANSWER_FD 3
/* Larger files are no programs. */
#define FILE_MOST   (INT64_C(8) << 30)
#define MEMORY_MOST ((rlim_t)2 << 30)

struct symbol_record {
	uint32_t line;
	char function[sizeof(((struct gm_symbol *)0)->function)];
	char file[sizeof(((struct gm_symbol *)0)->file)];
};

/* ---- in the child */

#ifdef HAVE_LIBDW
/* Opens a file that may be anything. Returns -1 unless it can be a program. */
static int symbols_open(const char *path)
{
	struct stat st;
	int fd = *path == '/' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MOST))
		fd = gm_close(fd);
	return fd;
}

/* Loads the file, if it has that build id. dwfl owns the module. */
static Dwfl_Module *symbols_load(Dwfl *dwfl, const struct gm_symbol *symbol)
{
	const unsigned char *id;
	GElf_Addr where;
	GElf_Addr bias;
	int fd = symbols_open(symbol->path);
	if (fd < 0)
		return NULL;

	dwfl_report_begin(dwfl);
	Dwfl_Module *module = dwfl_report_elf(dwfl, symbol->path, symbol->path, fd, 0, true);
	if (!module)
		gm_close(fd); /* otherwise, it is the module's */
	if (dwfl_report_end(dwfl, NULL, NULL) != 0 || !module || !dwfl_module_getelf(module, &bias))
		return NULL;
	int n = dwfl_module_build_id(module, &id, &where);
	if (n <= 0 || (size_t)n != symbol->id_bytes || memcmp(id, symbol->id, (size_t)n) != 0)
		return NULL;
	return module;
}

static void symbols_ask(Dwfl_Module *module, uint64_t offset, struct symbol_record *ret)
{
	Dwfl_Line *line = dwfl_module_getsrc(module, offset);
	const char *name = dwfl_module_addrname(module, offset), *file = NULL;
	int number = 0;

	if (line)
		file = dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL);
	snprintf(ret->function, sizeof(ret->function), "%s", name ? name : "");
	/* The end of a long path says more than its beginning. */
	size_t n = file ? strlen(file) : 0, most = sizeof(ret->file) - 1;
	snprintf(ret->file, sizeof(ret->file), "%s",
		!file      ? ""
		: n > most ? file + n - most
			   : file);
	ret->line = number > 0 ? (uint32_t)number : 0;
}

static bool symbols_same_module(const struct gm_symbol *one, const struct gm_symbol *other)
{
	return strcmp(one->path, other->path) == 0 && one->id_bytes == other->id_bytes &&
	       memcmp(one->id, other->id, one->id_bytes) == 0;
}

static void symbols_answer(const struct gm_symbol *symbols, size_t n, struct symbol_record *records)
{
	static char *no_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.debuginfo_path = &no_path,
	};

	for (size_t i = 0; i < n; i++) {
		bool first = symbols[i].id_bytes && symbols[i].path;
		for (size_t k = 0; first && k < i; k++)
			first = !symbols[k].id_bytes || !symbols[k].path ||
				!symbols_same_module(&symbols[k], &symbols[i]);
		Dwfl *dwfl = first ? dwfl_begin(&callbacks) : NULL;
		if (!dwfl)
			continue;
		/* Each module has its own addresses from 0 on. */
		Dwfl_Module *module = symbols_load(dwfl, &symbols[i]);
		for (size_t k = i; module && k < n; k++)
			if (symbols[k].id_bytes && symbols[k].path &&
				symbols_same_module(&symbols[k], &symbols[i]))
				symbols_ask(module, symbols[k].offset, &records[k]);
		dwfl_end(dwfl);
	}
}
#endif

/* How much address space the child may have: what it has already, and some more. A file of a few bytes
 * can unpack to any size. */
static rlim_t symbols_memory(void)
{
	unsigned long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "re");

	if (statm && fscanf(statm, "%lu", &pages) != 1)
		pages = 0;
	if (statm)
		fclose(statm);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MEMORY_MOST;
}

static bool symbols_bound(void)
{
	const struct rlimit cpu = {FIND_S, FIND_S}, none = {0, 0};
	const struct rlimit memory = {symbols_memory(), symbols_memory()};

	/* A file may also make libdw wait without any work. */
	alarm(FIND_S);
	return setrlimit(RLIMIT_CPU, &cpu) == 0 && setrlimit(RLIMIT_CORE, &none) == 0 &&
	       setrlimit(RLIMIT_FSIZE, &none) == 0 && setrlimit(RLIMIT_AS, &memory) == 0;
}

/*
 * Gives up all rights but those of the user. The root of a container is no root here: a client of uid 0
 * gets the rights of nobody. Returns false if that is not possible; an ordinary user who is an
 * administrator must not read the files of others.
 */
static bool symbols_become(uid_t uid)
{
	uid_t to = uid ? uid : NOBODY;

	/* Debug information comes from this machine alone. */
	unsetenv("DEBUGINFOD_URLS");
	if (geteuid() != 0)
		return uid == geteuid();
	/* A namespace with root alone in it has no more rights than the user who made it. */
	if (uid == 0 && setresgid(NOBODY, NOBODY, NOBODY) < 0 && errno == EINVAL)
		return true;
	return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
	       setresuid(to, to, to) == 0;
}

static void symbols_child(int out, uid_t uid, const struct gm_symbol *symbols, size_t n)
{
	struct symbol_record *records = calloc(n, sizeof(*records));
	const uint8_t *at = (const uint8_t *)records;
	size_t left = n * sizeof(*records);

	/* Nothing that libraries say is for the user of gpumemctl. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		(void)dup2(null, fd);
	/* The child reads files of the client, so it must not keep the connection to the daemon. */
	if (out != ANSWER_FD && dup2(out, ANSWER_FD) < 0)
		_exit(1);
	out = ANSWER_FD;
	(void)close_range(ANSWER_FD + 1, ~0U, 0);
	if (!records || !symbols_bound() || !symbols_become(uid) ||
		prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		_exit(1);
#ifdef HAVE_LIBDW
	symbols_answer(symbols, n, records);
#else
	(void)symbols;
#endif
	while (left) {
		ssize_t done = write(out, at, left);
		if (done <= 0)
			_exit(1);
		at += done;
		left -= (size_t)done;
	}
	_exit(0);
}

/* ---- in gpumemctl */

/* Reads so many bytes, in bounded time: all calls of this process share it. */
static bool symbols_read(int in, void *bytes, size_t n)
{
	static uint64_t left_ns = FIND_NS;
	uint64_t began_ns = gm_clock_ns(), end_ns = began_ns + left_ns;
	uint8_t *at = bytes;

	while (n) {
		struct pollfd p = {.fd = in, .events = POLLIN};
		int ready = poll(&p, 1, gm_clock_poll_ms(end_ns));
		if (ready < 0 && errno == EINTR)
			continue;
		ssize_t got = ready > 0 ? read(in, at, n) : 0;
		if (got <= 0)
			break;
		at += got;
		n -= (size_t)got;
	}
	uint64_t took_ns = gm_clock_ns() - began_ns;
	left_ns -= took_ns < left_ns ? took_ns : left_ns;
	return n == 0;
}

/* Ends the child. If a file system does not answer it, it cannot be killed. Then it is left behind, and ends
 * when the file system answers. */
static void symbols_end(pid_t child)
{
	GM_AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	uint64_t until_ns = gm_clock_ns() + END_NS;
	char text[160];

	kill(child, SIGKILL);
	while (pidfd >= 0 && poll(&ended, 1, gm_clock_poll_ms(until_ns)) < 0 && errno == EINTR)
		;
	if (waitpid(child, NULL, WNOHANG) != 0)
		return;
	snprintf(text, sizeof(text),
		"process %d, which reads the files of a client, does not end, and is left behind; a "
		"file system may not answer it",
		(int)child);
	gm_message("gpumemctl", text);
}

void gm_symbols_find(uid_t uid, struct gm_symbol *symbols, size_t n)
{
	int ends[2];
	struct symbol_record *records = n ? calloc(n, sizeof(*records)) : NULL;

	for (size_t i = 0; i < n; i++) {
		symbols[i].function[0] = symbols[i].file[0] = '\0';
		symbols[i].line = 0;
	}
	if (!records || pipe2(ends, O_CLOEXEC) < 0) {
		free(records);
		return;
	}

	pid_t child = fork();
	if (child == 0)
		symbols_child(ends[1], uid, symbols, n);
	gm_close(ends[1]);
	if (child > 0 && symbols_read(ends[0], records, n * sizeof(*records)))
		for (size_t i = 0; i < n; i++) {
			records[i].function[sizeof(records[i].function) - 1] = '\0';
			records[i].file[sizeof(records[i].file) - 1] = '\0';
			strcpy(symbols[i].function, records[i].function);
			strcpy(symbols[i].file, records[i].file);
			symbols[i].line = records[i].line;
		}
	gm_close(ends[0]);
	if (child > 0)
		symbols_end(child);
	free(records);
}
