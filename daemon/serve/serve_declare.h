/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_DECLARE_H
#define GM_DAEMON_SERVE_DECLARE_H

#include "daemon/serve/serve.h"

/* Memory that clients make themselves and declare: daemon/lease/declare.h. */
gm_serve_handler gm_serve_declare;

#endif
