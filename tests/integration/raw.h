/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_RAW_H
#define GM_TESTS_INTEGRATION_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire/seqpacket.h"
#include "common/wire/wire.h"
#include "gpumem/status.h"
#include "tests/hearing.h"
#include "tests/integration/harness.h"

/*
 * A peer without manners: it speaks the wire packet by packet, right or wrong, and shows all that
 * comes back. What fails here that has nothing to do with the daemon's answer fails the test.
 */

struct gm_raw {
	int socket;
	int wakeup, daemon_page, client_page; /* from the hello reply; -1: none */
	struct gm_hearing hearing;
	struct gm_page_event event; /* the last one */
	uint64_t next_id;
	uint64_t session;
	uint8_t token[GM_TOKEN_BYTES];
	bool resumed;
	bool mute;                     /* acknowledges no fds */
	uint64_t fds_seen;             /* announced so far */
	uint64_t sequence, generation; /* of the last packet or event */
	size_t n_fds_got;              /* that came with it */
	bool fds_cut;
	struct gm_wire_arena arena;
	uint8_t *bytes;
	struct gm_fdlist fds;     /* of the last packet, until the next one comes */
	Gm__Wire__Packet *packet; /* the last one, until the next one comes; NULL: the end */
};

#define GM_RAW_PACKET(which, member, value) \
	(&(Gm__Wire__Packet){.base = PROTOBUF_C_MESSAGE_INIT(&gm__wire__packet__descriptor), \
		.body_case = GM__WIRE__PACKET__BODY_##which, \
		.member = (value)})

/* 0 or a negative errno; nothing is said yet. */
int gm_raw_connect(struct gm_raw *raw, const char *path);
/* Connects and says hello, as one should. */
void gm_raw_join(struct gm_raw *raw, const struct gm_daemon *daemon);
/* The same as an observer. */
void gm_raw_observe(struct gm_raw *raw, const struct gm_daemon *daemon);
/* Connects and says this hello; the outcome. */
gpumem_status gm_raw_hello(struct gm_raw *raw, const char *path, const Gm__Wire__Hello *hello);
/* Connects and says hello for the session that before has or had; the outcome. ret->resumed says whether that session
 * goes on. before may be ret, if that is closed. */
gpumem_status gm_raw_resume(
	struct gm_raw *ret, const struct gm_daemon *daemon, const struct gm_raw *before);
/* Connects again, as a program does that lost its connection: the session must go on. It may be closed already by
 * gm_raw_hang_up(). */
void gm_raw_come_back(struct gm_raw *raw, const struct gm_daemon *daemon);
void gm_raw_close(struct gm_raw *raw);
/* The same, but this process keeps its page, as a program does that lost its connection. Without the
 * page, the daemon takes the process for another program (exec). */
void gm_raw_hang_up(struct gm_raw *raw);

/* 0 or a negative errno. */
int gm_raw_send_bytes(
	struct gm_raw *raw, const void *bytes, size_t n, const int *fds, size_t n_fds);
/* Gives it an id (but not to an Ack), which is returned. The packet must go. */
uint64_t gm_raw_send(struct gm_raw *raw, const Gm__Wire__Packet *packet);
/* Waits for a packet on the connection: true, raw->packet. The daemon hung up: false. */
bool gm_raw_receive(struct gm_raw *raw);
/* Waits for an event: true, raw->event. The daemon hung up: false. */
bool gm_raw_receive_event(struct gm_raw *raw);
/* Whether there is an event. */
bool gm_raw_has_event(const struct gm_raw *raw);
/* Whether something can be read now. */
bool gm_raw_readable(int socket);
/* Sends and waits for the (first) packet of the answer; GPUMEM_OK, or what the Failure said.
 * GPUMEM_E_DISCONNECTED: the daemon hung up. */
gpumem_status gm_raw_call(struct gm_raw *raw, const Gm__Wire__Packet *packet);
/* The detail of the last Failure. */
const char *gm_raw_detail(const struct gm_raw *raw);
/* Reads until the daemon hangs up; how many packets came, and the last Failure's status. */
size_t gm_raw_drain(struct gm_raw *raw, gpumem_status *ret_last_failure);

struct gm_alloc_raw_chunk {
	uint64_t id, index, bytes;
	int fd;
};
struct gm_raw_lease {
	uint64_t id, bytes, user_bytes;
	uint32_t device;
	bool read_only;
	size_t n;
	struct gm_alloc_raw_chunk *chunks;
	int control;    /* the fd of its control block; 0: none */
	size_t packets; /* that the answer took */
	bool fds_lost;
};
void gm_raw_lease_clear(struct gm_raw_lease *lease); /* closes the fds */

gpumem_status gm_raw_lease(
	struct gm_raw *raw, uint32_t device, uint64_t bytes, struct gm_raw_lease *ret);
/* One that may be shared with uids and gids. */
gpumem_status gm_raw_lease_for_others(
	struct gm_raw *raw, uint32_t device, uint64_t bytes, struct gm_raw_lease *ret);
/* What is new is added to the lease. */
gpumem_status gm_raw_grow(struct gm_raw *raw, struct gm_raw_lease *lease, uint64_t bytes);
gpumem_status gm_raw_handles(
	struct gm_raw *raw, uint64_t lease, uint64_t from, struct gm_raw_lease *ret);
gpumem_status gm_raw_return(struct gm_raw *raw, uint64_t lease, const uint64_t *chunks, size_t n);
/* One chunk, with its index. */
gpumem_status gm_raw_return_at(struct gm_raw *raw, uint64_t lease, uint64_t chunk, uint64_t index);
/* Closes a whole lease here and returns it, as one should. */
gpumem_status gm_raw_give_back(struct gm_raw *raw, struct gm_raw_lease *lease);
gpumem_status gm_raw_share(struct gm_raw *raw, uint64_t lease, Gm__Wire__Audience audience,
	uint32_t id, bool read_only, uint8_t ret_token[GM_TOKEN_BYTES]);
/* token: in and out, as ShareChunks has it. ret_leases may be NULL. */
gpumem_status gm_raw_share_chunks(struct gm_raw *raw, const uint64_t *leases,
	const uint64_t *chunks, size_t n, uint32_t first, uint8_t token[GM_TOKEN_BYTES],
	uint64_t *ret_leases);
gpumem_status gm_raw_open_index(struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES],
	uint32_t index, struct gm_raw_lease *ret);
/* Ends a token of so many chunks. */
gpumem_status gm_raw_unshare_chunks(
	struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES], uint32_t n);
gpumem_status gm_raw_open(
	struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES], struct gm_raw_lease *ret);
gpumem_status gm_raw_publish(
	struct gm_raw *raw, const Gm__Wire__Publish *publish, uint64_t *ret_version);
/* owner -1: one's own name. */
gpumem_status gm_raw_attach(
	struct gm_raw *raw, uid_t owner, const char *name, struct gm_raw_lease *ret);
gpumem_status gm_raw_unpublish(struct gm_raw *raw, uid_t owner, const char *name);
/* One piece. */
gpumem_status gm_raw_put_metadata(struct gm_raw *raw, uint64_t lease, uint64_t size,
	uint64_t offset, const void *data, size_t n);
/* Of a name, or of a lease if that is not 0. The caller frees the data, which is NULL if there is none. */
gpumem_status gm_raw_get_metadata(struct gm_raw *raw, uid_t owner, const char *name, uint64_t lease,
	uint8_t **ret_data, size_t *ret_size);
gpumem_status gm_raw_expire(
	struct gm_raw *raw, uid_t owner, const char *name, uint64_t lifetime_ms);
/* How many names the peer can see. */
size_t gm_raw_count_names(struct gm_raw *raw);
gpumem_status gm_raw_unshare(struct gm_raw *raw, uint64_t lease);
gpumem_status gm_raw_goodbye(struct gm_raw *raw);
/* Collects the packets of a LeaseReply that has begun (raw->packet is its first) into the lease. */
gpumem_status gm_raw_collect(struct gm_raw *raw, struct gm_raw_lease *lease);

/* Maps a chunk shared, read-write or read-only; MAP_FAILED as mmap() has it. */
void *gm_raw_map(const struct gm_alloc_raw_chunk *chunk, bool writable);
/* Every byte of the chunk is this one. */
bool gm_alloc_raw_chunk_is(const struct gm_alloc_raw_chunk *chunk, uint8_t byte);
void gm_alloc_raw_chunk_fill(const struct gm_alloc_raw_chunk *chunk, uint8_t byte);

/* What the daemon says of itself and of device 0, asked by an observer on a connection of its own.
 */
struct gm_figures {
	uint64_t clients, quarantined_clients, leases, requests, refusals;
	uint64_t total, capacity, ceiling, available;
	uint64_t leased, quarantined, orphaned, admitted, pooled, foreign, chunks, peak_charged;
	uint64_t declared, declared_seen, free;
	uint64_t generation;
	uint64_t kept, records; /* descriptors in the keeper, and records of the ledger */
};
void gm_figures(const struct gm_daemon *daemon, struct gm_figures *ret);
/* The same of another device. */
void gm_figures_of(const struct gm_daemon *daemon, uint32_t device, struct gm_figures *ret);
struct gm_figures gm_figures_now(const struct gm_daemon *daemon);
/* Waits until there is no client and nothing is leased. A client that has ended is not counted any more while its leases
 * still end, a few on each turn. */
void gm_figures_await_none(const struct gm_daemon *daemon);
/* The same of a daemon that may be away, or die meanwhile: then false. */
bool gm_figures_try(const struct gm_daemon *daemon, struct gm_figures *ret);
/* One client as GetClients shows it to this process; false: not there. */
struct gm_client_row {
	uint64_t session, leases, held, in_use, cached, active_buffers, declared;
	int64_t pid;
	uint32_t uid;
	bool quarantined, details, left;
	char name[GM_BOUND_NAME_BYTES + 1];
};
bool gm_client_row(const struct gm_daemon *daemon, uint64_t session, struct gm_client_row *ret);
/* All of them, sorted by session; at most that many. Returns how many there are. */
size_t gm_client_rows(const struct gm_daemon *daemon, struct gm_client_row *rows, size_t most);
/* What the uid's processes left behind on device 0, as this process is shown it. */
uint64_t gm_left_by(const struct gm_daemon *daemon, uid_t uid);
/* How many requests wait, but for those that are only there while clients are asked. */
uint64_t gm_queue_wait(const struct gm_daemon *daemon);

#endif
