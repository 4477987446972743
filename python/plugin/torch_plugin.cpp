/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgpumem-torch.so: what PyTorch's CUDAPluggableAllocator calls. gpumem.torch hands over a session, and this file serves
 * tensors from its heap, or from a region. It must never return NULL to PyTorch in place of memory, because PyTorch does not
 * look: a failed allocation is a C++ exception, which PyTorch turns into a RuntimeError with its text.
 *
 * PyTorch calls from all its threads, and also when the interpreter has ended. So nothing here calls Python, and the session is
 * never ended by this file.
 */
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <gpumem/gpumem.h>
#include <gpumem/gpumem_region.h>

namespace
{

constexpr unsigned most_devices = 64, most_regions = 16;

gpumem_session *session;
uint32_t device_of[most_devices]; /* CUDA's number: the daemon's */
unsigned devices;
std::atomic<uint64_t> failures;
std::atomic<bool>
	any_stream; /* PyTorch does not say which memory other streams use, so all of it may be */

/* Memory with a history. Most memory has none, and the count says so without the lock. */
std::mutex lock;
std::atomic<size_t> special;
std::unordered_set<void *> recorded; /* used on streams other than its own */

struct region_piece {
	unsigned slot;
	uint64_t graph; /* 0: not freed; else freed, and kept for that graph */
};

std::unordered_map<void *, region_piece> in_region;
size_t kept_for_graphs; /* of them; with the lock held */
std::atomic<gpumem_region *> regions[most_regions];
int region_on[most_regions]; /* CUDA's number of the region's device */
/* The region that this thread allocates from. As a variable of the program's own start, it costs no call. */
__attribute__((tls_model("initial-exec"))) thread_local unsigned current = most_regions;

std::string readable(size_t bytes)
{
	char text[64];
	if (bytes >= (size_t(1) << 30))
		std::snprintf(text, sizeof(text), "%.2f GiB", double(bytes) / double(1 << 30));
	else
		std::snprintf(text, sizeof(text), "%.2f MiB", double(bytes) / double(1 << 20));
	return text;
}

bool is_shortage(gpumem_status status)
{
	return status == GPUMEM_E_NO_MEMORY || status == GPUMEM_E_LIMIT ||
	       status == GPUMEM_E_TIMEOUT || status == GPUMEM_E_DEADLOCK;
}

[[noreturn]] void fail(gpumem_status status, size_t size, int device)
{
	std::string why = gpumem_error_detail();

	failures++;
	if (is_shortage(status))
		throw std::runtime_error("CUDA out of memory. Tried to allocate " + readable(size) +
					 " on GPU " + std::to_string(device) +
					 ". gpumemd says: " + why);
	throw std::runtime_error("gpumem: cannot allocate " + readable(size) + " on GPU " +
				 std::to_string(device) + ": " + why);
}

gpumem_status region_alloc(unsigned slot, size_t size, void *stream, void **ret)
{
	gpumem_status status = gpumem_region_alloc(regions[slot], size, stream, nullptr, ret);

	if (status == GPUMEM_OK) {
		std::lock_guard<std::mutex> guard(lock);
		in_region[*ret] = {slot, 0};
		special++;
	}
	return status;
}

/*
 * Frees memory of a region, with the lock held. While the stream is being captured, the library refuses that, because each launch
 * of the graph may use the memory. Returns the number of the graph then, which the memory has to be kept for; otherwise 0.
 */
uint64_t region_free(unsigned slot, void *ptr, void *stream)
{
	uint64_t graph = 0;

	/* If the capture has ended between the two calls, the next try succeeds. */
	while (!graph && gpumem_region_free(regions[slot], ptr, stream) == GPUMEM_E_BUSY)
		if (gpumem_graph_of(session, device_of[region_on[slot]], stream, &graph) !=
			GPUMEM_OK)
			break; /* the session has ended */
	return graph;
}

/* Whether the memory was in a region, and is freed now, or will be. *ret_any: it was used on several streams. */
bool special_free(void *ptr, void *stream, bool *ret_any)
{
	std::lock_guard<std::mutex> guard(lock);

	*ret_any = recorded.erase(ptr) != 0;
	if (*ret_any)
		special--;
	auto found = in_region.find(ptr);
	if (found == in_region.end())
		return false;
	uint64_t graph = region_free(
		found->second.slot, ptr, *ret_any || any_stream ? GPUMEM_STREAM_ANY : stream);
	if (graph) {
		found->second.graph = graph;
		kept_for_graphs++;
	} else {
		in_region.erase(found);
		special--;
	}
	return true;
}

} // namespace

extern "C" {

/* Before anything else. numbers[i] is the daemon's number of CUDA's device i, or UINT32_MAX if it has none. */
GPUMEM_API int gpumem_torch_setup(gpumem_session *with, const uint32_t *numbers, unsigned count)
{
	if (count > most_devices)
		return 1;
	for (unsigned i = 0; i < count; i++)
		device_of[i] = numbers[i];
	devices = count;
	session = with;
	return 0;
}

GPUMEM_API void *gpumem_torch_alloc(ssize_t size, int device, void *stream)
{
	void *ptr = nullptr;
	gpumem_status status;

	if (size == 0)
		return nullptr; /* a tensor without elements */
	if (device < 0 || unsigned(device) >= devices || device_of[device] == UINT32_MAX)
		throw std::runtime_error(
			"gpumem: gpumemd does not serve GPU " + std::to_string(device));
	if (current != most_regions && region_on[current] == device)
		status = region_alloc(current, size_t(size), stream, &ptr);
	else
		status = gpumem_alloc(
			session, device_of[device], size_t(size), stream, nullptr, &ptr);
	if (status != GPUMEM_OK)
		fail(status, size_t(size), device);
	return ptr;
}

GPUMEM_API void gpumem_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	bool any = false;

	(void)size;
	(void)device;
	if (!ptr || (special && special_free(ptr, stream, &any)))
		return;
	gpumem_free(session, ptr, any || any_stream ? GPUMEM_STREAM_ANY : stream);
}

/* tensor.record_stream(): the memory may be reused only when the work of that stream is done, too. */
GPUMEM_API void gpumem_torch_record_stream(void *ptr, void *stream)
{
	(void)stream;
	if (!ptr)
		return;
	std::lock_guard<std::mutex> guard(lock);
	if (recorded.insert(ptr).second)
		special++;
}

/* For a PyTorch that does not call the function above: slower, and as safe. */
GPUMEM_API void gpumem_torch_any_stream(void)
{
	any_stream = true;
}

GPUMEM_API uint64_t gpumem_torch_failures(void)
{
	return failures;
}

/* ---- regions */

/* device is CUDA's number. Tensors on other devices are never in the region. */
GPUMEM_API int gpumem_torch_region_set(unsigned slot, gpumem_region *region, int device)
{
	if (slot >= most_regions)
		return 1;
	region_on[slot] = device;
	regions[slot] = region;
	return 0;
}

/* This thread allocates from the region of that slot; any larger number: from none. Returns what it did before. */
GPUMEM_API unsigned gpumem_torch_region_enter(unsigned slot)
{
	unsigned before = current;

	current = slot < most_regions ? slot : most_regions;
	return before;
}

/* Frees what regions keep for a graph (gpumem_graph_of()), which will not be launched any more. */
GPUMEM_API void gpumem_torch_graph_gone(uint64_t graph)
{
	std::lock_guard<std::mutex> guard(lock);

	for (auto at = in_region.begin(); graph && kept_for_graphs && at != in_region.end();) {
		if (at->second.graph != graph) {
			++at;
			continue;
		}
		/* Launches may still be running, on any stream. */
		gpumem_region_free(regions[at->second.slot], at->first, GPUMEM_STREAM_ANY);
		at = in_region.erase(at);
		kept_for_graphs--;
		special--;
	}
}

/* A torch.cuda.MemPool knows its allocator by a function without an argument for the region, so each slot has its own. Here PyTorch looks
 * at the result: NULL becomes torch.cuda.OutOfMemoryError. */
#define REGION_ALLOC(slot) \
	GPUMEM_API void *gpumem_torch_region_alloc_##slot(ssize_t size, int device, void *stream) \
	{ \
		void *ptr = nullptr; \
		if (device != region_on[slot] || \
			region_alloc(slot, size_t(size), stream, &ptr) != GPUMEM_OK) \
			return nullptr; \
		return ptr; \
	}
REGION_ALLOC(0)
REGION_ALLOC(1)
REGION_ALLOC(2)
REGION_ALLOC(3)
REGION_ALLOC(4)
REGION_ALLOC(5)
REGION_ALLOC(6)
REGION_ALLOC(7)
REGION_ALLOC(8)
REGION_ALLOC(9)
REGION_ALLOC(10)
REGION_ALLOC(11)
REGION_ALLOC(12)
REGION_ALLOC(13)
REGION_ALLOC(14)
REGION_ALLOC(15)

/* From the heap, for callers that look at the result. */
GPUMEM_API void *gpumem_torch_try_alloc(ssize_t size, int device, void *stream)
{
	try {
		return gpumem_torch_alloc(size, device, stream);
	} catch (const std::exception &) {
		return nullptr;
	}
}

} // extern "C"
