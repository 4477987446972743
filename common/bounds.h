/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_BOUNDS_H
#define GM_COMMON_BOUNDS_H

#include <stdint.h>

/*
 * Every bound on what one side can make the other side allocate, queue or keep open. Each row needs
 * a test at limit + 1: a test case that opens with GM_BOUND_TEST(NAME) (tests/bound.h).
 * tests/check-bounds.sh fails if a row has none.
 *
 *   X(name, value, what happens past the limit)
 */
#define GM_BOUNDS(X) \
	X(PACKET_BYTES, 65536, \
		"a longer packet is answered with an error, and its sender is dropped") \
	X(PACKET_FDS, 64, "a longer list of handles is sent as several packets") \
	X(FDS_IN_FLIGHT, 128, \
		"further handles wait until the peer says that it has read earlier ones") \
	X(ARENA_BYTES, 524288, \
		"a packet that unpacks to more is answered with an error, and its sender is " \
		"dropped") \
	X(REQUEST_FIELDS, 1280, \
		"a request with more fields, counting each item of a list, is answered with an " \
		"error, and its sender is dropped") \
	X(LIST_ITEMS, 512, "a request with a longer list is refused") \
	X(REQUESTS_IN_FLIGHT, 64, \
		"each further request counts as 1,024 bytes of answers that are not read") \
	X(SEND_QUEUE_BYTES, 1048576, "a peer that does not read its answers is dropped") \
	X(UNREAD_BYTES_PER_UID, 16777216, \
		"a peer whose answers would not be read at once is dropped") \
	X(UNREAD_BYTES, 134217728, \
		"a peer whose answers would not be read at once is dropped; a uid may keep as " \
		"much as it leaves to others, and always one packet") \
	X(SOCKET_BYTES, 212992, "further answers wait until the peer reads") \
	X(NAME_BYTES, 63, "a longer name or tag is refused") \
	X(RUN_BYTES, 32, "a longer name of a run is refused") \
	X(CONNECTIONS, 8192, \
		"a further connection is refused; if its uid has none, or fewer than clients, it " \
		"gets the place of one without a session, of the uid that has most") \
	X(ADMIN_CONNECTIONS, 64, "a further connection to the administrators' socket is refused") \
	X(LEASES_PER_CLIENT, 16384, "a further lease is refused") \
	X(SHARES_PER_CLIENT, 4096, "a further share is refused") \
	X(OPENERS_PER_LEASE, 2048, \
		"a further open of a shared lease is refused; a uid may have as many as it " \
		"leaves to others") \
	X(SESSIONS, 8192, \
		"a further session is refused; a uid may have as many as it leaves to others") \
	X(BARE_LEASES, 262144, \
		"a further lease, or a further open, is refused; a uid may have as many leases " \
		"that it opened or that have no chunks as it leaves to others") \
	X(SHARES, 65536, \
		"a further share is refused; a uid may have as many as it leaves to others") \
	X(NAMES, 16384, \
		"a further name is refused; a uid may have as many as it leaves to others") \
	X(METADATA, 1073741824, \
		"further metadata is refused; a uid may have as many bytes as it leaves to " \
		"others; a page is added for each") \
	X(METADATA_PER_UID, 67108864, "further metadata of the uid is refused") \
	X(METADATA_BYTES, 16777216, "longer metadata of a name is refused") \
	X(ORPHANS, 16384, "as with the next one; a uid may have as many as it leaves to others") \
	X(ORPHANS_PER_UID, 1024, \
		"a further client is refused if none of the uid's clients runs in its unit, " \
		"container and group") \
	X(WAITING_PER_CLIENT, 32, "a further request that may wait is refused") \
	X(WAITING_PER_UID, 1024, \
		"a further request of the uid that does not fit a device is refused at once") \
	X(REPEATS, 15, \
		"a further request of a client that follows a refused one counts as one of its own") \
	X(DEVICES, 16, "a configuration with more devices is refused") \
	X(SOCKET_PATH_BYTES, 107, "a longer socket path is refused") \
	X(SOCKET_NAME_BYTES, 78, "a longer last part of the daemon's socket path is refused") \
	X(TRACKED_BUFFERS, 1024, "further buffers of a client are counted but not listed") \
	X(KIND_BYTES, 11, "a longer type or precision of a buffer is refused") \
	X(STACKS, 512, "further call stacks of a client are not listed") \
	X(STACK_MODULES, 32, \
		"frames in further programs and libraries of a client are not listed") \
	X(LIMITS, 1024, "a further limit of an owner is refused") \
	X(PROCESSES, 256, "further processes that use a device are counted but not listed") \
	X(GROUPS, 1024, "a client with more supplementary groups counts as one without any") \
	X(LOGGED_UIDS, 4096, \
		"the log says nothing about further uids until those of the last seconds are " \
		"summed up") \
	X(IPC_NUMBERS, 131072, \
		"as with the next one; a uid may have as many as it leaves to others") \
	X(IPC_NUMBERS_PER_UID, 8192, \
		"a further ipc block of the uid is refused, unless the driver gives it a number " \
		"that the block's domain had before")

enum gm_bound {
#define GM_BOUND_ENUM(name, value, text) GM_BOUND_##name = (value),
	GM_BOUNDS(GM_BOUND_ENUM)
#undef GM_BOUND_ENUM
};

/* Chunks of the fd transport and of the host backend are powers of two between these. */
#define GM_CHUNK_MIN       UINT64_C(0x200000)
#define GM_CHUNK_MAX       UINT64_C(0x40000000)
#define GM_CHUNK_MIN_SHIFT 21
#define GM_CHUNK_MAX_SHIFT 30
#define GM_CHUNK_CLASSES   (GM_CHUNK_MAX_SHIFT - GM_CHUNK_MIN_SHIFT + 1)

/* The most that one request may ask for: far above any device, and far below the point where sums
 * could overflow. */
#define GM_LEASE_BYTES_MAX (UINT64_C(1) << 46)

/* Metadata travels in pieces of this size, so that each packet is a short turn. */
#define GM_METADATA_PIECE 61440
/* The longest time after which a name may end: a hundred years. */
#define GM_LIFETIME_MS_MAX UINT64_C(3155760000000)

#define GM_TOKEN_BYTES      16
#define GM_IPC_HANDLE_BYTES 64
#define GM_UUID_BYTES       16

/* Priorities range from minus this to this. */
#define GM_PRIORITY_MAX 1000

#endif
