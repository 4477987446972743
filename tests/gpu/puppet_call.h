/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_PUPPET_CALL_H
#define GM_TESTS_PUPPET_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* What a puppet can be told to do, what comes of it, and the doing. */

enum puppet_op {
	PUPPET_INIT,        /* cuInit */
	PUPPET_CONTEXT,     /* primary context of device a, retained and made current → context */
	PUPPET_CONTEXT_END, /* primary context of device a, released */
	PUPPET_CONTEXT_POP, /* the current one off the stack */
	PUPPET_CONTEXT_NEW, /* one that is not primary, on device a, current from now on → context
			     */
	PUPPET_CONTEXT_DROP,    /* such a one a, destroyed */
	PUPPET_CONTEXT_PUSH,    /* a context */
	PUPPET_CONTEXT_ID,      /* a context → id */
	PUPPET_CONTEXT_DEVICE,  /* the current one's → number */
	PUPPET_CONTEXT_RESET,   /* primary context of device a */
	PUPPET_CONTEXT_TAKE,    /* primary context of device a, retained, not made current */
	PUPPET_CONTEXT_STATE,   /* primary context of device a → whether it is active */
	PUPPET_CONTEXT_CURRENT, /* → the current one */
	PUPPET_CONTEXT_SET,     /* a context (0: none), in the place of the current one */
	PUPPET_CONTEXT_VERSION, /* of a context */
	PUPPET_CONTEXT_RECORD,  /* a context, b event */
	PUPPET_LOOK,            /* all that device a can be asked without a context */
	PUPPET_GRANULARITY,     /* of memory of device a → bytes */
	PUPPET_ASTRAY,          /* the current context does what kills it; what waiting gives */
	PUPPET_CONTEXT_SYNC,
	PUPPET_CREATE,    /* a bytes, b device (-1: host memory), c shareable → handle */
	PUPPET_RELEASE,   /* a handle */
	PUPPET_EXPORT,    /* a handle → fd */
	PUPPET_IMPORT,    /* fd → handle */
	PUPPET_RESERVE,   /* a bytes, b alignment, c wished address → address */
	PUPPET_UNRESERVE, /* a address, b bytes */
	PUPPET_MAP,       /* a address, b bytes, c handle, d offset */
	PUPPET_UNMAP,     /* a address, b bytes */
	PUPPET_ACCESS,    /* a address, b bytes, c flags, d device (-1: the CPU) */
	PUPPET_RETAIN,    /* a address → handle */
	PUPPET_SET,       /* a address, b bytes, c value, d stream */
	PUPPET_COUNT, /* a address, b bytes, c value → how many of the bytes have it (through a copy
			 on stream d) */
	PUPPET_CPU_COUNT,   /* the same, read by the CPU */
	PUPPET_COPY,        /* a to, b from, c bytes, d stream */
	PUPPET_MEMORY_TYPE, /* a address → what the driver takes its memory for */
	PUPPET_PAGES, /* a bytes → address of host memory that the driver does not know; of the
				 file that came along, shared, if one did */
	PUPPET_DEVICE_PTR,    /* a address of registered memory → where the device has it */
	PUPPET_REGISTER,      /* a address, b bytes */
	PUPPET_UNREGISTER,    /* a address */
	PUPPET_HOST_ALLOC,    /* a bytes → address */
	PUPPET_HOST_FREE,     /* a address */
	PUPPET_MANAGED,       /* a bytes, b flags → address of managed memory */
	PUPPET_PREFETCH,      /* a address, b bytes, c device (-1: the CPU), d stream */
	PUPPET_ADVISE,        /* a address, b bytes, c advice, d device (-1: the CPU) */
	PUPPET_SYNC,          /* a stream */
	PUPPET_BUSY,          /* stream a works until told otherwise */
	PUPPET_IDLE,          /* … which is now, for all streams */
	PUPPET_CALL,          /* stream a calls a function that does nothing */
	PUPPET_STREAM_NEW,    /* a flags → stream */
	PUPPET_STREAM_END,    /* a stream */
	PUPPET_STREAM_ID,     /* a stream → id */
	PUPPET_STREAM_QUERY,  /* a stream */
	PUPPET_EVENT_NEW,     /* a flags → event, not recorded */
	PUPPET_EVENT_RECORD,  /* a event, b stream */
	PUPPET_EVENT,         /* a new one, recorded on stream a → event */
	PUPPET_CONTEXT_EVENT, /* recorded on the context → event */
	PUPPET_EVENT_QUERY,   /* a event */
	PUPPET_EVENT_END,     /* a event */
	PUPPET_WAIT_EVENT,    /* a stream, b event */
	PUPPET_WRITE_WORD,    /* a stream, b address, c value */
	PUPPET_AWAIT_WORD,    /* a stream, b address, c value */
	PUPPET_ALLOC,         /* a bytes → address */
	PUPPET_FREE,          /* a address */
	PUPPET_IPC_GET,       /* a address → blob */
	PUPPET_IPC_OPEN,      /* blob, a flags → address */
	PUPPET_IPC_CLOSE,     /* a address */
	PUPPET_FORK,          /* a child that calls nothing and waits to be killed → its pid */
	PUPPET_FORK_CALL,     /* what a driver call gives in a forked child */
	PUPPET_MEM_INFO,      /* cuMemGetInfo: → free, and total in value2 */
	PUPPET_NVML_FREE,     /* device a: → free, and total in value2 */
	PUPPET_NVML_PROCESS, /* device a, pid b: → what NVML says it uses; value2: it is listed */
	PUPPET_CAPTURE,      /* stream a is captured from now on, in mode b */
	PUPPET_CAPTURE_END,  /* stream a */
	PUPPET_CAPTURING,    /* stream a → status */
	PUPPET_CAPTURE_INFO, /* stream a → status, by the call that tells the graph's number, too */
	PUPPET_CAPTURE_MODE, /* of the thread, a from now on → what it was */
	PUPPET_FD_FLAGS,     /* export of handle a → the fd's flags as the driver made them */
	PUPPET_ATTRIBUTE,    /* a attribute, b device → value */
};

struct puppet_call {
	enum puppet_op op;
	bool aside;  /* by a second thread of the puppet, which has a current context of its own */
	bool beside; /* by a thread made for it, in the same context; nobody hears what came of it */
	uint64_t a, b, c, d;
	uint8_t blob[64];
};

struct puppet_answer {
	int result; /* the driver's */
	uint64_t value, value2;
	uint8_t blob[64];
};

/* Once in a process, before the first call. */
void puppet_call_init(void);
/* Makes it, in the thread that calls. fd: what came along, stays the caller's; -1: none. answer is
 * all zeros before; ret_fd is written by what gives one. */
void puppet_call_make(
	const struct puppet_call *call, int fd, struct puppet_answer *answer, int *ret_fd);
/* Lets a new thread make it, in the context of the thread that calls. Returns why it could not begin. */
int puppet_call_beside(const struct puppet_call *call);

#endif
