/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_SEQPACKET_H
#define GM_WIRE_SEQPACKET_H

#include <stddef.h>
#include <stdbool.h>

#include "common/wire/fdlist.h"

/*
 * Sends and receives single packets over a SOCK_SEQPACKET Unix socket. Neither call ever waits,
 * whether the socket is blocking or not: a caller that wants to wait must poll. Received fds are
 * CLOEXEC from birth.
 */

struct gm_conn_packet {
	size_t n;
	struct gm_fdlist fds; /* the caller must deinit it */
	bool fds_cut;         /* some fds were lost, or the packet had more than it may have */
	bool data_cut;        /* the packet was longer than the room for it */
};

/*
 * Receives one packet. On error, closes the fds that came with the packet, leaves *ret untouched
 * and returns a negative errno, among them:
 *   -EAGAIN    There is no packet now.
 *   -EPIPE     The other end is closed, and everything it sent has been read.
 *   -EBADMSG   The packet has length 0.
 */
int gm_seqpacket_receive(int socket, void *bytes, size_t room, struct gm_conn_packet *ret);
/*
 * Sends one packet. The fds stay the caller's. On error, returns a negative errno, among them:
 *   -EAGAIN         The socket is full.
 *   -ETOOMANYREFS   Too many fds of this process are in flight. Try again later.
 *   -EPIPE          The other end is closed. No signal is raised.
 *   -EINVAL         The length is 0.
 *   -EMSGSIZE       The packet is longer than PACKET_BYTES.
 *   -E2BIG          There are more fds than PACKET_FDS.
 */
int gm_seqpacket_send(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds);

/* Sets how much memory packets may take that were sent and not read. The kernel counts its own
 * structures, too, and lets the last packet pass the bound. */
void gm_seqpacket_set_room(int socket, int bytes);

/*
 * Whether descriptors of the other end may lie on a socket. Since Linux 6.16, a socket can refuse
 * them: then who sends one gets EPERM, and connections that come later over a listening socket refuse
 * them as well.
 */
void gm_seqpacket_refuse_fds(int socket);
bool gm_seqpacket_may_have_fds(int socket);
/* Whether the next packet has descriptors. Neither the packet nor they are received. */
bool gm_seqpacket_has_fds(int socket);

/*
 * Connects to a daemon; the socket is CLOEXEC. Waits only if the daemon's queue of connections is
 * full, and then at most wait_ms (-ETIMEDOUT). Other errors are -ENAMETOOLONG (the path is longer than
 * SOCKET_PATH_BYTES), -EINVAL (the path is empty), and those of connect().
 */
int gm_seqpacket_connect(const char *path, uint64_t wait_ms, int *ret_socket);
/*
 * Whether a process has bound the socket at the path. Does not connect to it, so that process notices nothing. A socket that this
 * user may not open counts as bound while a process holds the lock of the file beside it, whose name ends in .lock. In a container,
 * which does not see the locks of the host, such a socket counts as bound in any case.
 */
bool gm_seqpacket_is_bound(const char *path);

#endif
