/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans before it allocates: how much memory a model needs, and which device has room for it. Without
 * arguments the model is a small one, so that it fits everywhere.
 *
 *   place                                                                      a small model
 *   place HIDDEN INTERMEDIATE LAYERS VOCAB HEADS KV_HEADS CONTEXT BYTES        one of your own
 *   place 4096 14336 32 32000 32 8 4096 2                                      Mistral 7B
 */
#include <gpumem/gpumem_plan.h>
#include <stdio.h>
#include <stdlib.h>

#define MiB ((double)(1 << 20))

static const char *const fits[] = {
	"granted at once", "granted once others return what they cache", "would wait", "refused"};

static void show(void *user, const gpumem_placement *p)
{
	(void)user;
	printf("device %u: room for %.0f MiB, %s%s%s\n", p->device, (double)p->room / MiB,
		fits[p->fit], *p->why ? ": " : "", p->why);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: place [HIDDEN INTERMEDIATE LAYERS VOCAB HEADS KV_HEADS CONTEXT BYTES]\n");
	return 2;
}

int main(int argc, char **argv)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = NULL;
	gpumem_model model = GPUMEM_MODEL_INIT;
	gpumem_estimate need = GPUMEM_ESTIMATE_INIT;
	gpumem_placement place = GPUMEM_PLACEMENT_INIT;
	uint64_t dimensions[7] = {512, 1376, 8, 32000, 8, 4, 512};

	if (argc != 1 && argc != 9)
		return usage();
	for (int i = 0; i < 7 && argc == 9; i++) {
		char *end;
		dimensions[i] = strtoull(argv[i + 1], &end, 10);
		if (*end)
			return usage();
	}
	model.hidden = dimensions[0];
	model.intermediate = dimensions[1];
	model.layers = dimensions[2];
	model.vocab = dimensions[3];
	model.heads = dimensions[4];
	model.kv_heads = dimensions[5];
	model.context = dimensions[6];
	model.bytes_per_weight = argc == 9 ? strtod(argv[8], NULL) : 2;

	if (gpumem_estimate_inference(&model, &need))
		goto failed;
	printf("%llu parameters: weights %.0f MiB, KV cache %.0f MiB, activations %.0f MiB\n",
		(unsigned long long)need.parameters, (double)need.weights / MiB,
		(double)need.kv_cache / MiB, (double)need.activations / MiB);

	if (gpumem_connect(NULL, &session) || gpumem_place_each(session, need.total, show, NULL) ||
		gpumem_place(session, need.total, GPUMEM_FIT_RECLAIM, &place))
		goto failed;

	/* Another process may have been quicker: the answer was only advice. */
	if (gpumem_buffer_create(session, place.device, need.total, NULL, &buffer))
		goto failed;
	printf("got %.0f MiB on device %u\n", (double)need.total / MiB, place.device);
	return 0;

failed:
	fprintf(stderr, "place: %s\n", gpumem_error_detail());
	return 1;
}
