/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "weights/json_text.h"
#include "weights/safetensors.h"
#include "weights/weights_error.h"

#define SOURCE_FILE     "model.safetensors"
#define SOURCE_INDEX    "model.safetensors.index.json"
#define SOURCE_IS_INDEX ".index.json"
#define SOURCE_MAP      "weight_map"

void gm_weights_source_close(struct gm_weights_source *source)
{
	for (size_t i = 0; i < source->n; i++)
		gm_weights_file_close(&source->files[i]);
	free(source->files);
	gm_weights_table_deinit(&source->table);
	*source = (struct gm_weights_source){0};
}

static gpumem_status source_add_file(
	struct gm_weights_source *source, int folder, const char *name, const char *shown)
{
	struct gm_weights_file *files =
		realloc(source->files, (source->n + 1) * sizeof(*source->files));
	if (!files)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the files of a model");
	source->files = files;

	gpumem_status status = gm_weights_file_open(&files[source->n], folder, name, shown);
	if (status)
		return status;
	source->n++;
	struct gm_weights_file *file = &files[source->n - 1];
	status = gm_safetensors_read(file, (uint32_t)(source->n - 1), &source->table);
	if (status)
		return status;

	/* The table keeps the names of all of them. A folder may name one long file 512 times, by links. */
	uint64_t others = 0;
	for (size_t i = 0; i + 1 < source->n; i++)
		others += source->files[i].data;
	if (others && others + file->data > GPUMEM_WEIGHTS_HEADER_MOST)
		return gm_weights_damaged(file->name, 0, NULL,
			"the headers of the model have more than %d bytes together",
			GPUMEM_WEIGHTS_HEADER_MOST);
	return GPUMEM_OK;
}

/* Makes the tensors findable, and refuses a name that is there twice. */
static gpumem_status source_index_names(struct gm_weights_source *source)
{
	const struct gm_weights_row *twice[2];
	gpumem_status status = gm_weights_table_index(&source->table, twice);

	if (!status && twice[0])
		status = gm_weights_damaged(source->files[twice[1]->file].name, twice[1]->at,
			twice[1]->name, "is also in %.100s", source->files[twice[0]->file].name);
	return status;
}

/* ---- shards */

struct source_shards {
	const struct gm_json_text *index;
	const char *index_name;
	const json_t *map;
	const char **names; /* each once, sorted; of the index */
	size_t n;
};

static const char *source_wrong_shard(const char *shard)
{
	if (!shard)
		return "has no text as the name of its file";
	if (!*shard || !strcmp(shard, ".") || !strcmp(shard, "..") || strchr(shard, '/'))
		return "is in a file whose name is empty, \".\", \"..\" or has a \"/\"";
	return NULL;
}

static int source_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Collects the names of the files. */
static gpumem_status source_list_shards(struct source_shards *shards)
{
	size_t tensors = json_object_size(shards->map), i = 0;
	const char *tensor;
	json_t *value;

	shards->names = calloc(tensors + 1, sizeof(*shards->names));
	if (!shards->names)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the files of a model");
	json_object_foreach((json_t *)shards->map, tensor, value)
	{
		const char *shard = json_string_value(value), *wrong = source_wrong_shard(shard);

		if (wrong)
			return gm_weights_damaged(shards->index_name,
				gm_json_text_at(shards->index, i), tensor, "%s", wrong);
		shards->names[i++] = shard;
	}

	qsort(shards->names, tensors, sizeof(*shards->names), source_compare);
	for (i = 0; i < tensors; i++)
		if (!i || strcmp(shards->names[i], shards->names[i - 1]))
			shards->names[shards->n++] = shards->names[i];
	if (shards->n > GPUMEM_WEIGHTS_FILES_MOST)
		return gm_weights_damaged(shards->index_name, gm_json_text_at(shards->index, 0),
			NULL, "the model has %zu files, and at most %d are allowed", shards->n,
			GPUMEM_WEIGHTS_FILES_MOST);
	return GPUMEM_OK;
}

/* Every tensor of the index must be in the file that the index names. */
static gpumem_status source_check_map(
	const struct gm_weights_source *source, const struct source_shards *shards)
{
	size_t i = 0;
	const char *tensor;
	json_t *value;

	json_object_foreach((json_t *)shards->map, tensor, value)
	{
		const struct gm_weights_row *row = gm_weights_table_find(&source->table, tensor);
		uint64_t at = gm_json_text_at(shards->index, i++);

		if (!row || strcmp(shards->names[row->file], json_string_value(value)) != 0)
			return gm_weights_damaged(shards->index_name, at, tensor,
				"is not in %.100s", json_string_value(value));
	}
	return GPUMEM_OK;
}

static gpumem_status source_load_shards(
	struct gm_weights_source *source, int folder, struct source_shards *shards)
{
	gpumem_status status = source_list_shards(shards);

	for (size_t i = 0; i < shards->n && !status; i++)
		status = source_add_file(source, folder, shards->names[i], shards->names[i]);
	if (!status)
		status = source_index_names(source);
	return status ? status : source_check_map(source, shards);
}

static gpumem_status source_read_index(const struct gm_weights_file *file, char **ret_bytes)
{
	if (file->size > GPUMEM_WEIGHTS_HEADER_MOST)
		return gm_weights_damaged(file->name, 0, NULL,
			"the index has %llu bytes, and at most %d are allowed",
			(unsigned long long)file->size, GPUMEM_WEIGHTS_HEADER_MOST);
	GM_AUTO_FREE char *bytes = malloc((size_t)file->size + 1);
	if (!bytes)
		return gm_weights_error(
			GPUMEM_E_HOST_MEMORY, "no memory for the index %.200s", file->name);

	int r = gm_weights_file_read(file, 0, bytes, (size_t)file->size);
	if (r)
		return gm_weights_file_explain(file, 0, r);
	*ret_bytes = gm_steal_ptr(&bytes);
	return GPUMEM_OK;
}

static gpumem_status source_open_index(
	struct gm_weights_source *source, int folder, const char *name, const char *shown)
{
	__attribute__((cleanup(gm_weights_file_close))) struct gm_weights_file file = {.fd = -1};
	GM_AUTO_FREE char *bytes = NULL;
	struct gm_json_text index = {0};

	gpumem_status status = gm_weights_file_open(&file, folder, name, shown);
	if (!status)
		status = source_read_index(&file, &bytes);
	if (!status)
		status = gm_json_text_parse(&index, shown, 0, bytes, (size_t)file.size, SOURCE_MAP,
			GPUMEM_WEIGHTS_TENSORS_MOST);
	if (status)
		return status;

	struct source_shards shards = {.index = &index,
		.index_name = shown,
		.map = json_object_get(index.root, SOURCE_MAP)};
	if (json_object_size(shards.map) > 0)
		status = source_load_shards(source, folder, &shards);
	else
		status = gm_weights_damaged(
			shown, 0, NULL, "the index has no " SOURCE_MAP ", or an empty one");
	free(shards.names);
	gm_json_text_deinit(&index);
	return status;
}

/* ---- what path stands for */

static bool source_is_index(const char *path)
{
	size_t n = strlen(path), end = strlen(SOURCE_IS_INDEX);

	return n > end && !strcmp(path + n - end, SOURCE_IS_INDEX);
}

static gpumem_status source_open_folder(struct gm_weights_source *source, const char *path)
{
	GM_AUTO_FD int folder = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
	struct stat st;

	if (folder < 0)
		return gm_weights_error(errno == EACCES ? GPUMEM_E_DENIED : GPUMEM_E_SYSTEM,
			"cannot open %.200s: %s", path, strerror(errno));
	if (fstatat(folder, SOURCE_INDEX, &st, 0) == 0)
		return source_open_index(source, folder, SOURCE_INDEX, SOURCE_INDEX);
	if (fstatat(folder, SOURCE_FILE, &st, 0) == 0) {
		gpumem_status status = source_add_file(source, folder, SOURCE_FILE, SOURCE_FILE);
		return status ? status : source_index_names(source);
	}
	return gm_weights_error(GPUMEM_E_NOT_FOUND,
		"%.200s has neither " SOURCE_INDEX " nor " SOURCE_FILE
		"; name the file itself, or its index",
		path);
}

/* The files are in the folder of the index. */
static gpumem_status source_open_beside(struct gm_weights_source *source, const char *path)
{
	const char *slash = strrchr(path, '/');
	GM_AUTO_FREE char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	GM_AUTO_FD int folder = parent ? open(parent, O_RDONLY | O_CLOEXEC | O_DIRECTORY) : -1;

	if (folder < 0)
		return gm_weights_error(
			parent && errno == ENOENT ? GPUMEM_E_NOT_FOUND : GPUMEM_E_SYSTEM,
			"cannot open the folder of %.200s: %s", path,
			strerror(parent ? errno : ENOMEM));
	return source_open_index(source, folder, slash ? slash + 1 : path, path);
}

gpumem_status gm_weights_source_open(struct gm_weights_source *source, const char *path)
{
	struct gm_weights_source opened = {0};
	struct stat st;
	gpumem_status status;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		status = source_open_folder(&opened, path);
	} else if (source_is_index(path)) {
		status = source_open_beside(&opened, path);
	} else {
		status = source_add_file(&opened, AT_FDCWD, path, path);
		if (!status)
			status = source_index_names(&opened);
	}
	if (!status && !opened.table.n)
		status = gm_weights_error(GPUMEM_E_INVALID, "%.200s has no tensors", path);

	if (status)
		gm_weights_source_close(&opened);
	else
		*source = opened;
	return status;
}
