/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is set from outside: delays, failures, missing abilities, a device that is lost. Every
 * function of the fake driver passes here first. Counts of calls are per process, as a program's
 * are. A test that looks for fake_calls() learns how many its thread has made.
 */
#include "tests/fake/fake.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CALLS_MAX 128

static struct {
	const char *_Atomic call;
	atomic_ulong n;
} counts[CALLS_MAX];

/* Without a lock: a child that is forked while a thread has it would wait for it for ever. */
static unsigned long count(const char *call)
{
	for (size_t i = 0; i < CALLS_MAX; i++) {
		const char *found = atomic_load(&counts[i].call);
		if (!found && atomic_compare_exchange_strong(&counts[i].call, &found, call))
			found = call;
		if (strcmp(found, call) == 0)
			return atomic_fetch_add(&counts[i].n, 1) + 1;
	}
	return 0;
}

/* In a comma-separated list, what follows "call:" in the first entry for it; NULL: none. */
static const char *entry(const char *list, const char *call)
{
	size_t n = strlen(call);

	while (list && *list) {
		if (strncmp(list, call, n) == 0 && list[n] == ':')
			return list + n + 1;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return NULL;
}

static gm_cu_result planned_failure(const char *call, unsigned long n)
{
	const char *list = getenv("GPUMEM_FAKE_FAIL");
	const char *at = entry(list, call);

	while (at) {
		unsigned long which;
		int result;
		if (sscanf(at, "%lu:%d", &which, &result) == 2 && (which == 0 || which == n))
			return result;
		if (sscanf(at, "%lu+:%d", &which, &result) == 2 && which <= n)
			return result;
		at = entry(strchr(at, ',') ? strchr(at, ',') + 1 : NULL, call);
	}
	return GM_CUDA_SUCCESS;
}

/* Waits until somebody writes a byte into the FIFO. Open for writing too, so that there is no end
 * to be read. */
static void pass_gate(const char *call)
{
	const char *gate = entry(getenv("GPUMEM_FAKE_GATE"), call);
	char path[256], byte;
	int fd;

	if (!gate)
		return;
	snprintf(path, sizeof path, "%.*s", (int)strcspn(gate, ","), gate);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	while (read(fd, &byte, 1) < 0)
		;
	close(fd);
}

static __thread const char *current = "a stream";

void fake_undefined(const char *what)
{
	fprintf(stderr, "fake driver: %s: %s: with a real driver anything may follow\n", current,
		what);
	abort();
}

static __thread unsigned long calls;

FAKE_API unsigned long fake_calls(void);
FAKE_API unsigned long fake_calls(void)
{
	return calls;
}

/* Says whether this call is to fail, where tests/integration/fault.c is preloaded. */
bool gm_fault_driver(void) __attribute__((weak));

/* Returns whether the driver may lack memory for a call. What gives something back needs none, nor does
 * a look at the state of a stream. */
static bool needs_memory(const char *call)
{
	return !strstr(call, "Release") && !strstr(call, "Free") && !strstr(call, "Unmap") &&
	       !strstr(call, "Destroy") && !strstr(call, "IsCapturing");
}

gm_cu_result fake_enter(const char *call)
{
	unsigned long n = count(call);
	const char *delay = entry(getenv("GPUMEM_FAKE_DELAY"), call);

	current = call;
	calls++;
	if (delay) {
		long us = atol(delay);
		struct timespec t = {us / 1000000, us % 1000000 * 1000};
		nanosleep(&t, NULL);
	}
	pass_gate(call);
	if (__atomic_load_n(&fake.forked, __ATOMIC_ACQUIRE))
		return GM_CUDA_ERROR_NOT_INITIALIZED;
	if (gm_fault_driver && needs_memory(call) && gm_fault_driver())
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	return planned_failure(call, n);
}

bool fake_without(const char *what)
{
	const char *list = getenv("GPUMEM_FAKE_WITHOUT");
	size_t n = strlen(what);

	while (list && *list) {
		size_t length = strcspn(list, ",");
		if (length == n && strncmp(list, what, n) == 0)
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

static bool marked(const struct fake_device *device, const char *mark)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/gpu%d.%s", fake.folder, device->number, mark);
	return access(path, F_OK) == 0;
}

bool fake_device_lost(const struct fake_device *device)
{
	return marked(device, "lost");
}

bool fake_device_fabric(const struct fake_device *device)
{
	return marked(device, "fabric");
}

bool fake_device_mig(const struct fake_device *device)
{
	return marked(device, "mig");
}

size_t fake_bytes_env(const char *name, size_t otherwise)
{
	const char *text = getenv(name);
	char *end;

	if (!text || !*text)
		return otherwise;
	size_t n = strtoull(text, &end, 10);
	switch (*end) {
	case 'G':
		n <<= 10; /* fall through */
	case 'M':
		n <<= 10; /* fall through */
	case 'K':
		n <<= 10;
	}
	return n;
}
