/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_UNITS_H
#define GM_COMMON_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes, times and fractions as people write and read them. Parsing takes the whole string or
 * nothing (-EINVAL, -ERANGE), the same in every locale; no sign and no space is taken. */

int gm_parse_size(const char *text,
	uint64_t *ret_bytes); /* 4096, 64K, 512M, 1.5G, 2T; 1024 each; an iB or B may follow */
int gm_parse_duration(const char *text,
	uint64_t *ret_ns); /* 250us, 100ms, 10s, 5min, 2h, 1d; a bare number is seconds */
int gm_parse_fraction(const char *text, double *ret_fraction); /* 0.9 or 90% ; 0 <= x <= 1 */
int gm_parse_u64(const char *text, uint64_t *ret);             /* decimal digits only */
int gm_parse_bool(const char *text, bool *ret); /* yes, no, true, false, on, off, 1, 0 */

#define GM_UNITS_TEXT 32
/* Into text, which is also returned. One decimal from 1K on: "0B", "512B", "1.5K", "48.0G". */
const char *gm_format_size(uint64_t bytes, char text[GM_UNITS_TEXT]);
/* Rounded down, the two largest units: "350ms", "12s", "3min 20s", "3min", "2h 5min", "4d 1h". */
const char *gm_format_duration(uint64_t ns, char text[GM_UNITS_TEXT]);

/*
 * Printable UTF-8 of at most GM_LIMIT_NAME_BYTES bytes: valid encoding, no control characters,
 * nothing that breaks or reorders the line it is printed in. "" is one, NULL is none.
 */
bool gm_name_ok(const char *name);

#endif
