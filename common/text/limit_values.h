/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_LIMIT_VALUES_H
#define GM_TEXT_LIMIT_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "common/text/units.h"

/*
 * The values that a limit of an owner can have. (The code calls such a limit a limit, because
 * common/bounds.h holds the daemon's own bounds.) Everything that only carries, shows or reads values
 * follows from this list. What a value means is in daemon/device/limit.h; its key of the configuration
 * is a row of daemon/config/config_keys.h, and its fields of messages are in proto/gpumem.proto.
 *
 *   X(KIND, name, unit, bit, unset, how, usage, example)
 *
 *   name     the member of the structures, the field of the messages, the key in JSON and files
 *   unit     size (bytes) or signed
 *   bit      the number in messages (LimitValue) and records, which never changes
 *   unset    the value while none is set. UINT64_MAX: none, which also lifts a configured value
 *   how      flags of its column in the table of gpumemctl limit
 *   usage    how to set it, example with a value
 */
/* clang-format off */
#define GM_LIMIT_KINDS(X) \
	X(MAX, max, size, 1, UINT64_MAX, 0, "max=SIZE", "max=48G or max=none") \
	X(GUARANTEE, guarantee, size, 2, 0, GM_COLUMN_OPTIONAL, "guarantee=SIZE", "guarantee=8G") \
	X(PRIORITY, priority, signed, 4, 0, GM_COLUMN_OPTIONAL, "priority=N", "a number from -1000 to 1000")
/* clang-format on */

#define GM_LIMIT_BIT(KIND, name, unit, bit, ...)     GM_LIMIT_##KIND = (bit),
#define GM_LIMIT_PLACE(KIND, ...)                    GM_LIMIT_AT_##KIND,
#define GM_LIMIT_ADD_BIT(KIND, name, unit, bit, ...) | (bit)
enum { GM_LIMIT_KINDS(GM_LIMIT_BIT) GM_LIMIT_ALL = 0 GM_LIMIT_KINDS(GM_LIMIT_ADD_BIT) };
/* The place of each in the list. */
enum { GM_LIMIT_KINDS(GM_LIMIT_PLACE) GM_LIMIT_N_KINDS };
#undef GM_LIMIT_BIT
#undef GM_LIMIT_PLACE
#undef GM_LIMIT_ADD_BIT

struct gm_limit_values {
	unsigned set; /* which of the values below are set */
#define GM_LIMIT_TYPE_size                    uint64_t
#define GM_LIMIT_TYPE_signed                  int32_t
#define GM_LIMIT_VALUE(KIND, name, unit, ...) GM_LIMIT_TYPE_##unit name;
	GM_LIMIT_KINDS(GM_LIMIT_VALUE)
#undef GM_LIMIT_VALUE
};
/* Nothing is set. */
#define GM_LIMIT_VALUES_UNSET_VALUE(KIND, name, unit, bit, unset, ...) .name = (unset),
#define GM_LIMIT_VALUES_UNSET \
	((struct gm_limit_values){GM_LIMIT_KINDS(GM_LIMIT_VALUES_UNSET_VALUE)})

enum gm_limit_unit { GM_LIMIT_UNIT_size, GM_LIMIT_UNIT_signed };
struct gm_limit_kind {
	unsigned bit;
	const char *name;
	enum gm_limit_unit unit;
	uint64_t unset;
	const char *usage, *example;
};
extern const struct gm_limit_kind gm_limit_kinds[GM_LIMIT_N_KINDS];

/* Returns the kind with this name of n bytes, or NULL. */
const struct gm_limit_kind *gm_limit_kind_named(const char *name, size_t n);

/* Returns the value of a kind; a negative one as 2^64 - n. 0 for a bit that is no kind's. */
uint64_t gm_limit_values_get(const struct gm_limit_values *values, unsigned bit);
/* Sets a value as gm_limit_values_get() returns it. A bit that is no kind's changes nothing. */
void gm_limit_values_set(struct gm_limit_values *values, unsigned bit, uint64_t value);

/* Returns "none", "48.0G" or "-10". */
const char *gm_limit_values_text(const struct gm_limit_values *values,
	const struct gm_limit_kind *kind, char text[GM_UNITS_TEXT]);
/* Returns the value with its key, to the byte, as a file and gpumemctl limit set have it: "max=51539607552". */
#define GM_LIMIT_PAIR_TEXT 48
const char *gm_limit_values_pair(const struct gm_limit_values *values,
	const struct gm_limit_kind *kind, char text[GM_LIMIT_PAIR_TEXT]);

/* Returns the names of all kinds, each after the article, with the word before the last one: "a max, a guarantee or a
 * priority". NULL as the article: their usage. */
#define GM_LIMIT_NAMES_TEXT 160
const char *gm_limit_kind_names(
	const char *article, const char *word, char text[GM_LIMIT_NAMES_TEXT]);

#endif
