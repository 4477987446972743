/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_COPY_FIXTURE_H
#define GM_TESTS_INTEGRATION_COPY_FIXTURE_H

/* A private daemon with pinned memory, and what a transfer must not leave behind. */

#include <dirent.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/integration/transfer.h"

#define KIB  (UINT64_C(1) << 10)
#define SLOT ((size_t)(64 * KIB))
#define ROOM ((size_t)(8 * MIB)) /* of the buffer */

#define COPY_CONFIG(host_limit) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\nhost_limit = " host_limit \
	"\n[device 0]\nsize = 1G\n"

static gpumem_buffer *buffer;

/* How many threads this process has. */
static inline size_t threads_now(void)
{
	DIR *folder = opendir("/proc/self/task");
	size_t n = 0;
	GM_REQUIRE(folder);
	for (struct dirent *entry; (entry = readdir(folder));)
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n;
}

static inline void copy_set_up_with(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	session = join("the test");
	OK(gpumem_buffer_create(session, 0, ROOM, NULL, &buffer));
	/* The driver's own threads come with its first uses. */
	gm_device_set(gpumem_buffer_ptr(buffer), ROOM, 0xee);
}

static inline void copy_set_up(void)
{
	copy_set_up_with(COPY_CONFIG("96M"));
}

static inline gpumem_stats_t stats_of(uint32_t device)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, device, &stats));
	return stats;
}

/* No slot is in use any more. */
static inline void require_no_ring(void)
{
	GM_REQUIRE_EQ(stats_of(GPUMEM_DEVICE_HOST).in_use, 0);
}

static inline void copy_tear_down(void)
{
	require_no_ring();
	gpumem_buffer_destroy(buffer);
	tear_down();
}

/* The buffer has these bytes there, and what was before around them. */
static inline void require_in_buffer(size_t offset, const void *bytes, size_t n, uint8_t around)
{
	uint8_t *there = malloc(ROOM);
	GM_REQUIRE(there);
	gm_device_read(there, gpumem_buffer_ptr(buffer), ROOM);
	GM_REQUIRE(memcmp(there + offset, bytes, n) == 0);
	if (offset)
		GM_REQUIRE_EQ(there[offset - 1], around);
	if (offset + n < ROOM)
		GM_REQUIRE_EQ(there[offset + n], around);
	free(there);
}

static inline gpumem_copy_options staged(uint32_t threads, uint32_t slots)
{
	return by_threads(GPUMEM_COPY_STAGED, threads, slots, SLOT);
}

#endif
