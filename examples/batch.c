/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All tensors of a small model in one request. Either all of them are there or none, and the call
 * costs as much as one buffer.
 */
#include <gpumem/gpumem.h>
#include <stdio.h>

#define LAYERS 24
#define MiB    ((size_t)1 << 20)

int main(void)
{
	/* Both end when main() returns, the batch first. */
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_BATCH gpumem_batch *model = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch_entry tensors[1 + 2 * LAYERS];
	size_t n = 0, total = 0, failed;

	tensors[n++] = (gpumem_batch_entry){32 * MiB, 0, "embedding"};
	for (int i = 0; i < LAYERS; i++) {
		tensors[n++] = (gpumem_batch_entry){2 * MiB, 0, "attention"};
		tensors[n++] = (gpumem_batch_entry){4 * MiB, 4096, "feed-forward"};
	}

	options.ret_failed = &failed;
	if (gpumem_connect(NULL, &session)) {
		fprintf(stderr, "batch: %s\n", gpumem_error_detail());
		return 1;
	}
	if (gpumem_batch_create(session, 0, tensors, n, &options, &model)) {
		/* The sentence names the tensor that did not fit, and failed is its index. */
		fprintf(stderr, "batch: %s\n", gpumem_error_detail());
		return 1;
	}

	for (size_t i = 0; i < n; i++)
		total += gpumem_batch_size(model, i);
	printf("%zu tensors, %zu MiB, the first at %p\n", n, total / MiB,
		gpumem_batch_ptr(model, 0));

	/* One entry can be freed alone. Work on its stream may still use it. */
	if (gpumem_batch_free_entry(model, 0, NULL)) {
		fprintf(stderr, "batch: %s\n", gpumem_error_detail());
		return 1;
	}
	return 0;
}
