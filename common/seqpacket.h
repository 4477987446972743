/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_SEQPACKET_H
#define GM_COMMON_SEQPACKET_H

#include <stddef.h>
#include <stdbool.h>

#include "common/fdlist.h"

/*
 * One packet in, one packet out, over a SOCK_SEQPACKET Unix socket. Neither call ever waits,
 * whatever mode the socket is in: who wants to wait polls. Received fds are CLOEXEC from birth.
 */

struct gm_packet_in {
	size_t n;
	struct gm_fdlist fds; /* the caller's to deinit */
	bool fds_cut;  /* control data was cut: some fds were lost (or more than a packet may have)
			*/
	bool data_cut; /* the packet was longer than the room */
};

/*
 * 0; -EAGAIN; -EPIPE: the other end is closed, and all it sent was read; -EBADMSG: a packet of
 * length 0 (told from the end by its being read before hang-up); others. *ret is written on 0 only:
 * fds that come with anything else are closed here.
 */
int gm_seqpacket_receive(int socket, void *bytes, size_t room, struct gm_packet_in *ret);
/*
 * 0; -EAGAIN; -ETOOMANYREFS: too many fds of ours are in flight, try later; -EPIPE: the other end
 * is closed (no signal); -EINVAL: length 0; -EMSGSIZE, -E2BIG: past PACKET_BYTES, PACKET_FDS;
 * others. fds stay the caller's.
 */
int gm_seqpacket_send(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds);

/*
 * Client's side: a connected socket, CLOEXEC. Waits only if the daemon's queue of connections is
 * full, and then at most 10 s (-ETIMEDOUT). -ENAMETOOLONG: past SOCKET_PATH_BYTES; -EINVAL: "";
 * -ECONNREFUSED, -ENOENT, …
 */
int gm_seqpacket_connect(const char *path, int *ret_socket);

#endif
