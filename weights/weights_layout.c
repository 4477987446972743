/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/bounds.h"
#include "weights/weights_error.h"

static void layout_add(struct gm_weights_layout *layout, const struct gm_weights_row *row)
{
	struct gm_weights_run *last = layout->n ? &layout->runs[layout->n - 1] : NULL;
	uint64_t offset = layout->source->files[row->file].data + row->begin;

	if (!row->bytes)
		return;
	if (last && last->file == row->file && last->offset + last->bytes == offset &&
		last->place + last->bytes == row->place)
		last->bytes += row->bytes;
	else
		layout->runs[layout->n++] =
			(struct gm_weights_run){row->place, row->bytes, offset, row->file};
}

gpumem_status gm_weights_layout_init(
	struct gm_weights_layout *layout, struct gm_weights_source *source)
{
	const struct gm_weights_table *table = &source->table;

	*layout = (struct gm_weights_layout){
		.source = source, .runs = calloc(table->n + 1, sizeof(*layout->runs))};
	if (!layout->runs)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");
	pthread_mutex_init(&layout->lock, NULL);

	for (size_t i = 0; i < table->n; i++) {
		struct gm_weights_row *row = &table->rows[i];

		row->place = gm_round_up(layout->bytes, GPUMEM_WEIGHTS_ALIGNMENT);
		if (row->bytes > GM_LEASE_BYTES_MAX - row->place) {
			gm_weights_layout_deinit(layout);
			return gm_weights_damaged(source->files[row->file].name, row->at, row->name,
				"makes the model larger than any device");
		}
		layout->bytes = row->place + row->bytes;
		layout_add(layout, row);
	}
	return GPUMEM_OK;
}

void gm_weights_layout_deinit(struct gm_weights_layout *layout)
{
	if (!layout->runs)
		return;
	free(layout->runs);
	layout->runs = NULL;
	pthread_mutex_destroy(&layout->lock);
}

/* The first run that ends behind at; layout->n: none. */
static size_t layout_first(const struct gm_weights_layout *layout, uint64_t at)
{
	size_t low = 0, high = layout->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct gm_weights_run *run = &layout->runs[middle];

		if (run->place + run->bytes > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int layout_fail(
	struct gm_weights_layout *layout, const struct gm_weights_run *run, uint64_t at, int result)
{
	pthread_mutex_lock(&layout->lock);
	if (!layout->failed) {
		layout->failed = result;
		layout->failed_file = run->file;
		layout->failed_at = run->offset + (at - run->place);
	}
	pthread_mutex_unlock(&layout->lock);
	return EIO;
}

int gm_weights_layout_read(void *user, uint64_t at, void *to, size_t n)
{
	struct gm_weights_layout *layout = user;
	uint64_t end = at + n;
	uint8_t *place = to;

	for (size_t i = layout_first(layout, at); at < end; i++) {
		const struct gm_weights_run *run = i < layout->n ? &layout->runs[i] : NULL;
		uint64_t begin = run ? gm_u64_min(gm_u64_max(run->place, at), end) : end;
		uint64_t stop = run ? gm_u64_min(run->place + run->bytes, end) : end;

		memset(place, 0, (size_t)(begin - at));
		place += begin - at;
		at = begin;
		if (at == end)
			break;

		size_t part = (size_t)(stop - at);
		int r = gm_weights_file_read(&layout->source->files[run->file],
			run->offset + (at - run->place), place, part);
		if (r)
			return layout_fail(layout, run, at, r);
		place += part;
		at += part;
	}
	return 0;
}

gpumem_status gm_weights_layout_outcome(struct gm_weights_layout *layout)
{
	pthread_mutex_lock(&layout->lock);
	int failed = layout->failed;
	uint64_t at = layout->failed_at;
	uint32_t file = layout->failed_file;
	pthread_mutex_unlock(&layout->lock);

	return failed ? gm_weights_file_explain(&layout->source->files[file], at, failed)
		      : GPUMEM_OK;
}
