/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory as chunks: sealed memfds, and how much of it the daemon may hand out. A chunk is
 * exactly as large as was asked for and stays so. Its mode is 0600, so that nobody can open it
 * without being given the fd. It must never touch the bytes.
 */
#include "daemon/backend/backend_ram.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/kept.h"
#include "common/bounds.h"
#include "common/system/memfd.h"
#include "common/text/units.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- how much */

/* The number in a file of /sys, or UINT64_MAX if the file has none (but "max", for example). */
static uint64_t ram_read_limit(const char *path)
{
	char text[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return UINT64_MAX;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return UINT64_MAX;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	uint64_t value;
	return gm_parse_u64(text, &value) == 0 ? value : UINT64_MAX;
}

/* The lowest limit of a cgroup and of all cgroups above it. Changes path. */
static uint64_t ram_least_limit(const char *root, char *path, const char *file)
{
	uint64_t least = UINT64_MAX;
	for (;;) {
		char name[PATH_MAX];
		int n = snprintf(name, sizeof(name), "%s%s/%s", root, path, file);
		if (n > 0 && (size_t)n < sizeof(name)) {
			uint64_t limit = ram_read_limit(name);
			least = limit < least ? limit : least;
		}
		char *slash = strrchr(path, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* Whether the cgroup has the daemon alone: clients are charged elsewhere then. */
static bool ram_is_our_service(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && strcmp(name, "/gpumemd.service") == 0;
}

/* own: the limit of the daemon's own service counts, too. */
static uint64_t ram_cgroup_limit(bool own)
{
	uint64_t least = UINT64_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");
	if (!file)
		return least;

	char line[PATH_MAX + 64];
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		controllers++;
		if (!own && ram_is_our_service(path))
			*strrchr(path, '/') = '\0';
		uint64_t limit = UINT64_MAX;
		if (*controllers == '\0')
			limit = ram_least_limit("/sys/fs/cgroup", path, "memory.max");
		else if (strcmp(controllers, "memory") == 0)
			limit = ram_least_limit(
				"/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
		least = limit < least ? limit : least;
	}

	fclose(file);
	return least;
}

static uint64_t ram_installed(void)
{
	struct sysinfo info;

	return sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : UINT64_MAX;
}

static uint64_t ram_round(uint64_t memory)
{
	return gm_u64_max(memory / GM_CHUNK_MIN * GM_CHUNK_MIN, GM_CHUNK_MIN);
}

static uint64_t ram_share(uint64_t parts)
{
	uint64_t memory = gm_u64_min(ram_cgroup_limit(false), ram_installed());
	if (memory == UINT64_MAX)
		memory = UINT64_C(1) << 30;
	return ram_round(memory / parts);
}

uint64_t gm_backend_ram_total(void)
{
	return ram_share(1);
}

uint64_t gm_backend_ram_within(uint64_t limit, uint64_t files)
{
	if (limit >= ram_installed())
		return ram_share(1);
	return ram_round(gm_u64_max(gm_u64_minus(limit, gm_kept_bytes(files)), limit / 4));
}

uint64_t gm_backend_ram_own(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		files.rlim_cur = 0;
	return gm_backend_ram_within(ram_cgroup_limit(true), files.rlim_cur);
}

uint64_t gm_backend_ram_quarter(void)
{
	return ram_share(4);
}

/* ---- chunks */

int gm_backend_ram_create(uint64_t bytes, int *ret_fd)
{
	int fd;
	int r = gm_memfd_create("gpumem-chunk", bytes, &fd);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		gm_close(fd); /* keeps errno */
		return -errno;
	}
	*ret_fd = fd;
	return 0;
}

/* Takes pages from the node as long as it has any. Without NUMA, or in a container that may not ask
 * for it, they come from anywhere. */
static void ram_prefer(void *addr, uint64_t bytes, int node)
{
	enum { BITS = 8 * sizeof(unsigned long) };
	unsigned long nodes[1024 / BITS] = {0};

	if (node < 0 || node >= 1024)
		return;
	nodes[node / BITS] = 1UL << node % BITS;

	/* The kernel reads one bit less than it is told. */
	(void)syscall(SYS_mbind, addr, bytes, MPOL_PREFERRED, nodes, 1024UL + 1, 0);
}

static int ram_allocate(int fd, uint64_t from, uint64_t bytes)
{
	int r;

	do
		r = fallocate(fd, 0, (off_t)from, (off_t)bytes) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r == -ENOSPC ? -ENOMEM : r; /* a memfd is full when memory is short */
}

/*
 * MADV_COLLAPSE makes a huge page of a range that has at least one page. One is enough, and
 * quickest: the kernel would copy all the others. If it makes no huge page, because there is no
 * room or because it never does, the range is filled page by page.
 */
static int ram_fill(int fd, uint8_t *addr, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool huge = page * page / 8 == GM_CHUNK_MIN; /* a page table of 8-byte entries */
	int outcome = 0;

	for (uint64_t at = 0; at < bytes; at += GM_CHUNK_MIN) {
		int r = ram_allocate(fd, at, page);
		if (r < 0)
			return r;
		if (huge && madvise(addr + at, GM_CHUNK_MIN, MADV_COLLAPSE) == 0)
			continue;
		huge = huge && errno != EINVAL; /* EINVAL: the kernel never does */
		outcome = GM_BACKEND_RAM_SMALL;
		r = ram_allocate(fd, at, GM_CHUNK_MIN);
		if (r < 0)
			return r;
	}
	return outcome;
}

int gm_backend_ram_fill(int fd, uint64_t bytes, int node)
{
	/* The mapping must be aligned to a huge page, so the range reserved for it is one chunk
	 * larger. All of it is unmapped at the end. */
	uint64_t room = bytes + GM_CHUNK_MIN;
	uint8_t *reserved =
		mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int r;

	if (reserved == MAP_FAILED)
		return -errno;

	uint8_t *addr = reserved + (-(uintptr_t)reserved & (GM_CHUNK_MIN - 1));
	if (mmap(addr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		r = -errno;
	} else {
		ram_prefer(addr, bytes, node);
		r = ram_fill(fd, addr, bytes);
	}

	munmap(reserved, room);
	return r;
}

int gm_backend_ram_check(int fd, uint64_t bytes)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || (uint64_t)st.st_size != bytes)
		return -EINVAL;
	return 0;
}

int gm_backend_ram_read_only(int fd, int *ret_fd)
{
	return gm_memfd_open(fd, true, ret_fd);
}
