/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_H
#define GM_CTL_VERB_H

#include <stdbool.h>

#include "ctl/io/ctl_conn.h"
#include "ctl/options.h"
#include "ctl/io/writer.h"

/*
 * One verb of gpumemctl. All of them are in the table of verbs.c, which feeds the parser and the
 * help.
 */

/* What a verb runs with. */
struct gm_ctl {
	const struct gm_options *options;
	struct gm_writer *writer;
	struct gm_trouble trouble; /* why it failed */
	bool usage;                /* it was called in a wrong way */
	gpumem_status status;      /* how a verb that has an answer ends all the same */
	bool streamed;             /* it wrote by itself: there is nothing left for the writer */
	int stream_error;          /* and what became of that: 0, or a negative errno */
};

struct gm_verb {
	const char *name;
	const char *arguments; /* "[--device N]" */
	const char *summary;   /* one line of help */
	const char *help;      /* what --help adds */
	unsigned takes;        /* enum gm_option_bits: options of its own */
	unsigned max_args;
	/* GPUMEM_OK: the writer has the answer. Else ctl->trouble says why there is none. */
	gpumem_status (*run)(struct gm_ctl *ctl);
};

/* Ended by a verb without a name. */
extern const struct gm_verb gm_verbs[];
/* NULL: there is none of that name. */
const struct gm_verb *gm_verb_find(const char *name);

gpumem_status gm_verb_status(struct gm_ctl *ctl);
gpumem_status gm_verb_devices(struct gm_ctl *ctl);
gpumem_status gm_verb_pools(struct gm_ctl *ctl);
gpumem_status gm_verb_clients(struct gm_ctl *ctl);
gpumem_status gm_verb_buffers(struct gm_ctl *ctl);
gpumem_status gm_verb_trim(struct gm_ctl *ctl);
gpumem_status gm_verb_cleanup(struct gm_ctl *ctl);
gpumem_status gm_verb_limit(struct gm_ctl *ctl);
gpumem_status gm_verb_pressure(struct gm_ctl *ctl);
gpumem_status gm_verb_queue(struct gm_ctl *ctl);
gpumem_status gm_verb_watch(struct gm_ctl *ctl);
gpumem_status gm_verb_config(struct gm_ctl *ctl);
gpumem_status gm_verb_doctor(struct gm_ctl *ctl);
gpumem_status gm_verb_version(struct gm_ctl *ctl);
gpumem_status gm_verb_help(struct gm_ctl *ctl);

/* The number of the device that the options name otherwise, as the daemon has it. Without such a
 * name it asks nobody. */
gpumem_status gm_verb_resolve_device(struct gm_ctl *ctl, struct gm_options *options);

/* Connects, asks once, and closes. */
gpumem_status gm_verb_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user);

/* GPUMEM_E_NOT_FOUND: --device names one that is not there. For verbs that could show nothing of it
 * and would not say why. */
gpumem_status gm_verb_require_device(struct gm_ctl *ctl, struct gm_ctl_conn *conn);

/* The help of one verb, or of all of it (NULL), on stdout. */
void gm_verb_print_help(const struct gm_verb *verb);

#endif
