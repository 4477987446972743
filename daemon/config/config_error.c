/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of complaints about a configuration. Reading goes on after an error, so that one run
 * shows all errors. They are found in several passes over a file and sorted at the end. A complaint
 * is never dropped: if there is no memory for it, reading the configuration fails.
 */
#include "daemon/config/config_error.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/units.h"

int gm_config_errors_add(struct gm_config_errors *errors, const struct gm_config_source *source,
	uint32_t line, const char *format, ...)
{
	struct gm_config_error *list =
		reallocarray(errors->list, errors->n + 1, sizeof(*errors->list));
	if (!list)
		return -ENOMEM;

	errors->list = list;

	struct gm_config_error error = {.source = source, .line = line, .order = errors->n};
	va_list args;
	va_start(args, format);
	int n = vasprintf(&error.text, format, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;

	list[errors->n++] = error;
	return GM_CONFIG_E_REFUSED;
}

static int config_error_compare(const void *a, const void *b)
{
	const struct gm_config_error *x = a, *y = b;
	size_t m = x->source ? x->source->order + 1 : 0, n = y->source ? y->source->order + 1 : 0;
	if (m != n)
		return m < n ? -1 : 1;
	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* Writes the path of a file. Whoever made the file chose the name, which must not forge a line of the list. */
static void config_error_write_path(FILE *stream, const char *path)
{
	char shown[PATH_MAX];

	snprintf(shown, sizeof(shown), "%s", path);
	fprintf(stream, "%s:", gm_text_mend(shown));
}

int gm_config_errors_text(struct gm_config_errors *errors, char **ret_text)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	if (!stream)
		return -ENOMEM;

	if (errors->n)
		qsort(errors->list, errors->n, sizeof(*errors->list), config_error_compare);
	for (size_t i = 0; i < errors->n; i++) {
		const struct gm_config_error *error = &errors->list[i];
		fputs(i ? "\n" : "", stream);
		if (error->source)
			config_error_write_path(stream, error->source->path);
		if (error->source && error->line)
			fprintf(stream, "%u:", error->line);
		fprintf(stream, "%s%s", error->source ? " " : "", error->text);
	}

	int failed = ferror(stream);
	if (fclose(stream) || failed || !text) {
		free(text);
		return -ENOMEM;
	}

	*ret_text = text;
	return 0;
}

void gm_config_errors_deinit(struct gm_config_errors *errors)
{
	for (size_t i = 0; i < errors->n; i++)
		free(errors->list[i].text);
	free(errors->list);
	*errors = (struct gm_config_errors){0};
}
