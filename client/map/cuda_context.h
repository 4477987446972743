/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_CONTEXT_H
#define GM_CLIENT_CUDA_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"
#include "common/bounds.h"
#include "common/lock.h"

/*
 * The contexts of one GPU that the program uses, and how this library enters one of them.
 *
 * The driver does not list a process's contexts. So each thread that allocates or frees shows the
 * context that it has current; the primary context is known once it is active. The process has one
 * set of contexts per GPU, shared by all sessions and mappings. Other GPUs may use memory of this
 * one too (a copy between two GPUs runs on either of them): their sets are noted "beside" this one.
 *
 * The program may destroy a context at any time and from any thread. Everything that the library
 * had in the context is then gone, and so is all work that ran there. For the primary context the
 * driver's own rule applies: whoever resets it makes sure that nobody uses the device.
 *
 * Each set has two locks, taken in this order:
 *   walking   Held by whoever goes through the list of contexts, during driver calls too. A context
 *             leaves the list only while this lock is held. Nothing that waits for the GPU is
 *             called with it held.
 *   lock      Protects the list. Held for a short time only, unless a context is met for the first
 *             time.
 */

struct gm_cuda_holder;

struct gm_cuda_context {
	gm_cu_ctx cu;
	unsigned long long id; /* given by the driver; 0: this driver gives none */
	uint64_t number;       /* as gm_cuda_contexts_here() returns it */
	/* Holds the context and waits for it. NULL: this is the primary context. It is retained
	 * instead, and the driver has events that cover all of it. */
	struct gm_cuda_holder *keeper;
	/* The rest is protected by walking. */
	bool gone;                   /* it is no longer in the list */
	uint64_t generation;         /* grows when a new context has the handle */
	struct gm_cuda_point *spare; /* finished points, each with an event of the driver's */
	unsigned refs;               /* held by the list and by points */
	struct gm_cuda_context *next, *next_gone;
};

/*
 * How far a context's work had come when an event was recorded: the context's part of that event
 * (cuda_event.h). A context keeps finished points that have an event of the driver's, to use them
 * again.
 */
struct gm_cuda_point {
	struct gm_cuda_context *context;
	uint64_t generation; /* of the context when the point was made */
	gm_cu_event cu;      /* NULL: none */
	uint64_t number;     /* of the context's keeper; 0: the keeper was not asked */
	struct gm_cuda_point *next;
};

struct gm_cuda_contexts;

/* Another GPU, whose contexts were seen using memory of this one. */
struct gm_cuda_beside {
	struct gm_cuda_contexts *contexts;
	struct gm_cuda_beside *next;
};

struct gm_cuda_contexts {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	/* Protected by one lock for all sets of the process. */
	unsigned users, refs; /* refs: held by users, and by the sets that this one is beside */
	struct gm_cuda_contexts *next_set;
	/* Only users add to this list, and it ends with the last user. So a user may go through it
	 * without a lock. */
	_Atomic(struct gm_cuda_beside *) beside;
	struct gm_lock walking;
	struct gm_cuda_context *gone; /* those that left the list since walking was taken */
	struct gm_lock lock;          /* protects the rest */
	struct gm_cuda_context *list;
	gm_cu_ctx primary; /* NULL: the primary context is not in the list */
	unsigned retained; /* how often it was retained; a reset does not undo that */
	bool blind;        /* a context could not be noted, so no event covers all of them */
};

/* Returns the set of a GPU and counts the caller as a user of it. -ENOMEM. */
int gm_cuda_contexts_get(
	const struct gm_cuda *cuda, gm_cu_device device, struct gm_cuda_contexts **ret_contexts);
/* Ends one use of the set, which may be NULL. The last one releases the primary context if it was
 * retained. */
void gm_cuda_contexts_put(struct gm_cuda_contexts *contexts);

/*
 * Notes the context of the calling thread, which is about to use memory of this GPU or has done so.
 * Returns its number, which no other context of the process has. A thread without a context counts
 * as one in the primary context.
 *
 * If the context is one of another GPU, notes that GPU beside this one and returns
 * GM_CUDA_CONTEXT_BESIDE: nobody can tell whose default stream is meant.
 */
#define GM_CUDA_CONTEXT_BESIDE UINT64_MAX
uint64_t gm_cuda_contexts_here(struct gm_cuda_contexts *contexts);
/* Whether the program has a context on this GPU, as far as this library knows. */
bool gm_cuda_contexts_any(struct gm_cuda_contexts *contexts);

/* What an enter changed in this thread. gm_cuda_contexts_leave() undoes it. */
struct gm_cuda_entered {
	bool pushed;
	bool exchanged;
	gm_cu_capture_mode mode;
};

/* Makes a context of the GPU current: the thread's own if it has one, else a known one, else the
 * primary context, which is made if need be. Also does what gm_cuda_contexts_relax() does. */
gm_cu_result gm_cuda_contexts_enter(
	struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered);
/* Tells the driver that this thread's calls mean no harm to a capture that the program may have
 * under way. */
void gm_cuda_contexts_relax(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered);
void gm_cuda_contexts_leave(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *entered);

enum gm_cuda_context_outcome {
	GM_CUDA_CONTEXT_GONE = -1, /* the context was destroyed and has left the list */
};
/* Makes the context with that number current. Returns a result of the driver, or
 * GM_CUDA_CONTEXT_GONE. */
int gm_cuda_contexts_enter_number(
	struct gm_cuda_contexts *contexts, uint64_t number, struct gm_cuda_entered *ret_entered);

/* ---- going through the list */

/* Takes walking. Until gm_cuda_contexts_walked(), only this thread removes contexts from the
 * list. */
void gm_cuda_contexts_walk(struct gm_cuda_contexts *contexts);
void gm_cuda_contexts_walked(struct gm_cuda_contexts *contexts);

/* ---- the caller of these holds walking */

/* The first context of the list. The primary context is in the list if it is active. *ret_result:
 * an error if not all contexts are known. */
struct gm_cuda_context *gm_cuda_contexts_first(
	struct gm_cuda_contexts *contexts, gm_cu_result *ret_result);

/* Looks whether a context is still there. If it was destroyed, removes it from the list; if a new
 * context has its handle, raises its generation. Returns a result of the driver, or
 * GM_CUDA_CONTEXT_GONE. */
int gm_cuda_context_look(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context);
/* Does the same, and makes the context current. */
int gm_cuda_context_enter(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_entered *ret_entered);
/* Whether this thread can use objects made in the context without fear that another thread destroys
 * the context at this moment: it is the primary context, or this thread has it current. */
bool gm_cuda_context_safe(
	const struct gm_cuda_contexts *contexts, const struct gm_cuda_context *context);
/* Whether a result says that the context was destroyed. If so, removes it from the list. */
bool gm_cuda_context_ended(
	struct gm_cuda_contexts *contexts, struct gm_cuda_context *context, gm_cu_result result);
void gm_cuda_context_unref(struct gm_cuda_context *context);

#endif
