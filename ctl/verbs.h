/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_VERBS_H
#define GM_CTL_VERBS_H

#include "ctl/verb/verb.h"

/* All verbs of gpumemctl, for the command line and the help. NULL ends the list. */
extern const struct gm_verb *const gm_verbs[];

#endif
