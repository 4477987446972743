/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_OPTIONS_H
#define GM_CTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/device_name.h"

struct gm_verb;

/* The command line, understood. */

/* Options that only some verbs take. */
enum gm_option_bits {
	GM_OPTION_OLDER_THAN = 1,
	GM_OPTION_DEVICE = 2,
	GM_OPTION_MEASURE = 4,
	GM_OPTION_AT_LEAST = 8,
	GM_OPTION_NEED = 16,
	GM_OPTION_DRY_RUN = 32,
};

#define GM_OPTIONS_ARGS       5
#define GM_OPTIONS_TIMEOUT_MS 10000

struct gm_options {
	const struct gm_verb *verb;
	bool verb_given;                   /* else it is the default one */
	const char *args[GM_OPTIONS_ARGS]; /* what follows the verb */
	size_t n_args;
	const char *socket; /* NULL: where clients look by themselves */
	uint64_t timeout_ms;
	bool json;
	bool no_legend;
	bool debug;
	bool help;
	bool version;
	unsigned given; /* enum gm_option_bits */
	uint64_t older_than_ms;
	uint32_t device;                   /* its number, once its name is resolved */
	struct gm_device_name device_name; /* as it was given */
	const char *device_text;
	uint32_t at_least; /* a pressure level, 0 to 3 */
	uint64_t need;
};

#define GM_OPTIONS_ERROR 512

/*
 * Options may stand before and after the verb; no verb means status. Texts point into argv, whose
 * order may change. 0; -EINVAL, and error says what is wrong and, where a name is close to a known
 * one, what may have been meant.
 */
int gm_options_parse(
	int argc, char **argv, struct gm_options *ret_options, char error[GM_OPTIONS_ERROR]);

/* The candidate closest to word, or NULL if none is close. candidates: ended by NULL. */
const char *gm_options_closest(const char *word, const char *const *candidates);

#endif
