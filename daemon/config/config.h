/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_H
#define GM_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/device_name.h"
#include "common/path.h"
#include "common/types.h"
#include "daemon/config/config_owner.h"
#include "daemon/core/core.h"

/*
 * The configuration: gpumemd.conf, then gpumemd.conf.d/ *.conf beside it in order of name, later
 * ones winning, through libini_config. A bad file names file, line and key, and changes nothing.
 * gpumemd, gpumemd --check-config and gpumemctl config check all use this one reader.
 */

enum gm_trust { GM_TRUST_UID, GM_TRUST_CONTAINER, GM_TRUST_CLIENT };

/* What is set for one device: the general settings, with its [device …] over them. */
struct gm_config_device {
	uint64_t size;           /* host backend; 0: not set */
	struct gm_policy policy; /* policy.pooling follows from trust */
	double max_pool_share; /* max_pool as a share of the capacity; negative: policy.max_pool */
};

#define GM_CONFIG_ALL_DEVICES UINT32_MAX

/* A [limit OWNER], which holds on each device by itself, or a [device N limit OWNER], which goes
 * over it there, key by key. */
struct gm_config_limit {
	char owner[GM_CONFIG_OWNER_BYTES]; /* "uid:1002": as gm_config_owner_parse() writes it */
	uint32_t device;                   /* or GM_CONFIG_ALL_DEVICES */
	bool has_max, has_guarantee, has_priority;
	uint64_t max; /* UINT64_MAX: none */
	uint64_t guarantee;
	int32_t priority;
};

/* One line of gpumemctl config show. */
struct gm_config_entry {
	char *section; /* "" (of [gpumemd]), "device 0", "limit uid:1002", "device 0 limit uid:1002"
			*/
	char *key;
	char *value;  /* as it was written */
	char *source; /* "default", "preset inference", "/etc/gpumemd/gpumemd.conf:12" */
};

struct gm_config {
	char preset[GM_LIMIT_NAME_BYTES + 1];
	char backend[GM_LIMIT_NAME_BYTES + 1]; /* "auto", "cuda", "host" */
	char socket[GM_PATH_BYTES];            /* "": by who runs the daemon */
	mode_t socket_mode;
	char socket_group[GM_LIMIT_NAME_BYTES + 1]; /* "": leave it */
	char admin_group[GM_LIMIT_NAME_BYTES + 1];
	enum gm_trust trust;
	enum gm_transport transport;
	enum gm_track track;
	uint64_t decay_ns;
	uint64_t hello_deadline_ns;
	uint32_t connections_per_uid;
	uint64_t
		host_limit; /* of pinned host memory; 0: none of it; UINT64_MAX: a quarter of RAM */
	enum gm_host_memory host_memory;
	struct gm_config_device pinned;
	uint32_t n_devices; /* how many the file names: the highest number + 1 */
	struct gm_config_device devices[GM_LIMIT_DEVICES]; /* all filled, named or not */

	uint64_t terminate_grace_ns;
	struct gm_config_limit *limits;
	size_t n_limits;

	/* Devices that sections name by UUID or PCI address and that are not known: what is set for
	 * them holds for nobody. */
	char strangers[GM_LIMIT_DEVICES][GM_DEVICE_NAME_TEXT];
	uint32_t n_strangers;

	struct gm_config_entry *entries;
	size_t n_entries;
};

/* The devices there are, by which their names in the files are understood. */
struct gm_config_known {
	uint32_t n;
	struct {
		const uint8_t *uuid; /* NULL: it has none */
		const char *pci;     /* "": it has none */
	} devices[GM_LIMIT_DEVICES];
};

/*
 * path: the file; NULL: /etc/gpumemd/gpumemd.conf for root and system users,
 * $XDG_CONFIG_HOME/gpumemd/gpumemd.conf (else ~/.config/…) for others, and it may be missing then.
 * A path that is named must exist. The drop-ins are those in the folder path.d. 0, or a negative
 * errno with error, a malloc'ed text of one or more lines "file:line: key: what is wrong" (all of
 * them, not the first only). Only with -ENOMEM error can be NULL.
 */
int gm_config_load(const char *path, struct gm_config **ret_config, char **ret_error);
/* The same where the devices are known; without, every device that is not named by its number is a
 * stranger. */
int gm_config_load_for(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, char **ret_error);
void gm_config_free(struct gm_config *config);
/* The policy of a device of that many bytes: what depends on the size is worked out. device <
 * GM_LIMIT_DEVICES. */
void gm_config_policy(const struct gm_config *config, uint32_t device, uint64_t total,
	struct gm_policy *ret_policy);
/* What a device of that many bytes can give out. */
uint64_t gm_config_capacity(const struct gm_config_device *device, uint64_t total);
/* The policy of pinned host memory: its limit is its capacity, and none is kept in reserve. */
void gm_config_pinned_policy(
	const struct gm_config *config, uint64_t total, struct gm_policy *ret_policy);
/*
 * Whether the limits can stand on these devices: each is there, and guarantees go beyond the
 * capacity of none. UINT64_MAX: it is not known. 0; -EINVAL with error as gm_config_load() has it;
 * -ENOMEM.
 */
int gm_config_limits_fit(const struct gm_config *config, const uint64_t *capacities,
	uint32_t n_devices, char **ret_error);
/* The same on the devices that the configuration gives the host backend. */
int gm_config_limits_fit_host(const struct gm_config *config, char **ret_error);
/* What stays as it was at the start when a reload changes it (the socket, the backend, the devices'
 * number and sizes, host_limit, host_memory): a malloc'ed text naming the keys, or NULL. */
char *gm_config_fixed_changes(const struct gm_config *old, const struct gm_config *new);

#endif
