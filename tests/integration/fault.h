/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_FAULT_H
#define GM_TESTS_INTEGRATION_FAULT_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Calls that fail when told, in a whole process: libfault.so, by LD_PRELOAD, stands in for functions
 * of the C library, of the program and of all its libraries. The fake CUDA driver asks it as well.
 * The page that says which call fails is in a file that the test maps, too. GM_FAULT_FILE names it.
 * Internal calls of the C library are not intercepted, except allocations. Calls of the fake driver
 * never fail: it stands for a kernel.
 */
#define GM_FAULT_FILE "GPUMEM_TEST_FAULT_FILE"

/* Kinds of calls, and the errno of a call that fails. fault.c says which functions are of a kind. */
#define GM_FAULT_KINDS(X) \
	X(alloc, ENOMEM) \
	X(open, EMFILE) \
	X(mmap, ENOMEM) \
	X(socket, EMFILE) \
	X(connect, ECONNREFUSED) \
	X(listen, EADDRINUSE) \
	X(accept, EMFILE) \
	X(send, ENOBUFS) \
	X(receive, ENOMEM) \
	X(sockopt, ENOBUFS) \
	X(epoll, ENOSPC) \
	X(memfd, EMFILE) \
	X(truncate, ENOSPC) \
	X(fcntl, EMFILE) \
	X(event, EMFILE) \
	X(read, EIO) \
	X(write, ENOSPC) \
	X(file, EACCES) \
	X(process, EAGAIN) \
	X(thread, EAGAIN) \
	X(pidfd, EMFILE) \
	X(driver, ENOMEM)

enum gm_fault_kind {
#define GM_FAULT_KIND(name, error) GM_FAULT_##name,
	GM_FAULT_KINDS(GM_FAULT_KIND)
#undef GM_FAULT_KIND
		GM_FAULT_MOST
};

#define GM_FAULT_BIT(name) (UINT32_C(1) << GM_FAULT_##name)
#define GM_FAULT_ALL       ((UINT32_C(1) << GM_FAULT_MOST) - 1)

struct gm_fault {
	char program[24];        /* only processes of this name, as the kernel has it */
	char exempt[24];         /* calls made in files whose names begin so never fail; "": none */
	_Atomic uint32_t kind;   /* calls of this kind fail */
	_Atomic uint64_t skip;   /* number of calls that succeed first */
	_Atomic uint64_t fail;   /* number of calls that fail then; 0: nothing is armed */
	_Atomic uint64_t failed; /* number of calls that have failed */
	_Atomic uint64_t
		calls[GM_FAULT_MOST]; /* number of calls of each kind, while "counts" is set */
	_Atomic uint32_t counts;
	_Atomic int64_t blocks; /* allocated and not yet freed */
	_Atomic bool libuv;     /* a call that failed came from there */
	char where[768]; /* who made the first call that failed: "program+0x1234 < library+0x56" */
};

#endif
