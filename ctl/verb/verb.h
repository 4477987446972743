/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERB_VERB_H
#define GM_CTL_VERB_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/gpumem_plan.h"
#include "common/text/device_name.h"
#include "ctl/io/ctl_conn.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"

/*
 * Each verb of gpumemctl is one file: it asks the daemon and hands the answer to a writer. A verb must
 * never know the other verbs, nor how the command line is read. Verbs that only show something are in
 * ctl/show. Those that change something are in ctl/change, with what they list to choose from. Here
 * are the verbs about gpumemctl and the machine: config, doctor, help and version.
 *
 * This header says what a verb is, what it runs with, and what verbs have in common.
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
	GM_OPTION_SORT = 64,
	GM_OPTION_COLUMNS = 128,
	GM_OPTION_USER = 256,
	GM_OPTION_NAME = 512,
	GM_OPTION_SIGNAL = 1024,
	GM_OPTION_QUIET = 2048,
	GM_OPTION_FORGET = 4096,
	GM_OPTION_UNDO = 8192,
	GM_OPTION_WAIT = 16384,
	GM_OPTION_STACKS = 32768,
	GM_OPTION_UID = 1 << 16, /* who may attach; --user chooses rows */
	GM_OPTION_GID = 1 << 17,
	GM_OPTION_EXPIRES = 1 << 18,
	GM_OPTION_READERS_CAN_WRITE = 1 << 19,
	GM_OPTION_SAVE = 1 << 20,
	GM_OPTION_NO_RECONNECT = 1 << 21,
	GM_OPTION_REPLACE = 1 << 29,
	GM_OPTION_MODEL = 1 << 24, /* the dimensions of a model, and what else describes it */
	GM_OPTION_MAY_WAIT = 1 << 25,
};
#define GM_OPTIONS_OF_LISTS \
	(GM_OPTION_SORT | GM_OPTION_COLUMNS | GM_OPTION_DEVICE | GM_OPTION_USER | GM_OPTION_NAME)

#define GM_OPTIONS_ARGS       5
#define GM_OPTIONS_TIMEOUT_MS 10000

/* Their help. */
#define GM_VERB_HELP_OF_ROWS \
	"  --sort COLUMN,...     sort by these columns; -COLUMN: the largest first\n" \
	"  --columns COLUMN,...  show these columns, in this order\n" \
	"  --device N            only on this device\n"

#define GM_VERB_HELP_OF_LISTS \
	GM_VERB_HELP_OF_ROWS \
	"  --user USER           only clients of this user (a name or a number)\n" \
	"  --name PATTERN        only clients with this name; *, ? and [...] match as in\n" \
	"                        a shell, so quote them\n"

/* The same for a list of names. */
#define GM_VERB_HELP_OF_NAMES \
	GM_VERB_HELP_OF_ROWS \
	"  --user USER           only names of this user (a name or a number)\n" \
	"  --name PATTERN        only names like this; *, ? and [...] match as in a\n" \
	"                        shell, so quote them\n"

enum gm_colour { GM_COLOUR_AUTO, GM_COLOUR_ALWAYS, GM_COLOUR_NEVER, GM_COLOURS };

struct gm_options {
	const struct gm_verb *verb;
	bool verb_given;                   /* false: verb is the default one */
	const char *args[GM_OPTIONS_ARGS]; /* the arguments after the verb */
	size_t n_args;
	const char *socket; /* NULL: look for it where clients do */
	uint64_t timeout_ms;
	bool json;
	bool csv;
	bool no_header;
	bool bytes; /* sizes as numbers of bytes */
	bool debug;
	bool help;
	bool version;
	unsigned given; /* enum gm_option_bits */
	uint64_t older_than_ms;
	uint64_t wait_ms;                  /* UINT64_MAX: for ever */
	uint32_t device;                   /* the number, once the name is resolved */
	struct gm_device_name device_name; /* as given */
	const char *device_text;
	uint32_t at_least; /* a level of pressure, 0 to 3 */
	uint64_t need;
	gpumem_model model;         /* what was given of it; the rest is 0 */
	bool untied;                /* its embeddings, although the file says otherwise */
	const char *sort, *columns; /* as given */
	struct gm_view view;        /* these, or the verb's own order */
	uid_t user;
	const char *name; /* a pattern */
	uid_t audience_uid;
	gid_t audience_gid;
	uint32_t expires_s; /* 0: never */
	int signal;
	enum gm_colour colour;
};

/* What a verb runs with, and what it leaves for main(). */
struct gm_ctl {
	const struct gm_options *options;
	const struct gm_verb *const *verbs; /* all verbs, for help; NULL ends the list */
	struct gm_writer *writer;
	struct gm_trouble trouble; /* why the verb failed */
	bool usage;                /* it failed because of the command line */
	gpumem_status status;      /* decides the exit status of a verb that has an answer */
	int exit_status;           /* not 0: the exit status, whatever the status says */
	bool colour;               /* for a verb that writes by itself */
	size_t columns;            /* for the same: how wide lines may be; 0: as wide as needed */
	bool streamed;             /* the verb has written its answer itself, without the writer */
	int stream_error;          /* how that went: 0 or a negative errno */
};

struct gm_verb {
	const char *name;
	const char *arguments; /* "[--device N]" */
	const char *summary;   /* one line of help */
	const char *help;      /* what --help adds; gpumemctl(1) says more */
	unsigned takes;        /* enum gm_option_bits */
	unsigned max_args;
	bool names_device; /* its argument is a device, as after --device */
	bool streams;      /* writes line by line, so it has no CSV */
	bool plain;        /* has a format of its own, so it has neither JSON nor CSV */
	/* For --sort and --columns: the columns to choose from, and the order without --sort. */
	const struct gm_column *columns;
	size_t n_columns;
	const char *sort; /* NULL: as the daemon sends them */
	/* Returns GPUMEM_OK if the writer has the answer. Otherwise ctl->trouble says why not. */
	gpumem_status (*run)(struct gm_ctl *ctl);
};

/* Returns the verb with this name, or NULL. In both functions, NULL ends the list of verbs. */
const struct gm_verb *gm_verb_find(const struct gm_verb *const *verbs, const char *name);
/* Returns what to use instead of a verb that other programs have and gpumemctl does not, such as
 * "use 'gpumemctl clients'", or NULL. Ask this before gm_verb_closest(), to which 'top' is 'stop'. */
const char *gm_verb_familiar(const char *name);
/* Returns the name of a verb that is close to a misspelt one, or NULL. */
const char *gm_verb_closest(const struct gm_verb *const *verbs, const char *name);

/* Prints the help of one verb or, if verb is NULL, the general help to stdout. */
void gm_verb_print_help(const struct gm_verb *const *verbs, const struct gm_verb *verb);

/* Connects to the daemon that the options name. */
gpumem_status gm_verb_connect(struct gm_ctl *ctl, struct gm_ctl_conn **ret_conn);

/* Connects, asks one question, and disconnects. */
gpumem_status gm_verb_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user);
/* The same for a question that has no fields: see gm_ctl_conn_get(). */
gpumem_status gm_verb_get(struct gm_ctl *ctl, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user);

/*
 * The same, but return GPUMEM_E_NOT_FOUND if --device names a device that does not exist. For verbs
 * whose answer would otherwise be empty without a reason.
 */
gpumem_status gm_verb_connect_on_device(struct gm_ctl *ctl, struct gm_ctl_conn **ret_conn);
gpumem_status gm_verb_get_on_device(struct gm_ctl *ctl, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user);

/* Sleeps *pause_ms, but not beyond until_ms of gm_clock_ns(), and doubles it up to most_ms: for a verb that looks again and
 * again. */
void gm_verb_pause(uint64_t *pause_ms, uint64_t most_ms, uint64_t until_ms);

/* Asks for the devices. If conn is NULL, connects and disconnects by itself. */
gpumem_status gm_verb_ask_devices(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, gm_ctl_conn_answer_fn fn, void *user);

/* If the options name a device by UUID, by PCI address or as pinned, asks the daemon for its number. With --save, also for
 * a number: that of pinned host memory is replaced by its name. */
gpumem_status gm_verb_resolve_device(struct gm_ctl *ctl, struct gm_options *options);

/*
 * Whether --device, --user and --name let a row through. device is -1 for a row that is about no
 * device. A name that is NULL or "" matches no pattern but "".
 */
bool gm_verb_wants(
	const struct gm_options *options, int64_t device, uint32_t uid, const char *name);

/* Whether the options leave out rows of a list. */
bool gm_verb_narrows(const struct gm_options *options);
/* Refuses the options of a list that were given to something else: to 'shares remove', for example. */
gpumem_status gm_verb_refuse_list_options(struct gm_ctl *ctl, const char *use);
/* Reads a name of a published buffer: NAME, or uid:USER/NAME with the name or the number of a user. */
struct gm_token_name;
gpumem_status gm_verb_parse_name(
	struct gm_ctl *ctl, const char *text, struct gm_token_name *ret_name);
/* There is no such name. what: "buffer" or "weights". other: another user that has it, or NULL. Fills in
 * ctl->trouble and returns its status. */
gpumem_status gm_verb_no_such_name(
	struct gm_ctl *ctl, const struct gm_token_name *name, const char *what, const uid_t *other);

/* Refuses a name that does not exist and has the ellipsis of a table in it. Otherwise returns GPUMEM_OK. */
gpumem_status gm_verb_refuse_cut_name(struct gm_ctl *ctl, const char *name);

/* Adds what verbs show about a client: session, pid, uid, user name, name. */
void gm_verb_add_client(
	struct gm_table *table, uint64_t session, int64_t pid, uint32_t uid, const char *name);

/* Shows a list as the options want it: its columns, and their order. none is for a list without a row. Takes ownership of the
 * table. */
void gm_verb_show_list(
	struct gm_ctl *ctl, const char *key, struct gm_table *table, const char *none);

/* Begins the notes, and says of how many owners the limits are left out, if of any. */
void gm_verb_note_hidden_limits(struct gm_ctl *ctl, uint64_t owners);

/* The command line is wrong. These fill in ctl->trouble and return its status. */
gpumem_status gm_verb_wrong_use(struct gm_ctl *ctl, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The word means no client. hidden: there are clients whose names the user may not see. */
gpumem_status gm_verb_no_client(struct gm_ctl *ctl, const char *word, bool hidden);
/* The argument with this index is one too many. */
gpumem_status gm_verb_too_many(struct gm_ctl *ctl, size_t index);
/* gm_verb_run_word() calls run() if the user gave this word as the first argument. */
struct gm_verb_word {
	const char *word;
	gpumem_status (*run)(struct gm_ctl *ctl);
};
#define GM_VERB_WORDS 4

/* Calls the function of the word that is the first argument, or that of words[0] if the user gave no arguments. If the
 * argument is another word, the call fails as gm_verb_unknown() does. */
gpumem_status gm_verb_run_word(
	struct gm_ctl *ctl, const struct gm_verb_word words[GM_VERB_WORDS], const char *remedy);

/* Offers the closest verb or, if that is NULL, the remedy. before: "", or "limit " and the like. */
gpumem_status gm_verb_unknown(struct gm_ctl *ctl, const char *before, const char *word,
	const char *closest, const char *remedy);

#endif
