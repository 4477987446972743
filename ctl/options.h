/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_OPTIONS_H
#define GM_CTL_OPTIONS_H

#include "ctl/verb/verb.h"

#define GM_OPTIONS_ERROR 512

/*
 * Reads the command line. Options may stand before and after the verb; the default verb is status.
 * Texts in *ret_options point into argv, and the order of argv may change. Returns 0 or -EINVAL. In
 * the latter case, error says what is wrong and, if it can, what may have been meant.
 */
int gm_options_parse(
	int argc, char **argv, struct gm_options *ret_options, char error[GM_OPTIONS_ERROR]);

#endif
