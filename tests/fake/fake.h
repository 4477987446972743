/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_H
#define GM_TESTS_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "common/cuda/cuda_abi.h"

/*
 * A libcuda.so.1 and a libnvidia-ml.so.1 for machines without a GPU. They behave across processes
 * as the real ones do, because the kernel does the accounting: a device is a tmpfs of its size, an
 * allocation an unlinked file on it, a mapping a real mapping of that file. So memory stays used
 * while anyone, a forked child included, maps it or holds its fd, comes back when the last one
 * dies, and is zero when it is new.
 *
 * Set from outside, by environment unless said otherwise. A list is comma-separated.
 *
 * - GPUMEM_FAKE_DIR: the folder with the devices: gpu0, gpu1, …, each a mounted tmpfs; the device's
 *   size is the file system's. None: no device is found.
 * - GPUMEM_FAKE_INIT_BYTES: what a process uses on each device after cuInit (default 1M).
 * - GPUMEM_FAKE_CONTEXT_BYTES: what it uses more once it has a context (default 16M).
 * - GPUMEM_FAKE_FAIL, a list of CALL:N:RESULT: the N-th call fails with that result, for this
 *   process; N+: that one and all after it; 0: every call.
 * - GPUMEM_FAKE_DELAY, a list of CALL:MICROSECONDS.
 * - GPUMEM_FAKE_GATE, a list of CALL:PATH: each such call first reads a byte from that FIFO.
 * - GPUMEM_FAKE_WITHOUT, a list of vmm, fd, ipc, rdma, hostnuma, p2p, streamid, ctxevent, ctxid,
 * memops, managed, pageable, concurrent, nvml, uuid (NVML knows no device by its UUID): what cannot be had.
 * - GPUMEM_FAKE_VERSION: of the driver (default 13000).
 * - CUDA_VISIBLE_DEVICES: numbers or UUIDs, as the real one has it.
 * - The file gpuN.lost in the folder: device N has fallen off the bus. gpuN.nopm: persistence mode
 *   is off. gpuN.fabric: it has fabric handles. gpuN.mig: MIG mode is on, and all of the GPU is one
 * instance. As on the real ones, it has a UUID of its own, which NVML knows as MIG-…, as
 * CUDA_VISIBLE_DEVICES does, and of several a process sees one.
 *
 * What the real driver was seen to do and what this one does are compared by one suite
 * (tests/gpu/conformance.c) that runs on both. What nobody should try on a real one, because it
 * kills the process or may do anything (a stream or an event after its end, a destroyed context
 * pushed, a handle released once too often, a copy across the border of a host chunk and a device
 * chunk), ends the program here, with a line on stderr that says why.
 */

#define FAKE_DEVICES     20 /* more than the daemon serves */
#define FAKE_OWN         64 /* contexts that are not primary, at a time */
#define FAKE_CONTEXTS    (FAKE_DEVICES + FAKE_OWN)
#define FAKE_GRANULARITY ((size_t)2 << 20)
#define FAKE_NVML_EXTRA  ((size_t)16 << 20) /* NVML's total counts memory that nobody can have */

struct fake_device {
	int number; /* of its folder: CUDA_VISIBLE_DEVICES may leave some out */
	int dir;    /* its tmpfs */
	dev_t st_dev;
	size_t total;
	bool mig;
	gm_cu_uuid uuid;
	int init_fd;    /* what cuInit takes, as an unlinked file */
	int use_fd;     /* its file for NVML; 0: none yet */
	size_t imports; /* places for imports in that file, used or not */
	size_t *free_imports, n_free_imports;
	int context_fd; /* likewise the primary context; -1: there is none */
	int context_refs;
	int context_held; /* how often it is on the threads' stacks */
	bool context_live;
};

/* Physical memory. */
struct fake_mem {
	uint64_t id;
	int fd;
	size_t size;
	int device;    /* ordinal; -1: host memory */
	bool imported; /* cannot be exported */
	size_t import; /* its place among the imports that NVML is told of, from 1 on; 0: none */
	int64_t owner; /* the process that it was opened from by an IPC handle */
	bool shareable;
	bool shared;     /* has an IPC handle */
	uint32_t number; /* as it stands in one */
	unsigned handles;
	unsigned mappings;
	UT_hash_handle hh;
};

/* A place in the address space that holds physical memory. The address itself is never readable by
 * the CPU, unless the memory is the host's and the CPU was given access; copies and sets go through
 * the shadow. */
struct fake_map {
	uintptr_t va;
	size_t size;
	struct fake_mem *mem;
	char *shadow;
	unsigned device_access; /* a bit for each device that may read it */
	unsigned device_write;  /* likewise that may write it */
	bool plain;             /* made by cuMemAlloc or an IPC open, not by cuMemMap */
	int context;            /* then: its number */
	struct fake_pool *pool; /* then: the pool that it comes from; NULL: none */
	size_t pool_bytes;      /* then: what was asked for */
	struct fake_map *prev, *next;
};

struct fake_reservation {
	uintptr_t va;
	size_t size;
	bool again; /* the driver had memory there */
	struct fake_reservation *prev, *next;
};

/* All state of this process, behind one lock, except what streams do by themselves. */
struct fake {
	pthread_mutex_t lock;
	bool initialised;
	bool forked; /* a child of a process that had initialised */
	int devices;
	struct fake_device device[FAKE_DEVICES];
	char folder[4096];
	uint64_t next_id;
	struct fake_mem *mems;
	struct fake_map *maps;
	struct fake_reservation *reservations;
	int sticky; /* what went wrong in a context stays, for all of them; see fake_sticky() */
	bool told;  /* a call has said so */
};
extern struct fake fake;

/*
 * Work that went astray: nothing that has to do with a context, a stream or an event is done in
 * this process any more, whichever context it is of. What manages physical memory and addresses
 * goes on. Any thread may ask.
 */
static inline gm_cu_result fake_sticky(void)
{
	gm_cu_result result = __atomic_load_n(&fake.sticky, __ATOMIC_ACQUIRE);

	if (result)
		__atomic_store_n(&fake.told, true, __ATOMIC_RELEASE);
	return result;
}

/* The same for what does not look at the GPU, and fails once others did. */
static inline gm_cu_result fake_told(void)
{
	return __atomic_load_n(&fake.told, __ATOMIC_ACQUIRE) ? fake_sticky() : GM_CUDA_SUCCESS;
}

/* fault.c: called first by every function of the driver. CUDA_SUCCESS: go on. */
gm_cu_result fake_enter(const char *call);
/* Ends the program: it did what the real driver may do anything at. */
__attribute__((noreturn)) void fake_undefined(const char *what);
bool fake_without(const char *what);
bool fake_device_lost(const struct fake_device *device);
bool fake_device_fabric(const struct fake_device *device);
bool fake_device_mig(const struct fake_device *device);
size_t fake_bytes_env(const char *name, size_t otherwise);

/* device.c */
gm_cu_result fake_find_devices(void);
struct fake_device *fake_get_device(gm_cu_device device);
size_t fake_free_bytes(const struct fake_device *device);
/*
 * Writes down what this process uses of a device, for NVML, which tells it of processes that have a
 * context there and of no others. The process has the file locked, and so do its forked children: while
 * one of them lives, NVML lists it. Behind that are the process's imports. NVML counts an import when
 * nobody has a lock on the memory itself any more: its maker and every fd that the maker exported share
 * one (an open file description lock), and importers open the memory anew.
 */
struct fake_use {
	int64_t bytes;
	int64_t contexts;
};
struct fake_import {
	uint64_t device, inode; /* of the memory's file */
	int64_t bytes;          /* 0: the place is free */
};
void fake_account(struct fake_device *device, int64_t bytes);
void fake_account_context(struct fake_device *device, bool made);
/* Takes a place for an import, or gives it back. */
size_t fake_account_import(struct fake_device *device, const struct fake_import *import);
void fake_account_import_end(struct fake_device *device, size_t place);
/* Locks a file until the last fd, and the last mapping, of this opening of it is gone. */
bool fake_lock(int fd, bool shared);

/* memory.c, with the lock held */
gm_cu_result fake_mem_new(int device, size_t size, struct fake_mem **ret_mem);
struct fake_mem *fake_mem_find(uint64_t id);
void fake_mem_put(struct fake_mem *mem); /* frees it when neither a handle nor a mapping is left */
gm_cu_result fake_map_add(uintptr_t va, struct fake_mem *mem, struct fake_map **ret_map);
struct fake_map *fake_map_find(uintptr_t addr);
void fake_map_remove(struct fake_map *map, bool keep_reserved);
bool fake_map_overlaps(const struct fake_map *map, uintptr_t va, size_t size);

/* address.c, with the lock held */
/* Where the driver puts memory of that size, mapped without access; 0: no addresses are left. */
uintptr_t fake_place_take(size_t size);
/* The same, without memory again. */
void fake_place_leave(uintptr_t va, size_t size);
bool fake_reserved(uintptr_t va, size_t size); /* in one reservation */

/* Numbers of what the driver has of memory: the one that was freed last comes first. */
uint32_t fake_number_take(void);
void fake_number_leave(uint32_t number);

/* context.c */
/* Contexts are numbered: the primary ones as their devices, then the others. */
gm_cu_result fake_check_context(gm_cu_ctx ctx, struct fake_device **ret_device, int *ret_context);
gm_cu_result fake_need_context(struct fake_device **ret_device); /* the current one */
/* The same, where nothing is asked of the GPU. Of one that was destroyed there is a device, too. */
gm_cu_result fake_find_context(struct fake_device **ret_device);
/* For what is told its context by what it is given: none has to be current, but one that is has to
 * be well. */
gm_cu_result fake_allow_no_context(void);
int fake_context(void); /* the current one's number; there is one */
/* Green contexts, which are parts of primary ones. */
gm_cu_result fake_green_new(gm_cu_ctx *ret_ctx, gm_cu_device number);
gm_cu_result fake_green_end(gm_cu_ctx ctx);
/* Whether the work of a context is also that of another one: it is the same, or a part of it. */
bool fake_context_part(int context, int of);
struct fake_device *fake_context_device(int context);
gm_cu_ctx fake_context_handle(int context);
/* A thread has it current once more, or once less. A destroyed one that no thread has ends the
 * program. */
gm_cu_result fake_hold(gm_cu_ctx ctx);
void fake_let_go(gm_cu_ctx ctx);
/* With the lock held: a mapping is an allocation of the current context. */
void fake_map_plain(struct fake_map *map);
gm_cu_result fake_drop_plain(gm_cu_ptr ptr, bool imported);

/* current.c */
gm_cu_ctx fake_current(void); /* NULL: none */
gm_cu_result fake_push(gm_cu_ctx ctx);
gm_cu_ctx fake_pop(void); /* there is one */

/* host.c, with the lock held */
/* Whether host memory at an address is the driver's or registered, and how far that goes. */
bool fake_host_find(uintptr_t addr, size_t want, size_t *ret_n);
/* All of that memory, and the context that it belongs to. */
bool fake_host_range(uintptr_t addr, uintptr_t *ret_va, size_t *ret_size, int *ret_context);
bool fake_host_numbered(uint32_t number);
void fake_hosts_end(int context);
/* Memory of the driver's own, of the current context; and its end, which frees it. */
gm_cu_result fake_host_add(void *ptr, size_t bytes);
bool fake_host_drop(void *ptr);

/* mempool.c: an address for memory that a graph will have, and that no call of this driver ever uses. */
gm_cu_result fake_captured_memory(gm_cu_ptr *ret_ptr, size_t bytes);
/* mempool.c, with the lock held: memory of a pool is freed. */
struct fake_pool;
void fake_pool_leave(struct fake_pool *pool, size_t bytes);

/* array.c, with the lock held */
void fake_arrays_end(int context);

/* alloc_managed.c, with the lock held: frees managed memory that begins there. False: there is none. */
bool fake_managed_drop(uintptr_t addr);
void fake_managed_end(int context);
/* The same: the buffer id of managed memory at the address. 0: there is none. */
uint64_t fake_managed_id(uintptr_t addr);

/* stream.c */
struct fake_stream;
void fake_sync_all(void);
void fake_streams_await(int context);
void fake_streams_end(int context); /* with their events */

/* capture.c: called by what is unsafe while a program captures a stream into a graph. Where it is
 * refused, the capture is broken. */
gm_cu_result fake_capture_forbids(void);

/* What every function but the first few begins with. */
#define FAKE_ENTER(call) \
	do { \
		gm_cu_result entered = fake_enter(call); \
		if (entered) \
			return entered; \
		if (!fake.initialised) \
			return GM_CUDA_ERROR_NOT_INITIALIZED; \
	} while (0)

#define FAKE_API __attribute__((visibility("default")))

#endif
