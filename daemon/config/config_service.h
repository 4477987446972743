/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_SERVICE_H
#define GM_DAEMON_CONFIG_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/config/config.h"

/*
 * As whom the system's service runs, and which files it can see and read, by its unit. The files of the unit are read, so that nothing
 * has to run. For a program with one thread, which runs as root.
 */

/* The unit of the system's daemon. */
#define GM_CONFIG_SERVICE_UNIT "gpumemd.service"
#define GM_CONFIG_SERVICE_NAME 64

struct gm_config_service {
	bool named; /* the unit names the user */
	char user[GM_CONFIG_SERVICE_NAME], group[GM_CONFIG_SERVICE_NAME]; /* "": not set */
	char groups[512]; /* further ones, separated by blanks */
	bool reads_all;   /* its capabilities let it read every file */
};

/* The user is gpumemd unless the unit says otherwise. */
void gm_config_service_read(struct gm_config_service *ret_service);

/*
 * Adds a complaint to report->errors for a user that cannot run the system's service, and for each file of the configuration, and the
 * folder of its drop-ins, that the service cannot read although root can: because its user may not, or because the unit hides the
 * place from it (ProtectHome=, PrivateTmp=, TemporaryFileSystem=, InaccessiblePaths=). A file of which the unit does not say whether the service sees it is a
 * warning of the configuration, which can be NULL, and so is a key that hides clients (ProtectProc=, PrivateUsers=). Returns 0, -EACCES if there is a complaint, or -ENOMEM.
 */
int gm_config_service_check(const struct gm_config_service *service,
	struct gm_config_report *report, struct gm_config *config);

/* Copies the next word of a line without its quotes. Returns what follows, or NULL if there is none. */
const char *gm_config_service_word(const char *at, char *word, size_t size);

/* Adds a line to a malloc'ed text, which can be NULL. Returns 0 or -ENOMEM. */
int gm_config_service_add(char **lines, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
