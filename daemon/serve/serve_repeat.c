/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines that say the same again and again. GM_SERVE_REPEAT_LAST_NS without any is a calm time, and the
 * next time between two lines is short again. That nothing was left out is not enough: a request that
 * waits causes a reclaim every two seconds. */
#include "daemon/serve/serve_repeat.h"

#include <string.h>

#include "common/arith.h"

bool gm_serve_repeat_allows(struct gm_serve_repeat *repeat, uint64_t now_ns, uint64_t *ret_left_out)
{
	if (repeat->gap_ns && now_ns - repeat->said_ns < repeat->gap_ns) {
		repeat->left_out++;
		return false;
	}

	bool calm = !repeat->left_out && now_ns - repeat->said_ns >= GM_SERVE_REPEAT_LAST_NS;
	repeat->gap_ns = !repeat->gap_ns || calm
				 ? GM_SERVE_REPEAT_FIRST_NS
				 : gm_u64_min(2 * repeat->gap_ns, GM_SERVE_REPEAT_LAST_NS);
	repeat->said_ns = now_ns;
	*ret_left_out = repeat->left_out;
	repeat->left_out = 0;
	return true;
}

bool gm_serve_repeat_list_allows(struct gm_serve_repeat_list *repeats,
	const uint64_t key[GM_SERVE_REPEAT_PARTS], uint64_t now_ns, uint64_t *ret_left_out)
{
	size_t size = sizeof(repeats->list[0].key), at = 0;

	for (size_t i = 0; i < GM_SERVE_REPEAT_KEYS; i++) {
		if (repeats->list[i].repeat.gap_ns && !memcmp(repeats->list[i].key, key, size))
			return gm_serve_repeat_allows(
				&repeats->list[i].repeat, now_ns, ret_left_out);
		if (repeats->list[i].repeat.said_ns < repeats->list[at].repeat.said_ns)
			at = i;
	}
	memcpy(repeats->list[at].key, key, size);
	repeats->list[at].repeat =
		(struct gm_serve_repeat){.said_ns = now_ns, .gap_ns = GM_SERVE_REPEAT_KEY_FIRST_NS};
	*ret_left_out = 0;
	return true;
}
