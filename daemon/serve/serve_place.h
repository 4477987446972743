/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_PLACE_H
#define GM_DAEMON_SERVE_PLACE_H

#include "daemon/serve/serve.h"

/* The question where memory would find room. */

gm_serve_handler gm_serve_place;

#endif
