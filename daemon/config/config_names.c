/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device a section means, and which owner. A UUID or a PCI address is as good as the number, if the caller
 * knows the devices. No device is refused only because it is not in this machine: one file may serve several
 * machines. A user or group that does not exist is refused: a limit that silently holds for nobody is worse than
 * none. A number is accepted as it is, because the host has no list of the users inside containers. A unit need
 * not run, but its name must be one that a unit can have.
 */
#include "daemon/config/config_names.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/bounds.h"
#include "common/text/units.h"
#include "daemon/config/config_account.h"
#include "daemon/config/config_value.h"

#define NAME_BYTES 255

/* ---- devices */

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
		if (gm_device_name_means(&name, i, known->devices[i].uuid, known->devices[i].pci,
			    known->devices[i].pinned)) {
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

	*ret_device = GM_BOUND_DEVICES + i;
	return 0;
}

const char *gm_config_names_text(
	const struct gm_config_names *names, uint32_t device, char text[GM_DEVICE_NAME_TEXT])
{
	const struct gm_config_known *known = names->known;

	if (known && device < known->n && known->devices[device].pinned)
		strcpy(text, GM_DEVICE_PINNED_NAME);
	else if (device < GM_BOUND_DEVICES)
		snprintf(text, GM_DEVICE_NAME_TEXT, "%u", device);
	else
		strcpy(text, names->strangers[device - GM_BOUND_DEVICES].text);
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
			GM_BOUND_DEVICES - 1);
}

/* ---- owners */

static int config_owner_refuse(char why[GM_CONFIG_OWNER_WHY], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int config_owner_refuse(char why[GM_CONFIG_OWNER_WHY], const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, GM_CONFIG_OWNER_WHY, format, args);
	va_end(args);
	return GM_CONFIG_OWNER_E_NONE;
}

/* A uid or gid by number or name. The kernel uses UINT32_MAX for "no user". */
static int config_owner_parse_id(const char *kind, const char *text, char *owner, char *why)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	uint64_t id;
	int r = gm_parse_u64(text, &id);
	if (r == 0 && id >= UINT32_MAX)
		r = -ERANGE;
	if (r == -ERANGE)
		return config_owner_refuse(
			why, "\"%s\" is too large for a %s", gm_config_shown(text, shown), kind);
	if (r < 0 && !strcmp(kind, "uid")) {
		uid_t uid;
		if (!gm_config_account_user(text, &uid))
			return config_owner_refuse(why, "there is no user \"%s\"%s",
				gm_config_shown(text, shown), gm_config_account_hint());
		id = uid;
	} else if (r < 0) {
		gid_t gid;
		if (!gm_config_account_group(text, &gid))
			return config_owner_refuse(why, "there is no group \"%s\"%s",
				gm_config_shown(text, shown), gm_config_account_hint());
		id = gid;
	}

	snprintf(owner, GM_CONFIG_OWNER_BYTES, "%s:%llu", kind, (unsigned long long)id);
	return 0;
}

static int config_owner_parse_unit(const char *text, char *owner, char *why)
{
	static const char *const kinds[] = {
		".service", ".scope", ".slice", ".socket", ".mount", ".swap"};
	char shown[GM_CONFIG_SHOW_BYTES];
	gm_config_shown(text, shown);
	if (strlen(text) > NAME_BYTES)
		return config_owner_refuse(why, "a unit's name has at most %d bytes", NAME_BYTES);
	if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@") !=
		strlen(text))
		return config_owner_refuse(why, "\"%s\" is not a unit's name", shown);

	const char *dot = strrchr(text, '.');
	for (size_t i = 0; dot && dot > text && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(dot, kinds[i])) {
			snprintf(owner, GM_CONFIG_OWNER_BYTES, "unit:%s", text);
			return 0;
		}
	}
	return config_owner_refuse(
		why, "\"%s\" is not a unit's name; did you mean %s.service?", shown, shown);
}

static int config_owner_parse_name(
	const char *kind, size_t most, const char *text, char *owner, char *why)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	if (strlen(text) > most)
		return config_owner_refuse(why, "a %s's name has at most %zu bytes", kind, most);

	if (!gm_text_ok(text))
		return config_owner_refuse(
			why, "\"%s\" is not printable", gm_config_shown(text, shown));
	snprintf(owner, GM_CONFIG_OWNER_BYTES, "%s:%s", kind, text);
	return 0;
}

static int config_owner_parse_session(const char *text, char *owner, char *why)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	uint64_t id;
	if (gm_parse_u64(text, &id) < 0 || id == 0)
		return config_owner_refuse(why,
			"\"%s\" is not a session's number; 'gpumemctl clients --columns session,pid,name' shows them",
			gm_config_shown(text, shown));
	snprintf(owner, GM_CONFIG_OWNER_BYTES, "session:%llu", (unsigned long long)id);
	return 0;
}

int gm_config_owner_parse(const char *text, bool session, char ret_owner[GM_CONFIG_OWNER_BYTES],
	char ret_why[GM_CONFIG_OWNER_WHY])
{
	char shown[GM_CONFIG_SHOW_BYTES];
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	gm_config_shown(text, shown);
#define IS(word) (n == strlen(word) && !strncasecmp(text, word, n))
	if (colon && IS("run"))
		return config_owner_refuse(ret_why,
			"\"%s\" is a run: its limit is set when it starts, with gpumem-run --limit",
			shown);
	if (!colon || !(IS("uid") || IS("gid") || IS("unit") || IS("container") || IS("client") ||
			      (session && IS("session"))))
		return config_owner_refuse(ret_why,
			"\"%s\" names no owner; write uid:, gid:, unit:, container: or client: and a name%s",
			shown, session ? ", or session: and a number" : "");
	if (!colon[1])
		return config_owner_refuse(ret_why, "\"%s\" needs a name after the colon", shown);
	if (IS("uid"))
		return config_owner_parse_id("uid", colon + 1, ret_owner, ret_why);
	if (IS("gid"))
		return config_owner_parse_id("gid", colon + 1, ret_owner, ret_why);
	if (IS("unit"))
		return config_owner_parse_unit(colon + 1, ret_owner, ret_why);
	if (IS("container"))
		return config_owner_parse_name(
			"container", NAME_BYTES, colon + 1, ret_owner, ret_why);
	if (IS("client"))
		return config_owner_parse_name(
			"client", GM_BOUND_NAME_BYTES, colon + 1, ret_owner, ret_why);
	return config_owner_parse_session(colon + 1, ret_owner, ret_why);
#undef IS
}
