/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_H
#define GPUMEM_H

/*
 * libgpumem-client: device memory from gpumemd.
 *
 * Every call that can fail returns a status (status.h) and leaves a sentence about it in
 * gpumem_error_detail(). Results are written on success only. All calls may be made from any
 * thread, but not from a signal handler; a thread that is cancelled in one ends after it. A child
 * made by fork() may not use its parent's session: its calls fail with GPUMEM_E_FORKED, and it can
 * connect for itself.
 *
 * Structs that begin with a size field grow in later versions: initialise them with their macro, or
 * set size to sizeof; with size 0 they are refused. A library that is older or newer than the
 * program reads and writes the fields that both know.
 *
 * When the daemon goes, a session stays: what is held works on, what the heap has cached can still
 * be allocated, and new memory fails with GPUMEM_E_DISCONNECTED until the daemon is back. Then the
 * library takes the session up again by itself. A daemon that was started anew does not know it:
 * the session goes on as a new one, and what was held before can be used and freed as ever, but
 * stands in no book of the daemon and cannot be shared.
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

/* A few words on a status, never NULL. */
GPUMEM_API const char *gpumem_status_text(gpumem_status status);
/* What went wrong in this thread's last failed call: cause and remedy, never NULL. Good until this
 * thread's next call. */
GPUMEM_API const char *gpumem_error_detail(void);
/* The library's version, "0.1.0". */
GPUMEM_API const char *gpumem_version(void);

/* ---- session */

typedef struct gpumem_session gpumem_session;

typedef struct gpumem_connect_options {
	size_t size;
	/* NULL: $GPUMEM_SOCKET, else the user's daemon if it runs, else the system's. */
	const char *socket;
	/* What to call this client in gpumemctl; at most 63 bytes. NULL: the program's name. */
	const char *name;
	/* How long to wait for the daemon's answers, in milliseconds. 0: 10 s. */
	uint32_t timeout_ms;
	/* Not 0: memory of each GPU can be used by the program's other GPUs, too, where they can
	 * reach it (P2P). Mapping takes longer then. Memory of the ipc transport always can. */
	uint32_t peers;
} gpumem_connect_options;

#define GPUMEM_CONNECT_OPTIONS_INIT \
	{ \
		sizeof(gpumem_connect_options), NULL, NULL, 0, 0 \
	}

/* options may be NULL. */
GPUMEM_API gpumem_status gpumem_connect(
	const gpumem_connect_options *options, gpumem_session **ret_session);
/*
 * Gives everything back and ends the session: its pointers and buffers are invalid from now on, and
 * nothing may use what was not freed. For work that may still use what was freed it waits, unless
 * the program is capturing a stream. NULL is fine. No other thread may be using the session. Does
 * nothing in a forked child, or in the function given to gpumem_on_event().
 */
GPUMEM_API void gpumem_disconnect(gpumem_session *session);

/* How memory is handed over by the daemon. */
typedef enum gpumem_transport {
	GPUMEM_TRANSPORT_AUTO = 0, /* what the daemon prefers on that device */
	GPUMEM_TRANSPORT_FD = 1,   /* as file descriptors, mapped side by side */
	GPUMEM_TRANSPORT_IPC = 2,  /* as one CUDA IPC handle, at an address the driver chooses */
} gpumem_transport;

typedef struct gpumem_device_info {
	size_t size;
	uint32_t number;
	char name[64];
	char backend[16]; /* "host", "cuda" */
	uint8_t uuid[16]; /* a GPU's or MIG instance's, as cuDeviceGetUuid has it */
	uint64_t total;
	uint64_t capacity;          /* what the broker may hand out at most */
	uint64_t available;         /* what it could hand out now */
	uint32_t transports;        /* what the device can do: 1 << GPUMEM_TRANSPORT_FD and _IPC */
	gpumem_transport transport; /* what GPUMEM_TRANSPORT_AUTO means on it */
	char pci[32];               /* "0000:A0:00.0"; "": it has none */
} gpumem_device_info_t;

#define GPUMEM_DEVICE_INFO_INIT \
	{ \
		sizeof(gpumem_device_info_t), 0, {0}, {0}, {0}, 0, 0, 0, 0, GPUMEM_TRANSPORT_AUTO, \
		{ \
			0 \
		} \
	}

/*
 * Pinned host memory in place of a device's number: in gpumem_device_info, gpumem_pressure,
 * gpumem_stats and gpumem_buffer_create, and where a number is told. It is not counted by
 * gpumem_device_count.
 */
#define GPUMEM_DEVICE_HOST UINT32_MAX

GPUMEM_API gpumem_status gpumem_device_count(gpumem_session *session, uint32_t *ret_count);
GPUMEM_API gpumem_status gpumem_device_info(
	gpumem_session *session, uint32_t device, gpumem_device_info_t *ret_info);

typedef enum gpumem_level {
	GPUMEM_LEVEL_LOW = 0,
	GPUMEM_LEVEL_MEDIUM = 1,
	GPUMEM_LEVEL_HIGH = 2,
	GPUMEM_LEVEL_CRITICAL = 3,
} gpumem_level;

/* The device's pressure, 0 to 1, and level: read from a shared page, no message. Either result may
 * be NULL. */
GPUMEM_API gpumem_status gpumem_pressure(
	gpumem_session *session, uint32_t device, double *ret_pressure, gpumem_level *ret_level);

typedef enum gpumem_event_kind {
	GPUMEM_EVENT_PRESSURE = 1, /* level changed; device, level and pressure are set */
	GPUMEM_EVENT_RECLAIM = 2,  /* the daemon wants unused memory back; the library returns what
				      it caches by itself */
	GPUMEM_EVENT_LIMITS = 3,   /* what this client may hold changed; device and bytes are set */
	GPUMEM_EVENT_GOODBYE = 4,  /* the daemon is stopping; text says why */
	GPUMEM_EVENT_LOST = 5, /* the connection is gone: what is held works on, new memory fails
				  until it is back */
	GPUMEM_EVENT_RESTORED = 6, /* connected again, everything held is still held; text says
				      whether the daemon still knows of it */
} gpumem_event_kind;

typedef struct gpumem_event {
	size_t size;
	gpumem_event_kind kind;
	uint32_t device;
	gpumem_level level;
	double pressure;
	uint64_t bytes;
	int urgent;
	const char *text; /* NULL: there is none. Good during the call only */
} gpumem_event;

/*
 * Called on the library's own thread, one event at a time. The function may call anything of this
 * library but gpumem_disconnect and gpumem_on_event. NULL ends it; when that call returns, the
 * function is not running and will not run.
 */
typedef void (*gpumem_event_fn)(void *user, const gpumem_event *event);
GPUMEM_API gpumem_status gpumem_on_event(gpumem_session *session, gpumem_event_fn fn, void *user);

typedef struct gpumem_stats_t {
	size_t size;
	uint64_t allocated;      /* charged to this client: in use, cached and rounding */
	uint64_t in_use;         /* asked for by the program and not freed */
	uint64_t pooled;         /* cached here, ready for reuse without a message */
	uint64_t peak;           /* of in_use */
	uint64_t hits;           /* allocations answered without a message */
	uint64_t misses;         /* allocations that asked the daemon */
	double hit_rate;         /* hits / (hits + misses), 0 when there were none */
	uint64_t returns;        /* chunks given back */
	uint64_t cpu_fallbacks;  /* allocations placed in host memory because the device was full */
	uint64_t active_buffers; /* pointers and buffers alive */
} gpumem_stats_t;

#define GPUMEM_STATS_INIT \
	{ \
		sizeof(gpumem_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* How this process uses a device. What is told is also published: after this, gpumemctl clients and
 * buffers show no less. Without it they do so after a second at most. */
GPUMEM_API gpumem_status gpumem_stats(
	gpumem_session *session, uint32_t device, gpumem_stats_t *ret_stats);

/* Gives every chunk that nothing uses back to the daemon, on all devices. How many bytes went; may
 * be NULL. */
GPUMEM_API gpumem_status gpumem_trim(gpumem_session *session, uint64_t *ret_bytes);

/* ---- waiting */

/*
 * wait_ms in options: how many milliseconds to wait when there is no room. 0: not at all, unless
 * the daemon is configured to let requests wait (oom). Waiting ends with the memory, or with
 * GPUMEM_E_TIMEOUT; GPUMEM_E_DEADLOCK: everybody who holds memory waits for more, so free some and
 * try again; GPUMEM_E_LIMIT or GPUMEM_E_NO_MEMORY, at once: so much can never be had.
 */
#define GPUMEM_WAIT_FOREVER UINT32_MAX

/* ---- memory: raw pointers, the hot path */

/* A CUstream or cudaStream_t; NULL is the default stream that all threads share (a thread's own is
 * cudaStreamPerThread). On the host backend any value that is no special one names a stream. */
typedef void *gpumem_stream;
/* alloc: usable on any stream at once. free: whatever was launched so far, on any stream, may still
 * use it; in the GPU's primary context, or in one that was current when this process allocated or
 * freed memory of that GPU, be it one of another GPU. */
#define GPUMEM_STREAM_ANY ((gpumem_stream)(intptr_t)-1)
/* free only: nothing uses it any more. */
#define GPUMEM_STREAM_DONE ((gpumem_stream)(intptr_t)-2)

typedef struct gpumem_alloc_options {
	size_t size;
	size_t alignment; /* a power of two; 0: 256 */
	const char *tag;  /* shown by gpumemctl buffers; at most 63 bytes; may be NULL */
	uint32_t wait_ms; /* how long to wait for room, see above */
} gpumem_alloc_options;

#define GPUMEM_ALLOC_OPTIONS_INIT \
	{ \
		sizeof(gpumem_alloc_options), 0, NULL, 0 \
	}

/*
 * Memory on a device, aligned to 256 bytes at least. Carved out of chunks this process holds
 * already where that is possible: tens of nanoseconds, no message. options may be NULL. size 0 is
 * invalid.
 */
GPUMEM_API gpumem_status gpumem_alloc(gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, void **ret_ptr);
/* Never waits for the device. ptr must come from gpumem_alloc or gpumem_host_alloc on this
 * session; NULL is fine. A pointer that does not: GPUMEM_E_INVALID. */
GPUMEM_API gpumem_status gpumem_free(gpumem_session *session, void *ptr, gpumem_stream stream);

/*
 * Host memory that the GPUs reach at the same address: copies to and from it run at full speed and
 * need not be waited for. Where the daemon serves no GPU it is ordinary host memory. Aligned to 256
 * bytes at least. The driver copies to and from all of a block at once, but may refuse to set it
 * (cuMemset), which memset() does. What this process caches is reused without a message; the
 * daemon's host_limit bounds what all processes hold. GPUMEM_E_UNSUPPORTED: the daemon hands out
 * none, or this process sees no GPU. options may be NULL.
 */
GPUMEM_API gpumem_status gpumem_host_alloc(
	gpumem_session *session, size_t size, const gpumem_alloc_options *options, void **ret_ptr);
/* Never waits: what was launched so far may still use it, and it is reused when that is done.
 * gpumem_free does the same for a stream that is named. ptr must come from gpumem_host_alloc; NULL
 * is fine. */
GPUMEM_API gpumem_status gpumem_host_free(gpumem_session *session, void *ptr);

/* ---- graphs */

/*
 * A graph uses the addresses it was captured with each time it is launched. So memory that is
 * allocated or freed with gpumem_alloc and gpumem_free on a stream while that is being captured
 * stays where it is: it is neither reused nor given back, even when freed, until the program says
 * that the graph, and everything instantiated from it, is gone.
 */

/* The number of the graph that a stream of the device is being captured into; 0: none. Ask between
 * begin and end of the capture. A stream that was named to this library while it was captured may
 * be asked by it until it is named once more: ask again after the end of the capture, or allocate
 * or free on it, before it is destroyed. */
GPUMEM_API gpumem_status gpumem_graph_of(
	gpumem_session *session, uint32_t device, gpumem_stream stream, uint64_t *ret_graph);
/* That graph will not be launched again: what was freed is free from now on. A number that is not
 * known is GPUMEM_E_NOT_FOUND. */
GPUMEM_API gpumem_status gpumem_graph_gone(gpumem_session *session, uint64_t graph);

/* ---- buffers: a lease of their own, so that they can be shared */

typedef struct gpumem_buffer gpumem_buffer;

typedef struct gpumem_buffer_options {
	size_t size;
	const char *tag;            /* at most 63 bytes; may be NULL */
	gpumem_transport transport; /* one that the device has not: GPUMEM_E_UNSUPPORTED */
	uint32_t wait_ms;           /* how long to wait for room, as in gpumem_alloc_options */
} gpumem_buffer_options;

#define GPUMEM_BUFFER_OPTIONS_INIT \
	{ \
		sizeof(gpumem_buffer_options), NULL, GPUMEM_TRANSPORT_AUTO, 0 \
	}

GPUMEM_API gpumem_status gpumem_buffer_create(gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer **ret_buffer);
/* Nothing may use the memory any more. NULL is fine. For an opened buffer: closes this process's
 * view. */
GPUMEM_API void gpumem_buffer_destroy(gpumem_buffer *buffer);
GPUMEM_API void *gpumem_buffer_ptr(const gpumem_buffer *buffer);
GPUMEM_API size_t gpumem_buffer_size(const gpumem_buffer *buffer);
GPUMEM_API uint32_t gpumem_buffer_device(const gpumem_buffer *buffer);
GPUMEM_API const char *gpumem_buffer_tag(const gpumem_buffer *buffer);
/* How its memory came here: GPUMEM_TRANSPORT_FD or _IPC. */
GPUMEM_API gpumem_transport gpumem_buffer_transport(const gpumem_buffer *buffer);
#define GPUMEM_IPC_HANDLE_BYTES 64
/*
 * The CUDA IPC handle of a buffer on the ipc transport, for a program that opens it by itself with
 * cuIpcOpenMemHandle or cudaIpcOpenMemHandle; other buffers: GPUMEM_E_UNSUPPORTED. Whoever sees
 * these bytes can open the memory, whatever its uid: pass them on with care. The daemon does not
 * know of who opened it so: destroy the buffer only after all of them have closed it.
 */
GPUMEM_API gpumem_status gpumem_buffer_ipc_handle(
	const gpumem_buffer *buffer, unsigned char ret_handle[GPUMEM_IPC_HANDLE_BYTES]);
GPUMEM_API gpumem_status gpumem_buffer_set_tag(gpumem_buffer *buffer, const char *tag);

/* GPUMEM_AUTO_BUFFER gpumem_buffer *b = NULL; is destroyed when b goes out of scope. */
static inline void gpumem_buffer_cleanup(gpumem_buffer **buffer)
{
	gpumem_buffer_destroy(*buffer);
	*buffer = NULL;
}
#if defined(__GNUC__)
#define GPUMEM_AUTO_BUFFER __attribute__((cleanup(gpumem_buffer_cleanup)))
#endif

/* ---- sharing */

/* 128 random bits: whoever has them and is of the audience may open the buffer. */
typedef struct gpumem_token {
	uint8_t bytes[16];
} gpumem_token;

#define GPUMEM_TOKEN_TEXT_BYTES 33
/* 32 hexadecimal digits and a 0. */
GPUMEM_API void gpumem_token_to_text(const gpumem_token *token, char text[GPUMEM_TOKEN_TEXT_BYTES]);
GPUMEM_API gpumem_status gpumem_token_from_text(const char *text, gpumem_token *ret_token);

typedef enum gpumem_audience {
	GPUMEM_AUDIENCE_DOMAIN =
		0, /* processes of the maker's trust domain: its uid, in its container */
	GPUMEM_AUDIENCE_UID = 1,
	GPUMEM_AUDIENCE_GID = 2,
} gpumem_audience;

typedef enum gpumem_share_mode {
	GPUMEM_SHARE_READ_WRITE = 0,
	GPUMEM_SHARE_READ_ONLY = 1, /* enforced on host memory, advisory on a GPU */
} gpumem_share_mode;

typedef struct gpumem_share_options {
	size_t size;
	gpumem_audience audience;
	uint32_t id; /* the uid or gid */
	gpumem_share_mode mode;
} gpumem_share_options;

#define GPUMEM_SHARE_OPTIONS_INIT \
	{ \
		sizeof(gpumem_share_options), GPUMEM_AUDIENCE_DOMAIN, 0, GPUMEM_SHARE_READ_WRITE \
	}

/* options may be NULL: the trust domain, read and write. The maker pays for the memory while it
 * lives, then the oldest opener. */
GPUMEM_API gpumem_status gpumem_share(
	gpumem_buffer *buffer, const gpumem_share_options *options, gpumem_token *ret_token);
GPUMEM_API gpumem_status gpumem_open(
	gpumem_session *session, const gpumem_token *token, gpumem_buffer **ret_buffer);
/* Every token made for the buffer ends; who has opened it keeps it. */
GPUMEM_API gpumem_status gpumem_unshare(gpumem_buffer *buffer);

#ifdef __cplusplus
}
#endif

#endif
