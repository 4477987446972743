/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the names that people write for devices. The kinds cannot be confused: a number has only
 * digits, a UUID has four dashes, and a PCI address has colons and a dot. Nothing is abbreviated or
 * guessed: a name is complete, or it is not a name.
 */
#include "common/text/device_name.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/text/units.h"

static bool device_name_parse_uuid(const char *at, uint8_t uuid[GM_UUID_BYTES])
{
	if (!strncasecmp(at, "GPU-", 4) || !strncasecmp(at, "MIG-", 4))
		at += 4;
	for (int i = 0; i < GM_UUID_BYTES; i++) {
		uint32_t byte;
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *at++ != '-')
			return false;
		at = gm_parse_hex(at, 2, 2, &byte);
		if (!at)
			return false;
		uuid[i] = (uint8_t)byte;
	}
	return !*at;
}

/* [DOMAIN:]BUS:DEVICE.FUNCTION */
static bool device_name_parse_pci(const char *at, uint32_t pci[4])
{
	const char *colon = strchr(at, ':');

	pci[0] = 0;
	if (colon && strchr(colon + 1, ':')) {
		at = gm_parse_hex(at, 4, 8, &pci[0]);
		if (!at || *at++ != ':')
			return false;
	}

	at = gm_parse_hex(at, 2, 2, &pci[1]);
	if (!at || *at++ != ':')
		return false;
	at = gm_parse_hex(at, 2, 2, &pci[2]);
	if (!at || *at++ != '.' || pci[2] > 0x1f)
		return false;
	at = gm_parse_hex(at, 1, 1, &pci[3]);
	return at && !*at && pci[3] < 8;
}

int gm_device_name_parse(const char *text, struct gm_device_name *ret)
{
	struct gm_device_name name = {0};
	uint64_t number;
	int r = gm_parse_u64(text, &number);

	if (r == -ERANGE || (r == 0 && number >= GM_BOUND_DEVICES))
		return -ERANGE;
	if (r == 0)
		name.number = (uint32_t)number;
	else if (device_name_parse_uuid(text, name.uuid))
		name.kind = GM_DEVICE_UUID;
	else if (device_name_parse_pci(text, name.pci))
		name.kind = GM_DEVICE_PCI;
	else if (!strcasecmp(text, GM_DEVICE_PINNED_NAME))
		name.kind = GM_DEVICE_PINNED;
	else
		return -EINVAL;
	*ret = name;
	return 0;
}

bool gm_device_name_same(const struct gm_device_name *a, const struct gm_device_name *b)
{
	if (a->kind != b->kind)
		return false;

	switch (a->kind) {
	case GM_DEVICE_NUMBER:
		return a->number == b->number;
	case GM_DEVICE_UUID:
		return !memcmp(a->uuid, b->uuid, sizeof(a->uuid));
	case GM_DEVICE_PCI:
		return !memcmp(a->pci, b->pci, sizeof(a->pci));
	case GM_DEVICE_PINNED:
		return true;
	}
	return false;
}

bool gm_device_name_means(const struct gm_device_name *name, uint32_t number,
	const uint8_t uuid[GM_UUID_BYTES], const char *pci, bool pinned)
{
	uint32_t address[4];

	switch (name->kind) {
	case GM_DEVICE_NUMBER:
		return name->number == number;
	case GM_DEVICE_UUID:
		return uuid && !memcmp(name->uuid, uuid, GM_UUID_BYTES);
	case GM_DEVICE_PCI:
		return device_name_parse_pci(pci, address) &&
		       !memcmp(name->pci, address, sizeof(address));
	case GM_DEVICE_PINNED:
		return pinned;
	}
	return false;
}

const char *gm_device_name_before(
	uint32_t number, const char *sentence, char text[GM_DEVICE_NAME_BEFORE])
{
	int n = snprintf(text, GM_DEVICE_NAME_BEFORE, "device %u ", number);

	if (strncmp(sentence, text, (size_t)n) == 0)
		text[0] = '\0';
	else
		snprintf(text, GM_DEVICE_NAME_BEFORE, "device %u: ", number);
	return text;
}
