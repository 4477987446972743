/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_SESSION_H
#define GM_DAEMON_SERVE_SESSION_H

#include "daemon/serve/serve.h"

/* Requests that begin and end a session, and the list of devices. */
gm_serve_handler gm_serve_hello, gm_serve_goodbye, gm_serve_get_devices;

#endif
