/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "weights/weights_error.h"

static gpumem_status file_refused(const char *shown, int error)
{
	gpumem_status status = error == ENOENT || error == ENOTDIR ? GPUMEM_E_NOT_FOUND
			       : error == EACCES || error == EPERM ? GPUMEM_E_DENIED
								   : GPUMEM_E_SYSTEM;

	return gm_weights_error(status, "cannot open %.200s: %s", shown, strerror(error));
}

static gpumem_status file_check_kind(const struct stat *st, const char *shown)
{
	if (S_ISREG(st->st_mode))
		return GPUMEM_OK;
	return gm_weights_error(GPUMEM_E_INVALID,
		"%.200s is %s, and weights are loaded from regular files only", shown,
		S_ISDIR(st->st_mode) ? "a folder" : "a pipe, a socket or a device");
}

/* Opens what was looked at, and not what has its name by now. Without /proc, only the name is left. */
static int file_open_same(int looked_at, int folder, const char *name)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", looked_at);
	int fd = open(path, flags);
	return fd < 0 && errno == ENOENT ? openat(folder, name, flags) : fd;
}

gpumem_status gm_weights_file_open(
	struct gm_weights_file *file, int folder, const char *name, const char *shown)
{
	struct stat st;

	/* A look before the open: to open a device may have effects. The folder may be another user's, who exchanges
	 * the file in between. */
	GM_AUTO_FD int looked_at = openat(folder, name, O_PATH | O_CLOEXEC);
	if (looked_at < 0 || fstat(looked_at, &st) < 0)
		return file_refused(shown, errno);
	gpumem_status status = file_check_kind(&st, shown);
	if (status)
		return status;

	GM_AUTO_FD int fd = file_open_same(looked_at, folder, name);
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_refused(shown, errno);
	status = file_check_kind(&st, shown);
	if (status)
		return status;

	char *own = strdup(shown);
	if (!own)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the name of a file");
	*file = (struct gm_weights_file){.name = own,
		.fd = gm_steal_fd(&fd),
		.size = (uint64_t)st.st_size,
		.changed = st.st_mtim};
	return GPUMEM_OK;
}

void gm_weights_file_close(struct gm_weights_file *file)
{
	file->fd = gm_close(file->fd);
	free(file->name);
	file->name = NULL;
}

int gm_weights_file_read(const struct gm_weights_file *file, uint64_t offset, void *to, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = pread(file->fd, (uint8_t *)to + got, n - got, (off_t)(offset + got));

		if (r == 0)
			return GM_WEIGHTS_FILE_SHORT;
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			return errno;
		got += r > 0 ? (size_t)r : 0;
	}
	return 0;
}

gpumem_status gm_weights_file_explain(
	const struct gm_weights_file *file, uint64_t offset, int result)
{
	if (result == 0)
		return GPUMEM_OK;
	if (result == GM_WEIGHTS_FILE_SHORT)
		return gm_weights_error(GPUMEM_E_SYSTEM,
			"%.200s, byte %llu: the file became shorter while it was read", file->name,
			(unsigned long long)offset);
	return gm_weights_error(GPUMEM_E_SYSTEM, "%.200s, byte %llu: cannot be read: %s",
		file->name, (unsigned long long)offset, strerror(result));
}

gpumem_status gm_weights_file_same(const struct gm_weights_file *file)
{
	struct stat st;

	if (fstat(file->fd, &st) < 0)
		return gm_weights_file_explain(file, 0, errno);
	if ((uint64_t)st.st_size == file->size && st.st_mtim.tv_sec == file->changed.tv_sec &&
		st.st_mtim.tv_nsec == file->changed.tv_nsec)
		return GPUMEM_OK;
	return gm_weights_error(GPUMEM_E_SYSTEM,
		"%.200s was changed while it was read, so nothing is published; load it again",
		file->name);
}
