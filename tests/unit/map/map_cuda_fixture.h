/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_MAP_MAP_CUDA_FIXTURE_H
#define GM_TESTS_UNIT_MAP_MAP_CUDA_FIXTURE_H

/* The cuda backend of a client, opened over the fake driver, and a control block. */

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/map/map_cuda.h"
#include "client/map/map_control.h"
#include "tests/tap.h"
#include "tests/unit/map/map_fixture.h"

static struct gm_map_cuda *map;
static uint8_t uuids[2][GM_UUID_BYTES];

static inline void load(void)
{
	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	for (int i = 0; i < 2; i++) {
		gm_cu_uuid uuid;
		ck_assert_int_eq(cuda->cuDeviceGetUuid(&uuid, i), 0);
		memcpy(uuids[i], uuid.bytes, GM_UUID_BYTES);
	}
	ops = gm_map_cuda_ops();
}

static inline void open_it(void)
{
	load();
	ck_assert_int_eq(gm_map_cuda_new(uuids[0], &map, why), 0);
}

/* A control block, as the daemon hands it over. */
static inline int word_fd(void)
{
	int fd = memfd_create("word", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, GM_CONTROL_BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, GM_CONTROL_SEALS), 0);
	return fd;
}

static inline struct gm_map_control *word_new(void)
{
	struct gm_map_control *word;
	int fd = word_fd();

	ck_assert_int_eq(ops->word_open(map, fd, false, &word), 0);
	close(fd);
	return word;
}

static inline int record_on(gpumem_stream stream)
{
	struct gm_map_event *made;
	int r = ops->record_on(map, stream, &made);
	if (r == 0)
		ops->forget(map, made);
	return r;
}

static inline int record(void)
{
	struct gm_map_event *made;
	int r = ops->record(map, &made);
	if (r == 0)
		ops->forget(map, made);
	return r;
}

#endif
