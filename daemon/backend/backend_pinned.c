/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory beside GPUs: see backend_pinned.h. It must never make a context, and never
 * hand out memory that is not allocated yet: a client that touches it later must not fail.
 */
#include "daemon/backend/backend_pinned.h"

#include <string.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/log.h"
#include "common/text/units.h"
#include "daemon/backend/backend_ram.h"
#include "daemon/backend/backend_vmm.h"

static gm_cu_prop pinned_prop_of(int node)
{
	gm_cu_prop prop = {0};

	prop.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = GM_CU_MEM_LOCATION_TYPE_HOST_NUMA;
	prop.location.id = node < 0 ? 0 : node; /* a machine without NUMA has one node */
	return prop;
}

static bool pinned_driver_shares(const struct gm_backend_pinned *pinned)
{
	gm_cu_prop prop = pinned_prop_of(pinned->node);
	const char *call;
	int fd;
	gm_cu_result result = gm_backend_vmm_create(pinned->cuda, &prop, GM_CHUNK_MIN, &fd, &call);

	if (result) {
		gm_log(GM_LOG_NOTICE, "the driver cannot share pinned host memory (%s: %s)", call,
			gm_cuda_error(pinned->cuda, result));
		return false;
	}
	close(fd);
	return true;
}

static int pinned_create_memfd(const struct gm_backend_pinned *pinned, uint64_t bytes, int *ret_fd)
{
	int fd;
	int r = gm_backend_ram_create(bytes, &fd);

	if (r < 0)
		return r;
	r = gm_backend_ram_fill(fd, bytes, pinned->node);
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return r;
}

static void pinned_try_memfd(const struct gm_backend_pinned *pinned)
{
	int fd;
	int r = pinned_create_memfd(pinned, GM_CHUNK_MIN, &fd);

	if (r < 0) {
		gm_log(GM_LOG_WARNING, "pinned host memory cannot be allocated right now: %s",
			strerror(-r));
		return;
	}
	close(fd);
	gm_log(GM_LOG_NOTICE, "pinned host memory is registered by each client, %s",
		r == GM_BACKEND_RAM_SMALL
			? "page by page, which takes several times as long as in huge pages: this kernel made none (Linux 6.1 and later do, unless transparent_hugepage/shmem_enabled says deny)"
			: "in huge pages");
}

void gm_backend_pinned_init(struct gm_backend_pinned *pinned, const struct gm_cuda *cuda,
	gm_cu_device first, bool shared, enum gm_backend_host_memory wanted)
{
	*pinned = (struct gm_backend_pinned){.cuda = cuda};
	if (cuda->cuDeviceGetAttribute(&pinned->node, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, first) !=
			GM_CUDA_SUCCESS ||
		pinned->node < 0)
		pinned->node = -1;
	pinned->memfd =
		wanted == GM_BACKEND_HOST_MEMORY_MEMFD || !shared || !pinned_driver_shares(pinned);
	if (pinned->memfd)
		pinned_try_memfd(pinned);
}

uint64_t gm_backend_pinned_bound(const struct gm_backend_pinned *pinned, uint64_t limit)
{
	uint64_t most = gm_backend_ram_own();
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT], more[GM_UNITS_TEXT];

	if (!pinned->memfd || limit <= most)
		return limit;
	gm_log(GM_LOG_WARNING,
		"host_limit is %s, but the daemon's cgroup leaves %s for pinned host memory made of memfds, which counts as the daemon's own, so no more is given out; lower host_limit, or raise MemoryMax= of the service by %s",
		gm_format_size(limit, a), gm_format_size(most, b),
		gm_format_size(limit - most, more));
	return most;
}

int gm_backend_pinned_create(const struct gm_backend_pinned *pinned, uint64_t bytes, int *ret_fd,
	const char **ret_call, gm_cu_result *ret_result)
{
	if (pinned->memfd) {
		int r = pinned_create_memfd(pinned, bytes, ret_fd);
		return r < 0 ? r : 0;
	}
	gm_cu_prop prop = pinned_prop_of(pinned->node);
	*ret_result = gm_backend_vmm_create(pinned->cuda, &prop, bytes, ret_fd, ret_call);
	return *ret_result ? GM_BACKEND_PINNED_E_DRIVER : 0;
}

int gm_backend_pinned_check(const struct gm_backend_pinned *pinned, int fd, uint64_t bytes,
	const char **ret_call, gm_cu_result *ret_result)
{
	if (pinned->memfd)
		return gm_backend_ram_check(fd, bytes);
	*ret_result = gm_backend_vmm_check(pinned->cuda, fd, ret_call);
	return *ret_result ? GM_BACKEND_PINNED_E_DRIVER : 0;
}
