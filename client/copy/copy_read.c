/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills buffers with what a function of the program's writes, such as one that gathers the parts of several
 * files. The function writes into slots, or into the buffer itself where the CPU sees it.
 */
#include <errno.h>
#include <string.h>

#include "client/copy/copy.h"
#include "common/cancel.h"

struct copy_read {
	struct gm_copy_transfer copy; /* comes first */
	gpumem_copy_read_fn read;
	void *user;
};

static int read_move(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n)
{
	const struct copy_read *source = ctx;

	int r = source->read(source->user, at, place, n);
	*ret_n = n;
	/* Zero and negative errnos have a meaning of their own here. */
	return r > 0 ? r : r == 0 ? 0 : EIO;
}

static gpumem_status read_explain(const struct gm_copy_transfer *copy, int error)
{
	return gm_error(GPUMEM_E_SYSTEM, "read() failed: %s: %llu of %llu bytes arrived",
		strerror(error), (unsigned long long)copy->result.bytes,
		(unsigned long long)copy->total);
}

static void read_deinit(struct copy_read *source)
{
	gm_copy_deinit(&source->copy);
}

gpumem_status gpumem_copy_read_in(gpumem_buffer *buffer, size_t offset, size_t bytes,
	gpumem_copy_read_fn read, void *user, gpumem_stream stream,
	const gpumem_copy_options *options, gpumem_copy_result *ret_result)
{
	GM_UNCANCELLED;
	__attribute__((cleanup(read_deinit))) struct copy_read source = {0};
	struct gm_copy_transfer *copy = &source.copy;

	gpumem_status status =
		gm_copy_init(copy, buffer, offset, bytes, false, stream, options, ret_result);
	if (status)
		return status;
	if (!read)
		return gm_error(GPUMEM_E_INVALID, "read must not be NULL");
	if (copy->options.strategy == GPUMEM_COPY_ASYNC ||
		copy->options.strategy == GPUMEM_COPY_MANAGED)
		return gm_error(GPUMEM_E_INVALID,
			"strategy must be auto, sync or staged for a function that reads");

	source.read = read;
	source.user = user;
	copy->move = read_move;
	copy->ctx = &source;
	copy->explain = read_explain;
	copy->result.strategy = GPUMEM_COPY_SYNC;
	if (bytes)
		status = gm_copy_run(copy, false);
	return gm_copy_end(copy, status, ret_result);
}
