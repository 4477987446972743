/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_READER_H
#define GM_DAEMON_CONFIG_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config.h"
#include "daemon/config/config_error.h"
#include "daemon/config/config_keys.h"
#include "daemon/config/config_value.h"

/* What the files said, before it is a configuration: between config.c, config_reader.c,
 * config_limit.c and config_names.c. */

/* A value that was written, and where. text is NULL: it was not. */
struct gm_config_setting {
	char *text;
	char *file;
	size_t file_order;
	uint32_t line;
	struct gm_config_value value;
};
void gm_config_setting_deinit(struct gm_config_setting *setting);

/* How many devices can be named by UUID or PCI address that are not here. */
#define GM_CONFIG_STRANGERS GM_LIMIT_DEVICES

struct gm_config_names {
	const struct gm_config_known *known; /* NULL: nobody knows which devices there are */
	struct {
		struct gm_device_name name;
		char text[GM_DEVICE_NAME_TEXT]; /* as it was first written */
	} strangers[GM_CONFIG_STRANGERS];
	uint32_t n;
};
/*
 * The device that the first n bytes of a text name: its number or, if it is not known,
 * GM_LIMIT_DEVICES and its place among the strangers. -EINVAL: no name; -ERANGE: a number that
 * there cannot be; -E2BIG: one stranger too many.
 */
int gm_config_names_find(
	struct gm_config_names *names, const char *text, size_t n, uint32_t *ret_device);
/* A sentence for an error of that. */
void gm_config_names_why(int error, char why[GM_CONFIG_WHY_BYTES]);
const char *gm_config_names_text(
	const struct gm_config_names *names, uint32_t device, char text[GM_DEVICE_NAME_TEXT]);

/* One owner's limit, on all devices or on one, of all files together. */
struct gm_config_limit_section {
	char owner[GM_CONFIG_OWNER_BYTES];
	uint32_t device; /* as gm_config_names_find() has it, or GM_CONFIG_ALL_DEVICES */
	char *file;      /* where it was first named */
	size_t file_order;
	uint32_t line;
	struct gm_config_setting settings[GM_CONFIG_N_KEYS];
	struct gm_config_limit_section *next;
};

struct gm_config_limits {
	struct gm_config_limit_section *list; /* in the order in which they were named */
	size_t n, n_owners;
	struct gm_config_names *names;
};
void gm_config_limits_deinit(struct gm_config_limits *limits);

/* Whether the section's name is "limit …" or "device … limit …", so that it is one or was meant to
 * be. */
bool gm_config_limit_named(const char *section);
/* The limit of a section, NULL: none such (yet). */
struct gm_config_limit_section *gm_config_limit_find(
	struct gm_config_limits *limits, const char *section);
/* A section's header, where it stands. 0; 1: refused, which was told; -ENOMEM. */
int gm_config_limit_section(struct gm_config_limits *limits, struct gm_config_errors *errors,
	const char *file, size_t file_order, uint32_t line, const char *section);
/* Limits that contradict themselves or one another. 0, -ENOMEM. */
int gm_config_limits_check(const struct gm_config_limits *limits, struct gm_config_errors *errors);
/* 0, -ENOMEM. */
int gm_config_limits_fill(const struct gm_config_limits *limits, struct gm_config *config);

/* The sections that have a value for each key: the general one, those of the devices by their
 * numbers, then those of strangers. */
enum gm_config_slot {
	GM_CONFIG_SLOT_GENERAL,
	GM_CONFIG_SLOT_DEVICES,
	GM_CONFIG_SLOT_STRANGERS = GM_CONFIG_SLOT_DEVICES + GM_LIMIT_DEVICES,
	GM_CONFIG_SLOTS = GM_CONFIG_SLOT_STRANGERS + GM_CONFIG_STRANGERS,
};
enum gm_config_place gm_config_slot_place(int slot);

/* All that was read. */
struct gm_config_reader {
	struct gm_config_errors errors;
	const char *file; /* the one that is being read */
	size_t file_order;
	bool named[GM_CONFIG_SLOTS];
	struct gm_config_names names;
	struct gm_config_setting settings[GM_CONFIG_SLOTS][GM_CONFIG_N_KEYS];
	struct gm_config_limits limits;
};
/* It stays where it is until the end, and so does known, which may be NULL. */
void gm_config_reader_init(struct gm_config_reader *reader, const struct gm_config_known *known);
void gm_config_reader_deinit(struct gm_config_reader *reader);
/*
 * The file and its drop-ins; path as gm_config_load() has it. 0, and what is wrong with values is
 * in errors; a negative errno, -ENOMEM at once, any other when all that can be read was, and in
 * errors too.
 */
int gm_config_reader_read(struct gm_config_reader *reader, const char *path);

#endif
