/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_PLAN_H
#define GPUMEM_PLAN_H

/*
 * Planning, for programs that choose a device before they allocate: how much memory a model needs, and
 * which device has room for it. All of it is advice. Nothing is reserved.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a model needs */

/*
 * A decoder-only transformer, with grouped attention and a gated MLP, that answers one request at a
 * time. gpumem_estimate_inference(3) has the formulas.
 */
typedef struct gpumem_model {
	size_t size;
	uint64_t hidden;       /* the width of a layer */
	uint64_t intermediate; /* the width of its MLP */
	uint64_t layers;
	uint64_t vocab;    /* tokens */
	uint64_t heads;    /* of attention; they must divide hidden, unless head_dim is given */
	uint64_t kv_heads; /* of keys and values; they must divide heads */
	uint64_t context;  /* tokens of prompt and answer together */
	double bytes_per_weight; /* more than 0, at most 16; 0.5: four bits */
	uint64_t head_dim;       /* the width of a head; 0: hidden / heads */
	uint32_t tied;           /* not 0: the output layer uses the embeddings' weights */
	/* Of the KV cache and the activations, at most 16. 0: as of the weights, rounded up, and at least
	 * 2: quantised weights compute with 16 bits. */
	uint32_t bytes_per_value;
} gpumem_model;

#define GPUMEM_MODEL_INIT \
	{ \
		sizeof(gpumem_model), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* What the model needs, in bytes. */
typedef struct gpumem_estimate {
	size_t size;
	uint64_t parameters; /* their number */
	uint64_t weights;
	uint64_t kv_cache;
	uint64_t activations;
	uint64_t total; /* of the last three */
} gpumem_estimate;

#define GPUMEM_ESTIMATE_INIT \
	{ \
		sizeof(gpumem_estimate), 0, 0, 0, 0, 0 \
	}

/* Estimates the memory that inference takes. Needs no session and sends no message. Dimensions that
 * no model can have, and those whose products pass 2^63, are refused with GPUMEM_E_INVALID; the
 * sentence names the member. */
GPUMEM_API gpumem_status gpumem_estimate_inference(
	const gpumem_model *model, gpumem_estimate *ret_estimate);

/* ---- which device has room */

/* How the daemon would answer a request for memory on a device. The better answers come first. */
typedef enum gpumem_fit {
	GPUMEM_FIT_NOW = 0,     /* it would be granted at once */
	GPUMEM_FIT_RECLAIM = 1, /* other clients say that they could return what it lacks */
	GPUMEM_FIT_WAIT = 2,    /* it would have to wait until others free memory that they use */
	GPUMEM_FIT_NONE = 3,    /* it would be refused, however long it may wait */
} gpumem_fit;

typedef struct gpumem_placement {
	size_t size;
	uint32_t device;
	gpumem_fit fit;
	uint64_t room; /* bytes that the daemon would grant this client at once */
	char why[256]; /* why it would not be granted at once; "": it would */
} gpumem_placement;

#define GPUMEM_PLACEMENT_INIT \
	{ \
		sizeof(gpumem_placement), 0, GPUMEM_FIT_NOW, 0, \
		{ \
			0 \
		} \
	}

/*
 * Asks the daemon which device has room for this many bytes. The limits of this client, the guarantees
 * of others and what could be reclaimed all count. The call chooses the best fit, and among equals the
 * device with the most room. at_worst says what counts as room: GPUMEM_FIT_NOW, _RECLAIM or _WAIT. If there
 * is no such device, returns GPUMEM_E_NO_MEMORY or GPUMEM_E_LIMIT; the sentence says why, device by
 * device. Pinned host memory is never chosen.
 *
 * This is advice. Nothing is reserved, and another client may take the room a moment later.
 */
GPUMEM_API gpumem_status gpumem_place(gpumem_session *session, uint64_t bytes, gpumem_fit at_worst,
	gpumem_placement *ret_placement);
/* The same for all devices: calls fn for each, the best first. placement is valid only during the
 * call. fn runs on the calling thread and may call everything except gpumem_disconnect(). */
typedef void (*gpumem_placement_fn)(void *user, const gpumem_placement *placement);
GPUMEM_API gpumem_status gpumem_place_each(
	gpumem_session *session, uint64_t bytes, gpumem_placement_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif
