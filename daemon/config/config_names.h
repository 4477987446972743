/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_NAMES_H
#define GM_DAEMON_CONFIG_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "common/text/device_name.h"
#include "daemon/config/config_types.h"
#include "daemon/config/config_value.h"

/*
 * The devices that sections name. A name that fits no known device is a stranger: it gets a number
 * above those of all devices, so that its keys are checked like any other and then have no effect.
 */

#define GM_CONFIG_STRANGERS GM_LIMIT_DEVICES

struct gm_config_names {
	const struct gm_config_known *known; /* NULL: nobody knows which devices there are */
	struct {
		struct gm_device_name name;
		char text[GM_DEVICE_NAME_TEXT]; /* as it was first written */
	} strangers[GM_CONFIG_STRANGERS];
	uint32_t n;
};

/*
 * Finds the device that the first n bytes of a text name: its number, or for a stranger
 * GM_LIMIT_DEVICES plus its place among the strangers. On error, returns
 *
 *   -EINVAL  the text is no name of a device
 *   -ERANGE  the number is too large for a device
 *   -E2BIG   there are too many strangers
 */
int gm_config_names_find(
	struct gm_config_names *names, const char *text, size_t n, uint32_t *ret_device);
/* A sentence for -ERANGE or -E2BIG. */
void gm_config_names_why(int error, char why[GM_CONFIG_WHY_BYTES]);
const char *gm_config_names_text(
	const struct gm_config_names *names, uint32_t device, char text[GM_DEVICE_NAME_TEXT]);

#endif
