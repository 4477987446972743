/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads files into buffers. The file is read into slots, or into the buffer itself where the CPU sees
 * it. This file must never map the file: reading a mapping of a file that shrank ends the
 * process.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/copy/copy.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"

/* How soon a thread that waits for a pipe notices that nobody wants the bytes any more. */
#define FILE_POLL_MS 10

/* file_move() and file_move_serial() return these where no errno says what happened. */
enum {
	FILE_E_SHORTER = 1, /* the file has become shorter */
	FILE_E_MORE,        /* there is more than fits */
	FILE_E_ENDED,       /* the input ended early */
};

struct copy_file {
	struct gm_copy_transfer copy; /* comes first */
	const char *name;
	int fd;
	uint64_t offset;
	bool placed; /* it has places, so it is read by them and its position stays */
	bool to_end; /* what is read in its order is read to its end */
};

/* ---- reading */

/* Reads a part of a file that has places. */
static int file_move(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n)
{
	const struct copy_file *file = ctx;
	size_t got = 0;

	while (got < n) {
		ssize_t r = pread(file->fd, (uint8_t *)place + got, n - got,
			(off_t)(file->offset + at + got));
		if (r == 0)
			return FILE_E_SHORTER;
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		got += r > 0 ? (size_t)r : 0;
	}
	*ret_n = n;
	return 0;
}

static bool file_unwanted(const struct copy_file *file)
{
	const uint32_t *cancel = file->copy.options.cancel;

	return atomic_load(&file->copy.stopping) ||
	       (cancel && __atomic_load_n(cancel, __ATOMIC_ACQUIRE));
}

/* Reads what comes next, which is at that place. 0: the end. */
static ssize_t file_read_next(const struct copy_file *file, uint64_t at, void *to, size_t n)
{
	for (;;) {
		struct pollfd p = {.fd = file->fd, .events = POLLIN};

		if (file_unwanted(file))
			return -ECANCELED;
		int ready = poll(&p, 1, FILE_POLL_MS);
		if (ready == 0 || (ready < 0 && errno == EINTR))
			continue;
		ssize_t r = file->placed ? pread(file->fd, to, n, (off_t)(file->offset + at))
					 : read(file->fd, to, n);
		if (r >= 0)
			return r;
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
}

static int file_move_serial(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n)
{
	const struct copy_file *file = ctx;
	size_t got = 0;
	uint8_t more;

	while (got < n) {
		ssize_t r = file_read_next(file, at + got, (uint8_t *)place + got, n - got);
		if (r < 0)
			return (int)r;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	/* The end has to come before the end of the buffer, or with it. */
	if (file->to_end && at + got == file->copy.room) {
		ssize_t r = file_read_next(file, at + got, &more, 1);
		if (r)
			return r > 0 ? FILE_E_MORE : (int)r;
	}
	*ret_n = got;
	return 0;
}

static gpumem_status file_explain(const struct gm_copy_transfer *copy, int error)
{
	const struct copy_file *file = (const struct copy_file *)copy;
	unsigned long long bytes = copy->result.bytes, total = copy->total;

	if (error == FILE_E_SHORTER)
		return gm_error(GPUMEM_E_SYSTEM,
			"%.200s became shorter while it was read: %llu of %llu bytes arrived",
			file->name, bytes, total);
	if (error == FILE_E_ENDED)
		return gm_error(GPUMEM_E_SYSTEM, "%.200s ended early: %llu of %llu bytes arrived",
			file->name, bytes, total);
	if (error == FILE_E_MORE)
		return gm_error(GPUMEM_E_INVALID,
			"%.200s has more than the %llu bytes that fit into the buffer at this "
			"offset",
			file->name, (unsigned long long)file->copy.room);
	return gm_error(GPUMEM_E_SYSTEM, "cannot read %.200s: %s: %llu of %llu bytes arrived",
		file->name, strerror(-error), bytes, total);
}

/* ---- what kind of file it is */

static gpumem_status file_open(const gpumem_copy_file *given, int *ret_fd)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
	/* A pipe that nobody writes to yet is waited for later, where the transfer can be cancelled. */
	int fd = open(given->path, flags | O_NONBLOCK);

	/* Another process has a lease of the file (fcntl(2)). The kernel bounds the wait for it. */
	if (fd < 0 && errno == EWOULDBLOCK)
		fd = open(given->path, flags);
	if (fd < 0) {
		int error = errno;
		gpumem_status status = error == ENOENT || error == ENOTDIR ? GPUMEM_E_NOT_FOUND
				       : error == EACCES || error == EPERM ? GPUMEM_E_DENIED
									   : GPUMEM_E_SYSTEM;

		return gm_error(status, "cannot open %.200s: %s", given->path, strerror(error));
	}
	*ret_fd = fd;
	return GPUMEM_OK;
}

/* A file with places whose length is known. */
static gpumem_status file_measure(
	const struct copy_file *file, uint64_t size, uint64_t bytes, uint64_t *ret_bytes)
{
	if (file->offset > size)
		return gm_error(GPUMEM_E_INVALID,
			"offset %llu is past the end of %.200s: it has "
			"%llu bytes",
			(unsigned long long)file->offset, file->name, (unsigned long long)size);
	if (bytes == GPUMEM_COPY_REST)
		bytes = size - file->offset;
	if (bytes > size - file->offset)
		return gm_error(GPUMEM_E_INVALID,
			"%llu bytes at offset %llu are not in %.200s: it has %llu bytes",
			(unsigned long long)bytes, (unsigned long long)file->offset, file->name,
			(unsigned long long)size);
	*ret_bytes = bytes;
	return GPUMEM_OK;
}

/* Whether a file has bytes at its offset although its length is said to be 0, as files of /proc have. */
static bool file_has_more(const struct copy_file *file, uint64_t bytes)
{
	uint8_t byte;

	return bytes && pread(file->fd, &byte, 1, (off_t)file->offset) > 0;
}

/* It is read in its order: nobody knows how many bytes there are. */
static gpumem_status file_look_serial(struct copy_file *file, uint64_t bytes, uint64_t *ret_bytes)
{
	file->copy.move = file_move_serial;
	file->copy.serial = true;
	file->to_end = bytes == GPUMEM_COPY_REST;
	*ret_bytes = file->to_end ? file->copy.room : bytes;
	return GPUMEM_OK;
}

/* Finds out how many bytes are to be read, and how. */
static gpumem_status file_look(struct copy_file *file, uint64_t bytes, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(file->fd, &st) < 0)
		return gm_error(errno == EBADF ? GPUMEM_E_INVALID : GPUMEM_E_SYSTEM,
			"cannot read %.200s: %s", file->name, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return gm_error(GPUMEM_E_INVALID, "%.200s is a folder", file->name);
	file->copy.move = file_move;
	file->placed = S_ISREG(st.st_mode) && !st.st_size && file_has_more(file, bytes);
	if (file->placed)
		return file_look_serial(file, bytes, ret_bytes);
	if (S_ISREG(st.st_mode))
		return file_measure(file, (uint64_t)st.st_size, bytes, ret_bytes);
	if (S_ISBLK(st.st_mode)) {
		if (bytes == GPUMEM_COPY_REST)
			return gm_error(GPUMEM_E_INVALID,
				"%.200s is a block device: say how many bytes to read", file->name);
		if (bytes > INT64_MAX || file->offset > INT64_MAX - bytes)
			return gm_error(
				GPUMEM_E_INVALID, "bytes and offset are more than any file has");
		*ret_bytes = bytes;
		return GPUMEM_OK;
	}

	if (file->offset)
		return gm_error(GPUMEM_E_INVALID,
			"%.200s can only be read from where it is: offset must be 0", file->name);
	return file_look_serial(file, bytes, ret_bytes);
}

/* ---- the call */

static gpumem_status file_load(struct copy_file *file, uint64_t wanted)
{
	struct gm_copy_transfer *copy = &file->copy;
	gpumem_status status = file_look(file, wanted, &copy->total);
	if (status)
		return status;

	if (copy->total > file->copy.room)
		return gm_error(GPUMEM_E_INVALID,
			"%llu bytes of %.200s do not fit: the buffer has %llu bytes at this offset",
			(unsigned long long)copy->total, file->name,
			(unsigned long long)file->copy.room);
	if (copy->total) {
		status = gm_copy_run(copy, false);
		if (!status && copy->serial && !file->to_end && copy->result.bytes < copy->total)
			status = file_explain(copy, FILE_E_ENDED);
		return status;
	}
	copy->result.strategy = GPUMEM_COPY_SYNC;
	if (!file->to_end)
		return GPUMEM_OK;
	size_t none;
	int r = file_move_serial(file, 0, NULL, 0, &none);
	return r ? file_explain(copy, r) : GPUMEM_OK;
}

static void file_deinit(struct copy_file *file)
{
	gm_copy_deinit(&file->copy);
}

gpumem_status gpumem_copy_file_in(gpumem_buffer *buffer, size_t offset,
	const gpumem_copy_file *file, gpumem_stream stream, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result)
{
	GM_UNCANCELLED; /* until the file is closed */
	gpumem_copy_file given = GPUMEM_COPY_FILE_INIT;
	GM_AUTO_FD int opened = -1;
	__attribute__((cleanup(file_deinit))) struct copy_file source = {0};
	struct gm_copy_transfer *copy = &source.copy;

	if (!file)
		return gm_error(GPUMEM_E_INVALID, "file must not be NULL");
	gpumem_status status = gm_sized_in(&given, sizeof(given), file);
	if (!status)
		status = gm_copy_init(copy, buffer, offset, 0, false, stream, options, ret_result);
	if (status)
		return status;
	if (given.fd < 0 && !given.path)
		return gm_error(GPUMEM_E_INVALID, "file has neither a path nor an fd");
	if (copy->options.strategy == GPUMEM_COPY_ASYNC ||
		copy->options.strategy == GPUMEM_COPY_MANAGED)
		return gm_error(
			GPUMEM_E_INVALID, "strategy must be auto, sync or staged for a file");
	if (given.fd < 0)
		status = file_open(&given, &opened);
	if (status)
		return status;

	source.name = given.path ? given.path : "the file";
	source.fd = given.fd < 0 ? opened : given.fd;
	source.offset = given.offset;
	copy->ctx = &source;
	copy->explain = file_explain;
	return gm_copy_end(copy, file_load(&source, given.bytes), ret_result);
}
