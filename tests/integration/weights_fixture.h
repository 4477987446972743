/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_WEIGHTS_FIXTURE_H
#define GM_TESTS_INTEGRATION_WEIGHTS_FIXTURE_H

/* A model of two files, and processes that load it, attach to it, and compare every byte with the files. They
 * never touch the memory themselves, so they are the same on the host and on a GPU. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpumem/gpumem_weights.h"
#include "tests/integration/ok.h"
#include "tests/integration/refused.h"
#include "tests/scratch.h"
#include "tests/unit/weights/model_writer.h"

/* In the first file: tensors of odd sizes, and one that is copied with several threads. In the second one: as in a
 * model, where everything is aligned already. */
#define MODEL_ODD        23u
#define MODEL_ODD_BYTES  1237u
#define MODEL_BIG        (12u * 1024 * 1024 + 1)
#define MODEL_EVEN       6u
#define MODEL_EVEN_BYTES (2u * 1024 * 1024)
#define MODEL_TENSORS    (MODEL_ODD + 1 + MODEL_EVEN)
#define MODEL_BYTES \
	((uint64_t)MODEL_ODD * MODEL_ODD_BYTES + MODEL_BIG + MODEL_EVEN * MODEL_EVEN_BYTES)

/* Writes the model to a folder that is there. */
static inline void weights_write(const char *folder, uint8_t seed)
{
	char path[256], index[8192], *header;
	size_t n = 0, odd = MODEL_ODD * MODEL_ODD_BYTES;

	header = model_header("odd.", MODEL_ODD, MODEL_ODD_BYTES);
	header = realloc(header, strlen(header) + 256);
	GM_REQUIRE(header);
	snprintf(header + strlen(header) - 1, 256,
		",\"big\":{\"dtype\":\"I8\",\"shape\":[1,%u],\"data_offsets\":[%zu,%zu]}}",
		MODEL_BIG, odd, odd + MODEL_BIG);
	snprintf(path, sizeof(path), "%s/model-1.safetensors", folder);
	model_write(path, header, odd + MODEL_BIG, seed);
	free(header);

	header = model_header("even.", MODEL_EVEN, MODEL_EVEN_BYTES);
	snprintf(path, sizeof(path), "%s/model-2.safetensors", folder);
	model_write(path, header, MODEL_EVEN * MODEL_EVEN_BYTES, seed);
	free(header);

	n += (size_t)snprintf(
		index, sizeof(index), "{\"weight_map\":{\"big\":\"model-1.safetensors\"");
	for (unsigned i = 0; i < MODEL_ODD + MODEL_EVEN; i++)
		n += (size_t)snprintf(index + n, sizeof(index) - n,
			",\"%s.%u\":\"model-%d.safetensors\"", i < MODEL_ODD ? "odd" : "even",
			i < MODEL_ODD ? i : i - MODEL_ODD, i < MODEL_ODD ? 1 : 2);
	snprintf(index + n, sizeof(index) - n, "}}");
	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", folder);
	model_write_text(path, index);
}

/* Compares a tensor with the data of its file from begin on. */
static inline void weights_require_tensor(const gpumem_weights *weights,
	const gpumem_weights_tensor *tensor, uint64_t begin, uint8_t seed)
{
	gpumem_buffer *buffer = gpumem_weights_buffer(weights);
	size_t place = (size_t)((uint8_t *)tensor->ptr - (uint8_t *)gpumem_buffer_ptr(buffer));
	uint8_t *bytes = malloc(tensor->bytes + 1);

	GM_REQUIRE(bytes);
	GM_REQUIRE_EQ(place % GPUMEM_WEIGHTS_ALIGNMENT, 0);
	OK(gpumem_copy_out(buffer, place, bytes, tensor->bytes, GPUMEM_STREAM_DONE, NULL, NULL));
	for (uint64_t i = 0; i < tensor->bytes; i++)
		if (bytes[i] != model_byte(begin + i, seed))
			GM_FAIL("%s: byte %llu is another one", tensor->name,
				(unsigned long long)i);
	free(bytes);
}

/* Compares all tensors with the files. */
static inline void weights_require_all(const gpumem_weights *weights, uint8_t seed)
{
	uint64_t begin = 0;

	GM_REQUIRE_EQ(gpumem_weights_count(weights), MODEL_TENSORS);
	GM_REQUIRE_EQ(gpumem_weights_bytes(weights), MODEL_BYTES);
	for (size_t i = 0; i < MODEL_TENSORS; i++) {
		const gpumem_weights_tensor *tensor = gpumem_weights_at(weights, i);

		if (i == MODEL_ODD + 1)
			begin = 0; /* the second file */
		weights_require_tensor(weights, tensor, begin, seed);
		begin += tensor->bytes;
		GM_REQUIRE(gpumem_weights_find(weights, tensor->name) == tensor);
	}
	GM_REQUIRE(!gpumem_weights_at(weights, MODEL_TENSORS));
	GM_REQUIRE(!gpumem_weights_find(weights, "none"));

	const gpumem_weights_tensor *big = gpumem_weights_find(weights, "big");
	GM_REQUIRE(!strcmp(big->dtype, "I8") && big->ndim == 2 && big->bits == 8);
	GM_REQUIRE(big->shape[0] == 1 && big->shape[1] == MODEL_BIG && big->bytes == MODEL_BIG);
}

/* ---- processes; the name is "llama" */

static gpumem_session *weights_join(const char *name); /* the test's own way */

struct weights_loading {
	const char *folder;
	uint8_t seed;
	uint32_t replace;
	bool stay; /* until it is told to go */
};

/* Loads, says the version, and is killed or ends. */
static inline void weights_loader(int channel, void *argument)
{
	const struct weights_loading *loading = argument;
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");
	gpumem_weights *weights = NULL;

	options.replace = loading->replace;
	OK(gpumem_weights_load(s, 0, loading->folder, "llama", &options, &weights));
	uint64_t version = gpumem_weights_version(weights);
	gm_text_say(channel, &version, sizeof(version));
	if (loading->stay)
		gm_hear_word(channel, 'e');
	weights_require_all(weights, loading->seed);
	gpumem_weights_detach(weights);
	gpumem_disconnect(s);
}

/* Loads in a process that is killed, or ends by itself. Returns the version. */
static inline uint64_t weights_loaded(struct weights_loading loading)
{
	struct gm_worker worker;
	uint64_t version;

	gm_worker_start(&worker, weights_loader, &loading);
	gm_hear(worker.channel, &version, sizeof(version));
	if (loading.stay)
		gm_worker_kill(&worker);
	else
		gm_worker_join(&worker);
	return version;
}

/* Attaches, says the version, compares with that seed when it is told to, and ends when it is told to. */
static inline void weights_reader(int channel, void *argument)
{
	uint8_t seed = *(const uint8_t *)argument;
	gpumem_session *s = weights_join("reader");
	gpumem_weights *weights = NULL;

	OK(gpumem_weights_attach(s, "llama", 0, &weights));
	uint64_t version = gpumem_weights_version(weights);
	weights_require_all(weights, seed);
	gm_text_say(channel, &version, sizeof(version));
	gm_hear_word(channel, 'e');
	weights_require_all(weights, seed);
	gpumem_weights_detach(weights);
	gpumem_disconnect(s);
}

static inline uint64_t weights_start_reader(struct gm_worker *worker, uint8_t *seed)
{
	uint64_t version;

	gm_worker_start(worker, weights_reader, seed);
	gm_hear(worker->channel, &version, sizeof(version));
	return version;
}

static inline void weights_end(struct gm_worker *worker)
{
	gm_text_say_word(worker->channel, 'e');
	gm_worker_join(worker);
}

static inline int weights_stop_half_way(void *user, uint64_t done, uint64_t total)
{
	const int *channel = user;

	if (done < total / 2)
		return 0;
	gm_text_say_word(*channel, 'h');
	gm_hear_word(*channel, 'g'); /* it never comes: the process is killed */
	return 0;
}

/* Is half way through a load when it says h. */
static inline void weights_half_loader(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");

	options.progress = weights_stop_half_way;
	options.user = &channel;
	options.replace = 1;
	OK(gpumem_weights_load(s, 0, argument, "llama", &options, NULL));
}

static inline void weights_remover(int channel, void *argument)
{
	gpumem_session *s = weights_join("remover");

	OK(gpumem_weights_remove(s, "llama"));
	REFUSED(gpumem_weights_remove(s, "llama"), GPUMEM_E_NOT_FOUND,
		"there are no weights with the name llama");
	gpumem_disconnect(s);
}

static inline void weights_in_process(gm_worker_fn fn, void *argument)
{
	struct gm_worker worker;

	gm_worker_start(&worker, fn, argument);
	gm_worker_join(&worker);
}

#endif
