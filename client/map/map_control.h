/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_MAP_CONTROL_H
#define GM_CLIENT_MAP_MAP_CONTROL_H

#include <stdbool.h>

#include "common/control.h"

/* The control block of a buffer with signals, as this process has it mapped. The CPU reads and writes it
 * itself, on every backend. Backends embed this struct, as the first member of one of their own. */
struct gm_map_control {
	struct gm_control *control;
	bool read_only; /* this process must not write it */
};

/* Maps the memfd of a control block. The fd stays the caller's, and is not needed afterwards. -EPROTO: it
 * is no such memfd: somebody could truncate it while it is in use. */
int gm_map_control_init(struct gm_map_control *word, int fd, bool read_only);
void gm_map_control_deinit(struct gm_map_control *word);

#endif
