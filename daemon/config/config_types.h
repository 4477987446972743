/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_TYPES_H
#define GM_DAEMON_CONFIG_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/config/config_owner.h"

/* The file of root and of system users: in /etc, unless configure --sysconfdir says otherwise. */
#define GM_CONFIG_SYSTEM_FILE GM_SYSCONFDIR "/gpumemd/gpumemd.conf"

/* The types that config.h shows to the daemon and that the files below it also need. */

/* What is known about the place where a configuration is to be used: this machine. */
struct gm_config_known {
	uint32_t n; /* 0: the devices are not known */
	struct {
		const uint8_t *uuid; /* NULL: it has none */
		const char *pci;     /* "": it has none */
		const char *name;    /* NULL: not known */
		uint64_t total;      /* bytes; 0: not known */
		bool pinned;
	} devices[GM_LIMIT_DEVICES];
	bool sized;          /* the files say how large these devices are */
	uint64_t ram;        /* bytes of host memory; 0: not known */
	const char *backend; /* that the daemon is told to use; NULL: that of the files */
	const char
		*lack; /* why this backend has no devices, so that no daemon starts; NULL: it has */
	bool listens;  /* the daemon makes the socket that the files name */
	bool passed; /* the service manager makes it, so that the keys of the socket have no effect */
	const char *user; /* that runs the daemon; NULL: the user of this process; "": not known */
};

#define GM_CONFIG_ALL_DEVICES UINT32_MAX

/* A [limit OWNER] holds on each device separately. A [device N limit OWNER] replaces it on one
 * device, key by key. */
struct gm_config_limit {
	char owner[GM_CONFIG_OWNER_BYTES]; /* "uid:1002": as gm_config_owner_parse() writes it */
	uint32_t device;                   /* or GM_CONFIG_ALL_DEVICES */
	bool has_max, has_guarantee, has_priority;
	uint64_t max; /* UINT64_MAX: none */
	uint64_t guarantee;
	int32_t priority;
	/* The sources of max and guarantee, which are those of their entries; NULL: not set */
	const char *max_source, *guarantee_source;
};

#endif
