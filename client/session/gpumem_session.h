/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_H
#define GM_CLIENT_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/session/capture.h"
#include "client/session/conn.h"
#include "client/session/error.h"
#include "client/session/fork.h"
#include "client/session/hello.h"
#include "client/session/session_pages.h"
#include "common/path.h"
#include "gpumem/gpumem.h"

struct gm_arena;
struct gm_pinned_block;
struct gm_buffers;
struct gm_thread;
struct gm_held;
struct gm_session_lease;
struct gm_supply;

/* One device, as this process uses it. */
struct gm_session_device {
	_Atomic(struct gm_arena *) arena;       /* made by the first gpumem_alloc() */
	struct gm_supply *supply;               /* its chunks */
	_Atomic(const struct gm_map_ops *) map; /* NULL until gm_mapping_open() */
	void *backend;
	gpumem_device_info_t info; /* as of the hello; capacity and available go stale */
	_Atomic uint64_t pressure; /* as last read from the page: level << 32 | ppm */
	/* Of blocks in the page's table; with listing held. */
	uint64_t listed_changes; /* gm_arena_changes() when it was looked through */
	uint64_t listed_from;    /* track_from then */
	uint64_t unlisted;       /* found no row */
	/* Of buffers; under the session's lock. */
	uint64_t buffer_in_use;  /* asked for */
	uint64_t buffer_held;    /* whole leases this process made */
	uint64_t buffers;        /* alive */
	uint64_t buffer_misses;  /* ever made */
	uint64_t buffer_returns; /* chunks given back */
	uint64_t peak;           /* of all in use, as far as it was seen */
};

enum gm_session_state {
	GM_SESSION_UP,     /* connected */
	GM_SESSION_AWAY,   /* the daemon is: what is held works on, no new memory */
	GM_SESSION_CLOSED, /* being disconnected: nothing is sent any more */
};

/*
 * What a program holds: a connection, or the memory of one. Fields up to the lock are set when the
 * session is made and do not change.
 */
struct gpumem_session {
	struct gm_fork_mark mark;
	uint32_t devices; /* all of them */
	uint32_t counted; /* those that a program counts: pinned host memory comes after them */
	_Atomic uint64_t track_from; /* buffers of this many bytes are listed in the page */
	_Atomic bool stirred;        /* the library's thread watches the figures */
	bool peers;                  /* GPUs may use one another's memory */
	struct gm_session_device device[GM_LIMIT_DEVICES];

	char path[GM_PATH_BYTES];
	char why[64]; /* that path */
	char name[GM_LIMIT_NAME_BYTES + 1];
	uint64_t timeout_ns;
	struct gm_session_pages pages;
	int wake;               /* an eventfd */
	struct gm_call goodbye; /* kept ready: the end must not fail for want of memory */
	struct gm_thread *thread;

	struct gm_captures captures; /* what graphs use */
	pthread_mutex_t opening;     /* held while a device's mapping is made */
	pthread_mutex_t listing;     /* held while the heap's blocks are listed in the page */
	pthread_mutex_t settling;    /* held while ended buffers are unmapped and given back */
	_Atomic uint64_t unsettled;  /* how many there are, those at work on included */
	_Atomic bool kept;           /* something could not be unmapped and is here still */
	pthread_mutex_t lock; /* of what follows, and of a device's marked fields; held shortly */
	enum gm_session_state state;
	char away[GM_ERROR_BYTES];
	struct gm_conn *conn; /* NULL unless up */
	uint64_t id;
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t generation;
	uint64_t decay_ms;
	uint64_t wait_ms; /* how long the daemon lets a request wait that does not say */
	/* Grows when the daemon knows the old session no more: leases of an older epoch are in no
	 * book, and are let go without a message. */
	uint64_t epoch;
	struct gm_session_lease *leases; /* all that the daemon may have granted */
	struct gm_held *returning;       /* to give back when the daemon is there */
	struct gm_pinned_block *blocks;  /* of pinned memory, where each is a buffer: pinned.c */
	struct gm_pinned_block *leaving; /* freed, perhaps still used by the device */
	struct gpumem_buffer *list;      /* buffers alive */
	struct gpumem_buffer *ended;     /* destroyed, and still mapped: gm_buffer_settle() */
};

/* The checks every call begins with. */
gpumem_status gm_session_refused(const struct gpumem_session *session);
static inline bool gm_session_ok(const struct gpumem_session *session)
{
	return session && gm_fork_same(&session->mark);
}
gpumem_status gm_session_no_device(const struct gpumem_session *session, uint32_t device);

/* The number that a program uses for a device, and back: pinned host memory has none that could
 * change with the number of GPUs. false: there is no such device. */
static inline uint32_t gm_session_device_name(const struct gpumem_session *session, uint32_t device)
{
	return device < session->counted ? device : GPUMEM_DEVICE_HOST;
}
static inline bool gm_session_find_device(
	const struct gpumem_session *session, uint32_t name, uint32_t *ret_device)
{
	*ret_device = name == GPUMEM_DEVICE_HOST ? session->counted : name;
	return name < session->counted ||
	       (name == GPUMEM_DEVICE_HOST && session->counted < session->devices);
}

/* Makes the library's thread look around: for the end of the connection, work, or the time. */
void gm_session_wake(void *session);

/* Something is allocated or freed: figures are to be published for a while. Costs a load once it is
 * known. */
static inline void gm_session_stir(struct gpumem_session *session)
{
	if (__builtin_expect(!atomic_load_explicit(&session->stirred, memory_order_relaxed), 0)) {
		atomic_store_explicit(&session->stirred, true, memory_order_relaxed);
		gm_session_wake(session);
	}
}

uint64_t gm_session_epoch(struct gpumem_session *session);
/* How long the daemon lets a request wait that does not say; 0: not at all. */
uint64_t gm_session_wait_ms(struct gpumem_session *session);

/*
 * Sends a request and waits for its answer, on the session's connection or, while a new one is
 * being taken up, on that (via). The status is the daemon's, or GPUMEM_E_DISCONNECTED,
 * GPUMEM_E_TIMEOUT, …; the sentence is left. After a timeout *call is NULL: it ends in its ops'
 * late().
 */
gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_call **call);
/* The same for a request whose answer says nothing but Done. */
gpumem_status gm_session_tell(
	struct gpumem_session *session, struct gm_conn *via, Gm__Wire__Packet *request);

/* The same with a call of the caller's, which must outlive the connection: needs no memory. */
gpumem_status gm_session_tell_with(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_call *call);

/* Reads the device list; pinned host memory, the last one, has the number GPUMEM_DEVICE_HOST.
 * ret_infos has room for GM_LIMIT_DEVICES. */
gpumem_status gm_session_devices(struct gpumem_session *session, struct gm_conn *via,
	gpumem_device_info_t *ret_infos, uint32_t *ret_n);

/* Takes over what a hello brought, which is empty afterwards but for the event socket. */
void gm_session_adopt(struct gpumem_session *session, struct gm_hello *hello);

/* Structs with a size: reads (writes) as much of one as both sides know. The rest of known stays
 * as it was. GPUMEM_E_INVALID: its size was not set, so that what it asks for would go unheard.
 * given may be NULL in gm_sized_in(). */
gpumem_status gm_sized_in(void *known, size_t known_bytes, const void *given);
gpumem_status gm_sized_out(void *given, const void *known, size_t known_bytes);

#endif
