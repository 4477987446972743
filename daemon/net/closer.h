/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLOSER_H
#define GM_DAEMON_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Closes connections on which file descriptors of strangers may lie.
 *
 * A client may send a descriptor whose last close waits: a TCP socket that lingers, or a file whose
 * file system is a program of the client. Whoever reads the packet, or closes the connection that
 * has it, does that close. The loop must not: it would wait for as long as the client likes.
 *
 * Since Linux 6.16 a socket can refuse descriptors (gm_seqpacket_refuse_fds()), and then no
 * connection has any. On older kernels, the daemon looks before it reads, never reads a packet with
 * descriptors, and lets a thread close connections: one thread per user, while that has something to
 * close.
 */
struct gm_closer;

struct gm_closer *gm_closer_new(void); /* NULL: no memory */
/* Connections that are not closed yet are closed when the process ends, which waits for nobody.
 * closer may be NULL. */
void gm_closer_free(struct gm_closer *closer);

/* Closes a connection of this user without waiting. wary: descriptors may lie on it. */
void gm_closer_close(struct gm_closer *closer, uint32_t payer_uid, int socket, bool wary);
/* Closes a memfd of the daemon's own that may be large. The thread saves the loop the time in which the
 * kernel frees the pages. Without memory for the thread's list, this closes it at once. */
void gm_closer_close_file(struct gm_closer *closer, uint32_t payer_uid, int fd);
/* How many connections of the user wait to be closed, if its thread has waited for one for long. */
uint32_t gm_closer_waiting(struct gm_closer *closer, uint32_t payer_uid);

#endif
