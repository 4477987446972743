/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_CONFORMANCE_H
#define GM_TESTS_CONFORMANCE_H

#include "common/cuda/cuda_abi.h"
#include "tests/gpu/puppet.h"

/*
 * What we rely on in the driver, as tests that run on a real GPU and on the fake driver alike: one
 * source, the same outcomes. Where they differ, the fake is wrong. The broker's design rests on
 * these facts; when a driver breaks one of them, this says so first.
 *
 * Two kinds of expectation. Hard ones were measured, or are documented without a doubt: OK, GIVES,
 * FAILS. Soft ones say what the fake does where nobody has looked yet: BELIEVED. A real driver that
 * does otherwise fails no test, but is told of in a line that begins with "# seen:", so that the
 * fake can be mended and the expectation made a hard one. On the fake driver all are hard.
 *
 * What kills a process or is undefined is not in here: see tests/fake/check_fake.c.
 *
 * The sizes are small, so that they fit a fake device of 512 MiB.
 */

#define MIB  ((uint64_t)1 << 20)
#define RW   GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define FULL (64 * MIB)
#define LAZY GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define HOST ((uint64_t)-1) /* in the place of a device */

void conform_memory(void);
void conform_life(void);
void conform_map(void);
void conform_host(void);
void conform_copy(void);
void conform_stream(void);
void conform_context(void);
void conform_capture(void);
void conform_captured(void);
void conform_astray(void);
void conform_ipc(void);
void conform_figures(void);

/* The end of one test: its name, and whether all was as expected since the last one. */
void conform_end(const char *name);
/* The outcome of a call. */
void conform_expect(const char *what, int result, int wanted);
void conform_fails(const char *what, int result, int believed);
void conform_believed(const char *what, int result, int believed);
void conform_value(const char *what, uint64_t value, uint64_t wanted);
void conform_true(const char *what, bool truth);

/* What is called and where, for who reads of it in a record. */
#define CONFORM_LINE_(line)     #line
#define CONFORM_LINE(line)      CONFORM_LINE_(line)
#define CONFORM_WHAT(op, where) op " (" __FILE__ ":" CONFORM_LINE(where) ")"

/* Succeeds; gives the value. */
#define OK(p, op, ...) \
	({ \
		struct puppet_answer answer_ = PUPPET(p, op, __VA_ARGS__); \
		conform_expect(CONFORM_WHAT(#op, __LINE__), answer_.result, GM_CUDA_SUCCESS); \
		answer_.value; \
	})
#define GIVES(wanted, p, op, ...) \
	conform_expect(CONFORM_WHAT(#op " " #__VA_ARGS__, __LINE__), \
		PUPPET(p, op, __VA_ARGS__).result, wanted)
/* Does not succeed; with which result is only believed. */
#define FAILS(believed, p, op, ...) \
	conform_fails(CONFORM_WHAT(#op " " #__VA_ARGS__, __LINE__), \
		PUPPET(p, op, __VA_ARGS__).result, believed)
#define BELIEVED(believed, p, op, ...) \
	conform_believed(CONFORM_WHAT(#op " " #__VA_ARGS__, __LINE__), \
		PUPPET(p, op, __VA_ARGS__).result, believed)

/* A puppet that has begun; with a context where asked. */
struct puppet conform_begin(bool context);
/* Reserves, maps and opens a handle for the device. */
uint64_t conform_place(struct puppet *p, uint64_t handle, uint64_t bytes);
int conform_export(struct puppet *p, uint64_t handle);
struct puppet_answer conform_import(struct puppet *p, int fd);
/* Words of 0 in a file that processes share: where the CPU of this process has them. Each process that uses
 * them registers them, and its device has them where conform_words_map() says. */
#define CONFORM_WORDS_BYTES 4096
int conform_words_new(_Atomic uint64_t **ret_cpu);
uint64_t conform_words_map(struct puppet *p, int fd);
/* What the device has free, as one that uses it no further sees it. */
uint64_t conform_free(struct puppet *watcher);
/* Memory comes back some time after the end of a process: waits, with a bound, for at least that
 * much. */
bool conform_comes_back(struct puppet *watcher, uint64_t wanted);

#endif
