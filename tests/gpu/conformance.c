/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite: what its parts share, and their order. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int tests, failures, wrong_here, strange;

void conform_end(const char *name)
{
	tests++;
	failures += wrong_here != 0;
	printf("%sok %d - %s\n", wrong_here ? "not " : "", tests, name);
	fflush(stdout);
	wrong_here = 0;
}

void conform_expect(const char *what, int result, int wanted)
{
	if (result == wanted)
		return;
	wrong_here++;
	printf("# %s: %s", what, puppet_result_name(result));
	printf(", wanted %s\n", puppet_result_name(wanted));
}

void conform_believed(const char *what, int result, int believed)
{
	if (result == believed)
		return;
	if (getenv("GPUMEM_FAKE_DIR"))
		wrong_here++;
	else
		strange++;
	printf("# seen: %s: %s", what, puppet_result_name(result));
	printf(", believed %s\n", puppet_result_name(believed));
}

void conform_fails(const char *what, int result, int believed)
{
	if (result == GM_CUDA_SUCCESS)
		conform_expect(what, result, believed);
	else
		conform_believed(what, result, believed);
}

void conform_value(const char *what, uint64_t value, uint64_t wanted)
{
	if (value == wanted)
		return;
	wrong_here++;
	printf("# %s: %llu, wanted %llu\n", what, (unsigned long long)value,
		(unsigned long long)wanted);
}

void conform_true(const char *what, bool truth)
{
	if (truth)
		return;
	wrong_here++;
	printf("# not so: %s\n", what);
}

struct puppet conform_begin(bool context)
{
	struct puppet p = puppet_start(0);

	OK(&p, INIT, .a = 0);
	if (context)
		OK(&p, CONTEXT, .a = 0);
	return p;
}

uint64_t conform_place(struct puppet *p, uint64_t handle, uint64_t bytes)
{
	uint64_t va = OK(p, RESERVE, .a = bytes);

	OK(p, MAP, .a = va, .b = bytes, .c = handle);
	OK(p, ACCESS, .a = va, .b = bytes, .c = RW, .d = 0);
	return va;
}

int conform_export(struct puppet *p, uint64_t handle)
{
	int fd = -1;
	struct puppet_answer answer =
		puppet_do(p, &(struct puppet_call){.op = PUPPET_EXPORT, .a = handle}, -1, &fd);

	conform_expect("EXPORT", answer.result, GM_CUDA_SUCCESS);
	return fd;
}

struct puppet_answer conform_import(struct puppet *p, int fd)
{
	return puppet_do(p, &(struct puppet_call){.op = PUPPET_IMPORT}, fd, NULL);
}

uint64_t conform_words_map(struct puppet *p, int fd)
{
	const struct puppet_call call = {.op = PUPPET_PAGES, .a = CONFORM_WORDS_BYTES};
	uint64_t pages = puppet_do(p, &call, fd, NULL).value;

	OK(p, REGISTER, .a = pages, .b = CONFORM_WORDS_BYTES);
	return OK(p, DEVICE_PTR, .a = pages);
}

int conform_words_new(_Atomic uint64_t **ret_cpu)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, CONFORM_WORDS_BYTES) == 0)
		at = mmap(NULL, CONFORM_WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		perror("memfd_create");
		exit(1);
	}
	*ret_cpu = at;
	return fd;
}

uint64_t conform_free(struct puppet *watcher)
{
	return OK(watcher, NVML_FREE, .a = 0);
}

bool conform_comes_back(struct puppet *watcher, uint64_t wanted)
{
	for (int i = 0; i < 500; i++) {
		if (conform_free(watcher) >= wanted)
			return true;
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	}
	printf("# free is %llu, wanted %llu\n", (unsigned long long)conform_free(watcher),
		(unsigned long long)wanted);
	return false;
}

int main(int argc, char **argv)
{
	puppet_main(argc, argv);
	conform_memory();
	conform_life();
	conform_map();
	conform_host();
	conform_copy();
	conform_stream();
	conform_context();
	conform_capture();
	conform_captured();
	conform_astray();
	conform_ipc();
	conform_figures();
	if (strange)
		printf("# %d answers are not as believed: look for \"# seen:\"\n", strange);
	printf("1..%d\n", tests);
	return failures != 0;
}
