/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads NVML's lists of processes. NVML has two per device, one for processes that compute and one
 * for those that draw, and each can grow while it is read. This file makes one complete list of
 * them. It must never wait for a list that keeps growing.
 */
#include "daemon/backend/backend_nvml.h"

#include <errno.h>
#include <stdlib.h>

typedef gm_nvml_return (*list_fn)(
	gm_nvml_device device, unsigned int *n, gm_nvml_process *processes);

/* Reads one of NVML's lists completely. It may grow between being counted and being read. */
static int nvml_read_list(gm_nvml_device device, list_fn fn, const char *call,
	gm_nvml_process **ret, unsigned *ret_n, struct gm_backend_nvml_failure *ret_failure)
{
	enum { ROOM = 64, MOST = 65536 };
	gm_nvml_process *list = NULL;
	unsigned int room = ROOM;

	for (;;) {
		gm_nvml_process *larger = realloc(list, room * sizeof *list);
		unsigned int n = room;
		gm_nvml_return result;
		if (!larger) {
			free(list);
			return -ENOMEM;
		}
		list = larger;
		result = fn(device, &n, list);
		if (result == GM_NVML_SUCCESS && n <= room) {
			*ret = list;
			*ret_n = n;
			return 0;
		}
		if (result != GM_NVML_ERROR_INSUFFICIENT_SIZE || room >= MOST) {
			free(list);
			if (result == GM_NVML_ERROR_NOT_SUPPORTED)
				return -EOPNOTSUPP;
			*ret_failure = (struct gm_backend_nvml_failure){call, result};
			return -EIO;
		}
		room = n > room && n < MOST / 2 ? n + n / 2 : room * 2;
	}
}

/* Adds the processes that are not in the list yet. A process that draws and computes is in both of
 * NVML's lists, with the same figure. */
static size_t nvml_merge(
	struct gm_backend_process *list, size_t n, const gm_nvml_process *from, unsigned int n_from)
{
	size_t had = n;

	for (unsigned int i = 0; i < n_from; i++) {
		struct gm_backend_process process = {
			(pid_t)from[i].pid,
			from[i].used == GM_NVML_USED_UNKNOWN ? GM_BACKEND_UNKNOWN : from[i].used,
		};
		size_t at = 0;
		while (at < had && list[at].pid != process.pid)
			at++;
		if (at == had)
			list[n++] = process;
		else if (list[at].bytes == GM_BACKEND_UNKNOWN ||
			 (process.bytes != GM_BACKEND_UNKNOWN && process.bytes > list[at].bytes))
			list[at].bytes = process.bytes;
	}
	return n;
}

int gm_backend_nvml_processes(const struct gm_nvml *nvml, gm_nvml_device device,
	struct gm_backend_process **ret_list, size_t *ret_n,
	struct gm_backend_nvml_failure *ret_failure)
{
	gm_nvml_process *compute = NULL, *graphics = NULL;
	unsigned int n_compute = 0, n_graphics = 0;
	struct gm_backend_process *list = NULL;
	int r;

	if (!nvml->nvmlDeviceGetComputeRunningProcesses)
		return -EOPNOTSUPP;

	r = nvml_read_list(device, nvml->nvmlDeviceGetComputeRunningProcesses,
		"nvmlDeviceGetComputeRunningProcesses", &compute, &n_compute, ret_failure);
	if (r < 0)
		return r;
	if (nvml->nvmlDeviceGetGraphicsRunningProcesses) {
		r = nvml_read_list(device, nvml->nvmlDeviceGetGraphicsRunningProcesses,
			"nvmlDeviceGetGraphicsRunningProcesses", &graphics, &n_graphics,
			ret_failure);
		if (r == -EOPNOTSUPP)
			r = 0; /* a device that cannot draw */
	}

	if (r == 0) {
		list = calloc((size_t)n_compute + n_graphics + 1, sizeof *list);
		r = list ? 0 : -ENOMEM;
	}

	if (r == 0) {
		*ret_n = nvml_merge(list, 0, compute, n_compute);
		*ret_n = nvml_merge(list, *ret_n, graphics, n_graphics);
		*ret_list = list;
	}

	free(compute);
	free(graphics);
	return r;
}
