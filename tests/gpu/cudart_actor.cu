/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with the CUDA runtime linked into it, for tests/gpu/frameworks.sh: allocates, computes, frees, and meets its limit.
 * nvcc -cudart static -o cudart_actor cudart_actor.cu
 */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define DO(call) \
	do { \
		cudaError_t error = (call); \
		if (error != cudaSuccess) { \
			std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
			std::exit(1); \
		} \
	} while (0)

__global__ void add(int *to, const int *a, const int *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		to[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
	const int n = 1 << 20;
	const size_t piece = (size_t)64 << 20;
	const char *limit = std::getenv("GPUMEM_RUN_LIMIT");
	size_t free_bytes, total;
	int *a, *b, *c;
	cudaStream_t stream;

	DO(cudaMemGetInfo(&free_bytes, &total));
	if (limit && total != std::strtoull(limit, nullptr, 10)) {
		std::fprintf(stderr, "the GPU has %zu bytes, and the limit is %s\n", total, limit);
		return 1;
	}

	DO(cudaStreamCreate(&stream));
	DO(cudaMalloc(&a, n * sizeof *a));
	DO(cudaMalloc(&b, n * sizeof *b));
	DO(cudaMallocAsync((void **)&c, n * sizeof *c, stream));
	std::vector<int> host(n, 20), sum(n);
	DO(cudaMemcpy(a, host.data(), n * sizeof *a, cudaMemcpyHostToDevice));
	DO(cudaMemcpy(b, host.data(), n * sizeof *b, cudaMemcpyHostToDevice));
	add<<<(n + 255) / 256, 256, 0, stream>>>(c, a, b, n);
	DO(cudaGetLastError());
	DO(cudaMemcpyAsync(sum.data(), c, n * sizeof *c, cudaMemcpyDeviceToHost, stream));
	DO(cudaFreeAsync(c, stream));
	DO(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		if (sum[i] != 40) {
			std::fprintf(stderr, "element %d is %d\n", i, sum[i]);
			return 1;
		}
	DO(cudaFree(a));
	DO(cudaFree(b));

	/* With a limit: up to it, and no further. */
	std::vector<void *> all;
	cudaError_t error = cudaSuccess;
	void *ptr;
	while (limit && (error = cudaMalloc(&ptr, piece)) == cudaSuccess)
		all.push_back(ptr);
	if (limit && (error != cudaErrorMemoryAllocation || all.empty())) {
		std::fprintf(stderr, "%zu pieces, then %s\n", all.size(), cudaGetErrorString(error));
		return 1;
	}
	(void)cudaGetLastError();
	for (void *p : all)
		DO(cudaFree(p));
	std::puts("cudart: ok");
	return 0;
}
