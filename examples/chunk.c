/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the program maps itself: two chunks, side by side in one range of addresses. The host
 * backend's chunks are mapped with mmap(); a CUDA program would import each descriptor with
 * cuMemImportFromShareableHandle() and map it with cuMemMap().
 */
#include <gpumem/gpumem_chunk.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL GPUMEM_CHUNK_GRANULARITY
#define LARGE (3 * GPUMEM_CHUNK_GRANULARITY)

static int map(char *at, size_t bytes, int fd)
{
	void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);

	close(fd);
	return mapped == at ? 0 : -1;
}

int main(void)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_chunk *small = NULL, *large = NULL;
	int small_fd, large_fd;

	/* The daemon charges exactly what is asked for. */
	if (gpumem_connect(NULL, &session) || gpumem_device_info(session, 0, &info) ||
		gpumem_chunk_create(session, 0, SMALL, NULL, &small, &small_fd) ||
		gpumem_chunk_create(session, 0, LARGE, NULL, &large, &large_fd)) {
		fprintf(stderr, "chunk: %s\n", gpumem_error_detail());
		return 1;
	}
	printf("chunks of %zu and %zu MiB\n", gpumem_chunk_size(small) >> 20,
		gpumem_chunk_size(large) >> 20);
	if (strcmp(info.backend, "host") != 0) {
		puts("a CUDA program would import them now");
		return 0;
	}

	char *range = mmap(
		NULL, SMALL + LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED || map(range, SMALL, small_fd) ||
		map(range + SMALL, LARGE, large_fd)) {
		perror("chunk");
		return 1;
	}
	memset(range, 'x', SMALL + LARGE);
	puts("mapped side by side and filled");

	/* Unmapped first: then nothing is left of it when the daemon has it back. */
	munmap(range, SMALL + LARGE);
	gpumem_chunk_destroy(large);
	gpumem_chunk_destroy(small);
	return 0;
}
