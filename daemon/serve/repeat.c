/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines that say the same again and again. A time in which nothing was left out is a calm one, and
 * the next time is short again. */
#include "daemon/serve/repeat.h"

#include "common/arith.h"

bool gm_repeat_allows(struct gm_repeat *repeat, uint64_t now_ns, uint64_t *ret_left_out)
{
	if (repeat->gap_ns && now_ns - repeat->said_ns < repeat->gap_ns) {
		repeat->left_out++;
		return false;
	}

	repeat->gap_ns = repeat->left_out ? gm_min(2 * repeat->gap_ns, GM_REPEAT_LAST_NS)
					  : GM_REPEAT_FIRST_NS;
	repeat->said_ns = now_ns;
	*ret_left_out = repeat->left_out;
	repeat->left_out = 0;
	return true;
}
