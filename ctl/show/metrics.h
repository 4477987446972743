/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_SHOW_METRICS_H
#define GM_CTL_SHOW_METRICS_H

#include "ctl/verb/verb.h"

/*
 * The figures of the daemon, its devices, pools, users and clients in the text format of Prometheus.
 *
 * Asks the daemon that the options name. On failure the text says that the daemon is not up, and ctl->trouble says why.
 * The caller frees the text, which is NULL without memory.
 */
gpumem_status gm_metrics_write(struct gm_ctl *ctl, char **ret_text, size_t *ret_n);

#endif
