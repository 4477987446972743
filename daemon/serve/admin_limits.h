/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_LIMITS_H
#define GM_DAEMON_ADMIN_LIMITS_H

#include "daemon/serve/serve.h"

/*
 * Hands the configured limits to core, together with new policies for the devices (NULL: they keep
 * theirs). On failure nothing changes, and detail says what contradicts what.
 */
gpumem_status gm_admin_configure(struct gm_core *core, const struct gm_config *config,
	const struct gm_policy *policies, char detail[GM_DETAIL_BYTES]);

#endif
