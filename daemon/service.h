/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVICE_H
#define GM_DAEMON_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/* The service manager. Without one, no function here does anything. Besides this file, only
 * common/wire/keeper_store uses libsystemd. */

/* Sends log lines with their fields to the journal, if stderr goes there. */
void gm_service_init_log(void);

/* Descriptors that the service manager passed. */
struct gm_service_passed {
	int socket, admin_socket; /* CLOEXEC, and listening SOCK_SEQPACKET Unix sockets; -1: none */
	bool unclear;             /* several sockets, or one of another kind */
	/* From the unit's store, where the previous daemon left them (keeper_store.h), up to -1; NULL: none. The caller frees it. */
	int *left;
};
/*
 * Takes the descriptors that were passed. The socket is that of gpumemd.socket, or else the only one that listens. The
 * administrators' is that of the unit whose name ends in -admin.socket. Closes every other descriptor of an fd store, and logs
 * that.
 */
void gm_service_take_passed(struct gm_service_passed *ret);

/* None of these waits for the manager. Returns false if the manager has not read earlier messages: then it must be
 * told again later, or it would wait for that for ever. */
bool gm_service_ready(const char *status);
void gm_service_reloading(void);
void gm_service_stopping(void);
/* Tells why the daemon could not start: the first line of why, or the last error that was logged if why is
 * NULL. The service manager shows it until the next start. Returns when it has been told. */
void gm_service_failed(const char *why);
/* How often to call gm_service_alive(), in milliseconds; 0: never. */
uint64_t gm_service_watchdog_ms(void);
void gm_service_alive(void);

#endif
