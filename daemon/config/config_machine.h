/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_MACHINE_H
#define GM_DAEMON_CONFIG_MACHINE_H

#include "daemon/backend/backend.h"
#include "daemon/config/config.h"
#include "daemon/config/config_service.h"

/*
 * The devices that a daemon with a configuration serves on this machine. The daemon opens them to
 * serve them; a check opens them to look at them, by the same rules. No function here makes a CUDA
 * context.
 */

struct gm_config_machine {
	const struct gm_backend_ops *ops;
	void *backend;
	uint32_t n;     /* devices */
	char note[256]; /* with backend = auto: why GPUs are not served; "": they are */
};

/* Opens the backend that name says ("auto", "cuda", "host"; NULL: as in the configuration). The caller
 * closes it with ops->close(). On error, returns a negative errno, and why says the reason. */
int gm_config_machine_open(const struct gm_config *config, const char *name,
	struct gm_config_machine *ret, char why[256]);

/* Looks for KEY=number in the unit and its drop-ins below root. As in systemd, 14G is a size; infinity is
 * UINT64_MAX. *ret stays as it is if there is none. Returns false if there is no unit. */
bool gm_config_machine_unit(const char *root, const char *key, bool *ret_found, uint64_t *ret);

/* Fills in what is known of n devices of a backend. The devices must outlive known. */
void gm_config_machine_describe(const struct gm_backend_ops *ops,
	const struct gm_backend_device *devices, uint32_t n, struct gm_config_known *known);

/*
 * Reads a configuration as gm_config_read() does, then again with the devices of this machine, so
 * that everything is refused that a daemon here refuses. known says the rest; its devices are
 * filled in only for the time of the call. For the configuration of the system's service, the limits of
 * its unit count, and CUDA_VISIBLE_DEVICES is set in this process as the unit sets it, if the unit does.
 *
 * If there are mistakes, the devices are looked at all the same, unless a mistake may be about them.
 * A backend that has no device is a mistake, because the daemon does not start with it.
 *
 * If root reads the configuration of the system (path is NULL), it is judged for the user of the service: User= of the unit
 * or, without a unit, gpumemd, if there is such a user. This user must be able to read the files and to make the socket. If systemd
 * and gpumemd.socket make the socket, the keys of the socket have no effect, which is a warning.
 *
 * *ret_unchecked is NULL, or a malloc'ed sentence: something depends on the devices, and why they
 * could not be looked at.
 */
int gm_config_machine_read(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, struct gm_config_report *ret_report, char **ret_unchecked);

#endif
