/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_UNITS_H
#define GM_TEXT_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * This folder is what people write and read: sizes and times, and the names of devices, users and published buffers. It must
 * never know who reads it, nor ask the daemon.
 */

/* Sizes, times, fractions and names as people write and read them, independent of the locale.
 *
 * The first four functions parse the whole string, or fail with -EINVAL or -ERANGE and leave the
 * result untouched. They accept neither signs nor spaces. */

/* 4096, 64K, 512M, 1.5G, 2T. Units are powers of 1024; "iB" or "B" may follow. */
int gm_parse_size(const char *text, uint64_t *ret_bytes);
#define GM_UNITS_WHY 160
/* For a size of memory whose unit was forgotten: a whole number without a unit, above 0 and below GM_CHUNK_MIN. No limit, and no
 * amount that somebody asks for, is that small; scripts write bytes as larger numbers, and 20B is always 20 bytes. Returns the
 * second half of a sentence that begins with the number, or NULL if the text is anything else. */
const char *gm_parse_bare(const char *text, char why[GM_UNITS_WHY]);
/* For a limit: a size above 0 and below GM_CHUNK_MIN, which allows nothing. Returns the second half of a sentence that begins
 * with the size, or NULL if the size is another one. */
const char *gm_parse_too_small(uint64_t bytes, char why[GM_UNITS_WHY]);
/* 250us, 100ms, 10s, 5min (or 5m), 2h, 1d. A number without a unit is in seconds. Several parts are
 * added, the largest unit first: 1m30s, "1min 30s". */
int gm_parse_duration(const char *text, uint64_t *ret_ns);
/* 0.9 or 90%. The result is at least 0 and at most 1. */
int gm_parse_fraction(const char *text, double *ret_fraction);
/* Decimal digits only. */
int gm_parse_u64(const char *text, uint64_t *ret);
/* A hexadecimal number of least to most digits, at the beginning of text. Returns the text behind
 * it, or NULL if there are too few digits. */
const char *gm_parse_hex(const char *text, size_t least, size_t most, uint32_t *ret);

#define GM_UNITS_TEXT 32
/* Writes into text and returns it. One decimal from 1K on: "0B", "512B", "1.5K", "48.0G". */
const char *gm_format_size(uint64_t bytes, char text[GM_UNITS_TEXT]);
/* Writes into text and returns it. Rounds down to the two largest units: "350ms", "12s",
 * "3min 20s", "3min", "2h 5min", "4d 1h". */
const char *gm_format_duration(uint64_t ns, char text[GM_UNITS_TEXT]);
/* "18,000". */
const char *gm_format_count(uint64_t n, char text[GM_UNITS_TEXT]);
/* "97%". Rounds down, so that 95% is shown only from 95% on. */
const char *gm_format_percent(uint64_t millionths, char text[GM_UNITS_TEXT]);

/*
 * Whether the name is printable UTF-8 of at most GM_BOUND_NAME_BYTES bytes: validly encoded,
 * without control characters, and without anything that breaks or reorders the line it is printed
 * in. "" is such a name, NULL is not.
 */
bool gm_name_ok(const char *name);
/* Whether the text, of any length, is printable UTF-8. */
bool gm_text_ok(const char *text);
/*
 * Makes the text printable UTF-8 in place, and returns it. A character that was cut short, as printf() does with a
 * precision and at the end of its buffer, is left out. Any other byte that is not printable becomes "?".
 */
char *gm_text_mend(char *text);

#endif
