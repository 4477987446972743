/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_WEIGHTS_H
#define GPUMEM_WEIGHTS_H

/*
 * libgpumem-weights: the weights of models, loaded once and used by every process that attaches.
 *
 * gpumem_weights_load() streams a safetensors file, or a folder with such files, into one buffer of a device and
 * publishes it under a name (gpumem_publish()). From then on the weights stay on the device, whatever becomes of the
 * process that loaded them or of the daemon. gpumem_weights_attach() maps them in another process, without a copy.
 *
 * What a program may rely on:
 *
 *   - A name always stands for a complete version: the new one or the one before, never a part. If a load fails or is
 *     cancelled, or its process dies, nothing is published and nothing stays charged.
 *   - Processes that have attached keep their version while others are published, and after the name was removed.
 *   - Every tensor begins at a multiple of GPUMEM_WEIGHTS_ALIGNMENT bytes.
 *   - The library does not trust files. It refuses a damaged or hostile file, and the error sentence names the file,
 *     the offset of the problem in it, and the tensor. It checks what another user published in the same way.
 *
 * Errors and threads are as in gpumem.h: gpumem_error_detail() has the error sentence.
 */

#include "gpumem_copy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPUMEM_WEIGHTS_ALIGNMENT 256
/* The library refuses models that exceed these bounds. */
#define GPUMEM_WEIGHTS_HEADER_MOST  100000000 /* bytes, of all headers of a model, or of its index */
#define GPUMEM_WEIGHTS_TENSORS_MOST 262144    /* of a model */
#define GPUMEM_WEIGHTS_FILES_MOST   512       /* of a model */
#define GPUMEM_WEIGHTS_DIMS_MOST    32        /* of a tensor */

/* The weights of a model, mapped in this process. */
typedef struct gpumem_weights gpumem_weights;

/* One tensor. This struct does not grow in later versions. */
typedef struct gpumem_weights_tensor {
	const char *name;
	const char *dtype;     /* as safetensors has it: "F32", "BF16", "I64", ... */
	const uint64_t *shape; /* ndim numbers; NULL if ndim is 0 */
	uint64_t bytes;        /* may be 0 */
	void *ptr;             /* on the device; contiguous, in row-major order */
	uint32_t ndim;
	uint32_t bits; /* of one element */
} gpumem_weights_tensor;

typedef struct gpumem_weights_options {
	size_t size;
	/* Called with the number of bytes that have arrived, as in gpumem_copy_options. May be NULL. */
	gpumem_copy_fn progress;
	void *user;
	uint32_t *cancel; /* as in gpumem_copy_options; may be NULL */
	/* If not 0, the name may exist already: these weights then become its next version. */
	uint32_t replace;
	/* How long to wait for memory if the device is full, as in gpumem_buffer_options. */
	uint32_t wait_ms;
	/* Who may attach, and how, and for how long: as in gpumem_publish_options. */
	gpumem_audience audience;
	uint32_t id;
	gpumem_share_mode mode;
	uint32_t flags;
	uint32_t expires_s;
} gpumem_weights_options;

#define GPUMEM_WEIGHTS_OPTIONS_INIT \
	{ \
		sizeof(gpumem_weights_options), NULL, NULL, NULL, 0, 0, GPUMEM_AUDIENCE_DOMAIN, 0, \
			GPUMEM_SHARE_READ_ONLY, 0, 0 \
	}

/*
 * Loads a model and publishes it. path is a safetensors file; or an index of shards, which ends in ".index.json"; or a
 * folder with model.safetensors.index.json or model.safetensors. name is a name of the caller's user, as in
 * gpumem_publish(). options may be NULL. If ret_weights is not NULL, the call also
 * maps the weights in this process; end that with gpumem_weights_detach().
 *
 *   GPUMEM_E_INVALID      A file is damaged, or an argument is wrong.
 *   GPUMEM_E_NOT_FOUND    There is no such file, or no such device.
 *   GPUMEM_E_DENIED       A file may not be read.
 *   GPUMEM_E_BUSY         The name is taken: set replace, choose another, or remove it.
 *   GPUMEM_E_CANCELLED    The load was cancelled.
 *   GPUMEM_E_NO_MEMORY, GPUMEM_E_LIMIT, GPUMEM_E_TIMEOUT  The device has no room, or a limit allows no more.
 *   GPUMEM_E_SYSTEM       A file could not be read, or changed while it was read.
 */
GPUMEM_API gpumem_status gpumem_weights_load(gpumem_session *session, uint32_t device,
	const char *path, const char *name, const gpumem_weights_options *options,
	gpumem_weights **ret_weights);

/*
 * Maps the current version of the weights with this name. name may be that of another user, "uid:1000/llama". If version
 * is not 0, it must be the current version: new readers cannot get older ones.
 *
 *   GPUMEM_E_NOT_FOUND  There is no such name, it has another version, or its buffer does not hold weights.
 *   GPUMEM_E_INVALID    What was published under the name is not a table of tensors that fits the buffer.
 */
GPUMEM_API gpumem_status gpumem_weights_attach(
	gpumem_session *session, const char *name, uint64_t version, gpumem_weights **ret_weights);
/* Unmaps the weights. Their tensors and pointers become invalid. Never waits. weights may be NULL. The session must not
 * have ended. */
GPUMEM_API void gpumem_weights_detach(gpumem_weights *weights);

GPUMEM_API size_t gpumem_weights_count(const gpumem_weights *weights);
/* Tensors are in the order of the files. NULL: there is no such tensor. Valid until gpumem_weights_detach(). */
GPUMEM_API const gpumem_weights_tensor *gpumem_weights_at(
	const gpumem_weights *weights, size_t index);
GPUMEM_API const gpumem_weights_tensor *gpumem_weights_find(
	const gpumem_weights *weights, const char *name);
GPUMEM_API uint64_t gpumem_weights_version(const gpumem_weights *weights);
GPUMEM_API uint32_t gpumem_weights_device(const gpumem_weights *weights);
/* The size of all tensors together, without the padding between them. */
GPUMEM_API uint64_t gpumem_weights_bytes(const gpumem_weights *weights);
/* The buffer with all tensors, which belongs to the weights; for example for gpumem_copy_out(). */
GPUMEM_API gpumem_buffer *gpumem_weights_buffer(const gpumem_weights *weights);

/* Weights under a name. This struct does not grow in later versions. */
typedef struct gpumem_weights_entry {
	const char *name; /* as gpumem_weights_attach() takes it */
	uint64_t version;
	/* As the publisher says; gpumem_weights_attach() checks them. */
	uint64_t tensors; /* 0: not known */
	uint64_t bytes;   /* of all tensors */
	uint32_t device;
	uint32_t owner;   /* uid */
	uint32_t readers; /* how often they are attached now */
} gpumem_weights_entry;

/* Lists the weights of the caller's user, and those of others that this process may attach to. Free
 * *ret_entries with gpumem_weights_list_free(); it is NULL if there are none. */
GPUMEM_API gpumem_status gpumem_weights_list(
	gpumem_session *session, gpumem_weights_entry **ret_entries, size_t *ret_count);
/* entries may be NULL. */
GPUMEM_API void gpumem_weights_list_free(gpumem_weights_entry *entries);

/* Removes a name, as gpumem_unpublish(), but only if it stands for weights. Processes that attached keep them.
 * GPUMEM_E_NOT_FOUND: there are no such weights. */
GPUMEM_API gpumem_status gpumem_weights_remove(gpumem_session *session, const char *name);

static inline void gpumem_weights_cleanup(gpumem_weights **weights)
{
	gpumem_weights_detach(*weights);
	*weights = NULL;
}
#if defined(__GNUC__)
#define GPUMEM_AUTO_WEIGHTS __attribute__((cleanup(gpumem_weights_cleanup)))
#endif

#ifdef __cplusplus
}
#endif

#endif
