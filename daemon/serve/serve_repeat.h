/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_SERVE_REPEAT_H
#define GM_DAEMON_SERVE_SERVE_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Thins out log lines that say the same again and again, about no client in particular. The daemon writes the first
 * one at once. While more keep coming, the time between two lines doubles, from GM_SERVE_REPEAT_FIRST_NS to
 * GM_SERVE_REPEAT_LAST_NS. So a day takes some 1,450 lines, however many events there are.
 */
#define GM_SERVE_REPEAT_FIRST_NS UINT64_C(1000000000)
#define GM_SERVE_REPEAT_LAST_NS  UINT64_C(60000000000)

/* All fields 0: there was no line yet. */
struct gm_serve_repeat {
	uint64_t said_ns, gap_ns;
	uint64_t left_out;
};

/* Whether the next line may be written. If not, it is counted; if so, *ret_left_out is how many were
 * left out since the line before. */
bool gm_serve_repeat_allows(
	struct gm_serve_repeat *repeat, uint64_t now_ns, uint64_t *ret_left_out);

/* The same for several kinds of lines at once. A key says what a line is about. The time between its first two lines is
 * longer than the time between two reclaims for a request that waits. If there are more keys than entries, the entry with
 * the oldest line is dropped. All fields 0: there was no line yet. */
#define GM_SERVE_REPEAT_KEY_FIRST_NS UINT64_C(10000000000)
#define GM_SERVE_REPEAT_KEYS         32
#define GM_SERVE_REPEAT_PARTS        5
struct gm_serve_repeat_list {
	struct {
		uint64_t key[GM_SERVE_REPEAT_PARTS];
		struct gm_serve_repeat repeat;
	} list[GM_SERVE_REPEAT_KEYS];
};

/* Whether the next line with this key may be written, as gm_serve_repeat_allows(). */
bool gm_serve_repeat_list_allows(struct gm_serve_repeat_list *repeats,
	const uint64_t key[GM_SERVE_REPEAT_PARTS], uint64_t now_ns, uint64_t *ret_left_out);

#endif
