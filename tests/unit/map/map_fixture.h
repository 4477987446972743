/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_MAP_FIXTURE_H
#define GM_TESTS_UNIT_MAP_FIXTURE_H

/*
 * A client's backend over the fake driver: memory as the daemon hands it over, where it is mapped,
 * and contexts and streams of the program that uses it.
 */

#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <unistd.h>

#include "client/map/map_cuda.h"

#define M GM_CHUNK_MIN

static const struct gm_cuda *cuda;
static const struct gm_map_ops *ops;
static char why[GM_MAP_CUDA_WHY];

/* ---- memory */

/* A chunk of the driver: of device 0, or of the host. */
static inline int chunk_of(int location)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = location, .id = 0}};
	gm_cu_mem mem;
	int fd = -1;

	ck_assert_int_eq(cuda->cuMemCreate(&mem, M, &prop, 0), 0);
	ck_assert_int_eq(cuda->cuMemExportToShareableHandle(
				 &fd, mem, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		0);
	ck_assert_int_eq(cuda->cuMemRelease(mem), 0);
	return fd;
}

static inline char *reserve_in(void *map, uint64_t chunks)
{
	void *addr = NULL;

	ck_assert_int_eq(ops->reserve(map, chunks * M, &addr), 0);
	ck_assert_uint_eq((uintptr_t)addr % M, 0);
	return addr;
}

/* The chunk's fd is closed. */
static inline void map_in(void *map, void *addr, int fd)
{
	ck_assert_int_eq(ops->map(map, addr, M, fd), 0);
	close(fd);
}

/* By the GPU that this thread uses. */
static inline gm_cu_result set(void *at, size_t n, unsigned char value)
{
	gm_cu_result result = cuda->cuMemsetD8Async((gm_cu_ptr)(uintptr_t)at, value, n, NULL);

	return result ? result : cuda->cuStreamSynchronize(NULL);
}

/* ---- the program */

static inline gm_cu_ctx context_on(int device)
{
	gm_cu_ctx context;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&context, device), 0);
	return context;
}

static inline void use(int device)
{
	ck_assert_int_eq(cuda->cuCtxSetCurrent(context_on(device)), 0);
}

static inline gm_cu_stream stream_new(void)
{
	gm_cu_stream stream;

	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	return stream;
}

static sem_t gate;

/* Work of a stream that lasts until the gate opens. */
static inline void wait_at_gate(void *unused)
{
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

#endif
