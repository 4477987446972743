/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"

static int program_try(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode) || access(path, X_OK) < 0)
		return -EACCES;
	return 0;
}

int gm_program_find(const char *name, char *path, size_t room)
{
	const char *at = getenv("PATH");
	int found = -ENOENT;

	if (strchr(name, '/')) {
		if ((size_t)snprintf(path, room, "%s", name) >= room)
			return -ENAMETOOLONG;
		return program_try(path);
	}

	for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; at; at = *at ? at + 1 : NULL) {
		size_t n = strcspn(at, ":");
		int written = snprintf(path, room, "%.*s%s%s", (int)n, at, n ? "/" : "", name);
		at += n;
		if (written < 0 || (size_t)written >= room)
			continue;
		/* A folder that this user may not look into has nothing for it. */
		struct stat st;
		if (stat(path, &st) < 0)
			continue;
		if (program_try(path) == 0)
			return 0;
		found = -EACCES;
	}
	return found;
}

/* Why an ELF file takes no library of ours; NULL: it does, or it is no such file. */
static const char *program_unfit(const char *path)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, &head, sizeof head) != sizeof head ||
		memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
		return NULL;
	if (head.e_ident[EI_CLASS] != ELFCLASS64)
		return "is a 32-bit program, and the library is a 64-bit one";
	if (head.e_phentsize != sizeof part || !head.e_phnum)
		return NULL;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		off_t place = (off_t)(head.e_phoff + i * sizeof part);
		if (pread(fd, &part, sizeof part, place) != sizeof part || part.p_type == PT_INTERP)
			return NULL;
	}
	return "is linked statically, so no library can be put in front of its driver";
}

const char *gm_program_closed(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return NULL;
	if ((st.st_mode & S_ISUID && st.st_uid != getuid()) ||
		(st.st_mode & S_ISGID && st.st_mode & S_IXGRP && st.st_gid != getgid()))
		return "runs with the rights of another user (setuid), so no library can be put in front of its driver; "
		       "run gpumem-run as that user";
	if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		return "runs with capabilities of its own, so no library can be put in front of its driver";
	return program_unfit(path);
}

/* Whether the file begins as an ELF file does: then it is no script, but a program for another machine. */
static bool program_is_elf(const char *path)
{
	char head[SELFMAG];
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, head, sizeof head) == sizeof head &&
	       memcmp(head, ELFMAG, SELFMAG) == 0;
}

int gm_program_execute(const char *path, char *const argv[])
{
	size_t n = 0;

	execv(path, argv);
	int r = -errno;
	if (r != -ENOEXEC || program_is_elf(path))
		return r;
	while (argv[n])
		n++;
	/* The shell, the script, its arguments, and the end. */
	char **script = calloc(n + 2, sizeof *script);
	if (!script)
		return -ENOMEM;
	script[0] = (char *)"/bin/sh";
	script[1] = (char *)path;
	for (size_t i = 1; i < n; i++)
		script[i + 1] = argv[i];
	execv(script[0], script);
	r = -errno;
	free(script);
	return r;
}
