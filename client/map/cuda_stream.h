/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_STREAM_H
#define GM_CLIENT_MAP_CUDA_STREAM_H

#include "client/map/map.h"

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

int gm_cuda_stream_word_open(void *ctx, int fd, bool read_only, struct gm_map_word **ret_word);
void gm_cuda_stream_word_close(void *ctx, struct gm_map_word *word);
void gm_cuda_stream_word_settle(void *ctx);
int gm_cuda_stream_post(void *ctx, gpumem_stream stream, struct gm_map_word *word, uint64_t value);
int gm_cuda_stream_await(void *ctx, gpumem_stream stream, struct gm_map_word *word, uint64_t value);

#endif
