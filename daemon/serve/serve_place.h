/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_PLACE_H
#define GM_DAEMON_SERVE_PLACE_H

#include "daemon/serve/serve.h"

/* The request Place: which device has room for so many bytes? */

gm_serve_handler gm_serve_place;

#endif
