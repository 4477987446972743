/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERBS_H
#define GM_CTL_VERBS_H

#include "ctl/verb/verb.h"

/* The verbs of gpumemctl; NULL ends the list. The command line and the help go by it. */
extern const struct gm_verb *const gm_verbs[];

#endif
