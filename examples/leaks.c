/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for memory that was not freed. The session tracks everything with its call stack, so its end
 * reports what is lost, and where it was allocated. An unmodified program does the same with
 * GPUMEM_TRACK=stacks in its environment.
 */
#include <gpumem/gpumem.h>
#include <stdio.h>

#define MiB ((size_t)1 << 20)

static void on_leak(void *user, const gpumem_leak *leak)
{
	(void)user;
	printf("not freed: %llu MiB, %s, %s, %s\n", (unsigned long long)(leak->bytes / MiB),
		*leak->tag ? leak->tag : "no tag", *leak->type ? leak->type : "no type",
		*leak->precision ? leak->precision : "no precision");
}

/* Each step forgets its scratch memory. */
static int run_step(gpumem_session *session, gpumem_buffer *weights)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *scratch;

	options.tag = "scratch";
	if (gpumem_alloc(session, 0, 2 * MiB, NULL, &options, &scratch))
		return -1;
	/* From now on, the buffer counts as used just now. */
	return gpumem_buffer_touch(weights) ? -1 : 0;
}

int main(void)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *weights = NULL;
	gpumem_connect_options how = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	uint64_t count = 0;

	how.track = GPUMEM_TRACK_STACKS;
	options.tag = "layer 1";
	options.type = "weights";
	options.precision = "bf16";
	if (gpumem_connect(&how, &session) ||
		gpumem_buffer_create(session, 0, 16 * MiB, &options, &weights))
		goto failed;
	for (int i = 0; i < 3; i++)
		if (run_step(session, weights))
			goto failed;

	/* What is not freed now. A server would ask for what is older than ten minutes. */
	if (gpumem_leaks(session, 0, on_leak, NULL, &count))
		goto failed;
	printf("%llu in all; gpumemctl buffers --stacks shows the same while this runs\n",
		(unsigned long long)count);
	return 0;

failed:
	fprintf(stderr, "leaks: %s\n", gpumem_error_detail());
	return 1;
}
