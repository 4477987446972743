/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVICE_H
#define GM_DAEMON_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/* The service manager. Without one, no function here does anything. Besides this file, only
 * common/wire/keeper_store uses libsystemd. */

/* Sends log lines with their fields to the journal, if stderr goes there. */
void gm_service_init_log(void);

/* Whether the service manager passed descriptors. Leaves them, and the variables about them. */
bool gm_service_passes_sockets(void);
/*
 * Finds the sockets that socket activation passed: that of gpumemd.socket, or else the only one that
 * listens, and that of the unit whose name ends in -admin.socket (-1: none). They are CLOEXEC, and listening
 * SOCK_SEQPACKET Unix sockets. Returns 1 and the sockets; 0 if none was passed; or -EINVAL if there
 * are several, or one of another kind. ret_left are the descriptors that the daemon before left in the store of the unit
 * (keeper_store.h): an array that ends with -1, which the caller frees, or NULL. Closes every other descriptor that was passed,
 * from an fd store, and logs that.
 */
int gm_service_listen_sockets(int *ret_socket, int *ret_admin_socket, int **ret_left);

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
