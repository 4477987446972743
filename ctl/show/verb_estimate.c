/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl estimate: how much memory a model needs for inference, by its dimensions or its config.json,
 * and on which devices it fits. It answers without a daemon, too; then it says nothing about devices.
 */

#include <stdio.h>
#include <string.h>

#include "common/estimate.h"
#include "common/text/units.h"
#include "ctl/io/model_file.h"
#include "ctl/show/placement_list.h"

/* Weights have 16 bits if nobody says otherwise. */
#define ESTIMATE_BYTES   2
#define ESTIMATE_GROUPED 32

/* Which dimension a sentence of gm_estimate_inference() is about: it begins with it. */
static size_t estimate_dimension_of(const char *wrong)
{
	size_t i = 0;

	for (; i < GM_MODEL_N_DIMENSIONS; i++) {
		size_t n = strlen(gm_model_dimensions[i].member);
		if (!strncmp(wrong, gm_model_dimensions[i].member, n) && wrong[n] == ' ')
			break;
	}
	return i;
}

/* Says what is wrong with the model, where the dimension comes from: the file, or an option. */
static gpumem_status estimate_refuse(struct gm_ctl *ctl, const struct gm_model_file *file,
	const gpumem_model *model, const char *wrong)
{
	const char *path = ctl->options->n_args ? ctl->options->args[0] : NULL;
	gpumem_model given = ctl->options->model, used = *model;
	size_t i = estimate_dimension_of(wrong);

	if (i == GM_MODEL_N_DIMENSIONS)
		return gm_verb_wrong_use(ctl, "%s", wrong);

	const struct gm_model_dimension *d = &gm_model_dimensions[i];
	if (*gm_model_dimension(&given, i))
		return gm_verb_wrong_use(ctl, "--%s: %s", d->option, wrong);
	if (path && !*gm_model_dimension(&used, i))
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID,
			"%s: %s is missing; give --%s", path, d->key, d->option);
	if (!path)
		return gm_verb_wrong_use(ctl,
			"--%s is missing; give all dimensions, or the config.json of a model; "
			"see 'gpumemctl estimate --help'",
			d->option);
	if (file->lines[i])
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID, "%s:%u: %s: %s", path,
			file->lines[i], d->key, wrong);
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID, "%s: %s: %s", path, d->key, wrong);
}

/* An option overrides what the file says. */
static void estimate_merge(const struct gm_options *options, gpumem_model *model)
{
	gpumem_model given = options->model;

	for (size_t i = 0; i < GM_MODEL_N_DIMENSIONS; i++)
		if (*gm_model_dimension(&given, i))
			*gm_model_dimension(model, i) = *gm_model_dimension(&given, i);
	if (!model->kv_heads)
		model->kv_heads = model->heads;
	if (given.bytes_per_weight > 0)
		model->bytes_per_weight = given.bytes_per_weight;
	if (!(model->bytes_per_weight > 0))
		model->bytes_per_weight = ESTIMATE_BYTES;
	if (given.bytes_per_value)
		model->bytes_per_value = given.bytes_per_value;
	if (given.tied || options->untied)
		model->tied = given.tied;
}

/* Writes a number with commas between groups of three digits. Returns text. */
static const char *estimate_group(uint64_t n, char text[ESTIMATE_GROUPED])
{
	char digits[ESTIMATE_GROUPED];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	char *end = text;

	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			*end++ = ',';
		*end++ = digits[i];
	}
	*end = '\0';
	return text;
}

static void estimate_write(struct gm_writer *writer, const gpumem_model *model,
	const gpumem_estimate *estimate, bool longest)
{
	gpumem_model used = *model;
	char text[GM_UNITS_TEXT], grouped[ESTIMATE_GROUPED];

	gm_estimate_fill(&used);
	gm_writer_count(writer, "parameters", estimate->parameters);
	gm_writer_size(writer, "weights", estimate->weights);
	gm_writer_size(writer, "kv_cache", estimate->kv_cache);
	gm_writer_size(writer, "activations", estimate->activations);
	gm_writer_size(writer, "total", estimate->total);
	gm_writer_group(writer, "model");
	for (size_t i = 0; i < GM_MODEL_N_DIMENSIONS; i++)
		gm_writer_count(
			writer, gm_model_dimensions[i].member, *gm_model_dimension(&used, i));
	gm_writer_share(
		writer, "bytes_per_weight", (uint64_t)(model->bytes_per_weight * 1e6 + 0.5));
	gm_writer_count(writer, "bytes_per_value", used.bytes_per_value);
	gm_writer_bool(writer, "tied", model->tied != 0);
	gm_writer_group(writer, NULL);

	gm_writer_line(writer, "parameters", "%s", estimate_group(estimate->parameters, grouped));
	gm_writer_line(writer, "weights", "%s (%g bytes each)",
		gm_writer_bytes(writer, estimate->weights, text), model->bytes_per_weight);
	gm_writer_line(writer, "KV cache", "%s (%llu tokens%s)",
		gm_writer_bytes(writer, estimate->kv_cache, text),
		(unsigned long long)model->context,
		longest ? ", the model's maximum; see --context" : "");
	gm_writer_line(
		writer, "activations", "%s", gm_writer_bytes(writer, estimate->activations, text));
	gm_writer_line(writer, "total", "%s", gm_writer_bytes(writer, estimate->total, text));
}

/* Says where the estimate may be wrong. */
static void estimate_warn(struct gm_ctl *ctl, const struct gm_model_file *file)
{
	const gpumem_model *given = &ctl->options->model;

	gm_writer_notes(ctl->writer);
	if (*file->strange)
		gm_writer_note(ctl->writer, "model-type", GM_MARK_WARN,
			"the formulas are for models like Llama, and may be wrong for a model of the "
			"type '%s'; see gpumem_estimate_inference(3)",
			file->strange);
	if (file->quantised && !(given->bytes_per_weight > 0))
		gm_writer_note(ctl->writer, "quantised", GM_MARK_WARN,
			"the weights are quantised; give their size, for example --dtype int4");
	if (file->model.context && given->context > file->model.context)
		gm_writer_note(ctl->writer, "context", GM_MARK_WARN,
			"the model allows for %llu tokens, and --context is %llu",
			(unsigned long long)file->model.context,
			(unsigned long long)given->context);
}

/* Whether it fits, device by device, if a daemon runs. */
static void estimate_write_devices(struct gm_ctl *ctl, uint64_t total)
{
	struct gm_placement_list list;
	char text[GM_PLACEMENT_NEVER];

	if (gm_placement_list_ask(ctl, total, &list) == GPUMEM_OK) {
		gm_writer_blank_line(ctl->writer);
		gm_writer_table_or(ctl->writer, "placements", gm_placement_list_table(&list),
			"The daemon serves no device.");
		if (gm_placement_list_never(&list, ctl->writer, total, text))
			gm_writer_line(ctl->writer, "", "N%s.", text + 1);
		gm_placement_list_explain(&list, ctl->writer);
		return;
	}
	list.n = 0;
	gm_writer_data(ctl->writer, "placements", gm_placement_list_table(&list));
	gm_writer_note(ctl->writer, "no-daemon", GM_MARK_NONE,
		"no daemon answers, so it is not known where the model fits: %s",
		ctl->trouble.text);
}

static gpumem_status estimate_run(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	struct gm_model_file file = {.model = GPUMEM_MODEL_INIT};
	gpumem_estimate estimate;
	char error[GM_MODEL_FILE_ERROR], wrong[GM_ESTIMATE_WRONG];

	if (options->n_args > 0 && gm_model_file_read(options->args[0], &file, error) < 0)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID, "%s", error);

	gpumem_model model = file.model;
	estimate_merge(options, &model);
	if (gm_estimate_inference(&model, &estimate, wrong) != GPUMEM_OK)
		return estimate_refuse(ctl, &file, &model, wrong);

	estimate_write(
		ctl->writer, &model, &estimate, options->n_args > 0 && !options->model.context);
	estimate_warn(ctl, &file);
	/* Without a table, CSV has the estimate itself. */
	if (!options->csv)
		estimate_write_devices(ctl, estimate.total);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_estimate = {
	.name = "estimate",
	.arguments = "[CONFIG.JSON]",
	.summary = "how much memory a model needs",
	.help = "  --context N       tokens of prompt and answer together; 32K is 32768; without\n"
		"                    it, as many as the file says that the model allows\n"
		"  --dtype TYPE      the type of the weights: float32, bfloat16, int8, int4, or\n"
		"                    the bytes of each; without it, as the file says, else 2\n"
		"  --kv-bytes N      the bytes of a value in the KV cache and the activations;\n"
		"                    without it, those of a weight, but at least 2\n"
		"  --hidden N        the width of the model\n"
		"  --intermediate N  the width of its MLP\n"
		"  --layers N        the number of layers\n"
		"  --vocab N         the size of the vocabulary, in tokens\n"
		"  --heads N         the number of attention heads\n"
		"  --kv-heads N      the number of key and value heads; without it, as --heads\n"
		"  --head-dim N      the width of a head; without it, --hidden / --heads\n"
		"  --tied            the output layer shares the weights of the embeddings\n"
		"  --no-tied         it has weights of its own\n\n"
		"Reads the dimensions of a language model from its config.json, as the\n"
		"transformers library writes it. An option overrides the file. Without a file,\n"
		"give --context and all dimensions. gpumem_estimate_inference(3) has the\n"
		"formulas. If a daemon runs, also shows on which devices the model would fit, as\n"
		"'place' does: FIT says whether the total fits, ROOM is how much you could get\n"
		"there now, and MOST how much you could ever get. G is GiB, 1024^3 bytes.\n",
	.takes = GM_OPTION_MODEL,
	.max_args = 1,
	.run = estimate_run,
};
