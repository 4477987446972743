/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_READER_H
#define GM_DAEMON_CONFIG_READER_H

#include <stdbool.h>

#include "daemon/config/config_error.h"
#include "daemon/config/config_keys.h"
#include "daemon/config/config_limit.h"
#include "daemon/config/config_names.h"
#include "daemon/config/config_value.h"

/* The contents of the files, before config.c makes a configuration of them. */

/* The sections that have a value for each key: the general one, those of devices by their numbers,
 * then those of strangers. */
enum gm_config_slot {
	GM_CONFIG_SLOT_GENERAL,
	GM_CONFIG_SLOT_DEVICES,
	GM_CONFIG_SLOT_STRANGERS = GM_CONFIG_SLOT_DEVICES + GM_BOUND_DEVICES,
	GM_CONFIG_SLOTS = GM_CONFIG_SLOT_STRANGERS + GM_CONFIG_STRANGERS,
};
enum gm_config_place gm_config_slot_place(int slot);

struct gm_config_reader {
	struct gm_config_errors errors;
	struct gm_config_errors warnings; /* no reason to refuse the configuration */
	bool doubtful[GM_CONFIG_N_KEYS];  /* a refused line may have been meant to set the key */
	bool unsure; /* a line was not understood at all: it may have been meant to set any key */
	char *path;  /* of the first file; NULL: there is nowhere to look */
	struct gm_config_source *source; /* the file that is being read; next are those before it */
	bool named[GM_CONFIG_SLOTS];     /* the slots that have a section */
	struct gm_config_names names;
	struct gm_config_setting settings[GM_CONFIG_SLOTS][GM_CONFIG_N_KEYS];
	struct gm_config_limits limits;
};
/* The reader must not be moved afterwards. known may be NULL and must outlive the reader. */
void gm_config_reader_init(struct gm_config_reader *reader, const struct gm_config_known *known);
void gm_config_reader_deinit(struct gm_config_reader *reader);
/*
 * Reads the file and its drop-ins; path as for gm_config_load(). Returns 0 if all files could be
 * read, even if errors says that something in them is wrong. If a file cannot be read, reads the
 * others, then returns a negative errno, which errors explains. Returns -ENOMEM at once.
 */
int gm_config_reader_read(struct gm_config_reader *reader, const char *path);
/* The names of the files that were read, in order, one per line. Returns 0 or -ENOMEM. */
int gm_config_reader_names(const struct gm_config_reader *reader, char **ret_names);

/* The value that a key has in the end: from a file, from the preset, or the default. */
struct gm_config_effective {
	size_t id;
	const struct gm_config_setting *setting; /* NULL: no file sets the key */
	const char *text;
	const char *preset; /* the preset that the text comes from; NULL: none */
	struct gm_config_value value;
};

struct gm_config_effective gm_config_effective(
	const struct gm_config_reader *reader, size_t id, int slot);
struct gm_config_effective gm_config_effective_general(
	const struct gm_config_reader *reader, size_t id);
/* Whether a file sets the key to something that is no value, or a line that was refused may have
 * been meant to set it. */
bool gm_config_effective_is_doubtful(
	const struct gm_config_reader *reader, const struct gm_config_effective *effective);

#endif
