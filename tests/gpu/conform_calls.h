/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_CONFORM_CALLS_H
#define GM_TESTS_CONFORM_CALLS_H

#include "tests/gpu/conformance.h"

/*
 * Every call of the driver that we use, with what decides how it fares where something is the
 * matter with the process: a stream is being captured, or work went astray. All of it was measured,
 * call by call (NVIDIA H200, 580.159.04).
 */

enum {
	CALL_NEEDS_CONTEXT =
		1,       /* without a current one: CUDA_ERROR_INVALID_CONTEXT, before all else */
	CALL_UNSAFE = 2, /* refused to a thread that a capture binds, and breaks the capture */
	CALL_FAILS = 4,  /* once work of the process went astray */
	CALL_PUSHES = 8, /* a context */
	CALL_ONE_CONTEXT = 16, /* cannot be made in a second context of the process */
};

/* What a call is given. */
enum conform_arg {
	ARG_ZERO,
	ARG_ONE,
	ARG_BYTES,
	ARG_HOST,
	ARG_RW,
	ARG_LAZY,
	ARG_MODE, /* of captures, that the thread has anyway */
	ARG_PRIMARY,
	ARG_OWN, /* a context that is not primary */
	ARG_STREAM,
	ARG_OWN_STREAM, /* of that context */
	ARG_PER_THREAD,
	ARG_EVENT, /* has passed */
	ARG_OWN_EVENT,
	ARG_OTHER_EVENT,
	ARG_PTR,
	ARG_RANGE, /* mapped, and open to the device */
	ARG_MEM,   /* what is mapped there */
	ARG_MADE,  /* what was prepared for this call alone, and its second part */
	ARG_MADE_TOO,
	ARG_END
};

enum conform_made {
	MADE_NOTHING,
	MADE_RETAINED,
	MADE_CONTEXT,
	MADE_PTR,
	MADE_OPENED,
	MADE_MEM,
	MADE_RANGE,
	MADE_RANGE_AND_MEM,
	MADE_MAPPED,
	MADE_PLACED,
	MADE_PINNED,
	MADE_PAGES,
	MADE_REGISTERED,
	MADE_STREAM,
	MADE_EVENT,
};

struct conform_call {
	const char *name;
	enum puppet_op op;
	enum conform_arg args[4];
	enum conform_made made;
	unsigned flags;
};

const struct conform_call *conform_calls(size_t *ret_n);

/* A process in which they can be made, and one that shares memory with it. */
struct conform_world {
	struct puppet p, owner;
	uint64_t value[ARG_END];
	uint8_t handle[64];
	int fd;
	uint64_t captured; /* a stream */
};
void conform_world_begin(struct conform_world *world);
void conform_world_end(struct conform_world *world);

/* In the first thread, with the primary context current. */
struct conform_parts {
	uint64_t made, made_too;
};
struct conform_parts conform_prepare(struct conform_world *world, const struct conform_call *call);
struct puppet_answer conform_make(struct conform_world *world, const struct conform_call *call,
	struct conform_parts parts, bool aside);
/* Afterwards, in the same thread: it has that context (0: none) current, and no other below. */
void conform_restore(struct conform_world *world, const struct conform_call *call,
	struct puppet_answer answer, bool aside, uint64_t context);

#endif
