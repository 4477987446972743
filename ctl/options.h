/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_OPTIONS_H
#define GM_CTL_OPTIONS_H

#include "ctl/verb/verb.h"

#define GM_OPTIONS_ERROR 512

/*
 * Reads the command line. Options may stand before and after the verb; without a verb it is status.
 * Texts in *ret_options point into argv, whose order may change. Returns 0, or -EINVAL: then error
 * says what is wrong and, if a name is close to a known one, what may have been meant.
 */
int gm_options_parse(
	int argc, char **argv, struct gm_options *ret_options, char error[GM_OPTIONS_ERROR]);

#endif
