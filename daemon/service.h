/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVICE_H
#define GM_DAEMON_SERVICE_H

#include <stdint.h>

/*
 * The service manager, where there is one; without one every call does nothing. The only user of
 * libsystemd.
 */

/* Logs go to the journal, with their fields, if stderr does. */
void gm_service_init_log(void);

/*
 * The socket that was passed by socket activation: of gpumemd.socket, or else the only one that
 * listens. 1 and the fd (CLOEXEC, a listening SOCK_SEQPACKET Unix socket); 0: none was passed;
 * -EINVAL: a listening socket of another kind, or several. What else was passed, from an fd store,
 * is closed, and that is logged.
 */
int gm_service_listen_socket(int *ret_socket);

void gm_service_ready(const char *status);
void gm_service_reloading(void);
void gm_service_stopping(void);
/* How often it wants to hear from us, in milliseconds; 0: not at all. */
uint64_t gm_service_watchdog_ms(void);
void gm_service_alive(void);

#endif
