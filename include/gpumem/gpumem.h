/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_H
#define GPUMEM_H

/*
 * libgpumem-client: device memory from gpumemd.
 *
 * Errors. Every call that can fail returns a status (status.h) and leaves a sentence with the cause
 * and the remedy in gpumem_error_detail(). Results are written only on success. Pointers must not
 * be NULL unless their description says that they may.
 *
 * Threads. All calls are thread-safe, but must not be made from a signal handler. A thread that is
 * cancelled (pthread_cancel) during a call ends when the call returns.
 *
 * fork(). A child process must not use its parent's session: calls on it fail with
 * GPUMEM_E_FORKED. The child can connect on its own.
 *
 * Structs that begin with a size field may grow in later versions. Initialise them with their _INIT
 * macro, or set size to sizeof(the struct); a size of 0 is refused. If the library and the program
 * are of different versions, the fields that both know are used.
 *
 * Restarts. When the daemon stops, the session stays. Memory that the program holds keeps working,
 * memory that the library has cached can still be allocated, and freeing never waits. A call that
 * needs the daemon waits until it is back, and then goes on as if nothing had happened. A request
 * that the daemon had not answered is repeated, and nothing is granted twice. A call waits for at
 * most away_ms (gpumem_connect_options), and no longer than its own wait_ms if it has one; then it
 * fails with GPUMEM_E_DISCONNECTED. gpumem_connect() waits for away_ms as well, if the daemon's keeper shows that the
 * daemon restarts. If there is no keeper either, gpumem_connect() fails at once.
 *
 * The library reconnects by itself and continues the session. If the daemon does not know the
 * session any more, a new one begins: memory from before can be used and freed as usual, but it is
 * no longer charged and cannot be shared.
 */

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define GPUMEM_VERSION_MAJOR 0
#define GPUMEM_VERSION_MINOR 1
#define GPUMEM_VERSION_PATCH 0

#if defined(__GNUC__)
#define GPUMEM_API __attribute__((visibility("default")))
#else
#define GPUMEM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- outcomes */

/* A status in a few words. Never NULL. */
GPUMEM_API const char *gpumem_status_text(gpumem_status status);
/* Why this thread's last failed call failed, and what to do about it. Never NULL. Valid until this
 * thread's next call into the library. */
GPUMEM_API const char *gpumem_error_detail(void);
/* For libraries on top of this one: sets the sentence that gpumem_error_detail() returns on this thread, cut
 * after 511 bytes. Returns status, so that a caller can fail in one line. */
GPUMEM_API gpumem_status gpumem_error_set(gpumem_status status, const char *sentence);
/* The library's version, "0.1.0". */
GPUMEM_API const char *gpumem_version(void);

/* ---- session */

typedef struct gpumem_session gpumem_session;

/* Which memory a session tracks, for gpumem_leaks() and gpumemctl buffers. */
typedef enum gpumem_track {
	/* As the environment variable GPUMEM_TRACK says ("all" or "stacks"), else as the daemon's key
	 * track says: by default large blocks that live for a while. */
	GPUMEM_TRACK_AUTO = 0,
	/* Everything, from the call that allocated it on. Allocations then take longer, and each one at
	 * least 32 KiB. gpumem_disconnect() reports on stderr what was never freed. */
	GPUMEM_TRACK_ALL = 1,
	GPUMEM_TRACK_STACKS = 2, /* the same, and where it was allocated: the call stack */
} gpumem_track;

typedef struct gpumem_connect_options {
	size_t size;
	/* The daemon's socket. NULL: $GPUMEM_SOCKET if it is set, else the user's own daemon if it
	 * runs, else the system's daemon. */
	const char *socket;
	/* How gpumemctl shows this client; at most 63 bytes. NULL: the name given to
	 * gpumem-run, else the program's. */
	const char *name;
	/* How long to wait for each answer of the daemon, in milliseconds. 0: 10 s. */
	uint32_t timeout_ms;
	/* If not 0, the program's other GPUs can use each GPU's memory too, where the hardware
	 * allows it (P2P). Mapping then takes longer. Memory of the ipc transport can always be
	 * used by them. */
	uint32_t peers;
	/* How long a call waits for the daemon if it is away, in milliseconds; see Restarts
	 * above. 0: such a call fails at once. The macro sets 30 s, and so does NULL. */
	uint32_t away_ms;
	gpumem_track track;
	/* If not 0, the program takes pinned host memory (gpumem_host_alloc()) when gpumem_alloc() fails
	 * for lack of memory of a GPU. The daemon then does not count or log that failure. */
	uint32_t host_will_do;
} gpumem_connect_options;

#define GPUMEM_CONNECT_OPTIONS_INIT \
	{ \
		sizeof(gpumem_connect_options), NULL, NULL, 0, 0, 30000, GPUMEM_TRACK_AUTO, 0 \
	}

/* options may be NULL. */
GPUMEM_API gpumem_status gpumem_connect(
	const gpumem_connect_options *options, gpumem_session **ret_session);
/*
 * Ends the session and gives all its memory back. Its pointers and buffers become invalid. Nothing
 * may still be using memory that was not freed. If the device may still be using memory that was
 * freed, the call waits for it, unless the program is capturing a stream. Requests that have not
 * ended are cancelled and freed. If the program asked for tracking (gpumem_track), the call says on
 * stderr what was never freed. session may be NULL.
 *
 * No other thread may be using the session. In a forked child, and in the function given to
 * gpumem_on_event(), the call does nothing.
 */
GPUMEM_API void gpumem_disconnect(gpumem_session *session);

/* How the daemon hands memory over. */
typedef enum gpumem_transport {
	GPUMEM_TRANSPORT_AUTO = 0, /* the daemon's choice for the device */
	GPUMEM_TRANSPORT_FD = 1,   /* as file descriptors, mapped side by side */
	GPUMEM_TRANSPORT_IPC = 2,  /* as one CUDA IPC handle, at an address the driver chooses */
} gpumem_transport;

/* How far the CPU sees what a device writes to managed memory (cuMemAllocManaged). */
typedef enum gpumem_visibility {
	GPUMEM_VISIBILITY_UNKNOWN = 0,  /* the daemon is older than this question */
	GPUMEM_VISIBILITY_SYSTEM = 1,   /* both may use it at the same time */
	GPUMEM_VISIBILITY_DEVICE = 2,   /* only while the device does nothing: WSL2, small GPUs */
	GPUMEM_VISIBILITY_EXPLICIT = 3, /* there is no managed memory: data must be copied */
} gpumem_visibility;

typedef struct gpumem_device_info {
	size_t size;
	uint32_t number;
	char name[64];
	char backend[16]; /* "host" or "cuda" */
	uint8_t uuid[16]; /* of the GPU or MIG instance, as cuDeviceGetUuid() returns it */
	uint64_t total;
	uint64_t capacity;          /* the most that the daemon hands out */
	uint64_t available;         /* what the daemon could hand out now */
	uint32_t transports;        /* the device's transports: bits 1 << GPUMEM_TRANSPORT_… */
	gpumem_transport transport; /* what GPUMEM_TRANSPORT_AUTO means on this device */
	char pci[32];               /* "0000:A0:00.0", or "" if the device has no PCI address */
	gpumem_visibility visibility;
} gpumem_device_info_t;

#define GPUMEM_DEVICE_INFO_INIT \
	{ \
		sizeof(gpumem_device_info_t), 0, {0}, {0}, {0}, 0, 0, 0, 0, GPUMEM_TRANSPORT_AUTO, \
			{0}, GPUMEM_VISIBILITY_UNKNOWN \
	}

/*
 * Stands for pinned host memory instead of a device number. gpumem_device_info(),
 * gpumem_pressure(), gpumem_stats(), gpumem_buffer_create() and gpumem_batch_create() accept it, and
 * results and events use it. gpumem_device_count() does not count it.
 */
#define GPUMEM_DEVICE_HOST UINT32_MAX

/* Devices are numbered from 0. Every call that takes the number of a device returns
 * GPUMEM_E_NOT_FOUND if there is no such device. */
GPUMEM_API gpumem_status gpumem_device_count(gpumem_session *session, uint32_t *ret_count);
GPUMEM_API gpumem_status gpumem_device_info(
	gpumem_session *session, uint32_t device, gpumem_device_info_t *ret_info);

typedef enum gpumem_level {
	GPUMEM_LEVEL_LOW = 0,
	GPUMEM_LEVEL_MEDIUM = 1,
	GPUMEM_LEVEL_HIGH = 2,
	GPUMEM_LEVEL_CRITICAL = 3,
} gpumem_level;

/* The device's pressure, from 0 to 1, and its level. Reads a page shared with the daemon and sends
 * no message. Either result may be NULL. */
GPUMEM_API gpumem_status gpumem_pressure(
	gpumem_session *session, uint32_t device, double *ret_pressure, gpumem_level *ret_level);

typedef enum gpumem_event_kind {
	/* The device's level changed. Sets device, level and pressure. */
	GPUMEM_EVENT_PRESSURE = 1,
	/* The daemon wants unused memory back. The library has already returned what it had cached,
	 * so a program only needs to act if it can free more. What it frees in this call goes back
	 * as well. Sets device, urgent, and bytes: how many are still wanted; 0 if the library
	 * returned enough, UINT64_MAX if the daemon wants all that can be spared. */
	GPUMEM_EVENT_RECLAIM = 2,
	/* The limit on what this client may hold changed. Sets device, and bytes: the new limit, or
	 * UINT64_MAX if there is none. */
	GPUMEM_EVENT_LIMITS = 3,
	/* The daemon is about to stop. text says why. */
	GPUMEM_EVENT_GOODBYE = 4,
	/* The connection is lost. Memory that is held keeps working; requests for new memory wait
	 * until the connection is back. text says why. */
	GPUMEM_EVENT_LOST = 5,
	/* The connection is back. Everything that was held is still held. text says whether the
	 * daemon still knows about it. */
	GPUMEM_EVENT_RESTORED = 6,
} gpumem_event_kind;

/* Members that the event's kind does not set are 0. */
typedef struct gpumem_event {
	size_t size;
	gpumem_event_kind kind;
	uint32_t device;
	gpumem_level level;
	double pressure;
	uint64_t bytes;
	int urgent;
	const char *text; /* may be NULL; valid only during the call */
} gpumem_event;

/*
 * Sets the function that is called for every event. It runs on the library's own thread, one event
 * at a time. It may call everything in this library except gpumem_disconnect() and
 * gpumem_on_event(). If fn is NULL, no function is called any more; when that call returns, the old
 * function is not running and will not run again.
 */
typedef void (*gpumem_event_fn)(void *user, const gpumem_event *event);
GPUMEM_API gpumem_status gpumem_on_event(gpumem_session *session, gpumem_event_fn fn, void *user);

typedef struct gpumem_stats_t {
	size_t size;
	uint64_t allocated;      /* charged to this client: in use, pooled and slack */
	uint64_t in_use;         /* requested by the program and not freed yet */
	uint64_t pooled;         /* cached: not in use, and gpumem_trim() would return it now */
	uint64_t peak;           /* the highest in_use so far */
	uint64_t hits;           /* allocations served without a message */
	uint64_t misses;         /* allocations that needed the daemon */
	double hit_rate;         /* hits / (hits + misses), or 0 if there were none */
	uint64_t returns;        /* chunks returned to the daemon */
	uint64_t cpu_fallbacks;  /* buffers made in host memory: GPUMEM_BUFFER_CPU_OK */
	uint64_t active_buffers; /* pointers, buffers and entries of batches not freed yet */
	uint64_t slack;          /* neither in use nor pooled: rounding, free pieces of chunks that
				    are partly in use, freed entries of batches that have others,
				    and freed memory that the GPU still uses */
} gpumem_stats_t;

#define GPUMEM_STATS_INIT \
	{ \
		sizeof(gpumem_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* How this process uses a device. The call also publishes the figures: once it returns, gpumemctl
 * shows them. Without the call, gpumemctl shows them after at most a second. */
GPUMEM_API gpumem_status gpumem_stats(
	gpumem_session *session, uint32_t device, gpumem_stats_t *ret_stats);

/* For libraries that stand between a program and the driver, as that of gpumem-run does: counts calls for memory
 * of the device that went to the driver instead. gpumemctl clients shows the sum as PASSED. */
GPUMEM_API gpumem_status gpumem_count_passed(
	gpumem_session *session, uint32_t device, uint64_t calls);

/* Returns every unused chunk of every device to the daemon. ret_bytes, which may be NULL, gets the
 * number of bytes returned. */
GPUMEM_API gpumem_status gpumem_trim(gpumem_session *session, uint64_t *ret_bytes);

/* ---- waiting */

/*
 * wait_ms in the options says how many milliseconds a request may wait if the device is full. 0
 * means as the daemon's configuration says (its key oom): by default, not at all. With
 * GPUMEM_NO_WAIT the request waits neither for memory that clients use, however the daemon is
 * configured, nor for a daemon that is away. In both cases the daemon first asks other clients for
 * memory that they only cache, twice, and gives them up to reclaim_deadline (another key) each time;
 * longer while they move buffers to host memory.
 *
 * A request that waits ends with the memory, or with one of these:
 *
 *   GPUMEM_E_TIMEOUT       The time is over.
 *   GPUMEM_E_DEADLOCK      Only with GPUMEM_WAIT_FOREVER: every client that holds memory waits for
 *                          more in this way, and none has returned any for a while (the daemon's
 *                          key deadlock_after). Free some and try again.
 *   GPUMEM_E_NO_MEMORY     The device can never, or no longer, grant that much; or too many
 *                          requests wait for the device already.
 *   GPUMEM_E_LIMIT         A limit can never, or no longer, allow that much; or too many requests
 *                          wait already: 32 of this session, or too many for the device. Requests
 *                          that were begun (below) use at most 24 of the 32.
 *   GPUMEM_E_DISCONNECTED  The daemon was away and did not come back in time. A restart of the
 *                          daemon by itself does not end the wait.
 */
#define GPUMEM_WAIT_FOREVER UINT32_MAX
#define GPUMEM_NO_WAIT      (UINT32_MAX - 1)

/* ---- memory: raw pointers, the hot path */

/* A CUstream or cudaStream_t. NULL is the default stream that all threads share; a thread's own
 * default stream is cudaStreamPerThread. On the host backend, any value except the two below names
 * a stream. */
typedef void *gpumem_stream;
/*
 * In an allocation: the memory can be used on any stream at once.
 *
 * In a free: work launched before the call, on any stream, may still use the memory. This covers
 * streams of the GPU's primary context, and of every context that was current when this process
 * allocated or freed memory of the GPU, even if it is a context of another GPU.
 */
#define GPUMEM_STREAM_ANY ((gpumem_stream)(intptr_t)-1)
/* Only in a free: nothing uses the memory any more. */
#define GPUMEM_STREAM_DONE ((gpumem_stream)(intptr_t)-2)

typedef struct gpumem_alloc_options {
	size_t size;
	size_t alignment; /* a power of two; 0: 256 */
	const char *tag;  /* shown by gpumemctl buffers; at most 63 bytes; may be NULL */
	uint32_t wait_ms; /* how long to wait if the device is full, see above */
} gpumem_alloc_options;

#define GPUMEM_ALLOC_OPTIONS_INIT \
	{ \
		sizeof(gpumem_alloc_options), 0, NULL, 0 \
	}

/*
 * Allocates memory on a device, aligned to at least 256 bytes. The library takes it from chunks
 * that this process already holds, if it can: that needs no message and takes tens of nanoseconds.
 * size must not be 0. options may be NULL.
 */
GPUMEM_API gpumem_status gpumem_alloc(gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, void **ret_ptr);
/* Frees memory. Never waits for the device. ptr must come from gpumem_alloc() or
 * gpumem_host_alloc() on this session, or be NULL; other pointers are refused with
 * GPUMEM_E_INVALID. */
GPUMEM_API gpumem_status gpumem_free(gpumem_session *session, void *ptr, gpumem_stream stream);

/*
 * Allocates pinned host memory, aligned to at least 256 bytes. The GPUs reach it at the same
 * address, and copies to and from it run asynchronously and at full speed. If the daemon serves no
 * GPU, it is ordinary host memory. size must not be 0. options may be NULL.
 *
 * The driver can copy a whole block in one call, but may refuse to set it (cuMemset): use memset().
 * Memory that this process has cached is reused without a message. The daemon's key host_limit
 * bounds what all processes together hold. GPUMEM_E_UNSUPPORTED means that the daemon hands out no
 * pinned memory, or that this process sees no GPU.
 */
GPUMEM_API gpumem_status gpumem_host_alloc(
	gpumem_session *session, size_t size, const gpumem_alloc_options *options, void **ret_ptr);
/* Frees pinned host memory. Never waits: work launched before the call may still use the memory,
 * which is reused when that work is done. gpumem_free() does the same for one stream. ptr must come
 * from gpumem_host_alloc(), or be NULL. */
GPUMEM_API gpumem_status gpumem_host_free(gpumem_session *session, void *ptr);

/* ---- requests: memory that is asked for now and taken later */

/*
 * A request for a pointer or a buffer that the program does not wait for. It is pending, and then
 * ready or failed. Hundreds can be pending at once. The library asks the daemon for some of them at
 * a time and keeps the others in their order. It has one thread for all of them.
 *
 * gpumem_alloc_take() and gpumem_buffer_take() hand over what a request brought, and end it.
 * gpumem_request_cancel() ends it in any state. A request that has ended must not be used again.
 * gpumem_disconnect() cancels and frees all requests of the session; their functions are not called.
 *
 * wait_ms counts from the begin. While the daemon is away, requests stay pending, for at most
 * away_ms; when it is back, the library repeats them, and nothing is granted twice.
 */
typedef struct gpumem_request gpumem_request;

typedef enum gpumem_request_state {
	GPUMEM_REQUEST_PENDING = 0,
	GPUMEM_REQUEST_READY = 1,
	GPUMEM_REQUEST_FAILED = 2,
} gpumem_request_state;

/*
 * Begins an allocation, as gpumem_alloc() would make it. If this process has the memory cached, the
 * request is ready at once, and no message is sent. The stream is used in this call and in
 * gpumem_alloc_take() only: memory that the daemon grants can be used on any stream. These calls fail
 * where the arguments are wrong, and never wait for the daemon; the first one for a device takes as
 * long as its driver takes to start.
 */
GPUMEM_API gpumem_status gpumem_alloc_begin(gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, gpumem_request **ret_request);

/* Whether the request is still pending. Never waits, and sends no message. */
GPUMEM_API gpumem_request_state gpumem_request_ready(const gpumem_request *request);
/* Waits until the request is ready or failed: GPUMEM_OK in both cases. If it is still pending after
 * timeout_ms, returns GPUMEM_E_TIMEOUT, and the request goes on. */
GPUMEM_API gpumem_status gpumem_request_wait(gpumem_request *request, uint32_t timeout_ms);

/*
 * Takes the pointer or the buffer, and ends the request. If the request failed, returns why, and ends
 * it as well. If it is still pending, returns GPUMEM_E_BUSY; if it was begun with the other function,
 * or a result pointer is NULL, GPUMEM_E_INVALID. Then nothing changes.
 */
GPUMEM_API gpumem_status gpumem_alloc_take(gpumem_request *request, void **ret_ptr);
/* Drops a request in any state, and gives back what it brought or still brings. Never waits. request
 * may be NULL. No other thread may be using the request. */
GPUMEM_API void gpumem_request_cancel(gpumem_request *request);

/*
 * Completions on a thread of the program's choice. When the request is ready or failed, the next
 * gpumem_dispatch() calls fn(user, request) once, on its own thread. fn may call everything except
 * gpumem_disconnect(), and will usually take the request. If fn is NULL, no function is called any more. The library never calls fn
 * by itself.
 */
typedef void (*gpumem_request_fn)(void *user, gpumem_request *request);
GPUMEM_API gpumem_status gpumem_request_on_done(
	gpumem_request *request, gpumem_request_fn fn, void *user);
/* Calls the functions of all requests that have become ready or failed. ret_ran, which may be NULL,
 * gets their number. While a function runs, no other thread may end its request. */
GPUMEM_API gpumem_status gpumem_dispatch(gpumem_session *session, uint32_t *ret_ran);
/* A descriptor for an event loop (poll, epoll, libuv, asyncio): it is readable while
 * gpumem_dispatch() has something to do. The library owns it until the session ends: do not read,
 * write or close it. */
GPUMEM_API gpumem_status gpumem_session_fd(gpumem_session *session, int *ret_fd);

/* ---- buffers: each has a lease of its own, so that it can be shared */

typedef struct gpumem_buffer gpumem_buffer;

/* The buffer may be shared with other users or groups (GPUMEM_AUDIENCE_UID and _GID). So that they
 * see no old data, it is made of fresh memory, which takes longer to get. */
#define GPUMEM_BUFFER_FOR_OTHERS 1u

/* The buffer has signals: see gpumem_buffer_signal(). */
#define GPUMEM_BUFFER_SIGNALS 2u

/* The buffer may move to host memory while it is not pinned: gpumem_evict.h. */
#define GPUMEM_BUFFER_EVICTABLE 4u

/* The same; and if the device is full, the buffer is made in pinned host memory: gpumem_evict.h. */
#define GPUMEM_BUFFER_CPU_OK 8u

typedef struct gpumem_buffer_options {
	size_t size;
	const char *tag;            /* at most 63 bytes; may be NULL */
	gpumem_transport transport; /* GPUMEM_E_UNSUPPORTED if the device does not have it */
	uint32_t wait_ms;           /* how long to wait if the device is full, see above */
	uint32_t flags;             /* a sum of GPUMEM_BUFFER_…, or 0 */
	size_t max_size;            /* how far it will grow: see resizing, below; 0: not at all */
	/* What the buffer is for ("weights", "kv", "activations") and what its numbers are ("bf16",
	 * "fp8"): shown by gpumemctl buffers; at most 11 bytes each; may be NULL. */
	const char *type;
	const char *precision;
} gpumem_buffer_options;

#define GPUMEM_BUFFER_OPTIONS_INIT \
	{ \
		sizeof(gpumem_buffer_options), NULL, GPUMEM_TRANSPORT_AUTO, 0, 0, 0, NULL, NULL \
	}

/* Each call sends a message: programs that allocate often should use gpumem_alloc(). options may be
 * NULL. */
GPUMEM_API gpumem_status gpumem_buffer_create(gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer **ret_buffer);
/* The same as a request: see above. gpumem_buffer_take() ends it, as gpumem_alloc_take() does. */
GPUMEM_API gpumem_status gpumem_buffer_create_begin(gpumem_session *session, uint32_t device,
	size_t size, const gpumem_buffer_options *options, gpumem_request **ret_request);
GPUMEM_API gpumem_status gpumem_buffer_take(gpumem_request *request, gpumem_buffer **ret_buffer);
/* Nothing may be using the memory any more, except a transfer (gpumem_copy.h): then the buffer goes when
 * the transfer ends. If another process created the buffer, the call only unmaps it here. buffer may be
 * NULL. */
GPUMEM_API void gpumem_buffer_destroy(gpumem_buffer *buffer);
GPUMEM_API void *gpumem_buffer_ptr(const gpumem_buffer *buffer);
GPUMEM_API size_t gpumem_buffer_size(const gpumem_buffer *buffer);
GPUMEM_API uint32_t gpumem_buffer_device(const gpumem_buffer *buffer);
GPUMEM_API const char *gpumem_buffer_tag(const gpumem_buffer *buffer);
/* How the daemon handed the memory over: GPUMEM_TRANSPORT_FD or GPUMEM_TRANSPORT_IPC. */
GPUMEM_API gpumem_transport gpumem_buffer_transport(const gpumem_buffer *buffer);
#define GPUMEM_IPC_HANDLE_BYTES 64
/*
 * The CUDA IPC handle of a buffer on the ipc transport, for a program that opens it by itself with
 * cuIpcOpenMemHandle() or cudaIpcOpenMemHandle(). Other buffers have none: GPUMEM_E_UNSUPPORTED.
 *
 * Any process of any user that has these bytes can open the memory: pass them on with care. The
 * daemon does not know which programs opened it. Destroy the buffer only after they have all closed
 * it.
 */
GPUMEM_API gpumem_status gpumem_buffer_ipc_handle(
	const gpumem_buffer *buffer, unsigned char ret_handle[GPUMEM_IPC_HANDLE_BYTES]);
GPUMEM_API gpumem_status gpumem_buffer_set_tag(gpumem_buffer *buffer, const char *tag);
/* Says that the program uses the buffer now. gpumemctl buffers and gpumem_leaks() then show how long ago
 * that was. The library cannot see uses by itself. Takes some 50 ns. */
GPUMEM_API gpumem_status gpumem_buffer_touch(gpumem_buffer *buffer);

/* ---- resizing: buffers that grow and shrink where they are */

/*
 * A buffer that is made with max_size reserves that much address space, and no memory for it. Up to
 * there it grows at its address: no byte is copied, and the content stays. The pointer goes on
 * working, in kernels and graphs, too.
 *
 * A buffer moves if it grows beyond, if no address space was left for it, or if it cannot grow where it
 * is (on the ipc transport, and pinned memory that is made of memfds). Then the device copies the
 * content, which needs memory for both until the copy is done.
 */

/*
 * Makes a buffer larger or smaller. size is at least 1. The content of the part that is added is
 * undefined. If the device is full, the call waits as long as the buffer's wait_ms says.
 *
 * Shrinking never waits for the device: work launched before the call, on any stream, may still use the
 * part that is cut off, whose chunks go back when that work is done. GPUMEM_STREAM_DONE: nothing uses
 * that part any more. Only whole chunks go back, so a smaller buffer may hold more than its size.
 * Nothing shrinks by itself.
 *
 * If the buffer has to move, the copy runs on the stream, after the work launched there before, and
 * other streams must not use the buffer meanwhile. With GPUMEM_STREAM_ANY the call waits for all work,
 * and with GPUMEM_STREAM_DONE for the copy. ret_moved, which may be NULL, gets 1 if the buffer has
 * moved, so that gpumem_buffer_ptr() is another, and 0 otherwise. The old memory goes back when the
 * copy is done.
 *
 * If the call fails, nothing has changed:
 *
 *   GPUMEM_E_BUSY    The buffer has a token or a name, another process has it open, a transfer
 *                    (gpumem_copy.h) uses it, or the stream is being captured into a graph. Or the
 *                    buffer has to move, and the copy would break the capture of another stream.
 *   GPUMEM_E_DENIED  Another process made the buffer.
 *   GPUMEM_E_INVALID The size is 0 or too large.
 *
 * or as gpumem_buffer_create() would.
 */
GPUMEM_API gpumem_status gpumem_buffer_resize(
	gpumem_buffer *buffer, size_t size, gpumem_stream stream, int *ret_moved);
/* How far the buffer can grow where it is; its size at least. */
GPUMEM_API size_t gpumem_buffer_max_size(const gpumem_buffer *buffer);

/* How gpumem_buffer_ensure() grows a buffer. gpumemctl buffers shows it. */
typedef struct gpumem_buffer_policy {
	size_t size;
	double factor;  /* to at least this many times its size, 1 to 100; 0: to what is needed */
	size_t step;    /* by a multiple of this, rounded up to 2 MiB; 0: any size */
	size_t ceiling; /* never beyond this, rounded up to 2 MiB; 0: no ceiling */
} gpumem_buffer_policy;

#define GPUMEM_BUFFER_POLICY_INIT \
	{ \
		sizeof(gpumem_buffer_policy), 0, 0, 0 \
	}

/* policy NULL: none, as at the beginning. */
GPUMEM_API gpumem_status gpumem_buffer_set_policy(
	gpumem_buffer *buffer, const gpumem_buffer_policy *policy);
/*
 * Makes sure that the buffer has at least that many bytes. If it has, the call costs next to nothing.
 * Otherwise it resizes the buffer to what the policy says, or to what is needed if there is not that
 * much memory. The policy alone never makes a buffer move. Beyond the ceiling: GPUMEM_E_LIMIT.
 */
GPUMEM_API gpumem_status gpumem_buffer_ensure(
	gpumem_buffer *buffer, size_t needed, gpumem_stream stream, int *ret_moved);
/* Says how many bytes of the buffer the program uses, for gpumemctl buffers. Sends no message. */
GPUMEM_API gpumem_status gpumem_buffer_report_use(gpumem_buffer *buffer, size_t used);

/* ---- batches: many pieces of memory in one request */

/*
 * A batch is one lease that the library carves up. Either all its entries are there or none, and
 * making it costs as much as making one buffer. An entry can be freed on its own, but neither shared
 * nor resized: use a buffer for that. The lease goes back as a whole, when the last entry is freed;
 * until then the memory of entries that were freed counts as slack.
 */
typedef struct gpumem_batch gpumem_batch;

#define GPUMEM_BATCH_MOST 1024

/* One piece of memory that is wanted. This struct does not grow in later versions. */
typedef struct gpumem_batch_entry {
	size_t bytes;     /* not 0 */
	size_t alignment; /* a power of two, at most 2 MiB; 0: 256. It is 256 at least. */
	const char *tag;  /* shown by gpumemctl buffers; at most 63 bytes; NULL: the batch's tag */
} gpumem_batch_entry;

typedef struct gpumem_batch_options {
	size_t size;
	const char *tag;            /* of the whole batch; at most 63 bytes; may be NULL */
	gpumem_transport transport; /* GPUMEM_E_UNSUPPORTED if the device does not have it */
	uint32_t wait_ms;           /* how long to wait if the device is full, see above */
	/* May be NULL. If the call fails: the index of the entry that is wrong or did not fit, or
	 * GPUMEM_BATCH_NO_ENTRY if no single entry is to blame. */
	size_t *ret_failed;
	const char *type; /* of all entries, as in gpumem_buffer_options; may be NULL */
	const char *precision;
} gpumem_batch_options;

#define GPUMEM_BATCH_NO_ENTRY SIZE_MAX

#define GPUMEM_BATCH_OPTIONS_INIT \
	{ \
		sizeof(gpumem_batch_options), NULL, GPUMEM_TRANSPORT_AUTO, 0, NULL, NULL, NULL \
	}

/*
 * Makes a batch of 1 to GPUMEM_BATCH_MOST entries, which lie in the given order. Nothing of entries
 * is needed after the call. If they do not all fit, nothing is allocated, and the sentence names the
 * first entry that does not fit. device may be GPUMEM_DEVICE_HOST. options may be NULL.
 */
GPUMEM_API gpumem_status gpumem_batch_create(gpumem_session *session, uint32_t device,
	const gpumem_batch_entry *entries, size_t count, const gpumem_batch_options *options,
	gpumem_batch **ret_batch);
/* Frees the entries that are left, and ends the batch. Never waits: work launched before the call,
 * on any stream, may still use the memory, which goes back when that work is done. A graph that
 * uses the memory must not be launched any more. batch may be NULL. */
GPUMEM_API void gpumem_batch_destroy(gpumem_batch *batch);
/*
 * Frees one entry. Never waits: work launched on the stream before the call may still use the
 * memory. The stream may be GPUMEM_STREAM_ANY or GPUMEM_STREAM_DONE. If it is being captured, the
 * memory stays in place until gpumem_batch_destroy(), so that the graph can be launched until then.
 */
GPUMEM_API gpumem_status gpumem_batch_free_entry(
	gpumem_batch *batch, size_t index, gpumem_stream stream);
/* How many entries the batch was made with. */
GPUMEM_API size_t gpumem_batch_count(const gpumem_batch *batch);
/* NULL if the entry was freed, or if there is no such entry. */
GPUMEM_API void *gpumem_batch_ptr(const gpumem_batch *batch, size_t index);
/* As requested; 0 if there is no such entry. */
GPUMEM_API size_t gpumem_batch_size(const gpumem_batch *batch, size_t index);
/* Never NULL. */
GPUMEM_API const char *gpumem_batch_tag(const gpumem_batch *batch, size_t index);
GPUMEM_API uint32_t gpumem_batch_device(const gpumem_batch *batch);

/* ---- leaks */

/* Memory that was allocated and not freed: a pointer, a buffer that this process made, or an entry of a
 * batch. */
typedef struct gpumem_leak {
	size_t size;
	void *ptr;
	uint64_t bytes; /* as requested */
	uint32_t device;
	uint64_t age_ms;  /* since it was allocated, or since the library's thread saw it first */
	uint64_t idle_ms; /* since it was allocated, or since the last gpumem_buffer_touch() */
	const char *tag;  /* never NULL, as the following; valid only during the call */
	const char *type;
	const char *precision;
	const char *stack; /* a line for each call, the innermost first: PATH+0xOFFSET (SYMBOL) */
} gpumem_leak;

/*
 * Calls fn for all memory that the session tracks, that is not freed, and that is at least older_than_ms
 * old; the oldest comes first. fn runs on the calling thread, without any lock held, and may call everything in
 * this library except gpumem_disconnect(). It may be NULL, if only the number is wanted. ret_count,
 * which may be NULL, gets the number. Sends no message.
 *
 * GPUMEM_TRACK_ALL and _STACKS track everything. Otherwise the daemon's key track says what is tracked.
 */
typedef void (*gpumem_leak_fn)(void *user, const gpumem_leak *leak);
GPUMEM_API gpumem_status gpumem_leaks(gpumem_session *session, uint64_t older_than_ms,
	gpumem_leak_fn fn, void *user, uint64_t *ret_count);

/* ---- managed lifetime */

/*
 * For compilers with the GNU cleanup attribute, such as gcc and clang: what the variable holds is
 * ended when the variable goes out of scope, in the reverse order of declaration. So declare the
 * session first, and initialise each variable with NULL:
 *
 *   GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
 *   GPUMEM_AUTO_BATCH gpumem_batch *batch = NULL;
 *
 * C++ programs use gpumem.hpp.
 */
static inline void gpumem_session_cleanup(gpumem_session **session)
{
	gpumem_disconnect(*session);
	*session = NULL;
}
static inline void gpumem_buffer_cleanup(gpumem_buffer **buffer)
{
	gpumem_buffer_destroy(*buffer);
	*buffer = NULL;
}
static inline void gpumem_batch_cleanup(gpumem_batch **batch)
{
	gpumem_batch_destroy(*batch);
	*batch = NULL;
}
#if defined(__GNUC__)
#define GPUMEM_AUTO_SESSION __attribute__((cleanup(gpumem_session_cleanup)))
#define GPUMEM_AUTO_BUFFER  __attribute__((cleanup(gpumem_buffer_cleanup)))
#define GPUMEM_AUTO_BATCH   __attribute__((cleanup(gpumem_batch_cleanup)))
#endif

#ifdef __cplusplus
}
#endif

#include "gpumem_graph.h"
#include "gpumem_share.h"

#endif
