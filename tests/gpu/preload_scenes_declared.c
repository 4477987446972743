/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver makes, and the daemon charges. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/preload_scenes.h"

#define FLOATS 0x20

static const gm_cu_array_2d flat = {1024, ACTOR_BYTES / 4096, FLOATS, 1};
static const gm_cu_array solid = {1024, 1024, 4, FLOATS, 1, 0}; /* ACTOR_SOLID */
static const gm_cu_array square = {2048, 2048, 0, FLOATS, 1, 0};

/* Each show() has what the test expects: see check_preload.c. */
void scene_declared(void)
{
	gm_cu_stream stream;
	gm_cu_ptr managed, ptr;
	void *array, *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAllocManaged(&managed, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	show('d');
	CU(cu.cuArray3DCreate(&array, &solid));
	show('d');
	CU(cu.cuMemFree(managed));
	show('d');
	CU(cu.cuArrayDestroy(array));
	show('d');

	CU(cu.cuArrayCreate(&array, &flat));
	show('d');
	CU(cu.cuArrayDestroy(array));
	CU(cu.cuMipmappedArrayCreate(&array, &square, 3));
	show('d');
	CU(cu.cuMipmappedArrayDestroy(array));
	show('d');

	pool = new_pool(GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CU(cu.cuMemAllocFromPoolAsync(&ptr, ACTOR_BYTES, pool, stream));
	show('d');
	CU(cu.cuMemFreeAsync(ptr, stream));
	show('d');
	CU(cu.cuDeviceSetMemPool(0, pool));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	show('d');
	CU(cu.cuMemPoolDestroy(pool));
	CU(cu.cuMemFree(ptr));
	show('d');

	/* What is wrong, or fails, is not charged. */
	GM_REQUIRE(cu.cuMemAllocManaged(&ptr, 0, GM_CU_MEM_ATTACH_GLOBAL) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuMemAllocManaged(&ptr, ACTOR_BYTES, 77) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuArray3DCreate(&array, &(gm_cu_array){1024, 1024, 6, 77, 1, 0}) !=
		   GM_CUDA_SUCCESS);
	show('d');

	CU(cu.cuMemAllocManaged(&managed, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	CU(cu.cuArray3DCreate(&array, &solid));
	show('d');
	CU(cu.cuDevicePrimaryCtxReset(0));
	show('d');
}

typedef gm_cu_result (*instantiate_fn)(void **exec, void *graph, unsigned long long flags);

/* cuGraphInstantiate(), as a program of CUDA 11.4 and later gets it. */
static instantiate_fn graphs_instantiate(void)
{
	gm_cu_result (*proc)(const char *, void **, int, uint64_t, int *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *fn = NULL;
	int status;

	GM_REQUIRE(library);
	*(void **)&proc = dlsym(library, "cuGetProcAddress_v2");
	CU(proc("cuGraphInstantiate", &fn, 11040, 0, &status));
	return (instantiate_fn)fn;
}

/* The memory of a graph is charged until the last that has it is gone. */
void scene_graphs(void)
{
	gm_cu_alloc_node parameters = {.pool = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
					       .location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytes = ACTOR_BYTES};
	union {
		gm_cu_any_node node;
		char room[256]; /* as large as the driver has it */
	} any = {.node = {.type = GM_CU_GRAPH_NODE_TYPE_MEM_ALLOC, .memory = parameters}};
	void *graph, *exec, *second, *node;
	gm_cu_stream stream;
	gm_cu_ptr ptr;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	CU(cu.cuMemFreeAsync(ptr, stream));
	CU(cu.cuStreamEndCapture(stream, &graph));
	show('d');
	/* One at a time: the driver has no more of a graph with memory. */
	CU(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	GM_REQUIRE_EQ(
		cu.cuGraphInstantiateWithFlags(&second, graph, 0), GM_CUDA_ERROR_NOT_SUPPORTED);
	CU(cu.cuGraphExecDestroy(exec));
	CU(graphs_instantiate()(&exec, graph, 0));
	CU(cu.cuGraphDestroy(graph));
	show('d');
	CU(cu.cuGraphExecDestroy(exec));
	show('d');

	CU(cu.cuGraphCreate(&graph, 0));
	CU(cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
	show('d');
	CU(cu.cuGraphAddNode(&node, graph, NULL, NULL, 0, &any.node));
	show('d');
	CU(cu.cuGraphDestroy(graph));
	show('d');

	/* A capture that is broken leaves nothing. */
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	GM_REQUIRE(cu.cuStreamSynchronize(stream) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuStreamEndCapture(stream, &graph) != GM_CUDA_SUCCESS);
	show('d');
}

/* A graph uses memory again that a captured stream has freed. */
static void *graphs_capture(gm_cu_stream stream)
{
	gm_cu_ptr a, b, c;
	void *graph;

	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cu.cuMemAllocAsync(&a, ACTOR_BYTES, stream));
	CU(cu.cuMemFreeAsync(a, stream));
	CU(cu.cuMemAllocAsync(&b, ACTOR_BYTES - ACTOR_PIECE, stream));
	CU(cu.cuMemAllocAsync(&c, 2 * ACTOR_PIECE, stream));
	CU(cu.cuMemFreeAsync(b, stream));
	CU(cu.cuMemFreeAsync(c, stream));
	CU(cu.cuMemAllocAsync(&a, ACTOR_BYTES, stream));
	CU(cu.cuMemFreeAsync(a, stream));
	CU(cu.cuStreamEndCapture(stream, &graph));
	return graph;
}

/* Graphs whose memory is used again, that become a part of others, and that end with their context. */
void scene_graphs_end(void)
{
	union {
		gm_cu_any_node node;
		char room[256]; /* as large as the driver has it */
	} any = {.node = {.type = GM_CU_GRAPH_NODE_TYPE_GRAPH}};
	void *graph, *parent, *node;
	gm_cu_stream stream;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	graph = graphs_capture(stream);
	show('d');
	CU(cu.cuGraphDestroy(graph));
	show('d');

	graph = graphs_capture(stream);
	CU(cu.cuGraphCreate(&parent, 0));
	any.node.child = (gm_cu_child_node){graph, GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
	GM_REQUIRE(cu.cuGraphAddNode(&node, parent, NULL, NULL, 0, &any.node) != GM_CUDA_SUCCESS);
	show('d');
	/* A driver before CUDA 12.9 moves no graphs. */
	any.node.child.ownership = GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	if (cu.cuGraphAddNode(&node, parent, NULL, NULL, 0, &any.node) != GM_CUDA_SUCCESS) {
		GM_REQUIRE(!getenv("GPUMEM_FAKE_DIR"));
		CU(cu.cuGraphDestroy(parent));
		parent = graph;
	}
	show('d');
	CU(cu.cuGraphDestroy(parent));
	show('d');

	(void)graphs_capture(stream);
	show('d');
	CU(cu.cuDevicePrimaryCtxReset(0));
	show('d');
}

/* With a limit of 64 MiB, of which the library caches a part. */
void scene_declared_limit(void)
{
	gm_cu_ptr a, b, more;
	void *array;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	CU(cu.cuMemFree(a));
	CU(cu.cuMemAllocManaged(&a, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	CU(cu.cuMemAllocManaged(&b, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	/* The driver is not asked: a fake one would say something else. */
	setenv("GPUMEM_FAKE_FAIL", "cuMemAllocManaged:0:999,cuArrayCreate:0:999", 1);
	GM_REQUIRE_EQ(cu.cuMemAllocManaged(&more, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL),
		GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE_EQ(cu.cuArrayCreate(&array, &flat), GM_CUDA_ERROR_OUT_OF_MEMORY);
	unsetenv("GPUMEM_FAKE_FAIL");
	GM_REQUIRE_EQ(cu.cuMipmappedArrayCreate(&array, &square, 3), GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE_EQ(cu.cuMemAlloc(&more, ACTOR_BYTES), GM_CUDA_ERROR_OUT_OF_MEMORY);
	show('d');
	CU(cu.cuMemFree(b));
	CU(cu.cuArrayCreate(&array, &flat));
	CU(cu.cuArrayDestroy(array));
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(b, ACTOR_BYTES, 0x31);
	CU(cu.cuMemFree(b));
	CU(cu.cuMemFree(a));
}

/* ---- threads and processes */

#define THREADS 4

/* Threads get the handles and the addresses that others have just given up. */
static void *work_declared(void *pool)
{
	gm_cu_stream stream = (gm_cu_stream)GM_CU_STREAM_PER_THREAD;
	gm_cu_ptr managed, ptr;
	void *array;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	for (int i = 0; i < 25; i++) {
		CU(cu.cuMemAllocManaged(&managed, 4096, GM_CU_MEM_ATTACH_GLOBAL));
		CU(cu.cuArrayCreate(&array, &(gm_cu_array_2d){64, 64, FLOATS, 1}));
		CU(cu.cuMemAllocFromPoolAsync(&ptr, 65536, pool, stream));
		CU(cu.cuMemFree(managed));
		CU(cu.cuArrayDestroy(array));
		CU(cu.cuMemFreeAsync(ptr, stream));
	}
	return NULL;
}

void scene_declared_threads(void)
{
	pthread_t threads[THREADS];
	gm_cu_ptr managed;
	int status;

	shared_ctx = use_gpu();
	CU(cu.cuMemAllocManaged(&managed, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	void *pool = new_pool(GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	for (size_t i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_create(&threads[i], NULL, work_declared, pool) == 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);

	/* A child's calls do no harm to what its parent has. */
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		gm_cu_ptr other;
		GM_REQUIRE_EQ(cu.cuMemFree(managed), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemAllocManaged(&other, 4096, GM_CU_MEM_ATTACH_GLOBAL),
			GM_CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	show('d');
	CU(cu.cuMemFree(managed));
	show('d');
}
