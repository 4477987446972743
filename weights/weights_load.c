/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a model: its files are read and checked, one buffer is made for all tensors and filled in one transfer, and then
 * it is published. Nobody sees the buffer before that, and if this process ends, so does the buffer.
 */
#include <string.h>

#include "common/arith.h"
#include "common/cancel.h"
#include "common/text/share_name.h"
#include "weights/weights.h"
#include "weights/weights_error.h"
#include "weights/weights_layout.h"
#include "weights/weights_metadata.h"

struct weights_load {
	gpumem_session *session;
	const char *name;
	gpumem_weights_options options;
	struct gm_weights_source source;
	struct gm_weights_layout layout;
	struct gm_weights_text text;
	gpumem_buffer *buffer;
	bool cancelled; /* the program's function said so, maybe when the last byte had arrived */
};

static void load_deinit(struct weights_load *load)
{
	gpumem_buffer_destroy(load->buffer);
	gm_weights_text_deinit(&load->text);
	gm_weights_layout_deinit(&load->layout);
	gm_weights_source_close(&load->source);
}

/* ---- arguments */

static gpumem_status load_check(
	struct weights_load *load, const char *path, const gpumem_weights_options *options)
{
	const char *wrong = gm_token_name_check(load->name);

	if (!path)
		return gm_weights_error(GPUMEM_E_INVALID, "path must not be NULL");
	if (wrong)
		return gm_weights_error(GPUMEM_E_INVALID, "name %s", wrong);
	if (!options)
		return GPUMEM_OK;
	if (!options->size)
		return gm_weights_error(GPUMEM_E_INVALID,
			"the size of the options is 0: initialise them with "
			"GPUMEM_WEIGHTS_OPTIONS_INIT");
	memcpy(&load->options, options, gm_u64_min(options->size, sizeof(load->options)));
	return GPUMEM_OK;
}

/* Refuses a name that is taken before gigabytes are read for it. The publish looks again. */
static gpumem_status load_check_name(const struct weights_load *load)
{
	struct gm_weights_found found;
	gpumem_status status = gm_weights_look(load->session, load->name, &found);

	if (status || !found.exists)
		return status;
	if (!found.weights)
		return gm_weights_error(GPUMEM_E_BUSY,
			"%.80s is already the name of a buffer without weights; choose another name, "
			"or remove it: gpumemctl shares remove %.80s",
			load->name, load->name);
	if (load->options.replace)
		return GPUMEM_OK;
	return gm_weights_error(GPUMEM_E_BUSY,
		"there are weights with the name %.80s already, version %llu; replace them (option "
		"replace, or gpumemctl weights load --replace), or choose another name",
		load->name, (unsigned long long)found.version);
}

/* ---- the buffer */

static gpumem_status load_plan(struct weights_load *load, const char *path)
{
	gpumem_status status = gm_weights_source_open(&load->source, path);

	if (!status)
		status = gm_weights_layout_init(&load->layout, &load->source);
	if (!status)
		status = gm_weights_metadata_write(&load->source.table,
			gm_round_up(load->layout.bytes, GPUMEM_WEIGHTS_ALIGNMENT),
			GPUMEM_METADATA_MOST, &load->text);
	return status;
}

static gpumem_status load_create(struct weights_load *load, uint32_t device)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	uint64_t bytes =
		gm_round_up(load->layout.bytes, GPUMEM_WEIGHTS_ALIGNMENT) + load->text.table_bytes;
	char tag[GM_WEIGHTS_TAG_BYTES];

	gm_weights_tag_write(
		load->source.table.n, gm_weights_table_bytes(&load->source.table), tag);
	options.tag = tag;
	options.type = GM_WEIGHTS_TAG;
	options.wait_ms = load->options.wait_ms;
	if (load->options.audience != GPUMEM_AUDIENCE_DOMAIN)
		options.flags |= GPUMEM_BUFFER_FOR_OTHERS;
	/* A model of empty tensors has no bytes. */
	return gpumem_buffer_create(load->session, device,
		(size_t)gm_u64_max(bytes, GPUMEM_WEIGHTS_ALIGNMENT), &options, &load->buffer);
}

static int load_tell(void *user, uint64_t done, uint64_t total)
{
	struct weights_load *load = user;

	if (load->options.progress && load->options.progress(load->options.user, done, total))
		load->cancelled = true;
	return load->cancelled;
}

static gpumem_status load_fill(struct weights_load *load)
{
	gpumem_copy_options options = GPUMEM_COPY_OPTIONS_INIT;

	options.progress = load_tell;
	options.user = load;
	options.cancel = load->options.cancel;
	gpumem_status status = gpumem_copy_read_in(load->buffer, 0, (size_t)load->layout.bytes,
		gm_weights_layout_read, &load->layout, GPUMEM_STREAM_DONE, &options, NULL);
	if (status == GPUMEM_E_SYSTEM) {
		gpumem_status read = gm_weights_layout_outcome(&load->layout);
		return read ? read : status;
	}
	if (status)
		return status;

	for (size_t i = 0; i < load->source.n && !status; i++)
		status = gm_weights_file_same(&load->source.files[i]);
	if (!status && load->text.table)
		status = gpumem_copy_in(load->buffer,
			(size_t)gm_round_up(load->layout.bytes, GPUMEM_WEIGHTS_ALIGNMENT),
			load->text.table, load->text.table_bytes, GPUMEM_STREAM_DONE, NULL, NULL);
	return status;
}

static gpumem_status load_publish(struct weights_load *load)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;

	if (load->cancelled ||
		(load->options.cancel && __atomic_load_n(load->options.cancel, __ATOMIC_ACQUIRE)))
		return gm_weights_error(GPUMEM_E_CANCELLED,
			"the load was cancelled before the weights were published");
	options.audience = load->options.audience;
	options.id = load->options.id;
	options.mode = load->options.mode;
	options.flags = load->options.flags;
	options.replace = load->options.replace;
	options.expires_s = load->options.expires_s;
	options.metadata = load->text.head;
	options.metadata_size = load->text.head_bytes;
	return gpumem_publish(load->buffer, load->name, &options, GPUMEM_STREAM_DONE, NULL);
}

gpumem_status gpumem_weights_load(gpumem_session *session, uint32_t device, const char *path,
	const char *name, const gpumem_weights_options *options, gpumem_weights **ret_weights)
{
	GM_UNCANCELLED; /* until the files are closed */
	__attribute__((cleanup(load_deinit))) struct weights_load load = {
		.session = session, .name = name, .options = GPUMEM_WEIGHTS_OPTIONS_INIT};

	gpumem_status status = load_check(&load, path, options);
	if (!status)
		status = load_check_name(&load);
	if (!status)
		status = load_plan(&load, path);
	if (!status)
		status = load_create(&load, device);
	if (!status)
		status = load_fill(&load);
	if (!status)
		status = load_publish(&load);
	if (status || !ret_weights)
		return status;

	gpumem_buffer *buffer = load.buffer;
	load.buffer = NULL;
	return gm_weights_new(buffer, &load.source.table, ret_weights);
}
