/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_CONTEXT_H
#define GM_CLIENT_CUDA_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cuda.h"
#include "common/limits.h"

/*
 * The contexts of one GPU in which the program was seen, and how this library gets into one. The
 * driver does not list a process's contexts, so each thread that allocates or frees shows the one
 * it has; the primary context is known when it is active. One set per GPU for the whole process,
 * whatever sessions and mappings use it. Memory of one GPU may be used by others, too (a copy
 * between two of them runs on either): those are known as sets beside it.
 *
 * A context may be destroyed at any time, by any thread. What the library had in it is gone with it
 * then, and so is all work that ran there. For the primary one the driver's own rule stands: who
 * resets it sees to it that nobody uses the device.
 */

struct gm_cuda_keeper;

struct gm_cuda_context {
	gm_cu_ctx cu;
	unsigned long long id; /* of the driver; 0: it gives none */
	uint64_t number;       /* as of gm_cuda_contexts_here() */
	/* Holds it, and waits for it. NULL: it is the primary one, which is retained, and there is
	 * another way to know when its work is over. */
	struct gm_cuda_keeper *keeper;
	/* With walking held. */
	bool gone;           /* not in the list any more */
	uint64_t generation; /* grows when another context has the handle: its events are gone */
	struct gm_cuda_point *spare; /* finished points, each with a driver event */
	unsigned refs;               /* of the list, and of points */
	struct gm_cuda_context *next, *next_gone;
};

/*
 * How far a context's work had come when an event was recorded: the context's part of that event
 * (cuda_event.h). A context keeps finished points that own a driver event, to use them again.
 */
struct gm_cuda_point {
	struct gm_cuda_context *context;
	uint64_t generation; /* the context's */
	gm_cu_event cu;      /* NULL: none */
	uint64_t number;     /* of the context's keeper; 0: it was not asked */
	struct gm_cuda_point *next;
};

struct gm_cuda_contexts;

/* Another GPU, whose contexts were seen with memory of this one. */
struct gm_cuda_beside {
	struct gm_cuda_contexts *contexts;
	struct gm_cuda_beside *next;
};

struct gm_cuda_contexts {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	/* Under a lock of the whole process. */
	unsigned users, refs; /* refs: of users, and of the sets that this one is beside */
	struct gm_cuda_contexts *next_set;
	/* Only users add to it, and with the last one it ends: who is one may go through it. */
	_Atomic(struct gm_cuda_beside *) beside;
	/* Who looks through the list has it, driver calls included; only so may one go from it.
	 * Nothing that waits for the GPU is called with it. Before lock. */
	pthread_mutex_t walking;
	struct gm_cuda_context *gone; /* since it was taken */
	/* Of what follows; held shortly, but for when a context is met for the first time. */
	pthread_mutex_t lock;
	struct gm_cuda_context *list;
	gm_cu_ctx primary; /* NULL: it is not in the list */
	unsigned retained; /* how often that was: a reset takes none of it back */
	bool blind;        /* one could not be noted: no event covers all */
};

/* The GPU's set; to be given back. -ENOMEM. */
int gm_cuda_contexts_get(
	const struct gm_cuda *cuda, gm_cu_device device, struct gm_cuda_contexts **ret_contexts);
/* NULL is fine. With the last one the primary context is released, if it was retained. */
void gm_cuda_contexts_put(struct gm_cuda_contexts *contexts);

/*
 * Notes the calling thread's context, which is about to use memory of this GPU or has done so. Its
 * number, which no other context of the process has; a thread without one counts to the primary
 * context. Where it is one of another GPU, that GPU is beside this one from now on, and there is no
 * number for it: whose default stream is meant cannot be told.
 */
#define GM_CUDA_CONTEXT_BESIDE UINT64_MAX
uint64_t gm_cuda_contexts_here(struct gm_cuda_contexts *contexts);
/* Whether the program has a context on this GPU, as far as that is known. */
bool gm_cuda_contexts_any(struct gm_cuda_contexts *contexts);

/* What an enter changed in this thread, for leave to undo. */
struct gm_cuda_entered {
	bool pushed;
	bool exchanged;
	gm_cu_capture_mode mode;
};

/* Makes a context of the GPU current: the thread's own if it has one, else one that is known, else
 * the primary one, which is made for that. And says to the driver that what is called means no harm
 * to a capture that the program may have under way. */
gm_cu_result gm_cuda_contexts_enter(
	struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered);
/* The second half of it alone. */
void gm_cuda_contexts_relax(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *ret_entered);
void gm_cuda_contexts_leave(struct gm_cuda_contexts *contexts, struct gm_cuda_entered *entered);

enum gm_cuda_context_outcome {
	GM_CUDA_CONTEXT_GONE = -1, /* it was destroyed, and is in the list no more */
};
/* Makes the one of that number current. A result of the driver, or GM_CUDA_CONTEXT_GONE. */
int gm_cuda_contexts_enter_number(
	struct gm_cuda_contexts *contexts, uint64_t number, struct gm_cuda_entered *ret_entered);

/* ---- one by one */

/* Takes walking: what is in the list now stays there until it is let go, or goes before one's own
 * eyes. */
void gm_cuda_contexts_walk(struct gm_cuda_contexts *contexts);
void gm_cuda_contexts_walked(struct gm_cuda_contexts *contexts);

/* ---- with walking held */

/* The first of the list; the primary context is in it if it is active. *ret_result: why not all of
 * them are known. */
struct gm_cuda_context *gm_cuda_contexts_first(
	struct gm_cuda_contexts *contexts, gm_cu_result *ret_result);

/* Whether it is still there, and still the same: otherwise it has gone from the list, or has
 * another generation. A result of the driver, or GM_CUDA_CONTEXT_GONE. */
int gm_cuda_context_look(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context);
/* The same, and makes it current. */
int gm_cuda_context_enter(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_entered *ret_entered);
/* Whether what was made in it can be used by this thread without fear that it is destroyed at this
 * moment: the context is the primary one, or the program uses it here. */
bool gm_cuda_context_safe(
	const struct gm_cuda_contexts *contexts, const struct gm_cuda_context *context);
/* Whether a result says that the context is no more; then it has gone from the list. */
bool gm_cuda_context_ended(
	struct gm_cuda_contexts *contexts, struct gm_cuda_context *context, gm_cu_result result);
/* Lets go of one reference. */
void gm_cuda_context_unref(struct gm_cuda_context *context);

#endif
