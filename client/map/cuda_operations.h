/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_OPERATIONS_H
#define GM_CLIENT_MAP_CUDA_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/map/cuda_context.h"
#include "client/map/map.h"
#include "common/cuda/cuda.h"

/* The operations of map_cuda.c that have files of their own: cuda_ipc.c, cuda_managed.c, cuda_stream.c, cuda_transfer.c. */

/* Chunks of the ipc transport: the operations attach and detach of struct gm_map_ops, for a GPU. ctx is a
 * struct gm_map_cuda. */

int gm_cuda_ipc_attach(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr);
int gm_cuda_ipc_detach(void *ctx, void *addr);

/* Managed memory of a GPU, for map_cuda.c. The caller has a context of the GPU current, and the memory belongs to that
 * context: when the program destroys the context, the driver frees the memory. gm_cuda_managed_free() notices that by
 * the id of the context, and then leaves the address alone, because other memory may lie there. An id of 0 means that
 * this driver has no ids. */
gm_cu_result gm_cuda_managed_make(const struct gm_cuda *cuda, uint64_t bytes, bool attach_host,
	void **ret_addr, uint64_t *ret_id);
gm_cu_result gm_cuda_managed_free(const struct gm_cuda *cuda, void *addr, uint64_t id);
gm_cu_result gm_cuda_managed_prefetch(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	gm_cu_device device, bool to_host, gm_cu_stream stream);
gm_cu_result gm_cuda_managed_advise(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	int advice, gm_cu_device device, bool host);

/* The operations of struct gm_map_ops that have to do with streams, for a GPU: which stream it is, events
 * on it, and signals. ctx is a struct gm_map_cuda. */

int gm_cuda_stream_open(void *ctx, gpumem_stream *ret_stream);
void gm_cuda_stream_close(void *ctx, gpumem_stream stream);
int gm_cuda_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id);
uint64_t gm_cuda_stream_captured_into(void *ctx, gpumem_stream stream);

int gm_cuda_stream_record(void *ctx, struct gm_map_event **ret_event);
int gm_cuda_stream_record_on(void *ctx, gpumem_stream stream, struct gm_map_event **ret_event);
int gm_cuda_stream_passed(void *ctx, struct gm_map_event *event);
int gm_cuda_stream_order(void *ctx, gpumem_stream stream, struct gm_map_event *event);
void gm_cuda_stream_forget(void *ctx, struct gm_map_event *event);

int gm_cuda_stream_control_open(
	void *ctx, int fd, bool read_only, struct gm_map_control **ret_word);
void gm_cuda_stream_control_close(void *ctx, struct gm_map_control *word);
void gm_cuda_stream_control_settle(void *ctx);
int gm_cuda_stream_post(
	void *ctx, gpumem_stream stream, struct gm_map_control *word, uint64_t value);
int gm_cuda_stream_await(
	void *ctx, gpumem_stream stream, struct gm_map_control *word, uint64_t value);

/* Copies between memory of a GPU and pinned host memory, on a stream of its own that waits for no other,
 * and waits for the copy. Returns a result of the driver. */
int gm_cuda_transfer(struct gm_cuda_contexts *contexts, void *to, const void *from, uint64_t bytes);

#endif
