/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache that grows while requests come in, at the same address: nothing is copied, and pointers
 * into it stay valid. When the work is over, it gives most of its memory back.
 */
#include <gpumem/gpumem.h>
#include <stdio.h>

#define MiB   ((size_t)1 << 20)
#define TOKEN (MiB / 2) /* what one token of a conversation needs */

static int fail(void)
{
	fprintf(stderr, "resize: %s\n", gpumem_error_detail());
	return 1;
}

int main(void)
{
	/* Both end when main() returns, the buffer first. */
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *cache = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer_policy policy = GPUMEM_BUFFER_POLICY_INIT;
	size_t size = 8 * MiB, grown = 0;

	/* Addresses for 16 GiB, and memory for 8 MiB. */
	options.tag = "kv-cache";
	options.max_size = 16384 * MiB;
	policy.factor = 1.5;
	policy.step = 4 * MiB;
	if (gpumem_connect(NULL, &session) ||
		gpumem_buffer_create(session, 0, size, &options, &cache) ||
		gpumem_buffer_set_policy(cache, &policy))
		return fail();
	const void *start = gpumem_buffer_ptr(cache);

	for (size_t tokens = 1; tokens <= 256; tokens++) {
		int moved;

		if (gpumem_buffer_ensure(cache, tokens * TOKEN, NULL, &moved))
			return fail();
		if (moved)
			printf("it moved to %p\n", gpumem_buffer_ptr(cache));
		if (gpumem_buffer_size(cache) != size) {
			size = gpumem_buffer_size(cache);
			grown++;
		}
		/* gpumemctl buffers shows how full it is. */
		if (gpumem_buffer_report_use(cache, tokens * TOKEN))
			return fail();
	}
	printf("grew %zu times, to %zu MiB, %s\n", grown, size / MiB,
		gpumem_buffer_ptr(cache) == start ? "where it was" : "and moved");

	/* Nothing shrinks by itself. Work on the stream may still use what is cut off. */
	if (gpumem_buffer_resize(cache, 8 * MiB, NULL, NULL))
		return fail();
	printf("and shrank to %zu MiB\n", gpumem_buffer_size(cache) / MiB);
	return 0;
}
