/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "ctl/verbs.h"

#include <stddef.h>

/* All verbs, in the order in which help lists them. verb_NAME.c in ctl/show, ctl/change or
 * ctl/verb defines verb NAME. */
#define VERBS(X) \
	X(status) \
	X(devices) \
	X(pools) \
	X(who) \
	X(clients) \
	X(buffers) \
	X(shares) \
	X(weights) \
	X(trim) \
	X(limit) \
	X(pressure) \
	X(queue) \
	X(cleanup) \
	X(place) \
	X(estimate) \
	X(drain) \
	X(evict) \
	X(restore) \
	X(kill) \
	X(stop) \
	X(watch) \
	X(metrics) \
	X(config) \
	X(doctor) \
	X(version) \
	X(help)

#define DECLARE(name) extern const struct gm_verb gm_verb_##name;
VERBS(DECLARE)

#define ROW(name) &gm_verb_##name,
const struct gm_verb *const gm_verbs[] = {VERBS(ROW) NULL};
