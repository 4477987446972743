/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_NAME_AUDIENCE_H
#define GM_LEASE_NAME_AUDIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* Who may open what is shared. */

enum gm_name_audience { GM_NAME_AUDIENCE_DOMAIN, GM_NAME_AUDIENCE_UID, GM_NAME_AUDIENCE_GID };

struct gm_token_options {
	enum gm_name_audience audience;
	uint32_t id; /* uid or gid */
	bool read_only;
};

#endif
