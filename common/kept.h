/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_KEPT_H
#define GM_COMMON_KEPT_H

#include <stdint.h>

#include "common/arith.h"
#include "common/bounds.h"

/*
 * How much memory the daemon can come to use, by the bounds of common/bounds.h. MemoryMax= of the unit
 * follows from it. Memory of the kernel counts where it is charged to the daemon's cgroup: sockets,
 * packets that were sent and not read, memfds. The figures for it are rounded up.
 *
 * Each row of GM_BOUNDS needs one here: the bytes that one of them costs, at most. 0: it costs
 * nothing of its own, or is part of another row. A bound without a row is an error of the compiler in
 * GM_KEPT_BYTES. tests/unit/daemon/check_kept.c compares the figures with the structs.
 */

/* A request that is not answered, or the answer that is being sent. */
#define GM_KEPT_REQUEST 584
/* A socket, or a memfd, with its descriptor, and what watches it. */
#define GM_KEPT_KERNEL 4096
/* What a process may still map on one device, with the names of its unit and its container. */
#define GM_KEPT_ORPHAN_MAP (192 + 512)
/* Things that are counted for a user. */
#define GM_KEPT_USER 320
/* What the kernel lets the last packet pass the bound of a socket by. */
#define GM_KEPT_PASSING (2 * GM_BOUND_PACKET_BYTES + 4096)
/* Both pages of a client, and the client's page from before it resumed its session. */
#define GM_KEPT_PAGES (4096 + 2 * 258048)

/* The peer, its user, its identity with the groups, its requests, its socket, and one packet that it may leave
 * unread in any case. */
#define GM_KEPT_CONNECTION \
	(512 + GM_KEPT_USER + 1552 + 4 * GM_BOUND_GROUPS + \
		GM_BOUND_REQUESTS_IN_FLIGHT * GM_KEPT_REQUEST + GM_BOUND_SOCKET_BYTES + \
		GM_KEPT_PASSING + 2 * GM_KEPT_KERNEL + GM_BOUND_PACKET_BYTES)

enum gm_kept {
	GM_KEPT_PACKET_BYTES = 2,
	GM_KEPT_PACKET_FDS = 0,
	GM_KEPT_FDS_IN_FLIGHT = 0,
	GM_KEPT_ARENA_BYTES = 1,
	GM_KEPT_REQUEST_FIELDS = 0,
	GM_KEPT_LIST_ITEMS = 0,
	GM_KEPT_REQUESTS_IN_FLIGHT = 0, /* of a connection */
	GM_KEPT_SEND_QUEUE_BYTES = 0,   /* in UNREAD_BYTES */
	GM_KEPT_UNREAD_BYTES_PER_UID = 0,
	GM_KEPT_UNREAD_BYTES = 1,
	GM_KEPT_SOCKET_BYTES = 0, /* of a connection */
	GM_KEPT_NAME_BYTES = 0,
	GM_KEPT_RUN_BYTES = 0,
	GM_KEPT_CONNECTIONS = GM_KEPT_CONNECTION,
	GM_KEPT_ADMIN_CONNECTIONS = GM_KEPT_CONNECTION,
	GM_KEPT_LEASES_PER_CLIENT = 0, /* in BARE_LEASES, or of a chunk */
	GM_KEPT_SHARES_PER_CLIENT = 0,
	GM_KEPT_OPENERS_PER_LEASE = 0,
	/* The session, its names, the client, its trust domain, the lines of its uid, its pages, its
	 * events with their wakeup, its accounts of the limits of its name and of its run, and its orphaned mappings. */
	GM_KEPT_SESSIONS = 5632 + 2048 + 752 + 2048 + 3584 + GM_KEPT_PAGES + 512 + 2 * 3584 +
			   5 * GM_KEPT_KERNEL + GM_BOUND_DEVICES * GM_KEPT_ORPHAN_MAP,
	GM_KEPT_BARE_LEASES = 480,
	GM_KEPT_SHARES = 192,
	GM_KEPT_NAMES = 320,
	GM_KEPT_METADATA = 1, /* whole pages, and one for what else each costs */
	GM_KEPT_METADATA_PER_UID = 0,
	GM_KEPT_METADATA_BYTES = 0, /* in METADATA */
	/* The orphaned account with its accounts, its names, and the list of its user. */
	GM_KEPT_ORPHANS = 5376 + 576 + 128 + GM_KEPT_USER,
	GM_KEPT_ORPHANS_PER_UID = 0,
	GM_KEPT_WAITING_PER_CLIENT = 0, /* of a connection */
	GM_KEPT_WAITING_PER_UID = 0,
	GM_KEPT_DEVICES = 65536 + 256 * GM_KEPT_USER, /* with the users whose clients are overdue */
	GM_KEPT_SOCKET_PATH_BYTES = 0,
	GM_KEPT_SOCKET_NAME_BYTES = 0,
	GM_KEPT_TRACKED_BUFFERS = 0, /* in the pages of a session */
	GM_KEPT_KIND_BYTES = 0,
	GM_KEPT_STACKS = 0, /* in the pages of a session */
	GM_KEPT_STACK_MODULES = 0,
	/* Twice: what is configured, and what an earlier daemon was told beside it. */
	GM_KEPT_LIMITS = 2 * 4096,
	GM_KEPT_PROCESSES = 256 * GM_BOUND_DEVICES,
	GM_KEPT_GROUPS = 0, /* of a connection */
	GM_KEPT_LOGGED_UIDS = 576 + GM_KEPT_USER,
	GM_KEPT_IPC_NUMBERS = 128,
	GM_KEPT_IPC_NUMBERS_PER_UID = 0,
	GM_KEPT_REPEATS = 0, /* of a session */
};

/* A chunk with the lease that it may be the only chunk of, its memfd, and the orphaned mapping of a process that
 * had it and has no session any more. The descriptors bound their number. */
#define GM_KEPT_CHUNK (528 + 432 + 2048 + GM_KEPT_ORPHAN_MAP)
/* The program itself, its log, its news, and the driver with a context for each device. */
#define GM_KEPT_BASE (UINT64_C(1) << 30)

/* The store, a memfd that never gets longer, and the references beside it, 16 bytes for each place in the store. */
#define GM_KEPT_STORE (UINT64_C(1) << 30)
#define GM_KEPT_REFS  (UINT64_C(64) << 20)

#define GM_KEPT_SUM(name, value, text) +(uint64_t)(value)*GM_KEPT_##name
#define GM_KEPT_BYTES                  (GM_KEPT_BASE + GM_KEPT_STORE + GM_KEPT_REFS GM_BOUNDS(GM_KEPT_SUM))

/* All of it, for a daemon with that RLIMIT_NOFILE, in whole GiB. Pinned host memory that is made of
 * memfds comes on top. */
static inline uint64_t gm_kept_bytes(uint64_t nofile)
{
	uint64_t chunks = gm_u64_min(nofile, UINT64_C(1) << 24) * GM_KEPT_CHUNK;

	return gm_round_up(GM_KEPT_BYTES + chunks, UINT64_C(1) << 30);
}

/* What MemoryMax= of the unit allows for that. */
#define GM_KEPT_HOST (UINT64_C(4) << 30)

#endif
