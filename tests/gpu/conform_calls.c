/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of calls, and how each of them is made: see conform_calls.h. What a call uses up is
 * prepared for it, so that the order of calls is no matter.
 */
#include "tests/gpu/conform_calls.h"

#include <string.h>
#include <unistd.h>

#define BYTES (2 * MIB)

/* Four ways to name a stream: by handle, of another context, and the two default ones. */
#define OF_STREAMS(name, op, before, flags) \
	{name, op, {before ARG_STREAM}, MADE_NOTHING, (flags)}, \
		{name " of another context's", op, {before ARG_OWN_STREAM}, MADE_NOTHING, \
			(flags)}, \
		{name " of the default one", op, {before ARG_ZERO}, MADE_NOTHING, \
			(flags) | CALL_NEEDS_CONTEXT}, \
	{ \
		name " of the thread's", op, {before ARG_PER_THREAD}, MADE_NOTHING, \
			(flags) | CALL_NEEDS_CONTEXT \
	}
#define NOTHING_BEFORE

static const struct conform_call calls[] = {
	{"what a device can be asked", PUPPET_LOOK, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuDevicePrimaryCtxRetain", PUPPET_CONTEXT_TAKE, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuDevicePrimaryCtxRelease, not the last", PUPPET_CONTEXT_END, {ARG_ZERO}, MADE_RETAINED,
		0},
	{"cuDevicePrimaryCtxGetState", PUPPET_CONTEXT_STATE, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuCtxGetCurrent", PUPPET_CONTEXT_CURRENT, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuCtxSetCurrent", PUPPET_CONTEXT_SET, {ARG_PRIMARY}, MADE_NOTHING, 0},
	{"cuCtxPushCurrent", PUPPET_CONTEXT_PUSH, {ARG_PRIMARY}, MADE_NOTHING, CALL_PUSHES},
	{"cuCtxPopCurrent", PUPPET_CONTEXT_POP, {ARG_ZERO}, MADE_NOTHING, CALL_NEEDS_CONTEXT},
	{"cuCtxGetDevice", PUPPET_CONTEXT_DEVICE, {ARG_ZERO}, MADE_NOTHING, CALL_NEEDS_CONTEXT},
	{"cuCtxGetApiVersion", PUPPET_CONTEXT_VERSION, {ARG_PRIMARY}, MADE_NOTHING, 0},
	{"cuCtxGetId", PUPPET_CONTEXT_ID, {ARG_PRIMARY}, MADE_NOTHING, 0},
	{"cuCtxCreate", PUPPET_CONTEXT_NEW, {ARG_ZERO}, MADE_NOTHING, CALL_FAILS | CALL_PUSHES},
	{"cuCtxDestroy", PUPPET_CONTEXT_DROP, {ARG_MADE}, MADE_CONTEXT, 0},
	{"cuCtxRecordEvent of another context", PUPPET_CONTEXT_RECORD, {ARG_OWN, ARG_OWN_EVENT},
		MADE_NOTHING, CALL_FAILS},
	{"cuMemGetInfo", PUPPET_MEM_INFO, {ARG_ZERO}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuMemAlloc", PUPPET_ALLOC, {ARG_BYTES}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_UNSAFE | CALL_FAILS},
	{"cuMemFree", PUPPET_FREE, {ARG_MADE}, MADE_PTR, CALL_UNSAFE | CALL_FAILS},
	{"cuIpcGetMemHandle", PUPPET_IPC_GET, {ARG_PTR}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuIpcOpenMemHandle", PUPPET_IPC_OPEN, {ARG_LAZY}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS | CALL_ONE_CONTEXT},
	{"cuIpcCloseMemHandle", PUPPET_IPC_CLOSE, {ARG_MADE}, MADE_OPENED,
		CALL_NEEDS_CONTEXT | CALL_FAILS | CALL_ONE_CONTEXT},
	{"cuMemGetAllocationGranularity", PUPPET_GRANULARITY, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuMemCreate", PUPPET_CREATE, {ARG_BYTES, ARG_ZERO, ARG_ONE}, MADE_NOTHING, 0},
	{"cuMemCreate of host memory", PUPPET_CREATE, {ARG_BYTES, ARG_HOST, ARG_ONE}, MADE_NOTHING,
		0},
	{"cuMemRelease", PUPPET_RELEASE, {ARG_MADE}, MADE_MEM, 0},
	{"cuMemExportToShareableHandle", PUPPET_EXPORT, {ARG_MEM}, MADE_NOTHING, 0},
	{"cuMemImportFromShareableHandle", PUPPET_IMPORT, {ARG_ZERO}, MADE_NOTHING, 0},
	{"cuMemAddressReserve", PUPPET_RESERVE, {ARG_BYTES}, MADE_NOTHING, 0},
	{"cuMemAddressFree", PUPPET_UNRESERVE, {ARG_MADE, ARG_BYTES}, MADE_RANGE, 0},
	{"cuMemMap", PUPPET_MAP, {ARG_MADE, ARG_BYTES, ARG_MADE_TOO}, MADE_RANGE_AND_MEM, 0},
	{"cuMemUnmap", PUPPET_UNMAP, {ARG_MADE, ARG_BYTES}, MADE_PLACED, 0},
	{"cuMemUnmap of nothing", PUPPET_UNMAP, {ARG_MADE, ARG_BYTES}, MADE_RANGE, 0},
	{"cuMemSetAccess", PUPPET_ACCESS, {ARG_MADE, ARG_BYTES, ARG_RW, ARG_ZERO}, MADE_MAPPED, 0},
	{"cuMemRetainAllocationHandle", PUPPET_RETAIN, {ARG_RANGE}, MADE_NOTHING, 0},
	{"cuMemHostAlloc", PUPPET_HOST_ALLOC, {ARG_BYTES}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_UNSAFE | CALL_FAILS},
	{"cuMemFreeHost", PUPPET_HOST_FREE, {ARG_MADE}, MADE_PINNED, CALL_UNSAFE | CALL_FAILS},
	{"cuMemHostRegister", PUPPET_REGISTER, {ARG_MADE, ARG_BYTES}, MADE_PAGES,
		CALL_NEEDS_CONTEXT | CALL_UNSAFE | CALL_FAILS},
	{"cuMemHostUnregister", PUPPET_UNREGISTER, {ARG_MADE}, MADE_REGISTERED,
		CALL_UNSAFE | CALL_FAILS},
	{"cuMemsetD8Async", PUPPET_SET, {ARG_PTR, ARG_BYTES, ARG_ONE, ARG_STREAM}, MADE_NOTHING,
		CALL_FAILS},
	{"cuMemsetD8Async in the default stream", PUPPET_SET,
		{ARG_PTR, ARG_BYTES, ARG_ONE, ARG_ZERO}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuMemsetD8Async in the thread's", PUPPET_SET,
		{ARG_PTR, ARG_BYTES, ARG_ONE, ARG_PER_THREAD}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuMemcpyAsync", PUPPET_COPY, {ARG_PTR, ARG_RANGE, ARG_BYTES, ARG_STREAM}, MADE_NOTHING,
		CALL_FAILS},
	{"cuStreamCreate", PUPPET_STREAM_NEW, {ARG_ONE}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuStreamDestroy", PUPPET_STREAM_END, {ARG_MADE}, MADE_STREAM, CALL_FAILS},
	OF_STREAMS("cuStreamSynchronize", PUPPET_SYNC, NOTHING_BEFORE, CALL_UNSAFE | CALL_FAILS),
	OF_STREAMS("cuStreamQuery", PUPPET_STREAM_QUERY, NOTHING_BEFORE, CALL_UNSAFE | CALL_FAILS),
	OF_STREAMS("cuStreamGetId", PUPPET_STREAM_ID, NOTHING_BEFORE, CALL_FAILS),
	OF_STREAMS("cuStreamIsCapturing", PUPPET_CAPTURING, NOTHING_BEFORE, CALL_FAILS),
	OF_STREAMS("cuStreamGetCaptureInfo", PUPPET_CAPTURE_INFO, NOTHING_BEFORE, CALL_FAILS),
	OF_STREAMS("cuLaunchHostFunc", PUPPET_CALL, NOTHING_BEFORE, CALL_FAILS),
	{"cuStreamWaitEvent", PUPPET_WAIT_EVENT, {ARG_STREAM, ARG_EVENT}, MADE_NOTHING, CALL_FAILS},
	{"cuStreamWaitEvent of the default one", PUPPET_WAIT_EVENT, {ARG_ZERO, ARG_EVENT},
		MADE_NOTHING, CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuThreadExchangeStreamCaptureMode", PUPPET_CAPTURE_MODE, {ARG_MODE}, MADE_NOTHING, 0},
	{"cuEventCreate", PUPPET_EVENT_NEW, {ARG_ZERO}, MADE_NOTHING,
		CALL_NEEDS_CONTEXT | CALL_FAILS},
	{"cuEventRecord", PUPPET_EVENT_RECORD, {ARG_OTHER_EVENT, ARG_STREAM}, MADE_NOTHING,
		CALL_FAILS},
	{"cuEventQuery", PUPPET_EVENT_QUERY, {ARG_EVENT}, MADE_NOTHING, CALL_UNSAFE | CALL_FAILS},
	{"cuEventQuery of another context's", PUPPET_EVENT_QUERY, {ARG_OWN_EVENT}, MADE_NOTHING,
		CALL_UNSAFE | CALL_FAILS},
	{"cuEventDestroy", PUPPET_EVENT_END, {ARG_MADE}, MADE_EVENT, CALL_FAILS},
};

const struct conform_call *conform_calls(size_t *ret_n)
{
	*ret_n = sizeof calls / sizeof *calls;
	return calls;
}

/* ---- the process */

void conform_world_begin(struct conform_world *world)
{
	uint64_t *value = world->value, shared;
	struct puppet *p = &world->p;

	memset(world, 0, sizeof *world);
	world->owner = conform_begin(true);
	*p = conform_begin(false);
	world->fd = conform_export(
		&world->owner, OK(&world->owner, CREATE, .a = BYTES, .b = 0, .c = 1));
	shared = OK(&world->owner, ALLOC, .a = BYTES);
	memcpy(world->handle, PUPPET(&world->owner, IPC_GET, .a = shared).blob,
		sizeof world->handle);
	value[ARG_ONE] = 1;
	value[ARG_BYTES] = BYTES;
	value[ARG_HOST] = HOST;
	value[ARG_RW] = RW;
	value[ARG_LAZY] = LAZY;
	value[ARG_PER_THREAD] = GM_CU_STREAM_PER_THREAD;
	value[ARG_OWN] = OK(p, CONTEXT_NEW, .a = 0);
	value[ARG_OWN_STREAM] = OK(p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	value[ARG_OWN_EVENT] = OK(p, EVENT, .a = value[ARG_OWN_STREAM]);
	OK(p, SYNC, .a = value[ARG_OWN_STREAM]);
	OK(p, CONTEXT_POP, .a = 0);
	value[ARG_PRIMARY] = OK(p, CONTEXT, .a = 0);
	value[ARG_STREAM] = OK(p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	world->captured = OK(p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	value[ARG_EVENT] = OK(p, EVENT, .a = value[ARG_STREAM]);
	value[ARG_OTHER_EVENT] = OK(p, EVENT_NEW, .a = 0);
	value[ARG_PTR] = OK(p, ALLOC, .a = BYTES);
	value[ARG_MEM] = OK(p, CREATE, .a = BYTES, .b = 0, .c = 1);
	value[ARG_RANGE] = conform_place(p, value[ARG_MEM], BYTES);
	OK(p, SYNC, .a = value[ARG_STREAM]);
}

void conform_world_end(struct conform_world *world)
{
	puppet_stop(&world->p);
	puppet_stop(&world->owner);
	close(world->fd);
}

/* ---- a call */

static struct puppet_answer open_handle(struct conform_world *world, bool aside)
{
	struct puppet_call call = {.op = PUPPET_IPC_OPEN, .aside = aside, .a = LAZY};

	memcpy(call.blob, world->handle, sizeof call.blob);
	return puppet_do(&world->p, &call, -1, NULL);
}

static struct conform_parts prepare_mapping(struct puppet *p, enum conform_made made)
{
	struct conform_parts parts = {0};

	parts.made = OK(p, RESERVE, .a = BYTES);
	if (made == MADE_RANGE)
		return parts;
	parts.made_too = OK(p, CREATE, .a = BYTES, .b = 0, .c = 1);
	if (made == MADE_RANGE_AND_MEM)
		return parts;
	OK(p, MAP, .a = parts.made, .b = BYTES, .c = parts.made_too);
	if (made == MADE_PLACED)
		OK(p, ACCESS, .a = parts.made, .b = BYTES, .c = RW, .d = 0);
	return parts;
}

struct conform_parts conform_prepare(struct conform_world *world, const struct conform_call *call)
{
	struct conform_parts parts = {0};
	struct puppet *p = &world->p;

	switch (call->made) {
	case MADE_NOTHING:
		break;
	case MADE_RETAINED:
		OK(p, CONTEXT_TAKE, .a = 0);
		break;
	case MADE_CONTEXT:
		parts.made = OK(p, CONTEXT_NEW, .a = 0);
		OK(p, CONTEXT_POP, .a = 0);
		break;
	case MADE_PTR:
		parts.made = OK(p, ALLOC, .a = BYTES);
		break;
	case MADE_OPENED:
		parts.made = open_handle(world, false).value;
		conform_true("a handle opens", parts.made != 0);
		break;
	case MADE_MEM:
		parts.made = OK(p, CREATE, .a = BYTES, .b = 0, .c = 1);
		break;
	case MADE_RANGE:
	case MADE_RANGE_AND_MEM:
	case MADE_MAPPED:
	case MADE_PLACED:
		return prepare_mapping(p, call->made);
	case MADE_PINNED:
		parts.made = OK(p, HOST_ALLOC, .a = BYTES);
		break;
	case MADE_PAGES:
	case MADE_REGISTERED:
		parts.made = OK(p, PAGES, .a = BYTES);
		if (call->made == MADE_REGISTERED)
			OK(p, REGISTER, .a = parts.made, .b = BYTES);
		break;
	case MADE_STREAM:
		parts.made = OK(p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
		break;
	case MADE_EVENT:
		parts.made = OK(p, EVENT_NEW, .a = 0);
		break;
	}
	return parts;
}

struct puppet_answer conform_make(struct conform_world *world, const struct conform_call *call,
	struct conform_parts parts, bool aside)
{
	struct puppet_call make = {.op = call->op, .aside = aside};
	uint64_t *args[] = {&make.a, &make.b, &make.c, &make.d};

	if (call->op == PUPPET_IPC_OPEN)
		return open_handle(world, aside);
	world->value[ARG_MADE] = parts.made;
	world->value[ARG_MADE_TOO] = parts.made_too;
	for (size_t i = 0; i < sizeof args / sizeof *args; i++)
		*args[i] = world->value[call->args[i]];
	return puppet_do(&world->p, &make, call->op == PUPPET_IMPORT ? world->fd : -1, NULL);
}

void conform_restore(struct conform_world *world, const struct conform_call *call,
	struct puppet_answer answer, bool aside, uint64_t context)
{
	struct puppet *p = &world->p;

	if (!answer.result && call->flags & CALL_PUSHES)
		OK(p, CONTEXT_POP, .aside = aside, .a = 0);
	OK(p, CONTEXT_SET, .aside = aside, .a = context);
	if (!answer.result && call->op == PUPPET_CONTEXT_NEW)
		OK(p, CONTEXT_DROP, .aside = aside, .a = answer.value);
}
