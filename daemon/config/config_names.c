/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device a section means. A UUID or a PCI address is as good as the number, if the caller
 * knows the devices. It must never refuse a device only because it is not in this machine: one file
 * may serve several machines.
 */
#include "daemon/config/config_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int gm_config_names_find(
	struct gm_config_names *names, const char *text, size_t n, uint32_t *ret_device)
{
	const struct gm_config_known *known = names->known;
	struct gm_device_name name;
	char word[GM_DEVICE_NAME_TEXT];
	if (n >= sizeof(word))
		return -EINVAL;

	memcpy(word, text, n);
	word[n] = '\0';
	int r = gm_device_name_parse(word, &name);
	if (r < 0)
		return r;

	if (name.kind == GM_DEVICE_NUMBER) {
		*ret_device = name.number;
		return 0;
	}

	for (uint32_t i = 0; known && i < known->n; i++)
		if (gm_device_name_means(&name, i, known->devices[i].uuid, known->devices[i].pci)) {
			*ret_device = i;
			return 0;
		}

	uint32_t i = 0;
	while (i < names->n && !gm_device_name_same(&names->strangers[i].name, &name))
		i++;
	if (i == GM_CONFIG_STRANGERS)
		return -E2BIG;
	if (i == names->n) {
		names->strangers[i].name = name;
		strcpy(names->strangers[i].text, word);
		names->n++;
	}

	*ret_device = GM_LIMIT_DEVICES + i;
	return 0;
}

const char *gm_config_names_text(
	const struct gm_config_names *names, uint32_t device, char text[GM_DEVICE_NAME_TEXT])
{
	if (device < GM_LIMIT_DEVICES)
		snprintf(text, GM_DEVICE_NAME_TEXT, "%u", device);
	else
		strcpy(text, names->strangers[device - GM_LIMIT_DEVICES].text);
	return text;
}

void gm_config_names_why(int error, char why[GM_CONFIG_WHY_BYTES])
{
	if (error == -E2BIG)
		snprintf(why, GM_CONFIG_WHY_BYTES,
			"is one device too many; files can name at most %d that this machine does not have",
			GM_CONFIG_STRANGERS);
	else
		snprintf(why, GM_CONFIG_WHY_BYTES,
			"devices are numbered from 0 to %d, or named by UUID or PCI address",
			GM_LIMIT_DEVICES - 1);
}
