/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_NAMES_H
#define GM_DAEMON_CONFIG_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "common/text/device_name.h"
#include "common/text/limit_values.h"
#include "daemon/config/config_value.h"

/* What a configuration names: the devices of its sections, and the owners of its limits. */

/* The file of root and of system users: in /etc, unless configure --sysconfdir says otherwise. */
#define GM_CONFIG_SYSTEM_FILE GM_SYSCONFDIR "/gpumemd/gpumemd.conf"

/* ---- devices */

/* What is known about the place where a configuration is to be used: this machine. */
struct gm_config_known {
	uint32_t n; /* 0: the devices are not known */
	struct {
		const uint8_t *uuid; /* NULL: it has none */
		const char *pci;     /* "": it has none */
		const char *name;    /* NULL: not known */
		uint64_t total;      /* bytes; 0: not known */
		bool pinned;
	} devices[GM_BOUND_DEVICES];
	bool sized;          /* the files say how large these devices are */
	uint64_t ram;        /* bytes of host memory; 0: not known */
	const char *backend; /* that the daemon is told to use; NULL: that of the files */
	const char
		*lack; /* why this backend has no devices, so that no daemon starts; NULL: it has */
	bool listens;  /* the daemon makes the socket that the files name */
	bool passed; /* the service manager makes it, so that the keys of the socket have no effect */
	const char *user; /* that runs the daemon; NULL: the user of this process; "": not known */
	const char *group,
		*groups; /* of this user, as gm_config_account_try() takes them; NULL: those that the user has */
};

/*
 * The devices that sections name. A name that fits no known device is a stranger: it gets a number
 * above those of all devices, so that its keys are checked like any other and then have no effect.
 */

#define GM_CONFIG_STRANGERS GM_BOUND_DEVICES

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
 * GM_BOUND_DEVICES plus its place among the strangers. On error, returns
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

/* ---- owners of limits */

/*
 * The owner of a limit, as people write it: uid:1002 or uid:alice, gid:100 or gid:video,
 * unit:training.service, container:NAME, client:NAME (the name that a client gives itself). The
 * names of users and groups are looked up here and nowhere else, so that the daemon only handles
 * numbers.
 */

#define GM_CONFIG_OWNER_BYTES 272
#define GM_CONFIG_OWNER_WHY   256

#define GM_CONFIG_OWNER_E_NONE 1

/*
 * Writes an owner in its one canonical form, such as "uid:1002" for uid:alice. Returns 0, or
 * GM_CONFIG_OWNER_E_NONE: the text names no owner, and ret_why says what is wrong and what would be
 * right. session allows "session:17", one client by its number, which means nothing after that
 * client has left.
 */
int gm_config_owner_parse(const char *text, bool session, char ret_owner[GM_CONFIG_OWNER_BYTES],
	char ret_why[GM_CONFIG_OWNER_WHY]);

#define GM_CONFIG_ALL_DEVICES UINT32_MAX

/* A [limit OWNER] holds on each device separately. A [device N limit OWNER] replaces it on one
 * device, key by key. */
struct gm_config_limit {
	char owner[GM_CONFIG_OWNER_BYTES]; /* "uid:1002": as gm_config_owner_parse() writes it */
	uint32_t device;                   /* or GM_CONFIG_ALL_DEVICES */
	struct gm_limit_values values;
	const char *sources[GM_LIMIT_N_KINDS]; /* of each kind's entry; NULL: it is not set */
};

#endif
