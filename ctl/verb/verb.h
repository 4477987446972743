/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_VERB_H
#define GM_CTL_VERB_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/device_name.h"
#include "ctl/io/ctl_conn.h"
#include "ctl/io/writer.h"

/*
 * The verbs of gpumemctl, one file each: what a verb is, what it runs with, and what verbs have in
 * common. A verb asks the daemon and hands its answer to a writer. It knows neither the other verbs
 * nor how the command line was read.
 */

struct gm_verb;

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

/* What a verb runs with. */
struct gm_ctl {
	const struct gm_options *options;
	const struct gm_verb *const *verbs; /* all there are, for help; NULL ends the list */
	struct gm_writer *writer;
	struct gm_trouble trouble; /* why it failed */
	bool usage;                /* the command line was wrong */
	gpumem_status status; /* for the exit status of a verb that has an answer all the same */
	bool streamed;        /* the verb wrote its answer itself; the writer has nothing */
	int stream_error;     /* how that went: 0, or a negative errno */
};

struct gm_verb {
	const char *name;
	const char *arguments; /* "[--device N]" */
	const char *summary;   /* one line of help */
	const char *help;      /* what --help adds; gpumemctl(1) says the same at more length */
	unsigned takes;        /* enum gm_option_bits: the options that not every verb takes */
	unsigned max_args;
	/* GPUMEM_OK: the writer has the answer. Otherwise ctl->trouble says why there is none. */
	gpumem_status (*run)(struct gm_ctl *ctl);
};

/* Returns NULL if there is no verb of that name. verbs: NULL ends the list. */
const struct gm_verb *gm_verb_find(const struct gm_verb *const *verbs, const char *name);
/* The verb whose name is closest to a misspelt one, or NULL if none is close. */
const char *gm_verb_closest(const struct gm_verb *const *verbs, const char *name);

/* If the options name a device by UUID or PCI address, asks the daemon for its number. */
gpumem_status gm_verb_resolve_device(struct gm_ctl *ctl, struct gm_options *options);

/* Connects, asks once, and closes. */
gpumem_status gm_verb_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user);

/* GPUMEM_E_NOT_FOUND: --device names a device that does not exist. For verbs whose answer would
 * otherwise be empty without a reason. */
gpumem_status gm_verb_require_device(struct gm_ctl *ctl, struct gm_ctl_conn *conn);

/* Prints the help of one verb, or the general help (NULL), to stdout. */
void gm_verb_print_help(const struct gm_verb *const *verbs, const struct gm_verb *verb);

#endif
