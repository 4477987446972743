/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of a model that are used in turn. Each is pinned while it is used, and evictable otherwise: when
 * the device is full, layers that wait for their turn move to host memory and come back by themselves.
 */
#include <gpumem/gpumem_evict.h>
#include <stdio.h>

#define MiB    ((size_t)1 << 20)
#define LAYERS 8

static int fail(void)
{
	fprintf(stderr, "evict: %s\n", gpumem_error_detail());
	return 1;
}

int main(void)
{
	/* All buffers end with the session, when main() returns. */
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	gpumem_buffer *layers[LAYERS];
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	size_t back = 0;

	options.tag = "layer";
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	if (gpumem_connect(NULL, &session))
		return fail();
	for (int i = 0; i < LAYERS; i++)
		if (gpumem_buffer_create(session, 0, 4 * MiB, &options, &layers[i]))
			return fail();

	/* The daemon would ask for this if somebody needed the memory; or gpumemctl evict. */
	for (int i = 0; i < LAYERS; i += 2)
		if (gpumem_buffer_evict(layers[i]))
			return fail();

	for (int i = 0; i < LAYERS; i++) {
		int away = gpumem_buffer_location(layers[i]) == GPUMEM_LOCATION_HOST;

		if (gpumem_buffer_pin(layers[i], NULL, NULL))
			return fail();
		/* Here kernels use gpumem_buffer_ptr(layers[i]), on a stream. */
		if (gpumem_buffer_unpin(layers[i], GPUMEM_STREAM_ANY))
			return fail();
		back += (size_t)away;
	}
	printf("%d layers were used, and %zu of them came back from host memory\n", LAYERS, back);
	return 0;
}
