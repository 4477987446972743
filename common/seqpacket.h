/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_SEQPACKET_H
#define GM_COMMON_SEQPACKET_H

#include <stddef.h>
#include <stdbool.h>

#include "common/fdlist.h"

/* One packet in, one packet out, over a SOCK_SEQPACKET Unix socket. Received fds are CLOEXEC from
 * birth. */

struct gm_packet_in {
	size_t n;
	struct gm_fdlist fds;
	bool fds_cut;  /* control data was cut: some fds were lost */
	bool data_cut; /* the packet was longer than the room */
};

/* 0; -EAGAIN; -EPIPE: the other end is closed; -EBADMSG: a packet of length 0 (told from the end by
 * its being read before hang-up); others. */
int gm_seqpacket_receive(int socket, void *bytes, size_t room, struct gm_packet_in *ret);
/* 0; -EAGAIN; -ETOOMANYREFS: too many fds of ours are in flight, try later; -EPIPE; others. fds
 * stay the caller's. */
int gm_seqpacket_send(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds);

/* Client's side: a connected socket, CLOEXEC. -ENAMETOOLONG, -ECONNREFUSED, -ENOENT, … */
int gm_seqpacket_connect(const char *path, int *ret_socket);

#endif
