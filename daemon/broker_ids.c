/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids that are never reused. The file that names the next block is replaced as a whole, before the
 * current block is used, so a daemon that dies at any point leaves a correct file. The file is
 * believed only if it belongs to the daemon's user or to root.
 */
#include "daemon/broker_ids.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/text/units.h"

/* The ids of larger blocks would reach 2^53. */
#define GM_BROKER_IDS_BLOCK_MAX (UINT64_C(1) << (53 - GM_BROKER_IDS_BLOCK_BITS))
#define GM_BROKER_IDS_PER_BLOCK (UINT32_C(1) << GM_BROKER_IDS_BLOCK_BITS)

/* The block that the file names, or 0 if there is no file that can be believed. */
static uint64_t broker_ids_read_block(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return 0;

	struct stat st;
	char text[32];
	ssize_t n = -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		(st.st_uid == geteuid() || st.st_uid == 0))
		n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;

	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	uint64_t block;
	if (gm_parse_u64(text, &block) < 0 || block >= GM_BROKER_IDS_BLOCK_MAX)
		return 0;
	return block;
}

static int broker_ids_write_block(const char *file, uint64_t block)
{
	char temporary[GM_BROKER_IDS_FILE_BYTES + 8];
	char text[32];
	snprintf(temporary, sizeof(temporary), "%s.new", file);
	int n = snprintf(text, sizeof(text), "%" PRIu64 "\n", block);
	if (unlink(temporary) < 0 && errno != ENOENT)
		return -errno;

	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;

	int r = 0;
	ssize_t written = write(fd, text, (size_t)n);
	if (written != n)
		r = written < 0 ? -errno : -ENOSPC;

	/* If the folder is no tmpfs, the file must be on disk before it gets its name. */
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	close(fd);
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

/* Takes the block that the file or the clock names, but at least `least`. Returns whether the next
 * block was written to the file. */
static bool broker_ids_take_block(struct gm_broker_ids *ids, int64_t unix_seconds, uint64_t least)
{
	uint64_t block = ids->file[0] ? broker_ids_read_block(ids->file) : 0;
	if (unix_seconds > GM_BROKER_IDS_EPOCH &&
		block < (uint64_t)(unix_seconds - GM_BROKER_IDS_EPOCH))
		block = (uint64_t)(unix_seconds - GM_BROKER_IDS_EPOCH);
	if (block < least)
		block = least;
	ids->block = block;
	ids->used = 0;
	return ids->file[0] && broker_ids_write_block(ids->file, block + 1) == 0;
}

int gm_broker_ids_init(
	struct gm_broker_ids *ids, const char *file, int64_t unix_seconds, bool *ret_stored)
{
	memset(ids, 0, sizeof(*ids));
	if (file) {
		if (strlen(file) >= sizeof(ids->file))
			return -ENAMETOOLONG;
		strcpy(ids->file, file);
	}
	*ret_stored = broker_ids_take_block(ids, unix_seconds, 1);
	ids->generation = ids->block;
	return 0;
}

uint64_t gm_broker_ids_next(struct gm_broker_ids *ids)
{
	if (ids->used == GM_BROKER_IDS_PER_BLOCK - 1)
		broker_ids_take_block(ids, (int64_t)time(NULL), ids->block + 1);
	return ids->block << GM_BROKER_IDS_BLOCK_BITS | ++ids->used;
}
