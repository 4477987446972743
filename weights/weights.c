/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as a process has them: attaching to a name, and the tensors that are there then. */
#include "weights/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/text/share_name.h"
#include "weights/weights_error.h"
#include "weights/weights_metadata.h"

/* ---- the object */

gpumem_status gm_weights_new(
	gpumem_buffer *buffer, struct gm_weights_table *table, gpumem_weights **ret_weights)
{
	gpumem_weights *weights = calloc(1, sizeof(*weights));
	gpumem_weights_tensor *tensors = calloc(table->n + 1, sizeof(*tensors));

	if (!weights || !tensors) {
		free(weights);
		free(tensors);
		gm_weights_table_deinit(table);
		gpumem_buffer_destroy(buffer);
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");
	}

	uint8_t *start = gpumem_buffer_ptr(buffer);
	for (size_t i = 0; i < table->n; i++) {
		const struct gm_weights_row *row = &table->rows[i];

		tensors[i] = (gpumem_weights_tensor){.name = row->name,
			.dtype = row->dtype,
			.shape = row->shape,
			.bytes = row->bytes,
			.ptr = start + row->place,
			.ndim = row->ndim,
			.bits = row->bits};
	}
	*weights = (gpumem_weights){.buffer = buffer,
		.table = *table,
		.tensors = tensors,
		.version = gpumem_buffer_version(buffer),
		.bytes = gm_weights_table_bytes(table)};
	*table = (struct gm_weights_table){0};
	*ret_weights = weights;
	return GPUMEM_OK;
}

void gpumem_weights_detach(gpumem_weights *weights)
{
	if (!weights)
		return;
	gpumem_buffer_destroy(weights->buffer);
	gm_weights_table_deinit(&weights->table);
	free(weights->tensors);
	free(weights);
}

size_t gpumem_weights_count(const gpumem_weights *weights)
{
	return weights->table.n;
}

const gpumem_weights_tensor *gpumem_weights_at(const gpumem_weights *weights, size_t index)
{
	return index < weights->table.n ? &weights->tensors[index] : NULL;
}

const gpumem_weights_tensor *gpumem_weights_find(const gpumem_weights *weights, const char *name)
{
	const struct gm_weights_row *row =
		name ? gm_weights_table_find(&weights->table, name) : NULL;

	return row ? &weights->tensors[row - weights->table.rows] : NULL;
}

uint64_t gpumem_weights_version(const gpumem_weights *weights)
{
	return weights->version;
}

uint32_t gpumem_weights_device(const gpumem_weights *weights)
{
	return gpumem_buffer_device(weights->buffer);
}

uint64_t gpumem_weights_bytes(const gpumem_weights *weights)
{
	return weights->bytes;
}

gpumem_buffer *gpumem_weights_buffer(const gpumem_weights *weights)
{
	return weights->buffer;
}

/* ---- the tag */

#define WEIGHTS_TAG_FORMAT GM_WEIGHTS_TAG ": %llu tensors, %llu bytes"

void gm_weights_tag_write(uint64_t tensors, uint64_t bytes, char ret_tag[GM_WEIGHTS_TAG_BYTES])
{
	snprintf(ret_tag, GM_WEIGHTS_TAG_BYTES, WEIGHTS_TAG_FORMAT, (unsigned long long)tensors,
		(unsigned long long)bytes);
}

bool gm_weights_tag_read(const gpumem_name *name, uint64_t *ret_tensors, uint64_t *ret_bytes)
{
	unsigned long long tensors = 0, bytes = 0;
	char again[GM_WEIGHTS_TAG_BYTES];
	size_t n = strlen(GM_WEIGHTS_TAG);

	/* Without metadata there is no table of tensors. */
	if (!name->metadata_bytes || strncmp(name->tag, GM_WEIGHTS_TAG, n) != 0 ||
		(name->tag[n] && name->tag[n] != ':'))
		return false;

	/* Anybody can write a tag. */
	(void)sscanf(name->tag, WEIGHTS_TAG_FORMAT, &tensors, &bytes);
	gm_weights_tag_write(tensors, bytes, again);
	bool sound = !strcmp(name->tag, again) && tensors <= GPUMEM_WEIGHTS_TENSORS_MOST &&
		     bytes <= name->bytes;
	*ret_tensors = sound ? tensors : 0;
	*ret_bytes = sound ? bytes : name->bytes;
	return true;
}

/* ---- looking */

struct weights_search {
	const char *name;
	struct gm_weights_found found;
};

static void weights_take_name(void *user, const gpumem_name *name)
{
	struct weights_search *search = user;
	uint64_t tensors, bytes;
	char whole[96]; /* as long as a name with its owner can be */

	snprintf(whole, sizeof whole, "uid:%u/%s", name->owner, name->name);
	if (strcmp(whole, search->name) != 0 &&
		(!name->own || strcmp(name->name, search->name) != 0))
		return;
	search->found = (struct gm_weights_found){.exists = true,
		.weights = gm_weights_tag_read(name, &tensors, &bytes),
		.version = name->version};
}

/* Reads the metadata of a name of this user, whose number in this container need not be the daemon's. */
static gpumem_status weights_look_own(
	gpumem_session *session, const char *name, struct gm_weights_found *found)
{
	struct gm_weights_head head;
	void *data = NULL;
	size_t size = 0;

	gpumem_status status = gpumem_metadata_read(session, name, &data, &size, &found->version);
	if (status)
		return status;
	found->exists = true;
	found->weights = gm_weights_head_read(data, size, &head) == 0;
	if (found->weights)
		gm_weights_head_deinit(&head);
	gpumem_metadata_free(data);
	return GPUMEM_OK;
}

gpumem_status gm_weights_look(
	gpumem_session *session, const char *name, struct gm_weights_found *ret_found)
{
	struct weights_search search = {.name = name};
	gpumem_status status = GPUMEM_E_NOT_FOUND;
	struct gm_token_name parsed;

	const char *wrong = gm_token_name_parse(name, &parsed);
	if (wrong)
		return gm_weights_error(GPUMEM_E_INVALID, "name %s", wrong);
	if (!parsed.foreign)
		status = weights_look_own(session, name, &search.found);
	/* It may be one that this user published for others only, or another user's. */
	if (status == GPUMEM_E_NOT_FOUND)
		status = gpumem_names(session, weights_take_name, &search);
	if (!status)
		*ret_found = search.found;
	return status;
}

/* ---- attaching */

/* Copies the table of tensors that is in the buffer. */
static gpumem_status weights_copy_table(gpumem_buffer *buffer, const struct gm_weights_head *head,
	const char *name, char **ret_bytes)
{
	size_t n = (size_t)(head->end - head->begin);

	if (head->end > gpumem_buffer_size(buffer) ||
		head->end - head->begin > 4 * (uint64_t)GPUMEM_WEIGHTS_HEADER_MOST)
		return gm_weights_damaged(
			name, 0, NULL, "its table of tensors is not in the buffer, or too long");
	GM_AUTO_FREE char *bytes = malloc(n);
	if (!bytes)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");

	gpumem_status status = gpumem_copy_out(
		buffer, (size_t)head->begin, bytes, n, GPUMEM_STREAM_DONE, NULL, NULL);
	if (!status)
		*ret_bytes = gm_steal_ptr(&bytes);
	return status;
}

static gpumem_status weights_read_table(
	gpumem_buffer *buffer, const char *name, struct gm_weights_table *ret_table)
{
	GM_AUTO_FREE char *bytes = NULL;
	struct gm_weights_head head;
	void *data;
	size_t size;

	gpumem_status status = gpumem_buffer_metadata(buffer, &data, &size);
	if (status)
		return status;
	int r = gm_weights_head_read(data, size, &head);
	gpumem_metadata_free(data);
	if (r < 0)
		return gm_weights_error(GPUMEM_E_NOT_FOUND,
			"%.80s is the name of a buffer without weights, or with weights of a newer "
			"library; see 'gpumemctl weights list'",
			name);

	if (head.end)
		status = weights_copy_table(buffer, &head, name, &bytes);
	if (!status)
		status = gm_weights_head_tensors(
			&head, name, bytes, gpumem_buffer_size(buffer), ret_table);
	gm_weights_head_deinit(&head);
	return status;
}

gpumem_status gpumem_weights_attach(
	gpumem_session *session, const char *name, uint64_t version, gpumem_weights **ret_weights)
{
	struct gm_weights_table table;
	gpumem_buffer *buffer;

	if (!ret_weights)
		return gm_weights_error(GPUMEM_E_INVALID, "ret_weights must not be NULL");
	gpumem_status status = gpumem_attach(session, name, &buffer);
	if (status)
		return status;

	uint64_t now = gpumem_buffer_version(buffer);
	if (version && now != version)
		status = gm_weights_error(GPUMEM_E_NOT_FOUND,
			"%.80s has version %llu now, and version %llu is not there for new readers; "
			"attach without a version, or publish that one under a name of its own",
			name, (unsigned long long)now, (unsigned long long)version);
	if (!status)
		status = weights_read_table(buffer, name, &table);
	if (status) {
		gpumem_buffer_destroy(buffer);
		return status;
	}
	return gm_weights_new(buffer, &table, ret_weights);
}
