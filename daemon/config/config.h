/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_H
#define GM_DAEMON_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/text/device_name.h"
#include "common/system/path.h"
#include "common/types.h"
#include "daemon/books/policy.h"
#include "daemon/config/config_names.h"

/*
 * This folder turns gpumemd.conf and its drop-ins into one complete configuration, or into a list
 * of everything that is wrong with them, by file, line and key. It must never know a socket, a
 * client or a running daemon, so that a configuration can be checked anywhere.
 *
 * gpumemd.conf is read first, then gpumemd.conf.d/ *.conf beside it in order of name; later files
 * win. gpumemd, gpumemd --check-config and gpumemctl config check all use this one reader.
 */

enum gm_domain_trust { GM_DOMAIN_TRUST_UID, GM_DOMAIN_TRUST_CONTAINER, GM_DOMAIN_TRUST_CLIENT };

/* The settings of one device: the general ones, overridden by those of its [device …]. */
struct gm_config_device {
	uint64_t size;           /* host backend; 0: not set */
	struct gm_policy policy; /* policy.pooling follows from trust */
	bool min_free_from_file; /* not the default: see gm_config_fit_min_free() */
	double max_pool_share; /* max_pool as a share of the capacity; negative: policy.max_pool */
};

/* One line of gpumemctl config show. */
struct gm_config_entry {
	char *section; /* "" for [gpumemd], "device 0", "limit uid:1002", "device 0 limit uid:1002"
			*/
	char *key;
	char *value;  /* as it was written */
	char *source; /* "default", "preset inference", "/etc/gpumemd/gpumemd.conf:12", "after a
		       * restart: default", "no effect: /etc/gpumemd/gpumemd.conf:12", "command
		       * line (-b)" */
};

struct gm_config {
	char preset[GM_BOUND_NAME_BYTES + 1];
	char backend[GM_BOUND_NAME_BYTES + 1]; /* "auto", "cuda", "host" */
	char socket[GM_PATH_BYTES]; /* "": the default for the user who runs the daemon */
	mode_t socket_mode;
	char socket_group[GM_BOUND_NAME_BYTES + 1]; /* "": leave it */
	char admin_group[GM_BOUND_NAME_BYTES + 1];
	char observer_group[GM_BOUND_NAME_BYTES + 1];
	enum gm_domain_trust trust;
	enum gm_transport transport;
	enum gm_track track;
	uint64_t decay_ns;
	uint64_t hello_deadline_ns;
	uint32_t connections_per_uid;
	uint64_t host_limit; /* pinned host memory; 0: none; UINT64_MAX: a quarter of RAM */
	enum gm_backend_host_memory host_memory;
	bool cpu_fallback; /* pinned host memory may stand in for a full device */
	struct gm_config_device pinned;
	uint32_t n_devices; /* how many the files name: the highest number + 1 */
	struct gm_config_device devices[GM_BOUND_DEVICES]; /* all filled, named or not */

	uint64_t terminate_grace_ns;
	struct gm_config_limit *limits;
	size_t n_limits;

	/* Devices that sections name by UUID or PCI address and that are not known. Their settings
	 * have no effect. */
	char strangers[GM_BOUND_DEVICES][GM_DEVICE_NAME_TEXT];
	uint32_t n_strangers;
	/* The keys of files that gm_config_drop_socket() emptied, with commas between them. */
	char dropped[sizeof("socket, socket_mode, socket_group")];

	struct gm_config_entry *entries;
	size_t n_entries;

	/* What has no effect or cannot work here, one "file:line: text" per line; "" if nothing. */
	char *warnings;
	/* With mistakes: one of them may be about the devices, so that these are not what the files mean. */
	bool devices_doubtful;
};

/*
 * Reads a configuration. path is the file, which must exist. If path is NULL, the file is
 * /etc/gpumemd/gpumemd.conf for root and system users, and $XDG_CONFIG_HOME/gpumemd/gpumemd.conf
 * (or ~/.config/…) for others, and may be missing. The drop-ins are those in the folder path.d.
 *
 * With known, everything is refused that a daemon on this machine would refuse when it starts or
 * reloads: also a group or a folder that does not exist, and limits that do not fit the devices.
 * Devices that are named by UUID and that known does not have are strangers. If known is NULL, only
 * the files themselves are judged, and all devices that they do not number are strangers.
 *
 * On error, returns a negative errno and sets *ret_error to a malloc'ed text that lists everything
 * that is wrong, one "file:line: key: what is wrong" per line. With -ENOMEM it can be NULL.
 */
int gm_config_load(const char *path, struct gm_config **ret_config, char **ret_error);
int gm_config_load_for(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, char **ret_error);

/* How reading went. */
struct gm_config_report {
	char *path;   /* the file; NULL: none is named, and the user has no folder for one */
	char *files;  /* those that were read, with the drop-ins, in order, one per line */
	char *errors; /* as *ret_error above */
	/* If there are mistakes: what the files say without them, with its warnings. It is for looking, not for a daemon.
	 * NULL: there are none, or a file could not be read. */
	struct gm_config *rest;
};
void gm_config_report_deinit(struct gm_config_report *report);
/* The same with a report, which is written on failure, too. */
int gm_config_read(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, struct gm_config_report *ret_report);
void gm_config_free(struct gm_config *config);

/* The policy of a device (below GM_BOUND_DEVICES) that has total bytes: shares become bytes. */
void gm_config_policy(const struct gm_config *config, uint32_t device, uint64_t total,
	struct gm_policy *ret_policy);
/* The policy of pinned host memory: its limit is its capacity, and it has no reserve. */
void gm_config_pinned_policy(
	const struct gm_config *config, uint64_t total, struct gm_policy *ret_policy);
/* For a daemon whose socket somebody else makes: empties the settings of the socket. The sources of their entries
 * say afterwards that they have no effect. */
void gm_config_drop_socket(struct gm_config *config);
/* Replaces the backend and the socket by those of the daemon's command line, also in their entries. NULL: the command line
 * does not have it. */
void gm_config_use_options(struct gm_config *config, const char *backend, const char *socket);
/* Returns whether a daemon that starts with b makes the same devices, and the same socket, as one that started with a. */
bool gm_config_same_start(const struct gm_config *a, const struct gm_config *b);
/* The keys that differ from those that the daemon started with and cannot change before a restart
 * (the socket, the backend, the number and sizes of devices, host_limit, host_memory): a malloc'ed
 * text, or NULL if there are none. The sources of their entries in new say so afterwards. */
char *gm_config_fixed_changes(const struct gm_config *running, struct gm_config *new);

#endif
