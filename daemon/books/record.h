/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_RECORD_H
#define GM_BOOKS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "common/text/limit_values.h"
#include "daemon/books/owner.h"
#include "daemon/books/token_hash.h"

/*
 * The ledger's records: what the next daemon must know to take over from this one. Core writes and
 * erases them through gm_core_ops, and adopt.c reads them after a start. Whoever stores them sees a kind,
 * an id and bytes.
 *
 * To add a kind, write a struct that begins with struct gm_record, and add a line to the table, its turn to
 * adopt.c, and what it means to adopt_take.c. To add a field, append it to its struct: in a record that an older daemon wrote, it reads as 0. In both
 * cases raise GM_RECORD_FORMAT, so that an older daemon does not lose what it cannot read. Never change what a field or a number means. A record is replaced in place, so
 * a struct may grow to the next of 96, 224, 480, 992 and 2,016 bytes; what does not fit is another
 * kind.
 *
 * The order of writing makes it safe to die between any two records:
 *   - A grant writes its chunks, and then its lease with the new number of grants. A chunk whose
 *     grant is above that number was never granted.
 *   - A return erases the chunks, or turns them into orphaned ones, and then erases the lease.
 *   - A chunk that becomes a lease of its own: the new lease, the chunk, then the lease that it left.
 *   - A client's record is written when everything that the keeper holds for it is there, and erased before
 *     the records of what the client held.
 * Each record names its uid. Records that belong together must agree on it. The user that pays for that uid stays
 * the one that paid when the client connected, whoever owns the subordinate uid by now: charges never move.
 */

/* A daemon does not start if there is a record of a higher format. 4: one record of a client. 5: limits as
 * rows. */
#define GM_RECORD_FORMAT 5

/*   X(kind, number, struct, what a message calls many of them) */
#define GM_RECORDS(X) \
	X(KEY, 1, gm_record_key, "keys") \
	X(DEVICE, 2, gm_record_device, "devices") \
	X(LIMIT, 3, gm_record_limit, "limits") \
	X(ORPHAN, 4, gm_record_orphan, "orphaned accounts") \
	X(SESSION, 5, gm_record_session, "sessions") \
	X(CLIENT, 6, gm_record_client, "clients") \
	X(LEASE, 7, gm_record_lease, "leases") \
	X(CHUNK, 8, gm_record_chunk, "chunks") \
	X(REF, 9, gm_record_ref, "opened leases") \
	X(SHARE, 10, gm_record_share, "shares") \
	X(NAME, 11, gm_record_name, "names") \
	X(DRAIN, 12, gm_record_drain, "drains") \
	X(ORPHAN_MAP, 13, gm_record_orphan_map, "orphaned mappings") \
	X(METADATA, 14, gm_record_metadata, "metadata") \
	X(DECLARED, 15, gm_record_declared, "declarations")

enum gm_record_kind {
	GM_RECORD_NONE = 0,
#define GM_RECORD_ENUM(kind, number, type, text) GM_RECORD_##kind = (number),
	GM_RECORDS(GM_RECORD_ENUM)
#undef GM_RECORD_ENUM
		GM_RECORD_KINDS, /* one above the last */
};

/* How every record begins. */
struct gm_record {
	uint8_t format; /* of the daemon that wrote it */
	uint8_t kind;
	uint16_t size; /* what it wrote; the rest of the struct is 0 */
	uint32_t uid;  /* whose it is; 0 where it is nobody's */
	uint64_t id;   /* the one it is stored under */
};

/* The key under which tokens are hashed, or no old token would be valid. There is one, with id 1. */
struct gm_record_key {
	struct gm_record head;
	struct gm_token_hash_key key;
};

/*
 * A device, by its key, and what was counted on it. The next daemon may number its devices
 * differently, so records name a device by a key that is made of its UUID.
 */
struct gm_record_device {
	struct gm_record head;
	uint64_t reclaim_epoch, peak_charged, peak_pooled;
	uint64_t hits, misses, returns, released, granted;
	uint64_t requests, refusals; /* of all devices; in the first device's record */
};

/* Before GM_RECORD_FORMAT_LIMIT_ROWS, a limit had a member for each kind of value, for each device. */
#define GM_RECORD_FORMAT_LIMIT_ROWS 5
#define GM_RECORD_LIMIT_ROWS        (GM_BOUND_DEVICES * GM_LIMIT_N_KINDS)
/* The limit that was set at run time for an owner: its devices, and a row for each value on one of them. */
struct gm_record_limit {
	struct gm_record head;
	struct gm_owner owner;
	uint64_t n_devices;
	union {
		struct {
			uint64_t devices[GM_BOUND_DEVICES];
			uint64_t n_values;
			struct {
				uint64_t value;  /* as gm_limit_values_get() returns it */
				uint32_t device; /* its place in devices */
				uint32_t bit;    /* of GM_LIMIT_KINDS */
			} values[GM_RECORD_LIMIT_ROWS];
		};
		struct {
			uint64_t device;
			uint64_t max, guarantee;
			int32_t priority;
			uint32_t set;
		} former[GM_BOUND_DEVICES];
	};
};

/* Who pays for what sessions left behind. */
struct gm_record_orphan {
	struct gm_record head;
	uint32_t gid, reserved;
	char unit[GM_OWNER_NAME_BYTES + 1];
	char container[GM_OWNER_NAME_BYTES + 1];
	uint32_t payer_uid, reserved_2; /* gm_record_payer_of(), as in the next two */
};

/* Before GM_RECORD_FORMAT_ONE_CLIENT, a client had two records of one id: this one and a gm_record_client that ended with
 * payer_uid. This one was written first, and erased first. */
#define GM_RECORD_FORMAT_ONE_CLIENT 4
struct gm_record_session {
	struct gm_record head;
	struct gm_token_hash token;
	struct gm_token_hash former;
	int32_t pid;
	uint32_t gid;
	char unit[GM_OWNER_NAME_BYTES + 1];
	char container[GM_OWNER_NAME_BYTES + 1];
	char name[GM_OWNER_NAME_BYTES + 1];
	struct gm_token_hash domain;  /* since format 2: of its trust domain's key; 0: not known */
	uint32_t payer_uid, reserved; /* since format 2, like all that follows */
	uint64_t run_max;
	int32_t run_priority;
	uint32_t run_set; /* which of the two its run has */
	char run[GM_BOUND_RUN_BYTES + 1];
};

/* A client: its process, who is charged, its run, the tokens that resume it, and the state of its page. */
#define GM_RECORD_UNIT_BYTES      256
#define GM_RECORD_CONTAINER_BYTES 128
#define GM_RECORD_SCOPE_BYTES     1024
#define GM_RECORD_COMMAND_BYTES   64
#define GM_RECORD_BOOT_BYTES      16
struct gm_record_client {
	struct gm_record head;
	uint8_t boot[GM_RECORD_BOOT_BYTES]; /* the boot during which the process was seen */
	uint64_t start_time;                /* field 22 of its /proc/PID/stat */
	uint64_t since_ns;                  /* when it joined */
	int32_t pid;
	uint32_t gid;
	uint32_t page_version;
	uint8_t loose;    /* gm_cgroup.name_is_loose */
	uint8_t confined; /* as in gm_identity, like the next one */
	uint8_t own_pid_namespace;
	uint8_t page_unsafe; /* the client may have a page that was not kept */
	char name[GM_BOUND_NAME_BYTES + 1];
	char command[GM_RECORD_COMMAND_BYTES];
	char unit[GM_RECORD_UNIT_BYTES];
	char container[GM_RECORD_CONTAINER_BYTES];
	char scope[GM_RECORD_SCOPE_BYTES];
	uint32_t payer_uid; /* since format 2 */
	uint32_t
		run_set; /* which of its run's two values are set; since format 4, like all that follows */
	struct gm_token_hash token;
	struct gm_token_hash former; /* valid, too, unless it is 0: see gm_session_confirm() */
	struct gm_token_hash domain; /* of its trust domain's key; 0: not known */
	uint64_t run_max;
	int32_t run_priority;
	char run[GM_BOUND_RUN_BYTES + 1];
};

struct gm_record_lease {
	struct gm_record head;
	uint64_t session; /* its maker; 0: the maker returned it, and others hold it */
	uint64_t orphan;
	uint64_t grants; /* how many requests brought it chunks */
	uint64_t next_index;
	uint64_t user_bytes;
	uint64_t device;
	uint32_t
		made; /* how often its maker holds it, without what it opened and has a record for */
	uint32_t transport;
	char tag[GM_BOUND_NAME_BYTES + 1]; /* written only as far as it is used */
	uint64_t flags;                    /* written only if it is not 0 */
	/* With GM_RECORD_PIECE: the lease that its chunk was in before. */
	uint64_t origin;
};
enum gm_record_lease_flag {
	GM_RECORD_FOR_OTHERS = 1,
	GM_RECORD_SIGNALS = 2,
	GM_RECORD_PIECE = 4,
};

enum gm_record_chunk_state {
	GM_RECORD_LEASED = 1,
	GM_RECORD_ORPHANED = 2,
};
struct gm_record_chunk {
	struct gm_record head;
	uint64_t owner;   /* the lease; of an orphaned chunk, the orphaned account */
	uint64_t request; /* the id of the client's packet that brought it; 0: not known */
	uint64_t grant;
	uint64_t index;
	uint64_t bytes;
	uint64_t device;
	uint32_t transport;
	uint32_t state;
};

/* A lease that a session opened. It has one for each time. */
struct gm_record_ref {
	struct gm_record head; /* the uid of the session */
	uint32_t lease_uid, reserved;
	uint64_t lease;
	uint64_t session;
	uint64_t request; /* the id of the packet that opened it; 0: not known */
	uint32_t count;   /* 1 */
	uint32_t read_only;
	uint64_t version; /* of the lease's name; 0: it had none */
};

/* A token that opens a lease. */
struct gm_record_share {
	struct gm_record head; /* the uid of the lease */
	struct gm_token_hash hash;
	uint64_t lease;
	uint32_t audience;
	uint32_t id;
	uint32_t read_only;
	uint32_t reserved;
	uint64_t request; /* the id of the packet that made it; 0: not known */
};

/* A name that keeps a lease. */
struct gm_record_name {
	struct gm_record head; /* the uid that it belongs to, which is that of the lease */
	uint64_t lease;
	uint64_t version;
	uint64_t since_ns;
	struct gm_token_hash domain;
	uint32_t audience;
	uint32_t audience_id;
	uint32_t read_only;
	uint32_t until_unread;
	char text[GM_BOUND_NAME_BYTES + 1];
	uint64_t expires_ns; /* 0: never. On the same clock as since_ns */
	uint64_t metadata;   /* the id of its record; 0: none */
	uint64_t request;    /* the id of the packet that published this version; 0: not known */
};

/* The metadata of a lease. The keeper has its memfd, under the same id. */
struct gm_record_metadata {
	struct gm_record head; /* the uid of the lease */
	uint64_t lease;
	uint64_t bytes;
	uint64_t version; /* of the name */
};

/* The uid that pays for the uid of a record: 0 is the uid itself. Root can own subordinate uids, so root as the payer of
 * another uid is written as a number that no uid has. */
#define GM_RECORD_PAYER_ROOT UINT32_MAX
static inline uint32_t gm_record_payer_uid(const struct gm_record *head, uint32_t payer_uid)
{
	return payer_uid == GM_RECORD_PAYER_ROOT ? 0 : payer_uid ? payer_uid : head->uid;
}
static inline uint32_t gm_record_payer_of(uint32_t uid, uint32_t payer_uid)
{
	return payer_uid == 0 && uid != 0 ? GM_RECORD_PAYER_ROOT : payer_uid;
}

/* A device that is being drained. It has the id of the device's record, and the uid of who drains it. */
struct gm_record_drain {
	struct gm_record head;
	uint64_t since_ns;
};

/* How much a session declared on each device. The record has the id of the session, and is erased before the
 * session's. */
struct gm_record_declared {
	struct gm_record head;
	uint64_t n_devices;
	struct {
		uint64_t device;
		uint64_t bytes;
	} devices[GM_BOUND_DEVICES];
};

/* Memory that was destroyed and that a process still maps, as far as it is charged (orphan_map.c). */
struct gm_record_orphan_map {
	struct gm_record head;
	uint64_t orphan; /* who pays */
	uint64_t device;
	uint64_t bytes;
	uint64_t before; /* what the driver counted for the process without it */
	uint64_t began;  /* when the process began; 0: not known */
	int32_t pid;
	uint32_t reserved;
};

/* Fills the head of a record of which size bytes will be written. */
static inline void gm_record_begin(
	struct gm_record *head, enum gm_record_kind kind, uint64_t id, size_t size, uint32_t uid)
{
	head->kind = (uint8_t)kind;
	head->format = GM_RECORD_FORMAT;
	head->size = (uint16_t)size;
	head->uid = uid;
	head->id = id;
}

/* How many bytes of a lease's record are written: up to the end of the tag, up to the flags, or all. A lease keeps this
 * size, so its record stays where it is. */
static inline size_t gm_record_lease_size(size_t tag, uint64_t flags)
{
	if (flags & GM_RECORD_PIECE)
		return sizeof(struct gm_record_lease);
	if (flags)
		return offsetof(struct gm_record_lease, origin);
	size_t words = tag > 0 ? tag / sizeof(uint64_t) + 1 : 0;
	return offsetof(struct gm_record_lease, tag) + words * sizeof(uint64_t);
}

#endif
