/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_METADATA_H
#define GM_DAEMON_SERVE_METADATA_H

#include "daemon/serve/serve.h"

/* Requests about the metadata of names. */
gm_serve_handler gm_serve_put_metadata, gm_serve_get_metadata;

#endif
