/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes use a device: the driver's list, and what /proc says about each. The list is
 * bounded. A process that has ended since, or that is in another pid namespace, is a number without
 * a name. It must never run on the loop: the driver takes milliseconds.
 */
#include "daemon/backend/usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/bounds.h"

/* The largest first. Processes whose size is not known come last. */
static int usage_by_size(const void *a, const void *b)
{
	const struct gm_backend_process *p = a, *q = b;
	uint64_t m = p->bytes == GM_BACKEND_UNKNOWN ? 0 : p->bytes;
	uint64_t n = q->bytes == GM_BACKEND_UNKNOWN ? 0 : q->bytes;
	if (m != n)
		return m > n ? -1 : 1;
	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

static void usage_describe(struct gm_usage_process *process)
{
	char path[48], text[GM_USAGE_COMMAND];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%d", (int)process->pid);
	if (stat(path, &st) == 0) {
		process->uid = st.st_uid;
		process->uid_known = true;
	}

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)process->pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(text, sizeof(text), file)) {
		size_t i = 0;
		for (; text[i] && text[i] != '\n'; i++)
			process->command[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
		process->command[i] = '\0';
	}

	fclose(file);
}

struct gm_usage *gm_usage_read(const struct gm_backend_ops *ops, void *backend, uint32_t device)
{
	struct gm_backend_process *list = NULL;
	size_t all = 0;
	int r = ops->processes ? ops->processes(backend, device, &list, &all) : 0;
	if (r < 0)
		all = 0;
	size_t n = all < GM_BOUND_PROCESSES ? all : GM_BOUND_PROCESSES;
	struct gm_usage *usage = calloc(1, sizeof(*usage) + n * sizeof(usage->list[0]));
	if (usage) {
		usage->known = r == 0;
		usage->n = n;
		usage->unlisted = all - n;
		if (all)
			qsort(list, all, sizeof(*list), usage_by_size);
		for (size_t i = 0; i < n; i++) {
			usage->list[i].pid = list[i].pid;
			usage->list[i].bytes = list[i].bytes;
			usage_describe(&usage->list[i]);
		}
	}

	if (r == 0)
		free(list);
	return usage;
}

static int usage_by_pid(const void *a, const void *b)
{
	const struct gm_usage_sample_process *p = a, *q = b;
	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

struct gm_usage_sample *gm_usage_count(
	const struct gm_backend_ops *ops, void *backend, uint32_t device)
{
	struct gm_backend_process *list = NULL;
	size_t n = 0;
	int r = ops->processes ? ops->processes(backend, device, &list, &n) : -EOPNOTSUPP;
	if (r < 0)
		n = 0;

	struct gm_usage_sample *counted =
		calloc(1, sizeof(*counted) + n * sizeof(counted->list[0]));
	if (counted) {
		counted->known = r == 0;
		for (size_t i = 0; i < n; i++)
			if (list[i].bytes != GM_BACKEND_UNKNOWN)
				counted->list[counted->n++] = (struct gm_usage_sample_process){
					.pid = list[i].pid, .bytes = list[i].bytes};
		if (counted->n)
			qsort(counted->list, counted->n, sizeof(counted->list[0]), usage_by_pid);
	}

	if (r == 0)
		free(list);
	return counted;
}

void gm_usage_free(struct gm_usage *usage)
{
	free(usage);
}
